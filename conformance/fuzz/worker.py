"""What a campaign's executor runs: `run_cases` for a range of cases, and `shrink_failure`.

Both borrow a child process that runs the backend and the reference, so that a crash or hang costs only one case.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from conformance import isolate
from conformance.case import Case
from conformance.fuzz.check import Failure, Verdict, check, with_expectation
from conformance.fuzz.generate import generate
from conformance.fuzz.shrink import shrink
from conformance.isolate import TWIN, Declaration, Setting
from conformance.run import AnswerFunction
from ortops.worker_process import ProcessLostError, WorkerProcess, borrowed

ORACLE = "reference"  # the backend whose results are right by definition
TIME_LIMIT = 60.0  # seconds for a case, for the backend and for the reference: the first may compile, on a busy machine
MOST_ALIKE = 3  # of failures with the same message, so many are shrunk; the others are counted

_REFERENCE = "the reference"


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


def run_cases(plan: Plan, first: int, stop: int, deadline: float) -> Report:
    """Run the cases from `first` to `stop` - 1, as many as there is time for until `deadline`, in epoch seconds.

    The report has the first `MOST_ALIKE` of failures with the same rough signature.
    """
    counts, alike, found = Counter[str](), Counter[tuple[str, ...]](), list[Failure]()
    with checks(plan.backend) as check_case:
        for number in range(first, stop):
            if time.time() >= deadline:
                break
            outcome = check_case(plan.case(number))
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
    with checks(plan.backend) as check_case:
        return shrink(failure, lambda case: "no time" if time.time() >= deadline else check_case(case))


@contextlib.contextmanager
def checks(backend: str) -> Iterator[Callable[[Case], Failure | Verdict]]:
    """A function that checks a case in a child process."""
    setting, oracle = (Setting(name, known=(), time_limit=TIME_LIMIT) for name in (backend, ORACLE))
    with borrowed(_load, setting, oracle) as process:
        yield functools.partial(_checked, process, setting, oracle)


def _checked(process: WorkerProcess, setting: Setting, oracle: Setting, case: Case) -> Failure | Verdict:
    """The failure or verdict of a case."""
    bare = replace(case, expected=None, expects_error=None, twin=None)
    try:
        outcome = process.call(_check, setting, oracle, case)
    except ProcessLostError as error:
        if error.stage == _REFERENCE:
            return Failure(bare, "reference", f"the reference has no answer: {error}")
        if error.stage == TWIN:
            return "unsupported"
        expecting = process.call(_expecting, oracle, case)
        return Failure(replace(bare, expects_error=expecting.expects_error, note=expecting.note), "crash", str(error))
    if process.greeting.is_unsafe and isinstance(outcome, Failure) and outcome.kind == "accepted":
        process.end()  # it may have written out of bounds, which must not fail another case
    return outcome


# What a child calls.


def _load(setting: Setting, oracle: Setting) -> Declaration:
    isolate.load(oracle)
    return isolate.load(setting)


def _check(setting: Setting, oracle: Setting, case: Case) -> Failure | Verdict:
    runner = isolate.runner_of(setting, isolate.load(setting), isolate.answers_of(setting))
    return check(case, runner, _oracle(oracle))


def _expecting(oracle: Setting, case: Case) -> Case:
    return with_expectation(case, _oracle(oracle))


def _oracle(oracle: Setting) -> AnswerFunction:
    return lambda case: isolate.answer_within(oracle, case, _REFERENCE)
