"""The suite's cases: those of each family of operators, and those that several families share.

The families have JSON files with printed numbers (`literal.py`), faults (`refusals.py`) and scenes (`scenes.py`), and some
a module `cases`. Each module of `SHARED` has a function `cases`, too. `make_cases` of `dialects.py` makes the cases of an
operator and of its gradient from tensors that are named by their roles; `expand` makes one of them for each version of the
operator and each element type.
"""

from __future__ import annotations

import functools
import importlib

from conformance.case import Case
from conformance.families import families

SHARED = ["literal", "matrix", "refusals", "extremes", "sessions", "sizes", "users", "ranges", "values", "digits"]
"""The modules of this package that have a function `cases`. `collect` imports them, because they import families."""


@functools.cache
def collect() -> tuple[Case, ...]:
    """All cases of the suite, in a fixed order.

    Raises:
        ValueError: two cases have the same id.
    """
    refusals = importlib.import_module(f"{__name__}.refusals")
    shared = (importlib.import_module(f"{__name__}.{name}") for name in SHARED)
    sources = [*(module.cases for module in shared), *(family.cases for family in families())]
    own = tuple(case for source in sources for case in source())
    by_analogy = tuple(case for family in families() for case in family.cases_like(own))
    cases = (*own, *by_analogy, *refusals.of_equations((*own, *by_analogy)))
    seen: set[str] = set()
    for case in cases:
        if case.id in seen:
            raise ValueError(f"two cases have the id {case.id}")
        seen.add(case.id)
    return cases
