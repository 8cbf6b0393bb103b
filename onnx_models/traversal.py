"""Iterate over the nodes, subgraphs and tensor names of models; names of domains and nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx

Scope = onnx.ModelProto | onnx.FunctionProto
"""Messages with opset imports of their own."""

MOST_NESTED = 30
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


def walk_nodes(nodes: Iterable[onnx.NodeProto], level: int = 0) -> Iterator[onnx.NodeProto]:
    """Yield each node, followed by the nodes of its subgraphs.

    Raises:
        ValueError: subgraphs are nested deeper than `MOST_NESTED`.
    """
    _check_level(level)
    for node in nodes:
        yield node
        for graph in subgraphs([node]):
            yield from walk_nodes(graph.node, level + 1)


def _check_level(level: int) -> None:
    if level > MOST_NESTED:
        raise ValueError(f"subgraphs are nested more than {MOST_NESTED} deep: must be at most {MOST_NESTED}")


def all_nodes(scope: Scope) -> Iterator[onnx.NodeProto]:
    """Yield all nodes, with those of subgraphs, of a function, or of a model without its functions."""
    return (node for part in _outermost(scope) for node in walk_nodes(part.node))


def walk_graphs(scope: Scope) -> Iterator[onnx.GraphProto | onnx.FunctionProto]:
    """Yield the graphs of a model without its functions, or a function; each is followed by its subgraphs."""
    for part in _outermost(scope):
        yield from with_subgraphs(part)


def with_subgraphs(
    part: onnx.GraphProto | onnx.FunctionProto, level: int = 0
) -> Iterator[onnx.GraphProto | onnx.FunctionProto]:
    """Yield a graph or a function, followed by its subgraphs.

    Raises:
        ValueError: subgraphs are nested deeper than `MOST_NESTED`.
    """
    _check_level(level)
    yield part
    for graph in subgraphs(part.node):
        yield from with_subgraphs(graph, level + 1)


def every_graph(model: onnx.ModelProto) -> Iterator[onnx.GraphProto | onnx.FunctionProto]:
    """Yield all graphs of a model: its own, its functions, those of the defaults of their attributes, and all subgraphs."""
    for scope in (model, *model.functions):
        yield from walk_graphs(scope)
    for function in model.functions:
        for default in function.attribute_proto:
            for graph in attribute_graphs(default):
                yield from with_subgraphs(graph)


def _outermost(scope: Scope) -> list[onnx.GraphProto | onnx.FunctionProto]:
    if isinstance(scope, onnx.FunctionProto):
        return [scope]
    training = (graph for one in scope.training_info for graph in (one.initialization, one.algorithm))
    return [scope.graph, *training]


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
    """Return the version of ONNX's own domain that a model or a function imports, or None."""
    return next((item.version for item in scope.opset_import if normalize_domain(item.domain) == ""), None)
