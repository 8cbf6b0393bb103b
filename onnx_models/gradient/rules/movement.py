"""Rules of operators that join, split, select or accumulate elements."""

from __future__ import annotations

from onnx_models.gradient.broadcast import sum_to
from onnx_models.gradient.graph import Expr, Graph, Node
from onnx_models.gradient.rules.registry import Gradients, Incoming, multi_output_rule, rule
from onnx_models.tools.nodes import downcast, upcast


@rule("Concat")
def concat(graph: Graph, node: Node, dy: str) -> Gradients:
    """Tensors one after the other along an axis."""
    axis = node.attribute("axis")
    shapes = [graph.lengths(x) for x in node.inputs]
    known = [length for shape in shapes if shape and isinstance(length := shape[axis], int)]
    if len(known) == len(shapes):
        split = graph.ints(known)
    else:
        end = None if axis == -1 else axis + 1
        split = graph.op("Concat", *(graph.shape(x, axis, end) for x in node.inputs), axis=0)
    return graph.ops("Split", dy, split, outputs=len(node.inputs), axis=axis)


@multi_output_rule("Split")
def split(graph: Graph, node: Node, incoming: Incoming) -> Gradients:
    """Parts of a tensor along an axis; a part that the loss does not depend on has a gradient of 0."""
    parts = [part or graph.zeros(name) for part, name in zip(incoming, node.outputs, strict=True)]
    return [graph.op("Concat", *parts, axis=node.attribute("axis", 0))]


@rule("Where")
def where(graph: Graph, node: Node, dy: str) -> Gradients:
    """Elements of a where the condition holds, else of b; all three broadcast."""
    condition, a, b = node.inputs
    output = node.outputs[0]
    da = db = None
    if node.wants(1):
        da = sum_to(graph, graph.masks.selected(condition, dy, a), a, output)
    if node.wants(2):
        db = sum_to(graph, graph.masks.selected(graph.op("Not", condition), dy, b), b, output)
    return [None, da, db]


@rule("CenterCropPad")
def center_crop_pad(graph: Graph, node: Node, dy: str) -> Gradients:
    """The centre of a tensor, or padding with zeros, along some axes; the gradient restores the lengths of x."""
    x, axes = node.input(0), node.attribute("axes")
    if axes is None:
        return [graph.op("CenterCropPad", dy, graph.shape(x))]
    return [graph.op("CenterCropPad", dy, graph.op("Gather", graph.op("Shape", x), graph.ints(axes)), axes=axes)]


@rule("Col2Im")
def col2im(graph: Graph, node: Node, dy: str) -> Gradients:
    """Blocks added up at their positions in an image: the gradient gathers dy at these.

    This is the derivative of the operator in the specification. With dilations and another number of axes than two, ONNX
    Runtime (1.31 at least) puts the blocks elsewhere.
    """
    x, image, block = node.inputs
    known = graph.lengths(image) or graph.lengths(block) or [None]
    rank = known[0] if isinstance(known[0], int) else graph.rank(node.outputs[0], node) - 2
    strides, dilations = (node.attribute(name) or [1] * rank for name in ("strides", "dilations"))
    pads = node.attribute("pads") or [0] * 2 * rank
    around = graph.op("Pad", dy, graph.ints([0, 0, *pads[:rank], 0, 0, *pads[rank:]])) if any(pads) else dy
    one = graph.integer(1)
    for number, (stride, dilation) in enumerate(zip(strides, dilations, strict=True)):
        here = graph.integer(number)
        length, cells = graph.op("Gather", image, here), graph.op("Gather", block, here)
        more, step, jump = map(graph.integer, (pads[number] + pads[rank + number], stride, dilation))
        reach = graph.op("Add", graph.op("Mul", graph.op("Sub", cells, one), jump), one)
        moves = graph.op("Div", graph.op("Sub", graph.op("Add", length, more), reach), step)
        starts = graph.op("Mul", graph.counted(graph.op("Add", moves, one)), step)
        inside = graph.op("Mul", graph.counted(cells), jump)
        places = graph.op("Add", graph.op("Unsqueeze", inside, graph.ints([1])), starts)
        around = graph.op("Gather", around, places, axis=2 + 2 * number)  # its axis becomes two
    order = [0, 1, *range(2, 2 + 2 * rank, 2), *range(3, 3 + 2 * rank, 2)]
    return [graph.reshaped(graph.op("Transpose", around, perm=order), x)]


@rule("CumProd")
def cumulative_product(graph: Graph, node: Node, dy: str) -> Gradients:
    """Cumulative products along an axis: dx is the cumulative sum from the end of dy times the product of the other factors.

    That product is the cumulative product divided by the factor. The first 0 along the axis is left out of it and multiplied
    again for the other factors, so the second derivative is right too, unless several factors are 0. Half precision is
    computed in float32.
    """
    x, axis = node.inputs
    exclusive, reverse = node.attribute("exclusive", 0), node.attribute("reverse", 0)
    wide = upcast(graph, x)
    factors, by_products = Expr(graph, wide, wide), Expr(graph, upcast(graph, dy), wide)

    def so_far(operator: str, terms: Expr, *, without: int = exclusive, back: int = reverse) -> Expr:
        return Expr(graph, graph.op(operator, terms.name, axis, exclusive=without, reverse=back), terms.kind)

    is_zero = factors.op("Equal", 0.0)
    zeros = so_far("CumSum", is_zero.op("CastLike", factors), without=0)
    is_first = is_zero.op("And", zeros.op("Equal", 1.0))
    others = so_far("CumProd", factors.of(1.0).where(is_first, factors))
    first = so_far("CumSum", factors.where(is_first, 0.0))
    is_behind = so_far("CumSum", is_first.op("CastLike", factors)) > 0.0
    whole, left = (
        so_far("CumSum", by_products * terms, back=1 - reverse)
        for terms in (others * first.where(is_behind, 1.0), others)
    )
    dx = left.where(is_first, whole / factors.of(1.0).where(is_zero, factors))
    return [downcast(graph, dx.name, x)]
