"""Rules of elementwise functions of one variable, each given by its derivative.

At a kink the derivative is the one from the left, but Abs has 0 at 0, and HardSwish 1 at 3, as in PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

from onnx_models.gradient.graph import Expr, Graph, Node
from onnx_models.gradient.rules.norms import is_norm
from onnx_models.gradient.rules.registry import Gradients, rule

Derivative = Callable[[Expr, Expr, Node], Expr]
"""The derivative f'(x) of a node's function, from its input x, its output y = f(x) and the node."""


def _sqrt(_x: Expr, y: Expr, node: Node) -> Expr:
    """The derivative at 0 is infinite, or 0 if y is a norm (`norms`)."""
    infinite = 0.5 / y
    return y.of(0.0).where(y.op("Equal", 0.0), infinite) if is_norm(y.graph, node.inputs[0], 0.5) else infinite


def _selu(x: Expr, _y: Expr, node: Node) -> Expr:
    gamma: float = node.attribute("gamma", 1.05070102214813232421875)
    alpha: float = node.attribute("alpha", 1.67326319217681884765625)
    return x.of(gamma).where(x > 0.0, gamma * alpha * x.op("Exp"))


def _softsign(x: Expr, _y: Expr, _node: Node) -> Expr:
    bottom = 1 + x.op("Abs")
    return 1 / (bottom * bottom)


def _gelu(x: Expr, _y: Expr, node: Node) -> Expr:
    """The product of x and the normal distribution function, or its approximation by tanh."""
    if node.attribute("approximate", "none") == "none":
        below = 0.5 * (1 + (x * math.sqrt(0.5)).op("Erf"))
        return below + x * (1 / math.sqrt(2 * math.pi) * (-0.5 * (x * x)).op("Exp"))
    scale, cubic = math.sqrt(2 / math.pi), 0.044715
    square = x * x
    bend = (scale * x * (1 + cubic * square)).op("Tanh")
    return 0.5 * (1 + bend) + 0.5 * x * (1 - bend * bend) * (scale * (1 + 3 * cubic * square))


def _swish(x: Expr, y: Expr, node: Node) -> Expr:
    """The derivative of x*sigmoid(alpha*x)."""
    alpha: float = node.attribute("alpha", 1.0)
    gate = (alpha * x).op("Sigmoid")
    return gate + alpha * y * (1 - gate)


def _mish(x: Expr, _y: Expr, _node: Node) -> Expr:
    """The derivative of x*tanh(softplus(x))."""
    gate = x.op("Softplus").op("Tanh")
    return gate + x * (1 - gate * gate) * x.op("Sigmoid")


DERIVATIVES: Mapping[str, Derivative] = {
    "Abs": lambda x, *_: x.op("Sign"),
    "Acos": lambda x, *_: -1 / (1 - x * x).op("Sqrt"),
    "Acosh": lambda x, *_: 1 / (x * x - 1).op("Sqrt"),
    "Asin": lambda x, *_: 1 / (1 - x * x).op("Sqrt"),
    "Asinh": lambda x, *_: 1 / (x * x + 1).op("Sqrt"),
    "Atan": lambda x, *_: 1 / (1 + x * x),
    "Atanh": lambda x, *_: 1 / (1 - x * x),
    "Celu": lambda x, _, node: x.of(1.0).where(x > 0.0, (x / node.attribute("alpha", 1.0)).op("Exp")),
    "Cos": lambda x, *_: -x.op("Sin"),
    "Cosh": lambda x, *_: x.op("Sinh"),
    "Elu": lambda x, _, node: x.of(1.0).where(x > 0.0, node.attribute("alpha", 1.0) * x.op("Exp")),
    "Erf": lambda x, *_: 2 / math.sqrt(math.pi) * (-(x * x)).op("Exp"),
    "Exp": lambda _, y, __: y,
    "Gelu": _gelu,
    "HardSwish": lambda x, *_: (x / 3.0 + 0.5).where(x > -3.0, 0.0).where(x < 3.0, 1.0),
    "LeakyRelu": lambda x, _, node: x.of(1.0).where(x > 0.0, node.attribute("alpha", 0.01)),
    "Log": lambda x, *_: 1 / x,
    "Mish": _mish,
    "Reciprocal": lambda _, y, __: -(y * y),
    "Selu": _selu,
    "Sigmoid": lambda _, y, __: y * (1 - y),
    "Sin": lambda x, *_: x.op("Cos"),
    "Sinh": lambda x, *_: x.op("Cosh"),
    "Softplus": lambda x, *_: x.op("Sigmoid"),
    "Softsign": _softsign,
    "Sqrt": _sqrt,
    "Swish": _swish,
    "Tan": lambda _, y, __: 1 + y * y,
    "Tanh": lambda _, y, __: 1 - y * y,
}
"""By operator."""


def _multiplied(derivative: Derivative, graph: Graph, node: Node, dy: str) -> Gradients:
    """Multiply dy by the derivative, see `Graph.remasked`."""
    x = node.inputs[0]
    factor = derivative(Expr(graph, x, x), Expr(graph, node.outputs[0], x), node)
    return [graph.remasked(graph.op("Mul", dy, factor.name), dy, x)]


for _operator, _derivative in DERIVATIVES.items():
    rule(_operator)(partial(_multiplied, _derivative))
