"""What every function that takes a model does first: it makes unknown lengths unknown, and refuses what crashes ONNX."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from onnx_models.large_models import copy_model
from onnx_models.traversal import attribute_graphs, walk_graphs, with_subgraphs


def accepted(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model itself, or a copy without negative lengths if it declares any.

    PaddlePaddle's exporter declares an axis of unknown length as -1. ONNX Runtime takes a negative length for an unknown
    one, but ONNX's shape inference computes with it, and may end the process.

    Raises:
        TypeError: `model` is not a ModelProto.
    """
    if not isinstance(model, onnx.ModelProto):
        raise TypeError(f"model = {type(model).__name__}: must be an onnx.ModelProto")
    if all(length.dim_value >= 0 for length in _declared_lengths(model)):
        return model
    made = copy_model(model)
    for length in _declared_lengths(made):
        if length.dim_value < 0:
            length.ClearField("dim_value")
    return made


def _declared_lengths(model: onnx.ModelProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    """Yield the lengths that inputs, outputs and other tensors are declared with, and those of types in attributes."""
    for part in _graphs(model):
        values = list(part.value_info)
        if isinstance(part, onnx.GraphProto):
            values += [*part.input, *part.output]
        for value in values:
            yield from _lengths(value.type)
        for node in part.node:
            for attribute in node.attribute:
                for kind in (attribute.tp, *attribute.type_protos):
                    yield from _lengths(kind)


def _graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto | onnx.FunctionProto]:
    """Yield all graphs of a model: its own, its functions, those of the defaults of their attributes, and all subgraphs."""
    for scope in (model, *model.functions):
        yield from walk_graphs(scope)
    for function in model.functions:
        for default in function.attribute_proto:
            for graph in attribute_graphs(default):
                yield from with_subgraphs(graph)


def _lengths(kind: onnx.TypeProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        yield from getattr(kind, which).shape.dim
    elif which in ("sequence_type", "optional_type"):
        yield from _lengths(getattr(kind, which).elem_type)
    elif which == "map_type":
        yield from _lengths(kind.map_type.value_type)
