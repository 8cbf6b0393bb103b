"""Where samples lie, which pixels they read and how they move: the bodies' one place for coordinates and borders.

Height and width are treated alike: a region is two axes. Sizes: R regions, P bins of the output, K samples of a bin that are
listed, T pixels that a sample reads along the axis, L pixels of the map.

Of all the samples of a bin those are listed that are on the map, and one more before and after where there is one. So with
samples a pixel apart K is bounded by the map, however large a region is; only a number of samples that an attribute asks for
can make it larger. Those not listed are off the map and later than one that is listed or earlier than one: a mean lacks no
more than their count, and a maximum and its first winner nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from onnx_models.portable.graph import Kind, Value, arange, concat

Reading = Literal["onnx", "linear", "nearest"]
"""What a sample reads: floor and the pixel after it; floor and ceil; or the nearest pixel.

The first two differ on a pixel alone, in the slope: there is none for floor and ceil, which are the same.
"""

Rounding = Literal["linear", "half_up", "increasing", "decreasing"]
"""Resampling: between two pixels, or from a coordinate to one of them."""

EPSILON: dict[Kind, float] = {"float": float(np.finfo(np.float32).eps), "double": float(np.finfo(np.float64).eps)}


@dataclass(frozen=True)
class Placement:
    """A rule for where the samples of a bin lie on an axis.

    bins, length: P and L, int64[1].
    per_bin: samples in each bin, [R, 1, 1] or one number; none where it is not above 0.
    coordinate: from the numbers of samples, [R, P, K], to where they are in pixels.
    step: from one sample to the next, [R, 1, 1].
    coordinate_derivatives: from the numbers of samples to the derivatives of the coordinate by the region's two stored coordinates.
    """

    bins: Value
    length: Value
    per_bin: Value
    coordinate: Callable[[Value], Value]
    step: Value
    coordinate_derivatives: Callable[[Value], tuple[Value, Value]]


@dataclass(frozen=True)
class Samples:
    """The listed samples along an axis, and the pixels that they read.

    bins, length: P and L, int64[1].
    counts: [R, P], int64, how many of those listed a bin needs, at least 1.
    exists: [R, P, K], False where a bin has fewer samples than are listed.
    inside: [R, P, K], whether a sample is on the map: at most a pixel from the first or the last, exactly one included.
    per_bin: all samples of a bin, at least 1; [R, 1, 1] or one number.
    pixels: [R, P, K, T], int64, always on the map.
    weights: [R, P, K, T], of those pixels.
    weight_derivatives: [R, P, K, T], the derivatives of the weights by the coordinate; None where they have none.
    coordinate_derivatives: [R, P, K] each, the derivatives of the coordinate by the region's two stored coordinates; None if not wanted.
    """

    bins: Value
    length: Value
    counts: Value
    exists: Value
    inside: Value
    per_bin: Value
    pixels: Value
    weights: Value
    weight_derivatives: Value | None
    coordinate_derivatives: tuple[Value, Value] | None

    @property
    def taps(self) -> int:
        """T."""
        return 1 if self.weight_derivatives is None else 2


def onnx_placement(
    ends: tuple[Value, Value], bins: Value, length: Value, *, scale: Value, ratio: Value, half_pixel: bool
) -> Placement:
    """RoiAlign's rule. Source: ONNX RoiAlign-16 and -22; where their text is silent, `onnx.reference.ops.op_roi_align`.

    Args:
        ends: the region's stored coordinates, [R, 1, 1] each.
        bins: P, int64[1].
        length: L, int64[1].
        scale: pixels to a unit of the stored coordinates.
        ratio: samples of a bin; 0 for its size in pixels, rounded up.
        half_pixel: whether regions are half a pixel further back and have no least size.
    """
    kind = ends[0].kind
    start, size = ends[0] * scale, (ends[1] - ends[0]) * scale
    varies = None if half_pixel else size >= 1.0
    start, size = (start - 0.5, size) if half_pixel else (start, size.at_least(1.0))
    count = bins.cast(kind)
    per_bin = samples_per_bin(size, count, ratio)
    steps = count * per_bin.at_least(1.0)
    first = start + along_bins(bins, kind) * size / count

    def share(i: Value) -> Value:
        t = (along_bins(bins, kind) * per_bin + i + 0.5) / steps
        # A region that has been raised to the least size moves as a whole.
        return t if varies is None else varies.where(t, 0.0)

    return Placement(
        bins,
        length,
        per_bin,
        lambda i: first + (i + 0.5) * size / steps,
        size / steps,
        _coordinate_derivatives(share, scale),
    )


def samples_per_bin(size: Value, bins: Value, ratio: Value) -> Value:
    """How many samples a bin has along an axis: ratio, or where it is 0 as many as pixels, none where not above 0."""
    return (ratio > 0.0).where(ratio, (size / bins).ceil())


def directml_placement(
    ends: tuple[Value, Value],
    bins: Value,
    length: Value,
    *,
    scale: Value,
    offsets: tuple[Value, Value],
    samples: tuple[Value, Value],
    to_corners: Value,
) -> Placement:
    """DmlRoiAlign's rule. Source: Microsoft's documentation of DML_ROI_ALIGN1_OPERATOR_DESC; decisions as in the kernels.

    Args:
        ends: as in `onnx_placement`.
        bins: P, int64[1].
        length: L, int64[1].
        scale: pixels to a unit of the stored coordinates.
        offsets: input_pixel_offset and output_pixel_offset.
        samples: least and most samples of a bin.
        to_corners: 1 where the outermost samples lie on a region's ends, else 0.
    """
    kind = ends[0].kind
    first, last = ends[0] * scale, ends[1] * scale
    count = bins.cast(kind)
    per_bin = ((last - first) / count).ceil().at_least(samples[0]).at_most(samples[1])
    steps = count * per_bin - to_corners

    def share(i: Value) -> Value:
        t = (along_bins(bins, kind) * per_bin + i - offsets[1]) / steps.at_least(1.0)
        return (steps > 0.0).where(t, 0.5)

    def coordinate(i: Value) -> Value:
        return first + (last - first) * share(i) - offsets[0]

    return Placement(
        bins, length, per_bin, coordinate, (last - first) / steps.at_least(1.0), _coordinate_derivatives(share, scale)
    )


def _coordinate_derivatives(share: Callable[[Value], Value], scale: Value) -> Callable[[Value], tuple[Value, Value]]:
    """The derivatives of a coordinate by a region's ends, from the share of the way from one to the other."""

    def derivatives(i: Value) -> tuple[Value, Value]:
        t = share(i)
        return (1.0 - t) * scale, t * scale

    return derivatives


