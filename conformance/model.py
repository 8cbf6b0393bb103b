"""A case as an ONNX model of one node."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import onnx
from onnx import helper

from conformance.case import Array, Case, element_type_of
from ortops.spec import DOMAIN, DOMAIN_VERSION, AttributeValue

Dialect = Literal["standard", "ortops"]

IR_VERSION = 10
"""The first that knows every element type here; ONNX Runtime 1.20 reads none later."""


def build(case: Case, dialect: Dialect) -> onnx.ModelProto:
    """The model of a case: its node, the present inputs and the wanted outputs, no attribute that the case leaves out.

    An empty list is left out, too: it says what no list says, and not every runtime reads one.

    Where an error is due the inputs have no shapes, so that the operator has to refuse them and not the graph's checks.

    Args:
        case: any case.
        dialect: standard for ONNX's own node where there is one; ortops for the custom operator.
    """
    operator = case.definition
    is_standard = dialect == "standard" and operator.standard is not None
    inputs = [tensor.name if tensor.name in case.inputs else "" for tensor in operator.inputs]
    while inputs and not inputs[-1]:
        inputs.pop()
    node = helper.make_node(
        operator.standard[0] if is_standard and operator.standard else operator.name,
        inputs,
        [tensor.name if tensor.name in case.outputs else "" for tensor in operator.outputs],
        domain="" if is_standard else DOMAIN,
    )
    kinds = {attribute.name: attribute.type for attribute in operator.attributes}
    for name, value in case.attributes.items():
        if not isinstance(value, tuple) or value:
            node.attribute.append(_attribute(name, kinds[name], value))
    graph = helper.make_graph(
        [node],
        "case",
        [_value_info(name, case.inputs[name], has_shape=not case.expects_error) for name in inputs if name],
        [helper.make_tensor_value_info(name, _tensor_type(case.dtype), None) for name in case.outputs],
    )
    opsets = [helper.make_opsetid("", case.version if is_standard else _ANY_OPSET)]
    if not is_standard:
        opsets.append(helper.make_opsetid(DOMAIN, DOMAIN_VERSION))
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="conformance")


_ANY_OPSET = 21
"""The opset of a model that has no node of ONNX's own."""


def _attribute(name: str, kind: str, value: AttributeValue) -> onnx.AttributeProto:
    # A number that JSON has without a point is an int; what is wrong with a value is left in it.
    value = float(value) if kind == "FLOAT" else tuple(map(float, value)) if kind == "FLOATS" else value
    return helper.make_attribute(name, value, attr_type=onnx.AttributeProto.AttributeType.Value(kind))


def _value_info(name: str, array: Array, *, has_shape: bool) -> onnx.ValueInfoProto:
    shape = list(array.shape) if has_shape else None
    return helper.make_tensor_value_info(name, _tensor_type(array.dtype), shape)


def _tensor_type(dtype: np.dtype[Any]) -> int:
    return int(onnx.TensorProto.DataType.Value(element_type_of(dtype).upper()))
