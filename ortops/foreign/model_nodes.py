# SPDX-License-Identifier: MIT
"""Finds the nodes in an ONNX model that a session's operators compute, without parsing the whole model.

Protobuf writes the length before each part of a model. So this module skips weights without even reading their pages from
the file. It parses only nodes and functions whose bytes contain what a node of an operator has.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from ortops.foreign.near_names import meant
from ortops.foreign.ort_format import is_ort_format, read_nodes
from ortops.foreign.protos import normalize_domain
from ortops.foreign.standard import STANDARD_NAMES, implementation, onnx_definition
from ortops.foreign.third_party import THIRD_PARTY_DEFINITIONS
from ortops.operators import OPERATORS
from ortops.spec import DOMAIN, Operator

_PARTS = (b"RoiAlign", b"RoIAlign", b"MaxRoiPool", b"grid_sampler", b"DeformConv", b"caleDeformableAtt", b"GridSample")
"""The name of each operator whose nodes a session runs or changes, of ONNX or of another project, contains one of these."""

_GRAPH, _OPSET_IMPORT, _FUNCTIONS = 7, 8, 25
"""Fields of ModelProto."""

_NODE, _VALUE_INFOS = 1, (11, 12, 13)
"""Fields of GraphProto: nodes; inputs, outputs and the types of other tensors."""

_OP_TYPE, _DOMAIN = 4, 7
"""Fields of NodeProto."""

_FUNCTION_NAME = 1
"""The field of FunctionProto."""

_LARGE = 1 << 16
"""A node with at least this many bytes may be a constant with weights, which is not searched."""

_Bytes = Any
"""Bytes or a mapped file."""


class ServedNodes(NamedTuple):
    """The nodes of a model that a session's operators compute.

    definitions: those of ONNX's and other projects' operators, for ONNX's at the opset that the model imports.
    nodes: the name of each node, or of its first output if it has no name, and the name of its operator.
    seen: the names of the operators of the graph's nodes that are among `_PARTS`, such as GridSample.
    """

    definitions: list[Operator]
    nodes: list[tuple[str, str]]
    seen: set[str]


def served_nodes(
    model: object, users: Iterable[Operator] = (), *, domain: str = DOMAIN, serves: bool = True
) -> ServedNodes:
    """Check the names of attributes in a model, and find the nodes that a session's operators compute.

    Args:
        model: the model as bytes or the path of its file, as for a session; also in ONNX Runtime's own format.
        users: the operators of users that the session has.
        domain: the domain of this project's operators.
        serves: whether the session runs nodes of ONNX and other projects itself; if not, none is checked or found.

    Returns:
        The nodes. Nothing is found if the argument is not a model; ONNX Runtime then raises the error.

    Raises:
        ValueError: a function in the model imports an opset at which an operator's attributes differ from the model's opset.
        TypeError: a node has an attribute that its operator lacks, which a session would ignore.
    """
    known = {(domain, operator.name): operator for operator in OPERATORS}
    known |= {(operator.domain, operator.name): operator for operator in users}
    names = [_short_field(field, operator.name) for operator in users for field in (_OP_TYPE, _FUNCTION_NAME)]
    parts = [_short_field(_DOMAIN, domain), *names, *(_PARTS if serves else ())]
    with _content(model) as data:
        if is_ort_format(data):
            return _served([("", *read_nodes(data))], set(), known, serves=serves)
        try:
            searched = _SearchedModel(data, parts)
            scopes = searched.scopes()
        except (IndexError, ValueError, DecodeError):
            return ServedNodes([], [], set())
        return _served(scopes, searched.functions, known, serves=serves)


def identity_of(node: onnx.NodeProto) -> tuple[str, str]:
    """The name of a node, or of its first output if it has no name, and the name of its operator."""
    return node.name or next(filter(None, node.output), ""), node.op_type


def parsed(model: object) -> onnx.ModelProto | None:
    """A model, as for `served_nodes`, without its external data; None if the argument is not a model."""
    proto = onnx.ModelProto()
    with _content(model) as data, contextlib.suppress(DecodeError):
        return proto if proto.ParseFromString(data[:]) and proto.HasField("graph") else None
    return None


def nodes_of(model: object, name: str) -> list[onnx.NodeProto]:
    """The nodes of an operator in a model, also in subgraphs and functions; none if the argument is not a model.

    Args:
        model: as for `served_nodes`.
        name: the operator's name, in any domain.
    """
    with _content(model) as data:
        try:
            scopes = _SearchedModel(data, [_short_field(_OP_TYPE, name)]).scopes()
        except (IndexError, ValueError, DecodeError):
            return []
        return [node for _, _, nodes in scopes for node in _all(nodes) if node.op_type == name]


def declared_types(model: object) -> dict[str, str]:
    """The element types, such as "float", that a model's graph declares of its tensors, by name."""
    with _content(model) as data:
        try:
            graphs = [span for field, *span in _fields(data, 0, len(data)) if field == _GRAPH]
            fields = [field for span in graphs for field in _fields(data, *span)]
            values = [onnx.ValueInfoProto.FromString(data[a:b]) for field, a, b in fields if field in _VALUE_INFOS]
        except (IndexError, ValueError, DecodeError):
            return {}
    return {value.name: onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower() for value in values}


