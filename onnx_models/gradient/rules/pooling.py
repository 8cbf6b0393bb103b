# SPDX-License-Identifier: MIT
"""Rules of pooling and of LRN."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx

from onnx_models.gradient.graph import Expr, GradientGraph, Node
from onnx_models.gradient.registry import Gradients, decomposition, rule
from onnx_models.gradient.rules.convolution import Windows, image_gradient, sliced, windows
from onnx_models.gradient.rules.indexing import scatter_added
from onnx_models.tools.nodes import downcast, upcast

_EXACT = 2**20
"""An index is split into quotient and remainder by this number, each of which a float32 holds exactly."""


@rule("MaxPool")
def max_pool(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """The maximum of each window: dy goes to the row-major index in X that MaxPool, or a copy of the node, returns."""
    places = node.output(1)
    if not places or node.attribute("storage_order", 0):
        _, places = graph.ops("MaxPool", node.input(0), outputs=2, **{**node.attributes, "storage_order": 0})
    return [scatter_added(graph, node.input(0), places, dy)]


@rule("AveragePool")
def average_pool(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """The mean of each window: a depthwise convolution with ones, divided by the number of pixels."""
    x = node.input(0)
    layout, ones = _windows(graph, node, x)
    return [_summed(graph, graph.op("Div", dy, _counts(graph, node, layout, ones)), ones, x, layout)]


def _summed(graph: GradientGraph, shares: str, ones: str, x: str, layout: Windows) -> str:
    """For each pixel of x the sum of `shares` over the windows that contain it."""
    images = graph.op("ReduceProd", graph.op("Shape", shares, end=2), keepdims=1)
    alone = graph.in_shape(shares, images, 1, graph.op("Shape", shares, start=2))
    return graph.reshaped(image_gradient(graph, alone, ones, x, layout, 1), x)


def _windows(graph: GradientGraph, node: Node, x: str) -> tuple[Windows, str]:
    """The windows of a node, and a kernel of ones."""
    kernel = list(node.attribute("kernel_shape"))
    layout = windows(graph, node, len(kernel), x, node.outputs[0], graph.ints(kernel))
    return layout, _ones(graph, graph.ints([1, 1, *kernel]), x)


def _ones(graph: GradientGraph, shape: str, like: str) -> str:
    return graph.op("Expand", graph.number(1.0, like), shape)


def _counts(graph: GradientGraph, node: Node, layout: Windows, ones: str) -> str:
    """The number of pixels that each window averages: those in X, or in X with its pads; never those beyond (ceil_mode)."""
    x, y = node.input(0), node.outputs[0]
    with_pads = bool(node.attribute("count_include_pad", 0))
    if not node.attribute("ceil_mode", 0) and not layout.open_pads and (with_pads or not any(layout.pads)):
        return graph.number(float(math.prod(node.attribute("kernel_shape"))), x)
    lengths = graph.op("Shape", x, start=2)
    begins, ends = layout.open_pads or map(graph.ints, (layout.pads[: layout.rank], layout.pads[layout.rank :]))
    if with_pads:
        lengths, begins = graph.op("Add", graph.op("Add", lengths, begins), ends), graph.ints([0] * layout.rank)
    # Pad with zeros up to the furthest end of the last window.
    beyond = graph.op("Add", ends, graph.ints([stride - 1 for stride in layout.strides]))
    inside = _ones(graph, graph.op("Concat", graph.ints([1, 1]), lengths, axis=0), x)
    zeros = graph.ints([0, 0])
    around = graph.op("Pad", inside, graph.op("Concat", zeros, begins, zeros, beyond, axis=0))
    counts = graph.op("Conv", around, ones, strides=layout.strides, dilations=layout.dilations)
    return sliced(graph, counts, graph.ints([0] * layout.rank), graph.op("Shape", y, start=2), layout.axes)


@rule("GlobalAveragePool")
def global_average_pool(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """The mean of each channel."""
    x = node.input(0)
    count = graph.op("CastLike", graph.op("ReduceProd", graph.op("Shape", x, start=2), keepdims=0), x)
    return [graph.op("Expand", graph.op("Div", dy, count), graph.shape(x))]


@rule("GlobalMaxPool")
def global_max_pool(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """The maximum of each channel: dy goes to the first pixel that equals it."""
    x = node.input(0)
    channels, count = graph.op("Shape", x, end=2), graph.op("ReduceProd", graph.op("Shape", x, start=2), keepdims=1)
    lines = graph.in_shape(x, channels, count)
    places = graph.op("ArgMax", lines, axis=2, keepdims=1)
    parts = graph.in_shape(dy, channels, 1)
    zeros = graph.op("Expand", graph.number(0.0, x), graph.op("Shape", lines))
    return [graph.reshaped(graph.op("ScatterElements", zeros, places, parts, axis=2), x)]


@rule("LpPool")
def lp_pool(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """The p-norm of each window; where the norm is 0, the gradient is 0."""
    x, y, dy = (upcast(graph, name) for name in (node.input(0), node.outputs[0], dy))
    layout, ones = _windows(graph, node, x)
    shares, factors = _of_norm(graph, node, x, y, dy)
    return [downcast(graph, graph.op("Mul", _summed(graph, shares, ones, x, layout), factors), node.input(0))]


@rule("GlobalLpPool")
def global_lp_pool(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """The p-norm of each channel; where the norm is 0, the gradient is 0, as in PyTorch."""
    x, y, dy = (upcast(graph, name) for name in (node.input(0), node.outputs[0], dy))
    return [downcast(graph, graph.op("Mul", *_of_norm(graph, node, x, y, dy)), node.input(0))]


def _of_norm(graph: GradientGraph, node: Node, x: str, y: str, dy: str) -> tuple[str, str]:
    """The gradient of a p-norm y as two factors: one in the shape of y, dy included, and one in the shape of x."""
    p = node.attribute("p", 2)
    values, norms = Expr(graph, x, x), Expr(graph, y, x)
    if p == 1:
        return dy, values.op("Sign").name
    is_zero = norms.op("Equal", norms.of(0.0))
    shares = Expr(graph, dy, x) * norms.of(1.0).where(is_zero, norms).op("Pow", 1.0 - p)
    factors = values if p == 2 else values * values.op("Abs").op("Pow", p - 2.0)
    return shares.of(0.0).where(is_zero, shares).name, factors.name


@decomposition("LRN")
def local_response(graph: GradientGraph, node: Node) -> Sequence[str]:
    """Local response normalization: x / (bias + alpha * mean of squares over neighbouring channels)^beta."""
    source = node.input(0)
    x = upcast(graph, source)
    size = node.attribute("size")
    rest = graph.op("ReduceProd", graph.op("Shape", x, start=2), keepdims=1)
    squares = graph.in_shape(graph.op("Mul", x, x), graph.shape(source, 0, 1), 1, graph.shape(source, 1, 2), rest)
    pads = [(size - 1) // 2, 0, size // 2, 0]
    means = graph.op("AveragePool", squares, kernel_shape=[size, 1], pads=pads, count_include_pad=1)
    scale = Expr(graph, graph.reshaped(means, source), x)
    scale = scale * node.attribute("alpha", 1e-4) + node.attribute("bias", 1.0)
    y = Expr(graph, x, x) * scale.op("Pow", -node.attribute("beta", 0.75))
    return [downcast(graph, y.name, source)]


@rule("MaxUnpool")
def max_unpool(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """Elements scattered to a larger tensor of zeros: of several at one index, the one that is kept gets the gradient.

    The node is applied to the flat indices of X to find where each element goes, because runtimes disagree on the meaning of
    the index input if there is an output_shape.
    """
    x = node.input(0)
    one, parts = graph.integer(1), graph.integer(_EXACT)
    size = graph.op("Size", x)
    numbers = graph.reshaped(graph.op("Add", graph.counted(size), one), x)
    # A float32 holds integers of up to 24 bits exactly.
    ends = [graph.op("Div", numbers, parts), graph.op("Mod", numbers, parts)]
    ends = [graph.op("Cast", end, to=onnx.TensorProto.FLOAT) for end in ends]
    high, low = (graph.op("Cast", graph.replay(node, end, *node.inputs[1:]), to=onnx.TensorProto.INT64) for end in ends)
    places = graph.flat(graph.op("Add", graph.op("Mul", high, parts), low))
    nothing = graph.op("Expand", graph.number(0.0, x), graph.flat(graph.op("Add", size, one)))
    by_number = graph.op("ScatterElements", nothing, places, graph.flat(dy))
    # Index 0 stands for outputs that no element went to.
    return [graph.reshaped(graph.op("Slice", by_number, graph.ints([1]), graph.op("Shape", by_number)), x)]
