"""What is wrong with an answer to a random case: nothing, or a `Failure`."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, replace
from typing import Literal

from conformance.case import Case
from conformance.compare import allowed_errors
from conformance.expect import forget, reference
from conformance.fuzz.settled import is_settled
from conformance.outcome import Outcome
from conformance.run import Asker, judge

Kind = Literal["values", "refused", "accepted", "missing", "crash", "reference"]


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
        text = re.sub(r"[-+]?\b(\d[\d.e+-]*|nan|inf)\b", "#", self.message).split("0x")[0][:120]
        return (self.case.operator, self.kind, text, *(f"{n}={v}" for n, v in sorted(attributes.items())))

    @property
    def rough_signature(self) -> tuple[str, ...]:
        """The same without attributes, for cases that are not small yet."""
        return self.signature[:3]


def check(case: Case, asker: Asker) -> Failure | Literal["passed", "unsupported", "unsettled"]:
    """The failure of a case, or what else came of it.

    Args:
        case: what it expects is found here.
        asker: who answers.
    """
    _forget()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expecting = with_expectation(case)
        except Exception as error:  # noqa: BLE001  # whatever the reference stumbles over is found
            return Failure(case, "reference", f"the reference raised {type(error).__name__}: {error}")
        answer = asker(expecting)
        try:
            result = judge(expecting, answer)
            if result.outcome is Outcome.PASSED:
                return "passed"
            if result.outcome is Outcome.UNSUPPORTED:
                return "unsupported"
            if answer.kind == "outputs" and not is_settled(expecting):
                return "unsettled"
        except Exception as error:  # noqa: BLE001  # as above, of the bounds
            return Failure(expecting, "reference", f"judging raised {type(error).__name__}: {error}")
    kinds: dict[str, Kind] = {"refusal": "refused", "missing": "missing", "crash": "crash"}
    kind = kinds.get(answer.kind, "accepted" if expecting.expects_error else "values")
    return Failure(expecting, kind, result.message)


def with_expectation(case: Case) -> Case:
    """The case with the error that the reference says is due, if one is, and its words as the note."""
    due, words = _error_due(case)
    return replace(case, expected=None, expects_error=due, note=words or case.note)


def _error_due(case: Case) -> tuple[Literal["attribute", "data"] | None, str]:
    try:
        case.definition.check_attributes(case.attributes)
    except (TypeError, ValueError) as error:
        return "attribute", str(error)
    try:
        reference(case.definition, case.attributes, case.inputs, case.outputs)
    except (TypeError, ValueError) as error:
        return "data", str(error)
    return None, ""


def _forget() -> None:
    """A campaign asks the reference without end, and never the same again."""
    allowed_errors.cache_clear()
    forget()
