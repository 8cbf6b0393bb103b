# SPDX-License-Identifier: MIT
"""The functions and modules of `ortops.torch`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import torch

from ortops.torch import attention
from ortops.torch.operators import OPERATORS

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

Size = int | tuple[int, int]
"""The output's height and width; or one number for both."""


def _traceable(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Let torch.fx record a call of a function as one node."""

    @functools.wraps(function)
    def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        lists = (value if isinstance(value, list | tuple) else (value,) for value in (*args, *kwargs.values()))
        proxies = [value for values in lists for value in values if isinstance(value, torch.fx.Proxy)]
        if proxies:
            recorded: _Result = torch.overrides.handle_torch_function(call, proxies, *args, **kwargs)
            return recorded
        return function(*args, **kwargs)

    return call


@_traceable
def roi_align(
    input: torch.Tensor,  # noqa: A002 - torchvision's name
    boxes: torch.Tensor | Sequence[torch.Tensor],
    output_size: Size,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> torch.Tensor:
    """Pool feature maps over boxes: the mean of bilinear samples in each bin, as in `torchvision.ops.roi_align`.

    Along the width, with S = spatial_scale, P = output_size[1] and a box's x1 and x2 (the height is treated the same way):

        start = x1*S - 0.5,  size = (x2 - x1)*S            if aligned
        start = x1*S,        size = max((x2 - x1)*S, 1)    if not aligned
        samples of bin j at start + j*size/P + (k + 0.5)*size/(P*g),  k = 0, ..., g - 1

    with g = sampling_ratio, or ceil(size/P) if sampling_ratio is 0 or less. A sample more than a pixel outside the map
    counts as 0, and a bin without samples is 0. The function has derivatives with respect to input and boxes, which treat g
    as constant. Those with respect to input can be differentiated again, and exist in forward mode and in ``torch.func``.
    Those with respect to boxes exist in reverse mode alone.

    Args:
        input: feature maps [N, C, H, W] on the CPU; float32, float64, float16 or bfloat16, with any strides.
        boxes: [K, 5] as image index, x1, y1, x2, y2, or a list of N tensors [L, 4] without the index, one for each image; in
            pixels of the input image; finite, with input's type.
        output_size: the numbers of bins along height and width, each >= 1; one number for both.
        spatial_scale: pixels of input for each pixel of the input image, finite and > 0; rounded to float32 unless input is
            float64.
        sampling_ratio: the number of a bin's samples along each axis; 0 or less takes the bin's size, rounded up.
        aligned: whether to shift scaled boxes by -0.5 pixels. If not, they are at least 1 x 1 pixel.

    Returns:
        [K, C, *output_size] with input's type, accumulated in float32 (float64 for float64). Its bits do not depend on the
        number of threads, `torch.get_num_threads()`.

    Raises:
        TypeError: a type is not allowed, or input and boxes differ in type.
        ValueError: a device, shape, number or index breaks its rule; the message names it.
        NotImplementedError: the call asks for a derivative that does not exist.

    Source: torchvision 0.28, `torchvision.ops.roi_align`.
    """
    return _pooled("roi_align", input, _rows(boxes), output_size, spatial_scale, sampling_ratio, aligned)


@_traceable
def ms_deform_attn(
    value: torch.Tensor,
    value_spatial_shapes: torch.Tensor,
    value_level_start_index: torch.Tensor | None,
    sampling_locations: torch.Tensor,
    attention_weights: torch.Tensor,
    im2col_step: int | None = None,  # noqa: ARG001 - Deformable DETR's argument
) -> torch.Tensor:
    """Multi-scale deformable attention, with the arguments of Deformable DETR's and mmcv's `MSDeformAttnFunction.apply`.

    See `ortops.ms_deform_attn` for the sums. The function has first derivatives with respect to value, sampling_locations
    and attention_weights, also in forward mode, and no second derivatives.

    Args:
        value: the pixels of all levels [N, S, M, D] on the CPU; float32, float64, float16 or bfloat16, with any strides.
        value_spatial_shapes: [L, 2], the height and the width of each level; int64.
        value_level_start_index: [L], the first of each level's pixels; int64. None if the levels follow each other.
        sampling_locations: [N, Q, M, L, P, 2] as x, y in fractions of the level; value's type.
        attention_weights: [N, Q, M, L, P]; value's type.
        im2col_step: ignored.

    Returns:
        [N, Q, M*D] with value's type, accumulated in float32 (float64 for float64). Its bits do not depend on the number of
        threads, `torch.get_num_threads()`.

    Raises:
        TypeError: a type is not allowed, or types differ.
        ValueError: a device, a shape or a level breaks its rule; the message names it.
        NotImplementedError: the call asks for a derivative that does not exist.

    Source: Zhu et al. 2020, Deformable DETR (arXiv 2010.04159).
    """
    tensors = value, sampling_locations, attention_weights, value_spatial_shapes, value_level_start_index
    y: torch.Tensor = attention.ms_deform_attn(*tensors)
    return y if y.dtype == value.dtype else y.to(value.dtype)  # autocast computes in float32


@_traceable
def roi_pool(
    input: torch.Tensor,  # noqa: A002
    boxes: torch.Tensor | Sequence[torch.Tensor],
    output_size: Size,
    spatial_scale: float = 1.0,
) -> torch.Tensor:
    """Pool feature maps over boxes: the largest pixel in each bin, as in `torchvision.ops.roi_pool`.

    Corners are rounded to whole pixels, both belong to the box, and a bin takes every pixel that it touches; see
    `ortops.max_roi_pool`. Bins have exact bounds; torchvision computes them in float32. The function has derivatives of any
    order with respect to input, in both modes. Derivatives with respect to boxes are 0.

    Args:
        input: as in `roi_align`.
        boxes: as in `roi_align`.
        output_size: as in `roi_align`.
        spatial_scale: as in `roi_align`.

    Returns:
        [K, C, *output_size] with input's type. Values are pixels of input; 0 if a bin has no pixels, NaN if it has a NaN.

    Raises:
        TypeError, ValueError: as `roi_align`.

    Source: torchvision 0.28, `torchvision.ops.roi_pool`.
    """
    return _pooled("roi_pool", input, _rows(boxes), output_size, spatial_scale)


@_traceable
def ps_roi_align(
    input: torch.Tensor,  # noqa: A002
    boxes: torch.Tensor | Sequence[torch.Tensor],
    output_size: Size,
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
) -> torch.Tensor:
    """Pool feature maps over boxes, where each bin reads its own channels, as in `torchvision.ops.ps_roi_align`.

    Bin (i, j) of channel c is the mean of the samples that `roi_align` takes, with aligned=True, from input's channel
    (c*output_size[0] + i)*output_size[1] + j. The function has the same derivatives as `roi_align`.

    Args:
        input: as in `roi_align`; C is a multiple of the number of bins.
        boxes: as in `roi_align`.
        output_size: as in `roi_align`.
        spatial_scale: as in `roi_align`.
        sampling_ratio: as in `roi_align`.

    Returns:
        [K, C / (output_size[0]*output_size[1]), *output_size]; otherwise as `roi_align`.

    Raises:
        TypeError, ValueError: as `roi_align`.

    Source: torchvision 0.28, `torchvision.ops.ps_roi_align`.
    """
    return _pooled("ps_roi_align", input, _rows(boxes), output_size, spatial_scale, sampling_ratio)


@_traceable
def roi_align_rotated(
    input: torch.Tensor,  # noqa: A002
    rois: torch.Tensor,
    output_size: Size,
    spatial_scale: float,
    sampling_ratio: int = 0,
    aligned: bool = True,
    clockwise: bool = False,
) -> torch.Tensor:
    """Pool feature maps over rotated RoIs, as in `mmcv.ops.roi_align_rotated`; see `ortops.roi_align_rotated`.

    The function has the same derivatives as `roi_align`, also with respect to the angle.

    Args:
        input: as in `roi_align`.
        rois: [K, 6] as image index, centre x, centre y, width, height and an angle in radians; finite, with input's type.
        output_size: as in `roi_align`.
        spatial_scale: as in `roi_align`.
        sampling_ratio: as in `roi_align`, at most 64.
        aligned: whether to shift scaled centres by -0.5 pixels. If not, RoIs are at least 1 x 1 pixel.
        clockwise: whether positive angles turn a RoI clockwise as seen on the image.

    Returns:
        As `roi_align`.

    Raises:
        TypeError, ValueError: as `roi_align`.

    Source: mmcv 2.2, `mmcv.ops.roi_align_rotated`.
    """
    options = sampling_ratio, aligned, clockwise
    return _pooled("roi_align_rotated", input, rois, output_size, spatial_scale, *options)


def _pooled(name: str, x: Any, rois: Any, output_size: Size, scale: float, *options: Any) -> Any:
    sizes = tuple(output_size) if isinstance(output_size, tuple | list) else (output_size, output_size)
    if len(sizes) != 2 or not all(isinstance(size, int | torch.SymInt) and size >= 1 for size in sizes):
        raise ValueError(f"output_size = {output_size!r}: must be an int >= 1, or two of them")
    # Under autocast the operator computes in float32.
    return OPERATORS[name](x, rois, scale, *sizes, *options).to(x.dtype)


def _rows(boxes: Any) -> Any:
    """Boxes [K, 5], from such a tensor or from a list with a tensor [L, 4] for each image."""
    if isinstance(boxes, torch.Tensor):
        return boxes
    if not isinstance(boxes, list | tuple) or not boxes:
        raise ValueError(f"boxes = {boxes!r}: must be a tensor [K, 5] or a list with a tensor [L, 4] for each image")
    for i, rows in enumerate(boxes):
        if not isinstance(rows, torch.Tensor) or rows.dim() != 2 or rows.shape[1] != 4 or not rows.is_floating_point():
            given = f"{rows.dtype} {list(rows.shape)}" if isinstance(rows, torch.Tensor) else repr(rows)
            raise ValueError(f"boxes[{i}] = {given}: must be a floating-point tensor [L, 4]")
        if rows.device != boxes[0].device:
            raise ValueError(f"boxes[{i}].device = {rows.device}: must be {boxes[0].device}, the device of boxes[0]")
    if len(boxes) > 1 + 2 / torch.finfo(boxes[0].dtype).eps:
        raise ValueError(f"boxes has {len(boxes)} images: must have at most as many as {boxes[0].dtype} can count")
    return torch.cat([torch.nn.functional.pad(rows, (1, 0), value=float(i)) for i, rows in enumerate(boxes)])


class _Layer(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, function: Callable[..., Any], **arguments: Any) -> None:
        super().__init__()
        self._function, self._names = function, tuple(arguments)
        for name, value in arguments.items():
            setattr(self, name, value)

    def forward(self, input: torch.Tensor, rois: torch.Tensor | Sequence[torch.Tensor]) -> torch.Tensor:  # noqa: A002
        return self._function(input, rois, *(getattr(self, name) for name in self._names))

    def __prepare_scriptable__(self) -> None:  # PyTorch's name
        operator = self._function.__name__
        raise TypeError(
            f"torch.jit.script cannot compile {type(self).__name__}: call torch.ops.ortops.{operator} with RoIs [K, 5], or "
            "use torch.compile or torch.export"
        )

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in self._names)


class RoIAlign(_Layer):
    """`roi_align` as a module, like `torchvision.ops.RoIAlign`; ``forward(input, rois)`` takes input and boxes."""

    def __init__(self, output_size: Size, spatial_scale: float, sampling_ratio: int, aligned: bool = False) -> None:
        options = {"spatial_scale": spatial_scale, "sampling_ratio": sampling_ratio, "aligned": aligned}
        super().__init__(roi_align, output_size=output_size, **options)


class PSRoIAlign(_Layer):
    """`ps_roi_align` as a module, like `torchvision.ops.PSRoIAlign`; ``forward(input, rois)`` takes input and boxes."""

    def __init__(self, output_size: Size, spatial_scale: float, sampling_ratio: int) -> None:
        options = {"spatial_scale": spatial_scale, "sampling_ratio": sampling_ratio}
        super().__init__(ps_roi_align, output_size=output_size, **options)


class RoIPool(_Layer):
    """`roi_pool` as a module, like `torchvision.ops.RoIPool`; ``forward(input, rois)`` takes input and boxes."""

    def __init__(self, output_size: Size, spatial_scale: float) -> None:
        super().__init__(roi_pool, output_size=output_size, spatial_scale=spatial_scale)


class RoIAlignRotated(_Layer):
    """`roi_align_rotated` as a module, like `mmcv.ops.RoIAlignRotated`; ``forward(input, rois)``."""

    def __init__(
        self,
        output_size: Size,
        spatial_scale: float,
        sampling_ratio: int = 0,
        aligned: bool = True,
        clockwise: bool = False,
    ) -> None:
        options = {"sampling_ratio": sampling_ratio, "aligned": aligned, "clockwise": clockwise}
        super().__init__(roi_align_rotated, output_size=output_size, spatial_scale=spatial_scale, **options)
