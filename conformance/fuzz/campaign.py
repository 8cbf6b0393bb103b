# SPDX-License-Identifier: MIT OR Apache-2.0
"""Fuzz campaigns: rounds of random cases. hypothesis draws and shrinks them, and child processes run them.

A round depends only on the seed and its number, so counts and failures do not depend on the workers or their timing. Its
child process runs the backend and the reference, so a crash or a hang costs one case and can be shrunk like any failure.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace

from conformance import schedule
from conformance.case import Case
from conformance.child import ProcessLostError
from conformance.fuzz.check import REFERENCE, TIME_LIMIT, Failure, Verdict, check, with_expectation
from conformance.fuzz.strategy import ROUND, search
from conformance.schedule import TWIN, BackendChild, Setting, WorkerPool, own_child

REPORT_EVERY = 0.2  # the most seconds between two reports


@dataclass(frozen=True, slots=True)
class Plan:
    """The backend of a campaign, the seed of the cases, and the names of their operators (all if empty)."""

    backend: str
    seed: int
    operators: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """The number of cases by outcome ("passed", "failed" and so on), and shrunk failures."""

    counts: Counter[str]
    failures: Sequence[Failure] = ()


def run(plan: Plan, pool: WorkerPool, count: int | None = None, seconds: float | None = None) -> Iterator[Report]:
    """Run a campaign and yield its reports: counts of cases, and failures with distinct signatures.

    Args:
        plan: the backend, the seed and the operators.
        pool: the workers.
        count: the number of cases; None for no limit.
        seconds: the time after which no more case starts and no failure is shrunk; None for no limit.
    """
    deadline, seen = time.time() + (seconds or math.inf), set[tuple[str, ...]]()
    starts = iter(itertools.count(0, ROUND) if count is None else range(0, count, ROUND))
    rounds = deque[Future[Report]]()
    while True:
        while (
            len(rounds) < 2 * pool.worker_count and time.time() < deadline and (first := next(starts, None)) is not None
        ):
            size = ROUND if count is None else min(ROUND, count - first)
            rounds.append(pool.submit(run_round, plan, first // ROUND, size, deadline))
        if not rounds:
            return
        if not wait(list(rounds)[:1], REPORT_EVERY).done:
            yield Report(Counter())  # which lets the caller stop the campaign
            continue
        report = rounds.popleft().result()
        first_of = {
            failure.signature: failure for failure in reversed(report.failures) if failure.signature not in seen
        }
        seen.update(first_of)
        yield Report(report.counts, list(reversed(first_of.values())))


def run_round(plan: Plan, number: int, count: int, deadline: float) -> Report:
    """Run the cases of a round until `deadline`, in epoch seconds. The first of several similar failures is reported."""
    check = own_child(CheckingChild, plan.backend).check
    counts, failures = Counter[str](), dict[tuple[str, ...], Failure]()
    smaller: list[Failure] = []
    """The failure that is being shrunk, smaller and smaller."""

    def fails_anew(case: Case) -> bool:
        """Whether a case fails in a new way and, during shrinking, in the same way as the case that is being shrunk."""
        is_reference_lost = bool(smaller) and smaller[0].kind == "reference"  # each attempt may take a minute
        if time.time() >= deadline or is_reference_lost:
            return False
        outcome = check(case)
        if not smaller:
            counts["failed" if isinstance(outcome, Failure) else outcome] += 1
        if not isinstance(outcome, Failure) or outcome.rough_signature in failures:
            return False
        if smaller and (outcome.kind, outcome.case.operator) != (smaller[0].kind, smaller[0].case.operator):
            return False
        smaller.append(outcome)
        return True

    while (left := count - counts.total()) > 0:
        place = f"{plan.seed}/{number}"
        smaller.clear()
        search(plan.operators, place, f"{place}/{len(failures)}", left, fails_anew)
        if not smaller:
            break
        failures[smaller[-1].rough_signature] = smaller[-1]
    return Report(counts, list(failures.values()))


class CheckingChild(BackendChild):
    """A child process that checks random cases by the reference."""

    def __init__(self, backend: str) -> None:
        super().__init__(Setting(backend, known=(), time_limit=TIME_LIMIT))

    def check(self, case: Case) -> Failure | Verdict:
        """The failure or verdict of a case."""
        bare = replace(case, expected=None, expects_error=None, twin=None)
        try:
            outcome = self.call(_check, self._setting, case)
        except ProcessLostError as error:
            if error.stage == REFERENCE:
                return Failure(bare, "reference", f"the reference has no answer: {error}")
            if error.stage == TWIN:
                return "unsupported"
            expecting = self.call(with_expectation, case)
            bare = replace(bare, expects_error=expecting.expects_error, note=expecting.note)
            return Failure(bare, "crash", str(error))
        if self.greeting.is_unsafe and isinstance(outcome, Failure) and outcome.kind == "accepted":
            self.end()  # it may have written out of bounds, which must not fail another case
        return outcome


def _check(setting: Setting, case: Case) -> Failure | Verdict:
    return check(case, schedule.runner_of(setting, schedule.load(setting), schedule.answers_of(setting)))
