"""Models with all floating-point tensors in one type, so that those of float can be computed in double."""

from __future__ import annotations

import copy
from typing import Any, Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnx_models.gradient.parameters import constant_tensor
from onnx_models.gradient.rules.registry import REAL
from onnx_models.tools.protos import iter_graphs, normalize_domain, onnx_opset

Array = np.ndarray[Any, Any]
Kind = Literal["double", "float"]
"""The element types in which derivatives are compared."""

DTYPES: dict[Kind, type] = {"double": np.float64, "float": np.float32}

_NUMBERS: dict[Kind, int] = {"double": TensorProto.DOUBLE, "float": TensorProto.FLOAT}

_TYPE_ATTRIBUTES = {"to", "dtype", "stash_type", "output_dtype", "output_datatype", "softmax_precision"}
"""Attributes of ONNX's operators whose value is the number of an element type."""

_NARROW = {"tensor(float)", "tensor(float16)", "tensor(bfloat16)"}


def retyped(model: onnx.ModelProto, kind: Kind) -> onnx.ModelProto:
    """A copy of a model with all floating-point tensors in one type, including constants and results of casts.

    An input that ONNX defines for narrower types only, such as the scales of Resize, is cast to float.
    """
    made, number = copy.deepcopy(model), _NUMBERS[kind]
    for part in reversed(list(iter_graphs(made))):  # the inner ones first, which are copied with their nodes
        ends = (*part.input, *part.output) if isinstance(part, onnx.GraphProto) else ()
        for value in (*ends, *part.value_info):
            if value.type.tensor_type.elem_type in REAL:
                value.type.tensor_type.elem_type = number
        if isinstance(part, onnx.GraphProto):
            for tensor in part.initializer:
                _retype_tensor(tensor, number)
        nodes: list[onnx.NodeProto] = []
        for node in part.node:
            _retype_attributes(node, number)
            nodes += [*_casts(node, onnx_opset(model) or 1), node] if kind == "double" else [node]
        copies = [copy.deepcopy(node) for node in nodes]
        del part.node[:]
        part.node.extend(copies)
    return made


def _retype_attributes(node: onnx.NodeProto, number: int) -> None:
    if node.op_type == "ConstantOfShape" and not node.attribute:
        node.attribute.append(helper.make_attribute("value", helper.make_tensor("value", number, [1], [0.0])))
    if (tensor := constant_tensor(node)) is not None:
        node.attribute[0].CopyFrom(helper.make_attribute("value", tensor))
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.TENSOR:
            _retype_tensor(attribute.t, number)
        elif attribute.name in _TYPE_ATTRIBUTES and attribute.i in REAL:
            attribute.i = number


def _retype_tensor(tensor: onnx.TensorProto, number: int) -> None:
    if tensor.data_type in REAL:
        values = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(number))
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def _casts(node: onnx.NodeProto, opset: int) -> list[onnx.NodeProto]:
    """Casts to float for the inputs of a node that ONNX does not define for double."""
    if normalize_domain(node.domain) or not onnx.defs.has(node.op_type, opset):
        return []
    casts = []
    formal = onnx.defs.get_schema(node.op_type, opset).inputs
    for i, (name, one) in enumerate(zip(node.input, formal, strict=False)):
        if name and "tensor(float)" in one.types and one.types <= _NARROW:
            node.input[i] = f"input {i} of {node.output[0]} in float"
            casts.append(helper.make_node("Cast", [name], [node.input[i]], to=TensorProto.FLOAT))
    return casts
