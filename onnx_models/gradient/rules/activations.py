"""Rules of activations that need more than a derivative (`elementary`).

At a kink the derivative is the one from the left, except that HardSigmoid has 0 there.
"""

from __future__ import annotations

from onnx_models.gradient.broadcast import sum_to
from onnx_models.gradient.graph import Graph, Node
from onnx_models.gradient.rules.registry import Gradients, rule


@rule("Relu")
def relu(graph: Graph, node: Node, dy: str) -> Gradients:
    """max(x, 0); the derivative is 0 at 0, and 1 where x is NaN, as in PyTorch."""
    x = node.inputs[0]
    zero = graph.number(0.0, x)
    return [graph.keep_masks(graph.op("Where", graph.op("LessOrEqual", x, zero), zero, dy), dy)]


@rule("ThresholdedRelu")
def thresholded_relu(graph: Graph, node: Node, dy: str) -> Gradients:
    """The function x if x > alpha, else 0."""
    x = node.inputs[0]
    return [graph.masked(graph.op("Greater", x, graph.number(node.attribute("alpha", 1.0), x)), dy, x)]


@rule("PRelu")
def prelu(graph: Graph, node: Node, dy: str) -> Gradients:
    """The function x if x > 0, else slope*x; the slope is broadcast to the shape of x."""
    x, alpha = node.inputs
    positive = graph.op("Greater", x, graph.number(0.0, x))
    dx = graph.op("Where", positive, dy, graph.op("Mul", dy, alpha)) if node.wants(0) else None
    if not node.wants(1):
        return [dx]
    product = graph.masked(graph.op("Not", positive), graph.op("Mul", dy, x), x)
    return [dx, sum_to(graph, product, alpha, node.outputs[0])]


@rule("HardSigmoid")
def hard_sigmoid(graph: Graph, node: Node, dy: str) -> Gradients:
    """alpha*x + beta, clamped to [0, 1]; the derivative is 0 at both bounds."""
    x, y = node.inputs[0], node.outputs[0]
    inside = graph.op("And", graph.op("Greater", y, graph.number(0.0, x)), graph.op("Less", y, graph.number(1.0, x)))
    return [graph.masked(inside, graph.op("Mul", dy, graph.number(node.attribute("alpha", 0.2), x)), x)]


@rule("Softmax")
def softmax(graph: Graph, node: Node, dy: str) -> Gradients:
    """exp(x)/sum(exp(x)): y*(dy - sum(dy*y)); 0 for a row of -inf if Where replaces it, as in attention."""
    y = graph.without_nan(node.outputs[0], dy, node.inputs[0])
    mean = _sum_along_axis(graph, node, graph.op("Mul", dy, y))
    return [graph.op("Mul", y, graph.op("Sub", dy, mean))]


@rule("LogSoftmax")
def log_softmax(graph: Graph, node: Node, dy: str) -> Gradients:
    """The logarithm of Softmax: dy - exp(y)*sum(dy)."""
    shares = graph.op("Exp", graph.without_nan(node.outputs[0], dy, node.inputs[0]))
    return [graph.op("Sub", dy, graph.op("Mul", shares, _sum_along_axis(graph, node, dy)))]


def _sum_along_axis(graph: Graph, node: Node, name: str) -> str:
    return graph.op("ReduceSum", name, graph.ints([node.attribute("axis", -1)]), keepdims=1)
