"""The cases of the suite. Each module of `SOURCES` has a function `cases`, which yields them.

JSON files hold vectors with printed numbers (`literal.py`), faults (`refusals.py`) and scenes (`scenes.py`). `make_cases` of
`dialects.py` makes the cases of an operator and of its gradient from tensors that are named by their roles; `expand` makes
one of them for each version of the operator and each element type.
"""

from __future__ import annotations

import functools

from conformance.case import Case
from conformance.vectors import (
    digits,
    dml_resample,
    extremes,
    literal,
    matrix,
    max_roi_pool,
    ranges,
    refusals,
    roi_align_rotated,
    sessions,
    sizes,
    users,
    values,
)

SOURCES = (
    literal,
    matrix,
    refusals,
    extremes,
    dml_resample,
    sessions,
    sizes,
    users,
    ranges,
    values,
    roi_align_rotated,
    max_roi_pool,
    digits,
)


@functools.cache
def collect() -> tuple[Case, ...]:
    """All cases of the suite, in a fixed order.

    Raises:
        ValueError: two cases have the same id.
    """
    cases = tuple(case for source in SOURCES for case in source.cases())
    seen: set[str] = set()
    for case in cases:
        if case.id in seen:
            raise ValueError(f"two cases have the id {case.id}")
        seen.add(case.id)
    return cases
