# SPDX-License-Identifier: MIT
"""Deformable attention of standard nodes: what becomes MSDeformAttn, and what looks like it and stays."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

import onnx_models
import ortops
from conformance.backends.session import CPU, options
from onnx_models.__main__ import main

N, Q, M, D, L = 2, 5, 4, 3, 2
SIZES = ((4, 6), (2, 3))
S = sum(height * width for height, width in SIZES)

CONSTANTS = {
    "zero": [0], "one": [1], "two": [2], "three": [3], "minus1": [-1], "minus2": [-2], "flat_": [N, -1, M * D],
    "v_shape": [0, -1, M, D], "n_md_q": [N, M * D, Q], "m_d": [M, D], "map0": SIZES[0], "map1": SIZES[1],
    "start0": [0], "m1": [M], "d1": [D], "end0": [24], "start1": [24], "end1": [30], "sizes": [24, 6], "parts": [2, 2],
    "parts_13": [1, 3],
    "x_shape0": [N * M, D, *SIZES[0]], "x_shape1": [N * M, D, *SIZES[1]], "g_shape": [N * M, Q, -1, 2],
    "w_shape": [N * M, 1, Q, -1], "s_shape": [N * M, D, Q, -1], "md": [M * D], "nmds": [N, M, D, S], "flat": [N * M, D, S],
    "g_first": [-1, Q, 2, 2],
    # Of near misses:
    "q4": [4, 4, -1], "g_other": [N * M, 2, Q, 2], "s_all": [N * M, D, Q, 4], "nm_d_q": [N * M, D, Q], "four": [4],
    "w_other": [N * M, 1, 4, Q], "s_other": [N * M, D, 4, Q], "n_md_4": [N, M * D, 4], "x_turned": [N * M, D, 6, 4],
    "from_end": [-6], "end36": [36], "v_34": [0, -1, D, M],
}  # fmt: skip
SCALARS: list[tuple[str, str, float]] = [("index0", "value_int", 0), ("index1", "value_int", 1)]
SCALARS += [("factor", "value_float", 2.0), ("term", "value_float", 1.0), ("minus", "value_float", -1.0)]


def text(
    *, value: str = "NSMD", cut: str = "Slice", points: str = "Gather", join: str = "stack", grid: str = ""
) -> str:
    """The nodes of deformable attention with two levels, by how the tensors are cut and joined."""
    lines = ["V = Reshape (v, v_shape)", "G2 = Mul (loc, factor)", "G = Sub (G2, term)", "U = Identity (V)"]
    axis, number = {"NSMD": ("one", 1), "NSC": ("one", 1), "NMDS": ("three", 3), "flat": ("two", 2)}[value]
    if value == "NSC":
        lines[-1] = "U = Identity (v)"
    elif value != "NSMD":
        lines[-1] = f"Vt = Transpose <perm = [0, 2, 3, 1]> (V)\nU = Reshape (Vt, {value.lower()})"
    if cut == "Split":
        lines.append(f"p0, p1 = Split <axis = {number}> (U, sizes)")
    if points == "Split":
        lines += ["Gt = Transpose <perm = [0, 2, 1, 3, 4]> (G)", "Gr = Reshape (Gt, g_shape)"]
        lines.append("k0, k1 = Split <axis = -2> (Gr, parts)")
    for i in range(L):
        if cut == "Slice":
            lines.append(f"p{i} = Slice (U, start{i}, end{i}, {axis})")
        if value in ("NSMD", "NSC"):
            lines += [f"f{i} = Reshape (p{i}, flat_)"] * (value == "NSMD")
            lines.append(f"t{i} = Transpose <perm = [0, 2, 1]> ({'f' if value == 'NSMD' else 'p'}{i})")
        lines.append(f"X{i} = Reshape ({'t' if value in ('NSMD', 'NSC') else 'p'}{i}, x_shape{i})")
        if points == "Gather":
            source = "loc" if grid else "G"
            lines.append(f"{'a' if grid else 'g'}{i} = Gather <axis = 3> ({source}, index{i})")
            lines += [f"b{i} = Mul (factor, a{i})", f"g{i} = Add (b{i}, minus)"] if grid else []
            lines += [f"h{i} = Transpose <perm = [0, 2, 1, 3, 4]> (g{i})", f"k{i} = Reshape (h{i}, g_shape)"]
        lines.append(f'S{i} = GridSample <mode = "linear", padding_mode = "zeros", align_corners = 0> (X{i}, k{i})')
        lines += [f"u{i} = Unsqueeze (S{i}, minus2)"] if join == "stack" else []
    stacked = ["C = Concat <axis = -2> (u0, u1)", "F = Reshape (C, s_shape)"]
    lines += stacked if join == "stack" else ["F = Concat <axis = -1> (S0, S1)"]
    lines.append(f"Wt = Transpose <perm = [0, 2, 1, 3{', 4' * (points == 'Gather')}]> (w)")
    lines += ["W = Reshape (Wt, w_shape)", "R = Mul (F, W)", "Z = ReduceSum <keepdims = 0> (R, minus1)"]
    return "\n".join([*lines, "Y = Reshape (Z, n_md_q)", "y = Transpose <perm = [0, 2, 1]> (Y)", ""])


DYNAMIC = """
    v_lengths = Shape (V) n = Gather <axis = 0> (v_lengths, index0) l_lengths = Shape (loc)
    q = Gather <axis = 0> (l_lengths, index1) n1 = Unsqueeze (n, zero) q1 = Unsqueeze (q, zero)
    nm = Mul (n1, m1) g_shape = Concat <axis = 0> (nm, q1, minus1, two)
    w_shape = Concat <axis = 0> (nm, one, q1, minus1) n_md_q = Concat <axis = 0> (n1, md, q1)
    s_shape = Concat <axis = 0> (nm, d1, q1, minus1) flat_ = Concat <axis = 0> (n1, minus1, md)
    map0 = Gather <axis = 0> (sizes_of_maps, index0) map1 = Gather <axis = 0> (sizes_of_maps, index1)
    start0 = Identity (zero) end0 = ReduceProd <keepdims = 1> (map0) start1 = Identity (end0)
    s1 = ReduceProd <keepdims = 1> (map1) end1 = Add (start1, s1) sizes = Concat <axis = 0> (end0, s1)
    height0 = Gather <axis = 0> (map0, index0) width0 = Gather <axis = 0> (map0, index1)
    height0_1 = Unsqueeze (height0, zero) width0_1 = Unsqueeze (width0, zero)
    x_shape0 = Concat <axis = 0> (nm, d1, height0_1, width0_1) height1 = Gather <axis = 0> (map1, index0)
    width1 = Gather <axis = 0> (map1, index1) height1_1 = Unsqueeze (height1, zero)
    width1_1 = Unsqueeze (width1, zero) x_shape1 = Concat <axis = 0> (nm, d1, height1_1, width1_1)
