"""Reverse mode over a graph: from the loss back, each node's rule turns its outputs' gradients into its inputs'."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import onnx

from onnx_models.gradient.graph import Graph, Node, reads
from onnx_models.gradient.rules import RULES, STOPS
from onnx_models.tools import node_checker
from onnx_models.walk import normal_domain

_DIFFERENTIABLE = {
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.DOUBLE,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
}


def gradients(
    graph: Graph,
    nodes: Sequence[onnx.NodeProto],
    opsets: Mapping[str, int],
    loss: str,
    wrt: Sequence[str],
    stop_at: Collection[str],
) -> dict[str, str]:
    """Add nodes that compute the gradients of `loss`; the names of those by `wrt`, zeros where it does not depend.

    Args:
        graph: where the nodes are added.
        nodes: those of the model, each after those it reads from.
        opsets: version of each domain that the model imports.
        loss: name of the tensor whose gradient is taken; its elements are summed.
        wrt: names of tensors.
        stop_at: names of tensors through which no gradient passes.

    Raises:
        ValueError: an operator between the two has no rule, or a rule cannot be applied.
    """
    reached = _reached(graph, nodes, wrt, stop_at)
    parts: dict[str, list[str]] = {loss: [graph.op("Expand", graph.number(1.0, loss), graph.shape(loss))]}
    sums: dict[str, str] = {}
    check_node = node_checker(opsets)

    def total(name: str) -> str | None:
        """The gradient by a tensor whose readers are all done."""
        if name in parts and name not in sums:
            sums[name] = parts[name][0] if len(parts[name]) == 1 else graph.op("Sum", *parts[name])
        return sums.get(name)

    for proto in reversed(nodes):
        if _stops(proto) or reached.isdisjoint(reads(proto)):
            continue
        incoming = [total(name) if name in reached and name not in stop_at else None for name in proto.output]
        if not any(incoming):
            continue
        node = Node(proto, opsets.get(normal_domain(proto.domain), 1), [name in reached for name in proto.input])
        rule = RULES.get((normal_domain(proto.domain), proto.op_type))
        if rule is None:
            raise ValueError(f"{node} has no gradient rule: {_path(nodes, wrt, proto, reached)}")
        check_node(proto)
        for name, part in zip(proto.input, rule(graph, node, incoming), strict=False):
            if part is not None and name in reached:
                parts.setdefault(name, []).append(part)
    return {name: total(name) or graph.zeros(name) for name in wrt}


def _stops(node: onnx.NodeProto) -> bool:
    return (normal_domain(node.domain), node.op_type) in STOPS


def _reached(graph: Graph, nodes: Sequence[onnx.NodeProto], wrt: Sequence[str], stop_at: Collection[str]) -> set[str]:
    """The tensors that depend on `wrt` in a way that has a derivative."""
    reached = set(wrt)
    for node in nodes:
        if _stops(node) or reached.isdisjoint(reads(node)):
            continue
        for name in node.output:
            kind = graph.element_type(name)
            if name and name not in stop_at and (kind is None or kind in _DIFFERENTIABLE):
                reached.add(name)
    return reached


def _path(nodes: Sequence[onnx.NodeProto], wrt: Sequence[str], last: onnx.NodeProto, reached: set[str]) -> str:
    """How the node `last` is reached, as tensors and operators."""
    makers = {name: node for node in nodes for name in node.output}
    steps = [last.op_type]
    node = last
    while True:
        name = next(name for name in sorted(reads(node), key=lambda n: (n not in wrt, n)) if name in reached)
        steps.append(name)
        if name in wrt or name not in makers:
            break
        node = makers[name]
        steps.append(node.op_type)
    return f"must have one for the path {' -> '.join(reversed(steps))}, or the path must end before it (stop_at)"
