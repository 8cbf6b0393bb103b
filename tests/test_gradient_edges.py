# SPDX-License-Identifier: MIT
"""Gradients at corners, ties, zeros and infinities, of regions and of Resize, and nodes that are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from gradient_checks import Call, not_of_old, of_sum, parsed, run, with_loss
from gradient_samples import GRADIENTS_OF_REGIONS, MAP, SIZES, region_gradient, resize, scales
from onnx_models.gradient import ZeroGradientWarning, gradient, vjp
from onnx_models.gradient.rules import RULES
from ortops.spec import ELEMENT_DTYPES

NAN, INF = np.nan, np.inf
TIES = {"x": [2, 0, 3, 1], "u": [0, 5, 4, 3, 3, 0, 0]}
"""Of u, 0 and 5 are scattered to index 0, 4 to index 1, and so on (`PLACES`)."""
PLACES = np.array([0, 0, 1, 2, 2, 3, 3])
BY_TIES: dict[str, dict[str, Any]] = {
    "mul": {"x": [0, 4, 9, 0], "u": [10, 0, 0, 9, 9, 0, 0]},
    "max": {"x": [0, 0, 1 / 3, 1], "u": [0, 1, 1, 1 / 3, 1 / 3, 0, 0]},
    "min": {"x": [0, 1, 1 / 3, 0], "u": [1, 0, 0, 1 / 3, 1 / 3, 1 / 2, 1 / 2]},
}
FIRST_OF_8 = np.eye(1, 8).reshape(1, 1, 2, 4)
ONE_CHANNEL_OF_0 = np.repeat([0.0, 1.0], 8).reshape(1, 2, 2, 4)

VALUES: list[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]] = [
    # nodes, type, inputs, gradients of the sum of y
    ("Relu(x)", "float", {"x": [-1, 0, 2, NAN]}, {"x": [0, 0, 1, 1]}),
    ("Abs(x)", "float", {"x": [-1, 0, 2]}, {"x": [-1, 0, 1]}),
    ("LeakyRelu<alpha=0.5>(x)", "float", {"x": [-1, 0, 2]}, {"x": [0.5, 0.5, 1]}),
    ("ThresholdedRelu<alpha=1.0>(x)", "float", {"x": [0, 1, 2]}, {"x": [0, 0, 1]}),
    ("Elu<alpha=0.5>(x)", "float", {"x": [0, 2, 100]}, {"x": [0.5, 1, 1]}),
    ("Celu<alpha=0.5>(x)", "float", {"x": [0, 2, 100]}, {"x": [1, 1, 1]}),
    ("Softplus(x)", "float", {"x": [-200, 0, 200]}, {"x": [0, 0.5, 1]}),
    ("HardSigmoid<alpha=0.5, beta=0.5>(x)", "float", {"x": [-2, -1, 0, 1, 2]}, {"x": [0, 0, 0.5, 0, 0]}),
    ("Shrink(x)", "float", {"x": [-2, -0.5, 0, 0.5, 2]}, {"x": [1, 0, 0, 0, 1]}),
    ("HardSwish(x)", "float", {"x": [-4, -3, 0, 3, 4]}, {"x": [0, 0, 0.5, 1, 1]}),
    ("Softmax(x)", "float", {"x": [1000, 0, -1000]}, {"x": [0, 0, 0]}),
    ("p = Relu(x) y = Sqrt(p)", "double", {"x": [-1, 0, 4]}, {"x": [0, 0, 0.25]}),
    # An infinite derivative shows where a gradient just happens to be 0.
    ("r = Sqrt(x) y = Mul(r, w)", "double", {"x": [0, 0], "w": [0.0, 2]}, {"x": [NAN, INF]}),
    # The first of equal ones has the gradient, and both of a pair with NaN.
    *((f"{name}(x, b, b)", "double", {"x": [1, 2], "b": [1.0, 2]}, {"x": [1, 1], "b": [0, 0]}) for name in ("Max", "Min")),
    *(
        (f"{name}(x, b)", "double", {"x": [NAN, 1, 1], "b": [1.0, NAN, 1]}, {"x": [1, 1, 1], "b": [1, 1, 0]})
        for name in ("Max", "Min")
    ),
    ("Pow(x, b)", "double", {"x": [0, 0, 0, -2, -2], "b": [0.0, 1, 2, 3, 0]}, {"x": [0, 1, 0, 12, 0]}),
    ("Pow(x, b)", "double", {"x": [0, 0, 0], "b": [0.0, 1, 2]}, {"b": [0, 0, 0]}),
    ("Pow(x, b)", "double", {"x": [0, 0, 0], "b": [0.5, 1, -1]}, {"x": [INF, 1, -INF]}),
    ("Pow(x, b)", "double", {"x": [0, 0], "b": [0.5, 1]}, {"b": [0, 0]}),
    ("Clip(x, l, h)", "double", {"x": [-1, 0, 0.5, 1, 2], "l": 0.0, "h": 1.0}, {"x": [0, 1, 1, 1, 0], "l": 1, "h": 1}),
    ("Clip(x, l, h)", "double", {"x": [-1, 2, 3], "l": 1.0, "h": 1.0}, {"x": [0, 0, 0], "l": 1, "h": 2}),
    ("ReduceMax(x)", "double", {"x": [1, 3, 3, 2]}, {"x": [0, 0.5, 0.5, 0]}),
    ("ReduceMin(x)", "double", {"x": [3, 1, 1, 2]}, {"x": [0, 0.5, 0.5, 0]}),
    *(
        (f"{name}<keepdims=0>(x, a)", "double", {"x": [[NAN, NAN], [1, 2]], "a": [1]}, {"x": [[NAN, NAN], by_line]})
        for name, by_line in (("ReduceMax", [0, 1]), ("ReduceMin", [1, 0]))
    ),
    ("ReduceL1(x, a)", "double", {"x": [[0, 0], [3, 0]], "a": [1]}, {"x": [[0, 0], [1, 0]]}),
    ("ReduceL2(x, a)", "double", {"x": [[0, 0], [3, 0]], "a": [1]}, {"x": [[0, 0], [1, 0]]}),
    ("ReduceProd(x, a)", "double", {"x": [[2, 3, 4], [2, 0, 4], [0, 0, 4]], "a": [1]},
     {"x": [[12, 8, 6], [0, 8, 0], [0, 0, 0]]}),
    ("ReduceLogSumExp(x)", "double", {"x": [1000, 1000, -1000]}, {"x": [0.5, 0.5, 0]}),
    *(
        (f'{operator}<reduction = "{reduction}">(x, i, u)', kind, TIES | {"i": i}, by)
        for reduction, by in BY_TIES.items()
        for operator, kind, i in (
            ("ScatterElements", "double", PLACES), ("ScatterND", "double", PLACES[:, None]),
            ("ScatterElements", "float16", PLACES),
        )
        if (reduction, kind) != ("mul", "float16")  # ONNX Runtime's CPU has no products of float16 here
    ),
    ("u = Unique(x) y = Mul(u, u)", "double", {"x": [2, 1, 2, 3, 1]}, {"x": [4, 2, 0, 6, 0]}),
    ("Gather(x, i)", "double", {"x": [[1, 2], [3, 4]], "i": [0] * 20_000}, {"x": [[20_000] * 2, [0] * 2]}),  # on threads
    ("i = Cast<to = 7>(x) w = Cast<to = 11>(i) y = Mul(w, x)", "double", {"x": [1.5, -2.5]}, {"x": [1, -2]}),
    *(
        ("Where(c, x, b)", kind, {"c": np.array([True, False]), "x": [1, 1], "b": 1.0}, {"x": [1, 0], "b": 1})
        for kind in ("float16", "float")
    ),
    ("MaxPool<kernel_shape = [2, 4]>(x)", "float", {"x": 0 * FIRST_OF_8}, {"x": FIRST_OF_8}),
    ("GlobalMaxPool(x)", "float", {"x": 0 * FIRST_OF_8}, {"x": FIRST_OF_8}),
    *(
        (f"{call}p = {p}>(x)", "float", {"x": ONE_CHANNEL_OF_0}, {"x": ONE_CHANNEL_OF_0 * 8 ** (1 / p - 1)})
        for call in ("LpPool<kernel_shape = [2, 4], ", "GlobalLpPool<")
        for p in (1, 2, 3)
    ),
    ("LpNormalization<p = 1>(x)", "double", {"x": [[0, 0], [3, -4]]}, {"x": [[0, 0], [8 / 49, 6 / 49]]}),
    ("LpNormalization<p = 2>(x)", "double", {"x": [[0, 0], [3, -4]]}, {"x": [[0, 0], [28 / 125, 21 / 125]]}),
    # What is ignored has no gradient even if it is all, and infinite.
    *(
        (f'{operator}<reduction = "{reduction}", ignore_index = -1>(x, t, w)', "double",
         {"x": [[-INF, 0], [1, 1]], "t": [-1, last], "w": [2.0, 3]}, {"x": [[0, 0], by_x], "w": [0, by_w]})
        for operator, reduction, last, by_x, by_w in (
            ("NegativeLogLikelihoodLoss", "none", 1, [0, -3], -1), ("NegativeLogLikelihoodLoss", "mean", 1, [0, -1], 0),
            ("SoftmaxCrossEntropyLoss", "sum", 1, [1.5, -1.5], np.log(2)),
            ("SoftmaxCrossEntropyLoss", "mean", 1, [0.5, -0.5], 0), ("NegativeLogLikelihoodLoss", "sum", -1, [0, 0], 0),
        )
    ),
    *(
        (f'{operator}<reduction = "mean", ignore_index = -1>(x, t)', "double", {"x": [[-INF, 0], [1, 1]], "t": [-1, -1]},
         {"x": np.zeros((2, 2))})
        for operator in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
    ),
    *(
        (f"{name}<keepdims = 0>(x, a)", "double", {"x": np.zeros((2, 0)), "a": [axis]}, {"x": np.zeros((2, 0))})
        for name in ("ReduceMax", "ReduceProd", "ReduceLogSumExp", "ReduceMean") for axis in (0, 1)
    ),
    # A branch that is not taken has no gradient, whatever its derivative at 0 and below; here are those at 4.
    *(
        (f"taken = Greater(x, zero) {branch} y = Where(taken, f, x)", "double",
         {"x": [-1, 0, 4], "zero": 0.0, "one": 1.0, "half": 0.5}, {"x": [1, 1, slope]})
        for branch, slope in (
            ("f = Log(x)", 1 / 4), ("f = Sqrt(x)", 1 / 4), ("f = Reciprocal(x)", -1 / 16), ("f = Div(one, x)", -1 / 16),
            ("f = Div(x, x)", 0), ("l = Log(x) f = Mul(x, l)", 1 + np.log(4)),
            ("l = Log(x) m = Mul(x, l) g = Mul(m, l) h = Sub(g, l) f = Neg(h)", 1 / 4 - np.log(4) ** 2 - 2 * np.log(4)),
            ("f = Pow(x, half)", 1 / 4), ("f = Pow(half, x)", np.log(0.5) / 16),
            ("l = Log(x) p = Equal(x, one) f = Where(p, x, l)", 1 / 4),
            ("l = Log(x) p = Less(x, one) n = Neg(l) w = Where(p, n, l) f = Mul(w, x)", 1 + np.log(4)),
        )
    ),
    # Determinants of singular matrices have their cofactors.
    ("Det(x)", "float", {"x": [[1, 2, 3], [2, 4, 6], [1, 0, 1]]}, {"x": [[4, 4, -4], [-2, -2, 2], [0, 0, 0]]}),
    ("Det(x)", "float", {"x": [[0, 0, 0], [0, 2, 1], [0, 1, 3]]}, {"x": [[5, 0, 0], [0, 0, 0], [0, 0, 0]]}),
    *(
        (f"{call}(x, r)", "float", {"x": np.ones((1, 2, 4, 4)), "r": np.array([[0, 1, 1, 3, 3]], np.float32)},
         {"x": np.eye(1, 16, 5).repeat(2, 0).reshape(1, 2, 4, 4)})
        for call in ("MaxRoiPool<pooled_shape = [1, 1]>", "ai.onnx.contrib.MaxRoiPool_22<pooled_shape = [1, 1]>")
    ),
]  # fmt: skip


# Of numbers of 8 bits, the first is beyond the largest, and the second is rounded.
SMALL = [
    pytest.param(lines, "float", {"x": [-largest, largest * 33 / 256], "s": 0.5}, expected, marks=not_of_old)
    for kind, largest in ((17, 448.0), (18, 240.0), (19, 57344.0), (20, 57344.0))
    for lines, expected in (
        (f"q = QuantizeLinear<output_dtype = {kind}>(x, s) y = DequantizeLinear(q, s)",
         {"x": [0, 1], "s": -largest * 129 / 128}),
        (f"c = Cast<to = {kind}>(x) d = Cast<to = 1>(c) y = Mul(d, s)", {"x": [0.5, 0.5]}),
    )
]  # fmt: skip


@pytest.mark.parametrize(("lines", "kind", "inputs", "expected"), [*VALUES, *SMALL], ids=lambda value: str(value)[:40])
def test_values(lines: str, kind: str, inputs: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    dtype = ELEMENT_DTYPES[kind]
    values = {name: np.asarray(value) for name, value in inputs.items()}
    feeds = {n: v.astype(dtype) if n in ("x", "u") or v.dtype.kind == "f" else v for n, v in values.items()}
    found = of_sum(Call(lines, feeds, kind=kind).model("names"), feeds, list(expected))
    tolerance = {"float16": 1e-3, "float": 1e-5, "double": 1e-12}[kind]
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=tolerance, atol=tolerance / 100, err_msg=name)


RNN = "RNN<hidden_size = 3{}>(x, w, r)"
RNN_INPUTS = "float[4,3,2] x, float[1,3,2] w, float[1,3,3] r"
KEPT = 'axes = [2, 3], keep_aspect_ratio_policy = "not_larger"'

QUANTIZED = "q = QuantizeLinear(x, s) "
INTEGERS = "float[n,n] x, float s"

REFUSED = [
    # node or nodes, inputs, message
    *(
        (QUANTIZED + lines, INTEGERS, rf"\({name}\) has no gradient: it computes with .*QuantizeLinear followed by")
        for lines, name in (
            ("r = Reshape(q, sizes) y = DequantizeLinear(r, s)", "Reshape"), ("y = Cast<to = 1>(q)", "Cast"),
            ("r = Transpose(q) t = Transpose(r) y = DequantizeLinear(t, s)", "Transpose"),
            ("r = Cast<to = 6>(q) t = Cast<to = 1>(r) y = Mul(t, s)", "Cast"),
            ("z = Constant<value = uint8 {0}>() r = QLinearMatMul(q, s, z, q, s, z, s, z) y = DequantizeLinear(r, s)",
             "QLinearMatMul"),
            ("r = MatMulInteger(q, q) y = Cast<to = 1>(r)", "MatMulInteger"),
        )
    ),
    ('Einsum<equation = "ij,ij->ij">(x, z)', "float[1,3] x, float[2,3] z", "axis 'i' of 'z' has length 2: must be 1"),
    ('Einsum<equation = "ij,jk">(x)', "float[n,m] x", "has 2 operands: must have 1"),
    ('Einsum<equation = "...ijk->i">(x)', "float[n,m] x", r"must agree with operands of ranks \[2\]"),
    ('GridSample<padding_mode = "wrap">(x, z)', "float[1,1,2,2] x, float[1,2,2,2] z", "padding_mode = 'wrap': must be"),
    ("Det(x)", "float[N,N] x", "its matrices have an unknown number of rows: must be 32 or less"),
    ("Det(x)", "float[33,33] x", "its matrices have 33 rows: must be 32 or less"),
    ("MatMul(x, w)", "float[M,K] x, float[] w", r"node 'it' \(MatMul\): the rank of 'w' must be known"),
    ("Conv<pads = [-1, 0]>(x, w)", "float[1,1,a] x, float[1,1,2] w", r"\(Conv\): pads = \[-1, 0\]: must be >= 0"),
    ("Conv(x, w)", "float[2,3] x, float[3,3] w", r"\(Conv\): '.*' has no spatial axes"),
    ("ConvTranspose(x, w)", "float[2,3] x, float[3,3] w", r"\(ConvTranspose\): '.*' has no spatial axes"),
    (RNN.format(', activations = ["Tanh", "Tanh"]'), RNN_INPUTS, r"activations = \['Tanh', 'Tanh'\]: must be 1"),
    (RNN.format(', activations = ["Cosh"]'), RNN_INPUTS, r"activations = \['Cosh'\]: each must be one of"),
    (RNN.format(', activations = ["Affine"], activation_alpha = [1.0]'), RNN_INPUTS, "Affine needs activation_alpha"),
    (RNN.format(', activations = ["ThresholdedRelu"]'), RNN_INPUTS, "ThresholdedRelu needs activation_alpha"),
    (RNN.format(', direction = "both"'), RNN_INPUTS, "direction = 'both': must be"),
    ('RoiAlign<mode = "median">(w, x, i)', "float[1,2,8,9] w, float[r,4] x, int64[r] i",
     r"- node 'it' \(RoiAlign\): mode = 'median': must be one of 'avg', 'max'"),
    ('Resize<mode = "linear">(w, x, s)', "float[2,3,4,6] w, float[8] x, float[4] s", "its input 'x', a region"),
    ('Resize<mode = "linear">(w, , x)', "float[2,3,4,6] w, float[4] x", "its input 'x', a scale"),
    ('Resize<mode = "linear", axes = [-1]>(x, , s)', "float x, float[0] s", "'x' has rank 0: must have axes"),
    (f"Resize<{KEPT}>(x, , , n)", "float[2,3,4,6] x, int64[2] n", "sizes = 'n' must be a constant"),
    (f'Resize<{KEPT}, mode = "cubic">(x, , , sizes)', "float[2,3,4,6] x", "'not_larger' in this case: mode = 'cubic'"),
    (f"Resize<{KEPT}>(x, , , sizes)", "float[a,b,c,d] x", r"None\]: must be known"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "inputs", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_refusals(call: str, inputs: str, message: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => (float loss) <int64[2] sizes = {{7, 8}}> {{
        {call if call.startswith(QUANTIZED) else f"[it] y = {call}"} loss = ReduceSum<keepdims = 0>(y) }}"""
    with pytest.raises(ValueError, match=message):
        gradient(onnx.parser.parse_model(text), "loss", ["x"])


