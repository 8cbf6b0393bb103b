# SPDX-License-Identifier: MIT
"""Operators that interpolate a tensor at computed coordinates: GridSample and DeformConv; and AffineGrid.

The first two are decomposed into weighted sums of pixels. A coordinate has taps along its axis: the pixels around it, with
weights. The pixels that are read are all combinations of the taps of all axes. Differentiated, that scatters the gradient to
these pixels, and the gradient of the coordinates follows from the weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from onnx_models.gradient.graph import Expr, GradientGraph, Node
from onnx_models.gradient.registry import Gradients, decomposition, rule
from onnx_models.tools.nodes import downcast, upcast

_CUBIC = -0.75
"""The coefficient of the cubic kernel of GridSample."""


@dataclass(frozen=True)
class _Axis:
    """A spatial axis.

    length: its number of pixels, in the type of the coordinates. count, last: the same, and one less, as int64.
    """

    length: Expr
    count: str
    last: str


@dataclass(frozen=True)
class _Tap:
    """Names of the int64 index of a pixel along an axis, and of its weight; both [samples, points]."""

    pixel: str
    weight: str


Border = Callable[[Expr, _Axis], Expr]
"""A padding mode: maps coordinates to coordinates inside the tensor."""


@decomposition("GridSample")
def grid_sample(graph: GradientGraph, node: Node) -> Sequence[str]:
    """Interpolation at the points of a grid.

    Derivatives at kinks are those of PyTorch: on a pixel, the one from the right; 0 for a coordinate that is clamped to the
    border, also on the border; 0 with respect to the grid for mode nearest. As in ONNX Runtime, nearest rounds a coordinate
    before it is reflected.
    """
    x, grid = upcast(graph, node.input(0)), node.input(1)
    rank = graph.rank(node.input(0), node) - 2
    if rank < 1:
        raise ValueError(f"{node}: {node.input(0)!r} has rank {rank + 2}: must be 3 or more, with spatial axes")
    mode = str(node.attribute("mode", "linear")).removeprefix("bi")
    padding, align = node.attribute("padding_mode", "zeros"), bool(node.attribute("align_corners", 0))
    if (padding, align) not in _BORDERS:
        raise ValueError(f"{node}: padding_mode = {padding!r}: must be zeros, border or reflection")
    shape = graph.shape(grid)
    outside = graph.op("Slice", shape, graph.ints([1]), graph.ints([-1]))
    points = graph.op("ReduceProd", outside, keepdims=1)
    grid = graph.in_shape(graph.op("CastLike", grid, x), graph.shape(grid, 0, 1), points, rank)
    taps = []
    axes = _axes(graph, node.input(0), x, rank)
    for number, axis in enumerate(axes):
        place = graph.integer(rank - 1 - number)  # x, the last axis, comes first
        at = Expr(graph, graph.op("Gather", grid, place, axis=2), x)
        coordinate = (at + 1) / 2 * (axis.length - 1) if align else ((at + 1) * axis.length - 1) / 2
        taps.append(_grid_taps(coordinate, axis, mode, _BORDERS[padding, align]))
    rows = _sampled(graph, x, axes, taps)
    samples, channels = graph.shape(node.input(0), 0, 1), graph.shape(node.input(0), 1, 2)
    y = graph.in_shape(graph.op("Transpose", rows, perm=[0, 2, 1]), samples, channels, outside)
    return [downcast(graph, y, node.input(0))]


@decomposition("DeformConv")
def deform_conv(graph: GradientGraph, node: Node) -> Sequence[str]:
    """A convolution that interpolates the image at positions moved by offsets, weighted by a mask.

    On a pixel, the derivative with respect to the offset is the one from the right, as in torchvision.
    """
    source, weights, offset, bias, mask = (node.input(i) for i in range(5))
    x = upcast(graph, source)
    rank = graph.rank(source, node) - 2
    if rank < 1:
        raise ValueError(f"{node}: {source!r} has rank {rank + 2}: must be 3 or more, with spatial axes")
    groups = graph.ints([node.attribute("group", 1)])
    parts = graph.ints([node.attribute("offset_group", 1)])  # groups of channels that share offsets
    samples, channels = graph.shape(source, 0, 1), graph.shape(source, 1, 2)
    kernel, out = graph.shape(weights, 2), graph.shape(offset, 2)
    both = graph.op("Mul", samples, parts)
    of_part = graph.op("Div", channels, parts)
    x = graph.in_shape(x, both, of_part, graph.shape(source, 2))
    cells, points = (graph.op("ReduceProd", lengths, keepdims=1) for lengths in (kernel, out))
    listed = graph.joined(both, graph.op("Mul", cells, points))
    offset = graph.in_shape(graph.op("CastLike", offset, x), both, kernel, rank, out)
    axes = _axes(graph, source, x, rank)
    taps = []
    for number, axis in enumerate(axes):
        moved = graph.op("Gather", offset, graph.integer(number), axis=1 + rank)
        at = graph.op("Add", moved, _regular(graph, node, (number, rank), kernel, out, x))
        at = graph.in_shape(at, listed)
        taps.append(_linear(Expr(graph, at, x), axis, _zeros))
    rows = _sampled(graph, x, axes, taps)
    if mask:
        rows = graph.op("Mul", rows, graph.in_shape(graph.op("CastLike", mask, x), listed, 1))
    # One matrix product for each group, over all samples.
    rows = graph.in_shape(rows, samples, parts, cells, points, of_part)
    terms = graph.op("Mul", graph.op("Div", channels, groups), cells)
    columns = graph.op("Transpose", rows, perm=[1, 4, 2, 0, 3])
    image = graph.in_shape(columns, groups, terms, graph.op("Mul", samples, points))
    maps = graph.shape(weights, 0, 1)
    matrix = graph.in_shape(graph.op("CastLike", weights, x), groups, graph.op("Div", maps, groups), terms)
    y = graph.in_shape(graph.op("MatMul", matrix, image), maps, samples, points)
    y = graph.in_shape(graph.op("Transpose", y, perm=[1, 0, 2]), samples, maps, out)
    if bias:
        y = graph.op("Add", y, graph.in_shape(graph.op("CastLike", bias, x), maps, *rank * [1]))
    return [downcast(graph, y, source)]


def _regular(graph: GradientGraph, node: Node, axis: tuple[int, int], kernel: str, out: str, like: str) -> str:
    """The coordinates along an axis without offsets, in a shape that broadcasts to [..., kernel, ..., out]."""
    strides, dilations, pads = (node.attribute(name) for name in ("strides", "dilations", "pads"))
    number, count = axis

    def along(lengths: str, step: int, ones: int) -> str:
        end = graph.op("Gather", lengths, graph.integer(number))
        places = graph.op("Mul", graph.counted(end), graph.integer(step))
        return graph.op("Reshape", places, graph.ints([-1, *[1] * ones]))

    # The kernel's axes precede those of the output: count the axes that follow each.
    weight_gradient = along(kernel, dilations[number] if dilations else 1, 2 * count - 1 - number)
    by_out = along(out, strides[number] if strides else 1, count - 1 - number)
    begin = graph.integer(pads[number] if pads else 0)
    return graph.op("CastLike", graph.op("Sub", graph.op("Add", weight_gradient, by_out), begin), like)


def _axes(graph: GradientGraph, source: str, like: str, rank: int) -> list[_Axis]:
    one = graph.integer(1)
    axes = []
    for number in range(rank):
        count = graph.op("Squeeze", graph.shape(source, 2 + number, 3 + number))
        length = Expr(graph, graph.op("CastLike", count, like), like)
        axes.append(_Axis(length, count, graph.op("Sub", count, one)))
    return axes


def _sampled(graph: GradientGraph, x: str, axes: Sequence[_Axis], taps: Sequence[Sequence[_Tap]]) -> str:
    """The values [samples, points, channels] at points of x [samples, channels, ...]."""
    ends = graph.op("Shape", x, end=2)
    pixels = graph.op("ReduceProd", graph.op("Shape", x, start=2), keepdims=1)
    flat = graph.in_shape(x, ends, pixels)
    rows = graph.op("Transpose", flat, perm=[0, 2, 1])
    last, parts = graph.ints([-1]), []
    for combined in itertools.product(*taps):
        pixel, weight = combined[0].pixel, combined[0].weight
        for axis, tap in zip(axes[1:], combined[1:], strict=True):
            pixel = graph.op("Add", graph.op("Mul", pixel, axis.count), tap.pixel)
            weight = graph.op("Mul", weight, tap.weight)
        # Each combination is weighted separately, so that only one is in memory at a time.
        values = graph.op("GatherND", rows, graph.op("Unsqueeze", pixel, last), batch_dims=1)
        parts.append(graph.op("Mul", values, graph.op("Unsqueeze", weight, last)))
    return graph.total(parts)


def _grid_taps(coordinate: Expr, axis: _Axis, mode: str, border: Border) -> list[_Tap]:
    if mode == "nearest":
        place = border(coordinate.op("Round"), axis)
        return _gathered([place], [place.of(1.0)], axis, border)
    if mode == "linear":
        return _linear(border(coordinate, axis), axis, border)
    first = coordinate.op("Floor")
    shares = [_cubic(coordinate - first, offset) for offset in (-1, 0, 1, 2)]
    return _gathered([border(first + offset, axis) for offset in (-1, 0, 1, 2)], shares, axis, border)


def _linear(coordinate: Expr, axis: _Axis, border: Border) -> list[_Tap]:
    """The taps of linear interpolation: the pixels before and after a coordinate."""
    first = coordinate.op("Floor")
    share = coordinate - first
    return _gathered([first, first + 1], [1 - share, share], axis, border)


def _cubic(share: Expr, offset: int) -> Expr:
    """The cubic weight of the pixel floor(c) + offset for a coordinate c = floor(c) + share."""
    distance = share + 1 if offset < 0 else share if offset == 0 else offset - share
    if offset in (0, 1):
        return ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance * distance + 1
    return ((_CUBIC * distance - 5 * _CUBIC) * distance + 8 * _CUBIC) * distance - 4 * _CUBIC


def _gathered(places: Sequence[Expr], weights: Sequence[Expr], axis: _Axis, border: Border) -> list[_Tap]:
    """The taps of pixels, with weight 0 outside of the tensor."""
    graph, taps = places[0].graph, []
    zero = graph.integer(0)
    for place, weight in zip(places, weights, strict=True):
        share = weight
        if border is _zeros:
            inside = (place > -1).op("And", place < axis.length)
            share = weight.where(inside, 0)
        number = graph.op("Cast", place.name, to=onnx.TensorProto.INT64)
        # Clamp the indices of pixels without weight, and those of NaN coordinates.
        taps.append(_Tap(graph.op("Min", graph.op("Max", number, zero), axis.last), share.name))
    return taps


def _zeros(coordinate: Expr, _axis: _Axis) -> Expr:
    """Padding mode zeros: coordinates stay, and pixels outside get weight 0."""
    return coordinate


def _clamped(coordinate: Expr, axis: _Axis) -> Expr:
    """Padding mode border: coordinates are clamped."""
    last = axis.length - 1
    return coordinate.where(coordinate < last, last).where(coordinate > 0, 0)


def _reflected(low: float) -> Border:
    """Padding mode reflection, with mirrors at coordinate `low` and as far beyond the last pixel."""

    def reflected(coordinate: Expr, axis: _Axis) -> Expr:
        span = axis.length - (1 + 2 * low)
        distance = coordinate - low
        distance = (-distance).where(distance < 0, distance)
        flips = (distance / span).op("Floor")
        rest = distance - flips * span
        is_back = flips - (flips / 2).op("Floor") * 2 > 0
        return _clamped((span - rest).where(is_back, rest) + low, axis)

    return reflected


_mirrors = {True: _reflected(0.0), False: _reflected(-0.5)}

_BORDERS: dict[tuple[str, bool], Border] = {
    (name, align): border
    for align in (True, False)
    for name, border in (("zeros", _zeros), ("border", _clamped), ("reflection", _mirrors[align]))
}
"""The padding modes by padding_mode and align_corners."""


@rule("AffineGrid")
def affine_grid(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """Products of each sample's matrix with the pixels' coordinates, which are the operator's result for the identity."""
    theta, size = node.inputs
    known = (graph.lengths(theta) or [None, None])[1]
    rank = known if isinstance(known, int) else graph.rank(node.output(0), node) - 2
    one = graph.ints([1])
    identity = graph.op("CastLike", graph.tensor(np.eye(rank, rank + 1, dtype=np.float32)[None]), theta)
    of_one = graph.joined(1, graph.op("Slice", size, one, graph.ints([2 + rank])))
    places = graph.op("Reshape", graph.replay(node, identity, of_one), graph.ints([-1, rank]))
    ones = graph.op("Expand", graph.number(1.0, theta), graph.joined(graph.op("Shape", places, end=1), 1))
    rows = graph.op("Concat", places, ones, axis=1)
    gradients = graph.in_shape(upcast(graph, dy), graph.shape(theta, 0, 1), graph.op("Shape", places, end=1), rank)
    summed = graph.op("MatMul", graph.op("Transpose", gradients, perm=[0, 2, 1]), upcast(graph, rows))
    return [downcast(graph, summed, theta)]
