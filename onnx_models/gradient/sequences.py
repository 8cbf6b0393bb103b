"""Sequences of tensors: what is read from them is written as operators on tensors, which are differentiated instead."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx

from onnx_models.gradient.folding import known_value
from onnx_models.gradient.graph import Graph
from onnx_models.tools.nodes import NodeView
from onnx_models.tools.protos import input_names, normalize_domain, subgraphs

READERS = {"ConcatFromSequence", "SequenceAt", "SequenceLength"}
"""The operators that compute a tensor from a sequence."""

_MAX_PARTS = 1024
"""The most outputs of a Split that replaces a SplitToSequence."""


class _Known(NamedTuple):
    """A sequence: the names of its tensors, or None if their number is unknown, and the SplitToSequence that makes it."""

    tensors: Sequence[str] | None
    split: NodeView | None = None


def replace_reads(graph: Graph, stop_at: Collection[str], outer: Mapping[str, _Known] | None = None) -> None:
    """Replace nodes that read from sequences, here and in subgraphs, by nodes that read the sequences' tensors.

    The tensors are known if positions are constants and a split tensor has a known number of parts. If not, each part of a
    split tensor can be read alone. What is read otherwise stays. Sequences that nothing reads any more are removed.

    Args:
        graph: with inferred types; its `proto` is changed.
        stop_at: names of tensors and sequences to treat as constants; what is read from such a sequence stays.
        outer: the sequences of the enclosing graph, by name.
    """
    known = dict(outer or {})
    for proto in graph.proto.node:
        for inner in subgraphs([proto]):
            nested = Graph(inner, graph.opsets, graph)
            nested.infer(inner.node)
            replace_reads(nested, stop_at, known)
        node, start = NodeView(proto), len(graph.added)
        source = known.get(node.input(0))
        if normalize_domain(proto.domain) or node.output(0) in stop_at:
            continue
        if proto.op_type not in READERS:
            if sequence := _sequence_of(graph, node, source):
                known[node.output(0)] = sequence
                graph.replace(proto, [*graph.added[start:], proto])
        elif source and (tensor := _tensor_of(graph, node, source)):
            same = onnx.helper.make_node("Identity", [tensor], proto.output, name=proto.name)
            graph.replace(proto, [*graph.added[start:], same])
    read, kept = {value.name for value in graph.proto.output}, []
    for proto in reversed(graph.with_replaced()):
        if not read.isdisjoint(proto.output) or not (graph.is_new(proto) or known.keys() & proto.output):
            read.update(input_names(proto))
            kept.append(proto)
    del graph.proto.node[:]
    graph.proto.node.extend(reversed(kept))


def _sequence_of(graph: Graph, node: NodeView, source: _Known | None) -> _Known | None:
    """The sequence that a node makes, given the one that it reads, if any; None if it makes none or an unknown one."""
    operator = node.proto.op_type
    if operator in ("SequenceConstruct", "SequenceEmpty"):
        return _Known(node.inputs)
    if operator == "SplitToSequence":
        return _Known(_parts(graph, node), node)
    if operator not in ("SequenceInsert", "SequenceErase"):
        return source if operator == "Identity" else None
    inserted = [node.input(1)] * (operator == "SequenceInsert")
    tensors = source.tensors if source else None
    place = _place(graph, tensors, node.input(1 + len(inserted)), len(inserted))
    if tensors is None or place is None:
        return None
    return _Known([*tensors[:place], *inserted, *tensors[place + 1 - len(inserted) :]])


def _parts(graph: Graph, node: NodeView) -> list[str] | None:
    """Compute the tensors that a SplitToSequence makes; return their names, or None if their number is unknown."""
    x, sizes, axis = node.input(0), node.input(1), node.attribute("axis", 0)
    value = known_value(graph, sizes) if sizes else np.array(1)
    if value is not None and value.ndim == 0:
        lengths, size = graph.lengths(x) or [], int(value)
        length = lengths[axis] if -len(lengths) <= axis < len(lengths) else None
        if not isinstance(length, int) or not 0 < length <= size * _MAX_PARTS:
            return None
        value = np.minimum(size, length - np.arange(0, length, size))
    count = next(iter((graph.lengths(sizes) or ()) if value is None else value.shape), None)
    if not isinstance(count, int) or not 0 < count <= _MAX_PARTS:
        return None
    split = graph.op("Cast", sizes, to=onnx.TensorProto.INT64) if value is None else graph.ints(value)
    parts = graph.ops("Split", x, split, outputs=count, axis=axis)
    keeps_axis = sizes or node.attribute("keepdims", 1)
    return parts if keeps_axis else [graph.op("Squeeze", part, graph.ints([axis])) for part in parts]


def _place(graph: Graph, tensors: Sequence[str] | None, index: str, more: int = 0) -> int | None:
    """The position that an index means, by default the last; None if it is unknown or not less than the number + `more`."""
    value = known_value(graph, index) if index else np.array(-1)
    if tensors is None or value is None or value.size != 1:
        return None
    count, place = len(tensors), int(value.item())
    place += (count if index else count + more) * (place < 0)
    return place if 0 <= place < count + more else None


def _tensor_of(graph: Graph, node: NodeView, source: _Known) -> str | None:
    """Compute the tensor that a node reads from a sequence; return its name, or None if this is unknown."""
    tensors = source.tensors
    if node.proto.op_type == "SequenceAt":
        place = _place(graph, tensors, node.input(1))
        if tensors is not None and place is not None:
            return tensors[place]
        return _part(graph, source.split, node.input(1)) if source.split else None
    if tensors is None or node.proto.op_type == "SequenceLength":
        return None if tensors is None else graph.integer(len(tensors))
    axis = node.attribute("axis")
    if node.attribute("new_axis", 0):
        tensors = [graph.op("Unsqueeze", tensor, graph.ints([axis])) for tensor in tensors]
    return graph.op("Concat", *tensors, axis=axis) if tensors else None


def _part(graph: Graph, split: NodeView, index: str) -> str | None:
    """Compute the part of a split tensor at an index that need not be constant; return its name."""
    x, sizes, axis = split.input(0), split.input(1), split.attribute("axis", 0)
    if not sizes:
        shape = [1] * split.attribute("keepdims", 1)
        return graph.op("Gather", x, graph.op("Reshape", index, graph.ints(shape)), axis=axis)
    if (lengths := graph.lengths(sizes)) is None:
        return None
    row, size = graph.op("Reshape", index, graph.ints([1])), graph.op("Cast", sizes, to=onnx.TensorProto.INT64)
    if lengths:
        end = graph.op("Gather", graph.op("CumSum", size, graph.integer(0)), row)
        start = graph.op("Sub", end, graph.op("Gather", size, row))
    else:
        starts = graph.op("Range", graph.integer(0), graph.op("Squeeze", graph.shape(x, axis, axis + 1 or None)), size)
        start = graph.op("Gather", starts, row)
        end = graph.op("Add", start, size)  # beyond the end if the last part is smaller
    return graph.op("Slice", x, start, end, graph.ints([axis]))
