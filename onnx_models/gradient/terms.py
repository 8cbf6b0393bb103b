"""Formulas as they are written: operators between tensors that add nodes to a graph."""

from __future__ import annotations

from onnx_models.gradient.graph import Graph


class Term:
    """A tensor in a formula; between it and numbers, which become constants of its element type, + - * / < > add nodes.

    graph: where nodes are added. name: of the tensor. like: name of a tensor of the model of the same element type.
    """

    def __init__(self, graph: Graph, name: str, like: str) -> None:
        self.graph, self.name, self.like = graph, name, like

    def op(self, op_type: str, *others: Term | float) -> Term:
        """The result of an operator whose first input is this tensor."""
        names = [self.of(other).name for other in others]
        return Term(self.graph, self.graph.op(op_type, self.name, *names), self.like)

    def of(self, value: Term | float) -> Term:
        """A term as it is, a number as a constant."""
        return value if isinstance(value, Term) else Term(self.graph, self.graph.number(value, self.like), self.like)

    def where(self, condition: Term, other: Term | float) -> Term:
        """This tensor where the condition holds, the other elsewhere."""
        return condition.op("Where", self, self.of(other))

    def __add__(self, other: Term | float) -> Term:
        return self.op("Add", other)

    def __radd__(self, other: float) -> Term:
        return self.of(other) + self

    def __sub__(self, other: Term | float) -> Term:
        return self.op("Sub", other)

    def __rsub__(self, other: float) -> Term:
        return self.of(other) - self

    def __mul__(self, other: Term | float) -> Term:
        return self.op("Mul", other)

    def __rmul__(self, other: float) -> Term:
        return self.of(other) * self

    def __truediv__(self, other: Term | float) -> Term:
        return self.op("Div", other)

    def __rtruediv__(self, other: float) -> Term:
        return self.of(other) / self

    def __neg__(self) -> Term:
        return self.op("Neg")

    def __gt__(self, other: Term | float) -> Term:
        return self.op("Greater", other)

    def __lt__(self, other: Term | float) -> Term:
        return self.op("Less", other)
