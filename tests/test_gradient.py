# SPDX-License-Identifier: MIT
"""Gradients of whole models: arguments, names, types, paths, opsets, reports, and malformed graphs."""

from __future__ import annotations

import re
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnx_models
from gradient_checks import parsed, run
from onnx_models.gradient import Coverage, ZeroGradientWarning, gradient, report, vjp
from onnx_models.gradient.ours import DOMAIN
from onnx_models.gradient.rules import DECOMPOSITIONS, REFUSED, RULES, ZEROS
from onnx_models.tools.compositions import COMPOSITIONS
from onnx_models.tools.protos import iter_nodes

HEADER = '<ir_version: 10, opset_import: ["" : 18]>'
CHAIN = f"""{HEADER} chain (double[N,3] x, int64[2] k) => (double loss)
    <double[3] w = {{1.0, -2.0, 3.0}}> {{
        h = Mul(x, w)
        rounded = Floor(h)
        y = Mul(h, h)
        loss = ReduceSum<keepdims=0>(y)
    }}"""
X = np.array([[0.5, 1.5, -2.5], [3.5, 0.25, 0.75]])
W = np.array([1.0, -2.0, 3.0])
FEEDS = {"x": X, "k": np.array([1, 2])}


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"loss": "nothing"}, ValueError, "loss has 'nothing': must be the name of a tensor"),
        ({"loss": "lsos"}, ValueError, r"loss has 'lsos' \(loss\?\): must be the name of a tensor"),
        ({"loss": "k"}, ValueError, "loss has 'k' of type int64: must have a floating-point type"),
        ({"loss": "y"}, ValueError, r"loss = 'y' has shape \['N', 3\]: must have one element"),
        ({"loss": ["loss"]}, ValueError, r"loss has \['loss'\]: must be the name of a tensor"),
        ({"wrt": ["nothing"]}, ValueError, "wrt has 'nothing': must be the name of a tensor"),
        ({"wrt": ["parameters"]}, ValueError, "wrt has 'parameters': must be .*, or pass wrt='parameters'"),
        ({"wrt": []}, ValueError, "must be one or more different names"),
        ({"wrt": ["x", "x"]}, ValueError, "must be one or more different names"),
        ({"wrt": ["k"]}, ValueError, "wrt has 'k' of type int64: must have a floating-point type"),
        ({"wrt": "x"}, ValueError, "wrt = 'x': must be names, or 'parameters'"),
        ({"wrt": None}, TypeError, "wrt = None: must be a list"),
        ({"wrt": b"x"}, TypeError, "wrt = b'x': must be a list"),
        ({"wrt": [["x"]]}, TypeError, r"wrt has \['x'\]: must be a name"),
        ({"wrt": {"x": b"dx"}}, ValueError, "wrt maps 'x' to b'dx': must be a name"),
        ({"stop_at": ["nothing"]}, ValueError, "stop_at has 'nothing': must be the name of a tensor"),
        ({"stop_at": None}, TypeError, "stop_at = None: must be a list"),
        ({"stop_at": "h"}, ValueError, "stop_at = 'h': must be a list"),
        ({"model": CHAIN.encode()}, TypeError, "model = bytes: must be an onnx.ModelProto"),
    ],
)
def test_wrong_arguments(changed: dict[str, object], error: type[Exception], message: str) -> None:
    arguments: dict[str, Any] = {"model": onnx.parser.parse_model(CHAIN), "loss": "loss", "wrt": ["x"], **changed}
    with pytest.raises(error, match=message):
        gradient(**arguments)


def test_a_name_that_is_taken() -> None:
    with pytest.raises(ValueError, match=r"has a tensor 'x_grad' already: .* \(--name x dx\)"):
        gradient(onnx.parser.parse_model(CHAIN.replace("rounded", "x_grad")), "loss", ["x"])


