"""The gradient of broadcasting: a sum over the broadcast axes."""

from __future__ import annotations

from onnx_models.gradient.graph import Graph
from onnx_models.tools.nodes import Length


def sum_to(graph: Graph, gradient: str, source: str, output: str) -> str:
    """Sum a gradient over the axes along which `source` was broadcast to the shape of `output`.

    Args:
        gradient: name of a tensor with the shape of `output`.
        source: name of the tensor that was broadcast.
        output: name of a tensor with the shape that it was broadcast to.
    """
    axes = _axes(graph.lengths(source), graph.lengths(output))
    if axes is None:
        # A leading axis of length 1 is added and summed: a sum over no axis at all is an error in onnxruntime 1.20 if
        # the tensor is empty or has rank 0.
        whole = graph.op("Unsqueeze", gradient, graph.ints([0]))
        summed = graph.op("ReduceSum", whole, _axes_at_run_time(graph, whole, source), keepdims=1)
    elif axes:
        summed = graph.op("ReduceSum", gradient, graph.ints(axes), keepdims=0)
    else:
        return gradient
    return graph.reshaped(summed, source)


def _axes(source: list[Length] | None, output: list[Length] | None) -> list[int] | None:
    """The axes to sum, [] if the shapes are equal, None if that is only known at run time."""
    if source is None or output is None or len(output) < len(source):
        return None
    missing = len(output) - len(source)
    axes = list(range(missing))
    for axis, (before, after) in enumerate(zip(source, output[missing:], strict=True), missing):
        if (before is not None and before == after) or (isinstance(before, int) and before != 1):
            continue  # a length other than 1 is not broadcast, so `after` is the same even if it is unknown
        if before != 1:
            return None
        axes.append(axis)
    return axes


def _axes_at_run_time(graph: Graph, gradient: str, source: str) -> str:
    shape, one = graph.shape(source), graph.ints([1])
    missing = graph.op("Sub", graph.op("Size", graph.op("Shape", gradient)), graph.op("Size", shape))
    ones = graph.op("Expand", one, graph.op("Reshape", missing, graph.ints([1])))
    padded = graph.op("Concat", ones, shape, axis=0)
    return graph.op("Reshape", graph.op("NonZero", graph.op("Equal", padded, one)), graph.ints([-1]))
