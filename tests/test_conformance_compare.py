"""What a comparison accepts and what it reports."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from conformance.case import Case
from conformance.compare import allowed_errors, compare
from conformance.expected_values import expected_outputs
from conformance.vectors import collect

BY_ID = {case.id: case for case in collect()}


def case_of(scenario: str, element_type: str = "float", function: str = "roi_align") -> Case:
    version = "v22/" if function == "roi_align" else ""
    return BY_ID[f"{function}/{scenario.replace('@', version)}{element_type}"]


def answer_to(case: Case) -> dict[str, npt.NDArray[Any]]:
    return {name: value.astype(case.dtype) for name, value in expected_outputs(case).items()}


def test_the_expected_values_pass() -> None:
    case = case_of("edge/bins_and_samples/@")
    assert compare(case, answer_to(case))[0]


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
def test_what_is_no_number_fails(wrong: float) -> None:
    case = case_of("edge/bins_and_samples/@")
    answer = answer_to(case)
    answer["Y"][0, 0, 0, 1] = wrong
    passed, worst = compare(case, answer)
    assert not passed
    assert worst is not None
    assert (worst.index, worst.error) == ((0, 0, 0, 1), None)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_passes_where_it_is_expected(value: float) -> None:
    case = case_of("edge/half_pixel_inside/@")
    case = replace(case, expected={"Y": np.full((1, 1, 1, 1), value)})
    assert compare(case, {"Y": np.full((1, 1, 1, 1), value, np.float32)})[0]
    assert not compare(case, {"Y": np.full((1, 1, 1, 1), 1.0, np.float32)})[0]


def test_another_type_fails() -> None:
    case = case_of("edge/half_pixel_inside/@")
    passed, worst = compare(case, {"Y": answer_to(case)["Y"].astype(np.float64)})
    assert not passed
    assert str(worst) == "Y: expected type float32, got type float64"


def test_another_shape_fails() -> None:
    case = case_of("edge/half_pixel_inside/@")
    passed, worst = compare(case, {"Y": np.full((1, 1), 10, np.float32)})
    assert not passed
    assert str(worst) == "Y: expected shape [1, 1, 1, 1], got shape [1, 1]"


def test_a_missing_output_fails() -> None:
    case = case_of("edge/between_pixels/@", function="roi_align_grad")
    answer = answer_to(case)
    del answer["drois"]
    passed, worst = compare(case, answer)
    assert not passed
    assert str(worst) == "drois: expected shape [1, 4], got no such output"


def test_empty_outputs_pass_with_nothing_to_report() -> None:
    case = case_of("empty/no_rois/@")
    assert compare(case, {"Y": np.zeros((0, 3, 2, 3), np.float32)}) == (True, None)


def test_half_a_unit_of_the_last_printed_digit_is_allowed() -> None:
    printed = case_of("edge/six_by_six/@", "double", "roi_align_grad")
    exact = replace(printed, decimals=None)
    allowed = allowed_errors(printed)["dX"] - allowed_errors(exact)["dX"]
    np.testing.assert_allclose(allowed, 0.5e-4, rtol=1e-6)


def test_rounded_inputs_are_allowed_for_only_where_they_were_rounded() -> None:
    assert case_of("official/aligned_true/@").input_error == 0.0
    assert case_of("official/aligned_true/@", "bfloat16").input_error == pytest.approx(0.9946 * 2**-8, rel=1e-2)


@pytest.mark.parametrize(("element_type", "unit"), [("float16", 2**-11), ("bfloat16", 2**-8)])
def test_a_half_type_is_allowed_one_rounding_and_little_else(element_type: str, unit: float) -> None:
    case = case_of("matrix/scale_0_3/@avg/half_pixel/", element_type)
    expected, allowed = expected_outputs(case)["Y"], allowed_errors(case)["Y"]
    assert np.all(allowed < unit * np.abs(expected) + 2e-4)


def test_a_sum_in_half_precision_fails() -> None:
    case = case_of("edge/average_of_4096_samples/@", "float16")
    total = np.float16(0)
    for _ in range(4096):
        total += np.float16(1)
    assert not compare(case, {"Y": (total / np.float16(4096)).reshape(1, 1, 1, 1)})[0]


def test_a_scale_rounded_to_bfloat16_fails() -> None:
    case = case_of("matrix/scale_0_3/@avg/half_pixel/", "bfloat16")
    rounded = float(ml_dtypes.bfloat16(0.3))
    spoilt = replace(case, attributes={**case.attributes, "spatial_scale": rounded})
    assert not compare(case, answer_to(spoilt))[0]


def test_a_double_is_not_allowed_single_precision() -> None:
    case = case_of("matrix/scale_0_3/@avg/half_pixel/", "double")
    single = expected_outputs(case)["Y"].astype(np.float32)
    assert not compare(case, {"Y": single.astype(np.float64)})[0]


def test_a_gradient_that_has_not_the_rank_of_its_regions_fails() -> None:
    case = case_of("edge/leading_axes/", function="dml_roi_align_grad")
    answer = answer_to(case)
    assert compare(case, answer)[0]
    passed, worst = compare(case, {name: value.reshape(2, 4) for name, value in answer.items()})
    assert not passed
    assert str(worst) == "OutputROIGradientTensor: expected shape [1, 1, 2, 4], got shape [2, 4]"


def test_another_pixel_than_the_nearest_fails() -> None:
    case = BY_ID["dml_roi_align/matrix/scale_0_3/average/nearest_neighbor/inside/float"]
    allowed = allowed_errors(case)["OutputTensor"]
    assert np.all(allowed < 1e-5)
    linear = replace(case, attributes={**case.attributes, "interpolation_mode": "linear"})
    assert not compare(case, answer_to(linear))[0]


def test_an_infinite_value_of_samples_off_the_map_is_compared() -> None:
    case = case_of("edge/out_of_bounds_infinite/", function="dml_roi_align")
    answer = answer_to(case)
    assert compare(case, answer)[0]
    answer["OutputTensor"][0] = np.nan
    assert not compare(case, answer)[0]


def test_another_pixel_of_resample_than_the_nearest_fails() -> None:
    case = BY_ID["dml_resample/matrix/three_tenths/nearest_neighbor/half_up/float"]
    assert np.all(allowed_errors(case)["OutputTensor"] < 1e-5)
    for change in ({"interpolation_mode": "linear"}, {"rounding_direction": "decreasing"}):
        assert not compare(case, answer_to(replace(case, attributes={**case.attributes, **change})))[0]


def test_a_clamped_coordinate_of_resample_has_no_error() -> None:
    continued = case_of("edge/edges_are_continued/", function="dml_resample")
    between = allowed_errors(replace(continued, expected=None))["OutputTensor"]
    assert np.all(between[[0, 1, -2, -1]] < between[[3, 4, 4, 4]])


def test_a_resample_gradient_in_half_precision_fails() -> None:
    case = case_of("edge/edge_gradient_of_8192_outputs/", "float16", "dml_resample_grad")
    answer = answer_to(case)
    assert compare(case, answer)[0]
    answer["OutputGradientTensor"][-1] = 2048
    assert not compare(case, answer)[0]


def test_tolerance_of_float_is_far_below_the_values() -> None:
    worst = {}
    for case in collect()[::5]:
        if case.element_type == "float" and "/matrix/" in case.id and not case.expects_error:
            for name, allowed in allowed_errors(case).items():
                scale = float(np.max(np.abs(expected_outputs(case)[name]), initial=1.0))
                worst[case.id] = float(np.max(allowed, initial=0.0)) / scale
    assert max(worst.values()) < 2e-3
    assert float(np.median(list(worst.values()))) < 1e-4


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
