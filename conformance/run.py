"""Asking a backend, and judging what it answers."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from conformance.backends import Backend, OperatorMissingError, UnsupportedError
from conformance.case import Array, Case
from conformance.compare import compare
from conformance.expected_failures import ExpectedFailure, find
from conformance.outcome import Difference, Outcome, Result
from conformance.printable import printable, words_of

MOST_KEPT = 2**16
"""Bytes of an output that a result keeps; no right answer to a case is larger."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a backend made of a case.

    outputs: by name, where `kind` is outputs.
    text: the reason otherwise; made printable.
    seconds: time it took.
    """

    kind: Literal["outputs", "refusal", "missing", "unsupported", "crash"]
    outputs: dict[str, Array] | None = None
    text: str = ""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", printable(self.text))


Asker = Callable[[Case], Answer]


def ask(backend: Backend, case: Case) -> Answer:
    """The answer of a backend in this process."""
    begun = time.perf_counter()

    def answer(
        kind: Literal["outputs", "refusal", "missing", "unsupported", "crash"],
        outputs: dict[str, Array] | None = None,
        text: str = "",
    ) -> Answer:
        return Answer(kind, outputs, text, time.perf_counter() - begun)

    with warnings.catch_warnings():
        # A warning is no refusal, whatever this process does about warnings.
        warnings.simplefilter("ignore")
        try:
            return answer("outputs", backend.run(case))
        except UnsupportedError as error:
            return answer("unsupported", text=words_of(error))
        except OperatorMissingError as error:
            return answer("missing", text=words_of(error))
        except SystemExit as error:
            return answer("crash", text=f"it would have ended the process: SystemExit: {words_of(error)}")
        except Exception as error:  # noqa: BLE001  # whatever a runtime raises is its refusal
            return answer("refusal", text=f"{type(error).__name__}: {words_of(error)}")


def run_suite(cases: Iterable[Case], asker: Asker, known: Sequence[ExpectedFailure]) -> Iterator[Result]:
    """The result of each case, as soon as it is there."""
    for case in cases:
        yield judge(case, asker(case), find(known, case.id))


def judge(case: Case, answer: Answer, known: ExpectedFailure | None = None) -> Result:
    """The result of a case from the answer to it.

    Args:
        case: the case.
        answer: what the backend made of it.
        known: how it is expected to fail, or None where it is not.
    """
    if answer.kind == "unsupported":
        return Result(case, Outcome.UNSUPPORTED, answer.text, seconds=answer.seconds)
    if answer.kind == "crash":
        is_known = known is not None and known.crashes
        outcome = Outcome.EXPECTED_FAILURE if is_known else Outcome.CRASHED
        return Result(case, outcome, known.reason if known and is_known else answer.text, seconds=answer.seconds)
    passed, message, worst = _conforms(case, answer)
    outcome = Outcome.PASSED if passed else Outcome.FAILED
    if known is not None:
        outcome = Outcome.FAILED if passed else Outcome.EXPECTED_FAILURE
        message = f"passed, but is listed as an expected failure: {known.reason}" if passed else known.reason
    kept = {} if outcome is Outcome.PASSED else _kept(case, answer.outputs or {})
    return Result(case, outcome, message, worst, answer.seconds, kept)


def _kept(case: Case, outputs: Mapping[str, Array]) -> dict[str, Array]:
    """Copies of the outputs that the case has: a backend may use its memory again, and may answer with any amount."""
    return {name: np.array(outputs[name]) for name in case.outputs if _is_small(outputs.get(name))}


def _is_small(output: Array | None) -> bool:
    return output is not None and output.nbytes <= MOST_KEPT


def _conforms(case: Case, answer: Answer) -> tuple[bool, str, Difference | None]:
    if answer.kind == "missing":
        return False, f"no implementation: {answer.text}", None
    if case.expects_error:
        refused = answer.kind == "refusal"
        return refused, "" if refused else f"accepted, though its {case.expects_error} is wrong: {case.note}", None
    if answer.outputs is None:
        return False, f"refused: {answer.text}", None
    passed, worst = compare(case, answer.outputs)
    return passed, "" if passed else str(worst), worst
