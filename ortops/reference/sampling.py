# SPDX-License-Identifier: MIT
"""The coordinates of a RoI's samples and the pixels that they read.

Height and width follow the same rules. So a RoI is a pair of `SampledAxis`, and a sample in an output bin has a pair of
indices. `OnnxAxis` places the samples as ONNX does; the functions after it work with every `SampledAxis`.

Source of `OnnxAxis`: ONNX RoiAlign-16 and -22, with `onnx.reference.ops.op_roi_align` for what their text leaves
open: the order of scale and shift, the smallest size, the border, the clamping. The derivatives follow from these formulas.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

MAX_SAMPLES = 2**62
"""The largest number of a bin's samples along an axis. It replaces larger numbers."""


class SampledAxis(Protocol):
    """A RoI along one axis of the map: its samples' coordinates, the pixels that they read, and their derivatives."""

    @property
    def bins(self) -> int:
        """Number of output bins."""
        ...

    @property
    def per_bin(self) -> int:
        """Number of samples in each bin, which may be 0."""
        ...

    @property
    def length(self) -> int:
        """Length of the map in pixels."""
        ...

    def coordinate(self, p: int, i: int) -> float:
        """The coordinate of sample `i` of bin `p` in pixels; infinite or NaN if float64 overflows."""
        ...

    def progression(self, p: int) -> tuple[float, float, float]:
        """The approximate coordinates of bin `p`, `start + i*step`: start, step and the largest intermediate result."""
        ...

    def is_inside(self, c: float) -> bool:
        """Whether a sample at coordinate `c` is inside the map."""
        ...

    def taps(self, c: float) -> Sequence[Tap]:
        """The pixels that a sample at coordinate `c` inside the map reads."""
        ...

    def roi_derivatives(self, p: int, i: int) -> tuple[float, float]:
        """The derivatives of `coordinate` by the RoI's two stored coordinates on this axis."""
        ...


@dataclass(frozen=True)
class OnnxAxis:
    """A RoI along one axis of the map, sampled as in ONNX RoiAlign.

    start, size: start and size of the RoI on the map, in pixels.
    scale: map pixels for each unit of the RoI's stored coordinates.
    size_varies: False if the size was raised to the smallest allowed size, so that it does not depend on the coordinates.
    bins: number of output bins.
    per_bin: number of samples in each bin, which may be 0.
    length: length of the map in pixels.
    """

    start: float
    size: float
    scale: float
    size_varies: bool
    bins: int
    per_bin: int
    length: int

    def coordinate(self, p: int, i: int) -> float:
        """The coordinate of sample `i` of bin `p` in pixels."""
        return coordinate(self, p, i)

    def progression(self, p: int) -> tuple[float, float, float]:
        """Start, step and largest intermediate result of the coordinates of bin `p`."""
        start = _bin_start(self, p)
        return start, self.size / (self.bins * self.per_bin), abs(start)

    def is_inside(self, c: float) -> bool:
        """Whether a sample at coordinate `c` is inside the map, which includes both borders."""
        return is_inside(c, self.length)

    def taps(self, c: float) -> Sequence[Tap]:
        """The two pixels that linear interpolation reads at `c`."""
        return taps(c, self.length)

    def roi_derivatives(self, p: int, i: int) -> tuple[float, float]:
        """The derivatives of `coordinate` by the RoI's two stored coordinates on this axis."""
        # With a fixed size, every sample moves only with the start, like a sample at t = 0.
        t = (p * self.per_bin + i + 0.5) / (self.bins * self.per_bin) if self.size_varies else 0.0
        return derivatives_by_ends(self.scale, t)


class Point(NamedTuple):
    """A coordinate inside the map, and the indices of all the bin's samples at this coordinate, in ascending order."""

    coordinate: float
    indices: Sequence[int]


class Tap(NamedTuple):
    """A pixel that an interpolation reads, its weight, and the weight's derivative by the sample's coordinate.

    pixel: None beyond the last pixel of the map, where the weight and its derivative are 0.
    """

    pixel: int | None
    weight: float
    weight_derivative: float


class Corner(NamedTuple):
    """One of the up to four pixels that a sample reads. `weight_dy` and `weight_dx` are the derivatives of its weight."""

    pixel: tuple[int, int] | None
    weight: float
    weight_dy: float
    weight_dx: float


