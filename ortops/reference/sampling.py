"""Where the samples of a RoI lie and which pixels they read: the reference's one place for coordinates and borders.

Height and width are treated alike, so a RoI is two `SampledAxis`. A sample of an output bin is a pair of indices, one an
axis. `Axis` is ONNX's rule for where samples lie; what comes after it here holds for every such rule.

Source of `Axis`: ONNX RoiAlign-16 and -22 with `onnx.reference.ops.op_roi_align` for what their text leaves open: the
order of scale and shift, the smallest size, the border, the clamping. The derivatives follow from these formulas.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

MAX_SAMPLES = 2**62
"""More samples than this along one bin are not told apart from this many."""


class SampledAxis(Protocol):
    """One RoI along one axis of the map: where its samples lie, what they read and how they move with the RoI."""

    @property
    def bins(self) -> int:
        """Output bins."""
        ...

    @property
    def per_bin(self) -> int:
        """Samples in each bin; 0 where there are none."""
        ...

    @property
    def length(self) -> int:
        """Extent of the map in pixels."""
        ...

    def coordinate(self, p: int, i: int) -> float:
        """Where sample `i` of bin `p` lies, in pixels; infinite or NaN where float64 cannot hold it."""
        ...

    def progression(self, p: int) -> tuple[float, float, float]:
        """Samples of bin `p` lie near `start + i*step`: start, step, the largest number met on the way."""
        ...

    def taps(self, c: float) -> Sequence[Tap]:
        """The pixels that a sample at `c` reads, `c` being inside the map."""
        ...

    def slopes(self, p: int, i: int) -> tuple[float, float]:
        """The derivatives of `coordinate` by the RoI's stored coordinates, the first and the second."""
        ...


@dataclass(frozen=True)
class Axis:
    """One RoI along one axis of the map, sampled as ONNX has it.

    start, size: of the RoI on the map, in pixels.
    scale: map pixels to a unit of the RoI's stored coordinates.
    size_varies: False where the size is the least one allowed, whatever the RoI's stored coordinates.
    bins: output bins.
    per_bin: samples in each bin; 0 where there are none.
    length: extent of the map in pixels.
    """

    start: float
    size: float
    scale: float
    size_varies: bool
    bins: int
    per_bin: int
    length: int

    def coordinate(self, p: int, i: int) -> float:
        """As `SampledAxis` has it."""
        return coordinate(self, p, i)

    def progression(self, p: int) -> tuple[float, float, float]:
        """As `SampledAxis` has it."""
        start = _bin_start(self, p)
        return start, self.size / (self.bins * self.per_bin), abs(start)

    def taps(self, c: float) -> Sequence[Tap]:
        """As `SampledAxis` has it: linear, `c` up to a pixel beyond the map's."""
        return taps(c, self.length)

    def slopes(self, p: int, i: int) -> tuple[float, float]:
        """As `SampledAxis` has it."""
        # Where the size is fixed every sample moves with the start alone, as the one at t = 0 does.
        t = (p * self.per_bin + i + 0.5) / (self.bins * self.per_bin) if self.size_varies else 0.0
        return self.scale * (1.0 - t), self.scale * t


class Point(NamedTuple):
    """A coordinate inside the map and, ascending, the indices of all samples of the bin that lie there."""

    coordinate: float
    indices: Sequence[int]


class Tap(NamedTuple):
    """A pixel that an interpolation reads, its weight, and the weight's derivative by the sample's coordinate.

    pixel: None beyond the map's last one, where weight and slope are 0.
    """

    pixel: int | None
    weight: float
    slope: float


class Corner(NamedTuple):
    """One of the pixels that a sample reads, at most four; `slope_y` and `slope_x` are the derivatives of its weight."""

    pixel: tuple[int, int] | None
    weight: float
    slope_y: float
    slope_x: float


class Sample(NamedTuple):
    """All samples of a bin that lie at one place inside the map; corners in the order that decides ties."""

    y: Point
    x: Point
    corners: tuple[Corner, ...]

    @property
    def first(self) -> tuple[int, int]:
        """The indices (iy, ix) of the first of them."""
        return self.y.indices[0], self.x.indices[0]

    @property
    def repeats(self) -> int:
        """How many they are."""
        return len(self.y.indices) * len(self.x.indices)


class Bin(NamedTuple):
    """The samples of output bin (p, q).

    total: number of samples, those outside the map included.
    inside: those inside the map, by ascending (iy, ix).
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
) -> tuple[Axis, Axis]:
    """The RoI x1 y1 x2 y2 along y and along x; sizes are height and width."""

    def axis(r1: float, r2: float, bins: int, length: int) -> Axis:
        start, size, size_varies = _start_and_size(r1, r2, spatial_scale, coordinate_transformation_mode)
        per_bin = samples_per_bin(size, bins, sampling_ratio)
        return Axis(start, size, spatial_scale, size_varies, bins, per_bin, length)

    x1, y1, x2, y2 = roi
    return axis(y1, y2, output_size[0], map_size[0]), axis(x1, x2, output_size[1], map_size[1])


def _start_and_size(
    r1: float, r2: float, scale: float, coordinate_transformation_mode: str
) -> tuple[float, float, bool]:
    """Start and size in pixels, and whether the size is free: not where it has been raised to the least one."""
    start, size = r1 * scale, (r2 - r1) * scale
    if coordinate_transformation_mode == "half_pixel":
        return start - 0.5, size, True
    return start, max(size, 1.0), size >= 1.0


def samples_per_bin(size: float, bins: int, sampling_ratio: int) -> int:
    """Samples along one axis of a bin of a RoI of `size` pixels: the ratio, or the bin's size, rounded up, where it is 0."""
    if sampling_ratio > 0:
        return min(sampling_ratio, MAX_SAMPLES)
    return math.ceil(min(max(size / bins, 0.0), float(MAX_SAMPLES)))


