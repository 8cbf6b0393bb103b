"""Rules of arithmetic operators; all but Neg broadcast."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnx_models.gradient.broadcast import sum_to
from onnx_models.gradient.graph import Graph, Node
from onnx_models.gradient.rules.norms import constant_number, is_norm
from onnx_models.gradient.rules.registry import Gradients, rule


def _summed(graph: Graph, node: Node, parts: Sequence[str | None]) -> list[str | None]:
    """Gradients in the shape of the output, each summed to the shape of its input."""
    output = node.outputs[0]
    return [None if part is None else sum_to(graph, part, node.input(i), output) for i, part in enumerate(parts)]


@rule("Add", "Mean", "Sum")
def add(graph: Graph, node: Node, dy: str) -> Gradients:
    """The sum or the mean of tensors."""
    if node.proto.op_type == "Mean":
        dy = graph.op("Div", dy, graph.number(len(node.inputs), node.inputs[0]))
    return _summed(graph, node, [dy if node.wants(i) else None for i in range(len(node.inputs))])


@rule("Sub")
def sub(graph: Graph, node: Node, dy: str) -> Gradients:
    """The difference a - b."""
    return _summed(graph, node, [dy if node.wants(0) else None, _negative(graph, dy) if node.wants(1) else None])


@rule("Mul")
def mul(graph: Graph, node: Node, dy: str) -> Gradients:
    """The product a * b."""
    a, b = node.inputs
    da = _times(graph, dy, b) if node.wants(0) else None
    return _summed(graph, node, [da, _times(graph, dy, a) if node.wants(1) else None])


def _times(graph: Graph, dy: str, factor: str) -> str:
    """A gradient times a factor; where a Where masks the gradient it stays 0, even if the factor is infinite."""
    product = graph.op("Mul", dy, factor)
    value = graph.constant(factor)
    is_finite = value is not None and bool(np.isfinite(value.astype(np.float64)).all())
    return graph.keep_masks(product, dy) if is_finite else graph.remasked(product, dy, factor)


def _negative(graph: Graph, dy: str) -> str:
    return graph.keep_masks(graph.op("Neg", dy), dy)


@rule("Div")
def div(graph: Graph, node: Node, dy: str) -> Gradients:
    """The quotient y = a / b: da = dy/b and db = -dy*y/b."""
    b, y = node.inputs[1], node.outputs[0]
    share = graph.op("Div", dy, b)
    db = None
    if node.wants(1):
        db = graph.remasked(graph.op("Neg", graph.op("Mul", share, y)), dy, b)
    return _summed(graph, node, [graph.remasked(share, dy, b) if node.wants(0) else None, db])


@rule("Mod")
def modulo(graph: Graph, node: Node, dy: str) -> Gradients:
    """The remainder y = a - q*b, where q is a/b rounded down, or towards 0 for fmod: da = dy and db = -dy*q.

    Where y jumps, q is taken as computed there, as in PyTorch.
    """
    (a, b), y = node.inputs, node.outputs[0]
    db = None
    if node.wants(1):
        # (a - y)/b is q up to rounding.
        quotient = graph.op("Round", graph.op("Div", graph.op("Sub", a, y), b))
        db = graph.remasked(_negative(graph, graph.op("Mul", dy, quotient)), dy, b)
    return _summed(graph, node, [dy if node.wants(0) else None, db])


@rule("Neg")
def neg(graph: Graph, _node: Node, dy: str) -> Gradients:
    """The negative -a."""
    return [_negative(graph, dy)]


@rule("Pow")
def power(graph: Graph, node: Node, dy: str) -> Gradients:
    """The power y = a^b: da = dy*b*a^(b-1) and db = dy*y*log(a). The exponent may have another type.

    As in PyTorch, da is 0 if b = 0, and infinite if a = 0 and 0 < b < 1, unless y is a norm (`norms`). db is 0 if a = 0 and
    b >= 0: y is 0 or 1 there, and the logarithm infinite.
    """
    a, exponent = node.inputs
    zero = graph.number(0.0, a)
    same = graph.element_type(a) is not None and graph.element_type(a) == graph.element_type(exponent)
    b = exponent if same else graph.op("CastLike", exponent, a)
    da = db = None
    if node.wants(0):
        lower = graph.op("Pow", a, graph.op("Sub", b, graph.number(1.0, a)))
        product = graph.op("Mul", graph.op("Mul", dy, b), lower)
        constant = constant_number(graph, exponent)
        is_flat_at_0 = constant is not None and is_norm(graph, a, constant)
        flat = graph.op("Equal", node.outputs[0], zero) if is_flat_at_0 else graph.op("Equal", b, zero)
        da = graph.remasked(graph.op("Where", flat, zero, product), dy, a)
    if node.wants(1):
        product = graph.op("Mul", graph.op("Mul", dy, node.outputs[0]), graph.op("Log", a))
        flat = graph.op("And", graph.op("Equal", a, zero), graph.op("GreaterOrEqual", b, zero))
        db = graph.remasked(graph.op("Where", flat, zero, product), dy, a)
        db = db if same else graph.op("CastLike", db, exponent)
    return _summed(graph, node, [da, db])


@rule("Max", "Min")
def extreme(graph: Graph, node: Node, dy: str) -> Gradients:
    """The maximum or minimum of any number of tensors; the first of equal ones gets the whole gradient.

    If the result is NaN all inputs get it, as in PyTorch.
    """
    y, rest = node.outputs[0], dy
    passed_over = "Less" if node.proto.op_type == "Max" else "Greater"
    parts: list[str | None] = []
    for i, x in enumerate(node.inputs):
        # Comparisons with NaN are false, so "not less" also selects NaN, which "equal" would not.
        among = graph.op("Not", graph.op(passed_over, x, y)) if node.wants(i) else ""
        parts.append(graph.masked(among, rest, x) if among else None)
        if any(node.wanted[i + 1 :]):
            rest = graph.masked(graph.op("Not", graph.op("Equal", x, y)), rest, x)
    return _summed(graph, node, parts)


@rule("Clip")
def clip(graph: Graph, node: Node, dy: str) -> Gradients:
    """min(max(x, low), high); if x equals a bound, x gets the gradient and the bound gets 0."""
    x, low, high = (node.input(i) for i in range(3))
    lifted = graph.op("Max", x, low) if low else x
    parts: list[str | None] = [dy, None, None]
    if high:
        above = graph.op("Greater", lifted, high)
        parts = [graph.masked(graph.op("Not", above), dy, x), None, graph.masked(above, dy, x)]
    if low:
        below = graph.op("Less", x, low)
        parts[:2] = [graph.masked(graph.op("Not", below), str(parts[0]), x), graph.masked(below, str(parts[0]), x)]
    wanted = [part if node.wants(i) else None for i, part in enumerate(parts)]
    return _summed(graph, node, wanted)
