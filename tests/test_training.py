# SPDX-License-Identifier: MIT
"""Training steps: losses and optimizers, run by ONNX Runtime as it is, and a trained state in the model."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from conformance.backends.session import CPU, options
from gradient_checks import Array, check, parsed
from gradient_checks import run as run_model
from onnx_models import gradient, untie, with_loss, with_optimizer, with_state
from onnx_models.gradient import TiedParametersWarning
from onnx_models.training import Loss
from pairs import pairwise

SCORES = """<ir_version: 10, opset_import: ["" : {opset}]> g ({kind}[{shape}] x, {kind} factor) => ({kind}[{shape}] y)
    {{ y = Mul(x, factor) }}"""


def session_of(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(model.SerializeToString(), options(), providers=[CPU])


def run(session: onnxruntime.InferenceSession, feeds: Mapping[str, Array]) -> dict[str, Array]:
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def elements(loss: Loss, y: Array, target: Array) -> Array:
    """The loss before the mean."""
    if loss == "cross_entropy":
        logarithms = y - np.log(np.exp(y).sum(axis=1, keepdims=True))
        return -np.take_along_axis(logarithms, target[:, None], 1)
    if loss == "binary_cross_entropy_with_logits":
        share = 1 / (1 + np.exp(-y))
        return np.asarray(-target * np.log(share) - (1 - target) * np.log(1 - share))
    return np.asarray((y - target) ** 2 if loss == "mean_squared_error" else abs(y - target))


@pairwise(
    {
        "loss": ["cross_entropy", "binary_cross_entropy_with_logits", "mean_squared_error", "mean_absolute_error"],
        "opset": [11, 18, 21],
        "kind": ["float", "double"],
        "shape": [(4, 3), (2, 3, 5)],
        "opened": [True, False],
    }
)
def test_a_loss_and_its_gradient(loss: Loss, shape: tuple[int, ...], kind: str, opset: int, opened: bool) -> None:
    rng = np.random.default_rng(0)
    dtype = np.float32 if kind == "float" else np.float64
    x, factor = rng.uniform(-2, 2, shape).astype(dtype), np.array(1.5, dtype)
    target: Array = rng.uniform(0, 1, shape).astype(dtype)
    if loss == "cross_entropy":
        target = rng.integers(0, shape[1], (shape[0], *shape[2:]))
    lengths = ", ".join(f"N{i}" if opened else str(length) for i, length in enumerate(shape))
    model = parsed(SCORES.format(opset=opset, kind=kind, shape=lengths))
    made, feeds = with_loss(model, loss, "y"), {"x": x, "factor": factor, "target": target}
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(gradient(made, "loss", ["y", "factor"])))
    wanted = elements(loss, x.astype(np.float64) * 1.5, target).mean()
    np.testing.assert_allclose(run(session_of(made), feeds)["loss"], wanted, rtol=1e-5)
    check(made, feeds, ["x", "factor"], outputs=["loss"])


@pytest.mark.parametrize(
    ("loss", "operator", "warned"),
    [
        ("cross_entropy", "Softmax", True),
        ("cross_entropy", "LogSoftmax", False),
        ("binary_cross_entropy_with_logits", "Sigmoid", True),
        ("mean_squared_error", "Softmax", False),
    ],
)
def test_a_loss_of_probabilities_warns(loss: Loss, operator: str, warned: bool) -> None:
    model = parsed(SCORES.replace("Mul(x, factor)", f"{operator}(x)").format(opset=18, kind="float", shape="N, 3"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with_loss(model, loss, "y")
    told = [f"'y' is the output of {operator}, which {loss} applies itself: name its input"] * warned
    assert [str(warning.message) for warning in caught] == told


def test_logits_may_be_large_and_0() -> None:
    model = parsed(SCORES.format(opset=18, kind="float", shape="N"))
    made = session_of(gradient(with_loss(model, "binary_cross_entropy_with_logits", "y"), "loss", ["y"]))
    x, target = np.array([-500, 500, 500, 0], np.float32), np.array([0, 1, 0, 0], np.float32)
    found = run(made, {"x": x, "factor": np.array(1, np.float32), "target": target})
    assert found["loss"] == pytest.approx((500 + np.log(2)) / 4)
    np.testing.assert_allclose(found["y_grad"], [0, 0, 1 / 4, 1 / 8], atol=1e-7)


LINE = """<ir_version: 10, opset_import: ["" : 18]> line (float[n, 3] x{inputs}) => (float[n, 2] y)
    {{ product = MatMul (x, weight) y = Add (product, bias) }}"""
START: dict[str, Array] = {
    "weight": np.arange(6, dtype=np.float32).reshape(3, 2) / 4 - 0.5,
    "bias": np.array([0.5, -0.25], np.float32),
}


def line(*, with_inputs: bool = False) -> onnx.ModelProto:
    model = onnx.parser.parse_model(LINE.format(inputs=", float[3, 2] weight, float[2] bias" if with_inputs else ""))
    if not with_inputs:
        model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in START.items())
    return model


RATES = (0.05, 0.03)
"""The learning rates of even and of odd steps."""


def trained(
    step: onnx.ModelProto, state: Mapping[str, Array], feeds: Iterable[Mapping[str, Array]]
) -> dict[str, Array]:
    """The state after some steps: what the module's description says to feed back."""
    session, state = session_of(step), dict(state)
    for t, one in enumerate(feeds, 1):
        found = run(session, {**state, **one, "learning_rate": np.array(RATES[t % 2], np.float32)})
        state = {name.removesuffix("_next"): value for name, value in found.items() if name.endswith("_next")}
    return state


