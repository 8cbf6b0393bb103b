"""The cases of the suite. Each module has a function `cases`; vectors with printed numbers are JSON files (`literal.py`)."""

from __future__ import annotations

import functools

from conformance.case import Case
from conformance.vectors import (
    digits,
    dml_matrix,
    extremes,
    literal,
    matrix,
    max_roi_pool_sizes,
    refusals,
    resample_matrix,
    rotated_field,
    rotated_matrix,
    sessions,
    sizes,
    values,
)

SOURCES = (
    literal.cases,
    matrix.cases,
    refusals.cases,
    dml_matrix.cases,
    extremes.cases,
    resample_matrix.cases,
    sessions.cases,
    sizes.cases,
    values.cases,
    rotated_matrix.cases,
    rotated_field.cases,
    max_roi_pool_sizes.cases,
    digits.cases,
)


@functools.cache
def collect() -> tuple[Case, ...]:
    """All cases of the suite, in a fixed order.

    Raises:
        ValueError: two cases have the same id.
    """
    cases = tuple(case for source in SOURCES for case in source())
    seen: set[str] = set()
    for case in cases:
        if case.id in seen:
            raise ValueError(f"two cases have the id {case.id}")
        seen.add(case.id)
    return cases
