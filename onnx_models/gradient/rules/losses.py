"""Losses over classes, which lie along axis 1 of their input, as compositions of other operators."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from onnx_models.gradient.graph import Graph, Node
from onnx_models.gradient.registry import decomposition


@decomposition("NegativeLogLikelihoodLoss")
def negative_log_likelihood(graph: Graph, node: Node) -> Sequence[str]:
    """The negative of each target's element times the weight of its class; the mean divides by the sum of the weights."""
    return [_loss(graph, node, node.inputs[0])]


@decomposition("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(graph: Graph, node: Node) -> Sequence[str]:
    """NegativeLogLikelihoodLoss of LogSoftmax over the classes, with these logarithms as the second output."""
    logarithms = graph.op("LogSoftmax", node.inputs[0], axis=1)
    return [_loss(graph, node, logarithms), logarithms][: len(node.outputs)]


def _loss(graph: Graph, node: Node, logarithms: str) -> str:
    target, weights, ignored = node.inputs[1], node.input(2), node.attribute("ignore_index")
    kept, column = "", graph.ints([1])
    if ignored is not None:
        number = graph.op("CastLike", graph.integer(ignored), target)
        kept = graph.op("Not", graph.op("Equal", target, number))
        # The ignored index need not be a valid class.
        target = graph.op("Where", kept, target, graph.op("Sub", number, number))
    classes = graph.op("Cast", target, to=onnx.TensorProto.INT64)
    chosen = graph.op("GatherElements", logarithms, graph.op("Unsqueeze", classes, column), axis=1)
    each = graph.op("Neg", graph.op("Squeeze", chosen, column))
    shares = graph.op("Gather", weights, classes) if weights else ""
    if shares:
        each = graph.op("Mul", each, shares)
    if kept:
        shares = shares or graph.op("Expand", graph.number(1.0, each), graph.op("Shape", classes))
        each, shares = (graph.masked(kept, terms, logarithms) for terms in (each, shares))
    reduction = node.attribute("reduction", "mean")
    if reduction == "mean" and not shares:
        return graph.op("ReduceMean", each, keepdims=0)
    total = each if reduction == "none" else graph.op("ReduceSum", each, keepdims=0)
    return total if reduction != "mean" else graph.op("Div", total, graph.op("ReduceSum", shares, keepdims=0))
