"""Rules of activations. At a corner of its graph a derivative is the one on the left, but HardSigmoid's is 0 there."""

from __future__ import annotations

import math

from onnx_models.gradient.broadcast import sum_to
from onnx_models.gradient.expression import Expr
from onnx_models.gradient.graph import Graph, Node
from onnx_models.gradient.rules.elementary import derivative
from onnx_models.gradient.rules.registry import Gradients, rule


@rule("Relu")
def relu(graph: Graph, node: Node, dy: str) -> Gradients:
    """max(x, 0); 0 at 0, and 1 where x is NaN, as in PyTorch: y is NaN there, and no 0."""
    x = node.inputs[0]
    zero = graph.number(0.0, x)
    return [graph.keep_masks(graph.op("Where", graph.op("LessOrEqual", x, zero), zero, dy), dy)]


@rule("ThresholdedRelu")
def thresholded_relu(graph: Graph, node: Node, dy: str) -> Gradients:
    """The input above alpha, 0 up to it."""
    x = node.inputs[0]
    return [graph.masked(graph.op("Greater", x, graph.number(node.attribute("alpha", 1.0), x)), dy, x)]


@derivative("LeakyRelu")
def leaky_relu(node: Node, x: Expr, _y: Expr) -> Expr:
    """The input above 0, alpha*x up to it."""
    return x.of(1.0).where(x > 0.0, node.attribute("alpha", 0.01))


@rule("PRelu")
def prelu(graph: Graph, node: Node, dy: str) -> Gradients:
    """The input above 0, slope*x up to it; the slope is broadcast to the shape of x."""
    x, alpha = node.inputs
    positive = graph.op("Greater", x, graph.number(0.0, x))
    by_x = graph.op("Where", positive, dy, graph.op("Mul", dy, alpha)) if node.wants(0) else None
    if not node.wants(1):
        return [by_x]
    product = graph.masked(graph.op("Not", positive), graph.op("Mul", dy, x), x)
    return [by_x, sum_to(graph, product, alpha, node.outputs[0])]


@derivative("Elu")
def elu(node: Node, x: Expr, _y: Expr) -> Expr:
    """The input above 0, alpha*(exp(x) - 1) up to it."""
    return x.of(1.0).where(x > 0.0, node.attribute("alpha", 1.0) * x.op("Exp"))


@derivative("Celu")
def celu(node: Node, x: Expr, _y: Expr) -> Expr:
    """The input above 0, alpha*(exp(x/alpha) - 1) up to it."""
    return x.of(1.0).where(x > 0.0, (x / node.attribute("alpha", 1.0)).op("Exp"))


@derivative("Selu")
def selu(node: Node, x: Expr, _y: Expr) -> Expr:
    """Gamma times this: x above 0, alpha*(exp(x) - 1) up to it."""
    gamma: float = node.attribute("gamma", 1.05070102214813232421875)
    alpha: float = node.attribute("alpha", 1.67326319217681884765625)
    return x.of(gamma).where(x > 0.0, gamma * alpha * x.op("Exp"))


@derivative("Softplus")
def softplus(_node: Node, x: Expr, _y: Expr) -> Expr:
    """log(1 + exp(x))."""
    return x.op("Sigmoid")


@derivative("Softsign")
def softsign(_node: Node, x: Expr, _y: Expr) -> Expr:
    """x/(1 + |x|)."""
    bottom = 1 + x.op("Abs")
    return 1 / (bottom * bottom)


@rule("HardSigmoid")
def hard_sigmoid(graph: Graph, node: Node, dy: str) -> Gradients:
    """alpha*x + beta between 0 and 1; 0 where it is cut off or just reaches that."""
    x, y = node.inputs[0], node.outputs[0]
    inside = graph.op("And", graph.op("Greater", y, graph.number(0.0, x)), graph.op("Less", y, graph.number(1.0, x)))
    return [graph.masked(inside, graph.op("Mul", dy, graph.number(node.attribute("alpha", 0.2), x)), x)]


@derivative("HardSwish")
def hard_swish(_node: Node, x: Expr, _y: Expr) -> Expr:
    """The input times x/6 + 1/2, the latter between 0 and 1; at 3 its slope is 1, as in PyTorch."""
    middle = (x / 3.0 + 0.5).where(x > -3.0, 0.0)
    return middle.where(x < 3.0, 1.0)


@derivative("Gelu")
def gelu(node: Node, x: Expr, _y: Expr) -> Expr:
    """The input times the normal distribution function, or an approximation by tanh of that."""
    if node.attribute("approximate", "none") == "none":
        below = 0.5 * (1 + (x * math.sqrt(0.5)).op("Erf"))
        return below + x * (1 / math.sqrt(2 * math.pi) * (-0.5 * (x * x)).op("Exp"))
    scale, cubic = math.sqrt(2 / math.pi), 0.044715
    square = x * x
    bend = (scale * x * (1 + cubic * square)).op("Tanh")
    return 0.5 * (1 + bend) + 0.5 * x * (1 - bend * bend) * (scale * (1 + 3 * cubic * square))


@derivative("Swish")
def swish(node: Node, x: Expr, y: Expr) -> Expr:
    """x*sigmoid(alpha*x)."""
    alpha: float = node.attribute("alpha", 1.0)
    gate = (alpha * x).op("Sigmoid")
    return gate + alpha * y * (1 - gate)


@derivative("Mish")
def mish(_node: Node, x: Expr, _y: Expr) -> Expr:
    """x*tanh(softplus(x))."""
    gate = x.op("Softplus").op("Tanh")
    return gate + x * (1 - gate * gate) * x.op("Sigmoid")


@rule("Softmax")
def softmax(graph: Graph, node: Node, dy: str) -> Gradients:
    """exp(x) by its sum along an axis: y*(dy - sum of dy*y); 0 for a line of -inf that Where replaces, as in attention."""
    y = graph.without_nan(node.outputs[0], dy, node.inputs[0])
    mean = _sum_along_axis(graph, node, graph.op("Mul", dy, y))
    return [graph.op("Mul", y, graph.op("Sub", dy, mean))]


@rule("LogSoftmax")
def log_softmax(graph: Graph, node: Node, dy: str) -> Gradients:
    """The logarithm of Softmax: dy - exp(y) * sum of dy."""
    shares = graph.op("Exp", graph.without_nan(node.outputs[0], dy, node.inputs[0]))
    return [graph.op("Sub", dy, graph.op("Mul", shares, _sum_along_axis(graph, node, dy)))]


def _sum_along_axis(graph: Graph, node: Node, name: str) -> str:
    return graph.op("ReduceSum", name, graph.ints([node.attribute("axis", -1)]), keepdims=1)
