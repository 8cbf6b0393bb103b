"""Rules of operators that move elements: to another shape, order or type; and of Dropout."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import onnx

from onnx_models.gradient.broadcast import sum_to
from onnx_models.gradient.graph import Graph, Node
from onnx_models.gradient.rules.registry import REAL, Gradients, Zero, rule

Adjoint = Callable[[Graph, Node, str], str]
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


def _by_adjoint(adjoint: Adjoint, graph: Graph, node: Node, dy: str) -> Gradients:
    return [adjoint(graph, node, dy)]


for _operator, _adjoint in ADJOINTS.items():
    rule(_operator)(partial(_by_adjoint, _adjoint))


@rule("Cast", "CastLike")
def cast(graph: Graph, node: Node, dy: str) -> Gradients:
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
def dropout(graph: Graph, node: Node, dy: str) -> Gradients:
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
    given = graph.op("CastLike", ratio, x) if ratio else graph.number(0.5, x)
    scale = graph.op("Reciprocal", graph.op("Sub", graph.number(1.0, x), given))
    if value is None:
        scale = graph.op("Where", training, scale, graph.number(1.0, x))
    return [graph.masked(_mask(graph, node), graph.op("Mul", dy, scale), x), by_ratio]


def _mask(graph: Graph, node: Node) -> str:
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


@rule("Tile")
def tile(graph: Graph, node: Node, dy: str) -> Gradients:
    """Repetition: each axis of dy is split into (copies, elements), and summed over the copies."""
    x, repeats = node.inputs
    column = graph.ints([1])
    pairs = graph.op("Concat", *(graph.op("Unsqueeze", n, column) for n in (repeats, graph.shape(x))), axis=1)
    lengths = graph.op("Reshape", pairs, graph.ints([-1]))
    blocks = graph.in_shape(dy, lengths)
    copies = graph.op("Range", graph.integer(0), graph.op("Size", lengths), graph.integer(2))
    return [graph.op("ReduceSum", blocks, copies, keepdims=0, noop_with_empty_axes=1)]


@rule("DepthToSpace")
def depth_to_space(graph: Graph, node: Node, dy: str) -> Gradients:
    """Channels to blocks of blocksize x blocksize; in mode CRD, the channels of a block are adjacent."""
    x, size = node.inputs[0], node.attribute("blocksize")
    deep = graph.op("SpaceToDepth", dy, blocksize=size)
    if node.attribute("mode", "DCR") == "DCR":
        return [deep]
    block = graph.ints([size * size])
    batch, channels, plane = (graph.shape(x, *part) for part in ((0, 1), (1, 2), (2, 4)))
    columns = graph.in_shape(deep, batch, block, graph.op("Div", channels, block), plane)
    return [graph.reshaped(graph.op("Transpose", columns, perm=[0, 2, 1, 3, 4]), x)]
