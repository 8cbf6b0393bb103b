"""A state of training in the model for inference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest

from gradient_checks import run
from onnx_models import gradient, untie, with_loss, with_optimizer, with_state
from onnx_models.gradient import TiedParametersWarning

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
        found = run(step, {"x": X, "target": TARGET, "learning_rate": np.array(0.1, np.float32), **state})
        state = {name.removesuffix("_next"): value for name, value in found.items() if name.endswith("_next")}
    assert {"step", "k_exp_avg", "w_exp_avg_sq"} <= state.keys()
    trained = with_state(model, state)
    assert model.SerializeToString(deterministic=True) == before
    onnx.checker.check_model(trained, full_check=True)
    assert [value.name for value in trained.graph.input] == ["x"]
    feeds = {"x": X, "target": TARGET, "learning_rate": np.array(0, np.float32), **state}
    np.testing.assert_allclose(run(trained, {"x": X})["scores"], run(step, feeds)["scores"], rtol=1e-6)
    assert not np.allclose(
        run(trained, {"x": X})["scores"], run(model, {"x": X, "bias": np.zeros(2, np.float32)})["scores"]
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
        found = run(step, feeds | state)
        state = {name.removesuffix("_next"): value for name, value in found.items() if name.endswith("_next")}
    assert set(state) == {"zero", "y.input_1"}
    assert not np.array_equal(state["zero"], state["y.input_1"])
    made = with_state(untie(model), state)
    assert [value.name for value in made.graph.output] == ["y"]
    np.testing.assert_allclose(run(made, {"x": X[:, :2]})["y"], run(step, feeds | state)["y"], rtol=1e-6)
    with pytest.raises(ValueError, match=r"state has 'y.input_1'.*: must be"):
        with_state(model, state)
    with pytest.warns(TiedParametersWarning):
        gradient(with_loss(model, "mean_squared_error", "y"), "loss", "parameters")
