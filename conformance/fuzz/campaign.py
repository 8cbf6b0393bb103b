"""Fuzz campaigns: dispatch ranges of cases to a pool of workers, collect the results, and shrink the failures.

Results are collected in the order of the case numbers, so counts and failures depend on the plan only, not on the workers or
their timing. A range whose workers died runs again, case by case with nothing else running, to find the one that kills them.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from typing import Any

from conformance.fuzz.check import Failure
from conformance.fuzz.worker import MOST_ALIKE, Plan, Report, run_cases, shrink_failure
from conformance.workers import WorkerPool, WorkerPoolError

RANGE = 16  # the most cases of one call
AHEAD = 64  # the most ranges per worker that may wait for an earlier one, since results are collected in order
REPORT_EVERY = 0.2  # the most seconds between two reports
GRACE = 10.0  # seconds that running cases may take after the campaign's time: a case is not interrupted


def run(plan: Plan, pool: WorkerPool, cases: int | None = None, seconds: float | None = None) -> Iterator[Report]:
    """Run a campaign and yield its reports: counts of cases, and shrunk failures with distinct signatures.

    Args:
        plan: the backend, the seed and the operators.
        pool: the workers.
        cases: the number of cases; None for no limit.
        seconds: the time after which no further case starts; None for no limit.

    Raises:
        WorkerPoolError: no worker is left.
    """
    campaign = _Campaign(plan, pool, math.inf if cases is None else cases, time.time() + (seconds or math.inf))
    while campaign.submit():
        yield campaign.wait()
        yield from campaign.collect()
    yield from campaign.drain()


class _Campaign:
    """The state of a campaign: submitted ranges of cases and failures that are being shrunk, both in order."""

    def __init__(self, plan: Plan, pool: WorkerPool, cases: float, deadline: float) -> None:
        self._plan, self._pool, self._cases, self._deadline = plan, pool, cases, deadline
        self._next = 0
        self._ranges = deque[tuple[int, int, Future[Report]]]()
        self._shrinking = deque[tuple[Failure, Future[Failure]]]()
        self._alike, self._seen = Counter[tuple[str, ...]](), set[tuple[str, ...]]()

    def submit(self) -> bool:
        """Submit ranges until every worker has two, and return whether there is anything to wait for."""
        worker_count = self._pool.worker_count
        size = math.ceil(min(self._cases / 4 / worker_count, RANGE))
        while self._next < self._cases and time.time() < self._deadline and len(self._ranges) < AHEAD * worker_count:
            if len(self._running()) >= 2 * worker_count:
                break
            first, self._next = self._next, int(min(self._next + size, self._cases))
            self._ranges.append((first, self._next, self._submit_range(first, self._next)))
        return bool(self._ranges or self._shrinking) and time.time() < self._deadline + GRACE

    def wait(self, *others: Future[Report]) -> Report:
        """Wait briefly for a result. The report is empty; yielding it lets the caller stop the campaign."""
        wait([*self._running(), *others], REPORT_EVERY, FIRST_COMPLETED)
        self._pool.check()
        return Report(Counter())

    def collect(self) -> Iterator[Report]:
        """Yield the reports of finished ranges and shrunk failures, up to the first one that is not finished."""
        while self._ranges and self._ranges[0][2].done():
            first, stop, future = self._ranges.popleft()
            try:
                yield self._count(future.result())
            except self._pool.lost_errors:
                yield from self._run_singly(first, stop)
            except CancelledError as error:
                raise WorkerPoolError("the submitted cases were cancelled") from error
        while self._shrinking and self._shrinking[0][1].done():
            failure, small = self._shrinking.popleft()
            with contextlib.suppress(*self._pool.lost_errors, CancelledError):
                failure = small.result()
            yield self._if_new(failure)

    def drain(self) -> Iterator[Report]:
        """Yield the reports of finished ranges after an unfinished one, and failures that were not shrunk in time."""
        for _, _, future in self._ranges:
            if future.done() and not future.cancelled() and future.exception() is None:
                yield self._count(future.result())
        yield from (self._if_new(failure) for failure, _ in self._shrinking)

    def _running(self) -> list[Future[Any]]:
        futures: list[Future[Any]] = [*(part[2] for part in self._ranges), *(small[1] for small in self._shrinking)]
        return [future for future in futures if not future.done()]

    def _submit_range(self, first: int, stop: int) -> Future[Report]:
        return self._pool.executor.submit(run_cases, self._plan, first, stop, self._deadline)

    def _count(self, part: Report) -> Report:
        """Return the counts only, and submit the failures to be shrunk: the first `MOST_ALIKE` of those alike."""
        for failure in part.failures:
            self._alike[failure.rough_signature] += 1
            if self._alike[failure.rough_signature] <= MOST_ALIKE:
                future = self._pool.executor.submit(shrink_failure, self._plan, failure, self._deadline)
                self._shrinking.append((failure, future))
        return Report(part.counts)

    def _if_new(self, failure: Failure) -> Report:
        """A report of the failure, or an empty one if an earlier failure has the same signature."""
        is_new = failure.signature not in self._seen
        self._seen.add(failure.signature)
        return Report(Counter(), [failure] if is_new else [])

    def _run_singly(self, first: int, stop: int) -> Iterator[Report]:
        """Run the cases of a range whose workers died, each with nothing else running that could kill a worker."""
        for number in range(first, stop):
            while self._running():
                yield self.wait()
            future = self._submit_range(number, number + 1)
            while not future.done():
                yield self.wait(future)
            try:
                yield self._count(future.result())
            except self._pool.lost_errors:
                failure = Failure(self._plan.case(number), "reference", "every worker that ran it died")
                yield self._count(Report(Counter(failed=1), [failure]))
