"""How an answer is judged."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from conformance.case import Array, Case
from conformance.expect import expected_outputs
from conformance.expected_failures import ExpectedFailure, find
from conformance.outcome import Outcome
from conformance.run import MOST_KEPT, Answer, ask, judge
from conformance.vectors import collect

BY_ID = {case.id: case for case in collect()}
RIGHT = BY_ID["roi_align/edge/half_pixel_inside/v16/float"]
WRONG = BY_ID["roi_align/refusal/mode_unknown/v16/float"]
TEN = {"Y": np.full((1, 1, 1, 1), 10, np.float32)}
ELEVEN = {"Y": np.full((1, 1, 1, 1), 11, np.float32)}

KNOWN = ExpectedFailure("*", "known")
KNOWN_CRASH = ExpectedFailure("*", "known", crashes=True)


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
        (WRONG, Answer("missing"), Outcome.FAILED, Outcome.EXPECTED_FAILURE),
        (WRONG, Answer("crash"), Outcome.CRASHED, Outcome.CRASHED),
    ],
)
def test_outcome(case: Case, answer: Answer, outcome: Outcome, outcome_if_known: Outcome) -> None:
    assert judge(case, answer).outcome is outcome
    assert judge(case, answer, KNOWN).outcome is outcome_if_known


def test_a_crash_is_expected_only_where_it_is_listed_as_one() -> None:
    assert judge(RIGHT, Answer("crash"), KNOWN_CRASH).outcome is Outcome.EXPECTED_FAILURE
    assert judge(RIGHT, Answer("outputs", TEN), KNOWN_CRASH).outcome is Outcome.FAILED


def test_the_first_glob_that_lists_a_case_counts() -> None:
    known = [ExpectedFailure("*/v16/float", "one"), ExpectedFailure("*/v16/*", "other")]
    found = [find(known, case_id) for case_id in ("a/v16/float", "a/v16/double", "a/v10/float")]
    assert [failure and failure.reason for failure in found] == ["one", "other", None]


def test_a_warning_of_a_backend_is_no_refusal() -> None:
    class Warns:
        expected_failures = ()

        def run(self, case: Case) -> dict[str, Array]:
            warnings.warn(f"slow: {case.id}", stacklevel=1)
            return TEN

    assert ask(Warns(), RIGHT).kind == "outputs"


def test_what_a_backend_answered_is_kept_where_it_did_not_pass() -> None:
    answered: dict[str, Array] = {**ELEVEN, "other": np.zeros(3)}
    result = judge(RIGHT, Answer("outputs", answered))
    assert list(result.outputs) == ["Y"]
    assert result.outputs["Y"] == ELEVEN["Y"]
    assert not np.shares_memory(result.outputs["Y"], ELEVEN["Y"])
    assert judge(RIGHT, Answer("outputs", ELEVEN), KNOWN).outputs["Y"] == ELEVEN["Y"]
    assert judge(WRONG, Answer("outputs", TEN)).outputs["Y"] == TEN["Y"]
    assert judge(RIGHT, Answer("outputs", TEN)).outputs == {}
    assert judge(RIGHT, Answer("refusal")).outputs == {}


def test_an_answer_that_is_too_large_is_not_kept() -> None:
    assert judge(RIGHT, Answer("outputs", {"Y": np.zeros(MOST_KEPT + 1, np.uint8)})).outputs == {}
    assert judge(RIGHT, Answer("outputs", {"Y": np.zeros(MOST_KEPT, np.uint8)})).outputs["Y"].size == MOST_KEPT


def test_every_right_answer_is_small_enough_to_be_kept() -> None:
    sizes = [
        value.nbytes for case in BY_ID.values() if not case.expects_error for value in expected_outputs(case).values()
    ]
    assert 0 < max(sizes) <= MOST_KEPT
