# SPDX-License-Identifier: MIT
"""What `wrt="parameters"` selects, and what it tells about the rest."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnxruntime.transformers.float16 import convert_float_to_float16

from gradient_checks import Array
from onnx_models import gradient, jvp, portable, vjp
from onnx_models.__main__ import main
from onnx_models.gradient import own_operators, report

HEADER = '<ir_version: 10, opset_import: ["" : 18]>'
SIDES = "i = Constant<value = int64[2] {0, 1}>() d = Constant<value = int64 {2}>()"
ZERO = "z = Constant<value = uint8 {0}>()"


def network(constants: str, body: str, *, opset: int = 18) -> onnx.ModelProto:
    """A network with a weight w, whose `body` computes y from a."""
    return onnx.parser.parse_model(f"""{HEADER.replace("18", str(opset))} g (float[n, 2, 4, 4] x) => (float loss)
        <float[2, 2, 1, 1] w = {{1, 2, 3, 4}}{", " if constants else ""}{constants}> {{
            a = Conv (x, w)
            {body}
            z0 = Mul (y, y)
            loss = ReduceSum <keepdims = 0> (z0)
        }}""")


@pytest.mark.parametrize(
    ("constants", "body", "reason"),
    [
        ("float[4] s = {1, 1, 2, 2}", 'y = Resize <mode = "nearest"> (a, , s)', "a scale to resize by"),
        (
            "float[8] s = {0, 0, 0, 0, 1, 1, 1, 1}",
            't = Constant<value = float[4] {1, 1, 2, 2}>() y = Resize <mode = "linear"> (a, s, t)',
            "a region to resize",
        ),
        ("float s = {0.3}", "y = Clip (a, s)", "a bound"),
        (
            "float s = {0}",
            "p = Constant<value = int64[8] {0,0,1,1,0,0,1,1}>() y = Pad (a, p, s)",
            "a value to pad with",
        ),
        (
            "float[2] s = {0, 1}",
            f"{SIDES} o = OneHot (i, d, s) r = ReduceSum <keepdims = 0> (o) y = Mul (a, r)",
            "values for on and off",
        ),
        (
            "float s = {0.1}",
            f"{ZERO} q = QuantizeLinear (a, s, z) y = DequantizeLinear (q, s, z)",
            "a scale of quantization",
        ),
        (
            "float s = {1}",
            "e = Constant<value = float {5}>() r = Range (s, e, s) y = Mul (a, r)",
            "an end or a step of a range",
        ),
        (
            "float[2] s = {1.5, 2}, float[2] k = {1.5, 2.5}",
            "y = BatchNormalization (a, k, k, s, s)",
            "a running statistic",
        ),
        ("float s = {0.044715}", "y = Mul (a, s)", "a number of a formula"),
        ("float[1] s = {0.3}, float[1, 1] t = {0.3}", "b = Add (a, s) y = Mul (b, t)", "a number of a formula"),
        ("", "s = Constant<value_float = 0.5>() y = Pow (a, s)", "a number of a formula"),
        ("float[2, 1, 1] s = {1, 2}", "y = Add (a, s)", "named in stop_at"),
        ("float[2, 1, 1] s = {1, 2}", "b = Floor (s) y = Add (a, b)", "the loss does not depend on it"),
        ("float[2, 1, 1] s = {1, -inf}", "y = Max (a, s)", "not finite"),
        ("float[2, 1, 1] s = {1, nan}", "y = Max (a, s)", "not finite"),
        (
            "int64[1] r = {2}, float[2] k = {1.5, 2}, float[1] s = {2.5}",
            "t = Tile (s, r) y = BatchNormalization (a, k, k, t, t)",
            "a running statistic",
        ),
    ],
)
def test_settings_and_numbers_are_left_out(constants: str, body: str, reason: str) -> None:
    model = network(constants, body)
    stop_at = ["s"] if "stop_at" in reason else []
    found = report(model, "loss", "parameters", stop_at=stop_at)
    assert dict(found.left_out)["s"] == reason
    made = gradient(model, "loss", "parameters", stop_at=stop_at)
    assert [value.name for value in made.graph.output] == ["loss", *(f"{name}_grad" for name in found.wrt)]
    assert "w" in found.wrt
    assert "s" not in found.wrt


@pytest.mark.parametrize(
    ("constants", "body"),
    [
        ("float[1] s = {0.3}", "y = Mul (a, s)"),
        ("float[1] s = {0}", "y = PRelu (a, s)"),
        ("float[1] s = {1}", "t = Reshape (s, u) y = PRelu (a, t)"),
        ("float[1, 2, 1, 1] k = {1, 2}, float[1] s = {0}", "y = Conv (a, k, s)"),
        ("float[2, 1, 1] s = {1, 1}", "y = Mul (a, s)"),
        ("", "s = Constant<value = float[2, 2, 1, 1] {1, 2, 3, 4}>() y = Conv (a, s)"),
        ("", "s = Constant<value_floats = [0.5, 1.5, 1.0, 1.0]>() y = Mul (a, s)"),
    ],
)
def test_weights_are_selected(constants: str, body: str) -> None:
    model = network(constants, body)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 1, 1]), "u"))
    found = report(model, "loss", "parameters")
    assert "s" in found.wrt
    assert "s_grad" in {value.name for value in gradient(model, "loss", "parameters").graph.output}


def test_constant_nodes_have_weights_only_where_initializers_are_not_named_as_weights() -> None:
    model = network("", "s = Constant<value = float[2, 2, 1, 1] {1, 2, 3, 4}>() y = Conv (a, s)")
    assert report(model, "loss", "parameters").wrt == ("w", "s")
    model.graph.initializer[0].name = model.graph.node[0].input[1] = "layer.weight"
    found = report(model, "loss", "parameters")
    assert found.wrt == ("layer.weight",)
    assert found.left_out == (("s", "written by the exporter, which keeps parameters in initializers"),)


GROUPS = """g = Reshape (a, grouped) i = InstanceNormalization (g, one, zero) size = Shape (a) r = Reshape (i, size)
    {} y = Add (m, beta)"""
FRESH = "int64[3] grouped = {0, 1, -1}, float[1] one = {1}, float[1] zero = {0}, float[2, 1, 1] beta = {0, 0}"


@pytest.mark.parametrize(
    ("scaling", "wrt"),
    [
        ("m = Mul (r, gamma)", {"gamma", "beta"}),
        ("f = Unsqueeze (scale, axes) t = Mul (f, r) m = Identity (t)", {"scale", "beta"}),
        ("m = Mul (r, half)", {"one", "zero", "beta"}),
        ("m = Mul (r, a)", {"one", "zero", "beta"}),
        ("m = Relu (r)", {"one", "zero", "beta"}),
    ],
)
def test_the_scale_and_bias_before_learned_ones_are_not_learned(scaling: str, wrt: set[str]) -> None:
    learned = "float[2, 1, 1] gamma = {1, 1}, float[2] scale = {1, 1}, int64[2] axes = {1, 2}, float half = {0.5}"
    found = report(network(f"{FRESH}, {learned}", GROUPS.format(scaling)), "loss", "parameters")
    assert set(found.wrt) == {"w", *wrt}
    reasons = {name: reason for name, reason in found.left_out if name in ("one", "zero")}
    assert reasons == dict.fromkeys({"one", "zero"} - wrt, "a neutral scale or bias")


def attention(body: str, **constants: Array) -> onnx.ModelProto:
    """An attention with two heads, whose `body` computes the weights p from scores s = q k."""
    model = onnx.parser.parse_model(f"""{HEADER.replace("18", "23")} g (float[2, 2, 4, 4] x) => (float loss) {{
        q = MatMul (x, w)
        k = Transpose <perm = [0, 1, 3, 2]> (x)
        {body if " s = " in body else f"s = MatMul (q, k) {body}"}
        y = MatMul (p, x)
        loss = ReduceSum <keepdims = 0> (y) }}""")
    constants["w"] = np.arange(16).reshape(4, 4) / 10
    for name, value in constants.items():
        kind = np.float32 if value.dtype == np.float64 else value.dtype
        model.graph.initializer.append(onnx.numpy_helper.from_array(value.astype(kind), name))
    return model


def causal(value: float) -> Array:
    return np.triu(np.full((4, 4), float(value)), 1)


PLACES: dict[str, Array] = {"starts": np.array([0, 0]), "ends": np.array([4, 4]), "last": np.array([2, 3])}
SUM, RANDOM = "t = Add (s, c) p = Softmax (t)", np.random.default_rng(0).normal(size=(2, 4, 4)) / 50


@pytest.mark.parametrize(
    ("body", "c"),
    [
        *((SUM, causal(value)) for value in (-1e9, -1e4, -100, float(np.finfo(np.float32).min))),
        (SUM, np.array([0, 0, -1e4, -2e4])),
        (SUM, np.zeros((1, 1, 4))),
        ("t = Sub (s, c) p = Softmax (t)", -causal(-100)),
        ("t = Mul (s, c) p = Softmax (t)", np.tril(np.ones((4, 4)))),
        ("t = Where (hidden, c, s) p = Softmax (t)", np.full((4, 4), -65504.0)),
        ("m = Unsqueeze (c, last) e = Reshape (m, shape) t = Add (e, s) p = Softmax (t)", causal(-1e9)),
        (
            "m = Slice (c, starts, ends, last) t = Add (s, m) p = Softmax (t)",
            np.triu(np.full((1, 1, 9, 9), -100.0), 1),
        ),
        ("m = Expand (c, shape) t = Add (m, s) o = Max (t, low) p = Softmax (o)", causal(-1e9)),
        ("t = Add (s, c) h = Mul (t, half) p = Softmax (h)", causal(-1e9)),
        ("m = Add (c, n) t = Add (s, m) p = Softmax (t)", causal(-1e9)),
        ("t = Add (s, c) e = Softmax (t) u = Add (e, c) p = Softmax (u)", causal(-1e9)),
        ("p = Attention (q, x, x, c)", causal(-1e9)),
    ],
)
def test_a_mask_is_not_learned(body: str, c: Array) -> None:
    others = {**PLACES, "hidden": causal(1) > 0, "low": np.array(-1e30), "half": np.array(0.5), "n": causal(-50)}
    shape = np.array([1, 1, 4, 4])
    found = report(attention(body, c=c, shape=shape, **others), "loss", "parameters")
    assert dict(found.left_out)["c"] == "a mask"
    assert found.wrt == ("w",)


@pytest.mark.parametrize(
    ("body", "c"),
    [
        (SUM, RANDOM),
        (SUM, RANDOM[:1]),
        (SUM, np.zeros((2, 4, 4))),
        (SUM, np.zeros(4)),
        ("p = Attention (q, x, x, c)", RANDOM[:1]),
        ("m = Gather (c, starts) t = Add (s, m) p = Softmax (t)", np.zeros((2, 4))),
        ("b = Add (q, c) s = MatMul (b, k) p = Softmax (s)", np.array([0, 0, 0, 0.1])),
        ("m = Mul (s, c) p = Softmax (m)", np.array([[[0.87]]])),
        ("m = Mul (q, c) s = MatMul (m, k) p = Softmax (s)", np.array([0.83])),
        ("p = Mul (s, c)", np.array([0.125])),
        ("m = Softmax (s) p = Mul (m, c)", np.array([0.125])),
    ],
)
def test_what_an_attention_learns_is_not_a_mask(body: str, c: Array) -> None:
    assert report(attention(body, c=c, **PLACES), "loss", "parameters").wrt == ("c", "w")


@pytest.mark.parametrize("root", [8**-0.25, 8**-0.5, 4**-0.25, 1 / 3, 3**0.5])
@pytest.mark.parametrize(
    "body",
    [
        "m = Mul (q, c) t = Mul (k, c) s = MatMul (m, t) p = Softmax (s)",
        "m = Mul (q, c) t = Transpose (m) u = Reshape (t, shape) s = MatMul (u, k) p = Softmax (s)",
        "t = Mul (s, c) p = Softmax (t)",
        "t = Div (s, c) u = Add (t, n) p = Softmax (u)",
    ],
)
def test_the_scale_of_an_attention_is_not_learned(body: str, root: float) -> None:
    for kind in (np.float32, np.float16):
        model = attention(body, c=np.array([root]), shape=np.array([2, 2, 4, 4]), n=causal(-1e9))
        if kind == np.float16:
            model = convert_float_to_float16(model)
        found = report(model, "loss", "parameters")
        assert dict(found.left_out)["c"] == "a number of a formula"
        assert found.wrt == ("w",)


def test_weights_inside_a_subgraph_are_named() -> None:
    text = f"""{HEADER} g (float[N] x, bool c) => (float loss) {{
        y = If (c) <then_branch = a () => (float[N] s) {{ k = Constant<value = float[2] {{1, 2}}>() s = Mul (x, k) }},
            else_branch = b () => (float[N] t) {{ t = Exp (x) }}>
        loss = ReduceSum <keepdims = 0> (y) }}"""
    with pytest.raises(ValueError, match=r"none of which are 'k' \(inside a subgraph, of which no gradient"):
        gradient(onnx.parser.parse_model(text), "loss", "parameters")


def test_the_error_of_a_model_without_weights_names_a_remedy() -> None:
    model = onnx.parser.parse_model(f"""{HEADER} g (int64[N] i, float[N] x) => (float loss) <float c = {{2}}> {{
        y = Mul (x, c) loss = ReduceSum <keepdims = 0> (y) }}""")
    with pytest.raises(ValueError, match=r"none of which are 'c' \(a number of a formula\); .* as in wrt=") as caught:
        gradient(model, "loss", "parameters")
    wrt = ast.literal_eval(str(caught.value).rpartition("wrt=")[2])
    assert [value.name for value in gradient(model, "loss", wrt).graph.output] == ["loss", "x_grad"]


def test_products_select_the_same() -> None:
    model = network("float s = {0.3}", "y = Mul (a, s)")
    assert [value.name for value in vjp(model, ["y"], "parameters").graph.output] == ["loss", "w_grad"]
    assert [value.name for value in jvp(model, ["y"], "parameters").graph.input] == ["x", "w_tangent"]


def test_a_dry_run_lists_what_is_learned_and_what_is_not(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    ones = "".join(f"float s{i} = {{{i}}}, " for i in range(12))
    body = " ".join(f"b{i} = Add ({f'b{i - 1}' if i else 'a'}, s{i})" for i in range(12))
    model = network(f"{ones}float low = {{0}}", f"{body} y = Clip (b11, low)")
    onnx.save(model, path)
    done = CliRunner().invoke(main, ["gradient", str(path), "--wrt", "parameters", "--dry-run"])
    assert done.exit_code == 0
    lines = [line for line in done.output.splitlines() if line.startswith(("left out: ", "trained: "))]
    assert lines == [
        "trained: w [2, 2, 1, 1]",
        "left out: s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, and 2 more: a number of a formula",
        "left out: low: a bound",
    ]


def test_operators_that_need_this_project_are_counted() -> None:
    text = f"""{HEADER} g (float[1, 1, 8, 8] x, float[r, 4] boxes, int64[r] of) => (float loss) {{
        y = RoiAlign <output_height = 2, output_width = 2> (x, boxes, of) loss = ReduceSum <keepdims = 0> (y) }}"""
    model = onnx.parser.parse_model(text)
    assert report(model, "loss", ["x"]).ours == (("RoiAlignGrad", 1),)
    made = gradient(model, "loss", ["x"])
    assert own_operators(made) == {"RoiAlignGrad": 1}
    (node,) = (node for node in made.graph.node if node.op_type == "RoiAlignGrad")
    assert "ortops.register" in node.doc_string
    assert not own_operators(portable.attach(made))
    assert not own_operators(model)
