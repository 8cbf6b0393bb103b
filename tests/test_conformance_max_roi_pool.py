"""The cases of MaxRoiPool: away from where rounding decides but for those that are about it; and its random ones."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from conformance.backends import load
from conformance.case import Case, Source, scenario_of
from conformance.compare import allowed_errors
from conformance.error_bounds import error_terms
from conformance.expected_values import expected_outputs
from conformance.families import max_roi_pool as family
from conformance.run import Answer, ask
from conformance.vectors import collect
from conformance.vectors.max_roi_pool import INEXACT, SCENES

NAMES = ("MaxRoiPool_1", "MaxRoiPool_22", "MaxRoiPoolGrad")
OWN = [case for case in collect() if case.operator in NAMES and not case.expects_error]

OF_ROUNDING = {
    "exact_end_of_the_last_bin",
    "exact_start_of_a_bin",
    "scaled_in_double",
    "huge",
    "ends_beyond_2_31",
    *(f"{bins}_bins_of_{size}_pixels" for bins, size in INEXACT),
}
"""Facts that float32 or float64 on the way would change."""


def oracle(case: Case) -> Answer:
    return ask(load("reference"), case)


def well_posed(case: Case) -> bool:
    return family.is_well_posed(case, oracle)


def test_cases_are_well_posed_unless_they_are_about_rounding_or_the_gradient_of_nan() -> None:
    cases = [case for case in OWN if case.element_type in ("float", "double") and case.operator != "MaxRoiPool_1"]
    open_facts = {case.id.split("/")[2] for case in cases if not well_posed(case)}
    of_nan = {
        case.id.split("/")[2] for case in cases if case.definition.is_gradient and np.isnan(case.inputs["X"]).any()
    }
    assert open_facts <= OF_ROUNDING | of_nan
    assert open_facts >= OF_ROUNDING - {"scaled_in_double"} | {"nan_at_0_0"}


def test_every_scene_is_asked_in_every_type_at_every_opset() -> None:
    asked = Counter(scenario_of(case.id) for case in OWN if case.group.endswith("/matrix"))
    of_operator = [asked[f"max_roi_pool/matrix/{scene.name}"] for scene in SCENES]
    of_gradient = [asked[f"max_roi_pool_grad/matrix/{scene.name}"] for scene in SCENES]
    # float16, float and double at opset 1; these and bfloat16 at opset 22.
    assert [scene.name for scene, count in zip(SCENES, of_operator, strict=True) if count != 7] == []
    assert set(of_gradient) == {4}


def test_an_output_of_the_operator_may_only_be_rounded_to_its_type() -> None:
    case = next(case for case in OWN if case.id == "max_roi_pool/matrix/many/v22/float")
    y = expected_outputs(case)["Y"]
    ulp = np.spacing(np.abs(y).astype(np.float32)).astype(np.float64)
    assert np.all(allowed_errors(case)["Y"] <= ulp)


def test_the_error_of_a_gradient_grows_with_the_outputs_that_add_up() -> None:
    case = next(case for case in OWN if case.id == "max_roi_pool_grad/matrix/overlapping/float")
    terms = error_terms(case)["dX"]
    dx = expected_outputs(case)["dX"]
    assert np.all(terms.magnitude >= np.abs(dx))
    assert np.sum(terms.terms) == case.inputs["dY"].size  # no bin is empty, and each passes once
    np.testing.assert_array_equal(terms.terms == 0, terms.magnitude == 0)


def one_roi(roi: list[float], x: list[float], bins: int, scale: float = 1.0, *, is_gradient: bool = False) -> Case:
    inputs = {"X": np.array([[[x]]], np.float32), "rois": np.array([roi], np.float32)}
    case = Case(
        "max_roi_pool/test/case/float",
        Source("", "", ""),
        "MaxRoiPool_22",
        {"pooled_shape": (1, bins), "spatial_scale": scale},
        inputs,
        ("Y",),
        "",
    )
    if not is_gradient:
        return case
    dy = np.ones((1, 1, 1, bins), np.float32)
    attributes = {"spatial_scale": scale}
    return replace(case, operator="MaxRoiPoolGrad", attributes=attributes, inputs={"dY": dy, **inputs}, outputs=("dX",))


@pytest.mark.parametrize("is_gradient", [False, True])
def test_a_bound_that_float32_changes_is_ill_posed_where_the_pixel_counts(is_gradient: bool) -> None:
    of_roi = functools.partial(one_roi, [0, 0, 0, 6, 0], bins=13, is_gradient=is_gradient)
    assert not well_posed(of_roi([1, 2, 3, 4, 5, 6, 7, 100, 9]))
    assert well_posed(of_roi([1, 2, 3, 4, 5, 6, 7, 0.5, 9]))
    assert well_posed(one_roi([0, 0, 0, 6, 0], [1, 2, 3, 4, 5, 6, 7, 100, 9], 7, is_gradient=is_gradient))


@pytest.mark.parametrize("is_gradient", [False, True])
def test_an_end_that_float32_makes_a_half_is_ill_posed_and_a_half_is(is_gradient: bool) -> None:
    ramp = [float(i) for i in range(8)]
    assert not well_posed(one_roi([0, 5, 0, 5, 0], ramp, 1, 0.7, is_gradient=is_gradient))
    assert well_posed(one_roi([0, 5, 0, 5, 0], ramp, 1, 0.5, is_gradient=is_gradient))
    assert well_posed(one_roi([0, 5, 0, 5, 0], ramp, 1, 0.75, is_gradient=is_gradient))


def test_the_gradient_of_nan_is_ill_posed_and_that_of_a_tie_is() -> None:
    for x, is_one in (([1.0, np.nan], False), ([1.0, 1.0], True)):
        assert well_posed(one_roi([0, 0, 0, 1, 0], x, 1))
        assert well_posed(one_roi([0, 0, 0, 1, 0], x, 1, is_gradient=True)) == is_one
