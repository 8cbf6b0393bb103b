"""The suite's part of RoIAlignRotated: gradients, bounds, what settles a case, random cases, pictures."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from conformance import backends
from conformance.case import Array, Case, Source
from conformance.compare import allowed_errors, compare
from conformance.error_bounds import unit_roundoff
from conformance.error_bounds.rotated import Roundings
from conformance.expected_values import expected_outputs, reference
from conformance.families import roi_align_rotated as family
from conformance.fuzz.well_posed import is_well_posed
from conformance.geometry.rotated import coordinates, geometry_of, samples
from conformance.run import Answer, ask
from conformance.vectors import roi_align_rotated, scenes
from conformance.vectors.scenes import scatter
from ortops.operators.roi_align_rotated import MAX_SAMPLING_RATIO as MOST_RATIO
from ortops.operators.roi_align_rotated import ROI_ALIGN_ROTATED

CASES = tuple(roi_align_rotated.cases())
MATRIX = [case for case in CASES if case.group.endswith("/matrix")]
SOURCE = Source("a test", "1", "none")
NAMES = ("RoIAlignRotated", "RoIAlignRotatedGrad")


def of_type(element_type: str, operator: str) -> list[Case]:
    return [case for case in CASES if case.element_type == element_type and case.operator == operator]


def named(part: str, operator: str = "RoIAlignRotated", element_type: str = "float") -> Case:
    return next(case for case in of_type(element_type, operator) if part in case.id)


def forward(x: Array, *rois: list[float], **attributes: Any) -> Case:
    tensors = {"X": x, "rois": np.array(rois, x.dtype).reshape(-1, 5), "batch_indices": np.zeros(len(rois), np.int64)}
    return Case("test/rotated/x", SOURCE, "RoIAlignRotated", attributes, tensors, ("Y",), "a test")


def map_of(height: int, width: int) -> Array:
    return scatter((1, 1, height, width), seed=3)


def oracle(case: Case) -> Answer:
    return ask(backends.load("reference"), case)


# The gradients that the generated cases expect, confirmed without the reference's gradient.

GRADIENTS = [
    case for case in MATRIX if case.operator == NAMES[1] and case.element_type == "double" and "/huge/" not in case.id
]


def loss_per_roi(case: Case, x: npt.NDArray[Any], rois: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """[R]: the sum of dY * Y for each RoI."""
    dy = case.inputs["dY"]
    attributes = {**case.attributes, "output_height": dy.shape[2], "output_width": dy.shape[3]}
    inputs = {"X": x, "rois": rois, "batch_indices": case.inputs["batch_indices"]}
    return np.asarray((dy * reference(ROI_ALIGN_ROTATED, attributes, inputs, ["Y"])["Y"]).sum(axis=(1, 2, 3)))


@pytest.mark.parametrize("case", [pytest.param(c, id=c.id) for c in GRADIENTS if "dX" in c.outputs])
def test_dx_is_the_adjoint(case: Case) -> None:
    x = case.inputs.get("X", scatter(tuple(case.inputs["x_shape"]), seed=7))
    ahead = float(loss_per_roi(case, x, case.inputs["rois"]).sum())
    assert ahead == pytest.approx(float((expected_outputs(case)["dX"] * x).sum()), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("case", [pytest.param(c, id=c.id) for c in GRADIENTS if "drois" in c.outputs])
def test_drois_is_the_derivative(case: Case) -> None:
    x, rois, drois = case.inputs["X"], case.inputs["rois"], expected_outputs(case)["drois"]
    for k in range(5):
        step = np.zeros(5)
        step[k] = 1e-6
        difference = loss_per_roi(case, x, rois + step) - loss_per_roi(case, x, rois - step)
        np.testing.assert_allclose(drois[:, k], difference / 2e-6, rtol=1e-6, atol=1e-7)


# The cases keep away from where the last bit of a coordinate decides.


@pytest.mark.parametrize("scene", roi_align_rotated.SCENES, ids=lambda scene: scene.name)
def test_rois_are_exact_in_every_type_that_they_are_asked_in(scene: roi_align_rotated.RotatedScene) -> None:
    for variant in scene.variants:
        rois = scene.tensors_of(*variant)["rois"]
        for dtype in () if scene.types else (np.float16, ml_dtypes.bfloat16):
            np.testing.assert_array_equal(rois.astype(dtype).astype(np.float64), rois)


def test_rounding_moves_no_sample_of_a_case_over_a_border_or_a_pixel() -> None:
    for case in (case for case in MATRIX if case.element_type == "float"):
        geometry = geometry_of(case)
        for roi, region in zip(geometry.rois, geometry.regions(), strict=True):
            delta = 8 * max(Roundings(region, float(roi[4]), unit_roundoff(np.dtype(np.float32))).delta)
            for c, length in zip(coordinates(region), geometry.sampling.lengths, strict=True):
                inside = c[(c > -delta) & (c < length - 1 + delta)]
                far = [np.abs(c + 1), np.abs(c - length), np.abs(inside - np.round(inside))]
                assert min(float(np.min(one, initial=1.0)) for one in far) > delta, case.id


def test_a_scene_whose_samples_cannot_keep_away_is_an_error() -> None:
    scene = replace(roi_align_rotated.SCENES[0], rois=((2.0, 2.0, 1.0, 3.0, 0.0, 0),))
    with pytest.raises(ValueError, match=r"angles: no centre near 2\.0, 2\.0"):
        scene.tensors_of(0, 0)


def test_angles_are_about_the_degrees_that_they_are_named_by() -> None:
    degrees = [math.degrees(angle) for angle in (scenes.OF_30, scenes.OF_45, scenes.OF_90)]
    np.testing.assert_allclose(degrees, [30, 45, 90], atol=0.05)
    np.testing.assert_allclose(math.degrees(scenes.OF_135), 135, atol=0.2)
    np.testing.assert_allclose(math.degrees(scenes.OF_180), 180, atol=0.1)


# Bounds: RoIs that are rounded to float32 pass, others that are a little off do not.

FINITE = [
    case
    for case in MATRIX
    if case.element_type == "float" and case.outputs and len(case.inputs["rois"]) and "/no_extent/" not in case.id
]


def at_other_rois(case: Case, change: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]) -> dict[str, Array]:
    """The answer to a case of which every RoI is changed."""
    inputs = {**case.inputs, "rois": change(case.inputs["rois"].astype(np.float64))}
    values = reference(case.definition, case.attributes, inputs, case.outputs)
    return {name: value.astype(case.dtype) for name, value in values.items()}


@pytest.mark.parametrize("operator", NAMES)
def test_rois_that_are_off_by_a_rounding_to_float32_pass(operator: str) -> None:
    own, rng = [case for case in FINITE if case.operator == operator], np.random.default_rng(0)
    assert len(own) > 40
    failed = [
        case.id
        for case in own
        if not compare(case, at_other_rois(case, lambda rois: rois * (1 + 2.0**-24 * rng.choice([-1, 1], rois.shape))))[
            0
        ]
    ]
    assert failed == []


@pytest.mark.parametrize("operator", NAMES)
@pytest.mark.parametrize("number", [0, 4], ids=["centre", "angle"])
def test_rois_that_are_off_by_a_thousandth_fail(operator: str, number: int) -> None:
    case = named("/angles/aligned/counter", operator)
    assert not compare(case, at_other_rois(case, lambda rois: rois + 1e-3 * (np.arange(5) == number)))[0]


def test_what_is_allowed_is_small() -> None:
    for case in (case for case in MATRIX if case.element_type == "float"):
        for name, allowed in allowed_errors(case).items():
            size = float(np.abs(expected_outputs(case)[name]).max(initial=0.0)) + 1
            assert float(allowed.max(initial=0.0)) < 2e-3 * size, (case.id, name)


# What settles a case.

EXACT = {"sampling_ratio": 1, "aligned": 0, "output_height": 2, "output_width": 2}


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (forward(map_of(5, 5), [0.0, 2.0, 2.0, 2.0, 0.0], **EXACT), True),
        (forward(map_of(5, 5), [-0.5, 2.0, 1.0, 1.0, 0.0], **{**EXACT, "output_width": 1}), True),
        (forward(map_of(5, 5), [2.25, 2.25, 2.0, 2.0, 0.5], **EXACT), True),
        # A sample at -1, or turned about a point on the border: rounding decides whether it is inside.
        (forward(map_of(5, 5), [-1.0, 2.25, 0.0, 2.0, 0.5], **{**EXACT, "aligned": 1, "spatial_scale": 0.7}), True),
        (forward(map_of(5, 5), [-1.0, 2.25, 1.0, 1.0, 0.5], **{**EXACT, "output_height": 1, "output_width": 1}), False),
        # A bin of a whole number of pixels, where the scale is no power of two: two samples of it, or three.
        (
            forward(
                map_of(7, 7).astype(np.float32),
                [20.0, 20.0, 40.0, 40.0, 0.5],
                **{**EXACT, "sampling_ratio": 0, "spatial_scale": 0.1},
            ),
            False,
        ),
        (forward(map_of(7, 7), [3.25, 3.0, 4.0, 4.0, 0.5], **{**EXACT, "sampling_ratio": 0}), True),
    ],
)
def test_a_case_is_well_posed_unless_rounding_decides(case: Case, expected: bool) -> None:
    assert is_well_posed(case, oracle) is expected


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_weight_of_0_times_no_number_settles_nothing(value: float) -> None:
    x = map_of(5, 5)
    x[0, 0, 2, 3] = value
    on_a_pixel = [2.0, 2.0, 1.0, 1.0, 0.0]
    assert not is_well_posed(forward(x, on_a_pixel, sampling_ratio=1, aligned=0), oracle)
    assert is_well_posed(forward(x, [1.25, 1.25, 1.0, 1.0, 0.5], sampling_ratio=1, aligned=0), oracle)


def test_the_work_of_a_case_is_about_its_samples_on_the_map() -> None:
    small = forward(map_of(9, 9), [4.5, 4.5, 8.0, 8.0, 0.5], sampling_ratio=2, output_height=3, output_width=3)
    huge = forward(map_of(9, 9), [4.5, 4.5, 1e9, 1e9, 0.5])
    assert samples(small) == 36
    assert samples(huge) == 1e18
    assert 36 * 3 <= family.work(small) < 36 * 3 + 20
    assert 81 <= family.work(huge) < 2000


def test_the_largest_sampling_ratio_is_a_right_one() -> None:
    case = forward(map_of(3, 3), [1.25, 1.25, 1e-3, 1e-3, 0.5], sampling_ratio=MOST_RATIO)
    assert samples(case) == MOST_RATIO**2