def test_a_mistake_of_a_rule_is_no_mistake_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(*_: object) -> None:
        raise KeyError("missing")

    monkeypatch.setitem(RULES, ("", "Exp"), mistaken)
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 21]> g (float x) => (float y) { y = Exp(x) }')
    with pytest.raises(KeyError, match="missing"):
        gradient(model, "y", ["x"])


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


def _gradient_node(model: onnx.ModelProto, wrt: Sequence[str], operator: str) -> onnx.NodeProto:
    made = gradient(with_loss(model, {"y": np.ones(1, np.float32)}), "loss", wrt)
    nodes: list[onnx.NodeProto] = [node for node in made.graph.node if node.op_type == operator]
    assert len(nodes) == 1
    return nodes[0]


def test_the_gradient_of_roi_align_has_the_attributes_of_its_opset_and_all_outputs() -> None:
    for opset in (18, 22):
        for mode in ("avg", "max"):
            lines = f'RoiAlign<mode = "{mode}", spatial_scale = 0.25>(x, boxes, i)'
            made = Call(lines, MAP | {"boxes": (3, 4), "i": [0, 1, 1]}, opset=opset).model("names")
            node = _gradient_node(made, ["boxes"], "RoiAlignGrad")
            assert node.output[0] == ""
            assert node.output[1]
            assert len(node.input) == 5
            node = _gradient_node(made, ["x"], "RoiAlignGrad")
            assert node.output[0]
            assert node.output[1] == ""
            assert len(node.input) == (4 if mode == "avg" else 5)
            assert {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute} == {
                "coordinate_transformation_mode": b"half_pixel",
                "mode": mode.encode(),
                "sampling_ratio": 0,
                "spatial_scale": 0.25,
            }