@contextlib.contextmanager
def _content(model: object) -> Iterator[_Bytes]:
    """The bytes of a model, or a map of its file; empty if there are none."""
    with contextlib.ExitStack() as exits:
        content: _Bytes = model if isinstance(model, bytes) else b""
        with contextlib.suppress(OSError):
            if isinstance(model, str | os.PathLike):
                file = exits.enter_context(open(model, "rb"))  # noqa: PTH123  # any path that ONNX Runtime takes
                if os.fstat(file.fileno()).st_size:  # an empty file cannot be mapped
                    content = exits.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        yield content


def _short_field(number: int, text: str) -> bytes:
    """A field with a text; of a long one, the text alone."""
    content = text.encode()
    return (bytes([number << 3 | _LENGTH, len(content)]) if len(content) < 0x80 else b"") + content


class _SearchedModel:
    """A model's opsets, functions, and the nodes that may use one of the operators.

    Raises:
        IndexError, ValueError, DecodeError: the data is not a model.
    """

    def __init__(self, data: _Bytes, parts: Sequence[bytes]) -> None:
        self._opsets: list[bytes] = []
        self._nodes: list[onnx.NodeProto] = []
        self._functions: list[onnx.FunctionProto] = []

        def has_any(start: int, end: int) -> bool:
            return any([data.find(part, start, end) >= 0 for part in parts])  # noqa: C419 - a list takes half the time

        for field, start, end in _fields(data, 0, len(data)):
            if field == _OPSET_IMPORT:
                self._opsets.append(data[start:end])
            elif field == _GRAPH:
                for run in _runs_of_nodes(data, start, end):
                    if has_any(*run):
                        spans = (span for field, *span in _fields(data, *run) if field == _NODE)
                        self._nodes += [onnx.NodeProto.FromString(data[a:b]) for a, b in spans if has_any(a, b)]
            elif field == _FUNCTIONS and has_any(start, end):
                self._functions.append(onnx.FunctionProto.FromString(data[start:end]))

    def scopes(self) -> list[tuple[str, int, Iterable[onnx.NodeProto]]]:
        """The place, in words, the opset and the nodes of the graph and of each function."""
        opset = _opset(map(onnx.OperatorSetIdProto.FromString, self._opsets))
        return [
            ("", opset, self._nodes),
            *(
                (f" in function {function.name}", _opset(function.opset_import) or opset, function.node)
                for function in self._functions
            ),
        ]

    @property
    def functions(self) -> set[tuple[str, str]]:
        """The domains and names of the model's functions."""
        return {(normalize_domain(function.domain), function.name) for function in self._functions}