"""
"""The lengths, computed from the inputs as PyTorch's exporter writes it."""


def model_of(
    body: str, *, points: str = "Gather", dynamic: bool = False, opset: int = 20, extra: str = ""
) -> onnx.ModelProto:
    """A model of these nodes, with the constants that it reads."""
    first, rest = body.split("\n", 1)
    body = f"{first}\n{DYNAMIC if dynamic else ''}{rest}"
    values = {name: value for name, value in CONSTANTS.items() if not dynamic or f" {name} =" not in DYNAMIC}
    lines = [f"{name} = Constant <value_ints = {[*value]}> ()" for name, value in values.items()]
    lines += [f"{name} = Constant <{kind} = {value}> ()" for name, kind, value in SCALARS]
    batch, queries, pixels = ("n", "q", "s") if dynamic else (N, Q, S)
    at_each = "4, 4" if points == "Split" else "4, 2, 2"
    if opset < 20:
        body = body.replace('"linear"', '"bilinear"')
    return onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : {opset}]> m (float[{batch}, {pixels}, 12] v, '
        f"float[{batch}, {queries}, {at_each}, 2] loc, float[{batch}, {queries}, {at_each}] w, int64[2, 2] sizes_of_maps) "
        f"=> (float[i, j, k] y{extra}) {{ {' '.join(lines)} {body} }}"
    )


