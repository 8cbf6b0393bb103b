"""What the reference of DirectML's operators computes, against published numbers, values by hand and a plain loop."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ortops.operators import BY_NAME
from ortops.operators.dml_roi_align import DML_ROI_ALIGN, DML_ROI_ALIGN_GRAD, UINT32_MAX
from ortops.reference import evaluate

Array = npt.NDArray[np.float64]

RAMP = (np.arange(16.0) + 1).reshape(1, 1, 4, 4)
"""At (y, x) it is 4y + x + 1, between pixels too."""

REDUCTIONS = ("average", "max")
INTERPOLATIONS = ("linear", "nearest_neighbor")
ONE_SAMPLE: dict[str, Any] = {"minimum_samples_per_output": 1, "maximum_samples_per_output": 1}


def samples(count: int) -> dict[str, Any]:
    return {"minimum_samples_per_output": count, "maximum_samples_per_output": count}


def forward(x: Any, rois: Any, indices: Any = None, *, size: Sequence[int] = (1, 1), **attributes: Any) -> Array:
    rois = np.asarray(rois, np.float64).reshape(-1, 4)
    indices = np.zeros(len(rois), np.uint32) if indices is None else np.asarray(indices, np.uint32)
    attributes |= {"output_height": size[0], "output_width": size[1]}
    (y,) = evaluate(DML_ROI_ALIGN, [np.asarray(x, np.float64), rois, indices], attributes)
    assert y is not None
    return y


def backward(dy: Any, rois: Any, x: Any, indices: Any = None, **attributes: Any) -> tuple[Array, Array]:
    rois = np.asarray(rois, np.float64).reshape(-1, 4)
    x = np.asarray(x, np.float64)
    indices = np.zeros(len(rois), np.uint32) if indices is None else np.asarray(indices, np.uint32)
    inputs = [np.asarray(dy, np.float64), rois, indices, np.array(x.shape), x]
    dx, drois = evaluate(DML_ROI_ALIGN_GRAD, inputs, attributes)
    assert dx is not None
    assert drois is not None
    return dx, drois


def at(y: float, x: float) -> list[float]:
    """A RoI of size 0 whose samples lie at (y, x) where the input's pixel offset is 0.5."""
    return [x + 0.5, y + 0.5, x + 0.5, y + 0.5]


# --- published numbers ---------------------------------------------------------------------------------------------

QUARTERS = [[0, 0, 2, 2], [2, 0, 4, 2], [0, 2, 2, 4], [2, 2, 4, 4]]
QUARTERS_DY = (np.arange(12.0) + 1).reshape(4, 1, 1, 3)


def test_the_worked_example_of_the_gradient_page_holds() -> None:
    # DML_ROI_ALIGN_GRAD_OPERATOR_DESC: four crops of 2 x 2 pixels that do not overlap, each to 1 x 3 by nearest pixel.
    given: dict[str, Any] = {"interpolation_mode": "nearest_neighbor", "output_pixel_offset": 0.0, **ONE_SAMPLE}
    dx, drois = backward(QUARTERS_DY, QUARTERS, RAMP, **given)
    np.testing.assert_array_equal(dx[0, 0], [[3, 3, 9, 6], [0] * 4, [15, 9, 21, 12], [0] * 4])
    np.testing.assert_array_equal(drois, np.zeros((4, 4)))


