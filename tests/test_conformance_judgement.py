# SPDX-License-Identifier: MIT
"""How answers are judged, and what the suite holds a runtime to: allowances, rules, refusals, calls of one session."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest

import ortops
from conformance import backends, expected_failures
from conformance.backends import Backend, Session
from conformance.backends.external import FunctionBackend, OnnxBackend
from conformance.case import Array, Basis, Case, Level
from conformance.cases import collect
from conformance.compare import allowed_errors, compare
from conformance.expected_failures import ExpectedFailure, find
from conformance.expected_values import expected_outputs
from conformance.model import build
from conformance.outcome import Outcome, Result
from conformance.run import MAX_KEPT_BYTES, Answer, CaseRunner, Kind, ask, is_asked_twice, judge

BY_ID = {case.id: case for case in collect()}
RIGHT = BY_ID["roi_align/edge/half_pixel_inside/v16/float"]
WRONG = BY_ID["roi_align/refusal/mode_unknown/v16/float"]
TEN = {"Y": np.full((1, 1, 1, 1), 10, np.float32)}
ELEVEN = {"Y": np.full((1, 1, 1, 1), 11, np.float32)}

KNOWN = ExpectedFailure("*", "known")


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
    # A crash is expected only where it is listed as one.
    if_crashes = Outcome.EXPECTED_FAILURE if answer.kind == "crash" else outcome_if_known
    assert result(case, answer, replace(KNOWN, crashes=True)).outcome is if_crashes


@pytest.mark.parametrize("kind", ["refusal", "missing"])
def test_who_refuses_the_valid_twin_too_has_refused_nothing(kind: Kind) -> None:
    refuses_all = CaseRunner(lambda _: Answer(kind, text="no"), [KNOWN]).result(WRONG)
    assert refuses_all.outcome is Outcome.UNSUPPORTED
    assert refuses_all.message.startswith("no right answer to its valid twin: ")
    zeros = {"Y": np.zeros((2, 3, 2, 2), np.float32)}
    answers_zeros = CaseRunner(lambda case: Answer("outputs", zeros) if case is WRONG.twin else Answer(kind)).result(
        WRONG
    )
    assert answers_zeros.outcome is Outcome.UNSUPPORTED
    assert "expected 1, got 0" in answers_zeros.message


@pytest.mark.parametrize(("level", "count"), [(Level.CORE, 1), (Level.STANDARD, 3), (Level.STRICT, 4)])
@pytest.mark.parametrize("basis", Basis)
def test_a_breach_of_a_rule_that_the_level_does_not_ask_for_is_a_departure(
    basis: Basis, level: Level, count: int
) -> None:
    is_weaker = basis.value not in ["text", "vectors", "reference", "ours"][:count]
    of_basis = replace(RIGHT, basis=basis)
    for answer, expected in (
        (Answer("outputs", ELEVEN), Outcome.DEPARTED if is_weaker else Outcome.FAILED),
        (Answer("outputs", TEN), Outcome.PASSED),
        (Answer("crash"), Outcome.CRASHED),
    ):
        runner = CaseRunner(functools.partial(lambda a, _: a, answer), level=level)
        assert runner.result(of_basis).outcome is expected


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


def by_kernels(op_type: str, inputs: dict[str, Array], attributes: dict[str, Any]) -> Array:
    """The right answer to a case of RoiAlign, by the kernels."""
    if op_type != "RoiAlign":
        raise NotImplementedError(op_type)
    return np.array(ortops.roi_align(*inputs.values(), **attributes))


def scales_rois(op_type: str, inputs: dict[str, Array], attributes: dict[str, Any], _outputs: object) -> Array:
    y = by_kernels(op_type, inputs, attributes)
    if attributes["spatial_scale"] != 1:
        inputs["rois"] *= np.asarray(attributes["spatial_scale"], inputs["rois"].dtype)
    return y


def cleans_nan(op_type: str, inputs: dict[str, Array], attributes: dict[str, Any], _outputs: object) -> Array:
    y = by_kernels(op_type, inputs, attributes)
    if attributes["mode"] != "avg":
        inputs["X"][np.isnan(inputs["X"])] = -np.inf
    return y


class SameBuffer:
    """Returns the same memory for all answers of one shape and type."""

    def __init__(self) -> None:
        self.kept: dict[object, Array] = {}

    def __call__(self, op_type: str, inputs: dict[str, Array], attributes: dict[str, Any], _outputs: object) -> Array:
        """Answer a case."""
        y = by_kernels(op_type, inputs, attributes)
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
    runner = CaseRunner(functools.partial(ask, FunctionBackend(backend)), level=Level.CORE)
    failures = [result for result in map(runner.result, cases) if result.message == message]
    assert failures
    assert {result.outcome for result in failures} == {Outcome.FAILED}
    right = CaseRunner(functools.partial(ask, FunctionBackend(lambda *call: by_kernels(*call[:3]))))
    assert {right.result(BY_ID[result.id]).outcome for result in failures} == {Outcome.PASSED}


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


# What a comparison accepts and what it reports.


def case_of(scenario: str, element_type: str = "float", function: str = "roi_align") -> Case:
    version = "v22/" if function == "roi_align" else ""
    return BY_ID[f"{function}/{scenario.replace('@', version)}{element_type}"]


def answer_to(case: Case) -> dict[str, npt.NDArray[Any]]:
    return {name: value.astype(case.dtype) for name, value in expected_outputs(case).items()}


def test_one_element_beyond_its_allowance_fails_and_is_reported() -> None:
    case = case_of("edge/bins_and_samples/@")
    answer = answer_to(case)
    answer["Y"][0, 0, 1, 0] += 1e-3
    passed, worst = compare(case, answer)
    assert not passed
    assert worst is not None
    assert (worst.output, worst.index, worst.expected) == ("Y", (0, 0, 1, 0), "13.9375")
    assert worst.error == pytest.approx(1e-3, rel=1e-3)
    assert worst.allowed is not None
    assert worst.allowed < 1e-4
    assert "Y[0, 0, 1, 0]: expected 13.9375, got 13.938" in str(worst)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_passes_only_where_it_is_expected(wrong: float) -> None:
    case, odd = case_of("edge/half_pixel_inside/@"), {"Y": np.full((1, 1, 1, 1), wrong, np.float32)}
    passed, worst = compare(case, odd)
    assert (passed, worst and worst.index, worst and worst.error) == (False, (0, 0, 0, 0), None)
    expecting = replace(case, expected={"Y": np.full((1, 1, 1, 1), wrong)})
    assert compare(expecting, odd)[0]
    assert not compare(expecting, answer_to(case))[0]


@pytest.mark.parametrize(
    ("function", "scenario", "change", "message"),
    [
        ("roi_align", "edge/half_pixel_inside/@", np.float64, "Y: expected type float32, got type float64"),
        ("roi_align", "edge/half_pixel_inside/@", np.ravel, "Y: expected shape [1, 1, 1, 1], got shape [1]"),
        ("roi_align_grad", "edge/between_pixels/@", None, "drois: expected shape [1, 4], got no such output, or None"),
        (
            *("dml_roi_align_grad", "edge/leading_axes/", lambda y: y.reshape(2, 4)),
            "OutputROIGradientTensor: expected shape [1, 1, 2, 4], got shape [2, 4]",
        ),
    ],
)
def test_another_type_or_shape_and_a_missing_output_fail(
    function: str, scenario: str, change: Callable[[Any], Any] | None, message: str
) -> None:
    case = case_of(scenario, function=function)
    answer = answer_to(case)
    assert compare(case, answer)[0]
    *_, last = answer
    y = answer.pop(last)
    passed, worst = compare(case, answer if change is None else {**answer, last: np.asarray(change(y))})
    assert (passed, str(worst)) == (False, message)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda y: (y, np.zeros(1)), "outputs: expected 1 (Y), got 2 (Y, 1)"),
        (lambda y: {"Y": y, "Z\x1b": y}, r"outputs: expected 1 (Y), got 2 (Y, Z\x1b)"),
        (lambda _: None, "Y: expected shape [1, 1, 1, 1], got no such output, or None"),
        (lambda _: [None], "Y: expected shape [1, 1, 1, 1], got no such output, or None"),
    ],
)
def test_a_function_that_answers_more_or_nothing_fails(answer: Callable[[Array], object], message: str) -> None:
    case = case_of("edge/half_pixel_inside/@")
    backend = FunctionBackend(lambda *_: answer(answer_to(case)["Y"]))
    assert judge(case, ask(backend, case)).message == message
    model = SimpleNamespace(run=lambda _: answer(answer_to(case)["Y"]))
    onnx_backend = OnnxBackend(SimpleNamespace(prepare=lambda *_: model))
    assert isinstance(answer(np.zeros(1)), dict) or judge(case, ask(onnx_backend, case)).message == message


def test_half_a_unit_of_the_last_printed_digit_is_allowed() -> None:
    printed = case_of("edge/six_by_six/@", "double", "roi_align_grad")
    exact = replace(printed, decimals=None)
    allowed = allowed_errors(printed)["dX"] - allowed_errors(exact)["dX"]
    np.testing.assert_allclose(allowed, 0.5e-4, rtol=1e-6)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("function", ["roi_align", "roi_align_grad"])
def test_pixels_that_no_sample_reads_change_no_allowance(function: str, odd: float) -> None:
    """The map has 4 more rows than the RoIs reach."""
    case = case_of("edge/bins_and_samples/@" if function == "roi_align" else "edge/between_pixels/@", function=function)
    inputs = dict(case.inputs)
    below = np.zeros((*inputs["X"].shape[:2], 4, inputs["X"].shape[3]), inputs["X"].dtype)
    inputs["X"] = np.concatenate([inputs["X"], inputs["X"][:, :, -1:], below], axis=2)
    if "x_shape" in inputs:
        inputs["x_shape"] = np.array(inputs["X"].shape)
    finite = replace(case, inputs=inputs, expected=None)
    inputs = {**inputs, "X": inputs["X"].copy()}
    inputs["X"][:, :, -3:] = odd
    allowed, plain = allowed_errors(replace(finite, inputs=inputs)), allowed_errors(finite)
    for name, values in allowed.items():
        assert np.isfinite(values).all()
        np.testing.assert_array_equal(values, plain[name])


# Whose rule each case is, proven refusals, calls of one session, conventions.


CASES = collect()
ROI_ALIGN = [case for case in CASES if case.definition.function == "roi_align" and case.element_type == "float"]

SOME = [case for i, case in enumerate(ROI_ALIGN) if case.group == "roi_align/session" or i % 40 == 0]


def outcomes_of(
    backend: backends.Backend, cases: Sequence[Case], conventions: Sequence[str] = ()
) -> dict[str, Outcome]:
    runner = CaseRunner(functools.partial(ask, backend), conventions=conventions)
    return {result.id: result.outcome for result in map(runner.result, cases)}


def test_a_model_passes_the_checker_and_holds_what_the_case_gives() -> None:
    kinds = {
        (case.operator, case.group, case.element_type, case.expects_error, case.named_axes): case for case in CASES
    }
    for case in list(kinds.values())[::4]:
        for dialect in ("standard", "ortops"):
            model = build(case, dialect)
            onnx.checker.check_model(model, full_check=case.expects_error is None)
        (node,) = model.graph.node
        assert (node.op_type, node.domain) == (case.operator, "ai.onnx.contrib")
        assert {attribute.name for attribute in node.attribute} == {n for n, v in case.attributes.items() if v != ()}
        assert {name for name in node.input if name} == set(case.inputs)
        assert [name for name in node.output if name] == list(case.outputs)


def test_a_refusal_alone_has_a_valid_twin_of_the_same_node() -> None:
    for case in CASES:
        assert (case.twin is not None) == (case.expects_error is not None), case.id
        if case.twin is not None:
            twin = case.twin
            assert (twin.expects_error, twin.operator, twin.outputs) == (None, case.operator, case.outputs)
            assert {(name, 0) for name in case.outputs} <= twin.named_axes  # as in the case's own model


def test_what_is_said_to_be_the_rule_of_onnx_evaluator_is_not_listed_as_its_failure() -> None:
    _, known = expected_failures.load("onnx-reference")
    cases = [case for case in ROI_ALIGN if case.version >= 16 and case.basis in (Basis.VECTORS, Basis.REFERENCE)]
    listed = {case.id for case in cases if find(known, case.id)}
    assert listed == {case.id for case in cases if "huge" in case.id and "ratio_2" not in case.id}  # many samples
    evaluator = backends.load("onnx-reference")
    asked = [case for case in cases if case.id not in listed][::9]
    assert {case.basis for case in asked} == {Basis.VECTORS, Basis.REFERENCE}
    assert set(outcomes_of(evaluator, asked).values()) == {Outcome.PASSED}


def always_raises(*_: object) -> Array:
    raise ValueError("no")


def test_a_backend_that_always_raises_refuses_nothing() -> None:
    outcomes = outcomes_of(FunctionBackend(always_raises), SOME)
    assert outcomes == {case.id: Outcome.UNSUPPORTED if case.expects_error else Outcome.FAILED for case in SOME}


def reads_max_by_interpolation(op_type: str, inputs: Any, attributes: Mapping[str, Any], *_: object) -> Array:
    mode = {"max": "max_interpolated"}.get(attributes["mode"], attributes["mode"])
    return by_kernels(op_type, inputs, {**attributes, "mode": mode})


def test_a_runtime_that_reads_max_by_interpolation_is_judged_by_that() -> None:
    groups = ("roi_align/edge", "roi_align/matrix", "roi_align/refusal")
    cases = [case for case in ROI_ALIGN if case.group in groups and case.version == 16][::2]
    backend = FunctionBackend(reads_max_by_interpolation)
    failed = {name for name, outcome in outcomes_of(backend, cases).items() if outcome is not Outcome.PASSED}
    assert len(failed) > 10
    assert set(outcomes_of(backend, cases, ["max_interpolated"]).values()) == {Outcome.PASSED}
    right = outcomes_of(FunctionBackend(lambda *call: by_kernels(*call[:3])), cases, ["max_interpolated"])
    assert {name for name, outcome in right.items() if outcome is not Outcome.PASSED} >= {
        name for name in failed if "/max/" in name and "/matrix/" in name
    }


def computes_in_float16(op_type: str, inputs: Any, attributes: Any, _outputs: object) -> Array:
    """Sums of samples in float16, one after another; RoIs without rounding."""
    y = by_kernels(op_type, inputs, attributes)
    if y.dtype != np.float16 or not y.size:
        return y
    return np.asarray(y * np.float16(1 + 2**-10))


def test_a_runtime_that_computes_float16_in_float16_is_judged_by_that() -> None:
    names = ("overlapping", "images_and_channels", "scale_1_16")
    cases = [c for c in CASES if c.id.startswith("roi_align/matrix/") and c.id.endswith("/avg/half_pixel/float16")]
    cases = [case for case in cases if case.id.split("/")[2] in names]
    backend = FunctionBackend(computes_in_float16)
    assert Outcome.FAILED in set(outcomes_of(backend, cases).values())
    assert set(outcomes_of(backend, cases, ["float16_arithmetic"]).values()) == {Outcome.PASSED}