def list_samples(placement: Placement, reading: Reading, *, with_derivatives: bool) -> Samples:
    """The samples of a region that matter.

    Args:
        placement: where samples lie.
        reading: which pixels they read.
        with_derivatives: whether `coordinate_derivatives` are wanted.
    """
    kind = placement.step.kind
    first, counts = _window(placement)
    i = first + arange(largest(counts)).cast(kind)
    c = placement.coordinate(i)
    length = placement.length.cast(kind)
    exists = i < placement.per_bin
    inside = exists & is_inside(c, length)
    pixels, weights, weight_derivatives = read(c, inside, length, reading)
    return Samples(
        bins=placement.bins,
        length=placement.length,
        counts=counts.squeeze(2),
        exists=exists,
        inside=inside,
        per_bin=placement.per_bin.at_least(1.0),
        pixels=concat(3, *(p.cast("int64").unsqueeze(3) for p in pixels)),
        weights=concat(3, *(w.unsqueeze(3) for w in weights)),
        weight_derivatives=concat(3, *(d.unsqueeze(3) for d in weight_derivatives)) if weight_derivatives else None,
        coordinate_derivatives=placement.coordinate_derivatives(i) if with_derivatives else None,
    )


def resampled(
    outputs: Value,
    length: Value,
    kind: Kind,
    reading: Rounding,
    *,
    scale: Value | None,
    offsets: tuple[Value, Value],
) -> tuple[Value, Value, Value | None]:
    """DmlResample's rule along one axis: output o reads at (o - O)/S - I, the input's edges being continued.

    Args:
        outputs: M, int64[1], the length of the output's axis.
        length: L, int64[1], that of the input's.
        kind: in which coordinates are computed.
        reading: between two pixels, or to which of them.
        scale: S; None for M / L.
        offsets: I and O, input_pixel_offset and output_pixel_offset.

    Returns:
        The pixels before and after each output's place, int64[M] each, and how far it is from the former, [M]. With a
        rounding they are the same pixel, and the distance is None.

    Source: Microsoft's documentation of DML_RESAMPLE2_OPERATOR_DESC.
    """
    pixels = length.cast(kind)
    o = arange(outputs).cast(kind) - offsets[1]
    # The ratio as one fraction: where the quotient is a whole number, no rounding may make it miss a pixel.
    x = (o * pixels / outputs.cast(kind) if scale is None else o / scale) - offsets[0]
    if reading == "linear":
        c = _clamped(x, pixels)
        return c.floor().cast("int64"), c.ceil().cast("int64"), c - c.floor()
    rounded = x.ceil() if reading == "increasing" else (x + 0.5 if reading == "half_up" else x).floor()
    pixel = _clamped(rounded, pixels).cast("int64")
    return pixel, pixel, None


