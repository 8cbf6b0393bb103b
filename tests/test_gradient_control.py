# SPDX-License-Identifier: MIT
"""Gradients through If, Loop and Scan, of states, scanned and outer tensors; and second derivatives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest

from gradient_checks import Array, check, parsed, run
from onnx_models.gradient import gradient, vjp
from onnx_models.gradient.graph import GradientGraph

HEADER = '<ir_version: 10, opset_import: ["" : 18]>\n'


def values(**shapes: Sequence[int]) -> dict[str, Array]:
    """Random tensors of some shapes."""
    rng = np.random.default_rng(0)
    return {name: rng.uniform(-1, 1, shape) for name, shape in shapes.items()}


LENGTHS = {"N": 3, "T": 4, "O": 1}


def feeds_of(text: str, **given: object) -> dict[str, Array]:
    """Random values of a text's inputs, whose lengths are `LENGTHS`, except those that are given."""
    inputs = [value for value in parsed(HEADER + text).graph.input if value.name not in given]
    shapes = {value.name: value.type.tensor_type.shape.dim for value in inputs}
    drawn = values(**{name: [dim.dim_value or LENGTHS[dim.dim_param] for dim in dims] for name, dims in shapes.items()})
    return drawn | {name: np.array(value) for name, value in given.items()}


IFS = {
    "branches that read other tensors": """g (double[N] x, double[N] z, bool c) => (double y) {
        y = If (c) <then_branch = t () => (a) { p = Mul(x, z)  a = Mul(p, x) },
                    else_branch = e () => (b) { b = Sin(x) }> }""",
    "a branch in a branch": """g (double[N] x, double[N] z, bool c) => (double y) {
        n = Not(c)
        y = If (c) <then_branch = t () => (a) {
                a = If (n) <then_branch = tt () => (aa) { aa = Neg(x) }, else_branch = te () => (ab) { ab = Mul(x, z) }> },
            else_branch = e () => (b) { k = Cos(z)
                b = If (n) <then_branch = et () => (ba) { ba = Mul(x, k) }, else_branch = ee () => (bb) { bb = Exp(x) }> }> }
        """,
    "initializers and a Scan in a branch": """g (double[N] x, double[N] z, bool c) => (double y) {
        one = Constant<value = double {1.0}>() first = Add(one, one)
        y = If (c) <then_branch = t () => (a) <double[1] k = {2.5}> {
                s = Mul(x, k)
                f, a = Scan <num_scan_inputs = 1, body = bb (h, xi) => (ho, yo) {
                    m = Mul(h, xi) ho = Add(m, h) yo = Tanh(ho) }> (first, s) },
            else_branch = e () => (b) { b = Mul(x, z) }> }""",
}


def test_a_branch_that_is_never_taken_needs_no_gradient() -> None:
    text = """g (double[2,N] x) => (double y) { s = Shape(x) two = Constant<value_int=0>() n = Gather(s, two)
        k = Constant<value_int=2>() c = Equal(n, k)
        v = If (c) <then_branch = t () => (a) { ax = Constant<value_ints=[1]>() a = ReduceSum<keepdims=0>(x, ax) },
                    else_branch = e () => (b) { b, at, inv, count = Unique(x) }>
        y = MatMul(v, x) }"""
    check(HEADER + text, values(x=(2, 3)), ["x"])


