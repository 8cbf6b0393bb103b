"""DirectML's RoiAlign: the kernels against the reference, and where numbers are huge or none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import ortops
from ortops.operators.dml_roi_align import DML_ROI_ALIGN, DML_ROI_ALIGN_GRAD, UINT32_MAX
from ortops.reference import evaluate
from problems import Array, assert_close, make_problem, reach

SETTINGS = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
KINDS = ("inside", "across", "mirrored", "flat", "point", "outside", "huge")
MARGIN = 1e-9
SIZES = ("output_height", "output_width")
FORWARD_ONLY = (*SIZES, "out_of_bounds_input_value")


def coordinates(problem: dict[str, Any]) -> list[tuple[Array, int]]:
    """For each region and axis the coordinates of its first 10,000 samples, and the map's length."""
    a, found = problem["attributes"], []
    for roi in problem["rois"].reshape(-1, 4).astype(np.float64):
        for name, bins, low, length in (
            ("spatial_scale_y", a["output_height"], 1, problem["x"].shape[2]),
            ("spatial_scale_x", a["output_width"], 0, problem["x"].shape[3]),
        ):
            scale = float(np.float32(a[name]))
            start, size = roi[low] * scale, (roi[low + 2] - roi[low]) * scale
            least, most = a["minimum_samples_per_output"], a["maximum_samples_per_output"]
            n = bins * min(max(int(np.ceil(size / bins)), least), most)
            s = np.arange(min(n, 10_000)) - float(np.float32(a["output_pixel_offset"]))
            t = s / n
            if a["align_regions_to_corners"]:
                t = s / (n - 1) if n > 1 else np.full(1, 0.5)
            found.append((start + size * t - float(np.float32(a["input_pixel_offset"])), length))
    return found


def is_clear(problem: dict[str, Any]) -> bool:
    """Whether no sample is where the rounding of its coordinate decides: on the border or a pixel, or between two."""
    nearest = problem["attributes"]["interpolation_mode"] == "nearest_neighbor"
    for c, length in coordinates(problem):
        if np.any(np.abs(c + 1) < MARGIN) or np.any(np.abs(c - length) < MARGIN):
            return False
        inside = c[(c > -1) & (c < length)] + (0.5 if nearest else 0.0)
        if np.any(np.abs(inside - np.round(inside)) < MARGIN):
            return False
    return True


@st.composite
def dml_problems(draw: st.DrawFn, /) -> dict[str, Any]:
    """Any call of DmlRoiAlign."""
    least = draw(st.integers(1, 3))
    attributes = {
        "output_height": draw(st.integers(1, 4)),
        "output_width": draw(st.integers(1, 4)),
        "reduction_function": draw(st.sampled_from(["average", "max"])),
        "interpolation_mode": draw(st.sampled_from(["linear", "nearest_neighbor"])),
        "spatial_scale_x": draw(st.sampled_from([1.0, 0.3, 1.7])),
        "spatial_scale_y": draw(st.sampled_from([1.0, 0.3, 1.7])),
        "input_pixel_offset": draw(st.sampled_from([0.0, 0.5, -0.3])),
        "output_pixel_offset": draw(st.sampled_from([0.0, -0.5, 0.2])),
        "out_of_bounds_input_value": draw(st.sampled_from([0.0, 3.0, -2.5])),
        "minimum_samples_per_output": least,
        "maximum_samples_per_output": draw(st.sampled_from([least, least + 2, UINT32_MAX])),
        "align_regions_to_corners": draw(st.integers(0, 1)),
    }
    size = tuple(draw(st.integers(1, most)) for most in (3, 3, 9, 9))
    kinds = tuple(draw(st.lists(st.sampled_from(KINDS), max_size=4)))
    dtype = draw(st.sampled_from([np.float16, np.float32, np.float64]))
    base = make_problem(draw(st.integers(0, 2**32 - 1)), np.dtype(dtype), {"spatial_scale": 1.0}, kinds, size)
    rois = base.rois.reshape((1,) * draw(st.integers(0, 2)) + base.rois.shape)
    indices = base.batch_indices.astype(draw(st.sampled_from([np.uint32, np.int64])))
    indices = indices.reshape((1,) * draw(st.integers(0, 3)) + indices.shape)
    return {"x": base.x, "rois": rois, "indices": indices, "attributes": attributes}