def feeds(points: int = 4, *, split: bool = False, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shape = (N, Q, M, points) if split else (N, Q, M, L, 2)
    return {
        "v": rng.standard_normal((N, S, M * D)).astype(np.float32),
        "loc": rng.uniform(-0.3, 1.3, (*shape, 2)).astype(np.float32),
        "w": rng.random(shape).astype(np.float32),
        "sizes_of_maps": np.array(SIZES),
    }


def plain(model: onnx.ModelProto, values: dict[str, Any]) -> list[Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), options(), providers=[CPU])
    return list(session.run(None, values))


def ours(model: onnx.ModelProto | bytes, values: dict[str, Any], **arguments: Any) -> list[Any]:
    source = model if isinstance(model, bytes) else model.SerializeToString()
    return list(ortops.InferenceSession(source, options(), providers=[CPU], **arguments).run(None, values))


def fused_model(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """A copy with MSDeformAttn nodes; None if nothing is changed."""
    fused = onnx_models.fuse(model)
    return None if fused == model else fused


def kinds(model: onnx.ModelProto | None) -> Counter[str]:
    assert model is not None
    return Counter(node.op_type for node in model.graph.node)


def check_fused(model: onnx.ModelProto, values: dict[str, Any]) -> None:
    fused = fused_model(model)
    counts = kinds(fused)
    assert fused is not None
    assert (counts["MSDeformAttn"], counts["GridSample"], counts["ReduceSum"]) == (1, 0, 0)
    read = {name for node in fused.graph.node for name in node.input} | {value.name for value in fused.graph.input}
    assert {tensor.name for tensor in fused.graph.initializer} <= read
    # A session would compute the model itself if ONNX Runtime refused the fused one.
    for expected, computed in zip(plain(model, values), ours(fused, values, standard=False), strict=True):
        np.testing.assert_allclose(computed, expected, rtol=0, atol=2e-6)


# The constants of NMDS and flat are static.
VARIANTS = [
    (value, points, join, grid, dynamic)
    for value, points, join, grid in (
        ("NSMD", "Gather", "stack", ""),
        ("NSMD", "Gather", "concat", "level"),
        ("NMDS", "Gather", "stack", "level"),
        ("flat", "Gather", "stack", ""),
        ("flat", "Split", "concat", ""),
        ("NSMD", "Split", "concat", ""),
        ("NSC", "Gather", "stack", ""),
    )
    for dynamic in ((False,) if value in ("NMDS", "flat") else (False, True))
]


@pytest.mark.parametrize("cut", ["Slice", "Split"])
@pytest.mark.parametrize(("value", "points", "join", "grid", "dynamic"), VARIANTS)
def test_variants_become_one_node(value: str, cut: str, points: str, join: str, grid: str, dynamic: bool) -> None:
    body = text(value=value, cut=cut, points=points, join=join, grid=grid)
    check_fused(model_of(body, points=points, dynamic=dynamic), feeds(split=points == "Split"))


NEAR_MISSES = """
nearest: mode = "linear" => mode = "nearest"
cubic: mode = "linear" => mode = "cubic"
border: "zeros" => "border"
reflection: "zeros" => "reflection"
align_corners: align_corners = 0 => align_corners = 1
one level differs: align_corners = 0> (X1 => align_corners = 1> (X1
factor of 1: Mul (loc, factor) => Mul (loc, term)
factor of 3: G = Sub (G2, term) => G3 = Add (G2, loc) G = Sub (G3, term)
offset of 1: Sub (G2, term) => Add (G2, term)
offset of -2: Sub (G2, term) => Sub (G2, factor)
offset without factor: G2 = Mul (loc, factor) => G2 = Add (loc, term)
term minus location: Sub (G2, term) => Sub (term, G2)
a factor for each axis: Mul (loc, factor) => Mul (loc, factors) |
    V = Resh => factors = Constant <value_floats = [2.0, 2.0]> () V = Resh
location in float16: G = Sub => H = Cast <to = 10> (G2) G3 = Cast <to = 1> (H) G = Sub | (G2, term) => (G3, term)
clipped grid: G = Sub (G2, term) => GC = Sub (G2, term) G = Clip (GC, minus, term)
sum over queries: (R, minus1) => (R, minus2) | n_md_q => q4
sum over channels: (R, minus1) => (R, one) | n_md_q => q4
mean: ReduceSum => ReduceMean
maximum: ReduceSum => ReduceMax
sum keeps the axis: keepdims = 0 => keepdims = 1
sum of weights: R = Mul => R = Add
samples squared: Mul (F, W) => Mul (F, F)
levels joined last: Concat <axis = -2> => Concat <axis = -1> | minus2) => minus1)
levels joined before queries: Concat <axis = -2> => Concat <axis = 2> | minus2) => two)
order of levels: (u0, u1) => (u1, u0)
a level twice: (u0, u1) => (u0, u0)
grid of the other level: (G, index0) => (G, index1)
grids swapped: (X0, k0) => (X0, k1) | (X1, k1) => (X1, k0)
points for levels: Gather <axis = 3> => Gather <axis = 4>
queries for heads: h0 = Transpose <perm = [0, 2, 1, 3, 4]> => h0 = Transpose <perm = [0, 1, 2, 3, 4]>
grids flattened otherwise: (h0, g_shape) => (h0, g_other) | (h1, g_shape) => (h1, g_other)
weights in the order of queries: Wt = Transpose <perm = [0, 2, 1, 3, 4]> => Wt = Transpose <perm = [0, 1, 2, 3, 4]>
points before levels: Wt = Transpose <perm = [0, 2, 1, 3, 4]> => Wt = Transpose <perm = [0, 2, 1, 4, 3]>
weights for each channel: Mul (F, W) => Mul (F, W3) |
    W = Reshape (Wt, w_shape) => W = Reshape (Wt, w_shape) W3 = Expand (W, s_all)
weights of one head: W = Reshape (Wt, w_shape) => W0 = Reshape (Wt, w_shape) W = Slice (W0, zero, one, zero)
weights of the first image: Mul (F, W) => Mul (F, Wb) |
    R = M => Wa = Slice (W, zero, four, zero) Wb = Concat <axis = 0> (Wa, Wa) R = M
samples for queries: s_shape) => s_other) | w_shape) => w_other) | n_md_q => n_md_4
pixels and channels not exchanged: t0 = Transpose <perm = [0, 2, 1]> => t0 = Transpose <perm = [0, 1, 2]>
other heads: (v, v_shape) => (v, v_34)
height and width exchanged late: x_shape0) => x_turned) | X0 = R => Xa = R | S0 = G =>
    X0 = Transpose <perm = [0, 1, 3, 2]> (Xa) S0 = G
pixels from the end: start1, end1 => from_end, end1
every second pixel: (U, start1, end1, one) => (U2, start1, end1, one, two) |
    p1 = => U2 = Concat <axis = 1> (U, U) p1 = | end1, one => end36, one
Y by heads: n_md_q => nm_d_q
Y not transposed: y = Transpose <perm = [0, 2, 1]> (Y) => y = Identity (Y)
Y in another order: y = Transpose <perm = [0, 2, 1]> (Y) => y = Transpose <perm = [2, 0, 1]> (Y)
a map that is not sampled: u1 = Unsqueeze (S1, minus2) => A = Abs (S1) u1 = Unsqueeze (A, minus2)
"""
"""What is changed in the nodes, by a name: texts and what replaces them."""


@pytest.mark.parametrize(
    "changes", NEAR_MISSES.strip().replace("\n   ", "").splitlines(), ids=lambda row: row.split(":")[0]
)
def test_a_near_miss_stays_as_it_is(changes: str) -> None:
    body = text()
    for change in changes.partition(": ")[2].split(" | "):
        old, new = change.split(" => ")
        assert old in body
        body = body.replace(old, new)
    model, values = model_of(body), feeds()
    expected = plain(model, values)
    assert np.abs(expected[0]).max() > 0.1
    assert fused_model(model) is None
    np.testing.assert_array_equal(ours(model, values)[0], expected[0])


KEPT = {
    "a sample": "S1",
    "the joined samples": "F",
    "the products": "R",
    "the sum": "Z",
    "the sum's rows": "Y",
}


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("reader", ["output", "node", "subgraph"])
def test_an_attention_whose_parts_are_read_stays_as_it_is(name: str, reader: str) -> None:
    part = KEPT[name]
    body, extra = text(), f", float {part}" if reader == "output" else ", float other"
    if reader == "node":
        body += f"other = Abs ({part})\n"
    if reader == "subgraph":
        branch = f"t () => (float {{0}}) {{{{ {{0}} = Abs ({part}) }}}}"
        body += "yes = Constant <value = bool {1}> ()\n"
        body += f"other = If (yes) <then_branch = {branch.format('a')}, else_branch = {branch.format('b')}>\n"
    model, values = model_of(body, extra=extra), feeds()
    model.graph.output[1].type.tensor_type.ClearField("shape")
    assert fused_model(model) is None
    for expected, computed in zip(plain(model, values), ours(model, values), strict=True):
        np.testing.assert_array_equal(computed, expected)


def test_lengths_and_levels_may_differ_in_each_call() -> None:
    model = model_of(text(), dynamic=True)
    session = ortops.InferenceSession(model.SerializeToString(), options(), providers=[CPU])
    for batch, queries, maps in ((1, 3, ((5, 2), (1, 1))), (3, 1, ((2, 2), (7, 3)))):
        rng, values = np.random.default_rng(batch), feeds()
        values["v"] = rng.standard_normal((batch, sum(h * w for h, w in maps), M * D)).astype(np.float32)
        values["loc"] = rng.uniform(-0.3, 1.3, (batch, queries, M, L, 2, 2)).astype(np.float32)
        values["w"] = rng.random((batch, queries, M, L, 2)).astype(np.float32)
        values["sizes_of_maps"] = np.array(maps)
        np.testing.assert_allclose(session.run(None, values)[0], plain(model, values)[0], rtol=0, atol=2e-6)


def test_levels_may_have_different_numbers_of_points() -> None:
    body = text(points="Split", join="concat").replace("(Gr, parts)", "(Gr, parts_13)")
    check_fused(model_of(body, points="Split"), feeds(split=True))


def with_constants(model: onnx.ModelProto, values: dict[str, Any], names: list[str]) -> onnx.ModelProto:
    """The model with these tensors as constants, as an optimizer leaves them if they depend on no input."""
    whole, folded = onnx.ModelProto(), onnx.ModelProto()
    whole.CopyFrom(model)
    folded.CopyFrom(model)
    whole.graph.output.extend(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names)
    arrays = dict(zip(names, plain(whole, values)[-len(names) :], strict=True))
    del folded.graph.node[:]
    folded.graph.node.extend(node for node in model.graph.node if node.output[0] not in arrays)
    folded.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    return folded


@pytest.mark.parametrize("names", [["W"], ["k0", "k1"], ["k0", "k1", "W"]], ids=" ".join)
@pytest.mark.parametrize("value", ["NSMD", "NMDS", "NSC"])
def test_weights_and_grids_may_be_constants(value: str, names: list[str]) -> None:
    model, values = model_of(text(value=value)), feeds()
    check_fused(with_constants(model, values, names), values)


def test_constant_weights_of_one_head_or_of_each_channel_stay_as_they_are() -> None:
    values, both = feeds(), "W = Reshape (Wt, w_shape)"
    for other in ("W = Slice (W0, zero, one, zero)", "W = Expand (W0, s_all)"):
        body = text().replace(both, both.replace("W ", "W0 ", 1) + "\n" + other)
        model = with_constants(model_of(body), values, ["W"])
        assert fused_model(model) is None
        np.testing.assert_array_equal(ours(model, values)[0], plain(model, values)[0])


@pytest.mark.parametrize("join", ["stack", "concat"])
def test_one_level_needs_no_cut(join: str) -> None:
    lines = [line for line in text(join=join).splitlines() if "1 = " not in line and not line.startswith(("p0", "U"))]
    body = (
        "\n".join(lines).replace("(u0, u1)", "(u0)").replace("(S0, S1)", "(S0)").replace("(p0, flat_)", "(V, flat_)")
        + "\n"
    )
    model, values = model_of(body), feeds()
    values |= {"v": values["v"][:, :24], "loc": values["loc"][:, :, :, :1], "w": values["w"][..., :1, :]}
    for value, shape in zip(
        model.graph.input, (values["v"].shape, values["loc"].shape, values["w"].shape), strict=False
    ):
        value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, onnx.TensorProto.FLOAT, shape))
    check_fused(model, values)


