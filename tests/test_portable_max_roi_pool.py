"""The body of MaxRoiPool in standard operators, and of its gradient."""

from __future__ import annotations

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

BINS = (3, 2)
ROIS = np.array(
    [
        [0, 0, 0, 5, 4],
        [1, 2, 1, 6, 6],
        [1, 3, 3, 3, 3],
        [0, 6, 5, 9, 9],
        [0, 1.4, 0.6, 4.2, 5.5],
        [1, 20, 20, 30, 30],
        [0, -30, -30, -20, 40],
        [1, 5, 5, 1, 1],
        [0, -5e4, -5e4, 5e4, 5e4],
        [1, 0.5, 1.5, 2.5, 3.5],
        [1, -0.5, -1.5, 2.5, 3.5],
    ]
)
HUGE = np.array(
    [
        [0, -1e308, -1e308, 1e308, 1e308],
        [0, -(2.0**31), -(2.0**31), 2.0**31, 2.0**31],
        [1, -1e9, 2, 1e9, 2],
        [1, 1e300, 2, -1e300, 3],
        [1, 0.49999999999999994, 0, 3, 3],
    ]
)


def feeds_of(kind: str = "float", rois: Array = ROIS) -> dict[str, Array]:
    """Inputs of the operator and of its gradient: maps of 7 x 6 pixels, of which many are equal, and one is nothing else."""
    rng = np.random.default_rng(3)
    x = rng.integers(-4, 5, (2, 3, 7, 6)).astype(TYPES[kind])
    x[0, 0] = -3
    dy = rng.integers(-8, 9, (len(rois), 3, *BINS)) / 8
    return {"X": x, "rois": rois.astype(TYPES[kind]), "dY": dy.astype(TYPES[kind])}


def models(kind: str = "float", opset: int = 1, **attributes: Any) -> list[onnx.ModelProto]:
    """The operator and its gradient."""
    return [
        onnx_models.max_roi_pool(opset, element_type=kind, pooled_shape=BINS, **attributes),
        onnx_models.max_roi_pool_grad(element_type=kind, **attributes),
    ]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("scale", [1.0, 0.5, 2.7])
@pytest.mark.parametrize("opset", [1, 22])
def test_the_body_computes_the_reference(kind: str, scale: float, opset: int) -> None:
    for model in models(kind, opset, spatial_scale=scale):
        check(model, feeds_of(kind))


@pytest.mark.parametrize("opset", ALL_OPSETS)
def test_every_opset_from_18_on_has_bodies(opset: int) -> None:
    for model in models():
        check(with_opset(model, opset), feeds_of())


@pytest.mark.parametrize("scale", [1.0, 9.0])
def test_huge_regions_have_the_bins_of_exact_arithmetic(scale: float) -> None:
    for model in models("double", spatial_scale=scale):
        check(model, feeds_of("double", HUGE))


@pytest.mark.parametrize("value", [-np.inf, np.inf])
def test_pixels_may_be_infinite(value: float) -> None:
    feeds = feeds_of("double")
    feeds["X"][1, 1] = value
    feeds["X"][0, 0, 2, 3] = value
    for model in models("double"):
        node = model.graph.node[0]
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        (found,) = run(session(attach(model)), feeds)
        (right,) = expected(BY_NAME[node.op_type], feeds, attributes, [node.output[0]])
        np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("lengths", [(0, 3, 7, 6), (2, 3, 0, 6), (2, 3, 7, 6)])
def test_there_may_be_no_regions(lengths: tuple[int, ...]) -> None:
    for model in models():
        check(model, feeds_of(rois=ROIS[:0]) | {"X": np.ones(lengths, np.float32)})


def test_there_may_be_no_channels() -> None:
    feeds = feeds_of()
    feeds |= {"X": feeds["X"][:, :0], "dY": feeds["dY"][:, :0]}
    for model in models():
        check(model, feeds)


def row(*values: float) -> Array:
    """Two regions of these numbers."""
    return np.array([values, values], np.float32)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rois", row(np.nan, 0, 0, 3, 3)),
        ("rois", row(0, 0, np.inf, 3, 3)),
        ("rois", row(0.5, 0, 0, 3, 3)),
        ("rois", row(2, 0, 0, 3, 3)),
        ("rois", row(-1, 0, 0, 3, 3)),
        ("rois", row(1e30, 0, 0, 3, 3)),
        ("rois", row(0, 0, 3, 3)),
        ("X", np.zeros((2, 3, 0, 6), np.float32)),
        ("dY", np.zeros((2, 3, 0, 2), np.float32)),
        ("dY", np.zeros((2, 4, 3, 2), np.float32)),
        ("dY", np.zeros((3, 3, 3, 2), np.float32)),
    ],
)
def test_wrong_data_is_refused(name: str, value: Array) -> None:
    feeds = feeds_of(rois=ROIS[:2]) | {name: value}
    for model in models():
        if name in [given.name for given in model.graph.input]:
            for declared in model.graph.input:
                declared.type.tensor_type.ClearField("shape")
            with pytest.raises(Exception, match="ONNXRuntimeError"):
                run(session(attach(model)), feeds)


def test_nodes_that_differ_in_numbers_share_a_body() -> None:
    feeds = feeds_of()
    given: list[dict[str, Any]] = [
        {"pooled_shape": (3, 2), "spatial_scale": 0.5},
        {"pooled_shape": (1, 4), "spatial_scale": 1.5},
    ]
    first, second = (onnx_models.max_roi_pool(22, **attributes) for attributes in given)
    second.graph.node[0].name = "second"
    second.graph.node[0].output[0] = second.graph.output[0].name = "Y2"
    first.graph.node.append(second.graph.node[0])
    first.graph.output.append(second.graph.output[0])
    made = attach(first)
    assert len(made.functions) == 1
    for found, attributes in zip(run(session(made), feeds), given, strict=True):
        (right,) = expected(BY_NAME["MaxRoiPool_22"], feeds, attributes, ["Y"])
        np.testing.assert_array_equal(found, right)


def test_the_body_runs_in_onnx_reference_evaluator() -> None:
    feeds = feeds_of("double")
    for model in models("double"):
        node = model.graph.node[0]
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        evaluator = onnx.reference.ReferenceEvaluator(attach(model))
        (found,) = evaluator.run(None, {value.name: feeds[value.name] for value in model.graph.input})
        (right,) = expected(BY_NAME[node.op_type], feeds, attributes, [node.output[0]])
        np.testing.assert_allclose(np.asarray(found), right, rtol=0, atol=1e-12)


def test_one_file_gives_the_same_numbers_with_and_without_kernels() -> None:
    feeds = feeds_of()
    for model in models():
        made = attach(model)
        kernels = ortops.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
        for body, kernel in zip(run(session(made), feeds), run(kernels, feeds), strict=True):
            np.testing.assert_array_equal(body, kernel)


def test_builders_attach_bodies() -> None:
    assert onnx_models.max_roi_pool(22, portable=True) == attach(onnx_models.max_roi_pool(22))
    assert onnx_models.max_roi_pool_grad(portable=True) == attach(onnx_models.max_roi_pool_grad())
