"""Run the wrong implementations on the cases, in several processes, to see which cases catch them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass

from conformance.backends.external import OnnxBackend
from conformance.case import Case, scenario_of
from conformance.mutants import MUTANTS, Category, Mutant
from conformance.run import ask, judge
from conformance.vectors import collect
from ortops.worker_process import LocalExecutor, in_child

OFFICIAL = "roi_align/official"
"""The family of ONNX's own vectors."""

OF_VALUES = "/values/"
"""The part of an id for cases with values at or beyond the limits of their type."""


@dataclass(frozen=True, slots=True)
class Catch:
    """The cases that catch a fault.

    ids: the ids of the cases that it fails, in the suite's order; only the first one unless all cases were run.
    first: the id of the first decisive case that it fails, or None.
    by_onnx: whether one of ONNX's own vectors catches it; None if ONNX has no vectors of the fault's operators.
    """

    fault: Mutant
    ids: tuple[str, ...]
    first: str | None
    by_onnx: bool | None


def failing(backend: object, cases: Iterable[Case]) -> Iterator[Case]:
    """The cases that a class with ONNX's backend interface fails, one by one."""
    asked_backend = OnnxBackend(backend)
    return (case for case in cases if judge(case, ask(asked_backend, case)).outcome.is_bad)


def asked(fault: Mutant, cases: tuple[Case, ...]) -> tuple[Case, ...]:
    """The cases of the operators that have the fault."""
    return _asked(fault.operators, fault.is_gradient_only, cases)


def decisive(fault: Mutant, cases: tuple[Case, ...]) -> tuple[Case, ...]:
    """The cases that decide whether a scenario catches a fault.

    For a fault about element types these are all cases. For other faults they are the cases of one type, float if the
    scenario has it, because it would be chance if only half precision showed, say, a wrong border. For faults about sizes
    they also include the cases at the limits of all types.
    """
    kept = asked(fault, cases)
    return kept if fault.category is Category.TYPES else _of_one_type_each(kept, fault.category is Category.SIZES)


@functools.cache
def _asked(operators: str, is_gradient_only: bool, cases: tuple[Case, ...]) -> tuple[Case, ...]:
    kept = (case for case in cases if case.definition.family == operators)
    return tuple(case for case in kept if case.definition.name.endswith("Grad") or not is_gradient_only)


@functools.cache
def _of_one_type_each(cases: tuple[Case, ...], has_values: bool) -> tuple[Case, ...]:
    with_float = {scenario_of(case.id) for case in cases if case.expects_error is None and case.element_type == "float"}

    def is_kept(case: Case) -> bool:
        # The element type of a refusal may be the very reason for it.
        chosen = "float" if scenario_of(case.id) in with_float else "double"
        is_open = case.expects_error is not None or (has_values and OF_VALUES in case.id)
        return is_open or case.element_type == chosen

    return tuple(filter(is_kept, cases))


def caught(faults: Sequence[Mutant], cases: tuple[Case, ...], *, everything: bool = False) -> list[Catch]:
    """The cases that catch each of the faults.

    Args:
        faults: the faults to run.
        cases: the cases in the suite's order.
        everything: whether to run all cases of all types, instead of stopping when a fault is caught.
    """
    # The outer loop is over cases, so that the expected values of each are computed once and need not be kept.
    deciding = {fault: frozenset(decisive(fault, cases)) for fault in faults}
    candidates = {fault: frozenset(asked(fault, cases)) if everything else deciding[fault] for fault in faults}
    ids: dict[Mutant, list[str]] = {fault: [] for fault in faults}
    first: dict[Mutant, str] = {}
    by_onnx = {fault: False if fault.operators == OFFICIAL.split("/", maxsplit=1)[0] else None for fault in faults}
    for case in cases:
        is_official = case.group == OFFICIAL
        for fault in faults:
            is_open = everything or fault not in first or (is_official and not by_onnx[fault])
            if case in candidates[fault] and is_open and any(failing(fault.backend, [case])):
                ids[fault].append(case.id)
                if case in deciding[fault]:
                    first.setdefault(fault, case.id)
                    by_onnx[fault] = by_onnx[fault] or (True if is_official else by_onnx[fault])
    return [Catch(f, tuple(ids[f] if everything else ids[f][:1]), first.get(f), by_onnx[f]) for f in faults]


def measure(jobs: int, faults: Sequence[Mutant] = MUTANTS, *, everything: bool = False) -> Iterator[Catch]:
    """The cases that catch each fault, as soon as they are known, in any order.

    Args:
        jobs: number of processes.
        faults: some of `FAULTS`.
        everything: as for `caught`.
    """
    with LocalExecutor(jobs) as executor:
        tasks = [executor.submit(in_child, _caught, numbers, everything) for numbers in _groups(jobs, faults)]
        for done in as_completed(tasks):
            yield from (Catch(MUTANTS[number], *found) for number, found in done.result())


def _groups(jobs: int, faults: Sequence[Mutant]) -> list[list[int]]:
    """Groups of fault numbers for one task each: of the same operators, and of similar cost."""
    groups = []
    for operators in dict.fromkeys(fault.operators for fault in faults):
        numbers = [MUTANTS.index(fault) for fault in faults if fault.operators == operators]
        count = min(4 * jobs, len(numbers))
        groups += [numbers[first::count] for first in range(count)]
    return groups


def _caught(
    numbers: Sequence[int], everything: bool
) -> list[tuple[int, tuple[tuple[str, ...], str | None, bool | None]]]:
    found = caught([MUTANTS[number] for number in numbers], collect(), everything=everything)
    return [(n, (catch.ids, catch.first, catch.by_onnx)) for n, catch in zip(numbers, found, strict=True)]