def test_a_step_of_doubles_is_computed_in_double() -> None:
    model = parsed("""<ir_version: 10, opset_import: ["" : 18]> g (double[2] p) => (double loss) {
        square = Mul (p, p) loss = ReduceSum <keepdims = 0> (square) }""")
    step = with_optimizer(gradient(model, "loss", ["p"]), "adam", clip=1.0)
    p = np.array([3.0, -4.0])
    found = run(session_of(step), {"p": p, "learning_rate": np.array(0.5, np.float32)})
    np.testing.assert_allclose(found["p_exp_avg_next"], 0.1 * p / 5, rtol=1e-6)
    np.testing.assert_allclose(found["p_next"], p - 0.5 * np.sign(p), rtol=1e-7)


@pytest.mark.parametrize("gradient_of", [1e-1, 1e-3, 1e-4])
def test_adam_moves_a_parameter_of_half_precision_by_the_rate(gradient_of: float) -> None:
    model = parsed("""<ir_version: 10, opset_import: ["" : 21]> g (float16[4] x) => (float loss)
        <float16[4] w = {0, 0, 0, 0}> { p = Mul (x, w) q = Cast <to = 1> (p) loss = ReduceSum <keepdims = 0> (q) }""")
    for master_weights, tolerance in ((False, 0.03), (True, 1e-3)):
        step = with_optimizer(gradient(model, "loss", ["w"]), "adam", master_weights=master_weights)
        feeds = [{"x": np.full(4, gradient_of, np.float16)}] * 100
        np.testing.assert_allclose(trained(step, {}, feeds)["w"], -100 * np.mean(RATES), rtol=tolerance)


def test_types_and_defaults_of_the_state_of_half_precision() -> None:
    model = parsed("""<ir_version: 10, opset_import: ["" : 21]> g (float16[2] v) => (float16 loss)
        { p = Mul (v, w) loss = ReduceSum <keepdims = 0> (p) }""")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, -3], np.float16), "w"))
    with_gradients = gradient(model, "loss", ["v", "w"])
    step = with_optimizer(with_gradients, "sgd", momentum=0.5, master_weights=True)
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(step, strict_mode=True))
    kinds = {value.name: value.type.tensor_type.elem_type for value in (*step.graph.input, *step.graph.output)}
    half, single = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
    for name in ("v", "w"):
        assert [kinds[f"{name}{end}"] for end in ("", "_next")] == [half, half]
        assert {kinds[f"{name}_{of}{end}"] for of in ("master", "momentum") for end in ("", "_next")} == {single}
    defaults = {tensor.name: onnx.numpy_helper.to_array(tensor).tolist() for tensor in step.graph.initializer}
    assert defaults == {"w": [1, -3], "w_master": [1, -3], "w_momentum": [0, 0], "v_momentum": [0, 0]}
    state: dict[str, Array] = {"v": np.ones(2, np.float16), "v_master": np.ones(2, np.float32)}
    assert with_state(model, trained(step, state, [{}])).graph.initializer[0].data_type == half