def test_the_same_crops_by_linear_interpolation() -> None:
    # By hand: rows in the middle of two pixels; columns at 0 (from -1/6), 1/2 and 7/6 of each crop.
    y = forward(RAMP, QUARTERS, size=(1, 3), **ONE_SAMPLE)
    left, right = np.array([3, 3.5, 25 / 6]), np.array([29 / 6, 5.5, 6])
    np.testing.assert_allclose(y[:, 0, 0], [left, right, left + 8, right + 8], rtol=1e-15)
    dx, drois = backward(QUARTERS_DY, QUARTERS, RAMP, **ONE_SAMPLE)
    top, bottom = np.array([12, 25, 38, 51]) / 12, np.array([66, 79, 92, 105]) / 12
    np.testing.assert_allclose(dx[0, 0], [top, top, bottom, bottom], rtol=1e-14)
    expected = [[1.5, 12, 3.5, 12], [35 / 6, 30, 19 / 6, 30], [5.5, 48, 11.5, 48], [83 / 6, 66, 43 / 6, 66]]
    np.testing.assert_allclose(drois, expected, rtol=1e-14)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_empty_regions_read_one_point_as_directml_does(reduction: str) -> None:
    # onnxruntime's roialign_test.cc, where it says that DirectML has the correct outputs; coordinates from -0.9375.
    x = np.arange(75.0).reshape(1, 3, 5, 5)
    rois = [[7, 5, 7, 5], [-15] * 4, [-10, 21, -10, 21], [13, 8, 13, 8], [-14, 19, -14, 19]]
    given: dict[str, Any] = {"spatial_scale_x": 1 / 16, "spatial_scale_y": 1 / 16, "input_pixel_offset": 0.0}
    y = forward(x, rois, size=(3, 4), reduction_function=reduction, **given, **samples(2))
    constants = np.add.outer([2, 0, 6.5625, 3.3125, 5.9375], [0, 25, 50])
    np.testing.assert_allclose(y, np.broadcast_to(constants[..., None, None], y.shape), rtol=1e-14)


def test_a_region_of_two_by_two_pixels_to_four_by_four_as_directml_does() -> None:
    # onnx issue 3428; image and region follow from the numbers.
    x = np.add.outer(10 * np.arange(4.0), np.arange(4.0))[None, None]
    expected = np.add.outer(5 * np.arange(4.0), [8.25, 8.75, 9.25, 9.75])
    np.testing.assert_allclose(forward(x, [1, 1, 3, 3], size=(4, 4))[0, 0], expected, rtol=1e-15)


# --- an independent loop -------------------------------------------------------------------------------------------

DEFAULTS: dict[str, Any] = {attribute.name: attribute.default for attribute in DML_ROI_ALIGN.attributes}


def plain_axis(r1: float, r2: float, bins: int, scale: float, given: dict[str, Any]) -> list[list[tuple[float, float]]]:
    """By bin, every sample's share of the region and its coordinate."""
    a, b = r1 * scale, r2 * scale
    k = math.ceil((b - a) / bins)
    k = min(max(k, given["minimum_samples_per_output"]), given["maximum_samples_per_output"])
    n = bins * k
    shares = [(s - given["output_pixel_offset"]) / n for s in range(n)]
    if given["align_regions_to_corners"]:
        shares = [0.5 if n == 1 else (s - given["output_pixel_offset"]) / (n - 1) for s in range(n)]
    located = [(t, a + (b - a) * t - given["input_pixel_offset"]) for t in shares]
    return [located[p * k : (p + 1) * k] for p in range(bins)]


def plain_weights(c: float, length: int, interpolation: str) -> tuple[Array, Array]:
    """Of each pixel, the weight at `c` and its slope."""
    weights, slopes = np.zeros(length), np.zeros(length)
    if interpolation == "nearest_neighbor":
        weights[int(np.clip(np.floor(c + 0.5), 0, length - 1))] = 1
        return weights, slopes
    clamped = np.clip(c, 0, length - 1)
    low, high = int(np.floor(clamped)), int(np.ceil(clamped))
    weights[low] += 1 - (clamped - low)
    weights[high] += clamped - low
    slopes[high] += 1
    slopes[low] -= 1
    return weights, slopes