class Sample(NamedTuple):
    """All of a bin's samples at one position inside the map. The order of the corners decides ties."""

    y: Point
    x: Point
    corners: tuple[Corner, ...]

    @property
    def first(self) -> tuple[int, int]:
        """The indices (iy, ix) of the first of these samples."""
        return self.y.indices[0], self.x.indices[0]

    @property
    def repeats(self) -> int:
        """The number of these samples."""
        return len(self.y.indices) * len(self.x.indices)


class Bin(NamedTuple):
    """The samples of output bin (p, q).

    total: number of samples, including those outside the map.
    inside: the samples inside the map, by ascending (iy, ix).
    outside: the indices (iy, ix) of the first sample outside the map, or None.
    """

    p: int
    q: int
    total: int
    inside: list[Sample]
    outside: tuple[int, int] | None


def axes_of_roi(
    roi: Sequence[float],
    output_size: Sequence[int],
    map_size: Sequence[int],
    *,
    sampling_ratio: int,
    spatial_scale: float,
    coordinate_transformation_mode: str,
) -> tuple[OnnxAxis, OnnxAxis]:
    """The axes y and x of the RoI x1 y1 x2 y2. Sizes are height and width."""

    def axis(r1: float, r2: float, bins: int, length: int) -> OnnxAxis:
        start = start_of(r1, spatial_scale, coordinate_transformation_mode)
        size, size_varies = size_of(r1, r2, spatial_scale, coordinate_transformation_mode)
        per_bin = samples_per_bin(size, bins, sampling_ratio)
        return OnnxAxis(start, size, spatial_scale, size_varies, bins, per_bin, length)

    ends_y, ends_x = ends_of(roi)
    return axis(*ends_y, output_size[0], map_size[0]), axis(*ends_x, output_size[1], map_size[1])


def ends_of(roi: Sequence[float]) -> tuple[tuple[float, float], tuple[float, float]]:
    """The two ends of the RoI x1 y1 x2 y2 along y and along x."""
    x1, y1, x2, y2 = roi
    return (y1, y2), (x1, x2)


def start_of(r1: float, scale: float, coordinate_transformation_mode: str) -> float:
    """The start of a RoI on the map, in pixels."""
    return r1 * scale - 0.5 if coordinate_transformation_mode == "half_pixel" else r1 * scale


def size_of(r1: float, r2: float, scale: float, coordinate_transformation_mode: str) -> tuple[float, bool]:
    """The size in pixels, and whether it varies with the RoI; it does not if it was raised to 1."""
    size = (r2 - r1) * scale
    return (size, True) if coordinate_transformation_mode == "half_pixel" else (max(size, 1.0), size >= 1.0)


def samples_per_bin(size: float, bins: int, sampling_ratio: int) -> int:
    """The number of a bin's samples along an axis: the sampling ratio, or for 0 the bin's size in pixels, rounded up."""
    if sampling_ratio > 0:
        return min(sampling_ratio, MAX_SAMPLES)
    return adaptive_samples(size, bins)


def adaptive_samples(size: float, bins: int) -> int:
    """A bin's size in pixels, rounded up; 0 for a negative size and for NaN."""
    return math.ceil(min(max(0.0, size / bins), float(MAX_SAMPLES)))


def coordinate(axis: OnnxAxis, p: int, i: int) -> float:
    """The coordinate of sample `i` of bin `p` in pixels; infinite or NaN if float64 overflows."""
    return _bin_start(axis, p) + (i + 0.5) * axis.size / (axis.bins * axis.per_bin)


def _bin_start(axis: OnnxAxis, p: int) -> float:
    return axis.start + p * axis.size / axis.bins


def is_inside(c: float, length: int) -> bool:
    """Whether a sample at `c` is within one pixel of the pixel centres of a map of `length` pixels. NaN is not."""
    return -1.0 <= c <= length


def taps(c: float, length: int) -> tuple[Tap, Tap]:
    """The two pixels that linear interpolation reads at a coordinate `c` inside the map.

    Beyond the first and the last pixel the value is the pixel's, so the derivative is 0. It is also 0 at the last pixel,
    where no cell begins.
    """
    clamped = min(max(c, 0.0), length - 1.0)
    low = math.floor(clamped)
    f = clamped - low
    if low == length - 1:
        return Tap(low, 1.0, 0.0), Tap(None, 0.0, 0.0)
    derivative = 1.0 if c == clamped else 0.0
    return Tap(low, 1.0 - f, -derivative), Tap(low + 1, f, derivative)


