"""What the reference computes, against values that follow from the definition by hand or by an independent loop."""

from __future__ import annotations

import math
import sys
import time
import types
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from ortops.operators import BY_NAME
from ortops.reference import evaluate
from ortops.reference.sampling import OnnxAxis, axes_of_roi, coordinate, is_inside, points_inside, taps
from ortops.spec import Operator, Tensor

Array = npt.NDArray[np.float64]

ROI_ALIGN_10, ROI_ALIGN_16, ROI_ALIGN_22 = (BY_NAME[f"RoiAlign_{opset}"] for opset in (10, 16, 22))
ROI_ALIGN_GRAD = BY_NAME["RoiAlignGrad"]

RAMP = (np.arange(25.0) + 1).reshape(1, 1, 5, 5)
"""At (y, x) it is 5y + x + 1, between pixels too."""

MODES = ("avg", "max", "max_interpolated")
COORDINATES = ("half_pixel", "output_half_pixel")


def forward(x: Any, rois: Any, batch_indices: Any = None, *, size: Sequence[int] = (1, 1), **attributes: Any) -> Array:
    rois = np.asarray(rois, np.float64).reshape(-1, 4)
    indices = np.zeros(len(rois), np.int64) if batch_indices is None else np.asarray(batch_indices, np.int64)
    attributes |= {"output_height": size[0], "output_width": size[1]}
    (y,) = evaluate(ROI_ALIGN_22, [np.asarray(x, np.float64), rois, indices], attributes)
    assert y is not None
    return y


def backward(dy: Any, rois: Any, x: Any, batch_indices: Any = None, **attributes: Any) -> tuple[Array, Array]:
    rois = np.asarray(rois, np.float64).reshape(-1, 4)
    x = np.asarray(x, np.float64)
    indices = np.zeros(len(rois), np.int64) if batch_indices is None else np.asarray(batch_indices, np.int64)
    dx, drois = evaluate(ROI_ALIGN_GRAD, [np.asarray(dy, np.float64), rois, indices, np.array(x.shape), x], attributes)
    assert dx is not None
    assert drois is not None
    return dx, drois


def at(y: float, x: float) -> list[float]:
    """A RoI of size 0 whose samples lie at (y, x) where coordinates are half_pixel."""
    return [x + 0.5, y + 0.5, x + 0.5, y + 0.5]


# --- an independent loop -------------------------------------------------------------------------------------------


def all_coordinates(r1: float, r2: float, bins: int, ratio: int, scale: float, mode: str) -> list[list[float]]:
    """Every sample's coordinate, by bin."""
    half = mode == "half_pixel"
    start = r1 * scale - (0.5 if half else 0.0)
    size = (r2 - r1) * scale if half else max((r2 - r1) * scale, 1.0)
    g = ratio or max(math.ceil(size / bins), 0)
    return [[start + p * size / bins + (i + 0.5) * size / (bins * g) for i in range(g)] for p in range(bins)]


def plain_bin(ys: Sequence[float], xs: Sequence[float], image: Array, mode: str) -> tuple[float, dict[Any, float]]:
    """One output and its derivative by each pixel, every sample visited and corners clipped to the map."""
    height, width = image.shape
    total, best = 0.0, -math.inf
    summed: dict[Any, float] = {}
    weights_of_best: dict[Any, float] = {}
    for y in ys:
        for x in xs:
            products: list[tuple[float, dict[Any, float]]] = []
            if -1 <= y <= height and -1 <= x <= width:
                cy, cx = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
                for h in (int(cy), int(cy) + 1):
                    for w in (int(cx), int(cx) + 1):
                        weight = (1 - abs(cy - h)) * (1 - abs(cx - w))
                        pixel = (min(h, height - 1), min(w, width - 1))
                        products.append((weight * image[pixel], {pixel: weight}))
            value = 0.0
            for product, _ in products:  # as the reference: sum() rounds differently since Python 3.12
                value += product
            merged: dict[Any, float] = {}
            for _, weights in products:
                for pixel, weight in weights.items():
                    merged[pixel] = merged.get(pixel, 0.0) + weight
            total += value
            for pixel, weight in merged.items():
                summed[pixel] = summed.get(pixel, 0.0) + weight
            choices = products if mode == "max" and products else [(value, merged)]
            for choice, weights in choices:
                if choice > best:
                    best, weights_of_best = choice, weights
    count = len(ys) * len(xs)
    if count == 0:
        return 0.0, {}
    if mode == "avg":
        return total / count, {pixel: weight / count for pixel, weight in summed.items()}
    return best, weights_of_best