SCANS = {
    "a cell on rows with weights used twice": """g (double[2,N] h, double[T,2,N] x, double[N,N] w) => (double f, double y) {
        f, y = Scan <num_scan_inputs = 1, body = bb (s, xi) => (so, yo) {
            m = MatMul(s, w) n = MatMul(xi, w) so = Tanh(m) yo = Mul(so, n) }> (h, x) }""",
    "axes and directions": """g (double[N] h, double[N,T] x, double[T,N] z) => (double f, double y, double v) {
        f, y, v = Scan <num_scan_inputs = 2, scan_input_axes = [-1, 0], scan_input_directions = [1, 0],
                scan_output_axes = [1, 0], scan_output_directions = [1, 0], body = bb (s, xi, zi) => (so, yo, vo) {
            p = Mul(xi, s) so = Add(p, zi) yo = Sin(so) vo = Mul(p, zi) }> (h, x, z) }""",
    "what is read from outside and given too": """g (double[N] h, double[N,N] x) => (double f, double y) {
        f, g2, y = Scan <num_scan_inputs = 1, body = bb (s, s2, xi) => (so, so2, yo) {
            m = MatMul(x, s) so = Tanh(m) n = Mul(s2, h) so2 = Add(n, s) yo = Mul(xi, so2) }> (h, h, x) }""",
    "states that are no floats": """g (double[N] h, double[T,N] x) => (double f, int64 n, bool last, double y) {
        zero = Constant<value_int=0>() yes = Constant<value = bool {1}>()
        f, n, last, y = Scan <num_scan_inputs = 1, body = bb (s, i, b, xi) => (so, io, bo, yo) {
            one = Constant<value_int=1>() io = Add(i, one) k = CastLike(io, xi)
            p = Mul(s, k) so = Where(b, p, xi) bo = Not(b) yo = Mul(so, s) }> (h, zero, yes, x) }""",
    "an If inside": """g (double[N] h, double[T,N] x, double[N] w) => (double f, double y) {
        f, y = Scan <num_scan_inputs = 1, body = bb (s, xi) => (so, yo) {
            m = ReduceSum<keepdims=0>(xi) none = Constant<value_int=0>() zero = CastLike(none, m) c = Greater(m, zero)
            so = If (c) <then_branch = t () => (a) { p = Mul(s, w) a = Sin(p) },
                              else_branch = e () => (b) { b = Mul(s, xi) }>
            yo = Mul(so, so) }> (h, x) }""",
    "a Scan inside": """g (double[N] h, double[T,N] x, double[N] w) => (double f, double y) {
        f, y = Scan <num_scan_inputs = 1, body = bb (s, xi) => (so, yo) {
            so, yo = Scan <num_scan_inputs = 1, body = cc (t, xj) => (to, zo) {
                p = Mul(t, w) q = Add(p, xj) to = Tanh(q) zo = ReduceSum<keepdims=0>(to) }> (s, xi) }> (h, x) }""",
    "states that no trip has to be known of": """g (double[N] h, double[T,N] x, double[N] w) => (double f) {
        f, y = Scan <num_scan_inputs = 1, body = bb (s, xi) => (so, yo) {
            p = Sin(w) so = Add(s, p) yo = Identity(xi) }> (h, x) }""",
    "a branch on a known condition": """g (double[N] h, double[T,N] x) => (double y) {
        c = Constant<value = bool {1}>()
        y = If (c) <then_branch = t () => (a) {
                f, a = Scan <num_scan_inputs = 1, scan_output_directions = [1], body = bb (s, xi) => (so, yo) {
                    so = Mul(s, xi) yo = Exp(so) }> (h, x) },
            else_branch = e () => (b) { b = Mul(x, x) }> }""",
}


LOOPS = {
    "a trip count": """g (double[N] h, double[N,N] w, int64 m) => (double f, double y) {
        f, y = Loop (m, , h) <body = bb (int64 i, bool c, s) => (co, so, yo) {
            co = Identity(c) p = MatMul(s, w) so = Tanh(p) k = CastLike(i, s) yo = Mul(so, k) }> }""",
    "a condition that ends it": """g (double[N] h, double[N,N] w, int64 m) => (double f, double y) {
        yes = Constant<value = bool {1}>() n = CastLike(m, h) half = Constant<value = double {0.5}>() last = Sub(n, half)
        zero = Constant<value = double {0.0}>() goes = Greater(n, zero)
        f, t, y = Loop ( , goes, h, zero) <body = bb (int64 i, bool c, s, t) => (co, so, to, yo) {
            k = Constant<value = double {1.0}>() to = Add(t, k) co = Less(to, last)
            p = MatMul(w, s) so = Sin(p) yo = Mul(so, s) }> }""",
    "states that are not read and not changed": """g (double[N] h, double[N,N] w, int64 m) => (double f, double e,
            double y) {
        f, e, u, y = Loop (m, , h, w, h) <body = bb (int64 i, bool c, s, v, u) => (c, so, v, u, s) {
            p = MatMul(v, s) so = Tanh(p) }> }""",
    "states that change their shapes and are read": """g (double[N] h, double[N,N] w, int64 m) => (double f, double e) {
        f, e = Loop (m, , h, w) <body = bb (int64 i, bool c, s, u) => (co, so, uo) {
            co = Identity(c) p = Mul(s, s) so = Concat<axis=0>(s, p)
            v = Mul(u, u) uo = Concat<axis=1>(v, u, w) }> }""",
    "gradients of weights, biases and slices that are summed after it": """g (double[3] h, double[3,3] w, int64 m)
            => (double f, double y) {
        f, y = Loop (m, , w) <body = bb (int64 i, bool c, s) => (co, so, yo) {
            co = Identity(c) p = MatMul(s, w) q = Gemm<transB=1>(p, w, h) so = Tanh(q)
            three = Constant<value_int=3>() d = Mod(i, three) wd = Gather(w, d) yo = Mul(so, wd) }> }""",
    "a Loop inside": """g (double[N] h, double[N,N] w, int64 m) => (double f, double y) {
        f, y = Loop (m, , h) <body = bb (int64 i, bool c, s) => (co, so, yo) {
            co = Identity(c) so, e = Loop (i, , s, s) <body = cc (int64 j, bool d, t, u) => (eo, to, uo) {
                eo = Identity(d) p = MatMul(w, t) to = Tanh(p) uo = Mul(u, t) }>
            yo = Mul(so, e) }> }""",
    "a Scan and an If inside": """g (double[N] h, double[N,N] w, int64 m) => (double f, double y) {
        f, y = Loop (m, , h) <body = bb (int64 i, bool c, double[N] s) => (co, so, yo) {
            co = Identity(c) one = Constant<value_int=1>() is_first = Less(i, one)
            q, yo = Scan <num_scan_inputs = 1, body = cc (t, xj) => (to, zo) {
                p = Mul(t, xj) to = Tanh(p) zo = Mul(to, s) }> (s, w)
            so = If (is_first) <then_branch = t1 () => (a) { a = Sin(q) },
                                     else_branch = e1 () => (b) { b = Mul(q, s) }> }> }""",
}


