# SPDX-License-Identifier: MIT
"""Rules of reductions, of Softmax, and of losses over classes, which lie along axis 1 of their input."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import onnx

from onnx_models.gradient.graph import Expr, GradientGraph, Node
from onnx_models.gradient.registry import Gradients, decomposition, rule
from onnx_models.gradient.rules.elementwise import Formula, Terms

Reduction = Callable[[Expr], Expr]
"""Reduces a tensor with an element for each factor over each product, and broadcasts the result back to the factors."""


def product_of_others(factors: Expr, product: Reduction, total: Reduction) -> Expr:
    """The product of the other factors for each factor; 0 if one of these is 0.

    It is the whole product divided by the factor. Zeros are left out of the product and multiplied again, so that the second
    derivative is right too, unless several factors are 0. `product` and `total` reduce by products and by sums.
    """
    is_zero = factors.op("Equal", 0.0)
    others = factors.of(1.0).where(is_zero, factors)
    zeros, counts = factors.where(is_zero, 0.0), is_zero.op("CastLike", factors)
    without = product(others) / others
    number, left = total(counts) - counts, total(zeros) - zeros
    return without.where(number.op("Equal", 0.0), (without * left).where(number.op("Equal", 1.0), 0.0))


def keepdims_view(graph: GradientGraph, node: Node, *reduced: str) -> list[str]:
    """Tensors in the shape of the output, reshaped to what it would be with keepdims = 1."""
    axes = node.input(1)
    no_op = not axes and node.attribute("noop_with_empty_axes", 0)
    if node.attribute("keepdims", 1) or no_op:
        return list(reduced)
    known = graph.constant(axes) if axes else None
    if known is not None and known.size:
        return [graph.op("Unsqueeze", name, axes) for name in reduced]
    shape = _shape_kept(graph, node, graph.shape(node.input(0)), axes)
    return [graph.in_shape(name, shape) for name in reduced]


def _shape_kept(graph: GradientGraph, node: Node, shape: str, axes: str) -> str:
    lengths = graph.lengths(node.input(0))
    if not axes and lengths is not None:
        return graph.ints([1] * len(lengths))
    rank = graph.op("Shape", shape)
    if not axes:
        return graph.op("Expand", graph.ints([1]), rank)
    axes = _or_all(graph, axes, rank) if not node.attribute("noop_with_empty_axes", 0) else axes
    positive = graph.op("Mod", graph.op("Add", axes, rank), rank)
    ones = graph.op("Expand", graph.ints([1]), graph.op("Shape", positive))
    return graph.op("ScatterElements", shape, positive, ones)


def _or_all(graph: GradientGraph, axes: str, rank: str) -> str:
    """The axes, or all axes if the tensor of axes is empty."""
    lengths = graph.lengths(axes)
    if lengths is not None and len(lengths) == 1 and isinstance(lengths[0], int) and lengths[0] > 0:
        return axes
    every = graph.counted(graph.op("Squeeze", rank))
    none = graph.op("Equal", graph.shape(axes), graph.ints([0]))
    end = graph.op("Where", none, rank, graph.ints([0]))
    return graph.op("Concat", axes, graph.op("Slice", every, graph.ints([0]), end), axis=0)


def _same_reduction(graph: GradientGraph, node: Node, operator: str, name: str) -> str:
    """Another reduction over the axes of a node, with keepdims = 1."""
    noop = node.attribute("noop_with_empty_axes", 0)
    return graph.op(operator, name, node.input(1), keepdims=1, noop_with_empty_axes=noop)


def _mean(n: Terms) -> Expr:
    graph = n.g.graph
    count = graph.op("Max", graph.op("Size", n.y.name), graph.integer(1))
    terms = graph.op("Div", graph.op("Size", n.x.name), count)
    return n.g / n.of(graph.op("CastLike", terms, n.x.name))


REDUCTIONS: Mapping[str, tuple[Formula, Formula | None]] = {
    "ReduceL1": (lambda n: n.g, lambda n: n.x.op("Sign")),  # 0 at 0
    "ReduceL2": (lambda n: n.x.of(0.0).where(n.y.equals(0.0), n.g / n.y), lambda n: n.x),  # 0 where y is, as in PyTorch
    "ReduceLogSum": (lambda n: n.g / n.y.op("Exp"), None),
    "ReduceMean": (_mean, None),
    "ReduceSum": (lambda n: n.g, None),
    "ReduceSumSquare": (lambda n: n.g * 2.0, lambda n: n.x),
}
"""The gradient as a product of two expressions, one in g and y, and one in x (None for 1); see `elementwise`."""


def _by_formulas(share: Formula, factors: Formula | None, graph: GradientGraph, node: Node, dy: str) -> Gradients:
    terms = Terms(node, Expr(graph, dy, node.inputs[0]))
    (shares,) = keepdims_view(graph, node, share(terms).name)
    if factors is None:
        return [graph.op("Expand", shares, graph.shape(node.input(0)))]
    return [graph.op("Mul", shares, factors(terms).name)]


for _operator, _formulas in REDUCTIONS.items():
    rule(_operator)(partial(_by_formulas, *_formulas))


@rule("ReduceLogSumExp")
def reduce_log_sum_exp(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """The logarithm y of the sum of exponentials: dx = dy*exp(x - y)."""
    wide_dy, y = keepdims_view(graph, node, dy, node.outputs[0])
    return [graph.op("Mul", wide_dy, graph.op("Exp", graph.op("Sub", node.input(0), y)))]


@rule("ReduceMax", "ReduceMin")
def reduce_extreme(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """The maximum or minimum; equal ones share the gradient equally, as in PyTorch's amax.

    If it is NaN, no element equals it, and all gradients are NaN: dy divided by 0 times 0.
    """
    x = node.input(0)
    (y,) = keepdims_view(graph, node, node.outputs[0])
    chosen = graph.op("CastLike", graph.op("Equal", x, y), x)
    number = graph.reshaped(_same_reduction(graph, node, "ReduceSum", chosen), dy)
    (share,) = keepdims_view(graph, node, graph.masks.remasked(graph.op("Div", dy, number), dy, x))
    return [graph.op("Mul", share, chosen)]


@rule("ReduceProd")
def reduce_prod(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """The product: dy times the product of the other factors."""
    x = node.input(0)

    def over(operator: str) -> Reduction:
        return lambda term: Expr(graph, _same_reduction(graph, node, operator, term.name), x)

    (share,) = keepdims_view(graph, node, dy)
    return [graph.op("Mul", share, product_of_others(Expr(graph, x, x), over("ReduceProd"), over("ReduceSum")).name)]


@rule("Softmax")
def softmax(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """exp(x)/sum(exp(x)): y*(dy - sum(dy*y)); 0 for a row of -inf if Where replaces it, as in attention."""
    y = graph.masks.without_nan(node.outputs[0], dy, node.inputs[0])
    mean = _sum_along_axis(graph, node, graph.op("Mul", dy, y))
    return [graph.op("Mul", y, graph.op("Sub", dy, mean))]


@rule("LogSoftmax")
def log_softmax(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """The logarithm of Softmax: dy - exp(y)*sum(dy)."""
    shares = graph.op("Exp", graph.masks.without_nan(node.outputs[0], dy, node.inputs[0]))
    return [graph.op("Sub", dy, graph.op("Mul", shares, _sum_along_axis(graph, node, dy)))]


def _sum_along_axis(graph: GradientGraph, node: Node, name: str) -> str:
    return graph.op("ReduceSum", name, graph.ints([node.attribute("axis", -1)]), keepdims=1)


@decomposition("NegativeLogLikelihoodLoss")
def negative_log_likelihood(graph: GradientGraph, node: Node) -> Sequence[str]:
    """The negative of each target's element times the weight of its class; the mean divides by the sum of the weights."""
    return [_loss(graph, node, node.inputs[0])]


