# SPDX-License-Identifier: MIT
"""Bounds and well-posed cases of rotated RoIs and of MaxRoiPool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from conformance.case import Array, Case
from conformance.cases import pool as max_roi_pool
from conformance.cases import rotated as roi_align_rotated
from conformance.cases.scenes import scatter
from conformance.compare import compare
from conformance.expected_values import reference
from conformance.families import family_of
from conformance.fuzz.check import is_well_posed
from suite_runs import small_case

ROTATED = [case for case in roi_align_rotated.cases() if "/matrix/" in case.id and case.element_type == "float"]
POOL = [case for case in max_roi_pool.cases() if "/sizes/" not in case.id and case.element_type == "float"]


# RoIs that are rounded to float32 pass, and others that are a little off do not.


def at_other_rois(case: Case, change: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]) -> dict[str, Array]:
    """The answer to a case of which every RoI is changed."""
    inputs = {**case.inputs, "rois": change(case.inputs["rois"].astype(np.float64))}
    values = reference(case.definition, case.attributes, inputs, case.outputs)
    return {name: value.astype(case.dtype) for name, value in values.items()}


@pytest.mark.parametrize("operator", ["RoIAlignRotated", "RoIAlignRotatedGrad"])
def test_rotated_rois_that_are_off_by_a_rounding_pass_and_by_a_thousandth_fail(operator: str) -> None:
    rng, of_operator = np.random.default_rng(0), [case for case in ROTATED if case.operator == operator]
    cases = [case for case in of_operator if len(case.inputs["rois"]) and "/no_extent/" not in case.id]
    assert len(cases) > 40
    for case in cases:
        rounded = at_other_rois(case, lambda rois: rois * (1 + 2.0**-24 * rng.choice([-1, 1], rois.shape)))
        assert compare(case, rounded)[0], case.id
    case = next(case for case in cases if "/angles/aligned/counter" in case.id)
    for step in 1e-3 * np.eye(5)[[0, 4]]:  # of the centre and of the angle
        assert not compare(case, at_other_rois(case, step.__add__))[0]


# A case is well-posed unless rounding decides.


def upright(roi: list[float], x: list[list[float]], operator: str = "RoiAlign_16", **attributes: Any) -> Case:
    """A case with one RoI on a map of one channel; of the gradient by the RoIs if that is the operator."""
    image, rois, indices = np.array([[x]], np.float32), np.array([roi], np.float32), np.zeros(1, np.int64)
    if operator == "RoiAlignGrad":
        dy, x_shape = np.full((1, 1, 1, 1), 3.3, np.float32), np.array(image.shape)
        return small_case(operator, ("drois",), attributes, dy, rois, indices, x_shape, image)
    return small_case(operator, None, attributes, image, rois, indices)


def summed(value: float) -> Case:
    """The gradient of two RoIs at one pixel, which is `value` in float16."""
    dy, rois = np.full((2, 1, 1, 1), value / 2, np.float16), np.full((2, 4), 0.5, np.float16)
    return small_case("RoiAlignGrad", None, ONE, dy, rois, np.zeros(2, np.int64), [1, 1, 1, 1])


def resampled(scale: float, offset: float) -> Case:
    """Four pixels resampled to six by the nearest one."""
    given: dict[str, Any] = {"interpolation_mode": "nearest_neighbor", "scales": (scale,), "output_sizes": (6,)}
    given |= {"input_pixel_offsets": (0.0,), "output_pixel_offsets": (offset,)}
    return small_case("DmlResample", None, given, np.arange(4, dtype=np.float32))


MAP: list[list[float]] = [[1, 5, 2, 9], [3, 0, 7, 4], [8, 6, 1, 2]]
ONE: dict[str, Any] = {"sampling_ratio": 1}


def odd(pixel: float) -> list[list[float]]:
    return [[1, 2, 3, pixel], [4, 5, 6, 7]]


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        # A sample on the border, a last bit beyond it, and elsewhere.
        (upright([-0.5, 0.5, -0.5, 0.5], MAP[:1], **ONE), True),
        (upright([0.50000006 - 1, 0.5, 0.50000006 - 1, 0.5], MAP[:1], **ONE), False),
        (upright([0.25, 0.5, 0.25, 0.5], MAP[:1], **ONE), True),
        (upright([0.2345, 0.5, 0.2345, 0.5], MAP[:1], **ONE), True),
        # A size that is whole, a rounding from it, and elsewhere: the number of samples follows from it.
        (upright([0, 0.1, 2.0, 1.33], MAP), True),
        (upright([0, 0.1, 2.0000002, 1.33], MAP), False),
        (upright([0, 0.1, 2.0001, 1.33], MAP), True),
        (upright([0, 0.1, 2.5, 1.33], MAP), True),
        # The slope of a flat map is 0 wherever it is.
        (upright([0.3, 0.1, 1.7, 1.33], [[0.1] * 4] * 3, "RoiAlignGrad", mode="avg"), True),
        # Of a tie of the nearest, where it is exact.
        *((resampled(2.0, 0.0), True), (resampled(3.0, 0.5), False), (resampled(1.3, 0.5), True)),
        # A pixel of infinity or NaN that is not read, that has the weight 0, and that is read.
        (upright([0.75, 1, 0.75, 1], odd(np.inf), **ONE), True),
        (upright([2.5, 1, 2.5, 1], odd(np.inf), **ONE), False),
        (upright([2.75, 1, 2.75, 1], odd(np.nan), **ONE), True),
        (upright([2.75, 1, 2.75, 1], odd(np.nan), mode="max_interpolated", **ONE), True),
        # In range, close to the largest number of float16, and clearly beyond it.
        *((summed(30000.0), True), (summed(65519.9), False), (summed(66000.0), True)),
    ],
)
def test_a_case_of_upright_rois_or_resampling_is_well_posed_unless_rounding_decides(case: Case, expected: bool) -> None:
    assert is_well_posed(case) is expected


def rotated(size: int, roi: list[float], pixel: float | None = None, dtype: Any = float, **attributes: Any) -> Case:
    x = scatter((1, 1, size, size), seed=3)
    if pixel is not None:
        x[0, 0, 2, 3] = pixel
    given = {"sampling_ratio": 1, "aligned": 0, **attributes}
    return small_case("RoIAlignRotated", None, given, x.astype(dtype), np.array([roi], dtype), np.zeros(1, np.int64))


BINS = {"output_height": 2, "output_width": 2}


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (rotated(5, [0.0, 2.0, 2.0, 2.0, 0.0], **BINS), True),
        (rotated(5, [-0.5, 2.0, 1.0, 1.0, 0.0], output_height=2), True),
        (rotated(5, [2.25, 2.25, 2.0, 2.0, 0.5], **BINS), True),
        # A sample at -1, or turned about a point on the border: rounding decides whether it is inside.
        (rotated(5, [-1.0, 2.25, 0.0, 2.0, 0.5], **BINS, aligned=1, spatial_scale=0.7), True),
        (rotated(5, [-1.0, 2.25, 1.0, 1.0, 0.5]), False),
        # A bin of a whole number of pixels, where the scale is no power of two: two samples of it, or three.
        (rotated(7, [20, 20, 40, 40, 0.5], dtype=np.float32, **BINS, sampling_ratio=0, spatial_scale=0.1), False),
        (rotated(7, [3.25, 3.0, 4.0, 4.0, 0.5], **BINS, sampling_ratio=0), True),
        # A weight of 0 times an infinity or NaN.
        (rotated(5, [2.0, 2.0, 1.0, 1.0, 0.0], np.nan), False),
        (rotated(5, [2.0, 2.0, 1.0, 1.0, 0.0], np.inf), False),
        (rotated(5, [1.25, 1.25, 1.0, 1.0, 0.5], np.nan), True),
    ],
)
def test_a_case_of_rotated_rois_is_well_posed_unless_rounding_decides(case: Case, expected: bool) -> None:
    assert is_well_posed(case) is expected


def pool(end: float, x: list[float], bins: int, scale: float = 1.0, *, start: float = 0) -> list[Case]:
    """The operator and its gradient, with one RoI on a map of one row."""
    inputs = np.array([[[x]]], np.float32), np.array([[0, start, 0, end, 0]], np.float32)
    forward = small_case("MaxRoiPool_22", None, {"pooled_shape": (1, bins), "spatial_scale": scale}, *inputs)
    dy = np.ones((1, 1, 1, bins), np.float32)
    return [forward, small_case("MaxRoiPoolGrad", None, {"spatial_scale": scale}, dy, *inputs)]


RAMP = [float(i) for i in range(8)]


@pytest.mark.parametrize(
    ("cases", "expected"),
    [
        # Float32 adds the pixel behind the last of 13 bins, which counts if it is the largest.
        (pool(6, [1, 2, 3, 4, 5, 6, 7, 100, 9], 13), [False, False]),
        (pool(6, [1, 2, 3, 4, 5, 6, 7, 0.5, 9], 13), [True, True]),
        (pool(6, [1, 2, 3, 4, 5, 6, 7, 100, 9], 7), [True, True]),
        # Float32 makes 5 * 0.7 a half, which is rounded to another pixel.
        (pool(5, RAMP, 1, 0.7, start=5), [False, False]),
        (pool(5, RAMP, 1, 0.5, start=5), [True, True]),
        (pool(5, RAMP, 1, 0.75, start=5), [True, True]),
        # The gradient of a NaN has no rule, and that of a tie has one.
        (pool(1, [1, np.nan], 1), [True, False]),
        (pool(1, [1, 1], 1), [True, True]),
    ],
)
def test_a_case_of_max_roi_pool_is_well_posed_unless_rounding_decides(cases: list[Case], expected: list[bool]) -> None:
    assert [is_well_posed(case) for case in cases] == expected


OF_ROUNDING = {"exact_end_of_the_last_bin", "exact_start_of_a_bin", "scaled_in_double", "huge", "ends_beyond_2_31"}
OF_ROUNDING |= {f"{bins}_bins_of_{size}_pixels" for bins, size in max_roi_pool.INEXACT}
"""Facts that float32 on the way would change."""


def test_the_cases_of_max_roi_pool_are_well_posed_unless_they_are_about_rounding_or_the_gradient_of_nan() -> None:
    cases = [case for case in POOL if case.operator != "MaxRoiPool_1"]
    of_nan = {
        case.id.split("/")[2] for case in cases if case.definition.is_gradient and np.isnan(case.inputs["X"]).any()
    }
    family = family_of(POOL[0].definition)
    ill_posed = {case.id.split("/")[2] for case in cases if family.perturbed(case) is None}
    assert ill_posed <= OF_ROUNDING | of_nan
    assert ill_posed & of_nan
