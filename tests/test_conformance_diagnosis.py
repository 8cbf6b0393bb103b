"""A failing backend is compared with the wrong implementations."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest

from conformance.backends.external import OnnxBackend
from conformance.case import Array, Case
from conformance.diagnosis import MAX_SHOWN, diagnose
from conformance.expected_values import expected_outputs
from conformance.families import all_mutants, family_of
from conformance.outcome import Outcome, Result
from conformance.report.causes import causes_of
from conformance.run import Answer, ask, judge
from conformance.vectors import collect

pytestmark = pytest.mark.slow

BY_NAME = {mutant.name: mutant for mutant in all_mutants()}
SMALL = 300
"""Samples of a case that takes little time."""


@functools.cache
def few(family: str) -> tuple[Case, ...]:
    """Some of the small cases of float, and some refusals."""
    own = [case for case in collect() if case.definition.family == family and case.formula is None]
    wrong, right = [c for c in own if c.expects_error], [c for c in own if not c.expects_error]
    small = [case for case in right if case.element_type == "float" and family_of(case.definition).work(case) < SMALL]
    return (*small[::6], *wrong[::8])


def results_of(name: str) -> list[Result]:
    mutant = BY_NAME[name]
    backend = OnnxBackend(mutant.backend)
    return [judge(case, ask(backend, case)) for case in few(mutant.family)]


@pytest.mark.parametrize(
    "name",
    [
        "roi_align:ShiftBeforeScale",
        "roi_align:EmptyIsNaN",
        "roi_align:MaxOfNothingIsFltMax",
        "roi_align:AttributesUnchecked",
        "roi_align:DroisHalfAndHalf",
        "dml_roi_align:CornersIgnored",
        "dml_resample:OffsetsSwappedInGradient",
        "dml_resample:LengthRoundedUp",
    ],
)
def test_a_backend_with_a_mistake_answers_like_it_in_every_family_that_fails(name: str) -> None:
    results = results_of(name)
    named = {one.family for one in diagnose(results) if one.mutant is BY_NAME[name]}
    assert named == {result.case.group for result in results if result.outcome is Outcome.FAILED}


def test_a_diagnosis_is_told_in_a_line_with_what_was_compared() -> None:
    results = results_of("roi_align:ScaleIgnored")
    found = diagnose(results)
    assert len({one.family for one in found}) > 1
    assert all(one.agreed == one.compared for one in found if one.name == "ScaleIgnored")
    compared = sum(one.compared for one in {one.family: one for one in reversed(found)}.values())
    (cause,) = causes_of(results, found)
    assert cause.reason == (
        "answers like ScaleIgnored: spatial_scale is ignored, so RoIs are in pixels of the map "
        f"({compared} of {compared} compared)"
    )
    assert [result.case.id for result in cause.results] == [r.case.id for r in results if r.outcome.is_bad]


def test_few_mutants_are_shown_of_a_family_and_always_the_same() -> None:
    results = results_of("roi_align:AttributesUnchecked")
    found = diagnose(results)
    assert found == diagnose(results)
    assert all(sum(one.family == family for one in found) <= MAX_SHOWN for family in {one.family for one in found})


def answered(case: Case, change: Callable[[Array], Array]) -> Result:
    """The result of a backend that changes right answers, and takes what must be refused."""
    if case.expects_error:
        return judge(case, Answer("outputs", {}))
    outputs = {name: change(y).astype(case.dtype) for name, y in expected_outputs(case).items()}
    return judge(case, Answer("outputs", outputs))


def test_a_backend_that_is_wrong_like_no_mutant_is_told_nothing() -> None:
    cases = [case for case in few("roi_align") if "/matrix/" in case.id]
    assert diagnose([answered(case, lambda y: y + 3) for case in cases]) == []


def test_nothing_is_said_of_a_backend_that_passes() -> None:
    assert diagnose([answered(case, np.array) for case in few("roi_align") if not case.expects_error]) == []


def test_a_mutant_that_fails_what_the_backend_passes_is_not_named() -> None:
    results = results_of("roi_align:SumForAverage")
    wrong = [r for r in results if r.outcome is Outcome.FAILED and r.case.group == "roi_align/matrix"]
    right = [answered(r.case, np.array) for r in wrong[1::2]]
    assert {one.name for one in diagnose(wrong)} == {"SumForAverage"}
    assert diagnose([*wrong[::2], *right]) == []


def test_one_mutant_explains_what_another_family_of_failures_does_not() -> None:
    forward = [r for r in results_of("roi_align:NoHalfPixel") if r.case.group.startswith("roi_align/")]
    mixed = [*forward, *(r for r in results_of("roi_align:DroisHalfAndHalf") if "_grad/" in r.case.group)]
    named = {one.family: one.name for one in reversed(diagnose(mixed))}
    assert named["roi_align/matrix"] == "NoHalfPixel"
    assert named["roi_align_grad/matrix"] == "DroisHalfAndHalf"
