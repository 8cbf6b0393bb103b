"""Many cases: an executor examines ranges of them, and makes small what fails.

What comes back is taken in the order of numbers, so the counts and the failures depend on the plan alone, not on who does
what, nor on when. A range whose workers ended is examined again, case by case and while nothing else is, until it is known
which case does it.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, ThreadPoolExecutor, wait
from typing import Any, Protocol

from conformance.fuzz.check import Failure
from conformance.fuzz.worker import MOST_ALIKE, Plan, Report, end_all, run_cases, shrink_failure
from conformance.printable import PrintableError

RANGE = 16  # one call examines so many cases at most
AHEAD = 64  # for each worker so many ranges may be done before one that is not: what comes back waits for it
REPORT_EVERY = 0.2  # seconds between two reports, at most
GRACE = 10.0  # seconds after its time for what a campaign has begun to come back: a case is not interrupted


class WorkerPoolError(PrintableError):
    """Nobody is there to do what remains."""


class WorkerPool(Protocol):
    """The workers: an executor, and what it raises where every worker that tried has ended."""

    executor: Executor
    lost_errors: tuple[type[BaseException], ...]

    @property
    def worker_count(self) -> int:
        """The number of workers."""

    def check(self) -> None:
        """Raise CrewError if nobody is there any more."""


class LocalPool(contextlib.AbstractContextManager["LocalPool"]):
    """So many threads of this process; a context manager that ends what they do, and their children."""

    lost_errors: tuple[type[BaseException], ...] = ()

    def __init__(self, jobs: int) -> None:
        self.worker_count = jobs
        self.executor: Executor = ThreadPoolExecutor(jobs)

    def __exit__(self, *_: object) -> None:
        self.executor.shutdown(wait=False, cancel_futures=True)
        end_all()
        self.executor.shutdown()
        end_all()

    def check(self) -> None:
        """Raise nothing: threads are always there."""


def run(plan: Plan, pool: WorkerPool, cases: int | None = None, seconds: float | None = None) -> Iterator[Report]:
    """The reports of a campaign: counts of cases, and failures made small of which no two look the same.

    It has the cases 0 to `cases` - 1, without end where that is None; after so many seconds no more are begun.

    Raises:
        CrewError: nobody is there any more.
    """
    campaign = _Campaign(plan, pool, math.inf if cases is None else cases, time.time() + (seconds or math.inf))
    while campaign.submit():
        yield campaign.wait()
        yield from campaign.collect()
    yield from campaign.drain()


class _Campaign:
    """What has been handed out, in order: ranges of cases, and failures to be made small."""

    def __init__(self, plan: Plan, pool: WorkerPool, cases: float, ends: float) -> None:
        self._plan, self._pool, self._cases, self._ends = plan, pool, cases, ends
        self._next = 0
        self._ranges = deque[tuple[int, int, Future[Report]]]()
        self._shrinking = deque[tuple[Failure, Future[Failure]]]()
        self._alike, self._seen = Counter[tuple[str, ...]](), set[tuple[str, ...]]()

    def submit(self) -> bool:
        """Hand out as much as the crew should have; whether there is anything to wait for."""
        worker_count = self._pool.worker_count
        size = math.ceil(min(self._cases / 4 / worker_count, RANGE))
        while self._next < self._cases and time.time() < self._ends and len(self._ranges) < AHEAD * worker_count:
            if len(self._running()) >= 2 * worker_count:
                break
            first, self._next = self._next, int(min(self._next + size, self._cases))
            self._ranges.append((first, self._next, self._submit_range(first, self._next)))
        return bool(self._ranges or self._shrinking) and time.time() < self._ends + GRACE

    def wait(self, *others: Future[Report]) -> Report:
        """Wait for something to come back, but not for long; an empty report, by which whoever asks can end it."""
        wait([*self._running(), *others], REPORT_EVERY, FIRST_COMPLETED)
        self._pool.check()
        return Report(Counter())

    def collect(self) -> Iterator[Report]:
        """What has come back and has nothing missing before it."""
        while self._ranges and self._ranges[0][2].done():
            first, stop, future = self._ranges.popleft()
            try:
                yield self._count(future.result())
            except self._pool.lost_errors:
                yield from self._run_singly(first, stop)
            except CancelledError as error:
                raise WorkerPoolError("what it was asked to do was dropped") from error
        while self._shrinking and self._shrinking[0][1].done():
            failure, small = self._shrinking.popleft()
            with contextlib.suppress(*self._pool.lost_errors, CancelledError):
                failure = small.result()
            yield self._if_new(failure)

    def drain(self) -> Iterator[Report]:
        """What has come back behind something that has not, and failures for which there was no time."""
        for _, _, future in self._ranges:
            if future.done() and not future.cancelled() and future.exception() is None:
                yield self._count(future.result())
        yield from (self._if_new(failure) for failure, _ in self._shrinking)

    def _running(self) -> list[Future[Any]]:
        futures: list[Future[Any]] = [*(part[2] for part in self._ranges), *(small[1] for small in self._shrinking)]
        return [future for future in futures if not future.done()]

    def _submit_range(self, first: int, stop: int) -> Future[Report]:
        return self._pool.executor.submit(run_cases, self._plan, first, stop, self._ends)

    def _count(self, part: Report) -> Report:
        """The counts alone; the failures are handed out to be made small, of those alike the first `MOST_ALIKE`."""
        for failure in part.failures:
            self._alike[failure.rough_signature] += 1
            if self._alike[failure.rough_signature] <= MOST_ALIKE:
                future = self._pool.executor.submit(shrink_failure, self._plan, failure, self._ends)
                self._shrinking.append((failure, future))
        return Report(part.counts)

    def _if_new(self, failure: Failure) -> Report:
        """The failure, unless one before looked the same."""
        is_new = failure.signature not in self._seen
        self._seen.add(failure.signature)
        return Report(Counter(), [failure] if is_new else [])

    def _run_singly(self, first: int, stop: int) -> Iterator[Report]:
        """The cases of a range whose workers ended, each while nothing else is examined: another is not to end them."""
        for number in range(first, stop):
            while self._running():
                yield self.wait()
            future = self._submit_range(number, number + 1)
            while not future.done():
                yield self.wait(future)
            try:
                yield self._count(future.result())
            except self._pool.lost_errors:
                failure = Failure(self._plan.case(number), "reference", "every worker that examined it ended")
                yield self._count(Report(Counter(failed=1), [failure]))
