# SPDX-License-Identifier: MIT OR Apache-2.0
"""Run cases on a backend, and judge the answers."""

from __future__ import annotations

import functools
import itertools
import math
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from conformance.backends import Backend, OperatorMissingError, Session, UnsupportedError
from conformance.backends.base import CrashError, RefusedError
from conformance.case import Array, Case, Level
from conformance.compare import compare
from conformance.expected_failures import ExpectedFailure, find
from conformance.expected_values import with_conventions
from conformance.formula import Computed, Formula
from conformance.guard import EndOfProcessError, is_stop, kept_surroundings
from conformance.outcome import Difference, Outcome, Reason, Result, at_level
from conformance.printable import described, message_of, printable

MAX_KEPT_BYTES = 2**16
"""The largest output that a result keeps."""

MARGIN = 2.0
"""A large case runs only if this many times its estimated time fits into the time limit: other processes run, too."""

ASKED_TWICE = 5
"""One case in this many runs twice in a session."""

Kind = Literal["outputs", "refusal", "missing", "unsupported", "crash"]


@dataclass(frozen=True, slots=True)
class Answer:
    """A backend's answer to a case.

    outputs: by name, if `kind` is "outputs".
    earlier: the outputs of the calls of `Case.before`.
    text: the reason, for other kinds; always printable.
    seconds: the time that the backend took.
    written: names the caller's arrays that the backend wrote to; empty if there were none.
    reason: for a crash, whether a limit was exceeded or the process ended.
    """

    kind: Kind
    outputs: Mapping[str, Array] | None = None
    text: str = ""
    seconds: float = 0.0
    written: str = ""
    earlier: Sequence[Mapping[str, Array]] = ()
    reason: Reason = Reason.ENDED

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", printable(self.text))


AnswerFunction = Callable[[Case], Answer]


def ask(backend: Backend, case: Case, time_limit: float = math.inf) -> Answer:
    """Run a case on a backend in this process. The backend gets copies of the inputs, so it cannot change the case.

    One case in `ASKED_TWICE` runs again with other numbers, and the first answer must not change. All calls of backends go
    through this function. Every exception becomes an answer, unless the user stops the run.

    Args:
        backend: the runtime.
        case: the case to run.
        time_limit: in seconds. A large case is unsupported if a smaller part of it suggests that it would take longer.
    """
    begun = time.perf_counter()
    given, answers, written = list[_Kept](), list[_Kept](), ""
    kind: Kind = "outputs"
    text = ""
    with kept_surroundings(), warnings.catch_warnings():
        # A warning must not become a refusal, even if this process turns warnings into errors.
        warnings.simplefilter("ignore")
        try:
            if case.formula is not None:
                _require_time(backend, case, time_limit)
                begun = time.perf_counter()
            session = backend.prepare(case)
            calls = [_Kept(_copied(call.inputs)) for call in (*case.before, case)]
            given += calls
            answers += (
                _in_two_threads(session, calls) if case.is_at_once else [_called(session, call) for call in calls]
            )
            seconds = time.perf_counter() - begun
            if is_asked_twice(case):
                session(_with_other_numbers(case, given[-1].arrays))
        except BaseException as error:
            if is_stop(error):
                raise
            kind, text = _reaction(error)
            seconds = time.perf_counter() - begun
    for what, kept in (("its input", given), ("its earlier answer", answers)):
        names = dict.fromkeys(name for call in kept for name in call.changed())
        written = written or (f"{what} {', '.join(names)}" if names else "")
    if kind != "outputs":
        return Answer(kind, None, text, seconds, written)
    *earlier, outputs = (call.arrays for call in answers)
    return Answer(kind, outputs, text, seconds, written, earlier)


def _called(session: Session, call: _Kept) -> _Kept:
    return _Kept({name: _plain(output) for name, output in session(dict(call.arrays)).items()})


def _in_two_threads(session: Session, calls: Sequence[_Kept]) -> list[_Kept]:
    """The outputs of calls of a session, every second one from another thread. Both threads begin at once."""
    both = threading.Barrier(2)

    def answers(part: Sequence[_Kept]) -> list[_Kept]:
        both.wait()
        return [_called(session, call) for call in part]

    with ThreadPoolExecutor(2) as threads:
        pairs = itertools.zip_longest(*threads.map(answers, (calls[::2], calls[1::2])))
    return [call for pair in pairs for call in pair if call is not None]


