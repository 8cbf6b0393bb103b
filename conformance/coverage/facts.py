"""Facts, and which of them are needed.

A fact is the cases whose ids begin alike, `function/family/fact`: they differ in version, variant and type. It catches a
fault that one of its decisive cases fails. It is needed if it is the first in the suite's order to catch some fault; so
it is where it alone catches one, and so are those that a greedy cover in that order takes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence

from conformance.case import Case
from conformance.wrong import Fault
from conformance.wrong.family import Family


def fact_of(case: Case) -> str:
    """The fact of a case."""
    return "/".join(case.id.split("/")[:3])


def grouped(cases: Iterable[Case]) -> dict[str, list[Case]]:
    """The cases of each fact, in the suite's order."""
    facts: dict[str, list[Case]] = {}
    for case in cases:
        facts.setdefault(fact_of(case), []).append(case)
    return facts


def asked(fault: Fault, cases: tuple[Case, ...]) -> tuple[Case, ...]:
    """The cases of the operators that have the fault."""
    return _asked(fault.operators, fault.is_of_gradients_alone, cases)


def decisive(fault: Fault, cases: tuple[Case, ...]) -> tuple[Case, ...]:
    """Those that say whether a fact catches a fault.

    Of a fault of types all; of others one type's, float where the fact has it: that half precision alone shows a fault of
    borders is chance.
    """
    kept = asked(fault, cases)
    return kept if fault.family is Family.TYPES else _of_one_type_each(kept)


@functools.cache
def _asked(operators: str, is_of_gradients_alone: bool, cases: tuple[Case, ...]) -> tuple[Case, ...]:
    kept = (case for case in cases if case.definition.family == operators)
    return tuple(case for case in kept if case.definition.name.endswith("Grad") or not is_of_gradients_alone)


@functools.cache
def _of_one_type_each(cases: tuple[Case, ...]) -> tuple[Case, ...]:
    return tuple(case for of_fact in grouped(cases).values() for case in _of_one_type(of_fact))


def _of_one_type(cases: Sequence[Case]) -> list[Case]:
    types = [case.element_type for case in cases if case.expects_error is None]
    chosen = "float" if "float" in types else "double"
    # The tensors of a refusal may have a type that is what is wrong with it.
    return [case for case in cases if case.expects_error is not None or case.element_type == chosen]


def needed(first: Mapping[Fault, Case | None]) -> dict[str, list[Fault]]:
    """The facts that are needed, each with the faults that it is the first to catch.

    Args:
        first: of each fault the first of its decisive cases that it fails.
    """
    facts: dict[str, list[Fault]] = {}
    for fault, case in first.items():
        if case is not None:
            facts.setdefault(fact_of(case), []).append(fault)
    return facts
