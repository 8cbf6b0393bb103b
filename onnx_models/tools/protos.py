# SPDX-License-Identifier: MIT
"""Messages of ONNX: walking through them, names, the first check of every model, and models beyond 2 GiB."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import onnx
from google.protobuf.message import EncodeError, Message  # type: ignore[import-untyped]

from ortops.foreign import near_names, protos

Scope = onnx.ModelProto | onnx.FunctionProto
"""Messages that have opset imports."""

import_domain, normalize_domain, onnx_opset = protos.import_domain, protos.normalize_domain, protos.onnx_opset
meant = near_names.meant

MAX_NESTED = 30
"""The largest depth of nested subgraphs, and of any file: protobuf reads 100 nested messages, 3 for each subgraph."""


def subgraphs(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    """Yield the subgraphs of nodes."""
    for node in nodes:
        for attribute in node.attribute:
            yield from attribute_graphs(attribute)


def attribute_graphs(attribute: onnx.AttributeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs in an attribute."""
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def iter_nodes(source: Scope | onnx.GraphProto | Iterable[onnx.NodeProto], level: int = 0) -> Iterator[onnx.NodeProto]:
    """Yield each node, followed by the nodes of its subgraphs; those of the functions of a model are left out.

    Raises:
        ValueError: subgraphs are nested deeper than `MAX_NESTED`.
    """
    _check_level(level)
    if isinstance(source, onnx.ModelProto):
        source = [node for part in _outermost(source) for node in part.node]
    elif isinstance(source, (onnx.GraphProto, onnx.FunctionProto)):
        source = source.node
    for node in source:
        yield node
        for graph in subgraphs([node]):
            yield from iter_nodes(graph, level + 1)


def iter_graphs(
    source: Scope | onnx.GraphProto, level: int = 0, *, defaults: bool = False
) -> Iterator[onnx.GraphProto | onnx.FunctionProto]:
    """Yield each graph or function, followed by its subgraphs.

    With `defaults`, this includes the functions of a model, and the graphs among the defaults of their attributes.

    Raises:
        ValueError: subgraphs are nested deeper than `MAX_NESTED`.
    """
    _check_level(level)
    if isinstance(source, onnx.ModelProto):
        parts = [*_outermost(source), *(source.functions if defaults else ())]
        if defaults:
            attributes = (attribute for function in source.functions for attribute in function.attribute_proto)
            parts += [graph for attribute in attributes for graph in attribute_graphs(attribute)]
        for part in parts:
            yield from iter_graphs(part)
        return
    yield source
    for graph in subgraphs(source.node):
        yield from iter_graphs(graph, level + 1)


def _check_level(level: int) -> None:
    if level > MAX_NESTED:
        raise ValueError(f"subgraphs are nested more than {MAX_NESTED} deep: must be at most {MAX_NESTED}")


def _outermost(model: onnx.ModelProto) -> list[onnx.GraphProto | onnx.FunctionProto]:
    return [
        model.graph,
        *(graph for training in model.training_info for graph in (training.initialization, training.algorithm)),
    ]


def tensor_names(part: onnx.GraphProto | onnx.FunctionProto) -> Iterator[str]:
    """Yield all names of tensors in a graph or a function, and in its subgraphs."""
    if isinstance(part, onnx.FunctionProto):
        yield from (*part.input, *part.output)
    else:
        for value in (*part.value_info, *part.input, *part.output):
            yield value.name
        for tensor in part.initializer:
            yield tensor.name
        for sparse in part.sparse_initializer:
            yield sparse.values.name
    for node in part.node:
        yield from node.input
        yield from node.output
        for subgraph in subgraphs([node]):
            yield from tensor_names(subgraph)


def assign(field: Any, messages: Iterable[Message]) -> None:
    """Put messages in place of those that a repeated field has; they may be some of these."""
    kept = list(messages)
    del field[:]
    field.extend(kept)