def plain(x: Array, roi: Array, dy: Array, given: dict[str, Any]) -> tuple[Array, Array, Array]:
    """Output, dx and drois of one region on image 0, every sample visited."""
    given = DEFAULTS | given
    _, channels, height, width = x.shape
    y, dx, droi = np.zeros(dy.shape), np.zeros(x.shape), np.zeros(4)
    rows = plain_axis(roi[1], roi[3], dy.shape[2], given["spatial_scale_y"], given)
    columns = plain_axis(roi[0], roi[2], dy.shape[3], given["spatial_scale_x"], given)
    for c in range(channels):
        for p, row in enumerate(rows):
            for q, column in enumerate(columns):
                values: list[float] = []
                ranks: list[float] = []
                found: list[tuple[Any, ...] | None] = []
                for ty, cy in row:
                    for tx, cx in column:
                        if not (-1 <= cy <= height and -1 <= cx <= width):
                            values.append(given["out_of_bounds_input_value"])
                            ranks.append(0.0)
                            found.append(None)
                            continue
                        wy, sy = plain_weights(cy, height, given["interpolation_mode"])
                        wx, sx = plain_weights(cx, width, given["interpolation_mode"])
                        values.append(wy @ x[0, c] @ wx)
                        ranks.append(values[-1])
                        found.append((np.outer(wy, wx), sy @ x[0, c] @ wx, wy @ x[0, c] @ sx, ty, tx))
                is_max = given["reduction_function"] == "max"
                y[0, c, p, q] = max(values) if is_max else sum(values) / len(values)
                chosen = [found[int(np.argmax(ranks))]] if is_max else found
                for sample in chosen:
                    if sample is None:
                        continue
                    weights, slope_y, slope_x, ty, tx = sample
                    g = dy[0, c, p, q] / len(chosen)
                    dx[0, c] += g * weights
                    slope_y, slope_x = slope_y * given["spatial_scale_y"], slope_x * given["spatial_scale_x"]
                    droi += g * np.array([slope_x * (1 - tx), slope_y * (1 - ty), slope_x * tx, slope_y * ty])
    return y, dx, droi[None]


@pytest.mark.parametrize("to_corners", [0, 1])
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_output_and_gradients_equal_a_loop_over_every_sample(
    reduction: str, interpolation: str, to_corners: int
) -> None:
    rng = np.random.default_rng(1)
    for case in range(50):
        height, width, bins_y, bins_x = (int(length) for length in rng.integers(1, [7, 7, 4, 4]))
        # A quarter grid puts samples on pixels and borders; random data keep maxima apart.
        x, roi = rng.standard_normal((1, 2, height, width)), rng.integers(-12, 36, 4) / 4
        if case % 4 == 0:
            roi[2] = roi[0]
        minimum = int(rng.integers(1, 3))
        given: dict[str, Any] = {
            "reduction_function": reduction,
            "interpolation_mode": interpolation,
            "align_regions_to_corners": to_corners,
            "spatial_scale_x": float(rng.choice([0.5, 1.0, 2.0])),
            "spatial_scale_y": float(rng.choice([0.5, 1.0, 2.0])),
            "input_pixel_offset": float(rng.choice([0.0, 0.5, -0.25])),
            "output_pixel_offset": float(rng.choice([0.0, -0.5, 0.25])),
            "minimum_samples_per_output": minimum,
            "maximum_samples_per_output": minimum + int(rng.integers(0, 4)),
        }
        dy, fill = rng.standard_normal((1, 2, bins_y, bins_x)), float(rng.choice([-7.0, 0.0, 0.5]))
        expected = plain(x, roi, dy, given | {"out_of_bounds_input_value": fill})
        y = forward(x, roi, size=(bins_y, bins_x), out_of_bounds_input_value=fill, **given)
        for found, wanted in zip((y, *backward(dy, roi, x, **given)), expected, strict=True):
            message = f"case {case}: roi {roi}, x {x.shape}, dy {dy.shape}, fill {fill}, {given}"
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12, err_msg=message)


