# SPDX-License-Identifier: MIT
"""Functions of models: which are refused before they are inlined, and what inlining makes of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest

from gradient_checks import run
from onnx_models import convert, gradient
from onnx_models.portable import attach
from onnx_models.tools import functions
from onnx_models.tools.protos import iter_nodes
from ortops.spec import DOMAIN

make = onnx.helper.make_node
OPSETS = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("f", 1), onnx.helper.make_opsetid(DOMAIN, 1)]


def function(name: str, nodes: Sequence[onnx.NodeProto], *attributes: str, overload: str = "") -> onnx.FunctionProto:
    """A function of x that gives y."""
    made = onnx.helper.make_function("f", name, ["x"], ["y"], nodes, OPSETS, attributes)
    made.overload = overload
    return made


def call(name: str, x: str = "x", y: str = "y", overload: str = "") -> onnx.NodeProto:
    node = make(name, [x], [y], domain="f")
    node.overload = overload
    return node


def graph(*nodes: onnx.NodeProto) -> onnx.GraphProto:
    """A subgraph whose output is that of its last node."""
    output = onnx.helper.make_tensor_value_info(nodes[-1].output[0], onnx.TensorProto.FLOAT, None)
    return onnx.helper.make_graph(nodes, "inner", [], [output])


def model(nodes: Sequence[onnx.NodeProto], made: Sequence[onnx.FunctionProto]) -> onnx.ModelProto:
    """The nodes make y of x, [1, 1, 4, 4], or of c, a bool; loss is the sum of RoiAlign of y."""
    value = onnx.helper.make_tensor_value_info
    end = [
        make("RoiAlign_16", ["y", "rois", "batch_indices"], ["pooled"], name="head", domain=DOMAIN),
        make("ReduceSum", ["pooled"], ["loss"], keepdims=0),
    ]
    inputs = [value("x", 1, [1, 1, 4, 4]), value("rois", 1, [1, 4]), value("batch_indices", 7, [1]), value("c", 9, [])]
    whole = onnx.helper.make_graph([*nodes, *end], "g", inputs, [value("loss", 1, [])])
    return onnx.helper.make_model(whole, functions=made, opset_imports=OPSETS, ir_version=10)


def chain(count: int) -> onnx.ModelProto:
    """Functions, each of which calls the previous one."""
    made = [function("0", [make("Neg", ["x"], ["y"])])]
    return model([call(str(count - 1))], made + [function(str(i), [call(str(i - 1))]) for i in range(1, count)])


def doubling(count: int) -> onnx.ModelProto:
    """Functions, each of which calls the previous one twice: 2**count nodes in some hundred bytes."""
    twice = [function(str(i), [call(str(i - 1), y="t"), call(str(i - 1), "t")]) for i in range(1, count + 1)]
    return model([call(str(count))], [function("0", [make("Neg", ["x"], ["y"])]), *twice])


def default_graph(*nodes: onnx.NodeProto) -> onnx.FunctionProto:
    """A function with a graph as the default of an attribute."""
    node = make("If", ["x"], ["y"], else_branch=graph(make("Neg", ["x"], ["e"])))
    node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH, ref_attr_name="body")
    made = function("own", [node])
    made.attribute_proto.append(onnx.helper.make_attribute("body", graph(*nodes)))
    return made


CHANGES: dict[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {
    "convert": convert,
    "attach": attach,
    "gradient": lambda before: gradient(before, "loss", ["x"]),
}

RECURSIVE = [
    ([function("own", [call("own")])], "'f::own' -> 'f::own'"),
    ([function("a", [call("b")]), function("b", [call("a")])], "'f::a' -> 'f::b' -> 'f::a'"),
    (
        [function("own", [make("If", ["x"], ["y"], then_branch=graph(call("own")), else_branch=graph(call("q")))])],
        "'f::own' -> 'f::own'",
    ),
    (
        [
            function("q", [call("q", overload="2")], overload="1"),
            function("q", [call("q", overload="1")], overload="2"),
        ],
        "'f::q::1' -> 'f::q::2' -> 'f::q::1'",
    ),
    (
        [onnx.helper.make_function("ai.onnx", "Relu", ["x"], ["y"], [make("Relu", ["x"], ["y"])], OPSETS)],
        "'::Relu' -> '::Relu'",
    ),
    ([default_graph(call("own"))], "'f::own' -> 'f::own'"),
]


@pytest.mark.parametrize(("made", "circle"), RECURSIVE)
def test_functions_that_recurse_are_refused(made: Sequence[onnx.FunctionProto], circle: str) -> None:
    with pytest.raises(ValueError, match=f"^functions call each other in a circle: {circle}: must not recurse$"):
        convert(model([make("Neg", ["x"], ["y"])], made))


def rich(default: onnx.GraphProto | None = None) -> onnx.ModelProto:
    """Calls in branches, in functions, by overload, and with a graph that the function has twice; or as a default."""
    branches = make("If", ["c"], ["y"])
    for name in ("then_branch", "else_branch"):
        branches.attribute.add(name=name, type=onnx.AttributeProto.GRAPH, ref_attr_name="body")
    choosing = onnx.helper.make_function("f", "Choose", ["x", "c"], ["y"], [branches], OPSETS)
    if default is None:
        choosing.attribute.append("body")
    else:
        choosing.attribute_proto.append(onnx.helper.make_attribute("body", default))
    made = [
        function("Two", [make("Neg", ["x"], ["t"]), make("Exp", ["t"], ["y"])], overload="1"),
        function("Two", [call("Two", y="t", overload="1"), call("Two", "t", overload="1")], overload="2"),
        choosing,
    ]
    body = graph(make("Abs", ["x"], ["u"]), call("Two", "u", "v", overload="2"))
    branch = graph(call("Two", "z", "w", overload="1"), make("Neg", ["w"], ["q"]))
    nodes = [
        make("Choose", ["x", "c"], ["z"], domain="f", body=body),
        make("If", ["c"], ["y"], then_branch=branch, else_branch=graph(make("Neg", ["z"], ["n"]))),
    ]
    return model(nodes, made)


TWENTY = graph(*(make("Abs", ["x"], [f"d{i}"]) for i in range(20)))


@pytest.mark.parametrize(("default", "is_given"), [(None, True), (TWENTY, True), (TWENTY, False)])
def test_the_count_is_that_of_the_inlined_nodes(
    monkeypatch: pytest.MonkeyPatch, default: onnx.GraphProto | None, is_given: bool
) -> None:
    before = rich(default)
    if not is_given:
        del before.graph.node[0].attribute[:]
    defaults = default.node if default else []
    lists = [before.graph.node, defaults, *(function.node for function in before.functions)]
    now = sum(1 for nodes in lists for _ in iter_nodes(nodes))
    then = sum(1 for _ in iter_nodes(functions.inline_functions(before, 18).graph))
    monkeypatch.setattr(functions, "MAX_NODES", then - now)
    attach(before)
    monkeypatch.setattr(functions, "MAX_NODES", then - now - 1)
    with pytest.raises(
        ValueError, match=f"has {now} nodes and would have {then} with .* at most {then - now - 1} more"
    ):
        attach(before)


@pytest.mark.parametrize("name", ["attach", "gradient"])
def test_calls_may_be_a_hundred_deep(name: str) -> None:
    CHANGES[name](chain(100))


def nested(depth: int) -> onnx.ModelProto:
    """Branches in branches."""
    made = model([make("If", ["c"], ["y"])], [])
    node = made.graph.node[0]
    for level in range(depth):
        for name in ("then_branch", "else_branch"):
            inner = node.attribute.add(name=name, type=onnx.AttributeProto.GRAPH).g
            inner.output.add(name=f"{name}_{level}")
            has_more = level < depth - 1 and name == "then_branch"
            inner.node.append(
                make("If", ["c"], [f"{name}_{level}"]) if has_more else make("Neg", ["x"], [f"e_{level}"])
            )
        node = node.attribute[0].g.node[0]
    return made


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_subgraphs_may_be_as_deep_as_a_file_has_them(change: Callable[[onnx.ModelProto], onnx.ModelProto]) -> None:
    for depth in (31, 5000):
        with pytest.raises(ValueError, match="subgraphs are nested more than 30 deep"):
            change(nested(depth))
    assert onnx.ModelProto.FromString(attach(nested(30)).SerializeToString()).functions[0].name == "RoiAlign_16"


@pytest.mark.parametrize(
    ("opset", "opset_of_function", "found"), [(21, 17, 21), (11, 17, 18), (18, 20, 20), (13, 20, 20)]
)
def test_a_function_may_have_another_opset_than_the_model(opset: int, opset_of_function: int, found: int) -> None:
    axes = "" if opset_of_function < 18 else ", axis"
    attribute = "<axes = [0], keepdims = 0>" if opset_of_function < 18 else "<keepdims = 0>"
    before = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : {opset}, "f" : 1]> g (float[2, 3] x) => (float loss) {{
          y = f.Middle(x) clipped = Clip(y) loss = {
        "ReduceSum <axes = [0], keepdims = 0> (clipped)" if opset < 13 else "ReduceSum <keepdims = 0> (clipped)"
    } }}
        <domain: "f", opset_import: ["" : {opset_of_function}]> Middle (x) => (y)
        {{ axis = Constant <value_ints = [0]> () square = Mul(x, x) y = ReduceMean {attribute} (square{axes}) }}""")
    made = gradient(before, "loss", ["x"])
    assert [item.version for item in made.opset_import if item.domain == ""] == [found]
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    outputs = run(made, {"x": x})
    np.testing.assert_array_equal(outputs["x_grad"], x)
    np.testing.assert_array_equal(outputs["loss"], (x**2).mean(axis=0).sum())