def test_names_of_the_model_that_look_like_those_added() -> None:
    text = CHAIN.replace("rounded", "Mul_grad_0").replace("h = ", "Expand_grad_0 = ").replace("(h", "(Expand_grad_0")
    found = run(gradient(onnx.parser.parse_model(text.replace(", h)", ", Expand_grad_0)")), "loss", ["x"]), FEEDS)
    np.testing.assert_allclose(found["x_grad"], 2 * X * W**2)


def test_an_input_an_initializer_and_a_tensor_between() -> None:
    made = gradient(onnx.parser.parse_model(CHAIN), "loss", ["x", "w", "h", "y"])
    found = run(made, FEEDS)
    np.testing.assert_allclose(found["x_grad"], 2 * X * W**2)
    np.testing.assert_allclose(found["w_grad"], (2 * X**2 * W).sum(axis=0))
    np.testing.assert_allclose(found["h_grad"], 2 * X * W)
    np.testing.assert_array_equal(found["y_grad"], np.ones_like(X))


def test_types_and_shapes_of_the_outputs() -> None:
    made = gradient(onnx.parser.parse_model(CHAIN), "loss", ["x", "w", "loss"])
    onnx.checker.check_model(made, full_check=True)
    types = {value.name: value.type.tensor_type for value in made.graph.output}
    assert {kind.elem_type for kind in types.values()} == {onnx.TensorProto.DOUBLE}
    lengths = {name: [dim.dim_param or dim.dim_value for dim in kind.shape.dim] for name, kind in types.items()}
    assert lengths == {"loss": [], "x_grad": ["N", 3], "w_grad": [3], "loss_grad": []}
    assert all(kind.HasField("shape") for kind in types.values())


def test_the_model_is_not_modified_and_its_outputs_stay() -> None:
    model = onnx.parser.parse_model(CHAIN)
    before = model.SerializeToString()
    made = gradient(model, "loss", ["x"])
    assert model.SerializeToString() == before
    assert [value.name for value in made.graph.output] == ["loss", "x_grad"]
    assert list(made.graph.node)[: len(model.graph.node)] == list(model.graph.node)
    np.testing.assert_array_equal(run(made, FEEDS)["loss"], run(model, FEEDS)["loss"])


def test_only_what_the_outputs_need_is_added() -> None:
    made = gradient(onnx.parser.parse_model(CHAIN), "loss", ["y"])
    used = {name for node in made.graph.node for name in node.input} | {value.name for value in made.graph.output}
    assert all(used.intersection(node.output) for node in made.graph.node if "rounded" not in node.output)


@pytest.mark.parametrize(
    ("body", "shared"),
    [
        ("a = Sigmoid(x) b = Softplus(x) c = Sum(a, b)", "Sigmoid"),  # by the model and the rule of Softplus
        ("a = Softplus(x) b = Mish(x) c = Add(a, b)", "Sigmoid"),  # by two rules
        ("c = Softsign(x)", "Abs"),  # by one rule
        ("c = If (k) <then_branch = p () => (a) { a = Softsign(x) }, else_branch = q () => (b) { b = Exp(x) }>", "Abs"),
    ],
)
def test_what_the_model_and_rules_both_compute_is_computed_once(body: str, shared: str) -> None:
    text = f"{HEADER} g (double[4] x, bool k) => (double loss) {{ {body} loss = ReduceSum<keepdims=0>(c) }}"
    made = gradient(parsed(text), "loss", ["x"])
    assert [node.op_type for node in iter_nodes(made.graph)].count(shared) == 1
    assert {value.name for value in made.graph.output} == {"loss", "x_grad"}


def test_a_constant_of_the_model_is_no_number_of_a_derivative() -> None:
    text = f"""{HEADER} g (float[N] x) => (float loss) {{
        two = Constant<value = float {{2}}>() scaled = Mul(x, two) loss = ReduceSumSquare<keepdims=0>(scaled) }}"""
    made = gradient(parsed(text), "loss", ["x"])
    trained = [node for node in made.graph.node if "two" not in node.output]
    del made.graph.node[:]
    made.graph.node.extend(trained)
    made.graph.input.append(onnx.helper.make_tensor_value_info("two", onnx.TensorProto.FLOAT, []))
    found = run(made, {"x": np.ones(1, np.float32), "two": np.array(3, np.float32)})
    np.testing.assert_array_equal(found["x_grad"], [18])


