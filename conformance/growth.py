"""The quantities that an output's error is computed from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from conformance.case import Case
from conformance.expected_values import Floats


@dataclass(frozen=True, slots=True)
class Growth:
    """How errors grow into one output; arrays broadcast against it.

    magnitude: sum of the absolute values of the terms that an element is the sum of.
    terms: how many they are, at most.
    drift: the most that an element changes when the coordinates are computed in `arithmetic(case)`.
    gain: the most that an element changes for a change of 1 of every element of the data.
    """

    magnitude: Floats
    terms: Floats | float
    drift: Floats
    gain: Floats


def arithmetic(case: Case) -> np.dtype[Any]:
    """The least precise type in which a runtime has to compute the case: float32, or double for double tensors."""
    if case.is_in_own_type:
        return case.dtype
    return np.dtype(np.float64) if case.dtype == np.float64 else np.dtype(np.float32)


def unit(dtype: np.dtype[Any]) -> float:
    """The largest relative error of one rounding to `dtype`, to nearest."""
    return float(ml_dtypes.finfo(dtype).eps) / 2  # type: ignore[no-untyped-call]


def least(dtype: np.dtype[Any]) -> float:
    """The least positive number of `dtype`."""
    return float(ml_dtypes.finfo(dtype).smallest_subnormal)  # type: ignore[no-untyped-call]


def limit(dtype: np.dtype[Any]) -> float:
    """The least size of a number that becomes infinite when it is rounded to `dtype`; infinite itself for double."""
    info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    _, exponent = math.frexp(float(info.max))
    return float(info.max) + math.ldexp(float(info.eps), exponent - 2)
