"""Models beyond 2 GiB, which protobuf cannot serialize, so that ONNX's tools refuse them and messages cannot be copied."""

from __future__ import annotations

import onnx
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

_MIN_BYTES = 4096
"""The data of larger initializers is left out of the models that ONNX's tools get."""


def copy_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """Copy a model of any size."""
    made = onnx.ModelProto()
    try:
        made.CopyFrom(model)
    except EncodeError:
        return restore_weights(strip_weights(model), model)
    return made


def restore_weights(made: onnx.ModelProto, model: onnx.ModelProto) -> onnx.ModelProto:
    """Put the data of the initializers of `model` into `made`, which came from `strip_weights`, and return it."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for tensor in made.graph.initializer:
        if tensor.name in tensors:
            tensor.CopyFrom(tensors[tensor.name])
    return made


def strip_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Copy a model without the data of large initializers, which are marked as external."""
    made = onnx.ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            _copy(made, field, value)
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            _copy(made.graph, field, value)
    for tensor in model.graph.initializer:
        kept = made.graph.initializer.add(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
        if tensor.ByteSize() <= _MIN_BYTES:
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
