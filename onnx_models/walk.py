"""Going through models: the nodes inside of nodes, and ONNX's own domain under either of its names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx


def subgraphs(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    """The graphs among the attributes of nodes."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield attribute.g
            yield from attribute.graphs


def with_inner(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Each node, and after it those in its subgraphs."""
    for node in nodes:
        yield node
        for graph in subgraphs([node]):
            yield from with_inner(graph.node)


def normal_domain(domain: str) -> str:
    """The domain, "" for ONNX's own, whose other name is ai.onnx."""
    return "" if domain == "ai.onnx" else domain


def onnx_opset(scope: onnx.ModelProto | onnx.FunctionProto) -> int | None:
    """The version of ONNX's own domain that a model or a function imports; None where it does not."""
    return next((item.version for item in scope.opset_import if normal_domain(item.domain) == ""), None)