@pytest.mark.parametrize("opset", [16, 17, 22])
def test_opsets(opset: int) -> None:
    check_fused(model_of(text(), opset=opset), feeds())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("V = Reshape (v, v_shape)", "m = Less (v, minus) vm = Where (m, minus, v) V = Reshape (vm, v_shape)"),
        ("S0 = GridS", "other = Abs (k0) S0 = GridS"),
        ("S0 = GridS", "other = Abs (X0) S0 = GridS"),
        ("S0 = GridS", "other = Abs (p1) S0 = GridS"),
        ("Mul (F, W)", "Mul (W, F)"),
        ("minus1)", "last)"),
        ("g_shape)", "g_first)"),
        ("G2 = Mul (loc, factor)", "G2 = Mul (factor, loc)"),
        ("U = Identity (V)", "U = Relu (V)"),
        ("U = Identity (V)", f"e = Constant <value = float[{D}, {D}] {{{'0.5, ' * (D * D - 1)}1}}> () U = MatMul (V, e)"),
        ("G = Sub (G2, term)", "H = Cast <to = 11> (G2) H2 = Cast <to = 1> (H) G = Sub (H2, term)"),
    ],
    ids=["mask", "grid read", "level read", "slice read", "product", "axis", "batch", "factor", "Relu", "MatMul", "cast"],
)  # fmt: skip
def test_what_comes_before_may_differ(old: str, new: str) -> None:
    body = text().replace(old, new)
    assert body != text()
    if "last" in new:
        body = "last = Constant <value_ints = [3]> ()\n" + body.replace("last)", "minus1)", 1).replace(
            "R, minus1", "R, last"
        )
    check_fused(model_of(body, extra=", float[a, b, c, d] other" if "other" in new else ""), feeds())


