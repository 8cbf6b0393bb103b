"""DirectML's RESAMPLE and RESAMPLE_GRAD on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from numpy.typing import ArrayLike

from ortops.functional.call import Array, call
from ortops.functional.dml_roi_align import InterpolationMode
from ortops.operators.dml_resample import DML_RESAMPLE, DML_RESAMPLE_GRAD

RoundingDirection = Literal["half_up", "increasing", "decreasing"]


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
    """A tensor scaled along each of its axes, as DirectML's RESAMPLE2 describes it; by default as its RESAMPLE.

    Output o of an axis is read at (o - output_pixel_offset)/scale - input_pixel_offset of the input, whose edges are
    continued. Each list has one value for each axis, or none.

    Args:
        x: of rank 1 to 4; float16, float32 or float64.
        scales: output pixels for each input pixel, > 0; without, the ratio of output_sizes to the lengths of x.
        output_sizes: the lengths of the result, >= 0; without, those of x times scales as float32, rounded down (10 times
            0.7 is 6: that float32 is less). What the scaled input has more is cut off, what it has less is its edge.
        interpolation_mode: "linear", or "nearest_neighbor".
        input_pixel_offsets: from the input's origin to the centre of its first pixel; without, 0.5 on every axis.
        output_pixel_offsets: the same of the output, negated; without, -0.5 on every axis.
        rounding_direction: of nearest_neighbor: "half_up" to the nearest pixel (RESAMPLE, RESAMPLE1), "increasing" to
            the next or "decreasing" to the one before (RESAMPLE2).

    Returns:
        The scaled tensor, of the type of x, accumulated in float32 (float64 for float64).

    Raises:
        TypeError: an array or an attribute has a wrong type.
        ValueError: a shape or an attribute breaks its rule, neither scales nor output_sizes are given, or x has no
            elements where the result has; the message names it.

    Source: Microsoft's documentation of DML_RESAMPLE2_OPERATOR_DESC.
    """
    attributes = {
        "scales": scales,
        "output_sizes": output_sizes,
        "interpolation_mode": interpolation_mode,
        "input_pixel_offsets": input_pixel_offsets,
        "output_pixel_offsets": output_pixel_offsets,
        "rounding_direction": rounding_direction,
    }
    y: Array
    (y,) = call(DML_RESAMPLE, (x,), attributes, (True,))
    return y


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
    """The gradient of `dml_resample` with respect to x: its transpose, with the attributes of the forward call.

    DirectML's own RESAMPLE_GRAD names offsets after its own tensors: what it calls InputPixelOffsets are the
    output_pixel_offsets here, and the other way round.

    Args:
        dy: gradient with respect to the result, of rank 1 to 4; float16, float32 or float64.
        x_shape: the shape of x, as many integers >= 0 as dy has axes.
        scales: as in `dml_resample`; without, the ratio of the lengths of dy to x_shape.
        interpolation_mode: as in `dml_resample`.
        input_pixel_offsets: as in `dml_resample`.
        output_pixel_offsets: as in `dml_resample`.
        rounding_direction: as in `dml_resample`.

    Returns:
        The gradient, of shape x_shape and of the type of dy. What was read of a continued edge adds to the edge.

    Raises:
        TypeError: an array or an attribute has a wrong type.
        ValueError: a shape or an attribute breaks its rule, or x_shape has a 0 where dy has elements.

    Source: Microsoft's documentation of DML_RESAMPLE_GRAD1_OPERATOR_DESC.
    """
    attributes = {
        "scales": scales,
        "interpolation_mode": interpolation_mode,
        "input_pixel_offsets": input_pixel_offsets,
        "output_pixel_offsets": output_pixel_offsets,
        "rounding_direction": rounding_direction,
    }
    dx: Array
    (dx,) = call(DML_RESAMPLE_GRAD, (dy, x_shape), attributes, (True,))
    return dx
