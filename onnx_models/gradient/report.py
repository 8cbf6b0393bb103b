"""Reports on a gradient without building it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from onnx_models.gradient.backward import Findings, reachable_from
from onnx_models.gradient.coverage import Coverage, coverage_of
from onnx_models.gradient.graph import Graph, reads
from onnx_models.traversal import normalize_domain


@dataclass(frozen=True)
class Report:
    """What a gradient consists of, or why it is refused.

    operators: the operators between `wrt` and the loss in graph order, each with its number of nodes.
    zeros: a message for each place where a derivative is 0.
    zero_gradients: names of the tensors whose gradient is 0 for all inputs.
    refused: a message for each operator that cannot be differentiated; the gradient is refused if there is any.
    nodes_before, nodes_after: numbers of nodes without and with the gradient, functions inlined; the latter None if refused.
    """

    operators: tuple[tuple[Coverage, int], ...]
    zeros: tuple[str, ...]
    zero_gradients: tuple[str, ...]
    refused: tuple[str, ...]
    nodes_before: int
    nodes_after: int | None


def operators_between(
    graph: Graph, wrt: Collection[str], loss: str, findings: Findings
) -> tuple[tuple[Coverage, int], ...]:
    """The operators between `wrt` and `loss` with their numbers of nodes."""
    above = reachable_from(graph, graph.proto.node, wrt, Findings(findings.stop_at, findings.through_rois))
    needed, nodes = {loss}, []
    for node in reversed(graph.proto.node):
        if not needed.isdisjoint(node.output) and not above.isdisjoint(reads(node)):
            needed.update(reads(node))
            nodes.append(node)
    names = Counter((node.op_type, normalize_domain(node.domain)) for node in reversed(nodes))
    return tuple((coverage_of(*name, graph.opsets.get(name[1], 1)), count) for name, count in names.items())