@pytest.mark.parametrize("order", ["reference, quotient", "quotient, reference"])
@pytest.mark.parametrize("between", ["", "quotient = Cast <to = 1> (quotient_)"])
def test_locations_are_sums_of_reference_points_and_quotients(order: str, between: str) -> None:
    body = f"""normalizer = Constant <value = float[1, 1, 1, 2, 1, 2] {{3, 7, 6, 5}}> ()
    reference = Constant <value = float[1, 1, 1, 2, 1, 2] {{0.5, 0, 0.25, -0.25}}> ()
    quotient{"_" * bool(between)} = Div (loc, normalizer) {between}
    loc2 = Add ({order})"""
    first, rest = text().split("\n", 1)
    model = model_of("\n".join((first, body, rest.replace("(loc", "(loc2"))), opset=18)
    check_fused(model, feeds())
    assert kinds(fused_model(model))["Expand"] == 2


def test_two_attentions_may_share_the_levels() -> None:
    second = "\n".join(line for line in text().splitlines() if line[0] not in "VUpftX").replace("loc", "loc2")
    renamed = " ".join(
        f"{word}_" if word in NAMES_OF_SECOND else word
        for word in second.replace("(", "( ").replace(")", " )").replace(",", " ,").split()
    )
    model = model_of(text() + "loc2 = Sub (loc, term) " + renamed + "\n", extra=", float[i, j, k] y_")
    values = feeds()
    assert kinds(fused_model(model))["MSDeformAttn"] == 2
    for expected, computed in zip(plain(model, values), ours(model, values), strict=True):
        np.testing.assert_allclose(computed, expected, rtol=0, atol=2e-6)


