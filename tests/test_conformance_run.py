"""How an answer is judged."""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace

import numpy as np
import pytest

from conformance import backends
from conformance.backends import Backend, Session
from conformance.case import Array, Basis, Case
from conformance.expected_failures import ExpectedFailure, find
from conformance.outcome import Outcome, Result
from conformance.run import MAX_KEPT_BYTES, Answer, CaseRunner, Kind, ask, judge
from conformance.vectors import collect

BY_ID = {case.id: case for case in collect()}
RIGHT = BY_ID["roi_align/edge/half_pixel_inside/v16/float"]
WRONG = BY_ID["roi_align/refusal/mode_unknown/v16/float"]
TEN = {"Y": np.full((1, 1, 1, 1), 10, np.float32)}
ELEVEN = {"Y": np.full((1, 1, 1, 1), 11, np.float32)}

KNOWN = ExpectedFailure("*", "known")
KNOWN_ALL = [KNOWN]
KNOWN_CRASH = ExpectedFailure("*", "known", crashes=True)


def result(case: Case, answer: Answer, known: ExpectedFailure | None = None) -> Result:
    """The result of a backend that gives this answer, and the right one to the case's twin."""
    right = backends.load("reference")
    answer_of = lambda asked: answer if asked is case else ask(right, asked)  # noqa: E731
    return CaseRunner(answer_of, [known] if known else []).result(case)


@pytest.mark.parametrize(
    ("case", "answer", "outcome", "outcome_if_known"),
    [
        (RIGHT, Answer("outputs", TEN), Outcome.PASSED, Outcome.FAILED),
        (RIGHT, Answer("outputs", ELEVEN), Outcome.FAILED, Outcome.EXPECTED_FAILURE),
        (RIGHT, Answer("refusal"), Outcome.FAILED, Outcome.EXPECTED_FAILURE),
        (RIGHT, Answer("missing"), Outcome.FAILED, Outcome.EXPECTED_FAILURE),
        (RIGHT, Answer("unsupported"), Outcome.UNSUPPORTED, Outcome.UNSUPPORTED),
        (RIGHT, Answer("crash"), Outcome.CRASHED, Outcome.CRASHED),
        (WRONG, Answer("outputs", TEN), Outcome.FAILED, Outcome.EXPECTED_FAILURE),
        (WRONG, Answer("refusal"), Outcome.PASSED, Outcome.FAILED),
        (WRONG, Answer("crash"), Outcome.CRASHED, Outcome.CRASHED),
    ],
)
def test_outcome(case: Case, answer: Answer, outcome: Outcome, outcome_if_known: Outcome) -> None:
    assert result(case, answer).outcome is outcome
    assert result(case, answer, KNOWN).outcome is outcome_if_known


def test_a_crash_is_expected_only_where_it_is_listed_as_one() -> None:
    assert result(RIGHT, Answer("crash"), KNOWN_CRASH).outcome is Outcome.EXPECTED_FAILURE
    assert result(RIGHT, Answer("outputs", TEN), KNOWN_CRASH).outcome is Outcome.FAILED


@pytest.mark.parametrize("kind", ["refusal", "missing"])
def test_who_refuses_the_valid_twin_too_has_refused_nothing(kind: Kind) -> None:
    refuses_all = CaseRunner(lambda _: Answer(kind, text="no"), KNOWN_ALL).result(WRONG)
    assert refuses_all.outcome is Outcome.UNSUPPORTED
    assert refuses_all.message.startswith("its valid twin is not answered: ")
    zeros = {"Y": np.zeros((2, 3, 2, 2), np.float32)}
    answers_zeros = CaseRunner(lambda case: Answer("outputs", zeros) if case is WRONG.twin else Answer(kind)).result(
        WRONG
    )
    assert answers_zeros.outcome is Outcome.UNSUPPORTED
    assert "expected 1, got 0" in answers_zeros.message


@pytest.mark.parametrize("strict", Basis)
@pytest.mark.parametrize("basis", Basis)
def test_a_breach_of_a_weaker_rule_than_asked_for_is_a_departure(basis: Basis, strict: Basis) -> None:
    order = ["text", "vectors", "reference", "ours"]
    is_weaker = order.index(basis.value) > order.index(strict.value)
    of_basis = replace(RIGHT, basis=basis)
    for answer, expected in (
        (Answer("outputs", ELEVEN), Outcome.DEPARTED if is_weaker else Outcome.FAILED),
        (Answer("outputs", TEN), Outcome.PASSED),
        (Answer("crash"), Outcome.CRASHED),
    ):
        runner = CaseRunner(functools.partial(lambda a, _: a, answer), strict=strict)
        assert runner.result(of_basis).outcome is expected


def test_the_first_glob_that_lists_a_case_counts() -> None:
    known = [ExpectedFailure("*/v16/float", "one"), ExpectedFailure("*/v16/*", "other")]
    found = [find(known, case_id) for case_id in ("a/v16/float", "a/v16/double", "a/v10/float")]
    assert [failure and failure.reason for failure in found] == ["one", "other", None]


def test_a_warning_of_a_backend_is_no_refusal() -> None:
    class Warns(Backend):
        def prepare(self, case: Case) -> Session:
            warnings.warn(f"slow: {case.id}", stacklevel=1)
            return lambda _: TEN

    assert ask(Warns(), RIGHT).kind == "outputs"


def test_what_a_backend_answered_is_kept_where_it_did_not_pass() -> None:
    answered: dict[str, Array] = {**ELEVEN, "other": np.zeros(3)}
    judged = judge(RIGHT, Answer("outputs", answered))
    assert list(judged.outputs) == ["Y"]
    assert judged.outputs["Y"] == ELEVEN["Y"]
    assert not np.shares_memory(judged.outputs["Y"], ELEVEN["Y"])
    assert result(RIGHT, Answer("outputs", ELEVEN), KNOWN).outputs["Y"] == ELEVEN["Y"]
    assert judge(WRONG, Answer("outputs", TEN)).outputs["Y"] == TEN["Y"]
    assert judge(RIGHT, Answer("outputs", TEN)).outputs == {}
    assert judge(RIGHT, Answer("refusal")).outputs == {}
    assert judge(RIGHT, Answer("outputs", {"Y": np.zeros(MAX_KEPT_BYTES + 1, np.uint8)})).outputs == {}
    assert (
        judge(RIGHT, Answer("outputs", {"Y": np.zeros(MAX_KEPT_BYTES, np.uint8)})).outputs["Y"].size == MAX_KEPT_BYTES
    )