def plain(
    x: Array, roi: Array, dy: Array, ratio: int, scale: float, mode: str, coordinates: str
) -> tuple[Array, Array]:
    """Output and gradient by the feature map, of one RoI on image 0."""
    y, dx = np.zeros((1, x.shape[1], *dy.shape[2:])), np.zeros(x.shape)
    rows = all_coordinates(roi[1], roi[3], dy.shape[2], ratio, scale, coordinates)
    columns = all_coordinates(roi[0], roi[2], dy.shape[3], ratio, scale, coordinates)
    for c in range(x.shape[1]):
        for p, ys in enumerate(rows):
            for q, xs in enumerate(columns):
                y[0, c, p, q], weights = plain_bin(ys, xs, x[0, c], mode)
                for pixel, weight in weights.items():
                    dx[0, c][pixel] += weight * dy[0, c, p, q]
    return y, dx


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", MODES)
def test_output_and_dx_equal_a_loop_over_every_sample(mode: str, coordinates: str) -> None:
    rng = np.random.default_rng(1)
    for case in range(60):
        height, width, bins_y, bins_x = rng.integers(1, [7, 7, 4, 4])
        # Whole numbers on a quarter grid: samples on pixels, on borders and at the same values, so ties abound.
        x = rng.integers(-2, 3, (1, 2, height, width)).astype(np.float64)
        roi = rng.integers(-12, 36, 4) / 4
        if case % 4 == 0:
            roi[2] = roi[0]
        if case % 8 == 0:
            roi[3] = roi[1]
        ratio, scale = int(rng.integers(0, 4)), float(rng.choice([0.5, 1.0, 2.0]))
        dy = rng.standard_normal((1, 2, bins_y, bins_x))
        expected_y, expected_dx = plain(x, roi, dy, ratio, scale, mode, coordinates)
        given: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
        given |= {"sampling_ratio": ratio, "spatial_scale": scale}
        message = f"case {case}: roi {roi}, x {x.shape}, dy {dy.shape}, {given}"
        y = forward(x, roi, size=(int(bins_y), int(bins_x)), **given)
        np.testing.assert_allclose(y, expected_y, rtol=0, atol=1e-13, err_msg=message)
        np.testing.assert_allclose(backward(dy, roi, x, **given)[0], expected_dx, rtol=0, atol=1e-13, err_msg=message)


# --- the forward operator ------------------------------------------------------------------------------------------


# Published with mmcv's test_roi_align.py (aligned, average); exact dyadic numbers.
MMCV = [
    ([[[1, 2], [3, 4]]], [0, 0, 1, 1], [[[1, 1.25], [1.5, 1.75]]]),
    (
        [[[1, 2], [3, 4]], [[4, 3], [2, 1]]],
        [0, 0, 1, 1],
        [[[1, 1.25], [1.5, 1.75]], [[4, 3.75], [3.5, 3.25]]],
    ),
    (
        [[[1, 2, 5, 6], [3, 4, 7, 8], [9, 10, 13, 14], [11, 12, 15, 16]]],
        [0, 0, 3, 3],
        [[[1.9375, 4.75], [7.5625, 10.375]]],
    ),
]
MMCV_DX = {2: np.outer([7, 1], [7, 1]) / 16, 4: np.outer([11, 10, 10, 1], [11, 10, 10, 1]) / 256}
"""By the map's width, where the gradient by the output is 1."""


@pytest.mark.parametrize(("x", "roi", "expected"), MMCV)
def test_mmcv_vectors_hold_exactly(x: Any, roi: Any, expected: Any) -> None:
    y = forward([x], roi, size=(2, 2), sampling_ratio=2)
    np.testing.assert_array_equal(y, [expected])


@pytest.mark.parametrize(("x", "roi", "y"), MMCV)
def test_mmcv_gradients_hold_exactly(x: Any, roi: Any, y: Any) -> None:
    dx, _ = backward(np.ones_like([y]), roi, [x], sampling_ratio=2)
    np.testing.assert_array_equal(dx, np.broadcast_to(MMCV_DX[len(x[0])], dx.shape))


@pytest.mark.parametrize("mode", MODES)
def test_nan_reaches_every_output_that_reads_it_and_no_other(mode: str) -> None:
    x = RAMP.copy()
    x[0, 0, 1, 1] = np.nan
    y = forward(x, [0.5, 0.5, 4.5, 4.5], size=(2, 2), sampling_ratio=2, mode=mode)
    np.testing.assert_array_equal(np.isnan(y), [[[[True, False], [False, False]]]])


def test_a_pixel_of_weight_zero_is_multiplied_and_one_beyond_the_map_is_not() -> None:
    x = np.array([[[[1.0, 2.0, np.inf]]]])
    assert math.isnan(forward(x, at(0, 1), sampling_ratio=1).item())
    assert forward(x, at(0, 2), sampling_ratio=1).item() == np.inf


