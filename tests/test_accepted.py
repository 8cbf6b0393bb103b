"""What every function that takes a model does with negative lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest

import onnx_models
from onnx_models.gradient import report
from onnx_models.tools.protos import accepted

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
