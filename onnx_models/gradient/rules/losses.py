"""Rules of losses over classes, which lie along axis 1 of their input."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from onnx_models.gradient.graph import Graph, Node
from onnx_models.gradient.rules.indexing import scatter_added
from onnx_models.gradient.rules.registry import Gradients, Incoming, Part, Zero, multi_output_rule, rule

_NO_WEIGHTS = Zero("the logarithms, the only output that the loss depends on, do not depend on it")


@rule("NegativeLogLikelihoodLoss")
def negative_log_likelihood(graph: Graph, node: Node, dy: str) -> Gradients:
    """The negative of each target's element times the weight of its class; the mean divides by the sum of the weights."""
    logarithms, targets = node.inputs[0], _targets(graph, node)
    by_logarithms = _by_logarithms(graph, node, targets, dy) if node.wants(0) else None
    return [by_logarithms, None, _by_weights(graph, node, targets, dy, logarithms) if node.wants(2) else None]


@multi_output_rule("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(graph: Graph, node: Node, incoming: Incoming) -> Gradients:
    """NegativeLogLikelihoodLoss of LogSoftmax over the classes, with these logarithms as the second output."""
    scores, dy, by_output = node.inputs[0], incoming[0], incoming[1] if len(incoming) > 1 else None
    targets = _targets(graph, node)
    by_scores: Part = None
    by_weights: Part = None
    if node.wants(0):
        by_loss = _by_logarithms(graph, node, targets, dy) if dy is not None else None
        parts = [part for part in (by_loss, by_output) if part is not None]
        whole = graph.op("Sum", *parts) if len(parts) > 1 else parts[0]
        total = graph.op("ReduceSum", whole, graph.ints([1]), keepdims=1)
        by_scores = graph.op("Sub", whole, graph.op("Mul", graph.op("Softmax", scores, axis=1), total))
    if node.wants(2):
        logarithms = node.output(1) or graph.op("LogSoftmax", scores, axis=1)
        by_weights = _NO_WEIGHTS if dy is None else _by_weights(graph, node, targets, dy, logarithms)
    return [by_scores, None, by_weights]


@dataclass(frozen=True)
class _Targets:
    """Tensors in the shape of the targets.

    classes: the classes, int64; 0 for an ignored target. kept: whether each is not ignored; "" if none is.
    shares: the weight of each target, 0 for an ignored one.
    """

    classes: str
    kept: str
    shares: str

    def of_kept(self, graph: Graph, name: str, like: str) -> str:
        """The tensor with 0 for each ignored target, even where it is not finite."""
        return graph.masked(self.kept, name, like) if self.kept else name


def _targets(graph: Graph, node: Node) -> _Targets:
    x, target, weights = node.inputs[0], node.inputs[1], node.input(2)
    ignored = node.attribute("ignore_index")
    kept = ""
    if ignored is not None:
        number = graph.op("CastLike", graph.op("Constant", value_int=ignored), target)
        kept = graph.op("Not", graph.op("Equal", target, number))
        # The ignored index need not be a valid class.
        target = graph.op("Where", kept, target, graph.op("Sub", number, number))
    classes = graph.op("Cast", target, to=onnx.TensorProto.INT64)
    one = graph.number(1.0, x)
    shares = graph.op("Gather", weights, classes) if weights else graph.op("Expand", one, graph.op("Shape", target))
    return _Targets(classes, kept, graph.masked(kept, shares, x) if kept else shares)


def _mean(graph: Graph, node: Node, targets: _Targets, name: str) -> str:
    """The tensor, divided by the sum of all weights if the reduction is mean."""
    if node.attribute("reduction", "mean") != "mean":
        return name
    return graph.op("Div", name, graph.op("ReduceSum", targets.shares, keepdims=0))


def _by_logarithms(graph: Graph, node: Node, targets: _Targets, dy: str) -> str:
    """The gradient with respect to the log-probabilities of the classes."""
    x, column = node.inputs[0], graph.ints([1])
    each = _mean(graph, node, targets, graph.op("Mul", graph.op("Neg", dy), targets.shares))
    each = targets.of_kept(graph, each, x)
    places, parts = graph.op("Unsqueeze", targets.classes, column), graph.op("Unsqueeze", each, column)
    return graph.op("ScatterElements", graph.zeros(x), places, parts, axis=1)


def _by_weights(graph: Graph, node: Node, targets: _Targets, dy: str, logarithms: str) -> str:
    """The gradient with respect to the class weights, which the mean is also divided by."""
    column, weights = graph.ints([1]), node.input(2)
    chosen = graph.op("GatherElements", logarithms, graph.op("Unsqueeze", targets.classes, column), axis=1)
    each = graph.op("Neg", graph.op("Squeeze", chosen, column))
    if node.attribute("reduction", "mean") == "mean":
        each = graph.op("Sub", each, node.outputs[0])
    each = _mean(graph, node, targets, graph.op("Mul", dy, each))
    return scatter_added(graph, weights, targets.classes, targets.of_kept(graph, each, weights))
