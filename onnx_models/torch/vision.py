"""torchvision's RoiAlign operator for PyTorch without torchvision, computed by this project's kernels."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any

import torch

import ortops

_FORWARD = (
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor"
)
_BACKWARD = (
    "_roi_align_backward(Tensor grad, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "SymInt batch_size, SymInt channels, SymInt height, SymInt width, int sampling_ratio, bool aligned) -> Tensor"
)

_libraries: list[Any] = []
"""Kept alive, since PyTorch removes the operators of a library that is garbage-collected."""


def declare_roi_align() -> None:
    """Define ``torch.ops.torchvision.roi_align`` and its gradient, unless torchvision can be imported and has them.

    Both have torchvision's signatures, for CPU tensors of float16, float32 and float64, for fake tensors and for autograd.
    As in torchvision, no gradient is passed to the RoIs. A second call does nothing.

    Source: torchvision 0.28, ``torchvision::roi_align`` and its registrations of gradient and fake implementation.
    """
    # A torchvision that does not match this PyTorch raises a RuntimeError.
    with contextlib.suppress(ImportError, RuntimeError):
        importlib.import_module("torchvision")
    if hasattr(torch.ops.torchvision, "roi_align"):
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    _libraries.append(library)
    library.define(_FORWARD)
    library.define(_BACKWARD)
    library.impl("roi_align", _forward, "CPU")
    library.impl("_roi_align_backward", _backward, "CPU")
    torch.library.register_fake("torchvision::roi_align", _fake_forward, lib=library)
    torch.library.register_fake("torchvision::_roi_align_backward", _fake_backward, lib=library)
    torch.library.register_autograd("torchvision::roi_align", _gradients, setup_context=_keep_for_backward, lib=library)


def coordinate_transformation_mode(aligned: bool) -> Any:
    """ONNX's coordinate_transformation_mode for torchvision's argument ``aligned``."""
    return "half_pixel" if aligned else "output_half_pixel"


def _forward(x: Any, rois: Any, scale: float, height: int, width: int, sampling_ratio: int, aligned: bool) -> Any:
    y = ortops.roi_align(
        _array(x),
        *_boxes_and_images(rois),
        output_height=height,
        output_width=width,
        sampling_ratio=max(sampling_ratio, 0),
        spatial_scale=scale,
        coordinate_transformation_mode=coordinate_transformation_mode(aligned),
    )
    return torch.from_numpy(y)


def _backward(
    dy: Any,
    rois: Any,
    scale: float,
    pooled_height: int,
    pooled_width: int,
    images: int,
    channels: int,
    height: int,
    width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Any:
    if tuple(dy.shape[2:]) != (pooled_height, pooled_width):
        raise ValueError(f"grad has shape {tuple(dy.shape)}: must be [K, C, {pooled_height}, {pooled_width}]")
    dx, _ = ortops.roi_align_grad(
        _array(dy),
        *_boxes_and_images(rois),
        (images, channels, height, width),
        sampling_ratio=max(sampling_ratio, 0),
        spatial_scale=scale,
        coordinate_transformation_mode=coordinate_transformation_mode(aligned),
        outputs=("dx",),
    )
    return torch.from_numpy(dx)


def _array(tensor: Any) -> Any:
    return tensor.detach().contiguous().numpy()


def _boxes_and_images(rois: Any) -> tuple[Any, Any]:
    """The boxes [K, 4] and batch indices [K] of torchvision's RoIs [K, 5]."""
    if rois.dim() != 2 or rois.shape[1] != 5:
        raise ValueError(f"rois has shape {tuple(rois.shape)}: must be [K, 5], the image's index and x1, y1, x2, y2")
    return _array(rois[:, 1:]), _array(rois[:, 0].to(torch.int64))


def _fake_forward(x: Any, rois: Any, scale: float, height: Any, width: Any, ratio: int, aligned: bool) -> Any:  # noqa: ARG001
    return x.new_empty((rois.shape[0], x.shape[1], height, width))


def _fake_backward(
    dy: Any,
    rois: Any,  # noqa: ARG001
    scale: float,  # noqa: ARG001
    pooled_height: Any,  # noqa: ARG001
    pooled_width: Any,  # noqa: ARG001
    images: Any,
    channels: Any,
    height: Any,
    width: Any,
    sampling_ratio: int,  # noqa: ARG001
    aligned: bool,  # noqa: ARG001
) -> Any:
    return dy.new_empty((images, channels, height, width))


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG001
    x, rois, *attributes = inputs
    ctx.save_for_backward(rois)
    ctx.attributes, ctx.shape = attributes, x.shape


def _gradients(ctx: Any, dy: Any) -> tuple[Any, ...]:
    (rois,) = ctx.saved_tensors
    scale, height, width, ratio, aligned = ctx.attributes
    dx = torch.ops.torchvision._roi_align_backward(  # noqa: SLF001 - torchvision has no public name for it
        dy, rois, scale, height, width, *ctx.shape, ratio, aligned
    )
    return dx, None, None, None, None, None, None
