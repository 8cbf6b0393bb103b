# SPDX-License-Identifier: MIT
"""Preparation of a model for differentiation: conversion to opset 18, inlining of functions, types, shapes and sequences."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx

from onnx_models.gradient.graph import GradientGraph
from onnx_models.gradient.tensors import known_value, named_lengths
from onnx_models.tools.functions import check_attributes, inline_functions
from onnx_models.tools.nodes import NodeView
from onnx_models.tools.protos import assign, input_names, iter_nodes, normalize_domain, strip_weights, subgraphs
from onnx_models.tools.types import forget_lengths_inside, infer_shapes

OLDEST_OPSET = 18
"""The rules add operators as of this opset or later; older models are converted."""

_OLDEST_WITH_DEFAULTS = 4
"""From this IR version on, an initializer that is also an input is a default value; before, all had to be inputs."""


def prepared(model: onnx.ModelProto, stop_at: Collection[str] = ()) -> onnx.ModelProto:
    """A copy of a model of opset 18 or later, with inferred types and shapes and with functions inlined.

    What is read from sequences, except those in `stop_at`, is written as operators on tensors where that is possible.

    Only the bodies of this project's operators stay functions. Declared shapes of intermediate tensors are ignored, because
    they may not fit the shapes of the inputs. The data of large initializers is left out; `restore_weights` restores it.
    """
    check_attributes(model)
    inlined = inline_functions(strip_weights(model), OLDEST_OPSET)
    for node in iter_nodes(inlined):
        # The default of STFT's onesided is 1, but ONNX's shape inference (1.23 at least) uses 0.
        is_stft = node.op_type == "STFT" and normalize_domain(node.domain) == ""
        if is_stft and not any(attribute.name == "onesided" for attribute in node.attribute):
            node.attribute.append(onnx.helper.make_attribute("onesided", 1))
    typed = _with_inferred_types(inlined)
    if any(node.op_type in READERS for node in iter_nodes(typed.graph)):
        opsets = {normalize_domain(item.domain): item.version for item in typed.opset_import}
        replace_reads(GradientGraph(typed.graph, opsets), stop_at)
        assign(inlined.graph.node, typed.graph.node)
        typed = _with_inferred_types(inlined)
    return typed


def _with_inferred_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with types and shapes inferred from those of its inputs, ignoring default values of inputs.

    What inference does not find, as after an operator of another domain, is taken from the model's declarations: element
    type, rank and symbolic lengths, but no numbers, which may not fit the inputs. Inference goes on from there.
    """
    bare = copy.deepcopy(model)
    del bare.graph.value_info[:]
    for value in bare.graph.output:
        value.type.tensor_type.ClearField("shape")
    forget_lengths_inside(bare.graph)
    _name_lengths(bare.graph, model.graph)
    if model.ir_version >= _OLDEST_WITH_DEFAULTS:
        fed = {value.name for value in bare.graph.input}
        assign(bare.graph.initializer, [tensor for tensor in bare.graph.initializer if tensor.name not in fed])
    inferred = infer_shapes(bare, data_prop=True)
    if lost := _lost(inferred, model):
        bare.graph.value_info.extend(lost)
        inferred = infer_shapes(bare, data_prop=True)
    _rename_invented(inferred.graph, bare.graph, model.graph)
    assign(inferred.graph.initializer, model.graph.initializer)
    for node, original in zip(inferred.graph.node, model.graph.node, strict=True):
        if any(subgraphs([original])):
            node.CopyFrom(original)
    known = {value.name: value for value in (*inferred.graph.value_info, *inferred.graph.output)}
    for value in (*model.graph.value_info, *model.graph.output):
        if value.type.HasField("tensor_type"):
            kind = (known.get(value.name) or inferred.graph.value_info.add(name=value.name)).type.tensor_type
            _complete(kind, value.type.tensor_type)
    return inferred


