"""Rules of losses over classes, which lie along axis 1 of their input."""

from __future__ import annotations

import onnx

from onnx_models.gradient.graph import Graph, Node
from onnx_models.gradient.rules.table import Gradients, rule


@rule("NegativeLogLikelihoodLoss")
def negative_log_likelihood(graph: Graph, node: Node, dy: str) -> Gradients:
    """The negative of each target's element, weighted: the weights, at these elements."""
    return [_by_logarithms(graph, node, dy, node.inputs[0])]


@rule("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(graph: Graph, node: Node, dy: str) -> Gradients:
    """NegativeLogLikelihoodLoss of LogSoftmax over the classes."""
    scores = node.inputs[0]
    by_logarithms = _by_logarithms(graph, node, dy, scores)
    total = graph.op("ReduceSum", by_logarithms, graph.ints([1]), keepdims=1)
    return [graph.op("Sub", by_logarithms, graph.op("Mul", graph.op("Softmax", scores, axis=1), total))]


def _by_logarithms(graph: Graph, node: Node, dy: str, x: str) -> str:
    """The gradient by the logarithms of the classes' probabilities, of the shape and the type of x."""
    target, weights, column = node.inputs[1], node.input(2), graph.ints([1])
    one, none = graph.number(1.0, x), graph.number(0.0, x)
    ignored = node.attribute("ignore_index")
    kept = ""
    if ignored is not None:
        number = graph.op("CastLike", graph.op("Constant", value_int=ignored), target)
        kept = graph.op("Not", graph.op("Equal", target, number))
        # What is ignored may be no class at all; class 0 stands for it, with weight 0.
        target = graph.op("Where", kept, target, graph.op("Sub", number, number))
    classes = graph.op("Cast", target, to=onnx.TensorProto.INT64)
    share = graph.op("Gather", weights, classes) if weights else graph.op("Expand", one, graph.op("Shape", target))
    share = graph.op("Where", kept, share, none) if kept else share
    reduction = node.attribute("reduction", "mean")
    each = graph.op("Mul", graph.op("Neg", dy), share)
    if reduction == "mean":
        each = graph.op("Div", each, graph.op("ReduceSum", share, keepdims=0))
    places, parts = graph.op("Unsqueeze", classes, column), graph.op("Unsqueeze", each, column)
    return graph.op("ScatterElements", graph.zeros(x), places, parts, axis=1)
