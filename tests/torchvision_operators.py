"""Makes torchvision importable, and has what stands in for its operators where they are not compiled.

A torchvision that was compiled for another PyTorch (the usual wheel is for CUDA, also beside a PyTorch for CPUs alone) has
its modules, but not its operators. There

- non-maximum suppression is the loop `_nms`;
- RoiAlign is `_roi_align`, of PyTorch's operators: what tests compare with, gradients too, is then nothing of this
  project's. torchvision has one in Python as well, but it takes the map's edge for samples off the map, where the compiled
  one takes 0;
- RoIPool, position-sensitive RoIAlign and the deformable convolution are likewise `_roi_pool`, `_ps_roi_align` and
  `_deform_conv2d`;
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


def _ps_roi_align(x: Any, rois: Any, scale: float, height: int, width: int, sampling_ratio: int) -> tuple[Any, Any]:
    """RoiAlign in which each bin has channels of its own, and the pixels' centres are at halves."""
    pooled = _roi_align(x, rois, scale, height, width, sampling_ratio, True)
    of_bins = pooled.reshape(len(rois), -1, height, width, height, width)
    return torch.einsum("kcpqpq->kcpq", of_bins), pooled.new_zeros(0)


def _roi_pool(x: Any, rois: Any, scale: float, height: int, width: int) -> tuple[Any, Any]:
    """The maxima of bins of whole pixels, 0 of empty ones."""
    pooled = x.new_zeros(len(rois), x.shape[1], height, width)
    for k, (image, *corners) in enumerate(rois.tolist()):
        left, top, right, bottom = (math.floor(scale * corner + 0.5) for corner in corners)
        for i, (first, last) in enumerate(_bins(top, bottom, height, x.shape[2])):
            for j, (start, end) in enumerate(_bins(left, right, width, x.shape[3])):
                if first < last and start < end:
                    pooled[k, :, i, j] = x[int(image), :, first:last, start:end].amax((1, 2))
    return pooled, pooled.new_zeros(0)


def _bins(first: int, last: int, bins: int, length: int) -> list[tuple[int, int]]:
    size = max(last - first + 1, 1) / bins
    edges = [(math.floor(i * size), math.ceil((i + 1) * size)) for i in range(bins)]
    return [(min(max(a + first, 0), length), min(max(b + first, 0), length)) for a, b in edges]


def _deform_conv2d(x: Any, weight: Any, offset: Any, mask: Any, bias: Any, *others: Any) -> Any:
    """A convolution whose samples are moved, as a product of weights and samples between pixels."""
    strides, pads, dilations, (groups, offset_groups, use_mask) = others[:2], others[2:4], others[4:6], others[6:]
    images, channels = x.shape[:2]
    kernel, lengths = weight.shape[2:], offset.shape[2:]
    moved = offset.reshape(images, offset_groups, *kernel, 2, *lengths)
    places = []
    for axis in (0, 1):
        taps = torch.arange(kernel[axis]) * dilations[axis]
        starts = torch.arange(lengths[axis]) * strides[axis] - pads[axis]
        shape = [[kernel[0], 1, 1, 1], [kernel[1], 1, 1]][axis], [[lengths[0], 1], [lengths[1]]][axis]
        at = taps.reshape(shape[0]) + starts.reshape(shape[1]) + moved[..., axis, :, :]
        places.append((2 * at + 1) / x.shape[2 + axis] - 1)
    grid = torch.stack(places[::-1], -1).reshape(images * offset_groups, -1, lengths[1], 2)
    maps = x.reshape(images * offset_groups, -1, *x.shape[2:])
    samples = torch.nn.functional.grid_sample(maps, grid, align_corners=False)
    samples = samples.reshape(images, offset_groups, -1, *kernel, *lengths)
    if use_mask:
        samples = samples * mask.reshape(images, offset_groups, 1, *kernel, *lengths)
    samples = samples.reshape(images, groups, channels // groups, *kernel, *lengths)
    weights = weight.reshape(groups, -1, *weight.shape[1:])
    return torch.einsum("ngcijyx,gocij->ngoyx", samples, weights).flatten(1, 2) + bias[:, None, None]


def _fake_pooled(x: Any, rois: Any, scale: float, height: int, width: int) -> tuple[Any, Any]:  # noqa: ARG001
    shape = rois.shape[0], x.shape[1], height, width
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int32)


def _fake_position_sensitive(
    x: Any,
    rois: Any,
    scale: float,  # noqa: ARG001
    height: int,
    width: int,
    sampling_ratio: int,  # noqa: ARG001
) -> tuple[Any, Any]:
    shape = rois.shape[0], x.shape[1] // (height * width), height, width
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int32)


def _fake_deform_conv2d(x: Any, weight: Any, offset: Any, *others: Any) -> Any:  # noqa: ARG001
    return x.new_empty(x.shape[0], weight.shape[0], *offset.shape[2:])


def _roi_align_backward(dy: Any, rois: Any, scale: float, height: int, width: int, *others: Any) -> Any:  # noqa: ARG001
    *shape, sampling_ratio, aligned = others
    return torch.ops.ortops.roi_align_dx(dy, rois, shape, scale, sampling_ratio, aligned)


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
    _sizes = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
    _shape = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
    for _name, _arguments, _kernel in (
        ("roi_align", f"Tensor input, Tensor rois, {_sizes}", OPERATORS["roi_align"]),
        ("_roi_align_backward", f"Tensor grad, Tensor rois, {_sizes}, {_shape}", _roi_align_backward),
    ):
        _library.define(f"{_name}({_arguments}, int sampling_ratio, bool aligned) -> Tensor")
        _library.impl(_name, _kernel, "CPU")
        torch.library.register_fake(f"torchvision::{_name}", _kernel, lib=_library)
    _tensors = "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias"
    _steps = ", ".join(f"SymInt {name}_{axis}" for name in ("stride", "pad", "dilation") for axis in "hw")
    for _name, _arguments, _kernel, _fake in (
        ("roi_pool", f"Tensor input, Tensor rois, {_sizes}) -> (Tensor, Tensor", _roi_pool, _fake_pooled),
        (
            "ps_roi_align",
            f"Tensor input, Tensor rois, {_sizes}, int sampling_ratio) -> (Tensor, Tensor",
            _ps_roi_align,
            _fake_position_sensitive,
        ),
        (
            "deform_conv2d",
            f"{_tensors}, {_steps}, SymInt groups, SymInt offset_groups, bool use_mask) -> (Tensor",
            _deform_conv2d,
            _fake_deform_conv2d,
        ),
    ):
        _library.define(f"{_name}({_arguments})")
        _library.impl(_name, _kernel, "CPU")
        torch.library.register_fake(f"torchvision::{_name}", _fake, lib=_library)
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
