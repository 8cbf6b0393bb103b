# SPDX-License-Identifier: MIT
"""Makes torchvision importable, and has what stands in for its operators where they are not compiled.

A torchvision that was compiled for another PyTorch (the usual wheel is for CUDA, also beside a PyTorch for CPUs alone) has
its modules, but not its operators. There

- non-maximum suppression is the loop `_nms`;
- RoiAlign is `_roi_align`, of PyTorch's operators: what tests compare with, gradients too, is then nothing of this
  project's. torchvision has one in Python as well, but it takes the map's edge for samples off the map, where the compiled
  one takes 0;
- an exporter sees the operators by torchvision's names, with the values and gradients of `ortops.torch`. The deformable
  convolution has a shape there and no values.

Where torchvision's operators are compiled, nothing is replaced.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

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


def _with_positions(pool: Callable[..., Any]) -> Callable[..., Any]:
    """An operator of `ortops.torch` with a second output, which torchvision's has for its gradient."""
    return lambda *arguments: (pool(*arguments), torch.zeros(0, dtype=torch.int32))


def _deformed(x: Any, weight: Any, offset: Any, *_: Any) -> Any:
    return x.new_empty(x.shape[0], weight.shape[0], *offset.shape[2:])


def _yes() -> bool:
    return True


def _is_exporting() -> bool:
    return bool(torch.jit.is_tracing() or torch.compiler.is_compiling())


_declarations: list[Any] = []
"""PyTorch removes the declarations of a library when it is garbage-collected."""

try:
    importlib.import_module("torchvision.models")
except RuntimeError:
    # This PyTorch cannot load torchvision's compiled operators, and torchvision's modules use two of them by their names.
    _declarations.append(torch.library.Library("torchvision", "FRAGMENT"))
    for _operator in ("nms", "qnms"):
        _declarations[0].define(f"{_operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    importlib.import_module("torchvision.models")

_extension: Any = importlib.import_module("torchvision.extension")
_module: Any = importlib.import_module("torchvision.ops.roi_align")

IS_COMPILED: bool = _extension._has_ops()  # noqa: SLF001
"""Whether torchvision's own operators are there."""

if not IS_COMPILED:
    _library = torch.library.Library("torchvision", "FRAGMENT")
    """Kept alive, since PyTorch removes the operators of a library that is garbage-collected."""
    _library.impl("nms", _nms, "CPU")
    _pooling = "Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width"
    _tensors = "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias"
    _steps = ", ".join(f"SymInt {name}_{axis}" for name in ("stride", "pad", "dilation") for axis in "hw")
    for _schema, _kernel in (
        (f"roi_align({_pooling}, int sampling_ratio, bool aligned) -> Tensor", OPERATORS["roi_align"]),
        (f"roi_pool({_pooling}) -> (Tensor, Tensor)", _with_positions(OPERATORS["roi_pool"])),
        (
            f"ps_roi_align({_pooling}, int sampling_ratio) -> (Tensor, Tensor)",
            _with_positions(OPERATORS["ps_roi_align"]),
        ),
        (
            f"deform_conv2d({_tensors}, {_steps}, SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor",
            _deformed,
        ),
    ):
        _name = _schema.partition("(")[0]
        _library.define(_schema)
        _library.impl(_name, _kernel, "CPU")
        torch.library.register_fake(f"torchvision::{_name}", _kernel, lib=_library)


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
