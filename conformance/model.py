# SPDX-License-Identifier: MIT OR Apache-2.0
"""A case as an ONNX model of one node."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import onnx
from onnx import helper, numpy_helper

from conformance.case import Array, Case, element_type_of
from ortops.shapes import output_shapes
from ortops.spec import DOMAIN, DOMAIN_VERSION, AttributeValue

Dialect = Literal["standard", "ortops"]

IR_VERSION = 10
"""The first version with all element types of the suite, and the last that ONNX Runtime 1.20 reads."""

_ANY_OPSET = 21
"""The opset of a model with only custom operators."""


def build(case: Case, dialect: Dialect) -> onnx.ModelProto:
    """The model of a case, valid for onnx's checker: one node, the case's inputs and its outputs.

    The node has only the case's attributes, and no empty lists: an empty list means the same as none, and not every runtime
    reads it. Every tensor has its type and shape. The axes of `Case.named_axes` have symbolic lengths. If the case expects
    an error, so do all axes of the outputs, so that the operator must refuse it and not the graph.

    Args:
        case: any case.
        dialect: standard for ONNX's own node, if one has these attributes; ortops for the custom operator.
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
        [_value_info(case, name, *case.types[name]) for name in inputs if name and name not in case.initializers],
        [_value_info(case, name, case.dtype, shape) for name, shape in _output_shapes(case).items()],
        [numpy_helper.from_array(case.inputs[name], name) for name in inputs if name in case.initializers],
    )
    opsets = [helper.make_opsetid("", case.version if is_standard else _ANY_OPSET)]
    if not is_standard:
        opsets.append(helper.make_opsetid(DOMAIN, DOMAIN_VERSION))
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="conformance")


def _attribute(name: str, kind: str, value: AttributeValue) -> onnx.AttributeProto:
    # JSON reads a float without a decimal point as an int. Wrong values stay as they are.
    value = float(value) if kind == "FLOAT" else tuple(map(float, value)) if kind == "FLOATS" else value
    return helper.make_attribute(name, value, attr_type=onnx.AttributeProto.AttributeType.Value(kind))


def _output_shapes(case: Case) -> dict[str, tuple[int, ...]]:
    """The shapes of the outputs. For a case that expects an error, its twin's, or zeros of the right rank without a twin."""
    operator, right = case.definition, case.twin or case
    shapes = {name: tensor.shape for name, tensor in right.types.items()}
    values = {
        t.name: right.inputs[t.name].tolist() for t in operator.inputs if t.element_axes and t.name in right.inputs
    }
    try:
        lengths = output_shapes(operator, shapes, values, operator.check_attributes(right.attributes))
    except (TypeError, ValueError):
        if case.expects_error is None:
            raise
        lengths = [(0,) * len(tensor.shape) for tensor in operator.outputs]
    return {t.name: shape for t, shape in zip(operator.outputs, lengths, strict=True) if t.name in case.outputs}


def _value_info(case: Case, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> onnx.ValueInfoProto:
    is_open = case.expects_error is not None and name in case.outputs
    lengths: list[int | str] = [
        f"{name}_{axis}" if is_open or (name, axis) in case.named_axes else length for axis, length in enumerate(shape)
    ]
    return helper.make_tensor_value_info(name, tensor_type(dtype), lengths)


def with_named_axes(case: Case) -> Case:
    """The case with symbolic lengths for all axes that attributes do not fix: calls of a session may differ in them."""
    fixed = {attribute.name for attribute in case.definition.attributes}
    shapes = {**{name: tensor.shape for name, tensor in case.types.items()}, **_output_shapes(case)}
    tensors = [t for t in (*case.definition.inputs, *case.definition.outputs) if t.name in shapes]
    named = {
        (tensor.name, i)
        for tensor in tensors
        for i, axis in enumerate(tensor.axes(len(shapes[tensor.name])))
        if isinstance(axis, str) and axis not in fixed
    }
    return replace(case, named_axes=frozenset(named))


def tensor_type(dtype: np.dtype[Any]) -> int:
    """ONNX's number of an element type."""
    return int(onnx.TensorProto.DataType.Value(element_type_of(dtype).upper()))


def feeds(case: Case, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs of a call, without the initializers of the case's model."""
    return {name: array for name, array in inputs.items() if name not in case.initializers}


def attributes_of(case: Case) -> dict[str, AttributeValue]:
    """All attributes as a node stores them, and those whose value the opset fixes."""
    given = {a.name: _as_stored(a.type, case.attributes.get(a.name, a.default)) for a in case.definition.attributes}
    return {**case.definition.constants, **given}


def _as_stored(kind: str, value: AttributeValue) -> AttributeValue:
    with np.errstate(over="ignore"):
        if kind == "FLOAT":
            return float(np.float32(value))
        return tuple(float(np.float32(number)) for number in value) if kind == "FLOATS" else value


def described_node(case: Case, node: onnx.NodeProto) -> dict[str, Any]:
    """A model's node as JSON has it: `op_type`, `domain`, `version` and all attributes, infinities and NaN as strings."""
    attributes = {name: _as_json(value) for name, value in attributes_of(case).items()}
    return {"op_type": node.op_type, "domain": node.domain, "version": case.version, "attributes": attributes}


def _as_json(value: object) -> object:
    if isinstance(value, tuple):
        return [_as_json(number) for number in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
