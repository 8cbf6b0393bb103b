"""Models beyond 2 GiB: protobuf serializes none, and so ONNX's tools take none and messages of that size are not copied."""

from __future__ import annotations

import onnx
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

_LEAST_BYTES = 4096
"""Initializers of more bytes are left out of what is given to ONNX's tools."""


def copy_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model of any size."""
    made = onnx.ModelProto()
    try:
        made.CopyFrom(model)
    except EncodeError:
        return restore_weights(strip_weights(model), model)
    return made


def restore_weights(made: onnx.ModelProto, model: onnx.ModelProto) -> onnx.ModelProto:
    """What was made of a prepared model, with the data of the initializers that `model` has."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for tensor in made.graph.initializer:
        if tensor.name in tensors:
            tensor.CopyFrom(tensors[tensor.name])
    return made


def strip_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy without the data of large initializers."""
    made = onnx.ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            _copy(made, field, value)
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            _copy(made.graph, field, value)
    for tensor in model.graph.initializer:
        kept = made.graph.initializer.add(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
        if tensor.ByteSize() <= _LEAST_BYTES:
            kept.CopyFrom(tensor)
        else:
            kept.data_location = onnx.TensorProto.EXTERNAL
            kept.external_data.add(key="location", value=tensor.name)
    return made


def _copy(made: onnx.ModelProto | onnx.GraphProto, field: object, value: object) -> None:
    name = field.name  # type: ignore[attr-defined]
    if hasattr(value, "extend"):
        getattr(made, name).extend(value)
    elif hasattr(value, "CopyFrom"):
        getattr(made, name).CopyFrom(value)
    else:
        setattr(made, name, value)