def is_asked_twice(case: Case) -> bool:
    """Whether a case runs a second time. These are one in `ASKED_TWICE`, the same ones in each run."""
    return case.expects_error is None and zlib.crc32(case.id.encode()) % ASKED_TWICE == 0


class _Kept:
    """Arrays with checksums of their first content."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self.arrays = arrays
        self._before = self._sums()

    def changed(self) -> list[str]:
        """The names of the arrays whose content has changed."""
        now = self._sums()
        return [name for name, before in self._before.items() if now[name] != before]

    def _sums(self) -> dict[str, int]:
        return {
            name: zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data)
            for name, array in self.arrays.items()
            if not array.dtype.hasobject  # `_plain` has emptied it
        }


def _with_other_numbers(case: Case, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs with negated maps and gradients. RoIs, indices, shapes and constants of the model do not change."""
    kept = {tensor.name for tensor in case.definition.inputs if isinstance(tensor.shape[-1], int)} | {
        *case.initializers
    }
    return {
        name: array.copy() if name in kept or array.dtype.kind in "iu" else -array for name, array in inputs.items()
    }


def _require_time(backend: Backend, case: Case, time_limit: float) -> None:
    """Time small parts of a large case, unless there is no time limit.

    A ten-thousandth of the case shows whether the backend is fast, and whether a hundredth can run.

    Raises:
        UnsupportedError: the time of such a part suggests that the whole case might exceed the time limit.
    """
    if case.formula is None or not math.isfinite(time_limit):
        return
    # All calls count: those before the compared one, and the second one of a case that is asked twice.
    calls = (*case.before, *[case] * (1 + is_asked_twice(case)))
    work = sum(call.formula.work for call in calls if call.formula is not None)
    hundredth = case.formula.smaller()
    tiny = hundredth.smaller()
    seconds = _seconds_of(backend, case, tiny)
    if MARGIN * seconds * work / tiny.work <= time_limit:
        return
    if 2 * MARGIN * seconds * hundredth.work / tiny.work > time_limit:
        # Too slow for a hundredth, unless a call costs as much for the smallest inputs.
        seconds -= _seconds_of(backend, case, tiny.smaller())
        if seconds * work / tiny.work > MARGIN * time_limit:
            raise _too_slow(seconds * work / tiny.work, "ten-thousandth")
    due = _seconds_of(backend, case, hundredth) * work / hundredth.work
    if MARGIN * due > time_limit:
        raise _too_slow(due, "hundredth")


def _too_slow(seconds: float, share: str) -> UnsupportedError:
    return UnsupportedError(f"would take about {float(f'{seconds:.0e}'):g} s, judging by a {share} of it")


def part_of(case: Case, formula: Formula) -> Case:
    """A large case with another formula of the same form, in the first call of a session."""
    return replace(case, inputs=Computed(formula), expected=Computed(formula, are_inputs=False), before=())


def _seconds_of(backend: Backend, case: Case, formula: Formula) -> float:
    """The time of a call with another formula of the same form: the shorter one of two, as other processes run, too.

    A runtime may compile in a call before them, which does not count.
    """
    probe = part_of(case, formula)
    session = backend.prepare(probe)
    inputs = _copied(probe.inputs)
    session(dict(inputs))
    others, times = _with_other_numbers(probe, inputs), list[float]()
    for _ in range(2):
        begun = time.perf_counter()
        session(dict(others))
        times.append(time.perf_counter() - begun)
    return min(times)


def _reaction(error: BaseException) -> tuple[Kind, str]:
    """The kind of answer that an exception of a backend means, and the reason."""
    if issubclass(type(error), UnsupportedError):
        return "unsupported", message_of(error)
    if issubclass(type(error), OperatorMissingError):
        return "missing", message_of(error)
    if issubclass(type(error), CrashError):
        return "crash", message_of(error)
    if issubclass(type(error), RefusedError):
        return "refusal", message_of(error)
    if issubclass(type(error), EndOfProcessError):
        return "crash", f"it would have ended the process: {message_of(error)}"
    if not issubclass(type(error), Exception):  # SystemExit, KeyboardInterrupt, the panics of pyo3
        return "crash", f"it would have ended the process: {described(error)}"
    return "refusal", described(error)  # every other exception is a refusal


def _plain(output: object) -> Array:
    """An output as a plain NumPy array; an array of Python objects keeps only its type and shape."""
    array = np.asarray(output)
    return np.empty(array.shape, array.dtype) if array.dtype.hasobject else array