OTHERS = {
    # ONNX's inference leaves the ranks open, and the rule of MatMul needs them.
    "ranks behind a Loop and an If": """g (double[N] h, double[N,N] w, int64 m, double[2,3] x) => (double y, double z) {
        f = Loop (m, , h) <body = bb (int64 i, bool c, s) => (co, so) { co = Identity(c) so = Sin(s) }>
        y = MatMul(w, f)
        n = Size(x) six = Constant<value_int=6>() is_six = Equal(n, six)
        v = If (is_six) <then_branch = t () => (a) { a = MatMul(x, w) }, else_branch = e () => (b) { b = ReduceSum(x) }>
        z = MatMul(v, f) }""",
    # The branches say that r is as long as x; it has one element, and is broadcast.
    "names of lengths inside": """g (double[O] h, double[T] x, int64 m) => (double y) {
        c = Cast<to = 9>(m)
        r = If (c) <then_branch = a () => (double[T] p) { p = Neg(h) }, else_branch = b () => (double[T] q) { q = Exp(h) }>
        y = Mul(r, x) }""",
}

TWICE: dict[str, tuple[str, dict[str, object], list[str]]] = {
    # text, inputs that are not drawn, outputs
    **{f"If, {name}, {taken}": (text, {"c": taken}, []) for name, text in IFS.items() for taken in (True, False)},
    **{f"Scan, {name}": (text, {}, []) for name, text in SCANS.items()},
    # Without a trip, ONNX Runtime does not know the rank of what a Loop stacks.
    **{f"Loop, {name}, no trip": (text, {"m": 0}, ["f"]) for name, text in LOOPS.items()},
    **{f"Loop, {name}": (text, {"m": 3}, []) for name, text in (LOOPS | OTHERS).items()},
}


@pytest.mark.parametrize(("text", "given", "outputs"), TWICE.values(), ids=TWICE)
def test_first_and_second_derivatives(text: str, given: dict[str, object], outputs: list[str]) -> None:
    feeds = feeds_of(text, **given)
    check(HEADER + text, feeds, [name for name in feeds if name not in given], outputs=outputs, second_order=True)


def random_loop(drawn: str) -> onnx.ModelProto:
    text = f"""g (double[3] h, int64 m) => (double f) {{ flat = Constant<value_ints=[1, 1, 1]>()
        f = Loop (m, , h) <body = bb (int64 i, bool c, s) => (co, so) {{ co = Identity(c) {drawn} so = Mul(s, r) }}>
        loss = ReduceSum<keepdims=0>(f) }}"""
    return parsed(HEADER + text)


def test_random_numbers_inside_are_stored() -> None:
    model = gradient(random_loop("r = RandomUniform<shape = [3], dtype = 11>()"), "loss", ["h"])
    h = np.arange(1.0, 4.0)
    found = run(model, {"h": h, "m": np.array(2)})
    np.testing.assert_allclose(found["h_grad"], found["f"] / h, rtol=1e-12)


