"""Find the element types of a model's tensors by its declarations and shape inference."""

from __future__ import annotations

import onnx
from onnx import helper

from onnx_models.onnx_tools import infer_shapes
from onnx_models.traversal import subgraphs


def element_types(model: onnx.ModelProto) -> dict[str, str]:
    """Return ONNX's names of the known element types of tensors in the main graph and its subgraphs, by tensor name.

    A tensor name with several types, in different subgraphs, is left out.

    Raises:
        ValueError: a node of this project's operators breaks a rule of its schema.
    """
    return {
        name: onnx.TensorProto.DataType.Name(kind).lower()
        for name, found in _types(infer_shapes(_without_weights(model)).graph).items()
        if len(found) == 1
        for kind in found
    }


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with inputs in place of the main graph's weights, which no type depends on."""
    graph = model.graph
    declared = {value.name for value in graph.input}
    weights = [
        helper.make_tensor_value_info(weight.name, weight.data_type, list(weight.dims))
        for weight in graph.initializer
        if weight.name not in declared
    ]
    inputs = [*graph.input, *weights]
    bare = helper.make_graph(graph.node, "types", inputs, graph.output, value_info=graph.value_info)
    return helper.make_model(
        bare, opset_imports=model.opset_import, functions=model.functions, ir_version=model.ir_version
    )


def _types(graph: onnx.GraphProto) -> dict[str, set[int]]:
    """Return the known element types, by name."""
    found: dict[str, set[int]] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type.elem_type
        if kind != onnx.TensorProto.UNDEFINED:
            found.setdefault(value.name, set()).add(kind)
    for weight in graph.initializer:
        found.setdefault(weight.name, set()).add(weight.data_type)
    for inner in subgraphs(graph.node):
        for name, kinds in _types(inner).items():
            found.setdefault(name, set()).update(kinds)
    return found
