"""Going through models: the nodes inside of nodes, and ONNX's own domain under either of its names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx

Scope = onnx.ModelProto | onnx.FunctionProto
"""What has opset imports of its own."""

MOST_NESTED = 30
"""How deep subgraphs may be in each other. A file has no more: protobuf reads 100 messages in each other, 3 a subgraph."""


def subgraphs(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    """The graphs among the attributes of nodes."""
    for node in nodes:
        for attribute in node.attribute:
            yield from attribute_graphs(attribute)


def attribute_graphs(attribute: onnx.AttributeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that an attribute has."""
    if attribute.HasField("g"):
        yield attribute.g
    yield from attribute.graphs


def walk_nodes(nodes: Iterable[onnx.NodeProto], level: int = 0) -> Iterator[onnx.NodeProto]:
    """Each node, and after it those in its subgraphs.

    Raises:
        ValueError: subgraphs are in each other deeper than `MOST_NESTED`.
    """
    if level > MOST_NESTED:
        raise ValueError(f"subgraphs are in each other more than {MOST_NESTED} deep: must be in each other less deep")
    for node in nodes:
        yield node
        for graph in subgraphs([node]):
            yield from walk_nodes(graph.node, level + 1)


def all_nodes(scope: Scope) -> Iterator[onnx.NodeProto]:
    """All nodes of a model, those of its functions left out, or of a function; those in subgraphs too."""
    return (node for part in _outermost(scope) for node in walk_nodes(part.node))


def walk_graphs(scope: Scope) -> Iterator[onnx.GraphProto | onnx.FunctionProto]:
    """The graphs of a model, those of its functions left out, or a function; after each the subgraphs inside."""
    for part in _outermost(scope):
        yield from _with_subgraphs(part)


def _with_subgraphs(
    part: onnx.GraphProto | onnx.FunctionProto,
) -> Iterator[onnx.GraphProto | onnx.FunctionProto]:
    yield part
    for graph in subgraphs(part.node):
        yield from _with_subgraphs(graph)


def _outermost(scope: Scope) -> list[onnx.GraphProto | onnx.FunctionProto]:
    if isinstance(scope, onnx.FunctionProto):
        return [scope]
    training = (graph for one in scope.training_info for graph in (one.initialization, one.algorithm))
    return [scope.graph, *training]


def tensor_names(part: onnx.GraphProto | onnx.FunctionProto) -> Iterator[str]:
    """All names of tensors in a graph or a function, and in the graphs inside."""
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
    """How an error names a node: by its name, or by its first output where it has none."""
    name = repr(node.name) if node.name else f"of {node.output[0]!r}" if node.output else "without a name"
    return f"node {name} ({node.op_type})"


def normalize_domain(domain: str) -> str:
    """The domain, "" for ONNX's own, whose other name is ai.onnx."""
    return "" if domain == "ai.onnx" else domain


def onnx_opset(scope: Scope) -> int | None:
    """The version of ONNX's own domain that a model or a function imports; None where it does not."""
    return next((item.version for item in scope.opset_import if normalize_domain(item.domain) == ""), None)