def derivatives_by_ends(scale: float, t: float) -> tuple[float, float]:
    """The derivatives, by both ends of a RoI, of the coordinate at the fraction `t` of the way between them."""
    return scale * (1.0 - t), scale * t


def summed_roi_derivatives(axis: SampledAxis, p: int, indices: Sequence[int]) -> tuple[float, float]:
    """The derivatives of the coordinate by `r1` and `r2`, each summed over samples of bin `p`."""
    by_r1 = by_r2 = 0.0
    for i in indices:
        derivatives = axis.roi_derivatives(p, i)
        by_r1 += derivatives[0]
        by_r2 += derivatives[1]
    return by_r1, by_r2


def bins_of(axis_y: SampledAxis, axis_x: SampledAxis) -> Iterator[Bin]:
    """All output bins of a RoI, row by row."""
    total = axis_y.per_bin * axis_x.per_bin
    columns = [_along(axis_x, q) for q in range(axis_x.bins)]
    for p in range(axis_y.bins):
        rows, outside_y = _along(axis_y, p)
        for q, (points, outside_x) in enumerate(columns):
            inside = [Sample(y, x, corners(of_y, of_x)) for y, of_y in rows for x, of_x in points]
            outside = _first_pair_outside(outside_y, outside_x)
            yield Bin(p, q, total, inside, outside if total else None)


def _along(axis: SampledAxis, p: int) -> tuple[list[tuple[Point, Sequence[Tap]]], int | None]:
    """The samples of bin `p` inside the map with the pixels that they read, and the first outside sample's index."""
    points = points_inside(axis, p)
    return [(point, axis.taps(point.coordinate)) for point in points], _first_outside(axis, points)


def corners(taps_y: Sequence[Tap], taps_x: Sequence[Tap]) -> tuple[Corner, ...]:
    """The pixels that a sample reads, from its taps on both axes, in the order that decides ties."""
    return tuple(
        Corner(
            None if tap_y.pixel is None or tap_x.pixel is None else (tap_y.pixel, tap_x.pixel),
            tap_y.weight * tap_x.weight,
            tap_y.weight_derivative * tap_x.weight,
            tap_y.weight * tap_x.weight_derivative,
        )
        for tap_y in taps_y
        for tap_x in taps_x
    )


def points_inside(axis: SampledAxis, p: int) -> list[Point]:
    """The samples of bin `p` inside the map, with one point for all samples at the same coordinate."""
    located = ((axis.coordinate(p, i), i) for i in candidate_indices(axis, p))
    inside = [(c, i) for c, i in located if axis.is_inside(c)]
    return [Point(c, [i for _, i in group]) for c, group in itertools.groupby(inside, key=lambda pair: pair[0])]


def candidate_indices(axis: SampledAxis, p: int) -> range:
    """A range of indices with every sample of bin `p` inside the map and few others, however large the RoI is."""
    if axis.per_bin == 0:
        return range(0)
    start, step, largest = axis.progression(p)
    if not math.isfinite(start) or not math.isfinite(step):
        return range(0)
    if step == 0.0:
        return range(axis.per_bin)
    # Two pixels at both ends, one more than the map needs, and a bound of the dozen rounding errors in the coordinates.
    slack = 2.0 + 64 * math.ulp(1.0) * (largest + axis.length)
    low, high = sorted((edge - start) / step for edge in (-slack, axis.length + slack))
    first, last = (int(min(max(i, 0.0), float(axis.per_bin))) for i in (low - 2.0, high + 2.0))
    return range(first, min(last, axis.per_bin))


def _first_outside(axis: SampledAxis, points: Sequence[Point]) -> int | None:
    """The lowest index of a sample outside the map, which is not among `points`; None if all are inside."""
    inside = [i for point in points for i in point.indices]
    gap = next((k for k, i in enumerate(inside) if i != k), len(inside))
    return gap if gap < axis.per_bin else None


def _first_pair_outside(iy: int | None, ix: int | None) -> tuple[int, int] | None:
    """The first (iy, ix) outside the map, from the first index outside on each axis."""
    pairs = ([] if iy is None else [(iy, 0)]) + ([] if ix is None else [(0, ix)])
    return min(pairs, default=None)
