"""The body of RoIAlignRotated in standard operators, and of its gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest

import onnx_models
import ortops
from onnx_models.portable import attach
from ortops.operators import BY_NAME
from portable_checks import ALL_OPSETS, TYPES, check, expected, run, session, with_opset
from problems import Array

SIZES: dict[str, Any] = {"output_height": 2, "output_width": 3}
NEAR: dict[str, tuple[float, ...]] = {
    "inside": (6.3, 7.1, 8.2, 5.3, 0.4),
    "across": (1.2, 2.1, 9.3, 11.4, -1.2),
    "mirrored": (10.1, 8.3, -6.2, 7.1, 2.0),
    "flat": (5.3, 5.1, 0.0, 6.2, 1.0),
    "point": (5.2, 5.4, 0.0, 0.0, 0.3),
    "outside": (60.0, 60.0, 5.0, 5.0, 0.3),
    "small": (4.1, 6.3, 0.4, 0.3, 3.9),
    "upright": (6.1, 6.3, 7.2, 7.1, 0.0),
}
FAR: dict[str, tuple[float, ...]] = {
    "wide": (3.1, 3.2, 2e4, 3.1, 0.7),
    "huge": (3.1, 3.2, 5e4, 5e4, 0.7),
    "huge beside the map": (-2e4, 3.2, 4.1e4, 30.1, 0.001),
}
SAMPLED: list[dict[str, Any]] = [
    {"sampling_ratio": 0},
    {"sampling_ratio": 2, "aligned": 0},
    {"sampling_ratio": 0, "aligned": 0, "clockwise": 1},
    {"sampling_ratio": 3, "clockwise": 1},
]


def feeds_of(kind: str = "float", rois: Mapping[str, tuple[float, ...]] | None = None) -> dict[str, Array]:
    """Inputs of the operator and of its gradient: maps of 7 x 6 pixels, regions in units of half a pixel."""
    rng = np.random.default_rng(3)
    chosen = np.array(list((NEAR | FAR if rois is None else rois).values())).reshape(-1, 5)
    x = rng.uniform(-2, 2, (2, 3, 7, 6))
    return {
        "X": x.astype(TYPES[kind]),
        "rois": chosen.astype(TYPES[kind]),
        "batch_indices": rng.integers(0, 2, len(chosen)),
        "dY": rng.uniform(-1, 1, (len(chosen), 3, 2, 3)).astype(TYPES[kind]),
        "x_shape": np.array(x.shape),
    }


def models(kind: str = "float", **attributes: Any) -> list[onnx.ModelProto]:
    """The operator and its gradient."""
    given = {"spatial_scale": 0.5} | attributes
    return [
        onnx_models.roi_align_rotated(element_type=kind, **SIZES, **given),
        onnx_models.roi_align_rotated_grad(element_type=kind, **given),
    ]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("attributes", SAMPLED, ids=str)
def test_the_body_computes_the_reference(kind: str, attributes: dict[str, Any]) -> None:
    for model in models(kind, **attributes):
        check(model, feeds_of(kind))


@pytest.mark.parametrize("output", ["dx", "drois"])
def test_either_gradient_is_computed_alone(output: str) -> None:
    model = onnx_models.roi_align_rotated_grad(outputs=(output,), spatial_scale=0.5)
    check(model, feeds_of(rois=NEAR))


@pytest.mark.parametrize("opset", ALL_OPSETS)
def test_every_opset_from_18_on_has_bodies(opset: int) -> None:
    for model in models("double"):
        check(with_opset(model, opset), feeds_of("double", NEAR))


@pytest.mark.parametrize("turns", [-1, 0, 1])
def test_right_angles_leave_samples_on_the_border_inside(turns: int) -> None:
    # Samples at -1, 2.5 and 6 of both axes; and at 0, 3.5 and 7 of y, where x has the former.
    rois = {"from -1": (2.5, 2.5, 10.5, 10.5, turns * math.pi / 2), "to 6": (2.5, 3.5, 10.5, 10.5, turns * math.pi / 2)}
    feeds = feeds_of("double", rois)
    feeds["dY"] = np.ones((2, 3, 3, 3))
    attributes: dict[str, Any] = {"output_height": 3, "output_width": 3, "sampling_ratio": 1, "aligned": 0}
    check(onnx_models.roi_align_rotated(element_type="double", **attributes), feeds)


@pytest.mark.parametrize("size", [1e9, 1e15, 1e18, 1e38, 1.7e308])
def test_a_huge_region_needs_no_more_memory_than_the_map(size: float) -> None:
    huge, far, long = (6.0, 6.0, size, size, 0.3), (1e18, 6.0, size, size, 0.3), (6.0, 6.0, size, 2.0, 1.1)
    feeds = feeds_of("double", {"huge": huge, "far": far, "long": long})
    for model in models("double", sampling_ratio=0):
        check(model, feeds)


@pytest.mark.parametrize("lengths", [(0, 3, 7, 6), (2, 3, 0, 6), (2, 3, 7, 6)])
def test_there_may_be_no_regions(lengths: tuple[int, ...]) -> None:
    feeds = feeds_of("float", {}) | {"X": np.ones(lengths, np.float32), "x_shape": np.array(lengths)}
    for model in models():
        check(model, feeds)


def test_there_may_be_no_channels() -> None:
    feeds = feeds_of()
    feeds |= {"X": feeds["X"][:, :0], "dY": feeds["dY"][:, :0], "x_shape": np.array([2, 0, 7, 6])}
    for model in models():
        check(model, feeds)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_indices", np.array([0, 2])),
        ("batch_indices", np.array([0, -1])),
        ("batch_indices", np.zeros(3, np.int64)),
        ("rois", np.full((2, 5), np.nan, np.float32)),
        ("rois", np.full((2, 5), np.inf, np.float32)),
        ("rois", np.zeros((2, 4), np.float32)),
        ("X", np.zeros((2, 3, 0, 6), np.float32)),
        ("x_shape", np.array([2, 3, 7, 7])),
        ("dY", np.zeros((2, 3, 0, 3), np.float32)),
        ("dY", np.zeros((2, 4, 2, 3), np.float32)),
    ],
)
def test_wrong_data_is_refused(name: str, value: Array) -> None:
    feeds = feeds_of(rois={kind: NEAR[kind] for kind in ("inside", "across")}) | {name: value}
    for model in models():
        if name in [given.name for given in model.graph.input]:
            for declared in model.graph.input:
                declared.type.tensor_type.ClearField("shape")
            with pytest.raises(Exception, match="ONNXRuntimeError"):
                run(session(attach(model)), feeds)


def test_nodes_that_differ_in_numbers_share_a_body() -> None:
    feeds = feeds_of("double", NEAR)
    given: list[dict[str, Any]] = [
        {"output_height": 2, "output_width": 3, "sampling_ratio": 0, "spatial_scale": 0.5},
        {"output_height": 1, "output_width": 2, "sampling_ratio": 2, "aligned": 0, "clockwise": 1},
    ]
    first, second = (onnx_models.roi_align_rotated(element_type="double", **attributes) for attributes in given)
    second.graph.node[0].name = "second"
    second.graph.node[0].output[0] = second.graph.output[0].name = "Y2"
    first.graph.node.append(second.graph.node[0])
    first.graph.output.append(second.graph.output[0])
    made = attach(first)
    assert len(made.functions) == 1
    for found, attributes in zip(run(session(made), feeds), given, strict=True):
        (right,) = expected(BY_NAME["RoIAlignRotated"], feeds, attributes, ["Y"])
        np.testing.assert_allclose(found, right, rtol=0, atol=1e-12)


def test_the_body_runs_in_onnx_reference_evaluator() -> None:
    feeds = feeds_of("double", NEAR)
    for model in models("double"):
        node = model.graph.node[0]
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        names = [value.name for value in model.graph.output]
        evaluator = onnx.reference.ReferenceEvaluator(attach(model))
        found = evaluator.run(None, {value.name: feeds[value.name] for value in model.graph.input})
        for one, right in zip(found, expected(BY_NAME[node.op_type], feeds, attributes, names), strict=True):
            np.testing.assert_allclose(np.asarray(one), right, rtol=0, atol=1e-11)


def test_one_file_gives_the_same_numbers_with_and_without_kernels() -> None:
    feeds = feeds_of()
    for model in models():
        made = attach(model)
        kernels = ortops.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
        for body, kernel in zip(run(session(made), feeds), run(kernels, feeds), strict=True):
            scale = max(1.0, float(np.abs(kernel).max()))
            np.testing.assert_allclose(body, kernel, rtol=0, atol=2e-5 * scale)


def test_builders_attach_bodies() -> None:
    for build in (onnx_models.roi_align_rotated, onnx_models.roi_align_rotated_grad):
        assert build(portable=True) == attach(build())
