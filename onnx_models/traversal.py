"""Iterate over the nodes, subgraphs and tensor names of models; names of domains and nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import onnx

Scope = onnx.ModelProto | onnx.FunctionProto
"""Messages that have opset imports."""

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
    """Yield each node, followed by the nodes of its subgraphs.

    Args:
        source: nodes, a graph, a function, or a model, of which the functions are left out.
        level: the depth of the nodes in subgraphs.

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

    Args:
        source: a graph, a function, or a model, of which the functions are left out.
        level: its depth in subgraphs.
        defaults: True for the functions of a model, and the graphs among the defaults of their attributes, as well.

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
    return [model.graph, *(graph for one in model.training_info for graph in (one.initialization, one.algorithm))]


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


def label(node: onnx.NodeProto) -> str:
    """Describe a node for error messages: by its name, or by its first output if it has none."""
    name = repr(node.name) if node.name else f"of {node.output[0]!r}" if node.output else "without a name"
    return f"node {name} ({node.op_type})"


def normalize_domain(domain: str) -> str:
    """Return the domain, with "" for ONNX's own, which is also called ai.onnx."""
    return "" if domain == "ai.onnx" else domain


def onnx_opset(scope: Scope) -> int | None:
    """Return the version of ONNX's own domain that a model or a function imports, the last of several, or None."""
    return next((item.version for item in reversed(scope.opset_import) if normalize_domain(item.domain) == ""), None)


def import_domain(scope: Scope, domain: str, version: int) -> None:
    """Import a domain, unless the model or the function already does."""
    if all(normalize_domain(item.domain) != domain for item in scope.opset_import):
        scope.opset_import.append(onnx.helper.make_opsetid(domain, version))


def input_names(node: onnx.NodeProto) -> Collection[str]:
    """Names of the tensors that a node reads, with the outer tensors that its subgraphs read, once each and in order."""
    names = dict.fromkeys(filter(None, node.input))
    for graph in subgraphs([node]):
        names |= dict.fromkeys(outer_names(graph))
    return names


def outer_names(graph: onnx.GraphProto) -> Collection[str]:
    """Names of the outer tensors that a subgraph reads, once each and in order."""
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    own |= {sparse.values.name for sparse in graph.sparse_initializer}
    names: dict[str, None] = {}
    for node in graph.node:
        names |= dict.fromkeys(name for name in input_names(node) if name not in own)
        own.update(node.output)
    return names | dict.fromkeys(value.name for value in graph.output if value.name not in own)


def needed(nodes: Sequence[onnx.NodeProto], names: Collection[str]) -> list[onnx.NodeProto]:
    """The members of `nodes` that these tensors depend on; both in topological order."""
    wanted, found = set(names), []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.output):
            wanted.update(input_names(node))
            found.append(node)
    return found[::-1]
