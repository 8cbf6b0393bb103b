"""Rules of convolutions. Conv and ConvTranspose are each other's gradients by the tensor that moves through them."""

from __future__ import annotations

from onnx_models.gradient.graph import Graph, Node
from onnx_models.gradient.rules.kernels import by_kernel
from onnx_models.gradient.rules.table import Gradients, rule
from onnx_models.gradient.rules.windows import Windows, by_image, cut, padded, windows


@rule("Conv")
def conv(graph: Graph, node: Node, dy: str) -> Gradients:
    """A convolution: windows lie on X, and the grid is Y."""
    x, kernel = node.inputs[:2]
    laid, group = _windows(graph, node, x, node.outputs[0]), node.attribute("group", 1)
    return [
        by_image(graph, dy, kernel, x, laid, group) if node.wants(0) else None,
        by_kernel(graph, x, dy, kernel, laid, group) if node.wants(1) else None,
        _by_bias(graph, dy, laid) if node.wants(2) else None,
    ]


@rule("ConvTranspose")
def conv_transpose(graph: Graph, node: Node, dy: str) -> Gradients:
    """A transposed convolution: windows lie on Y, and the grid is X."""
    x, kernel = node.inputs[:2]
    laid, group = _windows(graph, node, node.outputs[0], x), node.attribute("group", 1)
    return [
        _by_grid(graph, node, dy, laid, group) if node.wants(0) else None,
        by_kernel(graph, dy, x, kernel, laid, group) if node.wants(1) else None,
        _by_bias(graph, dy, laid) if node.wants(2) else None,
    ]


def _windows(graph: Graph, node: Node, image: str, grid: str) -> Windows:
    x, kernel = node.inputs[:2]
    known = next((name for name in (kernel, x) if graph.lengths(name) is not None), x)
    lengths = graph.op("Shape", kernel, start=2)
    return windows(graph, node, graph.rank(known, node) - 2, image, grid, lengths)


def _by_grid(graph: Graph, node: Node, dy: str, laid: Windows, group: int) -> str:
    """The convolution of dY, cut where an output_padding of a stride or more makes it longer than X."""
    x, kernel = node.inputs[:2]
    made = graph.op(
        "Conv", padded(graph, dy, laid), kernel,
        group=group, strides=laid.strides, dilations=laid.dilations, pads=laid.pads,
    )  # fmt: skip
    if not node.attribute("output_padding") and not laid.found:
        return made
    return cut(graph, made, graph.ints([0] * laid.rank), graph.op("Shape", x, start=2), laid.axes)


def _by_bias(graph: Graph, dy: str, laid: Windows) -> str:
    return graph.op("ReduceSum", dy, graph.ints([0, *laid.axes]), keepdims=0)