@pytest.mark.parametrize(
    ("mode", "coordinates", "growth"),
    [
        ("linear", "half_pixel", [1, 1, 3, 4]),
        ("linear", "align_corners", [1, 1, 1, 5]),
        ("linear", "asymmetric", [2, 3]),
        ("nearest", "half_pixel_symmetric", [1, 2, 1, 3]),
        ("nearest", "tf_half_pixel_for_nn", [1, 2, 1, 2, 2]),
    ],
)
def test_growth_by_integers_needs_standard_operators_alone(mode: str, coordinates: str, growth: list[float]) -> None:
    attributes = f'mode = "{mode}", coordinate_transformation_mode = "{coordinates}"'
    made = resize(attributes, scales(*growth), (2, 3, 3, 1, 2)[: len(growth)]).model("lengths")
    found = gradient(with_loss(made, {"y": np.ones(1, np.float32)}), "loss", ["x"])
    assert {node.domain for node in found.graph.node} == {""}


def test_no_regions_give_no_gradient() -> None:
    call = Call(f"RoiAlign<{SIZES}>(x, r, i)", {"x": (2, 3, 4, 6), "r": (0, 4), "i": []}, opset=18)
    found = of_sum(call.model("names"), call.feeds, ["x", "r"])
    assert not found["x"].any()
    assert found["r"].shape == (0, 4)