@pytest.mark.parametrize("roi", [[-300.3, -290.1, 90.2, 9.7], [90.6, 6.1, -200.2, -270.4]])
def test_no_sample_inside_the_map_is_skipped(roi: list[float]) -> None:
    x, dy = np.random.default_rng(2).standard_normal((1, 1, 4, 5)), np.ones((1, 1, 1, 2))
    given = samples(200)
    expected = plain(x, np.array(roi), dy, given)
    assert expected[1].any()
    y = forward(x, roi, size=(1, 2), **given)
    for found, wanted in zip((y, *backward(dy, roi, x, **given)), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)


# --- what samples read ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.inf, math.nan])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_an_unread_out_of_bounds_value_has_no_effect(reduction: str, value: float) -> None:
    given: dict[str, Any] = {"reduction_function": reduction, "out_of_bounds_input_value": value}
    assert forward(RAMP, at(1, 1), **given).item() == 6
    assert not np.isfinite(forward(RAMP, at(9, 9), **given).item())


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nan_reaches_every_output_that_reads_it_and_no_other(reduction: str, interpolation: str) -> None:
    x = RAMP.copy()
    x[0, 0, 1, 1] = np.nan
    given: dict[str, Any] = {"reduction_function": reduction, "interpolation_mode": interpolation, **samples(2)}
    y = forward(x, [0, 0, 4, 4], size=(2, 2), **given)
    np.testing.assert_array_equal(np.isnan(y), [[[[True, False], [False, False]]]])


# --- gradients -----------------------------------------------------------------------------------------------------

REGIONS = np.array(
    [[0.3, 1.1, 4.2, 5.7], [-2.3, -1.4, 2.1, 3.3], [3.4, 2.2, 9.1, 8.3], [4.3, 4.6, 0.9, 1.2], [2.2, 2.4, 2.2, 2.6]]
)
"""Inside, half outside before and after the map, mirrored, empty along x."""


@pytest.mark.parametrize("to_corners", [0, 1])
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_output_times_dy_is_data_times_dx(reduction: str, interpolation: str, to_corners: int) -> None:
    rng = np.random.default_rng(3)
    x, dy = rng.standard_normal((2, 3, 6, 5)), rng.standard_normal((5, 3, 2, 3))
    given: dict[str, Any] = {"reduction_function": reduction, "interpolation_mode": interpolation}
    given |= {"align_regions_to_corners": to_corners, "spatial_scale_x": 0.75, "maximum_samples_per_output": 3}
    indices = [0, 1, 1, 0, 1]
    y = forward(x, REGIONS, indices, size=(2, 3), **given)
    dx, _ = backward(dy, REGIONS, x, indices, **given)
    assert (y * dy).sum() == pytest.approx((x * dx).sum(), rel=1e-13, abs=1e-13)


def is_smooth(roi: Array, bins: Sequence[int], given: dict[str, Any]) -> bool:
    """Whether no sample is at a pixel or a border and no size at one where the number of samples changes."""
    margin, given = 1e-3, DEFAULTS | given
    for axis, scale in enumerate((given["spatial_scale_x"], given["spatial_scale_y"])):
        p = bins[1 - axis]
        pixels = (roi[axis + 2] - roi[axis]) * scale / p
        located = plain_axis(roi[axis], roi[axis + 2], p, scale, given)
        near = [pixels, *(c for located_bin in located for _, c in located_bin)]
        if any(abs(c - round(c)) < margin for c in near):
            return False
    return True


@pytest.mark.parametrize("to_corners", [0, 1])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_drois_is_the_slope_of_the_output(reduction: str, to_corners: int) -> None:
    rng = np.random.default_rng(4)
    x, bins, h = rng.standard_normal((1, 2, 6, 5)), (2, 3), 1e-6
    given: dict[str, Any] = {"reduction_function": reduction, "align_regions_to_corners": to_corners}
    given |= {"spatial_scale_x": 0.5, "spatial_scale_y": 1.25, "output_pixel_offset": -0.375}
    drawn = [roi for roi in rng.uniform(-4, 12, (200, 4)) if is_smooth(roi, bins, given)][:12]
    assert len(drawn) == 12
    assert any(roi[0] > roi[2] for roi in drawn)
    for roi in drawn:
        dy = rng.standard_normal((1, 2, *bins))
        _, drois = backward(dy, roi, x, **given)
        for k, step in enumerate(np.eye(4) * h):
            difference = forward(x, roi + step, size=bins, **given) - forward(x, roi - step, size=bins, **given)
            expected = (difference * dy).sum() / (2 * h)
            assert drois[0, k] == pytest.approx(expected, abs=1e-7), f"coordinate {k} of {roi}: {given}"