def label(node: onnx.NodeProto) -> str:
    """Describe a node for error messages: by its name, or by its first output if it has none."""
    name = repr(node.name) if node.name else f"of {node.output[0]!r}" if node.output else "without a name"
    return f"node {name} ({node.op_type})"


def input_names(node: onnx.NodeProto) -> Collection[str]:
    """Names of the tensors that a node reads, with the outer tensors that its subgraphs read, once each and in order."""
    names = dict.fromkeys(filter(None, node.input))
    for graph in subgraphs([node]):
        names |= dict.fromkeys(outer_names(graph))
    return names


def outer_names(graph: onnx.GraphProto) -> Collection[str]:
    """Names of the outer tensors that a subgraph reads, once each and in order."""
    inside = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    inside |= {sparse.values.name for sparse in graph.sparse_initializer}
    names: dict[str, None] = {}
    for node in graph.node:
        names |= dict.fromkeys(name for name in input_names(node) if name not in inside)
        inside.update(node.output)
    return names | dict.fromkeys(value.name for value in graph.output if value.name not in inside)


def needed(nodes: Sequence[onnx.NodeProto], names: Collection[str]) -> list[onnx.NodeProto]:
    """The members of `nodes` that these tensors depend on; both in topological order."""
    wanted, needed_nodes = set(names), []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.output):
            wanted.update(input_names(node))
            needed_nodes.append(node)
    return needed_nodes[::-1]


_MIN_BYTES = 4096
"""The data of larger initializers is left out of the models that ONNX's tools get."""


def copy_model(model: onnx.ModelProto) -> onnx.ModelProto:
    """Copy a model of any size."""
    copied = onnx.ModelProto()
    try:
        copied.CopyFrom(model)
    except EncodeError:
        return restore_weights(strip_weights(model), model)
    return copied


