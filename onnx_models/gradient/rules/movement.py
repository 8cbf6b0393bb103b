"""Rules of operators that put tensors together, take them apart, or choose among their elements."""

from __future__ import annotations

from onnx_models.gradient.broadcast import sum_to
from onnx_models.gradient.graph import Graph, Node
from onnx_models.gradient.rules.table import Gradients, Incoming, rule, rule_of_outputs


@rule("Concat")
def concat(graph: Graph, node: Node, dy: str) -> Gradients:
    """Tensors one after the other along an axis."""
    axis = node.attribute("axis")
    place = graph.ints([axis])
    lengths = [graph.op("Gather", graph.shape(x), place) for x in node.inputs]
    split = graph.op("Concat", *lengths, axis=0)
    return graph.ops("Split", dy, split, outputs=len(node.inputs), axis=axis)


@rule_of_outputs("Split")
def split(graph: Graph, node: Node, incoming: Incoming) -> Gradients:
    """Parts of a tensor along an axis; a part without a gradient has one of zeros."""
    parts = [part or graph.zeros(name) for part, name in zip(incoming, node.outputs, strict=True)]
    return [graph.op("Concat", *parts, axis=node.attribute("axis", 0))]


@rule("Where")
def where(graph: Graph, node: Node, dy: str) -> Gradients:
    """Elements of a where the condition holds, of b elsewhere, with broadcasting of all three."""
    condition, a, b = node.inputs
    output = node.outputs[0]
    by_a = by_b = None
    if node.wants(1):
        by_a = sum_to(graph, graph.chosen(condition, dy, a), a, output)
    if node.wants(2):
        by_b = sum_to(graph, graph.chosen(graph.op("Not", condition), dy, b), b, output)
    return [None, by_a, by_b]


@rule("Trilu", "ReverseSequence")
def itself(graph: Graph, node: Node, dy: str) -> Gradients:
    """Linear maps that are their own transposes: a triangle of a matrix, and the beginnings of sequences reversed."""
    return [graph.again(node, dy, *node.inputs[1:])]


@rule("CumSum")
def cumulative_sum(graph: Graph, node: Node, dy: str) -> Gradients:
    """Sums of all elements up to each along an axis: those from each on."""
    exclusive, reverse = node.attribute("exclusive", 0), 1 - node.attribute("reverse", 0)
    return [graph.op("CumSum", dy, node.inputs[1], exclusive=exclusive, reverse=reverse)]