def test_drois_is_that_of_the_pages_pseudo_code_where_the_scale_is_the_size() -> None:
    rng = np.random.default_rng(5)
    height, width, bins_y, bins_x = 4, 8, 2, 3
    x, dy = rng.standard_normal((height, width)), rng.standard_normal((bins_y, bins_x))
    x1, y1, x2, y2 = roi = [0.0625, 0.25, 0.875, 0.75]
    gradient = np.zeros(4)
    for p in range(bins_y):
        for q in range(bins_x):
            # "coordinate": of the sample in the region, the region stretched to the input's size.
            coordinate_y, coordinate_x = (p + 0.5) / bins_y * height, (q + 0.5) / bins_x * width
            cy = y1 * height + (y2 - y1) * coordinate_y - 0.5
            cx = x1 * width + (x2 - x1) * coordinate_x - 0.5
            top, left, ly, lx = math.floor(cy), math.floor(cx), cy % 1, cx % 1
            bottom, right = math.ceil(cy), math.ceil(cx)
            slope_x = (1 - ly) * (x[top, right] - x[top, left]) + ly * (x[bottom, right] - x[bottom, left])
            slope_y = (1 - lx) * (x[bottom, left] - x[top, left]) + lx * (x[bottom, right] - x[top, right])
            gradient[0] += dy[p, q] * slope_x * (width - coordinate_x)
            gradient[1] += dy[p, q] * slope_y * (height - coordinate_y)
            gradient[2] += dy[p, q] * slope_x * coordinate_x
            gradient[3] += dy[p, q] * slope_y * coordinate_y
    given: dict[str, Any] = {"spatial_scale_x": float(width), "spatial_scale_y": float(height), **ONE_SAMPLE}
    _, drois = backward([[dy]], roi, [[x]], **given)
    np.testing.assert_allclose(drois, [gradient], rtol=1e-12)


def test_the_region_gradient_of_nearest_is_zero_whatever_the_data() -> None:
    for special in (np.inf, np.nan):
        _, drois = backward([[[[special]]]], [0, 0, 4, 4], RAMP * special, interpolation_mode="nearest_neighbor")
        np.testing.assert_array_equal(drois, np.zeros((1, 4)))


# --- beside ONNX's operator ----------------------------------------------------------------------------------------


def onnx_forward(x: Array, rois: Any, ratio: int, mode: str, coordinates: str, size: Sequence[int]) -> Array:
    rois = np.asarray(rois, np.float64).reshape(-1, 4)
    attributes = {"sampling_ratio": ratio, "mode": mode, "coordinate_transformation_mode": coordinates}
    attributes |= {"output_height": size[0], "output_width": size[1], "spatial_scale": 0.75}
    (y,) = evaluate(BY_NAME["RoiAlign_16"], [x, rois, np.zeros(len(rois), np.int64)], attributes)
    assert y is not None
    return y


def settings(ratio: int, coordinates: str = "half_pixel") -> dict[str, Any]:
    """The attributes with which this operator stands for ONNX's."""
    given: dict[str, Any] = {"spatial_scale_x": 0.75, "spatial_scale_y": 0.75}
    given |= {"input_pixel_offset": 0.5 if coordinates == "half_pixel" else 0.0, "output_pixel_offset": -0.5}
    return given | (samples(ratio) if ratio else {})


