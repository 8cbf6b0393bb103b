"""How an answer is judged."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pytest

import ortops
from conformance import backends
from conformance.backends import Backend, Session
from conformance.backends.external import FunctionBackend
from conformance.case import Array, Basis, Case
from conformance.expected_failures import ExpectedFailure, find
from conformance.outcome import Outcome, Result
from conformance.run import MAX_KEPT_BYTES, Answer, CaseRunner, Kind, ask, is_asked_twice, judge
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


def answered(op_type: str, inputs: dict[str, Array], attributes: dict[str, Any]) -> Array:
    """The right answer to a case of RoiAlign, by the kernels."""
    if op_type != "RoiAlign":
        raise NotImplementedError(op_type)
    return np.array(ortops.roi_align(*inputs.values(), **attributes))


def scales_rois(op_type: str, inputs: dict[str, Array], attributes: dict[str, Any], _outputs: object) -> Array:
    y = answered(op_type, inputs, attributes)
    if attributes["spatial_scale"] != 1:
        inputs["rois"] *= np.asarray(attributes["spatial_scale"], inputs["rois"].dtype)
    return y


def cleans_nan(op_type: str, inputs: dict[str, Array], attributes: dict[str, Any], _outputs: object) -> Array:
    y = answered(op_type, inputs, attributes)
    if attributes["mode"] != "avg":
        inputs["X"][np.isnan(inputs["X"])] = -np.inf
    return y


class SameBuffer:
    """Returns the same memory for all answers of one shape and type."""

    def __init__(self) -> None:
        self.kept: dict[object, Array] = {}

    def __call__(self, op_type: str, inputs: dict[str, Array], attributes: dict[str, Any], _outputs: object) -> Array:
        """Answer a case."""
        y = answered(op_type, inputs, attributes)
        kept = self.kept.setdefault((y.shape, y.dtype), np.empty_like(y))
        kept[...] = y
        return kept


@pytest.mark.parametrize(
    ("backend", "glob", "message"),
    [
        (scales_rois, "roi_align/matrix/*/v16/avg/*/float", "the backend has written to its input rois"),
        (cleans_nan, "roi_align/values/nan*/v16/*/float", "the backend has written to its input X"),
        (SameBuffer(), "roi_align/matrix/*/v16/avg/*/float", "the backend has written to its earlier answer Y"),
    ],
)
def test_a_backend_that_writes_to_what_its_caller_has_fails_even_if_all_numbers_are_right(
    backend: Callable[..., Array], glob: str, message: str
) -> None:
    cases = [case for case in BY_ID.values() if fnmatchcase(case.id, glob) and case.expects_error is None]
    runner = CaseRunner(functools.partial(ask, FunctionBackend(backend)), strict=Basis.TEXT)
    found = [result for result in map(runner.result, cases) if result.message == message]
    assert found
    assert {result.outcome for result in found} == {Outcome.FAILED}
    right = CaseRunner(functools.partial(ask, FunctionBackend(lambda *call: answered(*call[:3]))))
    assert {right.result(result.case).outcome for result in found} == {Outcome.PASSED}


def test_what_a_backend_wrote_to_before_it_refused_is_told() -> None:
    def answer(op_type: str, inputs: dict[str, Array], attributes: dict[str, Any], _outputs: object) -> Array:
        inputs["X"] += 1
        return answered(op_type, inputs, attributes)

    case = BY_ID["roi_align/refusal/batch_index_negative/v16/float"]
    found = CaseRunner(functools.partial(ask, FunctionBackend(answer))).result(case)
    assert found.outcome is not Outcome.PASSED


def test_one_case_in_five_is_asked_twice_and_not_always_of_the_same_kind() -> None:
    twice = [case for case in BY_ID.values() if is_asked_twice(case)]
    valid = [case for case in BY_ID.values() if case.expects_error is None]
    assert 0.17 < len(twice) / len(valid) < 0.23
    assert {case.operator for case in twice} == {case.operator for case in valid}
    assert {case.group for case in valid} - {case.group for case in twice} <= {
        group for group in {case.group for case in valid} if sum(case.group == group for case in valid) < 30
    }


def test_the_second_call_has_other_numbers_and_the_same_rois_and_shapes() -> None:
    case = next(case for case in BY_ID.values() if is_asked_twice(case) and case.operator == "RoiAlignGrad")
    calls: list[dict[str, Array]] = []

    class Records(Backend):
        def prepare(self, case: Case) -> Session:
            right = backends.load("reference").prepare(case)

            def run(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
                calls.append({name: array.copy() for name, array in inputs.items()})
                return right(inputs)

            return run

    assert judge(case, ask(Records(), case)).outcome is Outcome.PASSED
    first, second = calls[-2:]
    np.testing.assert_array_equal(first["rois"], second["rois"])
    np.testing.assert_array_equal(first["dY"], -second["dY"])
    assert first["dY"].any()
