"""Rules of functions of one real number, element by element: each is its derivative, written as a formula."""

from __future__ import annotations

import math
from collections.abc import Callable

from onnx_models.gradient.graph import Graph, Node
from onnx_models.gradient.rules.norms import is_norm
from onnx_models.gradient.rules.table import Gradients, rule
from onnx_models.gradient.terms import Term

Slope = Callable[[Node, Term, Term], Term]
"""The derivative of a node's function, from the node, its input x and its output y = f(x)."""


def slope(operator: str) -> Callable[[Slope], Slope]:
    """Enter a function as the derivative of an operator: the gradient is multiplied by it, as `Graph.masked_again` says."""

    def enter(function: Slope) -> Slope:
        @rule(operator)
        def multiplied(graph: Graph, node: Node, dy: str) -> Gradients:
            x = node.inputs[0]
            derivative = function(node, Term(graph, x, x), Term(graph, node.outputs[0], x))
            return [graph.masked_again(graph.op("Mul", dy, derivative.name), dy, x)]

        return function

    return enter


@slope("Sqrt")
def sqrt(node: Node, _x: Term, y: Term) -> Term:
    """Square root; infinite at 0, but for a norm (`norms`)."""
    infinite = 0.5 / y
    return y.of(0.0).where(y.op("Equal", 0.0), infinite) if is_norm(y.graph, node.inputs[0], 0.5) else infinite


@slope("Exp")
def exp(_node: Node, _x: Term, y: Term) -> Term:
    """The exponential function."""
    return y


@slope("Log")
def log(_node: Node, x: Term, _y: Term) -> Term:
    """The natural logarithm."""
    return 1 / x


@slope("Abs")
def absolute(_node: Node, x: Term, _y: Term) -> Term:
    """The absolute value; 0 at 0."""
    return x.op("Sign")


@slope("Reciprocal")
def reciprocal(_node: Node, _x: Term, y: Term) -> Term:
    """1/x."""
    return -(y * y)


@slope("Sin")
def sin(_node: Node, x: Term, _y: Term) -> Term:
    """The sine."""
    return x.op("Cos")


@slope("Cos")
def cos(_node: Node, x: Term, _y: Term) -> Term:
    """The cosine."""
    return -x.op("Sin")


@slope("Tan")
def tan(_node: Node, _x: Term, y: Term) -> Term:
    """The tangent."""
    return 1 + y * y


@slope("Asin")
def asin(_node: Node, x: Term, _y: Term) -> Term:
    """The inverse sine."""
    return 1 / (1 - x * x).op("Sqrt")


@slope("Acos")
def acos(_node: Node, x: Term, _y: Term) -> Term:
    """The inverse cosine."""
    return -1 / (1 - x * x).op("Sqrt")


@slope("Atan")
def atan(_node: Node, x: Term, _y: Term) -> Term:
    """The inverse tangent."""
    return 1 / (1 + x * x)


@slope("Sinh")
def sinh(_node: Node, x: Term, _y: Term) -> Term:
    """The hyperbolic sine."""
    return x.op("Cosh")


@slope("Cosh")
def cosh(_node: Node, x: Term, _y: Term) -> Term:
    """The hyperbolic cosine."""
    return x.op("Sinh")


@slope("Tanh")
def tanh(_node: Node, _x: Term, y: Term) -> Term:
    """The hyperbolic tangent."""
    return 1 - y * y


@slope("Asinh")
def asinh(_node: Node, x: Term, _y: Term) -> Term:
    """The inverse hyperbolic sine."""
    return 1 / (x * x + 1).op("Sqrt")


@slope("Acosh")
def acosh(_node: Node, x: Term, _y: Term) -> Term:
    """The inverse hyperbolic cosine."""
    return 1 / (x * x - 1).op("Sqrt")


@slope("Atanh")
def atanh(_node: Node, x: Term, _y: Term) -> Term:
    """The inverse hyperbolic tangent."""
    return 1 / (1 - x * x)


@slope("Erf")
def erf(_node: Node, x: Term, _y: Term) -> Term:
    """The error function."""
    return 2 / math.sqrt(math.pi) * (-(x * x)).op("Exp")


@slope("Sigmoid")
def sigmoid(_node: Node, _x: Term, y: Term) -> Term:
    """The logistic function."""
    return y * (1 - y)
