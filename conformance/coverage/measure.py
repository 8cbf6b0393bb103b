"""Asking the wrong implementations, in as many processes as there are processors."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass

from conformance.backends.external import External
from conformance.case import Case
from conformance.coverage.facts import asked
from conformance.run import ask, judge
from conformance.vectors import collect
from conformance.wrong import FAULTS, Fault


@dataclass(frozen=True, slots=True)
class Catch:
    """What catches a fault: the ids of the cases that it fails, in the suite's order."""

    fault: Fault
    ids: tuple[str, ...]


def failing(backend: object, cases: Iterable[Case]) -> Iterator[Case]:
    """The cases that a class with ONNX's backend interface fails, one after the other."""
    asking = External(backend)
    return (case for case in cases if judge(case, ask(asking, case)).outcome.is_bad)


def measure(jobs: int, faults: Sequence[Fault] = FAULTS) -> Iterator[Catch]:
    """Each fault with all that catches it, in whatever order they are done.

    Args:
        jobs: processes.
        faults: some of `FAULTS`.
    """
    # The slowest first, so that none is left for the end.
    slow_first = sorted(faults, key=lambda fault: -len(asked(fault, collect())))
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(_catch, FAULTS.index(fault)) for fault in slow_first]):
            number, ids = done.result()
            yield Catch(FAULTS[number], ids)


def in_order(catches: Iterable[Catch]) -> Sequence[Catch]:
    """The same in the order of the faults."""
    return sorted(catches, key=lambda catch: FAULTS.index(catch.fault))


def _catch(number: int) -> tuple[int, tuple[str, ...]]:
    fault = FAULTS[number]
    return number, tuple(case.id for case in failing(fault.backend, asked(fault, collect())))