def coordinate(axis: Axis, p: int, i: int) -> float:
    """Where sample `i` of bin `p` lies, in pixels; infinite or NaN where float64 cannot hold it."""
    return _bin_start(axis, p) + (i + 0.5) * axis.size / (axis.bins * axis.per_bin)


def _bin_start(axis: Axis, p: int) -> float:
    return axis.start + p * axis.size / axis.bins


def is_inside(c: float, length: int) -> bool:
    """Whether a sample at `c` reads a map of `length` pixels: up to one pixel around the pixels' centres, NaN never."""
    return -1.0 <= c <= length


def taps(c: float, length: int) -> tuple[Tap, Tap]:
    """The two pixels that linear interpolation at `c` reads, where `c` is inside the map.

    Beyond the first and the last pixel the map continues as it is there, so the slope is 0. It is 0 at the last pixel
    too, where no cell begins.
    """
    clamped = min(max(c, 0.0), length - 1.0)
    low = math.floor(clamped)
    f = clamped - low
    if low == length - 1:
        return Tap(low, 1.0, 0.0), Tap(None, 0.0, 0.0)
    slope = 1.0 if c == clamped else 0.0
    return Tap(low, 1.0 - f, -slope), Tap(low + 1, f, slope)


def roi_slopes(axis: SampledAxis, p: int, indices: Sequence[int]) -> tuple[float, float]:
    """The derivatives by `r1` and by `r2` of the coordinate, summed over samples of bin `p`."""
    by_r1 = by_r2 = 0.0
    for i in indices:
        slopes = axis.slopes(p, i)
        by_r1 += slopes[0]
        by_r2 += slopes[1]
    return by_r1, by_r2


def bins_of(axis_y: SampledAxis, axis_x: SampledAxis) -> Iterator[Bin]:
    """All output bins of a RoI, row by row."""
    columns = [points_inside(axis_x, q) for q in range(axis_x.bins)]
    for p in range(axis_y.bins):
        row = points_inside(axis_y, p)
        for q, column in enumerate(columns):
            total = axis_y.per_bin * axis_x.per_bin
            inside = [
                Sample(y, x, corners(axis_y.taps(y.coordinate), axis_x.taps(x.coordinate))) for y in row for x in column
            ]
            outside = _first_pair_outside(_first_outside(axis_y, row), _first_outside(axis_x, column))
            yield Bin(p, q, total, inside, outside if total else None)


def corners(taps_y: Sequence[Tap], taps_x: Sequence[Tap]) -> tuple[Corner, ...]:
    """The pixels that a sample reads, given those of its two axes, in the order that decides ties."""
    return tuple(
        Corner(
            None if tap_y.pixel is None or tap_x.pixel is None else (tap_y.pixel, tap_x.pixel),
            tap_y.weight * tap_x.weight,
            tap_y.slope * tap_x.weight,
            tap_y.weight * tap_x.slope,
        )
        for tap_y in taps_y
        for tap_x in taps_x
    )


def points_inside(axis: SampledAxis, p: int) -> list[Point]:
    """The samples of bin `p` inside the map; those at one coordinate are one point, since they all read the same."""
    located = ((axis.coordinate(p, i), i) for i in _possibly_inside(axis, p))
    inside = [(c, i) for c, i in located if is_inside(c, axis.length)]
    return [Point(c, [i for _, i in group]) for c, group in itertools.groupby(inside, key=lambda pair: pair[0])]


def _possibly_inside(axis: SampledAxis, p: int) -> range:
    """Indices that include every sample of bin `p` inside the map, and few others however large the RoI is."""
    if axis.per_bin == 0:
        return range(0)
    start, step, largest = axis.progression(p)
    if not math.isfinite(start) or not math.isfinite(step):
        return range(0)
    if step == 0.0:
        return range(axis.per_bin)
    # A pixel more than the map needs at both ends, and more than the dozen roundings on the way here can add up to.
    slack = 2.0 + 64 * math.ulp(1.0) * (largest + axis.length)
    low, high = sorted((edge - start) / step for edge in (-slack, axis.length + slack))
    first, last = (int(min(max(i, 0.0), float(axis.per_bin))) for i in (low - 2.0, high + 2.0))
    return range(first, min(last, axis.per_bin))


def _first_outside(axis: SampledAxis, points: Sequence[Point]) -> int | None:
    """The least index of a sample that is not among `points`."""
    inside = [i for point in points for i in point.indices]
    gap = next((k for k, i in enumerate(inside) if i != k), len(inside))
    return gap if gap < axis.per_bin else None


def _first_pair_outside(iy: int | None, ix: int | None) -> tuple[int, int] | None:
    """The first (iy, ix) of which either is outside, from the first outside on each axis."""
    pairs = ([] if iy is None else [(iy, 0)]) + ([] if ix is None else [(0, ix)])
    return min(pairs, default=None)
