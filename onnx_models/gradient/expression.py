"""Expressions of tensors: Python's operators add nodes to a graph."""

from __future__ import annotations

from onnx_models.gradient.graph import Graph


class Expr:
    """A tensor in an expression: + - * / < > between tensors and numbers add nodes.

    graph: the graph to add nodes to. name: name of the tensor. like: name of a tensor with the element type of constants.
    """

    def __init__(self, graph: Graph, name: str, like: str) -> None:
        self.graph, self.name, self.like = graph, name, like

    def op(self, op_type: str, *others: Expr | float) -> Expr:
        """Add a node whose first input is this tensor, and return its output."""
        names = [self.of(other).name for other in others]
        return Expr(self.graph, self.graph.op(op_type, self.name, *names), self.like)

    def of(self, value: Expr | float) -> Expr:
        """The expression itself, or a number as a constant."""
        return value if isinstance(value, Expr) else Expr(self.graph, self.graph.number(value, self.like), self.like)

    def where(self, condition: Expr, other: Expr | float) -> Expr:
        """This tensor where the condition holds, and the other elsewhere."""
        return condition.op("Where", self, self.of(other))

    def __add__(self, other: Expr | float) -> Expr:
        return self.op("Add", other)

    def __radd__(self, other: float) -> Expr:
        return self.of(other) + self

    def __sub__(self, other: Expr | float) -> Expr:
        return self.op("Sub", other)

    def __rsub__(self, other: float) -> Expr:
        return self.of(other) - self

    def __mul__(self, other: Expr | float) -> Expr:
        return self.op("Mul", other)

    def __rmul__(self, other: float) -> Expr:
        return self.of(other) * self

    def __truediv__(self, other: Expr | float) -> Expr:
        return self.op("Div", other)

    def __rtruediv__(self, other: float) -> Expr:
        return self.of(other) / self

    def __neg__(self) -> Expr:
        return self.op("Neg")

    def __gt__(self, other: Expr | float) -> Expr:
        return self.op("Greater", other)

    def __lt__(self, other: Expr | float) -> Expr:
        return self.op("Less", other)
