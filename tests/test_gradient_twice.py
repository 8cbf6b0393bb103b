"""Gradients of gradients: all operators of gradients can be differentiated, and second derivatives are right."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx.backend.test.case.node import collect_testcases

from gradient_calls import BOXES, Call
from gradient_checks import Array, check, parsed, run
from gradient_samples import ONE_EACH, ROUNDED, opened
from onnx_models import vjp
from onnx_models.gradient.builder import GradientBuilder
from onnx_models.gradient.registry import REAL
from onnx_models.gradient.reports import NONE, REFUSAL, coverage_of
from onnx_models.gradient.rules import DECOMPOSITIONS, RULES, ZEROS
from onnx_models.gradient_check import GRADIENTS
from onnx_models.tools.protos import normalize_domain

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::onnx_models.gradient.ZeroGradientWarning"),
]


@pytest.mark.parametrize("call", ONE_EACH, ids=str)
def test_second_derivatives(call: Call) -> None:
    check(opened(call), call.feeds, call.wrt, second_order=True)


def _models() -> Iterator[onnx.ModelProto]:
    """Models of one node: of ONNX's own tests those that differ in more than numbers, and the calls of this project."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, from the making of the tests
        models = [case.model for case in collect_testcases(None) if case.model is not None]
    seen = set()
    for model in models:
        node, *others = model.graph.node
        key = node.op_type, str([one.name for one in node.attribute]), str(list(map(bool, [*node.input, *node.output])))
        is_apart = others or normalize_domain(node.domain) or (normalize_domain(node.domain), node.op_type) in ZEROS
        if not is_apart and key not in seen and _reals(model.graph.input) and _reals(model.graph.output):
            seen.add(key)
            yield model
    yield from (opened(call) for call in (*ONE_EACH, ROUNDED[0]))


def _reals(values: Sequence[onnx.ValueInfoProto]) -> list[str]:
    return [value.name for value in values if value.type.tensor_type.elem_type in REAL]


def _differentiated_twice(model: onnx.ModelProto, found: set[tuple[str, str]]) -> Iterator[str]:
    """What breaks the closure of differentiation; operators that have a gradient are added to those found."""
    inputs = _reals(model.graph.input)
    operators = sorted({node.op_type for node in model.graph.node} - {"Constant"})
    try:
        first = vjp(model, _reals(model.graph.output), {name: f"first {name}" for name in inputs})
    except ValueError:
        return  # it has no first gradient
    builder = GradientBuilder(first, (), through_rois=True)
    for node in first.graph.node:
        key = normalize_domain(node.domain), node.op_type
        found.add(key)
        way = coverage_of(node.op_type, key[0], builder.graph.opsets[key[0]]).way
        if way in (NONE, REFUSAL) and any(builder.graph.element_type(name) in REAL for name in node.output if name):
            yield f"the gradient of {operators} has {node.op_type}, which has no rule"
    seeds = {f"first {name}": builder.input(f"weight of {name}", f"first {name}") for name in inputs}
    try:
        builder.backward(seeds, inputs)
    except ValueError as error:
        yield f"the gradient of {operators} has no gradient: {error}"


def test_every_operator_of_a_gradient_has_a_gradient() -> None:
    found: set[tuple[str, str]] = set()
    broken = [message for model in _models() for message in _differentiated_twice(model, found)]
    assert not broken, "\n".join(dict.fromkeys(broken))
    missing = {*RULES, *DECOMPOSITIONS} - found
    assert not missing, f"not differentiated here, as neither ONNX's tests nor gradient_samples.py have them: {missing}"


HEAD = """<ir_version: 10, opset_import: ["" : 20]>
head (float[N,3,H,W] image, float[R,4] boxes, float[4,3,3,3] kernel, float[4] bias, float[16] scale,
      float[16] shift, float[16,5] weight) => (float total)
    <int64[3] of_images = {0, 1, 1}, int64[2] rows = {-1, 16}, int64[3] classes = {2, 0, 4}> {
        map = Conv<pads = [1, 1, 1, 1]> (image, kernel, bias)
        bent = Gelu<approximate = "tanh"> (map)
        read = RoiAlign<output_height = 2, output_width = 2> (bent, boxes, of_images)
        row = Reshape(read, rows)
        normal = LayerNormalization<stash_type = 1> (row, scale, shift)
        scores = MatMul(normal, weight)
        logarithms = LogSoftmax(scores)
        total = NegativeLogLikelihoodLoss(logarithms, classes)
    }"""


def _head() -> tuple[onnx.ModelProto, dict[str, Array]]:
    made = parsed(HEAD)
    made.graph.output[0].type.tensor_type.shape.SetInParent()
    rng = np.random.default_rng(6)
    shapes = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in made.graph.input}
    feeds = {name: np.asarray(rng.uniform(-1, 1, shape)) for name, shape in shapes.items()}
    own: dict[str, Array] = {
        "image": rng.uniform(-1, 1, (2, 3, 8, 9)),
        "boxes": BOXES,
        "scale": rng.uniform(0.5, 1.5, 16),
    }
    return made, {name: value.astype(np.float32) for name, value in (feeds | own).items()}


def test_the_gradient_of_a_head_has_a_gradient_by_image_regions_and_weights() -> None:
    model, feeds = _head()
    found = check(model, feeds, list(feeds), second_order=True)
    assert {one.wrt for one in found if one.output == GRADIENTS and one.analytic} == set(feeds)


@pytest.mark.parametrize(("kind", "tolerance"), [("float16", 2e-2), ("float", 1e-5)])
def test_what_goes_by_a_body_has_the_type_of_the_map(kind: str, tolerance: float) -> None:
    exact = replace(next(call for call in ONE_EACH if call.lines.startswith("RoiAlign<")), kind="double")
    call = replace(exact, kind=kind)
    y = run(opened(call), call.feeds)["y"]
    found = []
    for one in (call, exact):
        first = vjp(opened(one), {"y": "v"}, {"x": "by_x", "boxes": "by_boxes"})
        second = vjp(first, {"by_boxes": "w"}, {"x": "again_x", "boxes": "again_boxes"})
        feeds = call.feeds | {"v": y, "w": np.ones((3, 4), y.dtype)}  # the same numbers, whatever the type
        dtype = one.feeds["x"].dtype
        outputs = run(second, {n: v.astype(dtype) if v.dtype.kind == "f" else v for n, v in feeds.items()})
        found.append([outputs[name] for name in ("again_x", "again_boxes")])
    for value, expected in zip(*found, strict=True):
        assert value.dtype == y.dtype
        np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())