# --- the gradient by the feature map -------------------------------------------------------------------------------

REGIONS = np.array(
    [[0.3, 1.1, 4.2, 5.7], [-2.3, -1.4, 2.1, 3.3], [3.4, 2.2, 9.1, 8.3], [4.3, 4.6, 0.9, 1.2], [2.2, 2.4, 2.7, 2.6]]
)
"""Inside, half outside before and after the map, mirrored, smaller than a pixel."""


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("ratio", [0, 1, 3])
def test_dx_is_the_adjoint_of_the_average(ratio: int, coordinates: str) -> None:
    rng = np.random.default_rng(2)
    x, dy = rng.standard_normal((2, 3, 6, 5)), rng.standard_normal((5, 3, 2, 3))
    given: dict[str, Any] = {"sampling_ratio": ratio, "coordinate_transformation_mode": coordinates}
    given["spatial_scale"] = 0.75
    indices = [0, 1, 1, 0, 1]
    y = forward(x, REGIONS, indices, size=(2, 3), **given)
    dx, _ = backward(dy, REGIONS, x, indices, **given)
    assert (y * dy).sum() == pytest.approx((x * dx).sum(), rel=1e-13, abs=1e-13)


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", ["max", "max_interpolated"])
def test_the_maximum_is_the_product_of_the_data_and_its_own_dx(mode: str, coordinates: str) -> None:
    rng = np.random.default_rng(3)
    x, dy = rng.standard_normal((1, 2, 6, 5)), rng.standard_normal((5, 2, 2, 3))
    given: dict[str, Any] = {"sampling_ratio": 2, "mode": mode, "coordinate_transformation_mode": coordinates}
    y = forward(x, REGIONS, size=(2, 3), **given)
    dx, _ = backward(dy, REGIONS, x, **given)
    assert (y * dy).sum() == pytest.approx((x * dx).sum(), rel=1e-13)


# --- the gradient by the regions -----------------------------------------------------------------------------------


def is_smooth(roi: Array, bins: Sequence[int], ratio: int, scale: float, coordinates: str) -> bool:
    """Whether no sample is at a pixel or a border and no size at one where the number of samples changes."""
    margin = 1e-3
    for axis in (0, 1):
        size, p = (roi[axis + 2] - roi[axis]) * scale, bins[1 - axis]
        if abs(size - 1) < margin or abs(size / p - round(size / p)) < margin:
            return False
        found = all_coordinates(roi[axis], roi[axis + 2], p, ratio, scale, coordinates)
        if any(abs(c - round(c)) < margin for coordinates_of_bin in found for c in coordinates_of_bin):
            return False
    return True


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ratio", [0, 2])
def test_drois_is_the_slope_of_the_output(mode: str, coordinates: str, ratio: int) -> None:
    rng = np.random.default_rng(4)
    x, scale, bins, h = rng.standard_normal((1, 2, 6, 5)), 0.5, (2, 3), 1e-6
    given: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    given |= {"sampling_ratio": ratio, "spatial_scale": scale}
    # Twice the map's extent in pixels, so that some lie half outside it; mirrored and small ones are among them.
    drawn = [roi for roi in rng.uniform(-4, 14, (200, 4)) if is_smooth(roi, bins, ratio, scale, coordinates)]
    sizes = np.array([roi[2:] - roi[:2] for roi in drawn[:12]])
    assert len(sizes) == 12
    assert (sizes < 0).any()
    assert ((sizes * scale < 1) & (sizes > 0)).any()
    for roi in drawn[:12]:
        dy = rng.standard_normal((1, 2, *bins))
        _, drois = backward(dy, roi, x, **given)
        for k, step in enumerate(np.eye(4) * h):
            difference = forward(x, roi + step, size=bins, **given) - forward(x, roi - step, size=bins, **given)
            expected = (difference * dy).sum() / (2 * h)
            assert drois[0, k] == pytest.approx(expected, abs=1e-7), f"coordinate {k} of {roi}: {given}"


# --- huge regions --------------------------------------------------------------------------------------------------

MAX32, MAX64 = float(np.finfo(np.float32).max), float(np.finfo(np.float64).max)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "roi",
    [
        [0, 0, 1e9, 1e9],
        [-1e18, -1e18, 1e18, 1e18],
        [-1e30, 3.0, 1e30, 1e5],
        [-MAX32, -MAX32, MAX32, MAX32],
        [-MAX64, -MAX64, MAX64, MAX64],
        [MAX64, 0, -MAX64, 1e300],
    ],
)
def test_a_huge_region_takes_little_time(roi: list[float], mode: str) -> None:
    x = np.random.default_rng(5).standard_normal((1, 1, 20, 20))
    before = time.process_time()
    y = forward(x, roi, size=(1, 2), mode=mode)
    dx, drois = backward(np.ones((1, 1, 1, 2)), roi, x, mode=mode)
    assert time.process_time() - before < 2
    assert np.isfinite(y).all()
    assert np.isfinite(dx).all()
    assert np.isfinite(drois).all()


