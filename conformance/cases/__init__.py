# SPDX-License-Identifier: MIT OR Apache-2.0
"""The suite's cases: those that several operators share, and those of one operator.

Each module of `MODULES` has a function `cases`. Families of operators have JSON files with printed numbers (`printed.py`)
and with faults (`refusals.py`); other numbers are in the folder `data`. `make` of `make.py` makes the cases of an
operator and of its gradient from tensors that are named by their roles; `expand` makes one of them for each version of the
operator and each element type.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping

from conformance.case import Case
from conformance.families import families
from conformance.outcome import Result

MODULES = (
    *("printed", "every_attribute", "refusals", "extremes", "sessions", "sizes", "large.scenarios", "ranges", "values"),
    *("digits", "resample", "rotated", "pool", "attention", "grids"),
)
"""The modules of this package that have a function `cases`. `collect` imports them when it needs them."""


@functools.cache
def collect() -> tuple[Case, ...]:
    """All cases of the suite, in a fixed order.

    Raises:
        ValueError: two cases have the same id.
    """
    modules = {name: importlib.import_module(f"{__name__}.{name}") for name in MODULES}
    cases_of_modules = tuple(case for module in modules.values() for case in module.cases())
    by_analogy = tuple(case for family in families() for case in family.cases_like(cases_of_modules))
    cases = (*cases_of_modules, *by_analogy, *modules["refusals"].of_equations((*cases_of_modules, *by_analogy)))
    seen: set[str] = set()
    for case in cases:
        if case.id in seen:
            raise ValueError(f"two cases have the id {case.id}")
        seen.add(case.id)
    return cases


def case_of(result: Result) -> Case:
    """The case of a result."""
    return by_id()[result.id]


@functools.cache
def by_id() -> Mapping[str, Case]:
    """All cases of the suite by id."""
    return {case.id: case for case in collect()}
