"""Rewrites models for Python operators of onnxruntime-extensions, which need every attribute and cannot read lists."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from ortops.operators import BY_NAME
from ortops.spec import DOMAIN, Attribute, AttributeValue

Model = str | bytes | os.PathLike[str]


def to_text(values: Iterable[float]) -> str:
    """The values of a list as a string, separated by commas."""
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


def with_readable_attributes(model: Model) -> Model:
    """The model as bytes, with absent attributes of our operators added and lists written as strings.

    It is the argument itself if there is nothing to rewrite, or if onnx cannot load it.

    Raises:
        TypeError: a node has an attribute of another type where a list is expected.
    """
    try:
        is_bytes = isinstance(model, bytes)
        loaded = onnx.load_from_string(model) if is_bytes else onnx.load(model, load_external_data=False)  # type: ignore[arg-type]
    except (OSError, ValueError, DecodeError):  # ONNX Runtime gives the better error for it
        return model
    is_changed = [_rewrite(node) for node in _nodes(loaded.graph.node)]
    is_changed += [_rewrite(node) for function in loaded.functions for node in _nodes(function.node)]
    return loaded.SerializeToString() if any(is_changed) else model


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes(graph.node)


def _rewrite(node: onnx.NodeProto) -> bool:
    """Add a node's absent attributes and write its lists as strings; return whether there were any."""
    operator = BY_NAME.get(node.op_type) if node.domain == DOMAIN else None
    written = {attribute.name: attribute for attribute in node.attribute}
    missing = [a for a in operator.attributes if a.name not in written] if operator else []
    lists = [a for a in operator.attributes if a.is_list and a.name in written] if operator else []
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
