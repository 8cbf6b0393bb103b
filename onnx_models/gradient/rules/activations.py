"""Rules of activations. At a kink the derivative is the one from the left, except that HardSigmoid has 0 there."""

from __future__ import annotations

import math

from onnx_models.gradient.broadcast import sum_to
from onnx_models.gradient.expression import Expr
from onnx_models.gradient.graph import Graph, Node
from onnx_models.gradient.rules.elementary import derivative
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


@derivative("LeakyRelu")
def leaky_relu(node: Node, x: Expr, _y: Expr) -> Expr:
    """The function x if x > 0, else alpha*x."""
    return x.of(1.0).where(x > 0.0, node.attribute("alpha", 0.01))


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


@derivative("Elu")
def elu(node: Node, x: Expr, _y: Expr) -> Expr:
    """The function x if x > 0, else alpha*(exp(x) - 1)."""
    return x.of(1.0).where(x > 0.0, node.attribute("alpha", 1.0) * x.op("Exp"))


@derivative("Celu")
def celu(node: Node, x: Expr, _y: Expr) -> Expr:
    """The function x if x > 0, else alpha*(exp(x/alpha) - 1)."""
    return x.of(1.0).where(x > 0.0, (x / node.attribute("alpha", 1.0)).op("Exp"))


@derivative("Selu")
def selu(node: Node, x: Expr, _y: Expr) -> Expr:
    """gamma*x if x > 0, else gamma*alpha*(exp(x) - 1)."""
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
    """alpha*x + beta, clamped to [0, 1]; the derivative is 0 at both bounds."""
    x, y = node.inputs[0], node.outputs[0]
    inside = graph.op("And", graph.op("Greater", y, graph.number(0.0, x)), graph.op("Less", y, graph.number(1.0, x)))
    return [graph.masked(inside, graph.op("Mul", dy, graph.number(node.attribute("alpha", 0.2), x)), x)]


@derivative("HardSwish")
def hard_swish(_node: Node, x: Expr, _y: Expr) -> Expr:
    """x*clamp(x/6 + 1/2, 0, 1); the derivative at 3 is 1, as in PyTorch."""
    middle = (x / 3.0 + 0.5).where(x > -3.0, 0.0)
    return middle.where(x < 3.0, 1.0)


@derivative("Gelu")
def gelu(node: Node, x: Expr, _y: Expr) -> Expr:
    """The product of x and the normal distribution function, or its approximation by tanh."""
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
