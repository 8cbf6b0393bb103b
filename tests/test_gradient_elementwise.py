"""Gradients of elementwise functions and of Softmax at corners, ties, zeros and infinities, as PyTorch has them."""

from __future__ import annotations

import numpy as np
import pytest

from gradient_checks import of_sum, parsed, run, with_loss
from onnx_models.gradient import gradient


@pytest.mark.parametrize(
    ("branch", "expected"),
    [
        # Functions that are no numbers or have infinite derivatives at 0 and below, and their derivatives at 4.
        ("f = Log(x)", 1 / 4),
        ("f = Sqrt(x)", 1 / 4),
        ("f = Reciprocal(x)", -1 / 16),
        ("f = Div(one, x)", -1 / 16),
        ("f = Div(x, x)", 0),
        ("l = Log(x) f = Mul(x, l)", 1 + np.log(4)),
        ("l = Log(x) m = Mul(x, l) g = Mul(m, l) h = Sub(g, l) f = Neg(h)", 1 / 4 - np.log(4) ** 2 - 2 * np.log(4)),
        ("f = Pow(x, half)", 1 / 4),
        ("f = Pow(half, x)", np.log(0.5) / 16),
        ("l = Log(x) p = Equal(x, one) f = Where(p, x, l)", 1 / 4),
        ("l = Log(x) p = Less(x, one) n = Neg(l) w = Where(p, n, l) f = Mul(w, x)", 1 + np.log(4)),
    ],
)
def test_a_branch_that_is_not_taken_has_no_gradient_whatever_its_derivative(branch: str, expected: float) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 18]>
        g (double[N] x) => (double y) <double one = {{1}}, double half = {{0.5}}, double zero = {{0}}> {{
          taken = Greater(x, zero)
          {branch}
          y = Where(taken, f, x) }}"""
    found = of_sum(text, {"x": np.array([-1.0, 0.0, 4.0])}, ["x"])["x"]
    np.testing.assert_allclose(found, [1, 1, expected], rtol=1e-12)


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # vector_norm of order 3 and 2.5, and std with and without a correction, as torch.onnx writes them.
        ("a = Abs(x) p = Pow(a, c3) s = ReduceSum<keepdims = 0>(p, last) y = Pow(s, third)", "3"),
        ("a = Abs(x) p = Pow(a, c25) s = ReduceSum<keepdims = 0>(p, last) y = Pow(s, c04)", "2.5"),
        ("d = Mul(x, x) v = ReduceSum<keepdims = 0>(d, last) y = Sqrt(v)", "2"),
        ("v = ReduceSumSquare<keepdims = 0>(x, last) y = Pow(v, half)", "2"),
        (
            """m = ReduceMean<keepdims = 1>(x, last) c = Sub(x, m) q = Mul(c, c) v = ReduceMean<keepdims = 0>(q, last)
               shape = Shape(x) n = Gather(shape, last) number = ReduceProd<keepdims = 0>(n) k = CastLike(number, x)
               u = Mul(v, k) one = CastLike(whole, x) r = Sub(k, one) w = Div(u, r) y = Sqrt(w)""",
            "std",
        ),
    ],
)
def test_a_norm_that_is_0_has_no_gradient_as_in_pytorch(body: str, expected: str, kind: str) -> None:
    constants = {"c3": 3, "third": 1 / 3, "c25": 2.5, "c04": 0.4, "half": 0.5}
    declarations = ", ".join(f"{kind} {name} = {{{value}}}" for name, value in constants.items())
    text = f"""<ir_version: 10, opset_import: ["" : 18]>
        g ({kind}[N, M] x) => ({kind} y) <{declarations}, int64[1] last = {{-1}}, float whole = {{1.0}}> {{ {body} }}"""
    x = np.array([[0, 0, 0], [1, -2, 0.5]], {"float": np.float32, "double": np.float64}[kind])
    found = of_sum(text, {"x": x}, ["x"])["x"]
    np.testing.assert_array_equal(found[0], 0)
    line = x[1].astype(np.float64)
    if expected == "std":
        by_line = (line - line.mean()) / (2 * line.std(ddof=1))
    else:
        order = float(expected)
        by_line = np.sign(line) * abs(line) ** (order - 1) * (abs(line) ** order).sum() ** (1 / order - 1)
    np.testing.assert_allclose(found[1], by_line, rtol=1e-5 if kind == "float" else 1e-6)


@pytest.mark.parametrize(
    "body",
    [
        "y = Sqrt(x)",
        "y = Pow(x, half)",
        "s = ReduceSum(x, last) y = Pow(s, half)",  # no powers are summed
        "c = Pow(x, three) s = ReduceSum(c, last) y = Pow(s, third)",  # of (1, -1) it is 0 too
        "d = Mul(x, x) e = Add(d, x) s = ReduceSum(e, last) y = Sqrt(s)",
    ],
)
def test_any_other_root_has_no_finite_derivative_at_0(body: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 18]>
        g (double[N, M] x) => (double y)
          <double half = {{0.5}}, double three = {{3}}, double third = {{0.3333333333333333}}, int64[1] last = {{-1}}> {{
          {body} }}"""
    found = of_sum(text, {"x": np.zeros((2, 2))}, ["x"])["x"]
    assert not np.isfinite(found).any()


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("cast", ["n = Cast<to = 11>(p)", "n = Identity(p)"])
def test_a_line_without_any_choice_that_where_replaces_has_no_gradient(operator: str, cast: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 18]>
        g (double[N, M] x, double[N, M] mask) => (double y) <double zero = {{0}}> {{
          masked = Add(x, mask) p = {operator}(masked) {cast}
          bad = IsNaN(n) y0 = Where(bad, zero, n)
          some = Less(mask, zero) y = Where(some, zero, y0) }}"""
    mask = np.array([[-np.inf, -np.inf], [0, -np.inf], [0, 0]])
    feeds = {"x": np.array([[1.0, 2], [3, 4], [0.5, 0.25]]), "mask": mask}
    weights = np.array([[1.0, 2], [3, 4], [5, 6]])
    found = run(gradient(with_loss(parsed(text), {"y": weights}), "loss", ["x"]), feeds)["x_grad"]
    share = 1 / (1 + np.exp(-0.25))
    slope = share * (1 - share) * (5 - 6) if operator == "Softmax" else 5 - 11 * share
    np.testing.assert_allclose(found, [[0, 0], [0, 0], [slope, -slope]], rtol=1e-12, atol=1e-15)
