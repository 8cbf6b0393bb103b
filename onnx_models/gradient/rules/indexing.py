"""Rules of operators whose output has elements of the input at computed places, and of those that write to such places.

Most have one rule: the operator is run once more, on the numbers of the input's elements, and tells for each element of the
output which one it is; the gradients are added at these places. They are added by ScatterElements: by ScatterND threads of
ONNX Runtime (1.31 at least) add to the same place at the same time, and terms get lost.
"""

from __future__ import annotations

import onnx

from onnx_models.gradient.graph import Graph, Node
from onnx_models.gradient.rules.table import Gradients, rule


@rule("Compress", "Gather", "GatherElements", "GatherND", "Slice")
def moved(graph: Graph, node: Node, dy: str) -> Gradients:
    """Some elements of a tensor, any of them more than once."""
    x = node.inputs[0]
    places = graph.again(node, numbered(graph, x), *node.inputs[1:])
    return [added(graph, x, places, dy)]


@rule("Pad")
def pad(graph: Graph, node: Node, dy: str) -> Gradients:
    """A tensor with a border, of a constant or of its own elements; or, where pads are negative, without one."""
    if node.attribute("mode", "constant") != "constant":
        return moved(graph, node, dy)
    x, pads, value, axes = (node.input(i) for i in range(4))
    by_x = graph.op("Pad", dy, graph.op("Neg", pads), "", axes) if node.wants(0) else None
    if not node.wants(2):
        return [by_x]
    inside = graph.op("Expand", graph.number(0.0, x), graph.shape(x))
    border = graph.again(node, inside, pads, graph.number(1.0, x), axes)
    total = graph.op("ReduceSum", graph.op("Mul", dy, border), keepdims=0)
    return [by_x, None, graph.reshaped(total, value)]


@rule("TopK")
def top_k(graph: Graph, node: Node, dy: str) -> Gradients:
    """The largest or smallest elements along an axis: the gradients are those of the elements chosen."""
    zeros, indices = graph.zeros(node.inputs[0]), node.outputs[1]
    return [graph.op("ScatterElements", zeros, indices, dy, axis=node.attribute("axis", -1))]


@rule("ScatterElements")
def scatter_elements(graph: Graph, node: Node, dy: str) -> Gradients:
    """A tensor with elements replaced or increased."""
    indices, axis = node.inputs[1], node.attribute("axis", 0)
    return _written(graph, node, dy, graph.op("GatherElements", dy, indices, axis=axis))


@rule("ScatterND")
def scatter_nd(graph: Graph, node: Node, dy: str) -> Gradients:
    """A tensor with slices replaced or increased."""
    return _written(graph, node, dy, graph.op("GatherND", dy, node.inputs[1]))


def _written(graph: Graph, node: Node, dy: str, by_updates: str) -> Gradients:
    _, indices, updates = node.inputs
    reduction = node.attribute("reduction", "none")
    if reduction == "add":
        return [dy, None, by_updates]
    if reduction != "none":
        raise ValueError(f"{node} has no gradient rule for reduction = {reduction!r}: must be 'none' or 'add'")
    return [graph.again(node, dy, indices, graph.zeros(updates)), None, by_updates]


def numbered(graph: Graph, x: str) -> str:
    """The numbers of a tensor's elements, 0 and up in the order of memory, in the shape of the tensor."""
    zero, one = (graph.op("Constant", value_int=number) for number in (0, 1))
    return graph.reshaped(graph.op("Range", zero, graph.op("Size", x), one), x)


def added(graph: Graph, x: str, places: str, values: str) -> str:
    """Zeros in the shape of x with values added at the places that have these numbers.

    Numbers of 16 bits are added as floats: ONNX Runtime's CPU cannot add the former here.
    """
    kind, line = graph.element_type(x), graph.ints([-1])
    short = kind in (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
    flat_places, flat_values = (graph.op("Reshape", name, line) for name in (places, values))
    zero = graph.op("Constant", value_float=0.0) if short else graph.number(0.0, x)
    flat_values = graph.op("Cast", flat_values, to=onnx.TensorProto.FLOAT) if short else flat_values
    flat_zeros = graph.op("Expand", zero, graph.op("Reshape", graph.op("Size", x), line))
    added = graph.op("ScatterElements", flat_zeros, flat_places, flat_values, axis=0, reduction="add")
    return graph.reshaped(graph.op("Cast", added, to=kind) if short else added, x)
