# SPDX-License-Identifier: MIT
"""Rules of operators that gather elements of a tensor, and of operators that scatter to a tensor.

Most gathering operators share one rule: the operator is applied to the indices of the input's elements, which gives for
each element of the output the index that it came from; the gradients are added at these indices. ScatterElements adds
them, because ScatterND in ONNX Runtime (1.31 at least) adds from several threads without locks and loses terms.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from onnx_models.gradient.graph import Expr, GradientGraph, Node
from onnx_models.gradient.registry import Gradients, rule
from onnx_models.gradient.rules.reduce import product_of_others
from onnx_models.tools.nodes import HALF, downcast, upcast


@rule("GatherElements")
def gather_elements(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """Elements along an axis, each any number of times."""
    x, indices = node.inputs
    wide = upcast(graph, dy)
    zeros = graph.op("Expand", graph.number(0.0, wide), graph.shape(x))
    axis = node.attribute("axis", 0)
    return [downcast(graph, graph.op("ScatterElements", zeros, indices, wide, axis=axis, reduction="add"), x)]


@rule("Compress", "GatherND")
def gathered(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """Elements of a tensor, each any number of times."""
    x = node.inputs[0]
    places = graph.replay(node, element_indices(graph, x), *node.inputs[1:])
    return [scatter_added(graph, x, places, dy)]


@rule("Slice")
def part(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """A part of a tensor: dy padded with zeros if the steps are 1 and the bounds are known."""
    x, starts, ends, axes, steps = (node.input(i) for i in range(5))
    first, last, along, by = (graph.constant(name) if name else None for name in (starts, ends, axes, steps))
    lengths = graph.lengths(x)
    if first is None or last is None or (axes and along is None) or (steps and (by is None or (by != 1).any())):
        return gathered(graph, node, dy)
    if lengths is None or not _is_padded(graph, x):
        return gathered(graph, node, dy)
    begins, rests = [0] * len(lengths), [0] * len(lengths)
    for place, start, end in zip(range(first.size) if along is None else along, first, last, strict=True):
        length = lengths[place]
        if not isinstance(length, int):
            return gathered(graph, node, dy)
        a, b, _ = slice(int(start), int(end)).indices(length)
        begins[place], rests[place] = a, length - max(a, b)
    return [graph.op("Pad", dy, graph.ints([*begins, *rests]))]


@rule("Gather")
def gather(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """Slices of a tensor along an axis, each any number of times; for a single constant index, dy padded with zeros."""
    x, axis = node.input(0), node.attribute("axis", 0)
    index, lengths = graph.constant(node.input(1)), graph.lengths(x)
    if index is None or index.size != 1 or index.ndim > 1 or not lengths or not _is_padded(graph, x):
        return gathered(graph, node, dy)
    axis %= len(lengths)
    place, length, at = graph.ints([axis]), graph.shape(x, axis, axis + 1), int(index.item())
    begin = graph.ints([at]) if at >= 0 else graph.op("Add", length, graph.ints([at]))
    end = graph.op("Sub", graph.op("Sub", length, begin), graph.ints([1]))
    before, after = graph.ints([0] * axis), graph.ints([0] * (len(lengths) - axis - 1))
    slices = dy if index.ndim else graph.op("Unsqueeze", dy, place)
    # Without the input axes: ONNX Runtime (1.31 at least) gives wrong results when it moves a Transpose past such a Pad.
    return [graph.op("Pad", slices, graph.op("Concat", before, begin, after, before, end, after, axis=0))]


def _is_padded(graph: GradientGraph, x: str) -> bool:
    """Whether ONNX Runtime's CPU has Pad for the type of x."""
    return graph.element_type(x) in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)


