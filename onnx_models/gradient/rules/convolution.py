"""Rules of convolutions. Conv and ConvTranspose are each other's gradients with respect to X."""

from __future__ import annotations

from onnx_models.gradient.graph import Graph, Node
from onnx_models.gradient.rules.registry import Gradients, rule
from onnx_models.gradient.rules.weight_gradient import weight_gradient
from onnx_models.gradient.rules.windows import Windows, image_gradient, padded, sliced, windows


@rule("Conv")
def conv(graph: Graph, node: Node, dy: str) -> Gradients:
    """A convolution: the image is X, and the grid is Y (see `windows`)."""
    x, kernel = node.inputs[:2]
    layout, group = _windows(graph, node, x, node.outputs[0]), node.attribute("group", 1)
    return [
        image_gradient(graph, dy, kernel, x, layout, group) if node.wants(0) else None,
        weight_gradient(graph, x, dy, kernel, layout, group) if node.wants(1) else None,
        _by_bias(graph, dy, layout) if node.wants(2) else None,
    ]


@rule("ConvTranspose")
def conv_transpose(graph: Graph, node: Node, dy: str) -> Gradients:
    """A transposed convolution: the image is Y, and the grid is X (see `windows`)."""
    x, kernel = node.inputs[:2]
    layout, group = _windows(graph, node, node.outputs[0], x), node.attribute("group", 1)
    return [
        _by_grid(graph, node, dy, layout, group) if node.wants(0) else None,
        weight_gradient(graph, dy, x, kernel, layout, group) if node.wants(1) else None,
        _by_bias(graph, dy, layout) if node.wants(2) else None,
    ]


def _windows(graph: Graph, node: Node, image: str, grid: str) -> Windows:
    x, kernel = node.inputs[:2]
    known = next((name for name in (kernel, x) if graph.lengths(name) is not None), x)
    lengths = graph.op("Shape", kernel, start=2)
    return windows(graph, node, graph.rank(known, node) - 2, image, grid, lengths)


def _by_grid(graph: Graph, node: Node, dy: str, layout: Windows, group: int) -> str:
    """The convolution of dY, sliced to the shape of X if an output_padding of a stride or more makes it longer."""
    x, kernel = node.inputs[:2]
    made = graph.op(
        "Conv", padded(graph, dy, layout), kernel,
        group=group, strides=layout.strides, dilations=layout.dilations, pads=layout.pads,
    )  # fmt: skip
    if not node.attribute("output_padding") and not layout.found:
        return made
    return sliced(graph, made, graph.ints([0] * layout.rank), graph.op("Shape", x, start=2), layout.axes)


def _by_bias(graph: Graph, dy: str, layout: Windows) -> str:
    return graph.op("ReduceSum", dy, graph.ints([0, *layout.axes]), keepdims=0)