def test_a_gradient_of_zeros_is_told_with_its_reason() -> None:
    text = f"""{HEADER} g (double[N] x, double[M] free, double[N] late) => (double loss) {{
        rounded = Round(x)
        same = Identity(x)
        product = Mul(rounded, late)
        unused = Mul(product, free)
        loss = ReduceSum<keepdims=0>(product)
    }}"""
    feeds = {"x": np.array([1.25, 2.75]), "free": np.ones(1), "late": np.ones(2)}
    with pytest.warns(ZeroGradientWarning) as told:
        made = gradient(parsed(text), "loss", ["x", "free", "same", "late", "unused", "rounded"])
    reasons = {str(warning.message).split("'")[1]: str(warning.message) for warning in told}
    assert list(reasons) == ["x", "free", "same", "unused"]
    assert "node of 'rounded' (Round): it is constant between its steps" in reasons["x"]
    found = run(made, feeds)
    for name, shape in (("x", 2), ("free", 1), ("same", 2), ("unused", 2)):
        np.testing.assert_array_equal(found[f"{name}_grad"], np.zeros(shape))
    np.testing.assert_array_equal(found["late_grad"], [1, 3])
    np.testing.assert_array_equal(found["rounded_grad"], [1, 1])


def test_all_operators_without_a_rule_are_named_at_once() -> None:
    text = """<ir_version: 10, opset_import: ["" : 18, "own" : 1]> g (float[N] x) => (float loss) {
        a = own.First(x)
        b = own.Second(a)
        s = SplitToSequence(b)
        c = ConcatFromSequence <axis = 0> (s)
        loss = ReduceSum<keepdims=0>(c)
    }"""
    with pytest.raises(ValueError, match=r"\(ConcatFromSequence\) has no gradient: a sequence is") as caught:
        gradient(parsed(text), "loss", ["x"])
    for message in ("(Second) has no gradient rule (domain own)", "(First) has no gradient rule (domain own)"):
        assert message in str(caught.value)


def test_shapes_that_the_model_declares_inside_are_not_read() -> None:
    text = f"""{HEADER} g (float[N, 3] x, float[M, 3] b) => (float loss) {{
        y = Add(x, b)
        loss = ReduceSum<keepdims=0>(y)
    }}"""
    model = onnx.parser.parse_model(text)
    for name in ("y", "b", "x"):
        model.graph.value_info.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 3]))
    found = run(gradient(model, "loss", ["x", "b"]), {"x": np.ones((4, 3), "f"), "b": np.ones((1, 3), "f")})
    np.testing.assert_array_equal(found["b_grad"], [[4, 4, 4]])


@pytest.mark.parametrize("names", [np.array(["x", "w"]), iter(["x", "w"])], ids=["an array", "what can be read once"])
def test_names_may_be_in(names: Any) -> None:
    made = gradient(onnx.parser.parse_model(CHAIN), "loss", names)
    assert [value.name for value in made.graph.output] == ["loss", "x_grad", "w_grad"]


def test_all_parameters() -> None:
    made = gradient(onnx.parser.parse_model(CHAIN), "loss", "parameters")
    assert [value.name for value in made.graph.output] == ["loss", "w_grad"]
    with pytest.raises(ValueError, match="the loss must depend on at least one"):
        gradient(onnx.parser.parse_model(CHAIN.replace("h = Mul(x, w)", "h = Neg(x)")), "loss", "parameters")


def test_rois_that_are_taken_for_constants() -> None:
    text = f"""{HEADER} g (float[1, 1, 6, 6] image, float[1, 4] box) => (float loss) <int64[1] of = {{0}}> {{
        wider = Add(box, box)
        y = RoiAlign <output_height = 2, output_width = 2> (image, wider, of)
        loss = ReduceSum <keepdims = 0> (y)
    }}"""
    model = onnx.parser.parse_model(text)
    assert "box_grad" in {value.name for value in gradient(model, "loss", ["box", "image"]).graph.output}
    with pytest.warns(ZeroGradientWarning, match=r"'box' is 0: .* at RoIs, by through_rois=False"):
        made = gradient(model, "loss", ["image", "box"], through_rois=False)
    (node,) = (node for node in made.graph.node if node.op_type == "RoiAlignGrad")
    assert [bool(name) for name in node.output] == [True, False]


