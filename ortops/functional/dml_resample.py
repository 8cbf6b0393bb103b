# SPDX-License-Identifier: MIT
"""DirectML's RESAMPLE and RESAMPLE_GRAD on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from numpy.typing import ArrayLike

from ortops.functional.call import Array, computes
from ortops.functional.dml_roi_align import InterpolationMode
from ortops.operators.dml_resample import DML_RESAMPLE, DML_RESAMPLE_GRAD

RoundingDirection = Literal["half_up", "increasing", "decreasing"]


@computes(DML_RESAMPLE)
def dml_resample(
    x: ArrayLike,
    *,
    scales: Sequence[float] = (),
    output_sizes: Sequence[int] = (),
    interpolation_mode: InterpolationMode = "linear",
    input_pixel_offsets: Sequence[float] = (),
    output_pixel_offsets: Sequence[float] = (),
    rounding_direction: RoundingDirection = "half_up",
) -> Array:
    """Scale a tensor along each of its axes, as DirectML's RESAMPLE2 does; by default as RESAMPLE does.

    Output o of axis a with N input pixels and M output pixels is x interpolated at

        (o - output_pixel_offsets[a])/scale - input_pixel_offsets[a],  clamped to [0, N - 1]
        scale = scales[a], or M/N without scales;  M = output_sizes[a], or floor(N*scales[a]) without output_sizes

    Each list is empty or has a value for each axis.

    Args:
        x: tensor of rank 1 to 4, [N0, ...]; float16, float32 or float64.
        scales: output pixels for each input pixel, > 0; empty for the ratio of output_sizes to the lengths of x.
        output_sizes: the result's lengths, >= 0; empty for the lengths of x times scales, rounded down, with scales as
            float32 (10 times 0.7 is 6, since 0.7 as float32 is less than 0.7).
        interpolation_mode: "linear" between the two pixels around a coordinate, or "nearest_neighbor".
        input_pixel_offsets: distance from the input's origin to the centre of its first pixel, in input pixels; finite;
            empty for 0.5 on every axis.
        output_pixel_offsets: negated distance from the output's origin to the centre of its first pixel, in output pixels;
            finite; empty for -0.5 on every axis.
        rounding_direction: for nearest_neighbor, the pixel that a coordinate reads: "half_up" the nearest pixel, in a tie
            the later pixel (RESAMPLE, RESAMPLE1); "increasing" the next pixel; "decreasing" the previous pixel (RESAMPLE2).

    Returns:
        The scaled tensor [M0, ...], with the rank and type of x, accumulated in float32 (float64 for float64).

    Raises:
        TypeError: an array or an attribute has a wrong type.
        ValueError: a shape or an attribute breaks its rule, neither scales nor output_sizes are given, or x has no elements
            although the result has some; the message names the argument.

    Source: Microsoft's documentation of DML_RESAMPLE2_OPERATOR_DESC.
    """


@computes(DML_RESAMPLE_GRAD)
def dml_resample_grad(
    dy: ArrayLike,
    x_shape: ArrayLike,
    *,
    scales: Sequence[float] = (),
    interpolation_mode: InterpolationMode = "linear",
    input_pixel_offsets: Sequence[float] = (),
    output_pixel_offsets: Sequence[float] = (),
    rounding_direction: RoundingDirection = "half_up",
) -> Array:
    """The gradient of `dml_resample` with respect to x: the transpose of the scaling, applied to dy.

    With L = sum(dy * dml_resample(x, ...)), the result is dL/dx for the attributes of the forward call. An output beyond an
    edge of x adds its gradient to the pixel at the edge. DirectML's own RESAMPLE_GRAD exchanges the offsets: its
    InputPixelOffsets are output_pixel_offsets here, and its OutputPixelOffsets are input_pixel_offsets.

    Args:
        dy: gradient with respect to the result, [M0, ...] of rank 1 to 4; float16, float32 or float64.
        x_shape: the shape of x, an integer >= 0 for each axis of dy.
        scales: as in `dml_resample`; empty for the ratio of the lengths of dy to x_shape.
        interpolation_mode: as in `dml_resample`.
        input_pixel_offsets: as in `dml_resample`.
        output_pixel_offsets: as in `dml_resample`.
        rounding_direction: as in `dml_resample`.

    Returns:
        The gradient, with shape x_shape and the type of dy, accumulated at least in float32 (float64 for float64).

    Raises:
        TypeError: an array or an attribute has a wrong type.
        ValueError: a shape or an attribute breaks its rule, or x_shape has a 0 although dy has elements.

    Source: Microsoft's documentation of DML_RESAMPLE_GRAD1_OPERATOR_DESC.
    """
