"""Many cases, on several cores: worker w of J runs the cases w, w + J, w + 2 J and so on of the campaign's seed.

Each worker asks the backend in a child of its own, so that a case may end the process. What it finds is shrunk there,
and only as often as the same message is new. A worker that ends itself has been ended by the reference; another goes on.
"""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import Synchronized

from conformance.fuzz.check import Failure, check
from conformance.fuzz.generate import generate
from conformance.fuzz.shrink import shrink
from conformance.isolate import IsolatedBackend

TIME_LIMIT = 20.0
"""Seconds that a backend may take for a case."""

MOST_ALIKE = 4
"""Failures with the same message that a worker shrinks; the others are counted."""

REPORT_EVERY = 0.2
"""Seconds between two reports of a worker."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run.

    operators: names; empty for all.
    deadline: of `time.time`, or None.
    cases: numbers below this, or None.
    """

    backend: str
    seed: int
    operators: tuple[str, ...] = ()
    deadline: float | None = None
    cases: int | None = None
    jobs: int = 1

    @property
    def is_over(self) -> bool:
        """Whether its time is."""
        return self.deadline is not None and time.time() >= self.deadline


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker did since its last report.

    counts: of cases by what came of them.
    failure: shrunk, where there is a new one.
    """

    counts: Counter[str]
    failure: Failure | None = None


def run(plan: Plan) -> Iterator[Report]:
    """The reports of all workers as they come. A failure like an earlier one is left out of them."""
    seen: set[tuple[str, ...]] = set()
    for report in _in_parallel(plan) if plan.jobs > 1 else work(plan, 0):
        failure = report.failure
        if failure is not None and failure.signature in seen:
            yield replace(report, failure=None)
            continue
        if failure is not None:
            seen.add(failure.signature)
        yield report


def work(plan: Plan, first: int, begin: Callable[[int], None] = lambda _: None) -> Iterator[Report]:
    """One worker's part, from its case `first` on; `begin` is told the number of each."""
    counts: Counter[str] = Counter()
    alike: Counter[tuple[str, ...]] = Counter()
    reported = time.monotonic()
    with IsolatedBackend(plan.backend, TIME_LIMIT) as child:
        for number in itertools.count(first, plan.jobs):
            if plan.is_over or (plan.cases is not None and number >= plan.cases):
                break
            begin(number)
            found = check(generate(plan.seed, number, plan.operators), child.ask)
            failure = None
            if isinstance(found, Failure):
                counts["failed"] += 1
                alike[found.rough_signature] += 1
                if alike[found.rough_signature] <= MOST_ALIKE:
                    failure = shrink(found, lambda case: "no time" if plan.is_over else check(case, child.ask))
            else:
                counts[found] += 1
            if failure is not None or time.monotonic() - reported > REPORT_EVERY:
                yield Report(counts, failure)
                counts, reported = Counter(), time.monotonic()
    yield Report(counts)


@dataclass(frozen=True, slots=True)
class _Worker:
    """A process that works; the number of its case outlives it."""

    process: BaseProcess
    connection: Connection
    number: Synchronized[int]


def _in_parallel(plan: Plan) -> Iterator[Report]:
    workers = {worker.connection: worker for worker in (_start(plan, first) for first in range(plan.jobs))}
    try:
        while workers:
            for connection in wait(list(workers)):
                worker = next(worker for worker in workers.values() if worker.connection is connection)
                try:
                    report: Report | None = worker.connection.recv()
                except EOFError:
                    report = _lost(plan, worker)
                    again = _start(plan, worker.number.value + plan.jobs)
                    workers[again.connection] = again
                    del workers[worker.connection]
                if report is None:
                    del workers[worker.connection]
                    worker.process.join()
                else:
                    yield report
    finally:
        for worker in workers.values():
            worker.process.terminate()
            worker.process.join()


def _lost(plan: Plan, worker: _Worker) -> Report:
    """Of a worker that has ended: its case, as it was."""
    worker.process.join()
    case = generate(plan.seed, worker.number.value, plan.operators)
    text = f"the process that asks the reference ended with exit code {worker.process.exitcode}"
    return Report(Counter(failed=1), Failure(case, "reference", text))


def _start(plan: Plan, first: int) -> _Worker:
    context = multiprocessing.get_context("spawn")
    number = context.Value("q", first)
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(plan, first, there, number))
    process.start()
    there.close()
    return _Worker(process, here, number)


def _serve(plan: Plan, first: int, connection: Connection, number: Synchronized[int]) -> None:
    """What a worker's process does; None is its last word."""

    def begin(case: int) -> None:
        number.value = case

    for report in work(plan, first, begin):
        connection.send(report)
    connection.send(None)