def test_a_domain_that_a_function_alone_imports_is_imported_by_the_model() -> None:
    pool = make("RoiAlign_16", ["x", "r", "b"], ["y"], domain=DOMAIN)
    made = model([], [])
    made.functions.append(onnx.helper.make_function("f", "pool", ["x", "r", "b"], ["y"], [pool], OPSETS))
    made.graph.node[0].CopyFrom(make("pool", ["x", "rois", "batch_indices"], ["pooled"], domain="f"))
    del made.opset_import[2]
    found = gradient(made, "loss", ["x"])
    feeds = {"x": np.ones((1, 1, 4, 4), np.float32), "rois": np.array([[1, 1, 3, 3]], np.float32)}
    feeds |= {"batch_indices": np.zeros(1, np.int64), "c": np.array(True)}
    assert run(found, feeds)["x_grad"].sum() == pytest.approx(1)


def test_overloads_are_different_functions() -> None:
    made = [function("q", [make("Neg", ["x"], ["y"])], overload="1"), function("q", [make("Abs", ["x"], ["y"])])]
    found = gradient(model([call("q", y="t", overload="1"), call("q", "t")], made), "loss", ["x"])
    assert [node.op_type for node in found.graph.node][:2] == ["Neg", "Abs"]


def test_the_default_of_a_functions_attribute_counts() -> None:
    made = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21, "f" : 1]> g (float[4] x) => (float loss) {
          a = f.Leaky(x) b = f.Leaky <slope = 0.25> (x) c = f.Outer(x) y = Sum(a, b, c)
          loss = ReduceSum <keepdims = 0> (y)
        }
        <domain: "f", opset_import: ["" : 21, "f" : 1]> Outer <slope: float = 4.0> (x) => (y)
        { c = f.Leaky(x) d = f.Leaky <slope: float = @slope> (x) y = Add(c, d) }
        <domain: "f", opset_import: ["" : 21]> Leaky <slope: float = 0.5> (x) => (y)
        { y = LeakyRelu <alpha: float = @slope> (x) }""")
    before = made.SerializeToString()
    found = run(gradient(made, "loss", ["x"]), {"x": np.array([-1, 1, -2, 2], np.float32)})
    np.testing.assert_allclose(found["x_grad"], [0.5 + 0.25 + 0.5 + 4, 4] * 2)
    assert made.SerializeToString() == before


def heavy() -> onnx.ModelProto:
    weights = onnx.numpy_helper.from_array(np.zeros(2**18, np.float32))
    made = doubling(9)
    nodes = [make("Constant", [], ["w"], value=weights), make("Add", ["x", "w"], ["y"])]
    made.functions[0].CopyFrom(function("0", nodes))
    return made


def of_another_version() -> onnx.ModelProto:
    made = model([call("own")], [function("own", [make("Neg", ["x"], ["y"])])])
    made.functions[0].opset_import[0].CopyFrom(onnx.helper.make_opsetid("f", 2))
    return made


TWICE = [function("q", [make(name, ["x"], ["y"])], overload="1") for name in ("Neg", "Abs")]
TOO_MANY = model([make("own", ["x", "x"], ["y"], domain="f")], [function("own", [make("Neg", ["x"], ["y"])])])
REFUSED = [
    ("attach gradient", doubling(20), "has 44 nodes and would have 1,048,578 with its functions inlined: must be at"),
    ("attach gradient", doubling(90), r"would have more than 10\*\*27 with its functions inlined"),
    ("attach", heavy(), r"has 1,0..,... bytes and would have 53.,...,... with its"),
    ("attach gradient", chain(101), "calls and subgraphs are nested 101 deep from the graph on: must be at"),
    ("attach gradient", chain(500), "nested 101 deep from function 'f::101' on"),
    ("gradient", of_another_version(), "function 'f::own' imports version 2 of f: must be 1 as elsewhere"),
    ("convert", model([call("q", overload="1")], TWICE), "has two functions 'f::q::1': names must be unique"),
    ("gradient", TOO_MANY, "inlining the model's functions: .*cannot exceed number of formal parameters"),
]


@pytest.mark.parametrize(("names", "made", "says"), REFUSED)
def test_functions_that_cannot_be_inlined_are_refused(names: str, made: onnx.ModelProto, says: str) -> None:
    for name in names.split():
        with pytest.raises(ValueError, match=says):
            CHANGES[name](made)


def test_a_body_of_this_projects_operators_is_not_inlined() -> None:
    before = attach(model([call("0")], [function("0", [make("Neg", ["x"], ["y"])])]))
    assert [one.name for one in gradient(before, "loss", ["x"]).functions] == ["RoiAlign_16"]
