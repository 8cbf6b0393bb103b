# SPDX-License-Identifier: MIT
"""Gradients and bodies of users' operators, for models."""

# mypy: disable-error-code="empty-body, no-any-return"

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import onnx_models
import ortops
from onnx_models.tools.attributes import CUSTOM
from sessions import made, model_of, session

F = NDArray[np.float32]


R = TypeVar("R", np.float32, np.float64)


def _cube(x: NDArray[R], power: int = 3) -> NDArray[R]:
    return x**power


def _cube_grad(dy: NDArray[R], x: NDArray[R], power: int = 3) -> NDArray[R]:
    return dy * power * x ** (power - 1)


_BODY = """<opset_import: ["" : 18], domain: "t"> f <power> (x) => (y) {
    n = Constant <value_int: int = @power> ()
    y = Pow(x, n)
}"""


@pytest.mark.usefixtures("own_schemas")
@pytest.mark.parametrize("way", ["gradient", "body"])
def test_gradient_uses_gradient_or_body_of_operator(way: str) -> None:
    gradient = ortops.operator(domain="t.grad", name="g")(_cube_grad)
    body = onnx.parser.parse_function(_BODY)
    settings: Any = {"gradient": gradient} if way == "gradient" else {"body": body}
    operators = made(_cube, shapes=lambda x, power: x, **settings), gradient
    onnx_models.register_schemas(operators)
    onnx_models.register_schemas(operators)
    with pytest.raises(RuntimeError, match="another operator of this name is registered already"):
        onnx_models.register_schemas([made(_cube)])
    model = model_of("(double[n] x) => (double loss) { y = t.f(x) loss = ReduceSum <keepdims = 0> (y) }")
    onnx.checker.check_model(model, full_check=True, check_custom_domain=True)
    differentiated = onnx_models.gradient(model, "loss", ["x"])
    runner = session(differentiated, *operators)
    x = np.array([1.0, 2.0])
    np.testing.assert_allclose(runner.run(["x_grad"], {"x": x})[0], 3 * x**2)
    assert any(node.domain == "t.grad" for node in differentiated.graph.node) == (way == "gradient")
    if way == "body":
        portable = onnx_models.portable.attach(onnx_models.portable.attach(model))
        assert [function.name for function in portable.functions] == ["f"]
        assert session(portable).run(None, {"x": x})[0] == 9


def test_operators_argument_serves_one_call() -> None:
    gradient = ortops.operator(domain="t.grad", name="g")(_cube_grad)
    body = onnx.parser.parse_function(_BODY)
    cube = made(_cube, shapes=lambda x, power: x, gradient=gradient, body=body)
    operators = iter([cube, gradient])
    model = model_of("(double[n, 2] x, double[2, 1] w) => (double[n, 1] z) { y = t.f(x) z = MatMul(y, w) }")
    unknown = r"does not find it\. Nothing is known of node of 'y' \(f\) of the domain t: .* \(--operators\), or"
    with pytest.raises(
        ValueError,
        match=r"'y' \(f\) has no gradient rule \(domain t\): .* must be among operators= \(--operators\), or",
    ):
        onnx_models.vjp(model, ["z"], ["x"])
    stacked = model_of("(double[n, 2] x, double[1, 2, 1] w) => (double[1, n, 1] z) { y = t.f(x) z = MatMul(y, w) }")
    with pytest.raises(ValueError, match=f"the rank of 'y' must be known, .* {unknown}"):
        onnx_models.vjp(stacked, ["z"], ["w"])
    with pytest.raises(ValueError, match=f"outputs has 'y': its type must be known, .* {unknown}"):
        onnx_models.vjp(model, ["y"], ["x"])
    with pytest.raises(ValueError, match=f"output = 'y': its type must be known, .* {unknown}"):
        onnx_models.with_loss(model, "mean_squared_error", "y")
    weighted = onnx_models.with_loss(model, "mean_squared_error", "z", operators=[cube])
    differentiated = onnx_models.gradient(weighted, "loss", ["x"], operators=operators)
    assert "t.grad" in {node.domain for node in differentiated.graph.node}
    again = made(_cube, shapes=lambda x, power: x, body=body)  # as after the cell of a notebook has run again
    for differentiate in (onnx_models.vjp, onnx_models.jvp, onnx_models.jacobian):
        assert len(differentiate(model, ["z"], ["x"], operators=[again]).graph.output) == 2
    assert len(onnx_models.hessian(weighted, "loss", ["x"], operators=[again]).graph.output) == 4
    portable = onnx_models.portable.attach(model, operators=[cube])
    feeds = {"x": np.array([[1.0, 2.0]]), "w": np.ones((2, 1))}
    assert session(portable).run(None, feeds)[0] == 9
    assert not onnx.defs.has("f", 1, "t")
    assert ("t", "f") not in CUSTOM
    with pytest.raises(
        TypeError, match=r"operators has <function _cube .*: must be an operator made by ortops.operator"
    ):
        onnx_models.gradient(weighted, "loss", ["x"], operators=[_cube])  # type: ignore[list-item]


def _ok(x: NDArray[np.float32]) -> NDArray[np.float32]: ...


@pytest.mark.usefixtures("own_schemas")
@pytest.mark.parametrize(
    ("gradient", "function", "says"),
    [
        (
            "t::none",
            None,
            r"has the gradient t::none: must be among operators= \(--operators\), or be given to onnx_mo",
        ),
        ("g", lambda dz, x: x, "the input dz of its gradient t::g must be one of x, y, dy"),
        (None, None, r"has no gradient rule \(domain t\): ortops.operator can give its operator a gradient or a body"),
    ],
)
def test_error_names_missing_gradient(gradient: Any, function: Any, says: str) -> None:
    operators = [made(_ok, gradient=gradient, shapes=lambda x: x)]
    if function is not None:
        inputs = [ortops.Tensor(name, "float") for name in function.__code__.co_varnames]
        operators.append(made(function, name="g", inputs=inputs, outputs=[ortops.Tensor("dx", "float")]))
    onnx_models.register_schemas(operators)
    model = model_of("(float[n] x) => (float loss) { y = t.f(x) loss = ReduceSum <keepdims = 0> (y) }")
    with pytest.raises(ValueError, match=says):
        onnx_models.gradient(model, "loss", ["x"])
