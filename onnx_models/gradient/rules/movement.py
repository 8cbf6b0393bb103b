# SPDX-License-Identifier: MIT
"""Rules of operators that move elements or join, split, select and accumulate them; of Dropout, Range and OneHot."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

import numpy as np
import onnx

from onnx_models.gradient.graph import Expr, GradientGraph, Node, sum_to
from onnx_models.gradient.registry import REAL, Gradients, Incoming, Zero, multi_output_rule, rule
from onnx_models.tools.nodes import NodeView, downcast, upcast

Adjoint = Callable[[GradientGraph, Node, str], str]
"""Takes the output's gradient and returns the first input's, for operators that are linear in this input."""

ADJOINTS: Mapping[str, Adjoint] = {
    "CumSum": lambda graph, node, dy: graph.op(
        "CumSum", dy, node.inputs[1], exclusive=node.attribute("exclusive", 0), reverse=1 - node.attribute("reverse", 0)
    ),
    "Expand": lambda graph, node, dy: sum_to(graph, dy, node.inputs[0], node.outputs[0]),
    "Flatten": lambda graph, node, dy: graph.reshaped(dy, node.inputs[0]),
    "Identity": lambda _, __, dy: dy,
    "Reshape": lambda graph, node, dy: graph.reshaped(dy, node.inputs[0]),
    "ReverseSequence": lambda graph, node, dy: graph.replay(node, dy, node.inputs[1]),  # its own transpose
    "SpaceToDepth": lambda graph, node, dy: graph.op(
        "DepthToSpace", dy, blocksize=node.attribute("blocksize"), mode=node.attribute("mode", "DCR")
    ),
    "Squeeze": lambda graph, node, dy: graph.reshaped(dy, node.inputs[0]),
    "TopK": lambda graph, node, dy: graph.op(
        "ScatterElements", graph.zeros(node.inputs[0]), node.outputs[1], dy, axis=node.attribute("axis", -1)
    ),
    "Trilu": lambda graph, node, dy: graph.replay(node, dy, *node.inputs[1:]),  # its own transpose
    "Unsqueeze": lambda graph, node, dy: graph.reshaped(dy, node.inputs[0]),
}
"""The adjoints of linear operators, by operator."""


for _operator, _adjoint in ADJOINTS.items():
    rule(_operator)(_adjoint)


@rule("Cast", "CastLike")
def cast(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """Conversion between floating-point types, including those of 8 bits and less.

    The gradient of a tensor of 8 bits or less has type float, and is not rounded.
    """
    x = node.inputs[0]
    kind = graph.element_type(x)
    if kind not in (None, *REAL):
        kind = onnx.TensorProto.FLOAT
    dx = graph.op("CastLike", dy, x) if kind is None else graph.op("Cast", dy, to=kind)
    return [dx, Zero("only its type is read")]


@rule("Dropout")
def dropout(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """A copy; in training a random mask sets elements to 0 and the others are divided by 1 - ratio.

    A node without the output `mask` is replaced by one that has it.
    """
    ratio, training = node.input(1), node.input(2)
    value = graph.constant(training) if training else np.array(False)
    by_ratio = Zero("it only determines the random mask, and the mean of the output does not depend on it")
    if value is not None and not value.any():
        return [dy, by_ratio]
    if not node.wants(0):
        return [None, by_ratio]
    x = node.input(0)
    share = graph.op("CastLike", ratio, x) if ratio else graph.number(0.5, x)
    scale = graph.op("Reciprocal", graph.op("Sub", graph.number(1.0, x), share))
    if value is None:
        scale = graph.op("Where", training, scale, graph.number(1.0, x))
    return [graph.masked(_mask(graph, node), graph.op("Mul", dy, scale), x), by_ratio]


def _mask(graph: GradientGraph, node: Node) -> str:
    """The mask output of a Dropout, or of the node that replaces it."""
    known = graph.producer(node.outputs[0]) or node.proto
    if len(known.output) > 1 and known.output[1]:
        return str(known.output[1])
    name = graph.name("Dropout")
    other = copy.deepcopy(node.proto)
    other.output[:] = [node.outputs[0], name]
    graph.replace(node.proto, [other])
    return name


@rule("Transpose")
def transpose(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """Axis i of the output is axis perm[i] of the input; without perm the axes are reversed."""
    perm = node.attribute("perm")
    if not perm:
        return [graph.op("Transpose", dy)]
    producer = graph.producer(dy)
    is_turned = producer is not None and (producer.domain, producer.op_type) == ("", "Transpose")
    if producer is not None and is_turned and NodeView(producer).attribute("perm") == perm:
        return [producer.input[0]]
    return [graph.op("Transpose", dy, perm=[int(axis) for axis in np.argsort(perm)])]


@rule("Tile")
def tile(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """Repetition: each axis of dy is split into (copies, elements), and summed over the copies."""
    x, repeats = node.inputs
    column = graph.ints([1])
    pairs = graph.op("Concat", *(graph.op("Unsqueeze", n, column) for n in (repeats, graph.shape(x))), axis=1)
    lengths = graph.flat(pairs)
    blocks = graph.in_shape(dy, lengths)
    copies = graph.op("Range", graph.integer(0), graph.op("Size", lengths), graph.integer(2))
    return [graph.op("ReduceSum", blocks, copies, keepdims=0, noop_with_empty_axes=1)]


@rule("DepthToSpace")
def depth_to_space(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """Channels to blocks of blocksize x blocksize; in mode CRD, the channels of a block are adjacent."""
    x, size = node.inputs[0], node.attribute("blocksize")
    deep = graph.op("SpaceToDepth", dy, blocksize=size)
    if node.attribute("mode", "DCR") == "DCR":
        return [deep]
    block = graph.ints([size * size])
    batch, channels, plane = (graph.shape(x, *part) for part in ((0, 1), (1, 2), (2, 4)))
    columns = graph.in_shape(deep, batch, block, graph.op("Div", channels, block), plane)
    return [graph.reshaped(graph.op("Transpose", columns, perm=[0, 2, 1, 3, 4]), x)]


@rule("Concat")
def concat(graph: GradientGraph, node: Node, dy: str) -> Gradients:
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
def split(graph: GradientGraph, node: Node, incoming: Incoming) -> Gradients:
    """Parts of a tensor along an axis; a part that the loss does not depend on has a gradient of 0."""
    parts = [part or graph.zeros(name) for part, name in zip(incoming, node.outputs, strict=True)]
    return [graph.op("Concat", *parts, axis=node.attribute("axis", 0))]


@rule("Where")
def where(graph: GradientGraph, node: Node, dy: str) -> Gradients:
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
def center_crop_pad(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """The centre of a tensor, or padding with zeros, along some axes; the gradient restores the lengths of x."""
    x, axes = node.input(0), node.attribute("axes")
    if axes is None:
        return [graph.op("CenterCropPad", dy, graph.shape(x))]
    return [graph.op("CenterCropPad", dy, graph.op("Gather", graph.op("Shape", x), graph.ints(axes)), axes=axes)]


@rule("Col2Im")
def col2im(graph: GradientGraph, node: Node, dy: str) -> Gradients:
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
def cumulative_product(graph: GradientGraph, node: Node, dy: str) -> Gradients:
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


@rule("Range")
def counted(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """The numbers start + i*delta up to the limit."""
    start, _, delta = node.inputs
    numbers = graph.op("CastLike", graph.counted(graph.op("Size", dy)), dy)
    weighted = graph.op("Mul", dy, numbers)
    by_start, by_delta = (graph.op("ReduceSum", terms, keepdims=0) for terms in (dy, weighted))
    no_steps = Zero("the limit only determines how many numbers there are")
    return [graph.reshaped(by_start, start), no_steps, graph.reshaped(by_delta, delta)]


@rule("OneHot")
def one_hot(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """values[1] at the given indices, and values[0] elsewhere."""
    indices, depth, values = node.inputs
    places = Zero("it is rounded to an index")
    if not node.wants(2):
        return [places, places]
    terms = []
    for chosen in ([1.0, 0.0], [0.0, 1.0]):
        pair = graph.op("CastLike", graph.op("Constant", value_floats=chosen), values)
        mask = graph.replay(node, indices, depth, pair)
        total = graph.op("ReduceSum", graph.op("Mul", dy, mask), keepdims=0)
        terms.append(graph.op("Reshape", total, graph.ints([1])))
    return [places, places, graph.op("Concat", *terms, axis=0)]