def test_random_numbers_inside_cannot_be_drawn_again() -> None:
    drawn = """ones = CastLike(flat, s) half = Constant<value_float=0.5>() yes = Constant<value = bool {1}>()
        r = Dropout(ones, half, yes)"""
    with pytest.raises(ValueError, match="draws random numbers, which the gradient cannot reproduce"):
        gradient(random_loop(drawn), "loss", ["h"])


@pytest.mark.parametrize("product", ["MatMul", "Gemm", "Gemm<transB = 1>"])
def test_an_iteration_in_reverse_computes_no_value_and_no_weight_gradient_again(product: str) -> None:
    text = f"""g (double[B,3] h, double[3,3] w, int64 m) => (double y) {{
        f, y = Loop (m, , h) <body = bb (int64 i, bool c, s) => (co, so, yo) {{
            co = Identity(c) p = {product}(s, w) so = Tanh(p) yo = Sigmoid(so) }}>
        loss = ReduceSum<keepdims=0>(y) }}"""
    made = gradient(parsed(HEADER + text), "loss", ["w"])
    forward, reverse = (node.attribute[0].g for node in made.graph.node if node.op_type == "Loop")
    assert {product.partition("<")[0], "Tanh", "Sigmoid"} < {node.op_type for node in forward.node}
    assert {"MatMul", "Tanh", "Sigmoid", "Reshape"}.isdisjoint(node.op_type for node in reverse.node)
    assert [node.op_type for node in reverse.node].count("Gemm") == 1  # by the state


@pytest.mark.parametrize("operator", ["Scan", "Loop"])
def test_half_precision_and_large_constants_inside(operator: str) -> None:
    """An initializer in a body is not copied to where nothing reads it."""
    body = "b (int64 i, bool c, s) => (co, so)" if operator == "Loop" else "b (s, xi) => (so, yo)"
    rest = "co = Identity(c)" if operator == "Loop" else "yo = Identity(xi)"
    call = "(m, , h)" if operator == "Loop" else "<num_scan_inputs = 1, {}> (h, x)"
    inner = (
        f"body = {body} <float[3] k = {{1.0, 2.0, 3.0}}> {{ {rest} kk = Cast<to = 10>(k) p = Mul(s, kk) so = Tanh(p) }}"
    )
    node = f"f = Loop {call} <{inner}>" if operator == "Loop" else f"f, y = Scan {call.format(inner)}"
    text = f"g (float16[3] h, float16[T,3] x, int64 m) => (float16[3] f) {{ {node} loss = ReduceSum<keepdims=0>(f) }}"
    feeds = {"h": np.array([0.1, 0.2, 0.3], np.float16), "x": np.ones((2, 3), np.float16), "m": np.array(2)}
    found = run(gradient(parsed(HEADER + text), "loss", ["h"]), feeds)["h_grad"]
    k, h = np.array([1.0, 2.0, 3.0]), feeds["h"].astype(np.float64)
    once = np.tanh(h * k)
    expected = (1 - np.tanh(once * k) ** 2) * k * (1 - once**2) * k
    np.testing.assert_allclose(found, expected, rtol=5e-3)
    assert found.dtype == np.float16


def test_lengths_that_inference_names_are_not_taken_for_equal() -> None:
    made = parsed(HEADER + "g (double[N] x, double[M] z) => (double y) { y = Add(x, z) }")
    graph = GradientGraph(made.graph, {"": 18})
    lengths = []
    for name in ("x", "z"):
        places = graph.op("NonZero", name)
        lengths.append(graph.lengths(places))
    assert lengths[0] is not None
    assert lengths[1] is not None
    assert lengths[0][1] != lengths[1][1]


SCAN_OF_NONE = "f, y = Scan <num_scan_inputs = 1, body = bb (s, xi) => (so, yo) { so = Exp(s) yo = Ceil(xi) }> (h, x)"
LOOP_OF_NONE = """f, y = Loop (m, , h) <body = bb (int64 i, bool c, s) => (co, so, yo) {
    co = Identity(c) so = Exp(s) yo = Ceil(x) }>"""


@pytest.mark.parametrize("node", [SCAN_OF_NONE, LOOP_OF_NONE])
def test_what_no_body_depends_on_has_a_gradient_of_0(node: str) -> None:
    text = f"g (double[N] h, double[T,N] x, int64 m) => (double y) {{ {node} loss = ReduceSum<keepdims=0>(y) }}"
    with pytest.warns(UserWarning, match="'x' is 0"):
        made = gradient(parsed(HEADER + text), "loss", ["x"])
    assert not run(made, {**values(h=(3,), x=(2, 3)), "m": np.array(2)})["x_grad"].any()


