# SPDX-License-Identifier: MIT
"""The reference, of all families at once: its gradients, RoIs of any size, and operators that are others in special cases.

Its values are confirmed by the cases whose expected numbers come from elsewhere (`test_conformance_cases.py`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from conformance.case import Case
from conformance.cases import collect, scenes
from conformance.cases.make import NAMES, Rule
from conformance.cases.scenes import scatter
from conformance.expected_values import expected_outputs, reference
from conformance.families.roi_align_rotated.geometry import coordinates
from ortops.operators import BY_NAME, OPERATORS
from ortops.reference import evaluate
from ortops.reference.roi_align_rotated import region_of
from ortops.reference.sampling import OnnxAxis, coordinate, is_inside, points_inside
from ortops.spec import Operator

Array = npt.NDArray[Any]

GRADIENTS = {operator.function: operator for operator in OPERATORS if operator.is_gradient}


def matrix(operator: Operator, output: str) -> Iterator[tuple[Case, Array]]:
    """The cases of the matrix in double with an output of the gradient, and what the reference computes for it."""
    for case in collect():
        if case.operator == operator.name and "/matrix/" in case.id and case.element_type == "double":
            # Samples of a RoI without extent tie for a maximum, which then has no derivative.
            is_smooth = is_linear(case) or "/no_extent/" not in case.id
            if output in case.outputs and "/huge" not in case.id and is_smooth:
                yield case, expected_outputs(case)[output]


def is_linear(case: Case) -> bool:
    """Whether the output is linear in the map, as averages and interpolations are."""
    chosen = [case.attributes.get(name) for name in ("mode", "reduction_function")]
    return "pooled_shape" not in case.attributes and not {"max", "max_interpolated"}.intersection(chosen)


def loss(case: Case, names: dict[str, str], **changed: Array) -> Array:
    """The sum of dY * Y, for each RoI if there are RoIs, with some tensors of the case changed; by role."""
    forward = next(operator for operator in reversed(OPERATORS) if operator.gradient == case.operator)
    dy = case.inputs[names["dy"]]
    sizes = {"pooled_shape": dy.shape[2:], "output_sizes": dy.shape}
    if dy.ndim == 4:
        sizes |= {"output_height": dy.shape[2], "output_width": dy.shape[3]}
    known = {attribute.name for attribute in forward.attributes}
    attributes = {name: value for name, value in {**case.attributes, **sizes}.items() if name in known}
    inputs = {**case.inputs, **{names[role]: array for role, array in changed.items()}}
    given = {tensor.name: inputs[tensor.name] for tensor in forward.inputs}
    products = dy * reference(forward, attributes, given, [names["y"]])[names["y"]]
    return np.asarray(products.sum(axis=tuple(range(1, dy.ndim))) if names["rois"] in given else products.sum())


def names_of(function: str) -> dict[str, str]:
    """The names of the tensors by role, of a gradient."""
    return NAMES[function.removesuffix("_grad")]


@pytest.mark.parametrize("function", [name for name in GRADIENTS if name.removesuffix("_grad") in NAMES])
def test_dx_is_the_adjoint_of_what_is_linear_and_the_derivative_of_a_maximum(function: str) -> None:
    operator, names, count = GRADIENTS[function], names_of(function), 0
    for case, dx in matrix(operator, names["dx"]):
        x = case.inputs.get(names["x"], scatter(dx.shape, seed=7))
        # A largest pixel is a pixel, so that bins of MaxRoiPool are tested as if they were linear, with ties or without.
        if is_linear(case) or operator.family == "max_roi_pool":
            expected, actual = loss(case, names, x=x).sum(), (dx * x).sum()
            assert actual == pytest.approx(float(expected), rel=1e-12, abs=1e-12), case.id
        else:
            step = 1e-6 * scatter(x.shape, seed=9)
            difference = loss(case, names, x=x + step) - loss(case, names, x=x - step)
            assert (dx * step).sum() == pytest.approx(float(difference.sum()) / 2, rel=1e-6, abs=1e-14), case.id
        count += 1
    assert count >= 20


@pytest.mark.parametrize("function", [name for name, operator in GRADIENTS.items() if len(operator.outputs) == 2])
def test_drois_is_the_derivative_by_each_number_of_a_roi(function: str) -> None:
    operator, names = GRADIENTS[function], names_of(function)
    for case, drois in matrix(operator, names["drois"]):
        rois, x = case.inputs[names["rois"]], case.inputs[names["x"]]
        assert drois.shape == rois.shape, case.id
        for k, step in enumerate(1e-6 * np.eye(rois.shape[-1])):
            difference = loss(case, names, x=x, rois=rois + step) - loss(case, names, x=x, rois=rois - step)
            np.testing.assert_allclose(
                drois[..., k].ravel(), difference / 2e-6, rtol=1e-6, atol=1e-7, err_msg=f"{case.id}, number {k}"
            )


@pytest.mark.parametrize(("output", "name"), [("dvalue", "value"), ("dlocations", "sampling_locations"),
                                               ("dweights", "attention_weights")])  # fmt: skip
def test_gradients_of_attention_are_derivatives(output: str, name: str) -> None:
    operator, count = GRADIENTS["ms_deform_attn_grad"], 0
    for case, gradient in matrix(operator, output):
        if "many_ones" in case.id:
            continue
        others, by = {key: array for key, array in case.inputs.items() if key != "dY"}, case.inputs[name]
        step = 1e-6 * scatter(by.shape, seed=9)
        losses = [
            (
                case.inputs["dY"] * reference(BY_NAME["MSDeformAttn"], {}, {**others, name: by + k * step}, ["Y"])["Y"]
            ).sum()
            for k in (1, -1)
        ]
        assert (gradient * step).sum() == pytest.approx((losses[0] - losses[1]) / 2, rel=1e-6, abs=1e-13), case.id
        count += 1
    assert count >= 10


# RoIs of any size.

MAX32, MAX64 = float(np.finfo(np.float32).max), float(np.finfo(np.float64).max)
HUGE = [
    [0, 0, 1e9, 1e9],
    [1e30, 3.0, -1e30, 1e5],
    [-MAX64, -MAX64, MAX64, MAX64],
    [MAX64 / 2, 0, MAX64, 1e300],
    [2.5, 2.5, 1e300, 1e-300],
]
"""Two points of an upright RoI, or centre and size of a rotated one."""


@pytest.mark.parametrize("roi", HUGE)
@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        *(("RoiAlign_22", {"mode": mode}) for mode in ("avg", "max", "max_interpolated")),
        *(("DmlRoiAlign", {"align_regions_to_corners": corners}) for corners in (0, 1)),
        *(("RoIAlignRotated", {"aligned": aligned, "sampling_ratio": 3 * aligned}) for aligned in (0, 1)),
    ],
)
def test_results_of_a_huge_roi_are_finite_and_come_at_once(
    operator: str, attributes: dict[str, Any], roi: list[float]
) -> None:
    definition = BY_NAME[operator]
    assert definition.gradient is not None
    x, indices = np.random.default_rng(7).standard_normal((1, 1, 8, 8)), np.zeros(1, np.int64)
    rois = np.array([[*roi, 0.3] if operator == "RoIAlignRotated" else roi])
    results = evaluate(definition, [x, rois, indices], attributes)
    results += evaluate(
        BY_NAME[definition.gradient], [np.ones((1, 1, 1, 1)), rois, indices, np.array(x.shape), x], attributes
    )
    assert [np.isfinite(result).all() for result in results if result is not None] == [True] * 3


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("size", [1e-320, 1.0, 37.0, 1e17])
def test_no_sample_on_the_map_is_skipped(size: float, sign: float) -> None:
    rng = np.random.default_rng(6)
    for per_bin in (1, 7, 5_000):
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


@pytest.mark.parametrize("size", [5e-324, 1e-3, 1.0, -37.0, 3e4, -1e14])
def test_no_sample_of_a_rotated_roi_on_the_map_is_skipped(size: float) -> None:
    rng = np.random.default_rng(14)
    for _ in range(20):
        # One of the samples, at one of 18 by 27 places in the region, lies at a random place on the map.
        w, h, angle = size, abs(size) * rng.uniform(0.1, 1), rng.uniform(-7, 7)
        along = (rng.integers(27) + 0.5) / 27 - 0.5, (rng.integers(18) + 0.5) / 18 - 0.5
        centre = complex(*rng.uniform(-0.4, 5.4, 2)) - complex(w * along[0], h * along[1]) * np.exp(-1j * angle)
        region = region_of([centre.real, centre.imag, w, h, angle], (2, 3), (5, 5), 1, 0, 9, 1.0)
        y, x = (c.reshape(2, 9, 3, 9) for c in coordinates(region))
        expected = np.sum((y >= -1) & (y <= 5) & (x >= -1) & (x <= 5), axis=(1, 3))
        assert expected.sum() > 0
        actual = [[len(list(region.samples(i, j))) for j in range(3)] for i in range(2)]
        np.testing.assert_array_equal(actual, expected)


def test_a_long_row_through_the_map_is_sampled_where_it_lies_on_it() -> None:
    # A row of 1e6 samples a pixel apart ends in the middle of the map.
    half = 1e6 / 2 / math.sqrt(2)
    for turn, (cx, cy) in ((-math.pi / 4, (half, half)), (math.pi / 4, (half, -half)), (0.0, (5e5, 0.0))):
        region = region_of([cx + 2.5, cy + 2.5, 1e6, 1.0, turn], (1, 1), (5, 5), 1, 0, 0, 1.0)
        lengths = [abs(complex(s.x - 2, s.y - 2)) for s in region.samples(0, 0)]
        reach = 3 * math.sqrt(2) if turn else 3.0
        np.testing.assert_allclose(lengths, np.arange(0.5, reach, 1.0), atol=1e-6)


# Operators that are others in special cases.


def is_raised(scene: scenes.Scene) -> bool:
    """Whether output_half_pixel makes a RoI larger than it is."""
    return any(min(x2 - x1, y2 - y1) * scene.spatial_scale < 1 for x1, y1, x2, y2, _ in scene.rois)


def of_three(operator: str, rois: Array, x: Array, indices: Array, attributes: dict[str, Any]) -> Array:
    (y,) = evaluate(BY_NAME[operator], [x, rois, indices], attributes)
    return np.asarray(y)


@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
def test_directml_is_onnx_where_the_number_of_samples_is_given(coordinates: str) -> None:
    for scene in scenes.SCENES:
        if scene.sampling_ratio and (coordinates == "half_pixel" or not is_raised(scene)):
            rule = Rule(None, coordinates, scene.spatial_scale, scene.sampling_ratio)
            x, rois, indices = (scene.tensors[role] for role in ("x", "rois", "indices"))
            for reduction, mode in (("average", "avg"), ("max", "max_interpolated")):
                directml = {**rule.attributes("dml_roi_align", scene.bins), "reduction_function": reduction}
                onnx = {**rule.attributes("roi_align", scene.bins), "mode": mode}
                actual = of_three("DmlRoiAlign", rois, x, indices, directml)
                expected = of_three("RoiAlign_16", rois, x, indices, onnx)
                np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12, err_msg=scene.name)


@pytest.mark.parametrize("turns", [-3, -1, 0, 1, 2, 5])
def test_quarter_turns_are_roi_align_on_a_map_that_is_turned_back(turns: int) -> None:
    rng = np.random.default_rng(10)
    for aligned, clockwise, ratio in itertools.product((0, 1), (0, 1), (0, 3)):
        # Not aligned, RoiAlign raises a size below 1 from the corner and RoIAlignRotated from the centre.
        x, (cx, cy), (w, h) = rng.standard_normal((2, 2, 9, 7)), rng.uniform(-1, 9, (2, 5)), rng.uniform(1.1, 7, (2, 5))
        indices, given = rng.integers(0, 2, 5), {"output_height": 3, "output_width": 2, "sampling_ratio": ratio}
        rotated = np.stack([cx, cy, w, h, np.full(5, turns * math.pi / 2)], axis=1)
        y = of_three("RoIAlignRotated", rotated, x, indices, {**given, "aligned": aligned, "clockwise": clockwise})
        for _ in range(-turns % 4 if clockwise else turns % 4):
            # Clockwise, so that the top row becomes the last column: the distance from the bottom is the new x.
            cx, cy = (x.shape[2] if aligned else x.shape[2] - 1) - cy, cx
            x = np.rot90(x, -1, axes=(2, 3))
        upright = np.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], axis=1)
        mode = {"coordinate_transformation_mode": "half_pixel" if aligned else "output_half_pixel"}
        expected = of_three("RoiAlign_22", upright, x, indices, {**given, **mode})
        np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)
