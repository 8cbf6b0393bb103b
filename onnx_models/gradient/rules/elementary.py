"""Rules of elementwise functions of one variable, each given by its derivative."""

from __future__ import annotations

import math
from collections.abc import Callable

from onnx_models.gradient.expression import Expr
from onnx_models.gradient.graph import Graph, Node
from onnx_models.gradient.rules.norms import is_norm
from onnx_models.gradient.rules.registry import Gradients, rule

Derivative = Callable[[Node, Expr, Expr], Expr]
"""The derivative f'(x) of a node's function, from the node, its input x and its output y = f(x)."""


def derivative(operator: str) -> Callable[[Derivative], Derivative]:
    """Register a function as the derivative of an operator: the rule multiplies dy by it, see `Graph.remasked`."""

    def enter(function: Derivative) -> Derivative:
        @rule(operator)
        def multiplied(graph: Graph, node: Node, dy: str) -> Gradients:
            x = node.inputs[0]
            factor = function(node, Expr(graph, x, x), Expr(graph, node.outputs[0], x))
            return [graph.remasked(graph.op("Mul", dy, factor.name), dy, x)]

        return function

    return enter


@derivative("Sqrt")
def sqrt(node: Node, _x: Expr, y: Expr) -> Expr:
    """Square root; the derivative at 0 is infinite, or 0 if y is a norm (`norms`)."""
    infinite = 0.5 / y
    return y.of(0.0).where(y.op("Equal", 0.0), infinite) if is_norm(y.graph, node.inputs[0], 0.5) else infinite


@derivative("Exp")
def exp(_node: Node, _x: Expr, y: Expr) -> Expr:
    """The exponential function."""
    return y


@derivative("Log")
def log(_node: Node, x: Expr, _y: Expr) -> Expr:
    """The natural logarithm."""
    return 1 / x


@derivative("Abs")
def absolute(_node: Node, x: Expr, _y: Expr) -> Expr:
    """The absolute value; the derivative at 0 is 0."""
    return x.op("Sign")


@derivative("Reciprocal")
def reciprocal(_node: Node, _x: Expr, y: Expr) -> Expr:
    """1/x."""
    return -(y * y)


@derivative("Sin")
def sin(_node: Node, x: Expr, _y: Expr) -> Expr:
    """The sine."""
    return x.op("Cos")


@derivative("Cos")
def cos(_node: Node, x: Expr, _y: Expr) -> Expr:
    """The cosine."""
    return -x.op("Sin")


@derivative("Tan")
def tan(_node: Node, _x: Expr, y: Expr) -> Expr:
    """The tangent."""
    return 1 + y * y


@derivative("Asin")
def asin(_node: Node, x: Expr, _y: Expr) -> Expr:
    """The inverse sine."""
    return 1 / (1 - x * x).op("Sqrt")


@derivative("Acos")
def acos(_node: Node, x: Expr, _y: Expr) -> Expr:
    """The inverse cosine."""
    return -1 / (1 - x * x).op("Sqrt")


@derivative("Atan")
def atan(_node: Node, x: Expr, _y: Expr) -> Expr:
    """The inverse tangent."""
    return 1 / (1 + x * x)


@derivative("Sinh")
def sinh(_node: Node, x: Expr, _y: Expr) -> Expr:
    """The hyperbolic sine."""
    return x.op("Cosh")


@derivative("Cosh")
def cosh(_node: Node, x: Expr, _y: Expr) -> Expr:
    """The hyperbolic cosine."""
    return x.op("Sinh")


@derivative("Tanh")
def tanh(_node: Node, _x: Expr, y: Expr) -> Expr:
    """The hyperbolic tangent."""
    return 1 - y * y


@derivative("Asinh")
def asinh(_node: Node, x: Expr, _y: Expr) -> Expr:
    """The inverse hyperbolic sine."""
    return 1 / (x * x + 1).op("Sqrt")


@derivative("Acosh")
def acosh(_node: Node, x: Expr, _y: Expr) -> Expr:
    """The inverse hyperbolic cosine."""
    return 1 / (x * x - 1).op("Sqrt")


@derivative("Atanh")
def atanh(_node: Node, x: Expr, _y: Expr) -> Expr:
    """The inverse hyperbolic tangent."""
    return 1 / (1 - x * x)


@derivative("Erf")
def erf(_node: Node, x: Expr, _y: Expr) -> Expr:
    """The error function."""
    return 2 / math.sqrt(math.pi) * (-(x * x)).op("Exp")


@derivative("Sigmoid")
def sigmoid(_node: Node, _x: Expr, y: Expr) -> Expr:
    """The logistic function."""
    return y * (1 - y)