def test_the_other_name_of_onnxs_domain_has_the_same_opset() -> None:
    text = """<ir_version: 10, opset_import: ["{}" : 18]>
        g (double[1,1,6,6] x, double[r,4] boxes, int64[r] of) => (double y) {{
          z = RoiAlign <output_height = 2, output_width = 2> (x, boxes, of)
          y = ReduceSum <keepdims = 0> (z)
        }}"""
    short, long = (gradient(parsed(text.format(domain)), "y", ["x", "boxes"]) for domain in ("", "ai.onnx"))
    assert long.graph == short.graph


def test_regions_that_depend_on_the_tensor_by_their_images_alone_are_refused() -> None:
    text = """<ir_version: 10, opset_import: ["" : 18, "own" : 1]>
        g (double[1,1,6,6] image, double[r,4] boxes, double[r] x) => (double y) {
          of = own.Chosen(x)
          z = RoiAlign <output_height = 2, output_width = 2> (image, boxes, of)
          y = ReduceSum <keepdims = 0> (z)
        }"""
    with pytest.raises(
        ValueError, match=r"node of 'z' \(RoiAlign\) has no gradient with respect to its input 'of'; path: "
    ):
        gradient(parsed(text), "y", ["x"])
    with pytest.warns(ZeroGradientWarning, match="not depend on it, or .* before 'of', which is in stop_at"):
        made = gradient(parsed(text), "y", ["x"], stop_at=["of"])
    assert [value.name for value in made.graph.output] == ["y", "x_grad"]
    with pytest.raises(ValueError, match="has no gradient with respect to its input 'x'"):
        gradient(parsed(text.replace("boxes, of", "boxes, x")), "y", ["x"])
    with pytest.raises(ValueError, match=r"\(RoiAlign\): .*has input size 2 not in range"):
        gradient(parsed(text.replace("boxes, of", "x")), "y", ["x"])


