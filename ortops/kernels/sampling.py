"""Where an operator samples an axis. This file alone knows half pixels, borders and sample counts.

Every convention places evenly spaced samples, so a convention is a function from numbers to an `Axis`, and all else is
shared. Coordinates are float64. Source: the formulas of ONNX RoiAlign-10, -16 and -22 and of their reference evaluator.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from ortops.kernels.compile import INNER
from ortops.kernels.element import Array

MOST_SAMPLES = 2**62
"""Samples of an axis are numbered in int64. More than these are one sample each 1e-18 of the RoI."""

NEXT, CEIL, NEAREST, ABOVE, BELOW = 0, 1, 2, 3, 4
"""Which pixels a sample at c reads: floor(c) and the next; floor(c) and ceil(c); the nearest, ties upwards; the one at or
above c; the one at or below c."""

BEFORE = -2
"""The region of samples that lie off the map before its first pixel; past the last one it is twice the map's length."""


class Axis(NamedTuple):
    """The samples of one RoI on one axis: sample i of bin p is at origin + (p*samples + i + shift)*size/steps.

    scale is d(coordinate)/d(stored coordinate); fixed is True where the size does not follow the RoI; rule is NEXT or one
    of those beside it; margin is how far before the first and past the last pixel a sample still reads that pixel.
    """

    origin: float
    size: float
    bins: int
    samples: int
    shift: float
    steps: float
    scale: float
    fixed: bool
    rule: int
    margin: float


NUMBERS = 9
"""Of an Axis, when many are kept in an array: all but its bins."""


@njit(**INNER)
def axis_of(numbers: Array, bins: int) -> Axis:
    """The axis that a convention has written down."""
    origin, size, samples, shift, steps, scale, fixed, rule, margin = numbers
    return Axis(origin, size, bins, int(samples), shift, steps, scale, fixed != 0.0, int(rule), margin)


@njit(**INNER)
def _write(numbers: Array, values: tuple[float, ...]) -> None:
    # Measured: the slice numbers[:] takes 1.5 s longer to compile, with the text of an error about shapes.
    for i in range(NUMBERS):
        numbers[i] = values[i]


@njit(**INNER)
def onnx_axis(
    r1: float, r2: float, scale: float, half_pixel: bool, bins: int, sampling_ratio: int, numbers: Array
) -> None:
    """ONNX's convention: write down the axis of a RoI that is stored as r1 to r2."""
    origin = r1 * scale - 0.5 if half_pixel else r1 * scale
    size = (r2 - r1) * scale
    fixed = not half_pixel and size < 1.0
    if fixed:
        size = 1.0
    wanted = float(sampling_ratio) if sampling_ratio > 0 else np.ceil(max(size / bins, 0.0))
    samples = min(wanted, float(MOST_SAMPLES // bins))
    _write(numbers, (origin, size, samples, 0.5, bins * samples, scale, 1.0 if fixed else 0.0, float(NEXT), 1.0))


@njit(**INNER)
def dml_axis(
    r1: float,
    r2: float,
    scale: float,
    input_offset: float,
    output_offset: float,
    bins: int,
    least: int,
    most: int,
    to_corners: bool,
    rule: int,
    numbers: Array,
) -> None:
    """DirectML's convention: write down the axis of a region that is stored as r1 to r2."""
    start, size = r1 * scale, r2 * scale - r1 * scale
    # Not min and max: a size that overflowed to NaN must become a number.
    wanted = np.ceil(size / bins)
    samples = float(least) if not wanted > least else min(wanted, float(most))
    samples = min(samples, float(MOST_SAMPLES // bins))
    steps, shift = bins * samples, -output_offset
    if to_corners:
        steps, shift = (steps - 1.0, shift) if steps > 1.0 else (1.0, 0.5)
    _write(numbers, (start - input_offset, size, samples, shift, steps, scale, 0.0, float(rule), 1.0))


@njit(**INNER)
def resample_axis(scale: float, length: int, bins: int, input_offset: float, output_offset: float, rule: int) -> Axis:
    """DirectML's RESAMPLE: the one sample of each output of an axis; scale 0 stands for the ratio of the lengths."""
    # The ratio as one fraction: where the quotient is a whole number, no rounding may make it miss a pixel.
    size, steps = (1.0, scale) if scale > 0.0 else (float(length), float(bins))
    return Axis(-input_offset, size, bins, 1, -output_offset, steps, 0.0, True, rule, np.inf)


@njit(**INNER)
def coordinate(axis: Axis, p: int, i: int) -> float:
    """The pixel coordinate of sample i of bin p.

    As one fraction it stays monotonic over the whole axis when rounded, on which the lengths of all tables rely: as the
    sum of p*size/bins and the rest, the bins of a RoI that starts at -1e30 would overlap.
    """
    return axis.origin + (p * axis.samples + i + axis.shift) * axis.size / axis.steps


@njit(**INNER)
def sensitivity(axis: Axis, p: int, i: int) -> tuple[float, float]:
    """The derivatives of `coordinate` with respect to the RoI's two stored coordinates."""
    if axis.fixed:
        return axis.scale, 0.0
    t = (p * axis.samples + i + axis.shift) / axis.steps
    return axis.scale * (1.0 - t), axis.scale * t


@njit(**INNER)
def region(axis: Axis, c: float, length: int) -> int:
    """Which value holds at c: 2*k that of pixel k, 2*k + 1 between pixels k and k + 1; BEFORE or 2*length off the map.

    Regions ascend with c, and within one the value is linear in c.
    """
    if not c >= -axis.margin:  # a coordinate that overflowed to NaN is off the map, too
        return BEFORE
    if c > length - 1 + axis.margin:
        return 2 * length
    if c < 0.0:
        return 0
    if c >= length - 1:
        return 2 * (length - 1)
    if axis.rule == NEAREST:
        return 2 * int(c + 0.5)
    k = int(c)
    if axis.rule == BELOW or (axis.rule != NEXT and c == k):
        return 2 * k
    return 2 * k + (2 if axis.rule == ABOVE else 1)


@njit(**INNER)
def is_inside(where: int, length: int) -> bool:
    """Whether samples of a region read the map."""
    return 0 <= where < 2 * length


@njit(**INNER)
def is_between(where: int) -> bool:
    """Whether a region on the map lies between two pixels; elsewhere its value is constant and its slope 0."""
    return where % 2 == 1


@njit(**INNER)
def run_end(axis: Axis, p: int, i: int, here: int, length: int) -> int:
    """One past the last sample, from i on, that is in the region `here` of sample i of bin p.

    Doubling steps, then bisection: the work is bounded by the map and not by the number of samples.
    """
    low, step = i, 1
    while low + step < axis.samples and region(axis, coordinate(axis, p, low + step), length) == here:
        low, step = low + step, 2 * step
    high = min(low + step, axis.samples)
    while low + 1 < high:
        middle = low + (high - low) // 2
        if region(axis, coordinate(axis, p, middle), length) == here:
            low = middle
        else:
            high = middle
    return high
