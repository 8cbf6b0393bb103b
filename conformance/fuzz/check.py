"""What is wrong with an answer to a random case: nothing, or a `Failure`."""

from __future__ import annotations

import functools
import re
import warnings
from dataclasses import dataclass, replace
from typing import Literal

from conformance.backends.reference import Reference
from conformance.case import Case
from conformance.compare import allowed_errors
from conformance.expected_values import clear_cache
from conformance.fuzz.settled import is_settled
from conformance.fuzz.steady import in_double
from conformance.outcome import Outcome
from conformance.run import AnswerFunction, CaseRunner, ask

Kind = Literal["values", "refused", "accepted", "missing", "crash", "reference"]
Outcomes = Literal["passed", "unsupported", "unsettled"]

HERE: AnswerFunction = functools.partial(ask, Reference())  # the reference in this process


class ReferenceFailedError(Exception):
    """The reference neither answered nor refused a case."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that a backend fails.

    kind: values that are wrong, a right case refused, a wrong one accepted, no operator, the end of the process, or
        something that the reference itself cannot do.
    """

    case: Case
    kind: Kind
    message: str

    @property
    def signature(self) -> tuple[str, ...]:
        """What failures that look the same have in common: all but numbers, and attributes' numbers."""
        attributes = {n: v if isinstance(v, str) else "" for n, v in self.case.attributes.items()}
        return (*self.rough_signature, *(f"{n}={v}" for n, v in sorted(attributes.items())))

    @property
    def rough_signature(self) -> tuple[str, ...]:
        """The same without attributes, for cases that are not small yet."""
        text = re.sub(r"[-+]?\b(\d[\d.e+-]*|nan|inf)\b", "#", self.message).split("0x")[0][:120]
        return (self.case.operator, self.kind, text)


def check(case: Case, examiner: CaseRunner, oracle: AnswerFunction = HERE) -> Failure | Outcomes:
    """The failure of a case, or what else came of it; the oracle, which is the reference, says what the case expects."""
    bare = replace(case, expected=None, expects_error=None, twin=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expecting = with_expectation(case, oracle)
            answer = examiner.answer(expecting)
            result = examiner.result_of(expecting, answer)
            if result.outcome is Outcome.PASSED:
                return "passed"
            if result.outcome is Outcome.UNSUPPORTED:
                return "unsupported"
            if answer.kind == "outputs" and not is_settled(expecting, oracle):
                return "unsettled"
        except Exception as error:  # noqa: BLE001  # whatever the reference or the bounds stumble over is found
            return Failure(bare, "reference", f"{type(error).__name__}: {error}")
        finally:
            # A campaign asks without end, and never the same again.
            allowed_errors.cache_clear()
            clear_cache()
    kinds: dict[str, Kind] = {"refusal": "refused", "missing": "missing", "crash": "crash"}
    kind = kinds.get(answer.kind, "accepted" if expecting.expects_error else "values")
    found = replace(bare, expects_error=expecting.expects_error, note=expecting.note)
    return Failure(found, kind, result.message)


def with_expectation(case: Case, oracle: AnswerFunction = HERE) -> Case:
    """The case with the values that the reference computes, or with the error that it says is due, its words as note.

    Raises:
        ReferenceFailedError: it does neither.
    """
    case = replace(case, expected=None, expects_error=None)
    try:
        case.definition.check_attributes(case.attributes)
    except (TypeError, ValueError) as error:
        return _refused(case, "attribute", str(error), oracle)
    answer = oracle(in_double(case))
    if answer.kind == "outputs" and answer.outputs is not None:
        return replace(case, expected=answer.outputs, twin=None)
    kind, _, words = answer.text.partition(": ")
    if answer.kind == "refusal" and kind in ("TypeError", "ValueError"):
        return _refused(case, "data", words, oracle)
    raise ReferenceFailedError(f"the reference has no answer: {answer.text}")


def _refused(case: Case, due: Literal["attribute", "data"], words: str, oracle: AnswerFunction) -> Case:
    twin = None if case.twin is None else with_expectation(case.twin, oracle)
    # Two faults are in a case whose twin is wrong, too: it proves nothing.
    return replace(case, expects_error=due, note=words, twin=None if twin is None or twin.expects_error else twin)