def along_bins(bins: Value, kind: Kind) -> Value:
    """0 to P - 1, [P, 1]."""
    return arange(bins).cast(kind).unsqueeze(1)


def _window(placement: Placement) -> tuple[Value, Value]:
    """The number of each bin's first listed sample and how many of them it needs, [R, P, 1] each, the latter int64."""
    graph, step, kind = placement.step.graph, placement.step, placement.step.kind
    length = placement.length.cast(kind)
    start = placement.coordinate(graph.constant(0.0, kind))
    is_point = step.equals(0.0)
    per_sample = is_point.where(graph.constant(1.0, kind), step)
    ends = (-1.0 - start) / per_sample, (length - start) / per_sample
    # Off the map by one sample, and by as many as the roundings of a coordinate can amount to.
    slack = (abs(start) + length) / abs(per_sample) * (16 * EPSILON[kind]) + 2.0
    first, count = samples_between(ends, slack, placement.per_bin, is_point)
    return first, count.cast("int64").at_least(1)


def samples_between(ends: tuple[Value, Value], slack: Value, per_bin: Value, is_point: Value) -> tuple[Value, Value]:
    """The first of a bin's samples between two numbers, and how many they are; neither is rounded to an integer type.

    Args:
        ends: the numbers, in any order; they may lie beyond the samples that there are.
        slack: by how much to widen them.
        per_bin: samples of the bin.
        is_point: where all of the bin's samples are at one place, and so all of them are meant.
    """
    graph, kind = per_bin.graph, per_bin.kind
    first = (ends[0].at_most(ends[1]) - slack).floor()
    last = (ends[0].at_least(ends[1]) + slack).ceil()
    # Without a number above 0 there are none, and one is listed all the same.
    final = per_bin.at_least(1.0) - 1.0
    first = is_point.where(graph.constant(0.0, kind), first.at_least(0.0).at_most(final))
    last = is_point.where(final, last.at_most(final))
    return first, last - first + 1.0


def largest(counts: Value) -> Value:
    """The largest count, int64[1]; 1 where there are none."""
    return concat(0, counts.reshape(-1), counts.graph.constant([1], "int64")).max(0).reshape(1)


def is_inside(c: Value, length: Value) -> Value:
    """Whether samples at these coordinates are on a map of so many pixels."""
    return (c >= -1.0) & (c <= length)


def read(c: Value, inside: Value, length: Value, reading: Reading) -> tuple[list[Value], list[Value], list[Value]]:
    """The pixels that samples read, their weights and the weights' slopes, if any; of those not inside a pixel's."""
    # What is off the map may be infinite or NaN, which no pixel is.
    c = inside.where(c, 0.0)
    if reading == "nearest":
        return [_clamped((c + 0.5).floor(), length)], [c * 0.0 + 1.0], []
    clamped = _clamped(c, length)
    low = clamped.floor()
    f = clamped - low
    if reading == "linear":
        high, is_between = clamped.ceil(), f > 0.0
    else:
        high, is_between = (low + 1.0).at_most(length - 1.0), clamped.equals(c) & (low < length - 1.0)
    derivative = is_between.cast(c.kind)
    return [low, high], [1.0 - f, f], [derivative * -1.0, derivative]


def _clamped(c: Value, length: Value) -> Value:
    return c.at_least(0.0).at_most(length - 1.0)