def _served(
    scopes: Sequence[tuple[str, int, Iterable[onnx.NodeProto]]],
    functions: Collection[tuple[str, str]],
    known: Mapping[tuple[str, str], Operator],
    *,
    serves: bool,
) -> ServedNodes:
    """See `served_nodes`; the first scope is the graph, and `known` has the operators of this project and of users."""
    definitions, computed = dict[tuple[str, str], Operator](), list[tuple[str, str]]()
    for place, import_, nodes in scopes:
        opset = scopes[0][1]
        for node in _all(nodes):
            identity = normalize_domain(node.domain), node.op_type
            is_served = serves and identity not in known
            definition = _definition(*identity, opset) if is_served else known.get(identity)
            if definition is None or identity in functions:
                continue
            where = f"node {node.name!r} ({node.op_type}){place}"
            _check_names(definition, node, where)
            computed.append(identity_of(node))
            if not is_served:
                continue
            if import_ != opset and _names(_definition(*identity, import_)) != _names(definition):
                raise ValueError(
                    f"{where}: its function imports opset {import_}, the model {opset}: must be the same opset, or "
                    "must be converted (onnx_models.convert)"
                )
            definitions[identity] = definition
    return ServedNodes(list(definitions.values()), computed, {node.op_type for node in scopes[0][2]})


def _definition(domain: str, name: str, opset: int) -> Operator | None:
    """The definition of an operator that a session runs itself; None for other operators."""
    if domain or name not in STANDARD_NAMES:
        return THIRD_PARTY_DEFINITIONS.get((domain, name))
    try:
        return onnx_definition(implementation(name, opset))
    except ValueError:
        return None  # ONNX has it only at another opset: ONNX Runtime reports this, or has its own kernel


def _names(operator: Operator | None) -> set[str]:
    return {attribute.name for attribute in operator.attributes} if operator else set()


def _check_names(definition: Operator, node: onnx.NodeProto, where: str) -> None:
    known = sorted(_names(definition))
    for name in (attribute.name for attribute in node.attribute):
        if name not in known:
            lawful = f"must be one of {', '.join(known)}" if known else "it has none"
            raise TypeError(f"{where}: {definition.label} has no attribute {name!r}{meant(name, known)}: {lawful}")


def _opset(imports: Iterable[onnx.OperatorSetIdProto]) -> int:
    """The version of ONNX's domain among imports, the last of several, as in ONNX Runtime; 0 if it is not imported."""
    # Not `next` of a generator: an exception that a signal handler raises while Python closes that is lost.
    return [0, *(item.version for item in imports if not normalize_domain(item.domain))][-1]


def _all(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, and the nodes in their subgraphs."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _all(graph.node)


def _runs_of_nodes(data: _Bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The spans of consecutive nodes in a graph, without large constants.

    Measured: a loop that searched every node separately took 1 us for a node, a tenth of ONNX Runtime's time.
    """
    first = start
    while start < end:
        tag, length, body = data[start], data[start + 1], start + 2
        if tag != _NODE << 3 | _LENGTH or length >= 0x80:
            field, body, after = _field(data, start, end)
            if field != _NODE or (after - body >= _LARGE and _is_constant(data, body, after)):
                if first < start:
                    yield first, start
                first = after
            start = after
        else:
            start = body + length
    if first < end:
        yield first, end


def _is_constant(data: _Bytes, start: int, end: int) -> bool:
    return b"Constant" in [data[first:last] for field, first, last in _fields(data, start, end) if field == _OP_TYPE]


def _fields(data: _Bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The number and the span of each length-prefixed field in a message at [start, end).

    Raises:
        IndexError, ValueError: the bytes are not a message.
    """
    while start < end:
        field, first, start = _field(data, start, end)
        if field:
            yield field, first, start


def _field(data: _Bytes, start: int, end: int) -> tuple[int, int, int]:
    """The number and the span of the field at `start`; number 0 for a field that is not length-prefixed.

    Raises:
        IndexError, ValueError: the bytes are not a field.
    """
    tag, start = _varint(data, start)
    kind = tag & 7
    if kind == _LENGTH:
        length, start = _varint(data, start)
        if start + length > end:
            raise ValueError("a field ends after its message")
        return tag >> 3, start, start + length
    if kind == 0:
        return 0, start, _varint(data, start)[1]
    if kind not in _FIXED:
        raise ValueError(f"wire type {kind}: must be one of protobuf 3")
    return 0, start, start + _FIXED[kind]


_LENGTH = 2
"""The wire type of a length-prefixed field."""

_FIXED: Mapping[int, int] = {1: 8, 5: 4}
"""The number of bytes in a field, by wire type."""


def _varint(data: _Bytes, start: int) -> tuple[int, int]:
    """The number at `start`, and where it ends."""
    value = shift = 0
    while True:
        byte = data[start]
        start += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, start
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")
