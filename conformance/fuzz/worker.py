"""What a campaign's workers run: `run_cases` for a range of cases, and `shrink_failure`.

Both use a `BackendPair`, two child processes that run the backend and the reference, so that a crash or hang costs only one
case. Starting them takes seconds, so they are kept for the next call and ended when none comes.
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
from conformance.fuzz.check import Failure, Verdict, check
from conformance.fuzz.generate import generate
from conformance.fuzz.shrink import shrink
from conformance.isolate import IsolatedBackend
from conformance.run import Answer, CaseRunner

ORACLE = "reference"  # the backend whose results are right by definition
TIME_LIMIT = 60.0  # seconds for a case, for the backend and for the reference: the first may compile, on a busy machine
IDLE_SECONDS = 20.0  # unused children end after so long
MOST_ALIKE = 3  # of failures with the same message, so many are shrunk; the others are counted
MOST_ASKED = 500  # after so many cases the reference gets a new child process, because it caches its results


@dataclass(frozen=True, slots=True)
class Plan:
    """What a campaign runs: the backend, the seed of the cases, and the operators' names, all of them if empty."""

    backend: str
    seed: int
    operators: tuple[str, ...] = ()

    def case(self, number: int) -> Case:
        """The case of this number."""
        return generate(self.seed, number, self.operators)


@dataclass(frozen=True, slots=True)
class Report:
    """The number of cases by outcome ("passed", "failed" and so on), and failures."""

    counts: Counter[str]
    failures: Sequence[Failure] = ()


class BackendPair:
    """Two child processes of one thread: one runs the backend of this name, the other the reference."""

    def __init__(self, backend: str) -> None:
        self.name = backend
        self.is_ending = False
        self.timer: threading.Timer | None = None  # will end the children; None while a thread uses them
        self._backend, self._reference = IsolatedBackend(backend, TIME_LIMIT), IsolatedBackend(ORACLE, TIME_LIMIT)
        loaded = backends.load(backend)
        self._is_unsafe = is_unsafe(loaded)
        self._examiner = CaseRunner(self._backend.ask, conventions=conventions_of(loaded))
        self._asked = 0

    def check(self, case: Case) -> Failure | Verdict:
        """Run a case and return its failure or verdict."""
        outcome = check(case, self._examiner, self._oracle)
        if self._is_unsafe and isinstance(outcome, Failure) and outcome.kind == "accepted":
            self._backend.end()  # it may have written out of bounds, which must not fail another case
        return outcome

    def _oracle(self, case: Case) -> Answer:
        self._asked += 1
        if self._asked % MOST_ASKED == 0:
            self._reference.end()
        return self._reference.ask(case)

    def end(self) -> None:
        """End the children, unless a thread uses them or they have ended already."""
        with _lock:
            if self.timer is None or self not in _all:
                return
            self.timer.cancel()
            _all.discard(self)
        for child in (self._backend, self._reference):
            child.end()

    def kill(self) -> None:
        """End the children at once, even in the middle of a case, which then has no outcome."""
        self.is_ending = True
        for child in (self._backend, self._reference):
            child.kill()


def run_cases(plan: Plan, first: int, stop: int, deadline: float) -> Report:
    """Run the cases from `first` to `stop` - 1, as many as there is time for until `deadline`, in epoch seconds.

    The report has the first `MOST_ALIKE` of failures with the same rough signature.
    """
    counts, alike, found = Counter[str](), Counter[tuple[str, ...]](), list[Failure]()
    with _borrowed(plan.backend) as pair:
        for number in range(first, stop):
            if time.time() >= deadline:
                break
            outcome = pair.check(plan.case(number))
            if pair.is_ending:
                break
            counts["failed" if isinstance(outcome, Failure) else outcome] += 1
            if isinstance(outcome, Failure):
                alike[outcome.rough_signature] += 1
                if alike[outcome.rough_signature] <= MOST_ALIKE:
                    found.append(outcome)
    return Report(counts, found)


def shrink_failure(plan: Plan, failure: Failure, deadline: float) -> Failure:
    """Shrink a failure, as far as there is time until `deadline`, in epoch seconds."""
    if failure.kind == "reference":
        return failure  # each attempt may kill a process or take a minute
    with _borrowed(plan.backend) as pair:
        return shrink(
            failure, lambda case: "no time" if pair.is_ending or time.time() >= deadline else pair.check(case)
        )


_lock = threading.Lock()
_all: set[BackendPair] = set()


@contextlib.contextmanager
def _borrowed(backend: str) -> Iterator[BackendPair]:
    # A dask worker is a daemon process, which multiprocessing allows no children unless the flag is cleared.
    multiprocessing.current_process().daemon = False
    with _lock:
        pair = next((one for one in _all if one.timer and one.name == backend), None) or BackendPair(backend)
        if pair.timer:
            pair.timer.cancel()
        pair.timer = None
        _all.add(pair)
    try:
        yield pair
    finally:
        with _lock:
            pair.timer = threading.Timer(0.0 if pair.is_ending else IDLE_SECONDS, pair.end)
            pair.timer.daemon = True
            pair.timer.start()


def end_all() -> None:
    """End all children of this process's campaigns; running cases have no outcome."""
    with _lock:
        pairs = list(_all)
    for pair in pairs:
        pair.kill()
    for pair in pairs:
        pair.end()