def test_a_network_learns_in_a_plain_session() -> None:
    rng = np.random.default_rng(0)
    model = parsed("""<ir_version: 8, opset_import: ["" : 13]> net (float[n, 2] x) => (float[n, 2] scores) {
        first = Gemm (x, w1, b1) hidden = Relu (first) scores = Gemm (hidden, w2, b2) }""")
    values: dict[str, Array] = {
        "w1": rng.normal(size=(2, 16)),
        "b1": np.zeros(16),
        "w2": rng.normal(size=(16, 2)) / 4,
        "b2": np.zeros(2),
    }
    model.graph.initializer.extend(onnx.numpy_helper.from_array(v.astype(np.float32), n) for n, v in values.items())
    step = with_optimizer(
        gradient(with_loss(model, "cross_entropy", "scores"), "loss", "parameters"), "sgd", momentum=0.9
    )
    x = rng.uniform(-1, 1, (256, 2)).astype(np.float32)
    feeds: dict[str, Array] = {"x": x, "target": (x[:, 0] * x[:, 1] > 0).astype(np.int64)}  # no line parts these two
    before = run(session_of(step), {**feeds, "learning_rate": np.array(0, np.float32)})
    state = trained(step, {}, [feeds] * 150)
    after = run(session_of(step), {**feeds, **state, "learning_rate": np.array(0, np.float32)})
    assert before["loss"] > 0.5
    assert after["loss"] < 0.15
    assert (after["scores"].argmax(axis=1) == feeds["target"]).mean() > 0.95


def test_names_of_a_step() -> None:
    with_gradients = gradient(with_loss(line(), "mean_squared_error", "y", "wanted", name="error"), "error", ["bias"])
    before = with_gradients.SerializeToString()
    step = with_optimizer(with_gradients, "sgd", momentum=0.5, learning_rate="rate")
    assert with_gradients.SerializeToString() == before
    assert [value.name for value in step.graph.input] == ["x", "wanted", "rate", "bias", "bias_momentum"]
    assert [value.name for value in step.graph.output] == ["y", "error", "bias_momentum_next", "bias_next"]
    chosen = gradient(with_loss(line(), "mean_squared_error", "y"), "loss", {"bias": "db", "weight": "dw"})
    step = with_optimizer(chosen, "sgd", {"bias": "db"})
    assert [value.name for value in step.graph.output] == ["y", "loss", "dw", "bias_next"]


