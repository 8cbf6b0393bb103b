"""What the bounds of every operator that samples regions share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from conformance.bounds.growth import arithmetic, unit
from conformance.case import Case
from conformance.expect import Floats

LEAST_SIZE = 1e-9
"""Pixels. A region that is smaller has all of its samples at one place as far as counting them goes."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of all regions; arrays are [R].

    delta: the largest error of a coordinate.
    per_bin: samples of an output inside the map, at most.
    touching: samples of a region that read any one pixel, at most.
    """

    delta: Floats
    per_bin: Floats
    touching: Floats


def coordinate_error(case: Case, ends: Floats, reach: Floats, in_map: Floats) -> Floats:
    """The largest error of a coordinate: ten roundings of its terms, and three of the region's ends for its size.

    Args:
        case: says in which arithmetic.
        ends: |r1| S + |r2| S.
        reach: no term of a coordinate on the map is larger.
        in_map: the part of the size that lies between the region's start and a coordinate on the map, at most.
    """
    return np.asarray(unit(arithmetic(case.dtype)) * (10 * reach + 3 * in_map * ends))


def around(magnitude: Floats) -> Floats:
    """For each pixel of [N, C, H, W] the sum over it and its eight neighbours."""
    height, width = magnitude.shape[2:]
    near = np.pad(magnitude, ((0, 0), (0, 0), (1, 1), (1, 1)))
    parts = (near[:, :, i : i + height, j : j + width] for i in range(3) for j in range(3))
    return sum(parts, np.zeros(magnitude.shape))


def slope(x: Floats) -> tuple[float, float]:
    """What an error of one pixel in y, and in x, can change an interpolated sample by."""
    return largest(np.abs(np.diff(x, axis=2))), largest(np.abs(np.diff(x, axis=3)))


def largest(values: Floats) -> float:
    """The largest of values that are not negative; 0 of none."""
    return float(np.max(values, initial=0.0))


def per_roi(values: Floats) -> Floats:
    """[R] as it goes with [R, C, PH, PW]."""
    return values[:, None, None, None]
