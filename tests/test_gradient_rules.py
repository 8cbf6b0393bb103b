# SPDX-License-Identifier: MIT
"""Samples of operators: gradients against differences, forward mode against reverse, and second derivatives."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx.backend.test.case.node import collect_testcases

from gradient_checks import BOXES, IS_OLD, Array, Call, check, parsed, run, transposes, with_loss
from gradient_samples import GRADIENTS_OF_REGIONS, HALVES, ONE_EACH, ROUNDED, SAMPLES, opened
from onnx_models import jacobian, jvp, vjp
from onnx_models.gradient import Mode, ZeroGradientWarning, gradient
from onnx_models.gradient.builder import GradientBuilder
from onnx_models.gradient.registry import REAL
from onnx_models.gradient.reports import NONE, REFUSAL, coverage_of
from onnx_models.gradient.rules import DECOMPOSITIONS, RULES, ZEROS
from onnx_models.gradient_check import GRADIENTS
from onnx_models.tools.protos import normalize_domain
from ortops.spec import ELEMENT_DTYPES

pytestmark = pytest.mark.filterwarnings("ignore::onnx_models.gradient.ZeroGradientWarning")


@pytest.mark.parametrize("sample", [*SAMPLES, *GRADIENTS_OF_REGIONS], ids=str)
def test_gradients_are_those_of_differences(sample: Call) -> None:
    if IS_OLD and (sample.needs_new or sample.opset > 21):
        pytest.skip("ONNX Runtime 1.20 computes this wrong or not at all")
    for shapes in dict.fromkeys(["lengths", sample.opened]):
        made = sample.model(shapes)
        feeds = {value.name: sample.feeds[value.name] for value in made.graph.input}
        check(made, feeds, sample.wrt)


ALONE = [
    sample
    for sample in SAMPLES
    if sample.lines.startswith(("TensorScatter<", "y = BatchNormalization(", "GroupNormalization<"))
]


@pytest.mark.parametrize("sample", ALONE, ids=str)
def test_a_gradient_with_respect_to_one_input_needs_no_other(sample: Call) -> None:
    if IS_OLD and (sample.needs_new or sample.opset > 21):
        pytest.skip("ONNX Runtime 1.20 computes this wrong or not at all")
    for name in sample.wrt:
        check(sample.model("names"), sample.feeds, [name])


@pytest.mark.parametrize("sample", HALVES, ids=str)
def test_gradients_in_float16_are_those_in_float_rounded(sample: Call) -> None:
    feeds = replace(sample, kind="float16").feeds
    found = []
    for kind in ("float16", "float"):
        made = opened(replace(sample, kind=kind))
        dtype = ELEMENT_DTYPES[kind]
        fed = {name: value.astype(dtype) if name in sample.wrt else value for name, value in feeds.items()}
        y = run(made, fed)["y"]
        cotangent = np.asarray(np.random.default_rng(2).uniform(-1, 1, y.shape), np.float16)
        by = run(gradient(with_loss(made, {"y": cotangent.astype(dtype)}), "loss", sample.wrt), fed)
        assert {by[f"{name}_grad"].dtype for name in sample.wrt} == {np.dtype(dtype)}
        found.append([by[f"{name}_grad"].astype(np.float64) for name in sample.wrt])
    for half, single in zip(*found, strict=True):
        np.testing.assert_allclose(half, single, rtol=0.02, atol=0.02)


NETWORK = """<ir_version: 10, opset_import: ["" : 18]>
network (double[N,3] x, int64[N] classes) => (double[N,2] scores, double total)
    <double[3,4] w = {0.5, -1, 0.25, 2, -0.5, 1, 0.75, 0.1, 0.3, -0.2, 0.9, -0.7},
     double[4,2] u = {1, -1, 0.5, 2, -0.3, 0.2, 0.1, 0.4}> {
        hidden = MatMul(x, w)
        bent = Tanh(hidden)
        scores = MatMul(bent, u)
        logarithms = LogSoftmax(scores)
        one = Constant<value = int64[1] {1}> ()
        places = Unsqueeze(classes, one)
        chosen = GatherElements<axis = 1> (logarithms, places)
        total = ReduceMean<keepdims = 0> (chosen)
    }"""
FEEDS = {"x": np.random.default_rng(8).uniform(-1, 1, (5, 3)), "classes": np.array([0, 1, 1, 0, 1])}


HERE = [call for call in (*SAMPLES, *ROUNDED) if not (IS_OLD and (call.needs_new or call.opset > 21))]
FEW = {id(call) for call in (*ONE_EACH, *ROUNDED)}
"""Those of each commit: forward mode is reverse mode twice, and all samples are compared in reverse."""


@pytest.mark.parametrize(
    "call", [pytest.param(call, marks=[pytest.mark.weekly] * (id(call) not in FEW)) for call in HERE], ids=str
)
def test_forward_derivatives_are_the_transposes_of_those_in_reverse(call: Call) -> None:
    # Such a policy needs sizes that are constants.
    model = call.model("lengths") if "keep_aspect_ratio_policy" in call.lines else opened(call)
    feeds = {value.name: call.feeds[value.name] for value in model.graph.input}
    found, expected, size = transposes(model, feeds, ["y"], call.wrt)
    assert abs(found - expected) <= 1e-4 * (1e-3 + size)


def test_cotangents_of_several_outputs_are_inputs_with_types_and_shapes() -> None:
    model = onnx.parser.parse_model(NETWORK)
    made = vjp(model, {"scores": "by_scores", "bent": "by_bent"}, "parameters")
    kinds = {value.name: value.type.tensor_type for value in made.graph.input}
    shapes = {name: [dim.dim_param or dim.dim_value for dim in kind.shape.dim] for name, kind in kinds.items()}
    assert shapes == {"x": ["N", 3], "classes": ["N"], "by_scores": ["N", 2], "by_bent": ["N", 4]}
    assert [value.name for value in made.graph.output] == ["scores", "total", "w_grad", "u_grad"]
    rng = np.random.default_rng(11)
    feeds = FEEDS | {"by_scores": rng.uniform(-1, 1, (5, 2)), "by_bent": rng.uniform(-1, 1, (5, 4))}
    both, *alone = (
        run(made, feeds | {name: np.zeros_like(feeds[name]) for name in zero})
        for zero in ([], ["by_scores"], ["by_bent"])
    )
    np.testing.assert_allclose(both["w_grad"], alone[0]["w_grad"] + alone[1]["w_grad"])
    assert not alone[0]["u_grad"].any()
    # And with cotangents that are inputs, they have derivatives as well.
    check(vjp(model, {"scores": "v"}, {"x": "by_x"}), FEEDS | {"v": feeds["by_scores"]}, ["x", "v"], outputs=["by_x"])


def test_what_does_not_move_is_zero_with_a_warning() -> None:
    with pytest.warns(
        ZeroGradientWarning, match="the derivative of 'hidden' is 0: it does not depend on any tensor in wrt"
    ):
        made = jvp(onnx.parser.parse_model(NETWORK), ["hidden", "scores"], ["u"])
    assert not run(made, FEEDS | {"u_tangent": np.ones((4, 2))})["hidden_tangent"].any()
    with pytest.warns(
        ZeroGradientWarning, match="the gradient with respect to 'u' is 0: none of the outputs depends on it"
    ):
        vjp(onnx.parser.parse_model(NETWORK), ["hidden"], ["u"])


@pytest.mark.parametrize("function", [jvp, vjp])
@pytest.mark.parametrize(
    ("outputs", "wrt", "message"),
    [
        (["nothing"], ["x"], "outputs has 'nothing': must be the name of a tensor"),
        ([], ["x"], r"outputs = \[\]: must be one or more different names"),
        ("scores", ["x"], "outputs = 'scores': must be names"),
        (["places"], ["x"], "outputs has 'places' of type int64: must have a floating-point type"),
        ({"scores": "hidden"}, {"x": "total"}, "has a tensor '(hidden|total)' already"),
    ],
)
def test_wrong_arguments(function: object, outputs: object, wrt: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        function(onnx.parser.parse_model(NETWORK), outputs, wrt)  # type: ignore[operator]


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_each_jacobian_of_zeros_has_a_warning_with_the_reason(mode: Mode) -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 18]>
        g (float[2] a, float[2] b, float[2] c) => (float[2] y, float[2] z) {
          y = Sin(a) f = Floor(b) d = Add(f, c) e = Shape(d) z = CastLike(e, d) }""")
    with pytest.warns(ZeroGradientWarning) as caught:
        made = jacobian(model, ["y", "z"], ["a", "b"], mode=mode)
    assert [str(warning.message).partition(":")[0] for warning in caught] == [
        "the derivative of 'z' is 0",
        "the gradient with respect to 'b' is 0",
    ]
    for warning in caught:
        assert "(Floor): it is constant between its steps" in str(warning.message)
        assert "_grad_" not in str(warning.message)
        assert warning.filename == __file__
    found = run(made, {name: np.zeros(2, np.float32) for name in "abc"})
    assert [name for name, value in found.items() if "jacobian" in name and value.any()] == ["y_a_jacobian"]


# A part at each commit: the operators in a gradient have samples of their own.
@pytest.mark.parametrize(
    "call", [pytest.param(call, marks=[pytest.mark.weekly] * (i % 6 > 0)) for i, call in enumerate(ONE_EACH)], ids=str
)
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
        key = (
            node.op_type,
            str([attribute.name for attribute in node.attribute]),
            str(list(map(bool, [*node.input, *node.output]))),
        )
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


@pytest.mark.weekly  # forward mode, which differentiates a gradient, is tested with each operator at each commit
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


@pytest.mark.slow
def test_the_gradient_of_a_head_has_a_gradient_by_image_regions_and_weights() -> None:
    model, feeds = _head()
    found = check(model, feeds, list(feeds), second_order=True)
    assert {comparison.wrt for comparison in found if comparison.output == GRADIENTS and comparison.analytic} == set(
        feeds
    )


@pytest.mark.slow
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
