# SPDX-License-Identifier: MIT
"""DirectML's RESAMPLE family and its gradients, axis by axis. On an axis an output reads at most two pixels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ortops.operators.dml_resample import INPUT_PIXEL_OFFSET, OUTPUT_PIXEL_OFFSET

Array = npt.NDArray[np.float64]
InterpolationMode = Literal["linear", "nearest_neighbor"]
RoundingDirection = Literal["half_up", "increasing", "decreasing"]

_ROUNDED: Mapping[RoundingDirection, Callable[[float], int]] = {
    "half_up": lambda c: math.floor(c + 0.5),
    "increasing": math.ceil,
    "decreasing": math.floor,
}


def dml_resample(x: Array, *, scales: Sequence[float], output_sizes: Sequence[int], **resampling: Any) -> Array:
    """Scale the tensor `x` along each of its axes, all in the same way.

    Along one axis, with S the scale, I and O the input's and the output's pixel offset, output o reads the coordinate
    `(o - O)/S - I`. A coordinate before the first or after the last pixel reads that pixel. Without `scales` the coordinate
    is computed as `(o - O)*N/M - I` in this order, exact if its terms are.

    Args:
        x, scales, output_sizes: as in `ortops.dml_resample`; `scales` and `output_sizes` must not both be empty.
        resampling: the other attributes, arguments of `resampled_axes`.

    Returns:
        [M0, ...] with the rank of `x`.

    Raises:
        ValueError: `x` has no elements although the output has some.

    Source:
        DML_RESAMPLE1_OPERATOR_DESC for the coordinates, the edges and the default offsets,
        DML_RESAMPLE2_OPERATOR_DESC for increasing and decreasing. Where they are silent: onnxruntime's DirectML
        provider for half_up.
    """
    sizes = output_lengths(x.shape, scales, output_sizes)
    if 0 in sizes:
        return np.zeros(sizes)
    if x.size == 0:
        raise ValueError(f"InputTensor has shape {list(x.shape)}: must have elements where OutputTensor has some")
    return along_each(resampled_axes(x.shape, sizes, scales=scales, **resampling), resample_axis, x)


def dml_resample_grad(dy: Array, x_shape: Sequence[int] | npt.NDArray[np.int64], **resampling: Any) -> Array:
    """The gradient of `sum(dy * dml_resample(x, ...))` by `x`: the transpose of the scaling, applied to `dy`.

    It has the forward operator's parameters. An output that reads beyond an edge adds its gradient to the pixel at the edge.

    DirectML's RESAMPLE_GRAD names the two offset arrays after its own tensors. So its InputPixelOffsets are
    output_pixel_offsets here, and its OutputPixelOffsets are input_pixel_offsets.

    Args:
        dy, x_shape: as in `ortops.dml_resample_grad`.
        resampling: the attributes, arguments of `resampled_axes`.

    Returns:
        [N0, ...]; 0 for a pixel that no output reads.

    Raises:
        ValueError: `x_shape` has a 0 although `dy` has elements.

    Source:
        The transpose of RESAMPLE2, which DML_RESAMPLE_GRAD1_OPERATOR_DESC describes by example.
        DML_RESAMPLE_GRAD_OPERATOR_DESC says that its fields are the forward operator's.
    """
    shape = tuple(int(length) for length in x_shape)
    if dy.size == 0:
        return np.zeros(shape)
    if 0 in shape:
        raise ValueError(f"x_shape is {list(shape)}: must not have a 0 where InputGradientTensor has elements")
    return along_each(resampled_axes(shape, dy.shape, **resampling), transpose_axis, dy)


class Tap(NamedTuple):
    """A pixel that an output reads, and its weight, which is above 0."""

    pixel: int
    weight: float


@dataclass(frozen=True)
class ResampledAxis:
    """The resampling of one axis.

    length, size: the lengths of the input and the output, at least 1.
    scale: output pixels for each input pixel; None for size/length.
    input_pixel_offset, output_pixel_offset: in input and in output pixels.
    rounded: rounds a coordinate to its pixel; None for linear interpolation.
    """

    length: int
    size: int
    scale: float | None
    input_pixel_offset: float
    output_pixel_offset: float
    rounded: Callable[[float], int] | None

    def coordinate(self, o: int) -> float:
        """The coordinate that output `o` reads, in input pixels. It may be far beyond the edges."""
        moved = o - self.output_pixel_offset
        scaled = moved * self.length / self.size if self.scale is None else moved / self.scale
        return scaled - self.input_pixel_offset

    def taps(self, o: int) -> Sequence[Tap]:
        """The pixels that output `o` reads."""
        # Clamping before rounding gives the same result as after it: rounding does not change the edges, whole numbers.
        clamped = min(max(self.coordinate(o), 0.0), self.length - 1.0)
        if self.rounded is not None:
            return (Tap(self.rounded(clamped), 1.0),)
        low, high = math.floor(clamped), math.ceil(clamped)
        if low == high:
            return (Tap(low, 1.0),)
        f = clamped - low
        return Tap(low, 1.0 - f), Tap(high, f)


def output_lengths(lengths: Sequence[int], scales: Sequence[float], output_sizes: Sequence[int]) -> tuple[int, ...]:
    """The output's lengths."""
    if output_sizes:
        return tuple(output_sizes)
    return tuple(math.floor(length * scale) for length, scale in zip(lengths, scales, strict=True))


def resampled_axes(
    lengths: Sequence[int],
    sizes: Sequence[int],
    *,
    interpolation_mode: InterpolationMode,
    scales: Sequence[float],
    input_pixel_offsets: Sequence[float],
    output_pixel_offsets: Sequence[float],
    rounding_direction: RoundingDirection,
) -> list[ResampledAxis]:
    """All axes, from the forward operator's input and output lengths and its attributes."""
    rank = len(lengths)
    rounded = _ROUNDED[rounding_direction] if interpolation_mode == "nearest_neighbor" else None
    ratios: Sequence[float | None] = scales or [None] * rank
    each = zip(
        lengths,
        sizes,
        ratios,
        input_pixel_offsets or [INPUT_PIXEL_OFFSET] * rank,
        output_pixel_offsets or [OUTPUT_PIXEL_OFFSET] * rank,
        strict=True,
    )
    return [ResampledAxis(*values, rounded) for values in each]


def along_each(
    axes: Sequence[ResampledAxis],
    step: Callable[[ResampledAxis, Array], Array],
    array: Array,
) -> Array:
    """Apply `step`, which transforms the first axis of an array, to each axis in turn."""
    with np.errstate(over="ignore", invalid="ignore"):
        for axis in axes:
            # The transformed axis moves to the end, so the next axis comes first. After all axes, each is in its place.
            array = np.moveaxis(step(axis, array), 0, -1)
    return array


def resample_axis(axis: ResampledAxis, x: Array) -> Array:
    """Resample [length, ...] to [size, ...]. Reads only pixels with a weight, so others may be infinite or NaN."""
    y = np.zeros((axis.size, *x.shape[1:]))
    for o in range(axis.size):
        for tap in axis.taps(o):
            y[o] += tap.weight * x[tap.pixel]
    return y


def transpose_axis(axis: ResampledAxis, dy: Array) -> Array:
    """The transpose of `resample_axis`, from [size, ...] to [length, ...]."""
    dx = np.zeros((axis.length, *dy.shape[1:]))
    for o in range(axis.size):
        for tap in axis.taps(o):
            dx[tap.pixel] += tap.weight * dy[o]
    return dx
