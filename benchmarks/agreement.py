"""Check that another implementation computes the same values, without which its time means nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.problem import Problem
from benchmarks.workloads import Array
from conformance.error_bounds import unit_roundoff
from ortops.spec import ELEMENT_DTYPES


@dataclass(frozen=True)
class Difference:
    """The largest difference of outputs, relative to our largest value, and the largest allowed one.

    expected_difference: the reason for a known larger difference, or None.
    """

    relative: float
    allowed: float
    expected_difference: str | None = None

    @property
    def is_known(self) -> bool:
        """Whether the difference is larger than allowed, for a known reason."""
        return not self.is_refused and self.relative > self.allowed

    @property
    def is_refused(self) -> bool:
        """Whether the values are wrong. Even for a known reason, they must not differ by more than the largest value."""
        return not self.relative <= (self.allowed if self.expected_difference is None else 1)

    def __str__(self) -> str:
        return f"differs from ours by {self.relative:.2g} of the largest value, allowed is {self.allowed:.2g}"


def compare(
    theirs: Sequence[Array], ours: Sequence[Array], problem: Problem, expected_difference: str | None
) -> Difference:
    """Return the largest difference of any output."""
    relative = max(map(_relative, theirs, ours)) if len(theirs) == len(ours) else np.inf
    return Difference(relative, allowed(problem), expected_difference)


def allowed(problem: Problem) -> float:
    """Return the allowed difference: some rounding errors of the result and of coordinates, which are float or double.

    Coordinates are as large as the map. An error in one changes a sample in proportion to the difference of neighbouring
    pixels, which in this data is about the largest value.
    """
    dtype = ELEMENT_DTYPES[problem.element_type]
    arithmetic = np.dtype(np.float64 if dtype == np.float64 else np.float32)
    coordinates = unit_roundoff(arithmetic) * max(problem.workload.shape[2:])
    return 8 * (unit_roundoff(dtype) + coordinates)


def _relative(theirs: Array, ours: Array) -> float:
    if theirs.shape != ours.shape:
        return np.inf
    off = largest = 0.0
    # One image or RoI at a time, since these copies are twice as large as the arrays.
    for one, other in zip(theirs, ours, strict=True):
        exact = other.astype(np.float64)
        off = float(np.maximum(off, np.abs(one.astype(np.float64) - exact).max(initial=0)))
        largest = max(largest, float(np.abs(exact).max(initial=0)))
    return off / largest if largest else (0.0 if off == 0 else np.inf)
