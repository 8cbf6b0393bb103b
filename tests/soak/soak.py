"""Running a soak: rounds of threads that call, while this one watches."""

from __future__ import annotations

import gc
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .live import Live
from .memory import Growth, Sample, growths, held_bytes, resident_bytes
from .pool import Problem
from .tally import Fault, Tally
from .worker import Worker

ROUND = 5.0
"""Seconds of a round. After each all its threads and sessions are gone, so that two samples of memory can be compared."""

INTERVAL = 0.25
"""Seconds between two looks at the threads."""

LIVE = 24
"""Sessions at a time."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is called, by how many threads, and for how long: seconds or calls, or both, or neither: until interrupted.

    most_seconds: of one call, after which it is said not to end. The slowest takes some ten milliseconds.
    """

    pool: Sequence[Problem]
    threads: int = 4
    seed: int = 0
    seconds: float | None = None
    calls: int | None = None
    most_seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class Report:
    """What came of it.

    growths: of memory; none where there were too few calls to say.
    """

    tally: Tally
    samples: Sequence[Sample]
    growths: Sequence[Growth]

    @property
    def is_good(self) -> bool:
        """Whether every call did what it should, and memory is flat as far as can be said."""
        return not self.tally.faults and all(growth.is_flat for growth in self.growths)


def soak(plan: Plan, progress: Callable[[Sample], object] = lambda _: None) -> Report:
    """Call until the time is over, all calls are made, a call does not end, or the user interrupts.

    Args:
        plan: what to do.
        progress: called several times a second.
    """
    return _Soak(plan, progress).run()


class _Soak:
    """Rounds of calls, each with threads and sessions of its own, and a sample of memory after each."""

    def __init__(self, plan: Plan, progress: Callable[[Sample], object]) -> None:
        self._plan, self._progress = plan, progress
        self._tally, self._begun = Tally(plan.calls), time.monotonic()

    def run(self) -> Report:
        """What came of all rounds."""
        samples = list[Sample]()
        is_over = False
        while not is_over:
            is_over = self._round(len(samples))
            gc.collect()
            samples.append(self._sample())
        return Report(self._tally, samples, growths(samples))

    def _round(self, number: int) -> bool:
        """Call for some seconds; whether that was the last time."""
        plan, stop, live = self._plan, threading.Event(), Live(self._plan.pool, LIVE, self._tally)
        workers = [Worker((plan.seed, number, i), plan.pool, live, self._tally, stop) for i in range(plan.threads)]
        left = math.inf if plan.seconds is None else plan.seconds - self._spent
        end = self._spent + min(ROUND, left)
        for worker in workers:
            worker.start()
        hanging, is_interrupted = list[Worker](), False
        try:
            while any(worker.is_alive() for worker in workers) and not hanging and self._spent < end:
                time.sleep(INTERVAL)
                self._progress(self._sample())
                hanging = self._hanging(workers)
        except KeyboardInterrupt:
            is_interrupted = True  # the report is what the user wants now
        stop.set()
        while any(worker.is_alive() for worker in workers) and not hanging:
            time.sleep(INTERVAL / 10)
            hanging = self._hanging(workers)
        for worker in workers:
            if worker in hanging:
                self._tally.end(Fault("no end", "a call", f"has not ended after {plan.most_seconds:.0f} s"))
            elif not worker.is_alive() and not worker.is_done:
                self._tally.end(Fault("unexpected error", "a thread", "has ended before its time"))
        return is_interrupted or bool(hanging) or left <= ROUND or self._tally.is_full

    @property
    def _spent(self) -> float:
        """Seconds."""
        return time.monotonic() - self._begun

    def _sample(self) -> Sample:
        tally = self._tally
        sizes = resident_bytes(), held_bytes()
        return Sample(self._spent, tally.calls, tally.refusals, tally.sessions, tally.options, *sizes)

    def _hanging(self, workers: Sequence[Worker]) -> list[Worker]:
        """Those whose call does not end."""
        now = time.monotonic()
        return [one for one in workers if one.is_alive() and now - one.begun > self._plan.most_seconds]