def test_a_huge_region_is_mostly_outside() -> None:
    # At 0 ... 20 on each axis the samples are inside.
    assert forward(np.ones((1, 1, 20, 20)), [0, 0, 1e9, 1e9]).item() == 21**2 / 1e18
    assert forward(np.full((1, 1, 20, 20), -3.0), [0, 0, 1e9, 1e9], mode="max_interpolated").item() == 0
    assert forward(np.full((1, 1, 20, 20), 3.0), [0, 0, 1e9, 1e9], mode="max_interpolated").item() == 3


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("size", [1e-320, 1e-3, 1.0, 37.0, 3e4, 1e17])
def test_no_sample_inside_the_map_is_skipped(size: float, sign: float) -> None:
    rng = np.random.default_rng(6)
    for per_bin in (1, 7, 20_000):
        start = -sign * size * float(rng.uniform(0, 1)) + float(rng.uniform(-3, 8))
        axis = OnnxAxis(start, sign * size, 1.0, size_varies=True, bins=2, per_bin=per_bin, length=6)
        for p in range(2):
            expected = [i for i in range(per_bin) if is_inside(coordinate(axis, p, i), 6)]
            assert [i for point in points_inside(axis, p) for i in point.indices] == expected, f"{axis}, bin {p}"


def test_no_sample_is_skipped_where_float64_cannot_tell_neighbours_apart() -> None:
    axis = OnnxAxis(-1e18, 2e18, 1.0, size_varies=True, bins=1, per_bin=2 * 10**18, length=6)
    expected = [i for i in range(10**18 - 2000, 10**18 + 2000) if is_inside(coordinate(axis, 0, i), 6)]
    assert len(expected) > 100
    assert [i for point in points_inside(axis, 0) for i in point.indices] == expected


@pytest.mark.parametrize(("ratio", "size"), [(2**63 - 1, 1.0), (0, 1e30), (0, MAX64)])
def test_there_are_at_most_two_to_the_62_samples_along_a_bin(ratio: int, size: float) -> None:
    axis, _ = axes_of_roi(
        [-MAX64, -size, MAX64, size],
        (1, 1),
        (5, 5),
        sampling_ratio=ratio,
        spatial_scale=1.0,
        coordinate_transformation_mode="half_pixel",
    )
    assert axis.per_bin == 2**62


def test_samples_at_one_coordinate_are_taken_together() -> None:
    axis = OnnxAxis(2.0, 0.0, 1.0, size_varies=True, bins=1, per_bin=1000, length=6)
    assert points_inside(axis, 0) == [(2.0, list(range(1000)))]


def test_a_tap_beyond_the_last_pixel_is_none() -> None:
    assert taps(2.25, 4) == ((2, 0.75, -1.0), (3, 0.25, 1.0))
    assert taps(3.0, 4) == taps(4.0, 4) == ((3, 1.0, 0.0), (None, 0.0, 0.0))


# --- evaluate ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_results_are_float64_of_the_stored_values(dtype: Any) -> None:
    rng = np.random.default_rng(7)
    x, rois = rng.standard_normal((1, 1, 5, 5)).astype(dtype), np.array([[0.3, 0.7, 3.1, 4.2]]).astype(dtype)
    (y,) = evaluate(ROI_ALIGN_22, [x, rois, np.array([0])], {})
    assert y is not None
    assert y.dtype == np.float64
    np.testing.assert_array_equal(y, forward(x.astype(np.float64), rois.astype(np.float64)))


def test_a_new_operator_needs_no_change_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(x: Array, y: Array | None, *, by: float, outputs: Sequence[str]) -> tuple[Array | None, Array | None]:
        assert y is None
        assert outputs == ("z2",)
        return None, x * by

    module = types.ModuleType("ortops.reference.new_family")
    module.scaled = scaled  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    operator = Operator(
        name="Scaled",
        family="new_family",
        function="scaled",
        doc="",
        attributes=(),
        inputs=(Tensor("X", "T", ("N",)), Tensor("Y", "T", ("N",), optional=True)),
        outputs=(Tensor("Z1", "T", ("N",)), Tensor("Z2", "T", ("N",))),
        types={"T": ("float",)},
        constants={"by": 3.0},
    )
    first, second = evaluate(operator, [np.array([1, 2], np.float32)], {}, [False, True])
    assert first is None
    assert second is not None
    np.testing.assert_array_equal(second, [3, 6])