@rule("Pad")
def pad(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """A tensor with a border of a constant or of its own elements; negative pads crop."""
    if node.attribute("mode", "constant") != "constant":
        return gathered(graph, node, dy)
    x, pads, value, axes = (node.input(i) for i in range(4))
    dx = graph.op("Pad", dy, graph.op("Neg", pads), "", axes) if node.wants(0) else None
    if not node.wants(2):
        return [dx]
    inside = graph.op("Expand", graph.number(0.0, x), graph.shape(x))
    border = graph.replay(node, inside, pads, graph.number(1.0, x), axes)
    total = graph.op("ReduceSum", graph.op("Mul", dy, border), keepdims=0)
    return [dx, None, graph.reshaped(total, value)]


@rule("ScatterElements")
def scatter_elements(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """A tensor with elements replaced by updates, or combined with them by a sum, product, maximum or minimum."""
    indices, axis = node.inputs[1], node.attribute("axis", 0)
    if node.attribute("reduction", "none") in ("none", "add"):
        return _written(graph, node, dy, graph.op("GatherElements", dy, indices, axis=axis))
    places = graph.op("GatherElements", element_indices(graph, node.inputs[0]), indices, axis=axis)
    return _reduced(graph, node, dy, places)


@rule("ScatterND")
def scatter_nd(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """A tensor with slices replaced by updates, or combined with them as in ScatterElements."""
    if node.attribute("reduction", "none") in ("none", "add"):
        return _written(graph, node, dy, graph.op("GatherND", dy, node.inputs[1]))
    return _reduced(graph, node, dy, graph.op("GatherND", element_indices(graph, node.inputs[0]), node.inputs[1]))


def _written(graph: GradientGraph, node: Node, dy: str, by_updates: str) -> Gradients:
    _, indices, updates = node.inputs
    if node.attribute("reduction", "none") == "add":
        return [dy, None, by_updates]
    return [graph.replay(node, dy, indices, graph.zeros(updates)), None, by_updates]


def _reduced(graph: GradientGraph, node: Node, dy: str, places: str) -> Gradients:
    """The gradients of products, maxima and minima of x and the updates; `places` are flat indices of the updates in x.

    As in PyTorch's scatter_reduce, equal maxima or minima share the gradient equally, and the gradient of a factor is the
    product of the others, zeros included. Half precision is computed in float32.
    """
    x, updates = node.inputs[0], node.inputs[2]
    lines = [graph.flat(upcast(graph, name)) for name in (x, updates, dy)]
    data, values, gradient = (Expr(graph, name, lines[0]) for name in lines)
    reduction = node.attribute("reduction")
    joined = _product if reduction == "mul" else _extreme
    parts = joined(_Places(graph, graph.flat(places), reduction), data, values, gradient)
    dx, by_updates = (downcast(graph, part.name, x) for part in parts)
    return [graph.reshaped(dx, x), None, graph.reshaped(by_updates, updates)]


@dataclass(frozen=True)
class _Places:
    """A reduction of values into a flat tensor: the index of each value, and ONNX's name of the reduction."""

    graph: GradientGraph
    numbers: str
    reduction: str

    def of(self, line: Expr) -> Expr:
        """The elements of a flat tensor at the index of each value."""
        return line.op("Gather", Expr(self.graph, self.numbers, line.kind))

    def joined(self, line: Expr, values: Expr, reduction: str) -> Expr:
        """A flat tensor with values reduced into it."""
        name = self.graph.op("ScatterElements", line.name, self.numbers, values.name, axis=0, reduction=reduction)
        return Expr(self.graph, name, line.kind)

    def filled(self, like: Expr, value: float) -> Expr:
        """A flat tensor of one value, as long as another."""
        name = self.graph.op("Expand", like.of(value).name, self.graph.shape(like.name))
        return Expr(self.graph, name, like.kind)


def _product(places: _Places, data: Expr, values: Expr, dy: Expr) -> tuple[Expr, Expr]:
    others = product_of_others(
        values,
        lambda factors: places.of(places.joined(data, factors, "mul")),
        lambda terms: places.of(places.joined(places.filled(data, 0.0), terms, "add")),
    )
    return dy * places.joined(places.filled(data, 1.0), values, "mul"), places.of(dy) * others


def _extreme(places: _Places, data: Expr, values: Expr, dy: Expr) -> tuple[Expr, Expr]:
    joined = places.joined(data, values, places.reduction)
    is_data, is_value = data.op("Equal", joined), values.op("Equal", places.of(joined))
    equal = places.joined(places.filled(data, 0.0), is_value.op("CastLike", data), "add")
    share = dy / (is_data.op("CastLike", data) + equal)
    return share.where(is_data, 0.0), places.of(share).where(is_value, 0.0)


@rule("TensorScatter")
def tensor_scatter(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """A cache with updates written at each sample's indices: found as in `gathered`, with the index -1 for old elements."""
    cache, update, places = (node.input(i) for i in range(3))
    old = graph.op("Expand", graph.integer(-1), graph.shape(cache))
    numbers = graph.replay(node, old, element_indices(graph, update), places)
    is_new = graph.op("GreaterOrEqual", numbers, graph.integer(0))
    by_cache = graph.masked(graph.op("Not", is_new), dy, cache) if node.wants(0) else None
    if not node.wants(1):
        return [by_cache]
    chosen = graph.op("Max", numbers, graph.integer(0))
    return [by_cache, scatter_added(graph, update, chosen, graph.masked(is_new, dy, update))]


@rule("Unique")
def unique(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """The unique elements or slices: dy goes to the first of equal ones, at the output `indices`."""
    x, axis = node.inputs[0], node.attribute("axis")
    indices = node.output(1) or graph.ops("Unique", x, outputs=2, **node.attributes)[1]
    numbers = element_indices(graph, x)
    if axis is None:
        numbers = graph.flat(numbers)
    return [scatter_added(graph, x, graph.op("Gather", numbers, indices, axis=axis or 0), dy)]


def element_indices(graph: GradientGraph, x: str) -> str:
    """The flat index of each element of a tensor, in the shape of the tensor."""
    return graph.reshaped(graph.counted(graph.op("Size", x)), x)


def scatter_added(graph: GradientGraph, x: str, places: str, values: str) -> str:
    """Zeros in the shape of x with values added at flat indices `places`.

    float16 and bfloat16 are added in float32: ONNX Runtime's CPU has no ScatterElements with add for these.
    """
    flat_places, flat_values = map(graph.flat, (places, upcast(graph, values)))
    zero = graph.op("Constant", value_float=0.0) if graph.element_type(x) in HALF else graph.number(0.0, x)
    flat_zeros = graph.op("Expand", zero, graph.flat(graph.op("Size", x)))
    added = graph.op("ScatterElements", flat_zeros, flat_places, flat_values, axis=0, reduction="add")
    return graph.reshaped(downcast(graph, added, x), x)