def test_an_input_with_a_default_may_change_shapes_inside() -> None:
    made = parsed(f"""{HEADER} g (double[N,3] x, int64[2] shape, int64[1] axis) => (double loss)
        <int64[2] shape = {{3, 2}}, int64[1] axis = {{0}}> {{
        y = Reshape(x, shape)
        sums = ReduceSum<keepdims=0>(y, axis)
        squares = Mul(sums, sums)
        loss = ReduceSum<keepdims=0>(squares)
    }}""")
    feeds = {"x": np.arange(6.0).reshape(2, 3)}
    differentiated = gradient(made, "loss", ["x"])
    np.testing.assert_array_equal(run(differentiated, feeds)["x_grad"], [[12, 18, 12], [18, 12, 18]])
    feeds |= {"shape": np.array([1, 6]), "axis": np.array([1])}
    np.testing.assert_array_equal(run(differentiated, feeds)["x_grad"], np.full((2, 3), 30))


def test_a_loss_of_several_elements_is_an_error_where_its_shape_is_open() -> None:
    made = gradient(parsed(f"{HEADER} g (double[N] x) => (double loss) {{ loss = Mul(x, x) }}"), "loss", ["x"])
    np.testing.assert_array_equal(run(made, {"x": np.array([3.0])})["x_grad"], [6])
    with pytest.raises(Exception, match="loss = 'loss': must have one element"):
        run(made, {"x": np.array([3.0, 4.0])})
    made = vjp(parsed(f"{HEADER} g (double[N] x) => (double y) {{ y = Mul(x, x) }}"), ["y"], ["x"])
    with pytest.raises(Exception, match="y_cotangent: must have as many elements as 'y'"):
        run(made, {"x": np.array([3.0, 4.0]), "y_cotangent": np.ones(3)})


def test_two_opsets_of_one_domain_are_refused() -> None:
    made = onnx.parser.parse_model(CHAIN)
    made.opset_import.add(domain="ai.onnx", version=13)
    with pytest.raises(ValueError, match=r"opset_import has versions \[13, 18\] of ONNX's domain: must be one"):
        gradient(made, "loss", ["x"])


def test_stop_at() -> None:
    text = f"""{HEADER} g (double[N] x) => (double loss) {{
        square = Mul(x, x)
        cube = Mul(square, x)
        loss = ReduceSum<keepdims=0>(cube)
    }}"""
    x = np.array([0.5, -1.5])
    found = run(gradient(parsed(text), "loss", ["x"], stop_at=["square"]), {"x": x})
    np.testing.assert_allclose(found["x_grad"], x**2)
    found = run(gradient(parsed(text), "loss", ["x", "square"], stop_at=["square"]), {"x": x})
    np.testing.assert_allclose(found["x_grad"], x**2)
    np.testing.assert_allclose(found["square_grad"], x)


WITHOUT_RULE = """<ir_version: 10, opset_import: ["" : 18, "com.microsoft" : 1]> g (float[N,N] x) => (float loss)
<float[N,N] inverse> {
    shifted = Neg(x)
    [the_node] inverse = com.microsoft.Inverse(shifted)
    scaled = Exp(inverse)
    loss = ReduceSum <keepdims = 0> (scaled)
}"""


def test_an_operator_without_a_rule() -> None:
    with pytest.raises(ValueError, match=r"node 'the_node' \(Inverse\) has no gradient rule \(domain com.m") as caught:
        gradient(onnx.parser.parse_model(WITHOUT_RULE), "loss", ["x"])
    assert "x -> Neg -> shifted -> Inverse" in str(caught.value)


