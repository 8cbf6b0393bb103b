"""Where an operator samples an axis. This file alone knows half pixels, borders and sample counts.

Every convention places evenly spaced samples, so a convention is a function from numbers to an `Axis`, and all else is
shared. Coordinates are float64. Source: the formulas of ONNX RoiAlign-10, -16 and -22 and of their reference evaluator.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from ortops.kernels.element import Array

BEFORE = -2
"""The region of samples that lie off the map before its first pixel; past the last one it is the map's length."""

MOST_SAMPLES = 2**62
"""Samples of an axis are numbered in int64. More than these are one sample each 1e-18 of the RoI."""


class Axis(NamedTuple):
    """The samples of one RoI on one axis: sample i of bin p is at origin + (p*samples + i + 0.5)*size/(bins*samples).

    scale is d(coordinate)/d(stored coordinate); fixed is True where the size does not follow the RoI.
    """

    origin: float
    size: float
    bins: int
    samples: int
    scale: float
    fixed: bool


NUMBERS = 5
"""Of an Axis, when many are kept in an array: all but its bins."""


@njit(nogil=True)
def axis_of(numbers: Array, bins: int) -> Axis:
    """The axis that a convention has written down."""
    return Axis(numbers[0], numbers[1], bins, int(numbers[2]), numbers[3], numbers[4] != 0.0)


@njit(nogil=True)
def roi_axis(
    r1: float, r2: float, scale: float, half_pixel: bool, bins: int, sampling_ratio: int, numbers: Array
) -> None:
    """ONNX's convention: write down the axis of a RoI that is stored as r1 to r2."""
    origin = r1 * scale - 0.5 if half_pixel else r1 * scale
    size = (r2 - r1) * scale
    fixed = not half_pixel and size < 1.0
    if fixed:
        size = 1.0
    wanted = float(sampling_ratio) if sampling_ratio > 0 else np.ceil(max(size / bins, 0.0))
    most = float(MOST_SAMPLES // bins)
    numbers[0], numbers[1], numbers[2], numbers[3], numbers[4] = origin, size, min(wanted, most), scale, fixed


@njit(nogil=True)
def coordinate(axis: Axis, p: int, i: int) -> float:
    """The pixel coordinate of sample i of bin p.

    As one fraction it stays monotonic over the whole axis when rounded, on which the lengths of all tables rely: as the
    sum of p*size/bins and the rest, the bins of a RoI that starts at -1e30 would overlap.
    """
    return axis.origin + (p * axis.samples + i + 0.5) * axis.size / (axis.bins * axis.samples)


@njit(nogil=True)
def sensitivity(axis: Axis, p: int, i: int) -> tuple[float, float]:
    """The derivatives of `coordinate` with respect to the RoI's two stored coordinates."""
    if axis.fixed:
        return axis.scale, 0.0
    t = (p * axis.samples + i + 0.5) / (axis.bins * axis.samples)
    return axis.scale * (1.0 - t), axis.scale * t


@njit(nogil=True)
def region(c: float, length: int) -> int:
    """Which rule holds at c: BEFORE, -1 (clamped to pixel 0), the cell floor(c), length - 1 (clamped), length (past)."""
    if not c >= -1.0:  # a coordinate that overflowed to NaN is off the map, too
        return BEFORE
    if c < 0.0:
        return -1
    if c < length - 1:
        return int(c)
    return length - 1 if c <= length else length


@njit(nogil=True)
def is_inside(where: int, length: int) -> bool:
    """Whether samples of a region count as more than 0."""
    return -1 <= where < length


@njit(nogil=True)
def is_cell(where: int, length: int) -> bool:
    """Whether a region interpolates between two pixels; elsewhere the value is constant and its slope 0."""
    return 0 <= where < length - 1


@njit(nogil=True)
def run_end(axis: Axis, p: int, i: int, length: int) -> int:
    """One past the last sample, from i on, that is in the region of sample i of bin p.

    Doubling steps, then bisection: the work is bounded by the map and not by the number of samples.
    """
    here = region(coordinate(axis, p, i), length)
    low, step = i, 1
    while low + step < axis.samples and region(coordinate(axis, p, low + step), length) == here:
        low, step = low + step, 2 * step
    high = min(low + step, axis.samples)
    while low + 1 < high:
        middle = low + (high - low) // 2
        if region(coordinate(axis, p, middle), length) == here:
            low = middle
        else:
            high = middle
    return high
