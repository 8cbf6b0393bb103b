"""Rules of operators that keep every element, in another shape, order or type, or repeat them all."""

from __future__ import annotations

import numpy as np
import onnx

from onnx_models.gradient.broadcast import sum_to
from onnx_models.gradient.graph import Graph, Node
from onnx_models.gradient.rules.registry import REAL, Gradients, Zero, rule


@rule("Identity")
def identity(_graph: Graph, _node: Node, dy: str) -> Gradients:
    """A copy."""
    return [dy]


@rule("Cast", "CastLike")
def cast(graph: Graph, node: Node, dy: str) -> Gradients:
    """Conversion between types of floating-point numbers, also to types of 8 bits and less and back.

    The gradient by a tensor of the latter types is one of type float, which is not rounded.
    """
    x = node.inputs[0]
    kind = graph.element_type(x)
    if kind not in (None, *REAL):
        kind = onnx.TensorProto.FLOAT
    by_x = graph.op("CastLike", dy, x) if kind is None else graph.op("Cast", dy, to=kind)
    return [graph.keep_masks(by_x, dy), Zero("its type alone is read")]


@rule("Dropout")
def dropout(graph: Graph, node: Node, dy: str) -> Gradients:
    """A copy; in training the elements that a random mask keeps, over the share of those.

    Where the node does not give its mask, one that does takes its place in the model: what was dropped is known there.
    """
    ratio, training = node.input(1), node.input(2)
    value = graph.constant(training) if training else np.array(False)
    by_ratio = Zero("it decides what is drawn, and the mean of the output does not depend on it")
    if value is not None and not value.any():
        return [dy, by_ratio]
    if not node.wants(0):
        return [None, by_ratio]
    x = node.input(0)
    given = graph.op("CastLike", ratio, x) if ratio else graph.number(0.5, x)
    scale = graph.op("Reciprocal", graph.op("Sub", graph.number(1.0, x), given))
    if value is None:
        scale = graph.op("Where", training, scale, graph.number(1.0, x))
    return [graph.masked(_mask(graph, node), graph.op("Mul", dy, scale), x), by_ratio]


def _mask(graph: Graph, node: Node) -> str:
    """What a Dropout keeps: an output of the node, or of the one that takes its place."""
    known = graph.producer(node.outputs[0]) or node.proto
    if len(known.output) > 1 and known.output[1]:
        return str(known.output[1])
    name = graph.name("Dropout")
    other = onnx.NodeProto()
    other.CopyFrom(node.proto)
    other.output[:] = [node.outputs[0], name]
    graph.replace(node.proto, [other])
    return name


@rule("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def reshape(graph: Graph, node: Node, dy: str) -> Gradients:
    """The same elements in the same order."""
    return [graph.reshaped(dy, node.inputs[0])]


@rule("Transpose")
def transpose(graph: Graph, node: Node, dy: str) -> Gradients:
    """Axis i of the output is axis perm[i] of the input; without perm the axes are reversed."""
    perm = node.attribute("perm")
    if not perm:
        return [graph.op("Transpose", dy)]
    producer = graph.producer(dy)
    if producer is not None and (producer.domain, producer.op_type) == ("", "Transpose") and _perm(producer) == perm:
        return [producer.input[0]]
    return [graph.op("Transpose", dy, perm=[int(axis) for axis in np.argsort(perm)])]


def _perm(transpose: onnx.NodeProto) -> list[int]:
    return [int(axis) for attribute in transpose.attribute for axis in attribute.ints]


@rule("Expand")
def expand(graph: Graph, node: Node, dy: str) -> Gradients:
    """Broadcasting."""
    return [sum_to(graph, dy, node.inputs[0], node.outputs[0])]


@rule("Tile")
def tile(graph: Graph, node: Node, dy: str) -> Gradients:
    """Copies side by side: an axis of the gradient is split into one over the copies and one over the elements."""
    x, repeats = node.inputs
    column = graph.ints([1])
    pairs = graph.op("Concat", *(graph.op("Unsqueeze", n, column) for n in (repeats, graph.shape(x))), axis=1)
    lengths = graph.op("Reshape", pairs, graph.ints([-1]))
    blocks = graph.op("Reshape", dy, lengths, allowzero=1)
    zero, two = (graph.op("Constant", value_int=number) for number in (0, 2))
    copies = graph.op("Range", zero, graph.op("Size", lengths), two)
    return [graph.op("ReduceSum", blocks, copies, keepdims=0, noop_with_empty_axes=1)]


@rule("DepthToSpace")
def depth_to_space(graph: Graph, node: Node, dy: str) -> Gradients:
    """Channels to blocks of blocksize x blocksize, for mode CRD with those of a block side by side."""
    x, size = node.inputs[0], node.attribute("blocksize")
    deep = graph.op("SpaceToDepth", dy, blocksize=size)
    if node.attribute("mode", "DCR") == "DCR":
        return [deep]
    block, shape = graph.ints([size * size]), graph.shape(x)
    batch, channels = (graph.op("Gather", shape, graph.ints([axis])) for axis in (0, 1))
    plane = graph.op("Gather", shape, graph.ints([2, 3]))
    grouped = graph.op("Concat", batch, block, graph.op("Div", channels, block), plane, axis=0)
    columns = graph.op("Reshape", deep, grouped, allowzero=1)
    return [graph.reshaped(graph.op("Transpose", columns, perm=[0, 2, 1, 3, 4]), x)]


@rule("SpaceToDepth")
def space_to_depth(graph: Graph, node: Node, dy: str) -> Gradients:
    """Blocks to channels, for mode CRD (opset 28) with those of a block side by side."""
    return [graph.op("DepthToSpace", dy, blocksize=node.attribute("blocksize"), mode=node.attribute("mode", "DCR"))]
