# SPDX-License-Identifier: MIT OR Apache-2.0
"""The terms of forward error bounds, from which `conformance.compare` computes the tolerance of each element of a case.

Each family of operators computes its own terms (`conformance.families`), with the functions below.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ErrorTerms:
    """The terms of the error bound of one output; arrays broadcast against the output.

    An element is a sum of products.

    magnitude: the sum of the products' absolute values.
    terms: an upper bound of the number of products.
    coordinate_error: the largest change of an element if coordinates are computed in `Case.compute_dtype`.
    condition: the absolute condition number: the largest change of an element if all data change by at most 1.
    """

    magnitude: Floats
    terms: Floats | float
    coordinate_error: Floats
    condition: Floats

    @property
    def is_uniform(self) -> bool:
        """Whether the terms are the same for all elements."""
        return all(np.ndim(term) == 0 for term in (self.magnitude, self.terms, self.coordinate_error, self.condition))


def finite(values: Floats) -> Floats:
    """The values with 0 for infinities and NaN: outputs that they reach are compared exactly."""
    return np.where(np.isfinite(values), values, 0.0)


def largest_and_steepest(pixels: Floats) -> tuple[Floats, Floats, Floats]:
    """For each channel of finite pixels [C, H, W], the largest pixel, and the steepest slopes along y and along x."""
    with np.errstate(over="ignore"):
        steepest = [np.abs(np.diff(pixels, axis=axis)).max(axis=(1, 2), initial=0.0) for axis in (1, 2)]
    most = np.finfo(np.float64).max
    largest = np.abs(pixels).max(axis=(1, 2), initial=0.0)
    return largest, np.minimum(steepest[0], most), np.minimum(steepest[1], most)


def with_neighbours(values: Floats, axis: int) -> Floats:
    """The sums of each element of a matrix, or of matrices, and its two neighbours along an axis."""
    along = np.moveaxis(values, axis, 0)
    summed = along.copy()
    summed[1:] += along[:-1]
    summed[:-1] += along[1:]
    return np.ascontiguousarray(np.moveaxis(summed, 0, axis))


def unit_roundoff(dtype: np.dtype[Any]) -> float:
    """The unit roundoff of `dtype`: the largest relative error of rounding to nearest."""
    return float(ml_dtypes.finfo(dtype).eps) / 2  # type: ignore[no-untyped-call]


def smallest_subnormal(dtype: np.dtype[Any]) -> float:
    """The smallest positive number of `dtype`."""
    return float(ml_dtypes.finfo(dtype).smallest_subnormal)  # type: ignore[no-untyped-call]


def overflow_threshold(dtype: np.dtype[Any]) -> float:
    """The smallest positive number that rounds to infinity in `dtype`; infinity for double."""
    info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    _, exponent = math.frexp(float(info.max))
    return float(info.max) + math.ldexp(float(info.eps), exponent - 2)