@pytest.mark.parametrize(("wrt", "stop_at"), [(["inverse"], []), (["x"], ["inverse"]), (["x", "inverse"], ["shifted"])])
@pytest.mark.filterwarnings("ignore:the gradient with respect to 'x' is 0")
def test_an_operator_without_a_rule_off_the_path(wrt: list[str], stop_at: list[str]) -> None:
    x = X[:, :2].astype(np.float32)
    found = run(gradient(onnx.parser.parse_model(WITHOUT_RULE), "loss", wrt, stop_at=stop_at), {"x": x})
    if "inverse" in wrt:
        np.testing.assert_allclose(found["inverse_grad"], np.exp(np.linalg.inv(-x)), rtol=1e-4)
    if "x" in wrt:
        assert not found["x_grad"].any()


def test_types_that_shape_inference_does_not_find() -> None:
    # An operator that nothing is known of: the tensors after it have no type.
    text = """<ir_version: 10, opset_import: ["" : 18, "own" : 1]>
        g (double[N] x) => (double loss) { unknown = own.Unknown(x)
            shifted = Add(unknown, x)
            root = Sqrt(shifted)
            loss = ReduceSum<keepdims=0>(root) }"""
    made = gradient(parsed(text), "loss", ["x"], stop_at=["unknown"])
    assert "CastLike" in {node.op_type for node in made.graph.node}
    with pytest.raises(ValueError, match="'unknown': its type must be known"):
        gradient(parsed(text), "loss", ["unknown"])
    with pytest.raises(ValueError, match=r"\(Unknown\) has no gradient rule"):
        gradient(parsed(text), "loss", ["x"])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("x = Neg(x) loss = ReduceSum<keepdims=0>(x)", "node of 'x' \\(Neg\\) computes 'x': must be a new name"),
        ("y = Add(x) loss = ReduceSum<keepdims=0>(y)", "shape inference: .*Add.* is out of bounds"),
        ("y = Tan(x, x) loss = ReduceSum<keepdims=0>(y)", "node of 'y' \\(Tan\\): .*has input size 2 not in range"),
        ("y = Transpose <prem = [0]> (x) loss = ReduceSum<keepdims=0>(y)", "Unrecognized attribute: prem for operator"),
        ("y = Concat(x, x) loss = ReduceSum<keepdims=0>(y)", "Required attribute 'axis' is missing"),
    ],
)
def test_a_malformed_graph(body: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gradient(onnx.parser.parse_model(f"{HEADER} g (float[N] x) => (float loss) {{ {body} }}"), "loss", ["x"])


def test_no_operator_is_in_two_tables() -> None:
    tables = [set(RULES), set(DECOMPOSITIONS), set(ZEROS), set(REFUSED)]
    assert sum(map(len, tables)) == len(set().union(*tables))


def test_the_tables_have_operators_of_onnx() -> None:
    known = {(schema.domain, schema.name) for schema in onnx.defs.get_all_schemas()}
    tables = {*RULES, *DECOMPOSITIONS, *ZEROS, *REFUSED}
    assert {(domain, name) for domain, name in tables - COMPOSITIONS.keys() if domain != DOMAIN} <= known


ROOT = Path(__file__).parents[1]
WITH_OWN = '<ir_version: 10, opset_import: ["" : 18, "own" : 1]>'

TEXT = f"""{WITH_OWN} g (float[N, 3] x, float[3] w, float[M] free, int64[2] k) => (float loss) {{
    shape = Shape(x)
    lengths = Gather(shape, k)
    scaled = Mul(x, w)
    rounded = Round(scaled)
    twice = Mul(scaled, rounded)
    soft = Softsign(twice)
    aside = Exp(x)
    loss = ReduceSum <keepdims = 0> (soft)
}}"""


def test_a_report_has_the_operators_between_and_where_a_gradient_ends() -> None:
    found = report(parsed(TEXT), "loss", ["x", "free"])
    ways = {one.operator: (one.way, number) for one, number in found.operators}
    assert ways == {
        "Mul": ("rule", 2),
        "Round": ("zero", 1),
        "Softsign": ("rule", 1),
        "ReduceSum": ("rule", 1),
    }
    assert found.zero_gradients == ("free",)
    assert "node of 'rounded' (Round): it is constant between its steps" in found.zeros
    assert found.refused == ()
    made = gradient(parsed(TEXT), "loss", ["x"])
    assert (found.nodes_before, report(parsed(TEXT), "loss", ["x"]).nodes_after) == (8, len(made.graph.node))


def test_a_report_of_operators_that_a_gradient_cannot_pass() -> None:
    text = TEXT.replace("Softsign(twice)", "own.Unknown(twice)")
    found = report(parsed(text), "loss", ["x"])
    assert found.nodes_after is None
    assert found.zero_gradients == ()
    (refused,) = found.refused
    assert "(Unknown) has no gradient rule (domain own)" in refused
    assert Coverage("own", "Unknown", "none") in {one for one, _ in found.operators}
    with pytest.raises(ValueError, match="loss has 'y': must be the name of a tensor"):
        report(parsed(text), "y", ["x"])


@pytest.mark.parametrize(
    ("inside", "message"),
    [
        ("p = Neg(q) q = Exp(x)", r"node of 'p' \(Neg\) reads 'q': must be computed by an earlier node"),
        ("p = Neg(nothing)", r"node of 'p' \(Neg\) reads 'nothing': must be computed by an earlier node"),
        ("p = Neg(late)", r"node of 'p' \(Neg\) reads 'late': must be computed by an earlier node"),
        ("p = Neg(x) p = Exp(x)", r"node of 'p' \(Exp\) computes 'p': must be a new name"),
        ("x = Exp(early) p = Neg(x)", r"node of 'x' \(Exp\) computes 'x': must be a new name"),
        ("r = Neg(x)", "graph 'one' has the output 'p': must be computed by one of its nodes"),
        ("early = Neg(x) p = Neg(early)", r"node of 'early' \(Neg\) computes 'early': must be a new name"),
        (
            "p = If (c) <then_branch = a () => (float[N] s) { s = Exp(nothing) }, else_branch = b () => () { t = Exp(x) }>",
            r"node of 's' \(Exp\) reads 'nothing': must be computed by an earlier node",
        ),
    ],
)
@pytest.mark.parametrize("on_the_path", [True, False])
def test_a_malformed_graph_inside(inside: str, message: str, on_the_path: bool) -> None:
    text = f"""{WITH_OWN} g (float[N] x, bool c) => (float loss) {{
        early = Exp(x)
        y = If (c) <
            then_branch = one () => (float[N] p) {{ {inside} }},
            else_branch = two () => (float[N] q2) {{ q2 = Neg(early) }}
        >
        late = Exp({"y" if on_the_path else "x"})
        loss = ReduceSum <keepdims = 0> (late)
    }}"""
    with pytest.raises(ValueError, match=message):
        gradient(onnx.parser.parse_model(text), "loss", ["x"])


def test_an_input_of_a_graph_inside_has_a_name_of_its_own() -> None:
    text = f"""{WITH_OWN} g (float[N] x, int64 n) => (float loss) {{
        y = Loop (n, , x) <body = b (int64 i, bool c, float[N] x) => (bool again, float[N] v) {{
            again = Identity(c) v = Exp(x) }}>
        loss = ReduceSum <keepdims = 0> (y)
    }}"""
    with pytest.raises(ValueError, match="graph 'b' has 'x': must not have the name of a tensor of the enclosing"):
        gradient(onnx.parser.parse_model(text), "loss", ["x"])


def test_what_documents_name_can_be_reached_from_the_package() -> None:
    texts = [path.read_text("utf-8") for path in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]]
    names = {name for text in texts for name in re.findall(r"\bonnx_models(?:\.[A-Za-z_]\w*)+", text)}
    assert {"onnx_models.report", "onnx_models.own_operators"} <= names
    for name in names:
        if not name.startswith("onnx_models.torch"):  # needs PyTorch
            reduce(getattr, name.split(".")[1:], onnx_models)