NAMES_OF_SECOND = {
    *("G2", "G", "C", "F", "Wt", "W", "R", "Z", "Y", "y"),
    *(f"{name}{i}" for name in "ghkSu" for i in range(L)),
}


def test_subgraphs_stay_as_they_are() -> None:
    inner = model_of(text())
    nodes = onnx.helper.make_graph(list(inner.graph.node), "branch", [], list(inner.graph.output))
    body = onnx.helper.make_node("If", ["yes"], ["y"], then_branch=nodes, else_branch=nodes)
    yes = onnx.helper.make_node("Constant", [], ["yes"], value=onnx.numpy_helper.from_array(np.array(True)))
    model = onnx.ModelProto()
    model.CopyFrom(inner)
    del model.graph.node[:]
    model.graph.node.extend([yes, body])
    assert fused_model(model) is None
    np.testing.assert_array_equal(ours(model, feeds())[0], plain(model, feeds())[0])


def test_a_session_names_an_attention_as_one_node() -> None:
    model = model_of(text())
    session = ortops.InferenceSession(model.SerializeToString())
    (node,) = session.ortops_nodes()
    assert node == (model.graph.output[0].name, "MSDeformAttn")
    session.set_providers(["CPUExecutionProvider"])
    assert session.ortops_nodes() == [node]


