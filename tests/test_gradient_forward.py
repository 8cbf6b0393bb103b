"""Vector-Jacobian (`vjp`) and Jacobian-vector (`jvp`) products."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from gradient_calls import IS_OLD, Call
from gradient_checks import check, run, transposes
from gradient_samples import ONE_EACH, ROUNDED, SAMPLES, opened
from onnx_models import jacobian, jvp, vjp
from onnx_models.gradient import Mode, ZeroGradientWarning

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


HERE = [one for one in (*SAMPLES, *ROUNDED) if not (IS_OLD and (one.needs_new or one.opset > 21))]
FEW = {id(one) for one in (*ONE_EACH, *ROUNDED)}


@pytest.mark.filterwarnings("ignore::onnx_models.gradient.ZeroGradientWarning")
@pytest.mark.parametrize(
    "call", [pytest.param(one, marks=[pytest.mark.slow] * (id(one) not in FEW)) for one in HERE], ids=str
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
    assert [str(one.message).partition(":")[0] for one in caught] == [
        "the derivative of 'z' is 0",
        "the gradient with respect to 'b' is 0",
    ]
    for one in caught:
        assert "(Floor): it is constant between its steps" in str(one.message)
        assert "_grad_" not in str(one.message)
        assert one.filename == __file__
    found = run(made, {name: np.zeros(2, np.float32) for name in "abc"})
    assert [name for name, value in found.items() if "jacobian" in name and value.any()] == ["y_a_jacobian"]