@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("ratio", [0, 1, 2, 3])
def test_ordinary_regions_are_those_of_onnx(ratio: int, coordinates: str) -> None:
    rng = np.random.default_rng(6)
    x, starts = rng.standard_normal((1, 2, 7, 6)), rng.uniform(-3, 6, (30, 2))
    # At least a pixel in size: ONNX's output_half_pixel makes smaller ones as large.
    rois = np.concatenate([starts, starts + rng.uniform(1.5, 8, (30, 2))], axis=1)
    y = forward(x, rois, size=(2, 3), **settings(ratio, coordinates))
    np.testing.assert_allclose(y, onnx_forward(x, rois, ratio, "avg", coordinates, (2, 3)), rtol=0, atol=1e-13)


# --- huge regions --------------------------------------------------------------------------------------------------

MAX32, MAX64 = float(np.finfo(np.float32).max), float(np.finfo(np.float64).max)


@pytest.mark.parametrize("to_corners", [0, 1])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    "roi",
    [
        [0, 0, 1e9, 1e9],
        [-1e18, -1e18, 1e18, 1e18],
        [1e30, 3.0, -1e30, 1e5],
        [-MAX32, -MAX32, MAX32, MAX32],
        [-MAX64, -MAX64, MAX64, MAX64],
        [MAX64, 0, MAX64 / 2, 1e300],
        [MAX64 / 2, 0, MAX64, 1e300],
    ],
)
def test_a_huge_region_takes_little_time(roi: list[float], reduction: str, to_corners: int) -> None:
    x = np.random.default_rng(7).standard_normal((1, 1, 8, 8))
    given: dict[str, Any] = {"reduction_function": reduction, "align_regions_to_corners": to_corners}
    before = time.process_time()
    y = forward(x, roi, size=(1, 2), **given)
    dx, drois = backward(np.ones((1, 1, 1, 2)), roi, x, **given)
    assert time.process_time() - before < 2
    assert np.isfinite(y).all()
    assert np.isfinite(dx).all()
    assert np.isfinite(drois).all()


def test_a_huge_region_is_mostly_out_of_bounds() -> None:
    # At 0 ... 8 on each axis the samples are inside.
    assert forward(np.ones((1, 1, 8, 8)), [0, 0, 1e9, 1e9]).item() == 81 / 1e18
    y = forward(np.ones((1, 1, 8, 8)), [0, 0, 1e9, 1e9], out_of_bounds_input_value=2.0)
    assert y.item() == pytest.approx(2, rel=1e-15)
    # The most samples are 233 pixels apart: of those, the first alone is inside, at -0.5.
    y = forward(np.ones((1, 1, 8, 8)), [0, 0, 1e12, 1e12], output_pixel_offset=0.0)
    assert y.item() == 1 / UINT32_MAX**2


# --- evaluate ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index_type", [np.uint32, np.int64])
@pytest.mark.parametrize(("roi_axes", "index_axes"), [(0, 0), (1, 3), (2, 1), (2, 3)])
def test_leading_axes_of_length_one_are_dropped_and_kept_in_drois(
    roi_axes: int, index_axes: int, index_type: Any
) -> None:
    rng = np.random.default_rng(8)
    x, dy = rng.standard_normal((2, 2, 6, 5)), rng.standard_normal((5, 2, 2, 3))
    indices = [0, 1, 1, 0, 1]
    rois = REGIONS.reshape((1,) * roi_axes + REGIONS.shape)
    shaped = np.array(indices, index_type).reshape((1,) * index_axes + (5,))
    (y,) = evaluate(DML_ROI_ALIGN, [x, rois, shaped], {"output_height": 2, "output_width": 3})
    dx, drois = evaluate(DML_ROI_ALIGN_GRAD, [dy, rois, shaped, np.array(x.shape), x], {})
    expected_dx, expected_drois = backward(dy, REGIONS, x, indices)
    np.testing.assert_array_equal(y, forward(x, REGIONS, indices, size=(2, 3)))
    np.testing.assert_array_equal(dx, expected_dx)
    np.testing.assert_array_equal(drois, expected_drois.reshape(rois.shape))