def test_a_session_that_leaves_standard_nodes_alone_samples_in_onnx_runtime() -> None:
    model, values = model_of(text()), feeds()
    values["loc"][0, 0] = np.nan  # where ONNX Runtime samples a pixel, and MSDeformAttn 0
    assert np.array_equal(ours(model, values, standard=False)[0], plain(model, values)[0])
    assert not np.array_equal(ours(model, values)[0], plain(model, values)[0])
    assert (ours(model, values)[0][0, 0] == 0).all()


def test_external_data_and_new_providers(tmp_path: Path) -> None:
    model, values = (
        model_of(text().replace("(v, v_shape)", "(vw, v_shape)").replace("V = ", "vw = Mul (v, weight) V = ")),
        feeds(),
    )
    scale = np.linspace(0.5, 1, S * M * D, dtype=np.float32).reshape(S, -1)
    model.graph.initializer.append(onnx.numpy_helper.from_array(scale, "weight"))
    expected = plain(model, values)[0]
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=0)
    assert kinds(fused_model(onnx.load(path, load_external_data=False)))["MSDeformAttn"] == 1
    session = ortops.InferenceSession(path, options(), providers=[CPU])
    np.testing.assert_allclose(session.run(None, values)[0], expected, rtol=0, atol=2e-6)
    session.set_providers([CPU])
    np.testing.assert_allclose(session.run(None, values)[0], expected, rtol=0, atol=2e-6)


