"""Makes torchvision importable, and has what stands in for its operators where they are not compiled.

A torchvision that was compiled for another PyTorch (the usual wheel is for CUDA, also beside a PyTorch for CPUs alone) has
its modules, but not its operators. There

- non-maximum suppression is the loop `_nms`;
- RoiAlign is `_roi_align`, of PyTorch's operators: what tests compare with, gradients too, is then nothing of this
  project's. torchvision has one in Python as well, but it takes the map's edge for samples off the map, where the compiled
  one takes 0;
- an exporter sees the operators by torchvision's names, with RoiAlign's values and gradient from `ortops.torch`.

Where torchvision's operators are compiled, nothing is replaced.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from benchmarks.networks.zoo import models
from ortops.torch.operators import OPERATORS


def _nms(boxes: Any, scores: Any, iou_threshold: float) -> Any:
    """Places of the boxes that none of a higher score overlaps by more than the threshold, by falling score."""
    order = scores.argsort(descending=True, stable=True)
    box_iou = importlib.import_module("torchvision.ops").box_iou
    overlapping = box_iou(boxes[order], boxes[order]) > iou_threshold
    kept = torch.ones(len(order), dtype=torch.bool)
    for i in range(len(order)):
        if kept[i]:
            kept[i + 1 :] &= ~overlapping[i, i + 1 :]
    return order[kept]


def _roi_align(
    x: Any, rois: Any, scale: float, height: int, width: int, sampling_ratio: int = -1, aligned: bool = False
) -> Any:
    """RoiAlign as a product of each RoI's weights of rows, its map and its weights of columns; RoIs have no gradient."""
    pooled = [x.new_zeros(0, x.shape[1], height, width)]
    for image, *corners in rois.detach().tolist():
        left, top, right, bottom = (scale * corner - 0.5 * aligned for corner in corners)
        rows = _weights(top, bottom, height, x.shape[2], sampling_ratio, aligned).to(x.dtype)
        columns = _weights(left, right, width, x.shape[3], sampling_ratio, aligned).to(x.dtype)
        pooled.append(torch.einsum("py,cyx,qx->cpq", rows, x[int(image)], columns).unsqueeze(0))
    return torch.cat(pooled)


def _weights(start: float, end: float, bins: int, length: int, sampling_ratio: int, aligned: bool) -> Any:
    """How much of each pixel [bins, length] is in a bin's mean: of samples between pixels, and of 0 far off the map."""
    size = end - start if aligned else max(end - start, 1.0)
    samples = sampling_ratio if sampling_ratio > 0 else max(math.ceil(size / bins), 0)
    if not samples:
        return torch.zeros(bins, length)
    places = start + (torch.arange(bins * samples, dtype=torch.float64) + 0.5) * size / (bins * samples)
    is_near = (places >= -1) & (places <= length)
    distances = (places.clamp(0, length - 1).unsqueeze(1) - torch.arange(length)).abs()
    return ((1 - distances).clamp(min=0) * is_near.unsqueeze(1)).reshape(bins, samples, length).mean(1)


def _roi_align_backward(dy: Any, rois: Any, scale: float, height: int, width: int, *others: Any) -> Any:  # noqa: ARG001
    *shape, sampling_ratio, aligned = others
    return torch.ops.ortops.roi_align_dx(dy, rois, shape, scale, sampling_ratio, aligned)


def _yes() -> bool:
    return True


def _is_exporting() -> bool:
    return bool(torch.jit.is_tracing() or torch.compiler.is_compiling())


models()
_extension: Any = importlib.import_module("torchvision.extension")
_module: Any = importlib.import_module("torchvision.ops.roi_align")

IS_COMPILED: bool = _extension._has_ops()  # noqa: SLF001
"""Whether torchvision's own operators are there."""

if not IS_COMPILED:
    _library = torch.library.Library("torchvision", "FRAGMENT")
    """Kept alive, since PyTorch removes the operators of a library that is garbage-collected."""
    _library.impl("nms", _nms, "CPU")
    _sizes = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
    _shape = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
    for _name, _arguments, _kernel in (
        ("roi_align", f"Tensor input, Tensor rois, {_sizes}", OPERATORS["roi_align"]),
        ("_roi_align_backward", f"Tensor grad, Tensor rois, {_sizes}, {_shape}", _roi_align_backward),
    ):
        _library.define(f"{_name}({_arguments}, int sampling_ratio, bool aligned) -> Tensor")
        _library.impl(_name, _kernel, "CPU")
        torch.library.register_fake(f"torchvision::{_name}", _kernel, lib=_library)
    _gradients: Any = importlib.import_module("torchvision._autograd_registrations")
    torch.library.register_autograd(
        "torchvision::roi_align",
        _gradients._roi_align_backward,  # noqa: SLF001
        setup_context=_gradients._roi_align_setup_context,  # noqa: SLF001
        lib=_library,
    )


@contextmanager
def compiled_or_not() -> Iterator[None]:
    """Let torchvision's functions run, with what stands in for its operators where they are not compiled."""
    if IS_COMPILED:
        yield
        return
    # nms asks the first. RoiAlign asks the second, and is the function of this name where there are no operators.
    with (
        mock.patch.object(_extension, "_has_ops", _yes),
        mock.patch.multiple(_module, _has_ops=_is_exporting, _roi_align=_roi_align),
    ):
        yield