def _name_lengths(graph: onnx.GraphProto, declared: onnx.GraphProto) -> None:
    """Give each open length of a graph's inputs a name, so that inference finds which other lengths are equal to it."""
    names = {length.dim_param for length in named_lengths(declared)}
    for value in graph.input:
        for axis, length in enumerate(value.type.tensor_type.shape.dim):
            if length.WhichOneof("value") is None:
                length.dim_param = f"{value.name}_{axis}"
                while length.dim_param in names:
                    length.dim_param += "_"


def _rename_invented(inferred: onnx.GraphProto, bare: onnx.GraphProto, declared: onnx.GraphProto) -> None:
    """Rename the lengths that inference invents a name for, if a declaration that it did not get has that name."""
    known = {length.dim_param for length in named_lengths(bare)}
    names = known | {length.dim_param for length in named_lengths(declared)}
    for length in named_lengths(inferred):
        if length.dim_param not in known:
            while length.dim_param in names:
                length.dim_param += "_"


def _lost(inferred: onnx.ModelProto, model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The declarations of the tensors of which inference finds no rank, without numbers."""
    known = {value.name for value in inferred.graph.value_info if value.type.tensor_type.HasField("shape")}
    lost = []
    for declared in model.graph.value_info:
        if declared.name not in known and declared.type.tensor_type.HasField("shape"):
            lost.append(onnx.ValueInfoProto(name=declared.name))
            _complete(lost[-1].type.tensor_type, declared.type.tensor_type)
    return lost


def _complete(kind: onnx.TypeProto.Tensor, declared: onnx.TypeProto.Tensor) -> None:
    """Complete an inferred type by the element type, rank and symbolic lengths of the declared one."""
    kind.elem_type = kind.elem_type or declared.elem_type
    if not declared.HasField("shape"):
        return
    if not kind.HasField("shape"):
        kind.shape.SetInParent()
        kind.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in declared.shape.dim)
    if len(kind.shape.dim) == len(declared.shape.dim):
        for length, name in zip(kind.shape.dim, declared.shape.dim, strict=True):
            if length.WhichOneof("value") != "dim_value" and name.dim_param:
                length.dim_param = name.dim_param


READERS = {"ConcatFromSequence", "SequenceAt", "SequenceLength"}
"""The operators that compute a tensor from a sequence."""

_MAX_PARTS = 1024
"""The most outputs of a Split that replaces a SplitToSequence."""


class _Known(NamedTuple):
    """A sequence: the names of its tensors, or None if their number is unknown, and the SplitToSequence that makes it."""

    tensors: Sequence[str] | None
    split: NodeView | None = None


def replace_reads(graph: GradientGraph, stop_at: Collection[str], outer: Mapping[str, _Known] | None = None) -> None:
    """Replace nodes that read from sequences, here and in subgraphs, by nodes that read the sequences' tensors.

    The tensors are known if positions are constants and a split tensor has a known number of parts. If not, each part of a
    split tensor can be read alone. What is read otherwise, or from a sequence in `stop_at`, stays. Sequences that nothing
    reads any more are removed. `outer` are the sequences of the enclosing graph, by name.
    """
    known = dict(outer or {})
    for proto in graph.proto.node:
        for inner in subgraphs([proto]):
            nested = GradientGraph(inner, graph.opsets, graph)
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
    assign(graph.proto.node, reversed(kept))


def _sequence_of(graph: GradientGraph, node: NodeView, source: _Known | None) -> _Known | None:
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


def _parts(graph: GradientGraph, node: NodeView) -> list[str] | None:
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


def _place(graph: GradientGraph, tensors: Sequence[str] | None, index: str, more: int = 0) -> int | None:
    """The position that an index means, by default the last; None if it is unknown or not less than the number + `more`."""
    value = known_value(graph, index) if index else np.array(-1)
    if tensors is None or value is None or value.size != 1:
        return None
    count, place = len(tensors), int(value.item())
    place += (count if index else count + more) * (place < 0)
    return place if 0 <= place < count + more else None


def _tensor_of(graph: GradientGraph, node: NodeView, source: _Known) -> str | None:
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


def _part(graph: GradientGraph, split: NodeView, index: str) -> str | None:
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