def test_files_for_hosts_with_a_library(tmp_path: Path) -> None:
    model, values = model_of(text()), feeds()
    path, out = tmp_path / "model.onnx", tmp_path / "fused.onnx"
    onnx.save(model, path)
    result = CliRunner().invoke(main, ["fuse", str(path), "--out", str(out)])
    assert (result.exit_code, result.output) == (0, f"1 attention fused: {out}\n")
    fused = onnx.load(out)
    assert fused == onnx_models.fuse(model)
    assert kinds(fused) == kinds(fused_model(onnx.load(path, load_external_data=False)))
    np.testing.assert_allclose(ours(fused, values, standard=False)[0], plain(model, values)[0], rtol=0, atol=2e-6)
    assert onnx_models.fuse(fused) == fused
    assert {item.domain for item in onnx_models.fuse(model, "com.example").opset_import} == {"", "com.example"}


@pytest.mark.parametrize("misfit", ["w", "loc"])
def test_lengths_that_disagree_are_an_error(misfit: str) -> None:
    model, values = model_of(text(), dynamic=True), feeds()
    values[misfit] = np.concatenate([values[misfit]] * 2, axis=1)
    with pytest.raises(InvalidArgument, match="MSDeformAttn: "):
        ours(model, values)


def test_pixels_after_the_last_level_count_for_nothing() -> None:
    model, values = model_of(text(), dynamic=True), feeds()
    values["v"] = np.concatenate([values["v"], values["v"]], axis=1)
    np.testing.assert_allclose(ours(model, values)[0], plain(model, values)[0], rtol=0, atol=2e-6)


NODES = [
    ("MMCVMultiScaleDeformableAttention", domain, "int64", "<im2col_step = 64>") for domain in ("mmcv", "mmdeploy")
]
NODES += [("MultiscaleDeformableAttnPlugin_TRT", domain, "int32", "") for domain in ("", "TRT", "trt", "nvidia")]
NODES += [("MultiscaleDeformableAttnPlugin_TRT", "", "int64", '<plugin_version = "1", plugin_namespace = "">')]


@pytest.mark.parametrize(("name", "domain", "ints", "attributes"), NODES)
@pytest.mark.parametrize("is_converted", [False, True])
def test_nodes_of_other_projects(name: str, domain: str, ints: str, attributes: str, is_converted: bool) -> None:
    imports = f', "{domain}" : 1' if domain else ""
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 17{imports}]> m '
        f"(float[n, s, m, d] v, {ints}[l, 2] maps, {ints}[l] starts, float[n, q, m, l, p, 2] loc, float[n, q, m, l, p] w) "
        f"=> (float y) {{ y = {domain + '.' if domain else ''}{name} {attributes} (v, maps, starts, loc, w) }}"
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    values = feeds()
    values |= {"v": values["v"].reshape(N, S, M, D), "maps": np.array(SIZES, ints), "starts": np.array([0, 24], ints)}
    del values["sizes_of_maps"]
    expected = ortops.ms_deform_attn(values["v"], np.array(SIZES), None, values["loc"], values["w"])
    (y,) = ours(onnx_models.convert(model) if is_converted else model, values)
    assert y.shape == ((N, Q, M, D) if name.endswith("TRT") else (N, Q, M * D))
    np.testing.assert_array_equal(y.reshape(expected.shape), expected)
    with pytest.raises(Exception, match=name):
        ours(model, values, standard=False)
    values["starts"] = np.array([0, 25], ints)
    with pytest.raises(InvalidArgument, match=r"level_start_index\[1\] = 25"):
        ours(model, values)


def test_a_session_takes_the_model_itself_if_onnx_runtime_refuses_the_fused_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(model: onnx.ModelProto, _: str) -> int:
        model.graph.node[0].op_type = "Missing"
        return 1

    monkeypatch.setattr("ortops.session.fuse", broken)
    np.testing.assert_array_equal(ours(model_of(text()), feeds())[0], plain(model_of(text()), feeds())[0])
