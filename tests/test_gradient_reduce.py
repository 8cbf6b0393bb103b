"""Gradient rules of reductions."""

from __future__ import annotations

import numpy as np
import pytest

from gradient_checks import Array, check, of_sum, parsed
from gradient_nodes import not_of_old
from onnx_models.gradient import gradient

OPERATORS = [
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceProd",
]


def _text(call: str, x: str, axes: str = "{1}", *, kind: str = "double") -> str:
    """A reduction along constant axes."""
    return f"""<ir_version: 10, opset_import: ["" : 18]>
        g ({kind}{x} x) => ({kind} y) <int64[1] axes = {axes}> {{ y = {call} }}"""


def _random(*shape: int) -> Array:
    return np.asarray(np.random.default_rng(8).uniform(0.2, 1, shape))


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize(("shape", "axes"), [((2, 0), "{0}"), ((2, 0), "{1}")])
def test_empty(operator: str, shape: tuple[int, ...], axes: str) -> None:
    # The sum over nothing is the empty tensor's own value; its gradient has no elements.
    x = np.zeros(shape)
    found = of_sum(_text(f"{operator}<keepdims=0>(x, axes)", "[N,M]", axes), {"x": x}, ["x"])["x"]
    assert found.shape == shape


@pytest.mark.parametrize("operator", OPERATORS)
def test_float16(operator: str) -> None:
    x = _random(3, 4).astype(np.float16)
    halves, floats = (
        of_sum(
            _text(f"{operator}<keepdims=0>(x, axes)", "[N,M]", "{1}", kind=kind),
            {"x": x.astype(dtype)},
            ["x"],
        )["x"]
        for kind, dtype in (("float16", np.float16), ("float", np.float32))
    )
    assert halves.dtype == np.float16
    np.testing.assert_allclose(halves.astype(np.float32), floats, rtol=0.02, atol=0.01)


@pytest.mark.parametrize(
    ("call", "opset"),
    [
        ("ReduceProd<keepdims = 0>(x, one)", 18),
        pytest.param("CumProd(x, first)", 26, marks=not_of_old),
        pytest.param("CumProd<exclusive = 1, reverse = 1>(x, first)", 26, marks=not_of_old),
        ('ScatterElements<reduction = "mul", axis = 1>(start, places, x)', 18),
    ],
)
def test_products_have_a_second_derivative_also_where_one_factor_is_0(call: str, opset: int) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : {opset}]>
        g (double[N, M] x) => (double energy)
          <int64[1] one = {{1}}, int64 first = {{1}}, double[3, 2] start = {{2, 3, 4, 5, 6, 7}},
           int64[3, 4] places = {{0, 0, 0, 1, 0, 0, 1, 1, 1, 1, 1, 1}}> {{
          y = {call}
          square = Mul(y, y) both = Add(square, y)
          energy = ReduceSum<keepdims = 0>(both) }}"""
    first = gradient(parsed(text), "energy", {"x": "by_x"})
    del first.graph.output[0]
    x = np.array([[2.0, 3, 0, 4], [0, 2, 5, 3], [1, 2, 3, 4]])
    check(first, {"x": x}, ["x"], tolerance=1e-6)
