"""What a campaign hands to an executor: to examine a range of cases, and to make a failure small.

Both are done by an `Asked`: two children, one of which answers by the backend and one by the reference, so that neither can
end or hang more than one case. Starting them takes seconds, so they are kept for the next call, and ended when none comes.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conformance import backends
from conformance.backends import conventions_of, is_unsafe
from conformance.case import Case
from conformance.fuzz.check import Failure, Outcomes, check
from conformance.fuzz.generate import generate
from conformance.fuzz.shrink import shrink
from conformance.isolate import IsolatedBackend
from conformance.run import Answer, CaseRunner

ORACLE = "reference"  # the backend that says what is right
TIME_LIMIT = 60.0  # seconds for a case, of the backend and of the reference: the first may compile, on a busy machine
IDLE_SECONDS = 20.0  # children that nobody has asked for so long are ended
MOST_ALIKE = 3  # so many failures with the same message are made small; the others are counted
MOST_ASKED = 500  # after so many cases the reference has a new child, because it remembers its answers


@dataclass(frozen=True, slots=True)
class Plan:
    """The backend that is asked, the seed of the cases, and the names of the operators that they have; none for all."""

    backend: str
    seed: int
    operators: tuple[str, ...] = ()

    def case(self, number: int) -> Case:
        """The case of this number."""
        return generate(self.seed, number, self.operators)


@dataclass(frozen=True, slots=True)
class Report:
    """The counts of some cases by what came of them, and failures."""

    counts: Counter[str]
    failures: Sequence[Failure] = ()


class Asked:
    """The children of one thread: one is the backend of this name, the other is the reference."""

    def __init__(self, backend: str) -> None:
        self.name = backend
        self.is_ending = False
        self.timer: threading.Timer | None = None  # ends the children; None while a thread uses them
        self._backend, self._reference = IsolatedBackend(backend, TIME_LIMIT), IsolatedBackend(ORACLE, TIME_LIMIT)
        loaded = backends.load(backend)
        self._is_unsafe = is_unsafe(loaded)
        self._examiner = CaseRunner(self._backend.ask, conventions=conventions_of(loaded))
        self._asked = 0

    def check(self, case: Case) -> Failure | Outcomes:
        """What comes of a case."""
        outcome = check(case, self._examiner, self._oracle)
        if self._is_unsafe and isinstance(outcome, Failure) and outcome.kind == "accepted":
            self._backend.end()  # what may have been written out of bounds is not to fail another case
        return outcome

    def _oracle(self, case: Case) -> Answer:
        self._asked += 1
        if self._asked % MOST_ASKED == 0:
            self._reference.end()
        return self._reference.ask(case)

    def end(self) -> None:
        """End the children, unless a thread uses them or they have been ended already."""
        with _lock:
            if self.timer is None or self not in _all:
                return
            self.timer.cancel()
            _all.discard(self)
        for child in (self._backend, self._reference):
            child.end()

    def kill(self) -> None:
        """End the children at once, whoever waits for their answers; what is examined has no outcome."""
        self.is_ending = True
        for child in (self._backend, self._reference):
            child.kill()


def examine(plan: Plan, first: int, stop: int, ends: float) -> Report:
    """What comes of the cases from `first` to `stop` - 1, or of as many as there is time for until `ends`, in epoch time.

    Of the failures that look alike the report has the first `MOST_ALIKE`.
    """
    counts, alike, found = Counter[str](), Counter[tuple[str, ...]](), list[Failure]()
    with _borrowed(plan.backend) as asked:
        for number in range(first, stop):
            if time.time() >= ends:
                break
            outcome = asked.check(plan.case(number))
            if asked.is_ending:
                break
            counts["failed" if isinstance(outcome, Failure) else outcome] += 1
            if isinstance(outcome, Failure):
                alike[outcome.rough_signature] += 1
                if alike[outcome.rough_signature] <= MOST_ALIKE:
                    found.append(outcome)
    return Report(counts, found)


def make_small(plan: Plan, failure: Failure, ends: float) -> Failure:
    """The failure of a case made small, as far as there is time for until `ends`, in epoch time."""
    if failure.kind == "reference":
        return failure  # each try may end a process, or take a minute
    with _borrowed(plan.backend) as asked:
        return shrink(failure, lambda case: "no time" if asked.is_ending or time.time() >= ends else asked.check(case))


_lock = threading.Lock()
_all: set[Asked] = set()


@contextlib.contextmanager
def _borrowed(backend: str) -> Iterator[Asked]:
    # A worker of dask is a daemon, and those may have no children unless they say that they are none.
    multiprocessing.current_process().daemon = False
    with _lock:
        asked = next((one for one in _all if one.timer and one.name == backend), None) or Asked(backend)
        if asked.timer:
            asked.timer.cancel()
        asked.timer = None
        _all.add(asked)
    try:
        yield asked
    finally:
        with _lock:
            asked.timer = threading.Timer(0.0 if asked.is_ending else IDLE_SECONDS, asked.end)
            asked.timer.daemon = True
            asked.timer.start()


def end_all() -> None:
    """End all children of this process' campaigns: what is being examined comes back unfinished."""
    with _lock:
        everybody = list(_all)
    for asked in everybody:
        asked.kill()
    for asked in everybody:
        asked.end()
