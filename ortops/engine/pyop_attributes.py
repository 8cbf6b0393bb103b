"""Rewrites models for onnxruntime-extensions' Python operators, which need every attribute and cannot read lists."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from ortops.spec import DOMAIN, Attribute, AttributeValue, Operator

Model = str | bytes | os.PathLike[str]

JSON = "attributes"
"""The attribute of a user's operator that holds all others as JSON."""


def from_json(text: str) -> dict[str, AttributeValue]:
    """The attributes of a node of a user's operator, from JSON."""
    values: dict[str, AttributeValue] = json.loads(text)
    return values


def to_text(values: Iterable[float]) -> str:
    """A list's values as a string, separated by commas."""
    return ",".join(map(repr, values))


def from_text(attribute: Attribute, text: str) -> Sequence[float]:
    """The list that `to_text` wrote.

    Raises:
        TypeError: the string is not a list of numbers.
    """
    number = int if attribute.type == "INTS" else float
    try:
        return [number(part) for part in text.split(",")] if text else []
    except ValueError as error:
        raise TypeError(f"{attribute.name} = {text!r}: must be numbers with commas between ({error})") from error


def with_readable_attributes(model: Model, operators: Iterable[Operator]) -> Model:
    """The model as bytes, with the operators' absent attributes added and their lists written as strings.

    If there is nothing to rewrite, or onnx cannot load the model, returns the argument unchanged.

    Raises:
        TypeError: a node's attribute is not a list although it must be.
        ValueError: a node of a user's operator leaves out an input or an output.
    """
    known = {(operator.domain, operator.name): operator for operator in operators}
    try:
        is_bytes = isinstance(model, bytes)
        loaded = onnx.load_from_string(model) if is_bytes else onnx.load(model, load_external_data=False)  # type: ignore[arg-type]
    except (OSError, ValueError, DecodeError):  # ONNX Runtime gives a better error
        return model
    is_changed = False
    for nodes in (loaded.graph.node, *(function.node for function in loaded.functions)):
        for node in _nodes(nodes):
            operator = known.get((node.domain, node.op_type))
            if operator is None:
                continue
            is_changed |= _rewrite(node, operator) if node.domain == DOMAIN else _rewrite_as_json(node, operator)
    return loaded.SerializeToString() if is_changed else model


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes(graph.node)


def _rewrite_as_json(node: onnx.NodeProto, operator: Operator) -> bool:
    """Write all attributes of a node of a user's operator as a single JSON attribute."""
    for tensors, names in ((operator.inputs, node.input), (operator.outputs, node.output)):
        for i, tensor in enumerate(tensors):
            if i >= len(names) or not names[i]:
                raise ValueError(f"{operator.label} leaves out {tensor.name}: the pyop engine (Windows) needs it")
    values: dict[str, object] = {}
    types = {attribute.name: attribute.type for attribute in operator.attributes}
    for attribute in node.attribute:
        kind = onnx.AttributeProto.AttributeType.Name(attribute.type)
        if kind != types.get(attribute.name, kind):
            raise TypeError(f"{operator.label}: {attribute.name} has type {kind}: must be {types[attribute.name]}")
        value = onnx.helper.get_attribute_value(attribute)
        values[attribute.name] = _as_text(list(value) if kind.endswith("S") else value)
    del node.attribute[:]
    node.attribute.append(onnx.helper.make_attribute(JSON, json.dumps(values)))
    return True


def _as_text(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_text(one) for one in value]
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else value


def _rewrite(node: onnx.NodeProto, operator: Operator) -> bool:
    """Add a node's absent attributes and write its lists as strings; return whether anything changed."""
    written = {attribute.name: attribute for attribute in node.attribute}
    missing = [a for a in operator.attributes if a.name not in written]
    lists = [a for a in operator.attributes if a.is_list and a.name in written]
    for attribute in lists:
        proto = written[attribute.name]
        kind = onnx.AttributeProto.AttributeType.Name(proto.type)
        if kind != attribute.type:
            raise TypeError(f"{node.op_type}: {attribute.name} has type {kind}: must be {attribute.type}")
        values = onnx.helper.get_attribute_value(proto)
        proto.CopyFrom(onnx.helper.make_attribute(proto.name, to_text(values)))
    node.attribute.extend(onnx.helper.make_attribute(a.name, _plain(a.default)) for a in missing)
    return bool(missing or lists)


def _plain(value: AttributeValue) -> Any:
    return to_text(value) if isinstance(value, tuple) else value
