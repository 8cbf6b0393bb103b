# SPDX-License-Identifier: MIT
"""What a report says of failures: the mutants that answer like the backend, and what the failing cases have in common."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from conformance import diagnosis
from conformance.backends.external import OnnxBackend
from conformance.case import Array, Case, scenario_of
from conformance.cases import case_of, collect
from conformance.conditions import in_common
from conformance.diagnosis import MAX_SHOWN, diagnose
from conformance.expected_values import expected_outputs
from conformance.families import all_mutants, family_of
from conformance.outcome import Outcome, Reason, Result
from conformance.report.causes import causes_of
from conformance.run import Answer, ask, judge

BY_NAME = {mutant.name: mutant for mutant in all_mutants()}
FEW_SAMPLES = 300
"""Samples of a case that takes little time."""


@functools.cache
def few(family: str) -> tuple[Case, ...]:
    """Some of the small cases of float with one call, and some refusals."""
    cases = [c for c in collect() if c.definition.family == family and c.formula is None and not c.before]
    wrong, right = [c for c in cases if c.expects_error], [c for c in cases if not c.expects_error]
    small = [
        case for case in right if case.element_type == "float" and family_of(case.definition).work(case) < FEW_SAMPLES
    ]
    return (*small[::6], *wrong[::8])


def results_of(name: str) -> list[Result]:
    mutant = BY_NAME[name]
    backend = OnnxBackend(mutant.backend)
    return [judge(case, ask(backend, case)) for case in few(mutant.family)]


@pytest.mark.parametrize(
    "name",
    [
        # At each commit one of numbers, of refusals, of a gradient and of another family.
        "roi_align:ShiftBeforeScale",
        "roi_align:AttributesUnchecked",
        "roi_align:DroisHalfAndHalf",
        "dml_resample:LengthRoundedUp",
        pytest.param("roi_align:EmptyIsNaN", marks=pytest.mark.weekly),
        pytest.param("roi_align:MaxOfNothingIsFltMax", marks=pytest.mark.weekly),
        pytest.param("dml_roi_align:CornersIgnored", marks=pytest.mark.weekly),
        pytest.param("dml_resample:OffsetsSwappedInGradient", marks=pytest.mark.weekly),
    ],
)
@pytest.mark.slow
def test_a_backend_with_a_mistake_answers_like_it_in_every_group_that_fails(name: str) -> None:
    results = results_of(name)
    named = {diagnosis.group for diagnosis in diagnose(results, math.inf) if diagnosis.mutants == (BY_NAME[name],)}
    assert named == {result.group for result in results if result.outcome is Outcome.FAILED}


@pytest.mark.slow
def test_a_diagnosis_is_told_in_a_line_with_what_was_compared() -> None:
    results = results_of("roi_align:ScaleIgnored")
    diagnoses = diagnose(results, math.inf)
    groups = {d.group for d in diagnoses}
    assert len(groups) > 1
    assert all(sum(d.group == group for d in diagnoses) <= MAX_SHOWN for group in groups)
    assert all(d.agreed == d.compared for d in diagnoses if d.name == "ScaleIgnored")
    compared = sum(d.compared for d in {d.group: d for d in reversed(diagnoses)}.values())
    (cause,) = causes_of(results, diagnoses)
    assert cause.reason == (
        "answers like ScaleIgnored: spatial_scale is ignored, so RoIs are in pixels of the map "
        f"({compared} of {compared} compared)"
    )
    assert [result.id for result in cause.results] == [r.id for r in results if r.outcome.is_bad]


def answered(case: Case, change: Callable[[Array], Array]) -> Result:
    """The result of a backend that changes right answers, and takes what must be refused."""
    if case.expects_error:
        return judge(case, Answer("outputs", {}))
    outputs = {name: change(y).astype(case.dtype) for name, y in expected_outputs(case).items()}
    return judge(case, Answer("outputs", outputs))


@pytest.mark.slow
def test_nothing_is_said_of_a_backend_that_is_wrong_like_no_mutant_or_passes() -> None:
    cases = [case for case in few("roi_align") if "/matrix/" in case.id]
    assert diagnose([answered(case, lambda y: y + 3) for case in cases]) == []
    assert diagnose([answered(case, np.array) for case in few("roi_align") if not case.expects_error]) == []


@pytest.mark.slow
def test_a_mutant_that_fails_what_the_backend_passes_is_not_named() -> None:
    results = results_of("roi_align:SumForAverage")
    wrong = [r for r in results if r.outcome is Outcome.FAILED and r.group == "roi_align/matrix"]
    right = [answered(case_of(r), np.array) for r in wrong[1::2]]
    assert {diagnosis.name for diagnosis in diagnose(wrong)} == {"SumForAverage"}
    assert diagnose([*wrong[::2], *right]) == []


@pytest.mark.slow
def test_one_mutant_explains_what_another_group_of_failures_does_not() -> None:
    forward = [r for r in results_of("roi_align:NoHalfPixel") if r.group.startswith("roi_align/")]
    mixed = [*forward, *(r for r in results_of("roi_align:DroisHalfAndHalf") if "_grad/" in r.group)]
    named = {diagnosis.group: diagnosis.name for diagnosis in reversed(diagnose(mixed, math.inf))}
    assert named["roi_align/matrix"] == "NoHalfPixel"
    assert named["roi_align_grad/matrix"] == "DroisHalfAndHalf"


OF_ROI_ALIGN = [case for case in collect() if case.id.startswith(("roi_align/", "roi_align_grad/"))]
MATRIX = [case for case in OF_ROI_ALIGN if case.group == "roi_align/matrix" and case.id.endswith("/float")]


def wrong_where(name: str, is_wrong: Callable[[Case], bool], other: str = "") -> list[Result]:
    """The results of a backend with the mistakes of one or two mutants of RoiAlign in some cases of `MATRIX`."""
    mutants = tuple(BY_NAME[f"roi_align:{short_name}"] for short_name in (name, other) if short_name)
    backend = OnnxBackend(mutants[0].with_another(mutants[1]) if other else mutants[0].backend)
    right = {case.id: Result(case.id, Outcome.PASSED) for case in MATRIX}
    return [judge(case, ask(backend, case)) if is_wrong(case) else right[case.id] for case in MATRIX]


@pytest.mark.parametrize(
    ("name", "other", "is_wrong", "said"),
    [
        ("CoordinateModeIgnored", "", lambda _: True, "answers like CoordinateModeIgnored: coordinate_transformation"),
        ("NoHalfPixel", "", lambda c: c.version == 22, "answers like NoHalfPixel always and only with opset 22 and"),
        (
            *("ScaleIgnored", "", lambda c: c.attributes["mode"] == "max"),
            "answers like ScaleIgnored always and only with mode max and spatial_scale != 1: ",
        ),
        ("NoHalfPixel", "MaxIsAverage", lambda _: True, "answers like NoHalfPixel and MaxIsAverage: RoIs are not "),
        ("ResultTransposed", "ScaleIgnored", lambda _: True, "answers like ResultTransposed and ScaleIgnored: the "),
        ("BatchIndexIgnored", "ChannelsReversed", lambda _: True, "answers like ChannelsReversed and BatchIndexIgnor"),
    ],
)
def test_mistakes_of_some_cases_and_two_at_once_are_one_cause(
    name: str, other: str, is_wrong: Callable[[Case], bool], said: str
) -> None:
    results = wrong_where(name, is_wrong, other)
    causes = causes_of(results, diagnose(results, math.inf))
    assert [cause.reason[: len(said)] for cause in causes] == [said]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("LeastSizeAlways", "answers like DxOfClampedSizes: the gradient alone raises sizes to 1"),
        ("ChannelsReversed", "answers like ChannelsReversed in the gradient alone: "),
    ],
)
def test_a_mistake_that_the_operator_lacks_is_one_of_its_gradient(name: str, said: str) -> None:
    cases = [case for case in few("roi_align") if not case.expects_error]
    forward = [Result(case.id, Outcome.PASSED) for case in cases if not case.definition.is_gradient]
    gradient = [result for result in results_of(f"roi_align:{name}") if "_grad/" in result.id]
    results = [*forward, *(result for result in gradient if not case_of(result).expects_error)]
    assert [cause.reason[: len(said)] for cause in causes_of(results, diagnose(results, math.inf))] == [said]


def test_cases_that_are_too_large_to_compare_have_the_cause_of_the_others() -> None:
    large = [case for case in OF_ROI_ALIGN if case.group == "roi_align/users"][:2]
    wrong = [Result(case.id, Outcome.FAILED, reason=Reason.NUMBER) for case in large]
    results = [*wrong_where("NoHalfPixel", lambda _: True), *wrong]
    (cause,) = causes_of(results, diagnose(results, math.inf))
    assert {case.id for case in large} <= {result.id for result in cause.results}


def test_no_mutant_is_asked_about_refusals_or_beyond_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = wrong_where("NoHalfPixel", lambda _: True)
    assert diagnose(wrong, 0.0) == []
    monkeypatch.setattr(diagnosis, "_answer", lambda *_: pytest.fail("a mutant is asked"))
    assert diagnose([Result(case.id, Outcome.FAILED, reason=Reason.REFUSED) for case in OF_ROI_ALIGN]) == []


def length(case: Case, name: str) -> int:
    """The length of an axis of the map or of the RoIs."""
    return case.types["X"].shape["NCHW".index(name)] if name in "NCHW" else case.types["rois"].shape[0]


def size(case: Case, name: str) -> int:
    """The height or the width of the output."""
    return int(case.attributes.get(f"output_{name}", 1))


@pytest.mark.parametrize(
    ("is_wrong", "said"),
    [
        (lambda c: c.version == 22, "always and only with opset 22"),
        (lambda c: c.version != 10, "always and only with opset 16 or opset 22"),
        (lambda c: c.element_type == "bfloat16", "always and only with bfloat16"),
        (
            lambda c: c.element_type == "double" and length(c, "C") > 16,
            "always and only with double and C >= 17 (not with C <= 16)",
        ),
        (lambda c: length(c, "W") > 96, "always and only with W >= 127 (not with W <= 76)"),
        (lambda c: length(c, "R") > 128, "always and only with num_rois >= 129 (not with num_rois <= 128)"),
        (lambda c: length(c, "H") != length(c, "W"), "always and only with H != W"),
        (lambda c: length(c, "H") < length(c, "W"), "always and only with H < W"),
        (lambda c: length(c, "W") % 2 == 1, "always and only with odd W"),
        (lambda c: c.attributes.get("spatial_scale", 1) != 1, "always and only with spatial_scale != 1"),
        (lambda c: size(c, "height") != size(c, "width"), "always and only with output_height != output_width"),
        (lambda c: c.attributes.get("mode") == "max", "always and only with mode max"),
        (lambda c: "output_width" not in c.attributes, "always and only with no output_width"),
        (lambda c: bool(c.before), "always and only with later calls of a session"),
        # A part of what an attribute or a type decides, as where the right answer happens to be a wrong one's.
        (lambda c: c.element_type == "double" and len(c.id) % 2 == 0, "only with double"),
        # Most of those that a condition holds for, as where half of the samples happen to be right.
        (lambda c: length(c, "C") % 2 and len(scenario_of(c.id)) % 4, "only with odd C, where #% of the cases fail"),
        # Chance, and too few cases.
        (lambda c: len(c.id) % 3 == 0, ""),
        (lambda c: "/edge/sample_at_minus_1/" in c.id, ""),
        (lambda c: c.id.endswith("/half_pixel_inside/v16/float"), ""),
        (lambda _: True, ""),
    ],
)  # fmt: skip
def test_a_condition_is_told_if_it_tells_failing_from_passing_cases(
    is_wrong: Callable[[Case], bool], said: str
) -> None:
    forward = [case for case in OF_ROI_ALIGN if case.id.startswith("roi_align/") and not case.expects_error]
    results = [Result(case.id, Outcome.FAILED if is_wrong(case) else Outcome.PASSED) for case in forward]
    where, conditions = in_common([result for result in results if result.outcome is Outcome.FAILED], results)
    assert re.sub(r"\d+%", "#%", where) == said
    assert all(condition.holds(case) for case in forward if is_wrong(case) for condition in conditions)


def test_what_is_answered_wrongly_is_not_refused() -> None:
    """Without wrong answers, those that are refused would be the only ones with three channels."""
    forward = [case for case in OF_ROI_ALIGN if case.id.startswith("roi_align/") and not case.expects_error]
    refused = [case for case in forward if length(case, "R") == 0]
    wrong = [case for case in forward if length(case, "R") > 0 and length(case, "C") != 1]
    results = [Result(case.id, Outcome.FAILED, reason=Reason.REFUSED) for case in refused]
    others = [Result(case.id, Outcome.FAILED, reason=Reason.NUMBER) for case in wrong]
    passed = [Result(case.id, Outcome.PASSED) for case in forward if case not in [*refused, *wrong]]
    assert in_common(results, [*results, *others, *passed])[0].startswith("always and only with num_rois <= 0 ")


def test_operators_with_mistakes_of_their_own_have_causes_of_their_own() -> None:
    def is_wrong(case: Case) -> bool:
        return case.version == 22 if case.id.startswith("roi_align/") else case.element_type == "float16"

    valid = [case for case in OF_ROI_ALIGN if not case.expects_error]
    wrong = Result(valid[0].id, Outcome.FAILED, reason=Reason.NUMBER)
    results = [replace(wrong, id=case.id) if is_wrong(case) else Result(case.id, Outcome.PASSED) for case in valid]
    assert sorted(cause.reason for cause in causes_of(results, [])) == [
        "wrong number, always and only with float16",
        "wrong number, always and only with opset 22",
    ]