@decomposition("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(graph: GradientGraph, node: Node) -> Sequence[str]:
    """NegativeLogLikelihoodLoss of LogSoftmax over the classes, with these logarithms as the second output."""
    logarithms = graph.op("LogSoftmax", node.inputs[0], axis=1)
    return [_loss(graph, node, logarithms), logarithms][: len(node.outputs)]


def _loss(graph: GradientGraph, node: Node, logarithms: str) -> str:
    target, weights, ignored = node.inputs[1], node.input(2), node.attribute("ignore_index")
    kept, column = "", graph.ints([1])
    if ignored is not None:
        number = graph.op("CastLike", graph.integer(ignored), target)
        kept = graph.op("Not", graph.op("Equal", target, number))
        # The ignored index need not be a valid class.
        target = graph.op("Where", kept, target, graph.op("Sub", number, number))
    classes = graph.op("Cast", target, to=onnx.TensorProto.INT64)
    chosen = graph.op("GatherElements", logarithms, graph.op("Unsqueeze", classes, column), axis=1)
    each = graph.op("Neg", graph.op("Squeeze", chosen, column))
    shares = graph.op("Gather", weights, classes) if weights else ""
    if shares:
        each = graph.op("Mul", each, shares)
    if kept:
        shares = shares or graph.op("Expand", graph.number(1.0, each), graph.op("Shape", classes))
        each, shares = (graph.masked(kept, terms, logarithms) for terms in (each, shares))
    reduction = node.attribute("reduction", "mean")
    if reduction == "mean" and not shares:
        return graph.op("ReduceMean", each, keepdims=0)
    total = each if reduction == "none" else graph.op("ReduceSum", each, keepdims=0)
    return total if reduction != "mean" else graph.op("Div", total, graph.op("ReduceSum", shares, keepdims=0))
