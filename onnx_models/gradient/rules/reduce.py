"""Rules of reductions."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_models.gradient.graph import Expr, Graph, Node
from onnx_models.gradient.rules.products import Reduction, product_of_others
from onnx_models.gradient.rules.registry import Gradients, rule


def keepdims_view(graph: Graph, node: Node, *reduced: str) -> list[str]:
    """Tensors in the shape of the output, reshaped to what it would be with keepdims = 1."""
    axes = node.input(1)
    no_op = not axes and node.attribute("noop_with_empty_axes", 0)
    if node.attribute("keepdims", 1) or no_op:
        return list(reduced)
    known = graph.constant(axes) if axes else None
    if known is not None and known.size:
        return [graph.op("Unsqueeze", name, axes) for name in reduced]
    shape = _shape_kept(graph, node, graph.shape(node.input(0)), axes)
    return [graph.op("Reshape", name, shape, allowzero=1) for name in reduced]


def _shape_kept(graph: Graph, node: Node, shape: str, axes: str) -> str:
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


def _or_all(graph: Graph, axes: str, rank: str) -> str:
    """The axes, or all axes if the tensor of axes is empty."""
    lengths = graph.lengths(axes)
    if lengths is not None and len(lengths) == 1 and isinstance(lengths[0], int) and lengths[0] > 0:
        return axes
    zero, one = (graph.op("Constant", value_int=number) for number in (0, 1))
    every = graph.op("Range", zero, graph.op("Squeeze", rank), one)
    none = graph.op("Equal", graph.shape(axes), graph.ints([0]))
    end = graph.op("Where", none, rank, graph.ints([0]))
    return graph.op("Concat", axes, graph.op("Slice", every, graph.ints([0]), end), axis=0)


def _same_reduction(graph: Graph, node: Node, operator: str, name: str) -> str:
    """Another reduction over the axes of a node, with keepdims = 1."""
    noop = node.attribute("noop_with_empty_axes", 0)
    return graph.op(operator, name, node.input(1), keepdims=1, noop_with_empty_axes=noop)


def broadcast_back(graph: Graph, node: Node, share: str) -> Sequence[str]:
    """A tensor in the shape of the output, broadcast to the shape of x."""
    return [graph.op("Expand", *keepdims_view(graph, node, share), graph.shape(node.input(0)))]


def _scaled(graph: Graph, node: Node, share: str, factors: str) -> Sequence[str]:
    """A tensor in the shape of the output times factors in the shape of x."""
    return [graph.op("Mul", *keepdims_view(graph, node, share), factors)]


@rule("ReduceSum")
def reduce_sum(graph: Graph, node: Node, dy: str) -> Gradients:
    """The sum: dy for each element."""
    return broadcast_back(graph, node, dy)


@rule("ReduceMean")
def reduce_mean(graph: Graph, node: Node, dy: str) -> Gradients:
    """The mean: dy divided by the number of elements."""
    x, y = node.input(0), node.outputs[0]
    one = graph.op("Constant", value_int=1)
    terms = graph.op("Div", graph.op("Size", x), graph.op("Max", graph.op("Size", y), one))
    return broadcast_back(graph, node, graph.op("Div", dy, graph.op("CastLike", terms, x)))


@rule("ReduceL1")
def reduce_l1(graph: Graph, node: Node, dy: str) -> Gradients:
    """The sum of absolute values; the derivative at 0 is 0."""
    return _scaled(graph, node, dy, graph.op("Sign", node.input(0)))


@rule("ReduceL2")
def reduce_l2(graph: Graph, node: Node, dy: str) -> Gradients:
    """The square root of the sum of squares; where it is 0, the gradient is 0, as in PyTorch."""
    x, y = node.input(0), node.outputs[0]
    zero = graph.number(0.0, x)
    share = graph.op("Where", graph.op("Equal", y, zero), zero, graph.op("Div", dy, y))
    return _scaled(graph, node, share, x)


@rule("ReduceSumSquare")
def reduce_sum_square(graph: Graph, node: Node, dy: str) -> Gradients:
    """The sum of squares."""
    x = node.input(0)
    return _scaled(graph, node, graph.op("Mul", dy, graph.number(2.0, x)), x)


@rule("ReduceLogSum")
def reduce_log_sum(graph: Graph, node: Node, dy: str) -> Gradients:
    """The logarithm y of the sum, which is exp(y)."""
    return broadcast_back(graph, node, graph.op("Div", dy, graph.op("Exp", node.outputs[0])))


@rule("ReduceLogSumExp")
def reduce_log_sum_exp(graph: Graph, node: Node, dy: str) -> Gradients:
    """The logarithm y of the sum of exponentials: dx = dy*exp(x - y)."""
    wide_dy, y = keepdims_view(graph, node, dy, node.outputs[0])
    return [graph.op("Mul", wide_dy, graph.op("Exp", graph.op("Sub", node.input(0), y)))]


@rule("ReduceMax", "ReduceMin")
def reduce_extreme(graph: Graph, node: Node, dy: str) -> Gradients:
    """The maximum or minimum; equal ones share the gradient equally, as in PyTorch's amax.

    If it is NaN, no element equals it, and all gradients are NaN: dy divided by 0 times 0.
    """
    x = node.input(0)
    (y,) = keepdims_view(graph, node, node.outputs[0])
    chosen = graph.op("CastLike", graph.op("Equal", x, y), x)
    number = graph.reshaped(_same_reduction(graph, node, "ReduceSum", chosen), dy)
    return _scaled(graph, node, graph.remasked(graph.op("Div", dy, number), dy, x), chosen)


@rule("ReduceProd")
def reduce_prod(graph: Graph, node: Node, dy: str) -> Gradients:
    """The product: dy times the product of the other factors."""
    x = node.input(0)

    def over(operator: str) -> Reduction:
        return lambda term: Expr(graph, _same_reduction(graph, node, operator, term.name), x)

    return _scaled(graph, node, dy, product_of_others(Expr(graph, x, x), over("ReduceProd"), over("ReduceSum")).name)
