# SPDX-License-Identifier: MIT
"""No model ends the process: damaged ones, those that ended it or hung once, and negative lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnx_models
from model_fuzz import HEADER, NUMBERS
from onnx_models.gradient import report
from onnx_models.tools.protos import accepted
from processes import python


def fuzz(first: int, count: int, *more: str) -> None:
    said = python(Path(__file__).with_name("model_fuzz.py"), str(first), str(count), *more)
    assert said.splitlines()[-1] == "all refused or done"


def test_damaged_models_are_refused() -> None:
    fuzz(0, 40)


@pytest.mark.weekly
def test_damaged_models_of_onnx_tests_are_refused() -> None:
    fuzz(1000, 150, "nodes")


@pytest.mark.parametrize(
    "body",
    [
        "p = Constant <value = int64[8] {0, 0, -9, 0, 0, 0, 0, 0}> () a = Pad (x, p)",
        "w = Constant <value = float[1, 2, 1, 1] {1, 2}> () a = Conv <dilations = [100, 1], kernel_shape = [9, 1]> (x, w)",
        "a = MaxPool <kernel_shape = [90, 1]> (x)",
        "w = Constant <value = float[2, 1, 1, 1] {1, 2}> () a = ConvTranspose <pads = [9, 0, 9, 0]> (x, w)",
        "p = Constant <value = float[4] {1, 1, -2, 1}> () a = Resize (x, , p)",
        "p = Constant <value = int64[2] {-3, 9}> () a, b = Split <axis = 2> (x, p)",
    ],
)
@pytest.mark.parametrize(
    "ending",
    [
        "y = Slice (a, s, e, ax)",
        "y = If(c) <then_branch = t () => (float q) {q = Slice(a, s, e, ax)}, else_branch = u () => (float r) {r = Neg(a)}>",
        "y = own.part (a, s, e, ax)",
    ],
)
def test_a_slice_of_a_negative_length_is_refused(body: str, ending: str) -> None:
    text = f"""{HEADER} g (float[1, 2, 6, 6] x, bool c) => (float[] y) {{ {NUMBERS} {body} {ending} }}
        <opset_import: ["" : 18], domain: "own"> part (t, s, e, a) => (d) {{ d = Slice (t, s, e, a) }}"""
    with pytest.raises(
        ValueError, match=r"\(Slice\) reads a tensor of shape \[1, \d, -\d+, .\]: must have lengths of 0 or"
    ):
        onnx_models.vjp(onnx.parser.parse_model(text), ["y"], ["x"])


def test_long_vectors_are_quick_and_keep_their_lengths() -> None:
    text = f"""{HEADER} g (float[1099511627776] x, float[1099511627776] w) => (float loss) {{
        both = Add (x, w)
        size = Size (both)
        number = CastLike (size, both)
        part = Div (both, number)
        loss = ReduceSum <keepdims = 0> (part)
    }}"""
    made = onnx_models.gradient(onnx.parser.parse_model(text), "loss", ["w"])
    assert [length.dim_value for length in made.graph.output[1].type.tensor_type.shape.dim] == [2**40]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda made: made.graph.initializer[0].dims.__setitem__(0, -2),
            r"tensor 'w' has the shape \[-2, 3\]: must have len",
        ),
        (
            lambda made: setattr(made.graph.initializer[0], "data_type", 99),
            "tensor 'w' has the element type 99: must be one",
        ),
        (
            lambda made: made.graph.node[1].ClearField("attribute"),
            r"node of 'y' \(If\) has no then_branch: must have this",
        ),
        (
            lambda made: made.graph.node[0].attribute.add(name="axis", i=-(2**40)),
            "'a'.* has axis = -1099511627776: must be",
        ),
        (
            lambda made: setattr(made.graph.input[0].type.tensor_type, "elem_type", 99),
            "declares the element type 99: must",
        ),
        *(
            (
                lambda made, kind=kind: setattr(made.graph.node[1].attribute[0], "type", kind),
                rf"node of 'y' \(If\) has then_branch as an attribute of type {name}: must be a GRAPH",
            )
            for kind, name in ((0, "UNDEFINED"), (6, "FLOATS"), (10, "GRAPHS"))
        ),
    ],
)
def test_what_no_tool_of_onnx_should_see(change: object, message: str) -> None:
    text = f"""{HEADER} g (float[N, 3] x, bool c) => (float loss) <float[2, 3] w = {{1, 2, 3, 4, 5, 6}}> {{
        a = Add (x, x)
        y = If (c) <then_branch = t () => (float q) {{ q = Neg (a) }}, else_branch = u () => (float r) {{ r = Exp (a) }}>
        loss = ReduceSum <keepdims = 0> (y)
    }}"""
    made = onnx.parser.parse_model(text)
    change(made)  # type: ignore[operator]
    for call in (
        onnx_models.convert,
        onnx_models.portable.attach,
        lambda one: onnx_models.gradient(one, "loss", ["x"]),
    ):
        with pytest.raises(ValueError, match=message):
            call(made)


def test_a_loop_whose_body_is_no_graph_is_refused() -> None:
    text = f"""{HEADER} g (float[3] x, int64 n, bool c) => (float[3] y) {{
        y = Loop (n, c, x) <body = b (int64 i, bool go, float[3] s) => (bool on, float[3] t) {{
            on = Identity (go) t = Exp (s) }}> }}"""
    made = onnx.parser.parse_model(text)
    made.graph.node[0].attribute[0].type = onnx.AttributeProto.GRAPHS
    with pytest.raises(ValueError, match=r"\(Loop\) has body as an attribute of type GRAPHS: must be a GRAPH"):
        onnx_models.vjp(made, ["y"], ["x"])


def test_an_axis_beyond_the_rank_is_refused() -> None:
    text = f"""{HEADER} g (float[N, 3] x) => (float loss) {{
        {NUMBERS}
        five = Constant <value_ints = [5]> ()
        y = Slice (x, s, e, five)
        loss = ReduceSum <keepdims = 0> (y)
    }}"""
    with pytest.raises(ValueError, match=r"node of 'y' \(Slice\)"):
        onnx_models.gradient(onnx.parser.parse_model(text), "loss", ["x"])


TEXT = """<ir_version: 10, opset_import: ["" : 18, "own" : 1]>
g (float[N, 3] x, int64 n, bool c) => (float[N, 3] y, float loss) <float[3] w = {1, 2, 3}, float[N, 3] between> {
    between = own.twice(x)
    parts = Slice(between, from, to)
    y = Loop(n, c, parts) <body = b (int64 i, bool go, float[N, 3] s) => (bool again, float[N, 3] more) {
        again = Identity(go)
        more = Mul(s, w)
    }>
    squares = Mul(y, y)
    loss = ReduceMean <keepdims = 0> (squares)
}
<opset_import: ["" : 18], domain: "own"> twice (t) => (d) { d = Add(t, t) }"""


def declared(length: int | None) -> onnx.ModelProto:
    """A model whose first axes all have a length, or no length for None: of inputs, outputs, inside and in functions."""
    made = onnx.parser.parse_model(TEXT)
    ends = [onnx.numpy_helper.from_array(np.array([n]), name) for n, name in ((0, "from"), (9, "to"))]
    made.graph.initializer.extend(ends)
    of_function = onnx.helper.make_tensor_value_info("d", onnx.TensorProto.FLOAT, ["N", 3])
    made.functions[0].value_info.append(of_function)
    for dim in first_axes(made):
        dim.ClearField("dim_param")
        if length is not None:
            dim.dim_value = length
    return made


def first_axes(model: onnx.ModelProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    body = next(node for node in model.graph.node if node.op_type == "Loop").attribute[0].g
    values = [model.graph.input[0], model.graph.output[0], *model.graph.value_info, body.input[2], body.output[1]]
    values += model.functions[0].value_info
    assert len(values) >= 6
    return (value.type.tensor_type.shape.dim[0] for value in values)


def with_step(model: onnx.ModelProto) -> onnx.ModelProto:
    return onnx_models.with_optimizer(onnx_models.gradient(model, "loss", ["w"]), "sgd")


ENTRIES: dict[str, Callable[[onnx.ModelProto], Any]] = {
    "convert": onnx_models.convert,
    "attach": onnx_models.portable.attach,
    "with_loss": lambda model: onnx_models.with_loss(model, "mean_squared_error", "y", name="error"),
    "gradient": lambda model: onnx_models.gradient(model, "loss", ["x", "w"]),
    "report": lambda model: report(model, "loss", ["x", "w"]),
    "vjp": lambda model: onnx_models.vjp(model, ["y"], ["x"]),
    "jvp": lambda model: onnx_models.jvp(model, ["y"], ["x"]),
    "with_optimizer": with_step,
}


@pytest.mark.parametrize("name", ENTRIES)
def test_a_negative_length_is_unknown(name: str) -> None:
    given = declared(-1)
    before = given.SerializeToString(deterministic=True)
    made, expected = (ENTRIES[name](one) for one in (given, declared(None)))
    assert made == expected
    assert given.SerializeToString(deterministic=True) == before


def test_lengths_in_types_of_attributes_and_of_lists() -> None:
    kind = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [-7, 2])
    nested = onnx.helper.make_optional_type_proto(onnx.helper.make_sequence_type_proto(kind))
    node = onnx.helper.make_node("Optional", [], ["o"], type=nested)
    graph = onnx.helper.make_graph([node], "g", [], [onnx.ValueInfoProto(name="o", type=nested)])
    made = accepted(onnx.helper.make_model(graph))
    for one in (made.graph.output[0].type, made.graph.node[0].attribute[0].tp):
        dims = one.optional_type.elem_type.sequence_type.elem_type.tensor_type.shape.dim
        assert [dim.WhichOneof("value") for dim in dims] == [None, "dim_value"]