@pytest.mark.parametrize(
    ("operator", "average"),
    [
        ("RoiAlignGrad", "RoiAlign_22"),
        ("DmlRoiAlignGrad", "DmlRoiAlign"),
        ("RoIAlignRotatedGrad", "RoIAlignRotated"),
        ("PSRoIAlignGrad", "PSRoIAlign"),
    ],
)
def test_the_gradient_by_the_map_of_an_average_is_differentiated_by_operators_like_it(
    operator: str, average: str
) -> None:
    model = region_gradient(operator, bins="PS" in operator).model("lengths")
    rois = model.graph.node[0].input[1]
    made = vjp(model, ["y"], ["dy", rois])
    added = [node.op_type for node in made.graph.node[1:] if node.op_type not in ("Identity", "Constant")]
    assert added == [average, operator]
    with pytest.warns(ZeroGradientWarning, match=f"'{rois}' is 0"):
        made = vjp(model, ["y"], ["dy", rois], through_rois=False)
    assert operator not in [node.op_type for node in made.graph.node[1:]]


def test_the_gradient_of_resampling_is_differentiated_by_resampling_if_lengths_are_known() -> None:
    call = GRADIENTS_OF_REGIONS[-1]
    for shapes, is_known in (("lengths", True), ("names", False)):
        made = vjp(call.model(shapes), ["y"], ["dy"])
        assert ("DmlResample" in [node.op_type for node in made.graph.node]) == is_known
