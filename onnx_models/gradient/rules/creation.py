"""Rules of Range and OneHot."""

from __future__ import annotations

from onnx_models.gradient.graph import Graph, Node
from onnx_models.gradient.rules.registry import Gradients, Zero, rule


@rule("Range")
def counted(graph: Graph, node: Node, dy: str) -> Gradients:
    """The numbers start + i*delta up to the limit."""
    start, _, delta = node.inputs
    numbers = graph.op("CastLike", graph.counted(graph.op("Size", dy)), dy)
    weighted = graph.op("Mul", dy, numbers)
    by_start, by_delta = (graph.op("ReduceSum", terms, keepdims=0) for terms in (dy, weighted))
    no_steps = Zero("the limit only determines how many numbers there are")
    return [graph.reshaped(by_start, start), no_steps, graph.reshaped(by_delta, delta)]


@rule("OneHot")
def one_hot(graph: Graph, node: Node, dy: str) -> Gradients:
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