def _copied(inputs: Mapping[str, Array]) -> dict[str, Array]:
    return {name: array if isinstance(inputs, Computed) else array.copy() for name, array in inputs.items()}


class CaseRunner:
    """Runs cases and judges the answers.

    answer: the function that runs a case.
    known: the expected failures.
    level: whose rules can fail a case; other cases depart instead.
    conventions: those of `conformance.expected_values` with which the backend is judged.
    """

    def __init__(
        self,
        answer: AnswerFunction,
        known: Sequence[ExpectedFailure] = (),
        level: Level = Level.STRICT,
        conventions: Collection[str] = (),
    ) -> None:
        self.answer, self.known = answer, known
        self._level, self._conventions = level, conventions

    def result(self, case: Case) -> Result:
        """The result of one case."""
        return self.result_of(case, self.answer(case))

    def result_of(self, case: Case, answer: Answer) -> Result:
        """The result of a case from its answer. If the answer is a refusal, this also runs the valid twin."""
        if case.expects_error and answer.kind in ("refusal", "missing"):
            answer = self._checked_refusal(case, answer)
        return self._with_known(case, judge(case, answer, self._conventions))

    def _checked_refusal(self, case: Case, answer: Answer) -> Answer:
        """The refusal if the backend answers the valid twin correctly; else an answer that the case is unsupported."""
        if case.twin is None:
            return answer
        twin = judge(case.twin, self.answer(case.twin), self._conventions)
        if twin.outcome is Outcome.PASSED:
            return answer
        return Answer("unsupported", text=f"no right answer to its valid twin: {twin.message or twin.outcome.value}")

    def _with_known(self, case: Case, result: Result) -> Result:
        """The result, changed to an expected failure or a departure if it is one."""
        known = find(self.known, case.id)
        if known is not None:
            if result.outcome is Outcome.PASSED:
                message = f"passed, but is listed as an expected failure: {known.reason}"
                return replace(result, outcome=Outcome.FAILED, message=message, reason=Reason.LISTED)
            if result.outcome is Outcome.FAILED or (result.outcome is Outcome.CRASHED and known.crashes):
                return replace(result, outcome=Outcome.EXPECTED_FAILURE, message=known.reason)
        return at_level(result, self._level)


def judge(case: Case, answer: Answer, conventions: Collection[str] = ()) -> Result:
    """The result of a case from its answer, ignoring expected failures.

    Args:
        case: the case.
        answer: the backend's answer. A refusal counts without running the twin, which `CaseRunner` does.
        conventions: those with which the backend is judged.
    """
    result_of = functools.partial(Result, case.id, seconds=answer.seconds, basis=case.basis)
    if answer.kind == "unsupported":
        return result_of(Outcome.UNSUPPORTED, answer.text)
    if answer.kind == "crash":
        return result_of(Outcome.CRASHED, answer.text, reason=answer.reason)
    reason, message, worst = _conforms(with_conventions(case, conventions), answer)
    if answer.written:
        reason, message = Reason.WROTE, f"the backend has written to {answer.written}"
    if reason is None:
        return result_of(Outcome.PASSED, worst=worst)
    answered = answer.outputs or {}
    small = [name for name in case.outputs if name in answered and answered[name].nbytes <= MAX_KEPT_BYTES]
    # Copies, because a backend may reuse its memory.
    outputs = {name: np.array(answered[name]) for name in small}
    return result_of(Outcome.FAILED, message, worst, outputs=outputs, reason=reason)


def _conforms(case: Case, answer: Answer) -> tuple[Reason | None, str, Difference | None]:
    """The reason why an answer is wrong, None if it is right, and in words; and the worst element."""
    if answer.kind == "missing":
        return Reason.NO_KERNEL, f"no implementation: {answer.text}", None
    if case.expects_error:
        if answer.kind == "refusal":
            return None, "", None
        return Reason.ACCEPTED, f"accepted, though its {case.expects_error} is wrong: {case.note}", None
    if answer.outputs is None:
        return Reason.REFUSED, f"refused: {answer.text}", None
    for number, (call, outputs) in enumerate(zip(case.before, answer.earlier, strict=True), 1):
        passed, worst = compare(call, outputs)
        if worst is not None and not passed:
            words = str(replace(worst, call=f" in call {number} of {len(case.before) + 1}"))
            return worst.reason, words, None
    passed, worst = compare(case, answer.outputs)
    if passed or worst is None:
        return None, "", worst
    return worst.reason, str(worst), worst
