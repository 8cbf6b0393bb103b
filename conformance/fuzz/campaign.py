"""Many cases, by many hands: ranges of numbers are handed out, and what comes back is counted once.

The cases, their counts and the failures that are made small depend on the plan alone, not on who does what, nor on when.
A range of which only a part comes back is handed out again from there. One that ended all who tried it is suspect: it is
cut up and tried while nothing else is, until the case is known that does it.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass
from typing import Any

from conformance.fuzz.check import Failure
from conformance.fuzz.crew import Crew, CrewError
from conformance.fuzz.merge import Failures, Parts
from conformance.fuzz.tasks import Part, look, make_small
from conformance.fuzz.work import Found, Plan

RANGE = 64
"""Cases that are handed out at once, at most."""

SLICE = 10.0
"""Seconds after which they come back, done or not: so much is lost with a worker."""

PIECES = 8
"""Into which a suspect range is cut."""

AHEAD = 64
"""Ranges for each task of the crew that may be done before one that is not: what comes back waits for it."""

REPORT_EVERY = 0.2
"""Seconds between two reports, at most."""


@dataclass(frozen=True, slots=True)
class Report:
    """What has come since the last report.

    counts: of cases by what came of them.
    failure: a small one, unlike those before.
    """

    counts: Counter[str]
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers from `first` to `stop` - 1."""

    first: int
    stop: int
    is_suspect: bool = False

    def pieces(self) -> Iterator[Range]:
        """It, cut up."""
        step = math.ceil((self.stop - self.first) / PIECES)
        for first in range(self.first, self.stop, step):
            yield Range(first, min(first + step, self.stop), is_suspect=True)


@dataclass(frozen=True, slots=True)
class Failing:
    """A case to be made small; `place` says when it was found."""

    place: int
    found: Found


def run(plan: Plan, crew: Crew, cases: int | None = None, seconds: float | None = None) -> Iterator[Report]:
    """The reports of a campaign.

    Args:
        plan: its cases.
        crew: who does it.
        cases: numbers below this, or None.
        seconds: after which no more are begun, or None.

    Raises:
        CrewError: nobody is there any more.
    """
    campaign = _Campaign(plan, crew, cases, seconds)
    while campaign.hand_out():
        done, _ = wait(campaign.running, REPORT_EVERY, FIRST_COMPLETED)
        crew.check()
        for future in done:
            yield from campaign.take_back(future)
        yield Report(Counter())
    yield from campaign.finish()


class _Campaign:
    """What is handed out, and what remains to be."""

    def __init__(self, plan: Plan, crew: Crew, cases: int | None, seconds: float | None) -> None:
        self.running: dict[Future[Any], Range | Failing] = {}
        self._plan, self._crew = plan, crew
        self._cases = math.inf if cases is None else cases
        self._ends = math.inf if seconds is None else time.monotonic() + seconds
        self._next = 0
        self._rests, self._suspects, self._failing = deque[Range](), deque[Range](), deque[Failing]()
        self._failing_so_far = 0
        self._parts, self._failures = Parts(), Failures()

    def hand_out(self) -> bool:
        """Hand out as much as the crew should have; whether it has anything."""
        while len(self.running) < self._crew.width and (task := self._next_task()) is not None:
            future: Future[Any]
            if isinstance(task, Failing):
                future = self._crew.submit(make_small, self._plan, task.found, max(self._left, 0.0))
            else:
                future = self._crew.submit(look, self._plan, task.first, task.stop, min(SLICE, max(self._left, 0.0)))
            self.running[future] = task
        return bool(self.running)

    def take_back(self, future: Future[Any]) -> Iterator[Report]:
        """What comes of a task."""
        task = self.running.pop(future)
        try:
            result = future.result()
        except self._crew.lost:
            yield from self._without(task)
        except CancelledError as error:
            raise CrewError("what it was asked to do was dropped") from error
        else:
            if isinstance(task, Failing):
                yield from self._small(task, result)
            else:
                yield from self._done(task, result)

    def finish(self) -> Iterator[Report]:
        """What is left where there was no time to do all."""
        yield from self._to_be_small(self._parts.rest())
        while self._failing:
            failing = self._failing.popleft()
            yield from self._small(failing, failing.found.as_it_was(self._plan))

    @property
    def _left(self) -> float:
        """Seconds."""
        return self._ends - time.monotonic()

    def _next_task(self) -> Range | Failing | None:
        if self._suspects or any(isinstance(task, Range) and task.is_suspect for task in self.running.values()):
            return None if self.running else self._suspects.popleft()
        if self._left <= 0:
            return None
        if self._failing:
            return self._failing.popleft()
        return self._rests.popleft() if self._rests else self._fresh()

    def _fresh(self) -> Range | None:
        """Numbers that nobody has had."""
        width = self._crew.width
        if self._next >= self._cases or self._next - self._parts.complete > AHEAD * RANGE * width:
            return None
        size = math.ceil(min(self._cases / 4 / width, RANGE))
        first, self._next = self._next, int(min(self._next + size, self._cases))
        return Range(first, self._next)

    def _done(self, task: Range, part: Part) -> Iterator[Report]:
        if part.stop < task.stop:
            (self._suspects if task.is_suspect else self._rests).append(Range(part.stop, task.stop, task.is_suspect))
        yield Report(part.counts)
        yield from self._to_be_small(self._parts.add(part))

    def _without(self, task: Range | Failing) -> Iterator[Report]:
        """The result of a task that ended all who tried it."""
        if isinstance(task, Failing):
            yield from self._small(task, task.found.as_it_was(self._plan))
        elif task.stop - task.first > 1:
            self._suspects.extend(task.pieces())
        else:
            found = Found.end(self._plan, task.first, "every worker that asked the reference ended")
            yield from self._done(task, Part(task.first, task.stop, Counter(failed=1), (found,)))

    def _to_be_small(self, found: Iterable[Found]) -> Iterator[Report]:
        for one in found:
            failing = Failing(self._failing_so_far, one)
            self._failing_so_far += 1
            if one.ends:
                yield from self._small(failing, one.as_it_was(self._plan))
            else:
                self._failing.append(failing)

    def _small(self, task: Failing, failure: Failure) -> Iterator[Report]:
        yield from (Report(Counter(), one) for one in self._failures.add(task.place, failure))
