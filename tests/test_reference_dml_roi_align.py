"""What the reference of DirectML's operators computes, against published numbers, values by hand and a plain loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ortops.operators import BY_NAME
from ortops.operators.dml_roi_align import DML_ROI_ALIGN, DML_ROI_ALIGN_GRAD, UINT32_MAX
from ortops.reference import evaluate
from ortops.spec import Operator

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


def test_a_constant_map_stays_constant() -> None:
    y = forward(np.full((1, 2, 5, 5), 3.0), [[0, 0, 4, 4], [4.2, 3.1, 0.7, 1.3]], size=(2, 3))
    np.testing.assert_allclose(y, np.full((2, 2, 2, 3), 3.0), rtol=1e-15)


def test_the_gradient_of_an_average_keeps_its_sum() -> None:
    dx, _ = backward(np.ones((1, 1, 2, 2)), [0, 0, 4, 4], RAMP, **ONE_SAMPLE)
    assert dx.sum() == 4


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


# --- where samples lie ---------------------------------------------------------------------------------------------

COLUMNS = np.arange(9.0).reshape(1, 1, 1, 9)
"""At column x it is x."""


@pytest.mark.parametrize(("width", "count"), [(1.0, 1), (2.0, 1), (2.25, 2), (4.0, 2), (4.5, 3), (20.0, 4), (-3.0, 1)])
def test_the_samples_of_a_bin_are_its_pixels_rounded_up_within_limits(width: float, count: int) -> None:
    # On a ramp the maximum tells where the outermost sample lies, and so how many there are.
    roi = [4 - width / 4, 0.5, 4 + width * 3 / 4, 0.5]
    y = forward(COLUMNS, roi, size=(1, 2), reduction_function="max", maximum_samples_per_output=4)
    given = [forward(COLUMNS, roi, size=(1, 2), reduction_function="max", **samples(k)) for k in range(1, 6)]
    assert [k for k, other in enumerate(given, 1) if (y == other).all()] == [count]


def test_there_are_at_least_the_minimum_of_samples() -> None:
    roi = [1, 0.5, 3, 0.5]
    given: dict[str, Any] = {"minimum_samples_per_output": 3, "maximum_samples_per_output": 9}
    np.testing.assert_array_equal(forward(COLUMNS**2, roi, **given), forward(COLUMNS**2, roi, **samples(3)))


@pytest.mark.parametrize(
    ("count", "bins", "expected"),
    [(1, 1, [4]), (1, 2, [1, 7]), (1, 3, [1, 4, 7]), (2, 2, [2, 6]), (3, 1, [4])],
)
def test_regions_aligned_to_corners_begin_and_end_on_them(count: int, bins: int, expected: list[float]) -> None:
    # One sample lies at the centre; of n the outermost lie at 1 and 7.
    given: dict[str, Any] = {"align_regions_to_corners": 1, "input_pixel_offset": 0.0, "output_pixel_offset": 0.0}
    y = forward(COLUMNS, [1, 0, 7, 0], size=(1, bins), **given, **samples(count))
    np.testing.assert_allclose(y.ravel(), expected, rtol=1e-15)


def test_a_sample_alone_and_aligned_to_corners_ignores_the_output_offset() -> None:
    given: dict[str, Any] = {"align_regions_to_corners": 1, "input_pixel_offset": 0.0, "output_pixel_offset": -0.5}
    assert forward(COLUMNS, [1, 0, 7, 0], **given, **ONE_SAMPLE).item() == 4


def test_the_offsets_are_in_pixels_and_in_samples() -> None:
    given: dict[str, Any] = {"input_pixel_offset": 0.25, "output_pixel_offset": -1.0}
    # Three pixels a sample: at 1 + 3*1 - 0.25.
    assert forward(COLUMNS, [1, 0.25, 7, 0.25], size=(1, 2), **given, **ONE_SAMPLE)[0, 0, 0, 0] == 3.75


def test_each_axis_has_its_own_scale() -> None:
    y = forward(RAMP, [2, 2, 4, 4], spatial_scale_x=0.5, spatial_scale_y=0.75, **ONE_SAMPLE)
    assert y.item() == 4 * (0.75 * 3 - 0.5) + (0.5 * 3 - 0.5) + 1


def test_an_empty_region_is_a_point_and_an_inverted_one_a_mirror() -> None:
    np.testing.assert_array_equal(forward(RAMP, at(1.5, 2), size=(2, 3)), np.full((1, 1, 2, 3), 9))
    mirrored = forward(RAMP, [3, 4, 0, 1], size=(3, 3), **samples(2))
    upright = forward(RAMP, [0, 1, 3, 4], size=(3, 3), **samples(2))
    np.testing.assert_allclose(mirrored, upright[..., ::-1, ::-1], rtol=1e-15)


# --- what samples read ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("c", "nearest", "linear"),
    [(-1, 0, 0), (-0.5, 0, 0), (0.49, 0, 0.49), (0.5, 1, 0.5), (1.5, 2, 1.5), (2.5, 3, 2.5), (8.5, 8, 8), (9, 8, 8)],
)
def test_of_two_pixels_as_near_the_later_is_read(c: float, nearest: float, linear: float) -> None:
    assert forward(COLUMNS, at(0, c), interpolation_mode="nearest_neighbor").item() == nearest
    assert forward(COLUMNS, at(0, c)).item() == pytest.approx(linear, abs=1e-15)


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("y", "x", "is_inside"),
    [
        (-1, 2, True),
        (4, 4, True),
        (np.nextafter(-1, -2), 2, False),
        (2, np.nextafter(-1, -2), False),
        (np.nextafter(4, 5), 2, False),
        (2, np.nextafter(4, 5), False),
    ],
)
def test_the_map_ends_one_pixel_outside_its_centres(
    y: float, x: float, is_inside: bool, reduction: str, interpolation: str
) -> None:
    given: dict[str, Any] = {"reduction_function": reduction, "interpolation_mode": interpolation}
    given |= {"input_pixel_offset": 0.0, "out_of_bounds_input_value": 99.0}
    assert (forward(RAMP, [x, y, x, y], **given).item() != 99) == is_inside


def test_a_sample_out_of_bounds_counts_with_its_value() -> None:
    # At 3 and 7 on both axes: one in four is on the map.
    roi, given = [1.5, 1.5, 9.5, 9.5], samples(2)
    assert forward(RAMP, roi, **given).item() == 4
    assert forward(RAMP, roi, out_of_bounds_input_value=-8.0, **given).item() == (16 - 24) / 4
    assert forward(RAMP, roi, out_of_bounds_input_value=-8.0, reduction_function="max", **given).item() == 16
    assert forward(RAMP, roi, out_of_bounds_input_value=17.0, reduction_function="max", **given).item() == 17


@pytest.mark.parametrize("value", [math.inf, math.nan])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_an_unread_out_of_bounds_value_has_no_effect(reduction: str, value: float) -> None:
    given: dict[str, Any] = {"reduction_function": reduction, "out_of_bounds_input_value": value}
    assert forward(RAMP, at(1, 1), **given).item() == 6
    assert not np.isfinite(forward(RAMP, at(9, 9), **given).item())


def test_max_is_of_whole_samples() -> None:
    assert forward(RAMP, at(2.5, 2.5), reduction_function="max").item() == 13.5
    assert forward(-RAMP, at(2.5, 2.5), reduction_function="max").item() == -13.5


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nan_reaches_every_output_that_reads_it_and_no_other(reduction: str, interpolation: str) -> None:
    x = RAMP.copy()
    x[0, 0, 1, 1] = np.nan
    given: dict[str, Any] = {"reduction_function": reduction, "interpolation_mode": interpolation, **samples(2)}
    y = forward(x, [0, 0, 4, 4], size=(2, 2), **given)
    np.testing.assert_array_equal(np.isnan(y), [[[[True, False], [False, False]]]])


def test_a_sample_on_a_pixel_reads_no_other() -> None:
    x = np.array([[[[1.0, 2.0, np.inf]]]])
    assert forward(x, at(0, 1)).item() == 2
    assert forward(x, at(0, 2)).item() == np.inf


def test_each_region_reads_the_image_of_its_index() -> None:
    y = forward(np.concatenate([RAMP, RAMP + 100]), [at(2, 2), at(2, 2), at(1, 1)], [1, 0, 1])
    np.testing.assert_array_equal(y.ravel(), [111, 11, 106])


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


@pytest.mark.parametrize(
    ("c", "slope"), [(-1.5, 0), (-1, 0), (-0.5, 0), (0, 0), (0.5, 1), (1, 0), (1.5, 2), (2, 0), (2.5, 0), (3.5, 0)]
)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_the_slope_is_that_between_floor_and_ceil(reduction: str, c: float, slope: float) -> None:
    x = np.array([[[[1.0, 2.0, 4.0]] * 3]])
    _, drois = backward([[[[1]]]], at(1, c), x, reduction_function=reduction)
    np.testing.assert_array_equal(drois, [[slope / 2, 0, slope / 2, 0]])


def test_the_first_sample_wins_a_tie() -> None:
    # Samples at 0.75 and 1.75 on a flat map.
    given: dict[str, Any] = {"reduction_function": "max", **samples(2)}
    dx, _ = backward([[[[1]]]], [0.75, 0.75, 2.75, 2.75], np.ones((1, 1, 4, 4)), **given)
    np.testing.assert_array_equal(dx[0, 0, :2, :2], np.outer([0.25, 0.75], [0.25, 0.75]))
    assert dx.sum() == 1


def test_a_tie_is_decided_row_by_row() -> None:
    x = np.array([[[[0.0, 1.0], [1.0, 0.0]]]])
    dx, _ = backward([[[[1]]]], [0, 0, 2, 2], x, reduction_function="max", **samples(2))
    np.testing.assert_array_equal(dx[0, 0], [[0, 1], [0, 0]])


@pytest.mark.parametrize(
    ("pixels", "roi", "passed"),
    [
        (1.0, [-4.5, -4.5, 3.5, 3.5], True),
        (-1.0, [-4.5, -4.5, 3.5, 3.5], False),
        (0.0, [-4.5, -4.5, 3.5, 3.5], False),  # at -3 and 1: the first sample is out of bounds and ties
        (0.0, [1.5, 1.5, 9.5, 9.5], True),  # at 3 and 7: the first is inside
    ],
)
def test_out_of_bounds_counts_as_zero_in_the_choice_of_the_winner(pixels: float, roi: Any, passed: bool) -> None:
    given: dict[str, Any] = {"reduction_function": "max", **samples(2)}
    dx, drois = backward([[[[1]]]], roi, np.full((1, 1, 4, 4), pixels), **given)
    assert dx.sum() == float(passed)
    assert not drois.any()


def test_nan_wins_the_gradient_too() -> None:
    x = RAMP.copy()
    x[0, 0, 1, 2] = np.nan
    dx, _ = backward([[[[1]]]], [0, 0, 4, 4], x, reduction_function="max", **samples(4))
    assert dx[0, 0, 1, 2] == dx.sum() == 1


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


@pytest.mark.parametrize(
    ("roi", "ratio", "coordinates", "is_equal"),
    [
        ([2, 2, 2, 2], 0, "half_pixel", False),
        ([4, 3, 1, 1], 0, "half_pixel", False),
        ([2, 2, 2, 2], 2, "half_pixel", True),
        ([4, 3, 1, 1], 2, "half_pixel", True),
        ([2, 2, 2, 2], 2, "output_half_pixel", False),
        ([4, 3, 1, 1], 2, "output_half_pixel", False),
    ],
)
def test_empty_and_inverted_regions_differ_from_onnx(
    roi: list[float], ratio: int, coordinates: str, is_equal: bool
) -> None:
    # ONNX has no samples there for the adaptive ratio, and at least a pixel for output_half_pixel.
    y = forward(RAMP, roi, size=(2, 2), **settings(ratio, coordinates))
    other = onnx_forward(RAMP, roi, ratio, "avg", coordinates, (2, 2))
    assert bool((abs(y - other) < 1e-12).all()) == is_equal
    assert is_equal or (y != other).all()


def test_max_is_not_that_of_onnx() -> None:
    roi = [3.5, 3.5, 4.5, 4.5]
    y = forward(RAMP, roi, reduction_function="max", **settings(1))
    assert y.item() == 13.5
    assert onnx_forward(RAMP, roi, 1, "max", "half_pixel", (1, 1)).item() == 4


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


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True)])
def test_outputs_that_are_not_wanted_are_none(wanted: tuple[bool, bool], interpolation: str) -> None:
    inputs = [np.ones((1, 1, 1, 1)), np.array([at(1.5, 2.5)]), np.array([0]), np.array(RAMP.shape), RAMP]
    given = {"interpolation_mode": interpolation}
    found = evaluate(DML_ROI_ALIGN_GRAD, inputs, given, wanted)
    assert [result is not None for result in found] == list(wanted)
    for result, full in zip(found, evaluate(DML_ROI_ALIGN_GRAD, inputs, given), strict=True):
        assert full is not None
        assert result is None or (result == full).all()


def test_dx_of_the_average_needs_no_input_tensor() -> None:
    inputs = [np.ones((1, 1, 1, 1)), np.array([at(1, 2)]), np.array([0]), np.array(RAMP.shape)]
    dx, _ = evaluate(DML_ROI_ALIGN_GRAD, inputs, {}, [True, False])
    assert dx is not None
    assert dx[0, 0, 1, 2] == dx.sum() == 1


@pytest.mark.parametrize("shape", [(1, 3, 5, 5), (0, 3, 5, 5), (1, 0, 5, 5), (2, 3, 0, 5)])
def test_no_regions_give_empty_results(shape: tuple[int, ...]) -> None:
    x = np.ones(shape)
    assert forward(x, [], size=(2, 3)).shape == (0, shape[1], 2, 3)
    dx, drois = backward(np.ones((0, shape[1], 2, 3)), [], x)
    np.testing.assert_array_equal(dx, np.zeros(shape))
    assert drois.shape == (0, 4)


# --- refusals ------------------------------------------------------------------------------------------------------


def split(inputs: dict[str, Any], changes: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    changed = inputs | {name: value for name, value in changes.items() if name in inputs}
    return list(changed.values()), {name: value for name, value in changes.items() if name not in inputs}


def forward_call(**changes: Any) -> tuple[list[Any], dict[str, Any]]:
    return split({"x": RAMP, "rois": np.array([[0.0, 0, 2, 2]] * 2), "indices": np.zeros(2, np.uint32)}, changes)


def gradient_call(**changes: Any) -> tuple[list[Any], dict[str, Any]]:
    inputs: dict[str, Any] = {"dy": np.ones((2, 1, 1, 1)), "rois": np.array([[0.0, 0, 2, 2]] * 2)}
    inputs |= {"indices": np.zeros(2, np.uint32), "x_shape": np.array([1, 1, 4, 4]), "x": RAMP}
    return split(inputs, changes)


BOTH: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"reduction_function": "avg"}, ValueError, "reduction_function = 'avg': must be one of 'average', 'max'"),
    (
        {"interpolation_mode": "nearest"},
        ValueError,
        "interpolation_mode = 'nearest': must be one of 'linear', 'nearest_neighbor'",
    ),
    ({"spatial_scale_x": 0.0}, ValueError, "spatial_scale_x = 0.0: must be finite and > 0"),
    ({"spatial_scale_y": math.nan}, ValueError, "spatial_scale_y = nan: must be finite and > 0"),
    ({"input_pixel_offset": math.inf}, ValueError, "input_pixel_offset = inf: must be finite"),
    ({"output_pixel_offset": math.nan}, ValueError, "output_pixel_offset = nan: must be finite"),
    (
        {"minimum_samples_per_output": 0},
        ValueError,
        "minimum_samples_per_output = 0: must be >= 1 and <= 4294967295",
    ),
    (
        {"maximum_samples_per_output": 2**32},
        ValueError,
        "maximum_samples_per_output = 4294967296: must be >= 1 and <= 4294967295",
    ),
    (
        {"minimum_samples_per_output": 3, "maximum_samples_per_output": 2},
        ValueError,
        "minimum_samples_per_output = 3: must be <= maximum_samples_per_output = 2",
    ),
    ({"align_regions_to_corners": 2}, ValueError, "align_regions_to_corners = 2: must be >= 0 and <= 1"),
    ({"sampling_ratio": 1}, TypeError, "has no attribute sampling_ratio"),
    ({"rois": np.ones((2, 5))}, ValueError, "ROITensor has shape [2, 5]: shape[1] must be 4"),
    ({"rois": np.ones((2, 1, 4))}, ValueError, "ROITensor has shape [2, 1, 4]: shape[0] must be 1"),
    ({"rois": np.ones((1, 1, 1, 2, 4))}, ValueError, "ROITensor has shape [1, 1, 1, 2, 4]: must have rank 2 or 3 or 4"),
    ({"rois": None}, ValueError, "ROITensor is missing"),
    ({"rois": np.ones((2, 4), np.float32)}, TypeError, "ROITensor has type float32: must be float64, as "),
    ({"indices": np.zeros((2, 1), np.uint32)}, ValueError, "BatchIndicesTensor has shape [2, 1]: shape[0] must be 1"),
    ({"indices": np.zeros(1, np.uint32)}, ValueError, "BatchIndicesTensor has shape [1]: shape[0] must be 2"),
    ({"indices": np.zeros(2, np.int32)}, TypeError, "BatchIndicesTensor has type int32: must be one of uint32, int64"),
    (
        {"indices": np.array([0, UINT32_MAX], np.uint32)},
        ValueError,
        "BatchIndicesTensor[1] is 4294967295: must be >= 0 and < 1 (N of ",
    ),
    ({"indices": np.array([-1, 0])}, ValueError, "BatchIndicesTensor[0] is -1: must be >= 0 and < 1 (N of "),
    (
        {"rois": np.array([[[0.0, 0, 2, 2], [0, 0, math.nan, 2]]])},
        ValueError,
        "ROITensor[1] is [0.0, 0.0, nan, 2.0]: must be finite",
    ),
    (
        {"rois": np.array([[-math.inf, 0, 2, 2], [0, 0, 2, 2]])},
        ValueError,
        "ROITensor[0] is [-inf, 0.0, 2.0, 2.0]: must be finite",
    ),
]
NO_PIXELS = "both must be >= 1 where there are RoIs"
FORWARD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"output_height": 0}, ValueError, "output_height = 0: must be >= 1"),
    ({"output_width": -2}, ValueError, "output_width = -2: must be >= 1"),
    ({"x": RAMP[0]}, ValueError, "InputTensor has shape [1, 4, 4]: must have rank 4, [N, C, H, W]"),
    ({"x": np.ones((1, 1, 0, 5))}, ValueError, f"InputTensor has H = 0, W = 5: {NO_PIXELS}"),
    ({"x": np.ones((1, 1, 5, 0))}, ValueError, f"InputTensor has H = 5, W = 0: {NO_PIXELS}"),
]
GRADIENT: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"out_of_bounds_input_value": 0.0}, TypeError, "DmlRoiAlignGrad has no attribute out_of_bounds_input_value"),
    (
        {"dy": np.ones((2, 1, 0, 1))},
        ValueError,
        "InputGradientTensor has shape [2, 1, 0, 1]: output height and width must be >= 1",
    ),
    ({"dy": np.ones((3, 1, 1, 1))}, ValueError, "ROITensor has shape [2, 4]: shape[0] must be 3"),
    ({"x_shape": np.array([1, 1, 3, 4])}, ValueError, "InputTensor has shape [1, 1, 4, 4]: shape[2] must be 3"),
    (
        {"x_shape": np.array([1, 1, 0, 4]), "x": RAMP[:, :, :0]},
        ValueError,
        f"x_shape has H = 0, W = 4: {NO_PIXELS}",
    ),
    ({"x": None}, ValueError, "InputTensor is missing: OutputROIGradientTensor requires it"),
    (
        {"x": None, "interpolation_mode": "nearest_neighbor"},
        ValueError,
        "InputTensor is missing: OutputROIGradientTensor requires it",
    ),
    (
        {"x": None, "reduction_function": "max"},
        ValueError,
        "InputTensor is missing: reduction_function 'max' requires it",
    ),
]


@pytest.mark.parametrize(
    ("operator", "call", "changes", "error", "message"),
    [
        *((DML_ROI_ALIGN, forward_call, *refusal) for refusal in BOTH + FORWARD),
        *((DML_ROI_ALIGN_GRAD, gradient_call, *refusal) for refusal in BOTH + GRADIENT),
    ],
)
def test_a_refusal_names_the_argument_its_value_and_the_rule(
    operator: Operator,
    call: Callable[..., tuple[list[Any], dict[str, Any]]],
    changes: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    evaluate(operator, *call())
    with pytest.raises(error) as caught:
        evaluate(operator, *call(**changes))
    assert message in str(caught.value)


def test_at_least_one_output_is_wanted() -> None:
    with pytest.raises(ValueError, match="DmlRoiAlignGrad needs at least one output"):
        evaluate(DML_ROI_ALIGN_GRAD, *gradient_call(), [False, False])