def test_a_parameter_of_open_shape_has_no_momentum_to_begin_with() -> None:
    model = parsed("""<ir_version: 10, opset_import: ["" : 18]> g (float[n] x) => (float y) {
        square = Mul (x, x) y = ReduceSum <keepdims = 0> (square) }""")
    step = with_optimizer(gradient(model, "y", ["x"]), "sgd", momentum=0.5)
    assert not step.graph.initializer
    feeds = {
        "x": np.ones(3, np.float32),
        "x_momentum": np.ones(3, np.float32),
        "learning_rate": np.array(1, np.float32),
    }
    np.testing.assert_array_equal(run(session_of(step), feeds)["x_next"], np.full(3, 1 - 2.5, np.float32))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("hinge", "y"), "loss = 'hinge': must be one of binary_cross_entropy_with_logits, cross_entropy, mean_abs"),
        (("mean_squared_error", "z"), "output has 'z': must be the name of a tensor of the graph"),
        (("mean_squared_error", "weigth"), r"output has 'weigth' \(weight\?\): must be the name"),
        (("mean_squared_error", "y", "x"), r"the model has a tensor 'x' already: .* by target= \(--target\)"),
        (("mean_squared_error", "y", ""), "a new tensor has the name '': must be a str that is not empty"),
        (("cross_entropy", "bias"), "output = 'bias' has rank 1: must have axes of samples and of classes"),
        (("cross_entropy", "lengths"), "output = 'lengths': must be a tensor of float or double; add a Cast node"),
    ],
)
def test_a_wrong_loss(arguments: tuple[Loss, str], message: str) -> None:
    model = line(with_inputs=True)
    model.graph.node.append(onnx.helper.make_node("Shape", ["y"], ["lengths"]))
    with pytest.raises(ValueError, match=message):
        with_loss(model, *arguments)
    with pytest.raises(ValueError, match=r"the model has a tensor 'loss' already: .* by name= \(--name\)"):
        with_loss(with_loss(model, "mean_squared_error", "y"), "mean_squared_error", "y", "other")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"momentum": 1}, "momentum = 1: must be 0 or more and less than 1"),
        ({"weight_decay": -0.1}, "weight_decay = -0.1: must be 0 or more"),
        ({"nesterov": True}, "nesterov = True: must have a momentum"),
        ({"parameters": []}, r"parameters = \[\]: must be one or more names"),
        ({"parameters": ["weight"]}, "'weight': must have its gradient among the outputs, which lack 'weight_grad'"),
        ({"parameters": ["wieght"]}, r"parameters has 'wieght' \(weight\?\): must be an input, an initializer"),
        ({"parameters": {"bias": "bias_gard"}}, r"which lack 'bias_gard' \(bias_grad\?\)"),
        ({"parameters": {"y": "bias_grad"}}, "parameters has 'y': must be an input, an initializer or a Constant"),
        ({"betas": (0.9, 1)}, r"betas = \(0.9, 1\): must be two numbers, each 0 or more and less than 1"),
        ({"betas": 0.9}, "betas = 0.9: must be two numbers"),
        ({"eps": -1}, "eps = -1: must be 0 or more"),
        ({"clip": 0}, "clip = 0: must be more than 0, or left out"),
        ({"optimizer": "adam", "momentum": 0.9}, "momentum = 0.9: must be left out, since optimizer = 'adam' has none"),
        ({"optimizer": "adamw", "nesterov": True}, "nesterov = True: must be left out, since optimizer = 'adamw' has"),
        ({"betas": (0.9, 0.99)}, r"betas = \(0.9, 0.99\): must be left out, since optimizer = 'sgd' has none"),
        ({"eps": 1e-3}, "eps = 0.001: must be left out"),
        ({"step": "count"}, "step = 'count': must be left out"),
        ({"optimizer": "lion"}, "optimizer = 'lion': must be one of adam, adamw, sgd"),
        ({"optimizer": "adam", "step": "x"}, "the model has a tensor 'x' already"),
        ({"learning_rate": "x"}, "the model has a tensor 'x' already"),
        ({"learning_rate": ""}, "a new tensor has the name '': must be a str that is not empty"),
    ],
)
def test_a_wrong_step(arguments: dict[str, object], message: str) -> None:
    model = gradient(with_loss(line(), "mean_squared_error", "y"), "loss", ["bias"])
    with pytest.raises(ValueError, match=message):
        with_optimizer(model, **{"optimizer": "sgd", **arguments})  # type: ignore[arg-type]


def test_a_step_of_a_model_without_gradients_asks_for_them() -> None:
    with pytest.raises(ValueError, match=r"has no output NAME_grad .*: must be a model with gradients, as onnx_models"):
        with_optimizer(with_loss(line(), "mean_squared_error", "y"), "sgd")


TEXT = """<ir_version: 10, opset_import: ["" : 21]>
    net (float[n, 4] x, float[2] bias) => (float[n, 2] scores)
    <float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}, int64[2] shape = {-1, 4}, float[2, 2] frozen = {1, 0, 0, 1}> {
        k = Constant<value_floats = [0.5, 1.5]>()
        r = Reshape(x, shape)
        a = MatMul(r, w)
        b = MatMul(a, frozen)
        c = Mul(b, k)
        scores = Add(c, bias)
    }"""
X = np.arange(12, dtype=np.float32).reshape(3, 4) / 12
TARGET = np.array([0, 1, 1])


