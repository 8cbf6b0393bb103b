"""Rules of pooling."""

from __future__ import annotations

import math

import onnx

from onnx_models.gradient.graph import Graph, Node
from onnx_models.gradient.rules.indexing import added
from onnx_models.gradient.rules.table import Gradients, rule
from onnx_models.gradient.rules.windows import Windows, by_image, cut, windows


@rule("MaxPool")
def max_pool(graph: Graph, node: Node, dy: str) -> Gradients:
    """The maximum of each window: dy goes to where it was found, which MaxPool says itself."""
    return [added(graph, node.input(0), _places(graph, node), dy)]


def _places(graph: Graph, node: Node) -> str:
    """The index in X, row by row, of each maximum: from the node, or else from another like it."""
    if len(node.outputs) > 1 and node.outputs[1] and not node.attribute("storage_order", 0):
        return node.outputs[1]
    given = {one.name: onnx.helper.get_attribute_value(one) for one in node.proto.attribute}
    return graph.ops("MaxPool", node.input(0), outputs=2, **{**given, "storage_order": 0})[1]


@rule("AveragePool")
def average_pool(graph: Graph, node: Node, dy: str) -> Gradients:
    """The mean of each window: a convolution of each channel by itself, with ones, divided by the number of pixels."""
    x, y = node.input(0), node.outputs[0]
    kernel = list(node.attribute("kernel_shape"))
    laid = windows(graph, node, len(kernel), x, y, graph.ints(kernel))
    ones = _ones(graph, graph.ints([1, 1, *kernel]), x)
    shares = graph.op("Div", dy, _counts(graph, node, laid, ones))
    alone = graph.op("Reshape", shares, _one_channel(graph, y), allowzero=1)
    return [graph.reshaped(by_image(graph, alone, ones, x, laid, 1), x)]


def _ones(graph: Graph, shape: str, like: str) -> str:
    return graph.op("Expand", graph.number(1.0, like), shape)


def _one_channel(graph: Graph, name: str) -> str:
    """The shape [samples * channels, 1, ...] of a tensor."""
    images = graph.op("ReduceProd", graph.op("Shape", name, end=2), keepdims=1)
    return graph.op("Concat", images, graph.ints([1]), graph.op("Shape", name, start=2), axis=0)


def _counts(graph: Graph, node: Node, laid: Windows, ones: str) -> str:
    """How many pixels each window has the mean of: those in X, or in X with its pads; none beyond, with ceil_mode."""
    x, y = node.input(0), node.outputs[0]
    with_pads = bool(node.attribute("count_include_pad", 0))
    if not node.attribute("ceil_mode", 0) and not laid.found and (with_pads or not any(laid.pads)):
        return graph.number(float(math.prod(node.attribute("kernel_shape"))), x)
    lengths = graph.op("Shape", x, start=2)
    begins, ends = _pads(graph, laid)
    if with_pads:
        lengths, begins = graph.op("Add", graph.op("Add", lengths, begins), ends), graph.ints([0] * laid.rank)
    # Zeros up to where the last window ends at most.
    beyond = graph.op("Add", ends, graph.ints([stride - 1 for stride in laid.strides]))
    inside = _ones(graph, graph.op("Concat", graph.ints([1, 1]), lengths, axis=0), x)
    zeros = graph.ints([0, 0])
    around = graph.op("Pad", inside, graph.op("Concat", zeros, begins, zeros, beyond, axis=0))
    counts = graph.op("Conv", around, ones, strides=laid.strides, dilations=laid.dilations)
    return cut(graph, counts, graph.ints([0] * laid.rank), graph.op("Shape", y, start=2), laid.axes)


def _pads(graph: Graph, laid: Windows) -> tuple[str, str]:
    """Names of the begins and of the ends."""
    return laid.found or (graph.ints(laid.pads[: laid.rank]), graph.ints(laid.pads[laid.rank :]))


@rule("GlobalAveragePool")
def global_average_pool(graph: Graph, node: Node, dy: str) -> Gradients:
    """The mean of each channel."""
    x = node.input(0)
    count = graph.op("CastLike", graph.op("ReduceProd", graph.op("Shape", x, start=2), keepdims=0), x)
    return [graph.op("Expand", graph.op("Div", dy, count), graph.shape(x))]


@rule("GlobalMaxPool")
def global_max_pool(graph: Graph, node: Node, dy: str) -> Gradients:
    """The maximum of each channel: dy goes to the first pixel that has it."""
    x = node.input(0)
    channels, count = graph.op("Shape", x, end=2), graph.op("ReduceProd", graph.op("Shape", x, start=2), keepdims=1)
    lines = graph.op("Reshape", x, graph.op("Concat", channels, count, axis=0), allowzero=1)
    places = graph.op("ArgMax", lines, axis=2, keepdims=1)
    parts = graph.op("Reshape", dy, graph.op("Concat", channels, graph.ints([1]), axis=0), allowzero=1)
    zeros = graph.op("Expand", graph.number(0.0, x), graph.op("Shape", lines))
    return [graph.reshaped(graph.op("ScatterElements", zeros, places, parts, axis=2), x)]