def test_sequences_beside_the_path_do_no_harm() -> None:
    text = """g (double[N] h, int64 m) => (double f, double all) {
        none = SequenceEmpty<dtype = 11>()
        f, seq = Loop (m, , h, none) <body = bb (int64 i, bool c, double[N] s, seq(double[N]) q) => (co, so, qo) {
            co = Identity(c) so = Sin(s) qo = SequenceInsert(q, s) }>
        all = ConcatFromSequence<axis = 0>(seq) }"""
    made = parsed(HEADER + text)
    check(made, {**values(h=(3,)), "m": np.array(2)}, ["h"], outputs=["f"])
    made.graph.node.append(onnx.helper.make_node("ReduceSum", ["all"], ["loss"], keepdims=0))
    with pytest.raises(ValueError, match=r"\(ConcatFromSequence\) has no gradient"):
        gradient(made, "loss", ["h"])


OPEN_SEQUENCES = {
    "a computed position": "s = SequenceConstruct(x, x) y = SequenceAt(s, i)",
    "a position beyond the end": "p = Constant<value_int = -3>() s = SequenceConstruct(x, x) y = SequenceAt(s, p)",
    "an open number of parts": "s = SplitToSequence(x) y = ConcatFromSequence<axis = 0>(s)",
    "an insertion anywhere": "s = SequenceConstruct(x) t = SequenceInsert(s, x, i) y = ConcatFromSequence<axis = 0>(t)",
    "an erasure anywhere": "s = SequenceConstruct(x, x) t = SequenceErase(s, i) y = ConcatFromSequence<axis = 0>(t)",
    "an erasure of nothing": "n = SequenceEmpty() s = SequenceErase(n) t = SequenceInsert(s, x) y = SequenceAt(t, i)",
    "a branch": """s = If (c) <then_branch = a () => (t) { t = SequenceConstruct(x) },
        else_branch = b () => (u) { u = SequenceConstruct(x, x) }> y = SequenceAt(s, i)""",
}


@pytest.mark.parametrize("nodes", OPEN_SEQUENCES.values(), ids=OPEN_SEQUENCES)
def test_a_sequence_that_is_known_in_the_session_only_is_refused(nodes: str) -> None:
    model = parsed(f"{HEADER} g (double[N] x, int64 i, bool c) => (double y) {{ {nodes} }}")
    with pytest.raises(
        ValueError, match=r"node of 'y' \(\w+\) has no gradient: a sequence is differentiated only where"
    ):
        vjp(model, ["y"], ["x"])


def test_sequences_stay_if_they_are_read_or_treated_as_constants() -> None:
    model = parsed(f"""{HEADER} g (double[N] x) => (double y) {{
        p = Constant<value_int = 1>() s = SplitToSequence<keepdims = 0>(x) e = SequenceAt(s, p) y = Mul(e, e) }}""")
    feeds = {"x": np.array([2.0, 3, 4])}
    read = gradient(model, "y", ["x"])
    assert not {"SplitToSequence", "SequenceAt"} & {node.op_type for node in read.graph.node}
    np.testing.assert_array_equal(run(read, feeds)["x_grad"], [0, 6, 0])
    with pytest.warns(UserWarning, match="'x' is 0"):
        gradient(model, "y", ["x"], stop_at=["s"])
    model.graph.output.append(onnx.helper.make_tensor_sequence_value_info("s", onnx.TensorProto.DOUBLE, None))
    results = run(gradient(model, "y", ["x"]), feeds)
    np.testing.assert_array_equal(results["s"], feeds["x"])
    np.testing.assert_array_equal(results["x_grad"], [0, 6, 0])


def test_loops_far_inside_of_each_other() -> None:
    inner = "so0 = Sin(s0)"
    for i in range(9):
        body = f"bb{i} (int64 i{i}, bool c{i}, s{i}) => (co{i}, so{i}) {{ co{i} = Identity(c{i}) {inner} }}"
        inner = f"so{i + 1} = Loop (m, , s{i + 1}) <body = {body}>"
    check(
        HEADER + f"g (double[N] s9, int64 m) => (double so9) {{ {inner} }}",
        {**values(s9=(3,)), "m": np.array(1)},
        ["s9"],
    )