def gradient_of(problem: dict[str, Any]) -> tuple[Array, dict[str, Any]]:
    attributes = problem["attributes"]
    shape = (problem["rois"].size // 4, problem["x"].shape[1], *(attributes[name] for name in SIZES))
    dy = np.random.default_rng(5).uniform(-1, 1, shape).astype(problem["x"].dtype)
    return dy, {name: value for name, value in attributes.items() if name not in FORWARD_ONLY}


def far(problem: dict[str, Any]) -> float:
    return reach(problem["rois"], 2.0)


def terms(problem: dict[str, Any], dy: Array) -> int:
    return int(sum(problem["x"].shape[2:])) + int(np.prod(dy.shape[2:])) * max(len(dy), 1)


@given(dml_problems())
@SETTINGS
def test_forward_is_the_reference_rounded(problem: dict[str, Any]) -> None:
    assume(is_clear(problem))
    arrays = (problem["x"], problem["rois"], problem["indices"])
    (expected,) = evaluate(DML_ROI_ALIGN, arrays, problem["attributes"])
    assert expected is not None
    actual = ortops.dml_roi_align(*arrays, **problem["attributes"])
    assert_close(actual, expected, terms(problem, gradient_of(problem)[0]), 8.0, far(problem))


@given(dml_problems())
@SETTINGS
def test_gradients_are_the_reference_rounded(problem: dict[str, Any]) -> None:
    assume(is_clear(problem))
    dy, attributes = gradient_of(problem)
    arrays = (dy, problem["rois"], problem["indices"], np.array(problem["x"].shape))
    expected_dx, expected_drois = evaluate(DML_ROI_ALIGN_GRAD, (*arrays, problem["x"]), attributes)
    assert expected_dx is not None
    assert expected_drois is not None
    dx, drois = ortops.dml_roi_align_grad(*arrays, x=problem["x"], **attributes)
    assert dx is not None
    assert drois is not None
    count = terms(problem, dy)
    assert_close(dx, expected_dx, count, float(count), far(problem))
    # Offsets beyond a step make t as large as the offset is in samples of an axis.
    assert_close(drois, expected_drois, count, 40.0 * dy[0].size if len(dy) else 1.0, far(problem))


def test_samples_off_the_map_have_their_value_and_no_rounding_reaches_the_others() -> None:
    x = np.ones((1, 1, 4, 4), np.float32)
    sizes: dict[str, Any] = {"output_height": 1, "output_width": 3}
    for value in (1e30, np.inf, np.nan):
        y = ortops.dml_roi_align(x, [[0.3, 0.3, 12.3, 3.1]], [0], out_of_bounds_input_value=value, **sizes)
        assert y[0, 0, 0, 0] == pytest.approx(1, abs=1e-6)
        np.testing.assert_array_equal(y[0, 0, 0, 2], np.float32(value))


@pytest.mark.parametrize(
    "attributes",
    [
        {"input_pixel_offset": 1e38},
        {"output_pixel_offset": -3e38},
        {"spatial_scale_x": 3e38},
        {"minimum_samples_per_output": UINT32_MAX},
        {"minimum_samples_per_output": UINT32_MAX, "reduction_function": "max"},
        {
            "minimum_samples_per_output": UINT32_MAX,
            "align_regions_to_corners": True,
            "interpolation_mode": "nearest_neighbor",
        },
    ],
)
def test_huge_regions_offsets_scales_and_counts_take_no_more_than_the_map(attributes: dict[str, Any]) -> None:
    x = np.ones((1, 2, 20, 20))
    for roi in ([0, 0, 1e308, 1e308], [-1e308, -1e308, 1e308, 1e308], [5, 5, 5, 5], [1e308, 0, -1e308, 3]):
        y = ortops.dml_roi_align(x, [roi], [0], output_height=7, output_width=300, **attributes)
        assert np.all((y >= 0) & (y <= 1 + 1e-9))
        dx, _ = ortops.dml_roi_align_grad(np.ones_like(y), [roi], [0], x.shape, x=x, **attributes)
        assert dx is not None
        assert np.all(np.isfinite(dx))


@pytest.mark.parametrize("reduction", ["average", "max"])
def test_nearest_pixels_that_are_no_numbers_give_the_regions_no_gradient(reduction: str) -> None:
    x = np.full((1, 2, 5, 6), np.inf, np.float32)
    x[0, 1] = np.nan
    dy, rois = np.full((1, 2, 2, 2), np.nan, np.float32), np.array([[0.3, 0.2, 4.1, 3.7]], np.float32)
    attributes: dict[str, Any] = {"reduction_function": reduction, "interpolation_mode": "nearest_neighbor"}
    dx, drois = ortops.dml_roi_align_grad(dy, rois, [0], x.shape, x=x, **attributes)
    np.testing.assert_array_equal(drois, np.zeros((1, 4)))
    assert dx is not None
    assert np.isnan(dx).any()
    alone = ortops.dml_roi_align_grad(dy, rois, [0], x.shape, x=x, outputs=("drois",), **attributes)
    np.testing.assert_array_equal(alone[1], np.zeros((1, 4)))