def restore_weights(stripped: onnx.ModelProto, model: onnx.ModelProto) -> onnx.ModelProto:
    """Put the data of the initializers of `model` into `made`, which came from `strip_weights`, and return it."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for tensor in stripped.graph.initializer:
        if tensor.name in tensors:
            tensor.CopyFrom(tensors[tensor.name])
    return stripped


def strip_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Copy a model without the data of large initializers, which are marked as external."""
    stripped = onnx.ModelProto()
    for field, value in model.ListFields():
        if field.name != "graph":
            _copy(stripped, field, value)
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            _copy(stripped.graph, field, value)
    for tensor in model.graph.initializer:
        kept = stripped.graph.initializer.add(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
        if tensor.ByteSize() <= _MIN_BYTES:
            kept.CopyFrom(tensor)
        else:
            kept.data_location = onnx.TensorProto.EXTERNAL
            kept.external_data.add(key="location", value=tensor.name)
    return stripped


def _copy(target: onnx.ModelProto | onnx.GraphProto, field: object, value: object) -> None:
    name = field.name  # type: ignore[attr-defined]
    if hasattr(value, "extend"):
        getattr(target, name).extend(value)
    elif hasattr(value, "CopyFrom"):
        getattr(target, name).CopyFrom(value)
    else:
        setattr(target, name, value)


def accepted(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model itself, or a copy without negative lengths if it declares any.

    PaddlePaddle's exporter declares an axis of unknown length as -1. ONNX Runtime takes a negative length for an unknown
    one, but ONNX's shape inference computes with it, and may end the process.

    Raises:
        TypeError: `model` is not a ModelProto.
        ValueError: a tensor has a negative length or an unknown type, a node lacks its subgraph or has an axis beyond any
            rank, subgraphs are nested too deep, or ONNX's domain is imported with several versions.
    """
    if not isinstance(model, onnx.ModelProto):
        raise TypeError(f"model = {type(model).__name__}: must be an onnx.ModelProto")
    for scope in (model, *model.functions):
        versions = {item.version for item in scope.opset_import if normalize_domain(item.domain) == ""}
        if len(versions) > 1:
            raise ValueError(
                f"opset_import has versions {sorted(versions)} of ONNX's domain: must be one; ONNX Runtime takes the "
                f"last one, {onnx_opset(scope)}"
            )
    for part in list(iter_graphs(model, defaults=True)):
        for tensor in _tensors(part):
            _check_tensor(tensor)
        for node in part.node:
            for attribute in node.attribute:
                if attribute.name == "axis" and abs(attribute.i) > _MAX_AXES:
                    raise ValueError(f"{label(node)} has axis = {attribute.i}: must be an axis of a tensor")
            if normalize_domain(node.domain) == "":
                _check_subgraphs(node)
    kinds = list(_declared_types(model))
    for kind in kinds:
        if kind.elem_type not in _TYPES and kind.elem_type != onnx.TensorProto.UNDEFINED:
            raise ValueError(f"the model declares the element type {kind.elem_type}: must be one of ONNX's")
    if all(length.dim_value >= 0 for kind in kinds for length in kind.shape.dim):
        return model
    cleared = copy_model(model)
    for kind in _declared_types(cleared):
        for length in kind.shape.dim:
            if length.dim_value < 0:
                length.ClearField("dim_value")
    return cleared


_SUBGRAPHS = {"If": ("then_branch", "else_branch"), "Loop": ("body",), "Scan": ("body",)}
"""The attributes of ONNX's operators that are graphs."""

_MAX_AXES = 2**16

_TYPES = set(onnx.TensorProto.DataType.values()) - {onnx.TensorProto.UNDEFINED}


def _check_subgraphs(node: onnx.NodeProto) -> None:
    given = {attribute.name: attribute for attribute in node.attribute}
    for name in _SUBGRAPHS.get(node.op_type, ()):
        body = given.get(name)
        if body is None or not (body.HasField("g") or body.ref_attr_name):
            raise ValueError(f"{label(node)} has no {name}: must have this graph as an attribute")
        if body.type != onnx.AttributeProto.GRAPH:
            kinds = onnx.AttributeProto.AttributeType
            kind = kinds.Name(body.type) if body.type in kinds.values() else str(body.type)
            raise ValueError(f"{label(node)} has {name} as an attribute of type {kind}: must be a GRAPH")


def _tensors(part: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.TensorProto]:
    """Yield the tensors that a graph or a function holds, without those in subgraphs."""
    if isinstance(part, onnx.GraphProto):
        yield from part.initializer
        yield from (sparse.values for sparse in part.sparse_initializer)
    for node in part.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def _check_tensor(tensor: onnx.TensorProto) -> None:
    if min(tensor.dims, default=0) < 0:
        raise ValueError(f"tensor {tensor.name!r} has the shape {list(tensor.dims)}: must have lengths of 0 or more")
    if tensor.data_type not in _TYPES:
        raise ValueError(f"tensor {tensor.name!r} has the element type {tensor.data_type}: must be one of ONNX's")


_Tensor = onnx.TypeProto.Tensor | onnx.TypeProto.SparseTensor


def _declared_types(model: onnx.ModelProto) -> Iterator[_Tensor]:
    """Yield the types that inputs, outputs and other tensors are declared with, and those in attributes."""
    for part in iter_graphs(model, defaults=True):
        values = list(part.value_info)
        if isinstance(part, onnx.GraphProto):
            values += [*part.input, *part.output]
        for value in values:
            yield from _of_tensors(value.type)
        for node in part.node:
            for attribute in node.attribute:
                for kind in (attribute.tp, *attribute.type_protos):
                    yield from _of_tensors(kind)


def _of_tensors(kind: onnx.TypeProto) -> Iterator[_Tensor]:
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        yield getattr(kind, which)
    elif which in ("sequence_type", "optional_type"):
        yield from _of_tensors(getattr(kind, which).elem_type)
    elif which == "map_type":
        yield from _of_tensors(kind.map_type.value_type)


def one_line(error: object) -> str:
    """Return a text or an error's message in one line, with control characters, which names may contain, escaped."""
    text = " ".join(str(error).split())
    return text if text.isprintable() else ascii(text)
