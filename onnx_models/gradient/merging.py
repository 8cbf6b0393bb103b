"""Common subexpressions: of nodes that compute the same from the same tensors, the first one stays."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import onnx

from onnx_models.gradient.ours import DOMAIN
from onnx_models.gradient.parameters import constant_tensor
from onnx_models.gradient.rules.registry import REAL
from onnx_models.tools.protos import normalize_domain, subgraphs

RANDOM = {
    "Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
}  # fmt: skip
"""Operators that may draw random numbers; Dropout does in training."""

_Key = tuple[object, ...]


def merge(
    nodes: Collection[onnx.NodeProto], earlier: Iterable[onnx.NodeProto]
) -> tuple[list[onnx.NodeProto], dict[str, str]]:
    """Keep the first of several equal new nodes, and drop a new node that equals an earlier one.

    Nodes are equal if they have the same operator, attributes and inputs. Each subgraph is searched separately.

    Args:
        nodes: the new nodes in topological order; their inputs and subgraphs are modified.
        earlier: nodes of the same graph. Their floating-point constants are not shared: one that happens to equal a number
            in a derivative may be a weight, which training changes.

    Returns:
        The remaining nodes, and for the name of each dropped tensor the name of the tensor that replaces it.
    """
    known: dict[_Key, onnx.NodeProto] = {}
    operators = {node.op_type for node in nodes}
    for node in earlier:
        if node.op_type in operators and not _is_real_constant(node):
            known.setdefault(_key(node), node)
    names: dict[str, str] = {}
    return _merge(nodes, known, names), names


def _is_real_constant(node: onnx.NodeProto) -> bool:
    constant = constant_tensor(node)
    return constant is not None and constant.data_type in REAL


def _merge(
    nodes: Iterable[onnx.NodeProto],
    known: dict[_Key, onnx.NodeProto],
    names: dict[str, str],
    kept: Collection[str] = frozenset(),
) -> list[onnx.NodeProto]:
    """Add to `known` and `names`, and return the nodes that are left. `kept` are outputs of the graph."""
    left = []
    for node in nodes:
        if not names.keys().isdisjoint(node.input):
            node.input[:] = [names.get(name, name) for name in node.input]
        for graph in subgraphs([node]):
            inner = _merge(graph.node, {}, names, {value.name for value in graph.output})
            if len(inner) < len(graph.node):
                del graph.node[:]
                graph.node.extend(inner)
        first = known.setdefault(_key(node), node)
        if first is node or any(name in kept for name in node.output):
            left.append(node)
        else:
            names.update(zip(node.output, first.output, strict=True))
    return left


def _key(node: onnx.NodeProto) -> _Key:
    """A key that is the same for equal nodes; a node with a subgraph, or with random numbers, equals no other."""
    domain = normalize_domain(node.domain)
    is_drawn = domain not in ("", DOMAIN) or node.op_type in RANDOM
    if is_drawn or any(subgraphs([node])):
        return (id(node),)
    attributes = sorted(attribute.SerializeToString(deterministic=True) for attribute in node.attribute)
    return domain, node.op_type, *node.input, *attributes, *map(bool, node.output)