def test_a_state_of_some_parameters_makes_a_model_for_inference() -> None:
    model = onnx.parser.parse_model(TEXT)
    before = model.SerializeToString(deterministic=True)
    learned = gradient(with_loss(model, "cross_entropy", "scores"), "loss", ["w", "k", "bias"])
    step = with_optimizer(learned, "adamw")
    state: dict[str, Any] = {"bias": np.zeros(2, np.float32)}
    state |= {f"bias_{name}": np.zeros(2, np.float32) for name in ("exp_avg", "exp_avg_sq")}
    for _ in range(3):
        found = run_model(step, {"x": X, "target": TARGET, "learning_rate": np.array(0.1, np.float32), **state})
        state = {name.removesuffix("_next"): value for name, value in found.items() if name.endswith("_next")}
    assert {"step", "k_exp_avg", "w_exp_avg_sq"} <= state.keys()
    trained = with_state(model, state)
    assert model.SerializeToString(deterministic=True) == before
    onnx.checker.check_model(trained, full_check=True)
    assert [value.name for value in trained.graph.input] == ["x"]
    feeds = {"x": X, "target": TARGET, "learning_rate": np.array(0, np.float32), **state}
    np.testing.assert_allclose(run_model(trained, {"x": X})["scores"], run_model(step, feeds)["scores"], rtol=1e-6)
    assert not np.allclose(
        run_model(trained, {"x": X})["scores"], run_model(model, {"x": X, "bias": np.zeros(2, np.float32)})["scores"]
    )
    again = with_state(trained, {"k": np.array([0.5, 1.5], np.float32)})
    assert onnx.numpy_helper.to_array(again.graph.node[0].attribute[0].t).tolist() == [0.5, 1.5]


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        (
            {"W": np.zeros((4, 2), np.float32)},
            ValueError,
            r"state has 'W' \(w\?\): must be the name of an initializer, a Constant or",
        ),
        ({"w_next": np.zeros((4, 2))}, ValueError, r"state has 'w_next' \(w\?\): must be"),
        (
            {"w": np.zeros((2, 4), np.float32)},
            ValueError,
            r"'w' of shape \[2, 4\]: must be \[4, 2\], as the model has it",
        ),
        ({"w": np.zeros((4, 2))}, ValueError, "'w' of type float64: must be float32, as the model has it"),
        ({"k": np.zeros((), np.float32)}, ValueError, r"'k' of shape \[\]: must be \[2\]"),
        ({"w": [[1], [1, 2]]}, TypeError, "state has list for 'w': must be an array of float32"),
        ({"w": None}, TypeError, "state has NoneType for 'w': must be an array of float32"),
        ({}, ValueError, "state has no names: must have a parameter of the model"),
        ({"step": np.array(3), "w_momentum": 0}, ValueError, "state has 'step', 'w_momentum': must have a parameter"),
        ([], TypeError, "state = list: must be a mapping from names to arrays"),
    ],
)
def test_a_wrong_state(state: Mapping[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        with_state(onnx.parser.parse_model(TEXT), state)


def test_a_state_of_untied_parameters_belongs_to_the_untied_model() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 13]>
        net (float[n, 2] x) => (float[n, 2] y) <float[2] zero = {0, 0}> {
            a = Add(x, zero) b = Tanh(a) y = Mul(b, zero) }""")
    learned = gradient(with_loss(model, "mean_squared_error", "y"), "loss", "parameters", untie=True)
    step = with_optimizer(learned, "sgd")
    feeds: dict[str, Any] = {"x": X[:, :2], "target": X[:, 2:], "learning_rate": np.array(0.5, np.float32)}
    state: dict[str, Any] = {}
    for _ in range(2):
        found = run_model(step, feeds | state)
        state = {name.removesuffix("_next"): value for name, value in found.items() if name.endswith("_next")}
    assert set(state) == {"zero", "y.input_1"}
    assert not np.array_equal(state["zero"], state["y.input_1"])
    made = with_state(untie(model), state)
    assert [value.name for value in made.graph.output] == ["y"]
    np.testing.assert_allclose(run_model(made, {"x": X[:, :2]})["y"], run_model(step, feeds | state)["y"], rtol=1e-6)
    with pytest.raises(ValueError, match=r"state has 'y.input_1'.*: must be"):
        with_state(model, state)
    with pytest.warns(TiedParametersWarning):
        gradient(with_loss(model, "mean_squared_error", "y"), "loss", "parameters")
