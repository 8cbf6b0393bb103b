"""Compare a backend with the reference on a random case."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, replace
from typing import Literal

from conformance.case import Case
from conformance.expected_values import clear_cache
from conformance.fuzz.well_posed import is_well_posed, reference
from conformance.outcome import Outcome
from conformance.run import CaseRunner

Kind = Literal["values", "refused", "accepted", "missing", "crash", "reference"]
Verdict = Literal["passed", "unsupported", "ill-posed"]


class ReferenceFailedError(Exception):
    """The reference neither computed a case nor refused it."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that a backend fails.

    kind: "values" are wrong, a valid case is "refused", an invalid one is "accepted", the operator is "missing", the process
        ends ("crash"), or the "reference" itself fails.
    message: a description of what is wrong.
    """

    case: Case
    kind: Kind
    message: str

    @property
    def signature(self) -> tuple[str, ...]:
        """A key that similar failures share: operator, kind, message without numbers, and attributes without numbers."""
        attributes = {n: v if isinstance(v, str) else "" for n, v in self.case.attributes.items()}
        return (*self.rough_signature, *(f"{n}={v}" for n, v in sorted(attributes.items())))

    @property
    def rough_signature(self) -> tuple[str, ...]:
        """The signature without attributes, for cases that are not shrunk yet."""
        text = re.sub(r"[-+]?\b(\d[\d.e+-]*|nan|inf)\b", "#", self.message).split("0x")[0][:120]
        return (self.case.operator, self.kind, text)


def check(case: Case, runner: CaseRunner) -> Failure | Verdict:
    """Run a case and return its failure or verdict. The reference computes the expected values."""
    bare = replace(case, expected=None, expects_error=None, twin=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expecting = with_expectation(case)
            answer = runner.answer(expecting)
            result = runner.result_of(expecting, answer)
            if result.outcome is Outcome.PASSED:
                return "passed"
            if result.outcome is Outcome.UNSUPPORTED:
                return "unsupported"
            if answer.kind == "outputs" and not is_well_posed(expecting):
                return "ill-posed"
        except Exception as error:  # noqa: BLE001  # any exception of the reference or the error bounds is a finding
            return Failure(bare, "reference", f"{type(error).__name__}: {error}")
        finally:
            # A campaign never runs the same case twice, so cached results would only fill the memory.
            clear_cache()
    kinds: dict[str, Kind] = {"refusal": "refused", "missing": "missing", "crash": "crash"}
    kind = kinds.get(answer.kind, "accepted" if expecting.expects_error else "values")
    failed = replace(bare, expects_error=expecting.expects_error, note=expecting.note)
    return Failure(failed, kind, result.message)


def with_expectation(case: Case) -> Case:
    """Return the case with the reference's result: expected values, or the expected error with its message as note.

    Raises:
        ReferenceFailedError: the reference neither computes the case nor refuses it.
    """
    case = replace(case, expected=None, expects_error=None)
    try:
        case.definition.check_attributes(case.attributes)
    except (TypeError, ValueError) as error:
        return _refused(case, "attribute", str(error))
    answer = reference(case)
    if answer.kind == "outputs" and answer.outputs is not None:
        return replace(case, expected=answer.outputs, twin=None)
    kind, _, words = answer.text.partition(": ")
    if answer.kind == "refusal" and kind in ("TypeError", "ValueError"):
        return _refused(case, "data", words)
    raise ReferenceFailedError(f"the reference has no answer: {answer.text}")


def _refused(case: Case, due: Literal["attribute", "data"], words: str) -> Case:
    twin = None if case.twin is None else with_expectation(case.twin)
    # A twin that is invalid too cannot prove that the refusal has the right reason.
    return replace(case, expects_error=due, note=words, twin=None if twin is None or twin.expects_error else twin)
