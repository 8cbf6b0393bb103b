"""Rules of Fourier transforms. Their last axis has real and imaginary parts, or real parts alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from onnx_models.gradient.graph import Graph, Node
from onnx_models.gradient.half import narrowed, widened
from onnx_models.gradient.rules.table import Gradients, form, rule

_AXIS_IS_INPUT = 20
"""The opset from which on DFT has its axis as an input."""


@rule("DFT")
def dft(graph: Graph, node: Node, dy: str) -> Gradients:
    """The discrete Fourier transform of numbers that are cut, or continued by zeros, to a length.

    Its matrix is symmetric: the gradient is the transform of dy by the conjugate matrix. Of a onesided result the other half
    has no gradient; of a onesided input with inverse = 1 all numbers but the first, and the one in the middle of an even
    length, count twice: once as their conjugates.
    """
    x, y = node.input(0), node.outputs[0]
    inverse, onesided = bool(node.attribute("inverse", 0)), bool(node.attribute("onesided", 0))
    axis = _axis(graph, node)
    own = graph.op("Gather", graph.op("Shape", x), axis)
    length = graph.op("Gather", graph.op("Shape", y), axis)
    if onesided and not inverse:  # y has half of the numbers, dft_length or x has all
        length = graph.op("Reshape", node.input(1), graph.ints([1])) if node.input(1) else own
    wide = widened(graph, dy)
    size = graph.op("Squeeze", length)
    if inverse:
        made = graph.op("Div", transform(graph, wide, size, axis, node.version), graph.op("CastLike", length, wide))
    else:  # not by inverse = 1, for which ONNX Runtime (1.31 at least) has 1/length in float alone
        sign = graph.op("CastLike", graph.tensor(np.array([1, -1], np.float32)), wide)
        made = graph.op("Mul", transform(graph, graph.op("Mul", wide, sign), size, axis, node.version), sign)
    rest = graph.op("Sub", own, length)
    made = graph.op("Pad", made, graph.op("Concat", graph.ints([0]), rest, axis=0), "", axis)
    if onesided and inverse:
        made = graph.op("Mul", made, _counts(graph, x, axis, length, wide))
    parts = graph.op("Slice", made, graph.ints([0]), graph.op("Shape", x, start=-1), graph.ints([-1]))
    return [narrowed(graph, parts, x)]


def _axis(graph: Graph, node: Node) -> str:
    """The axis that is transformed, int64 [1]."""
    if node.version < _AXIS_IS_INPUT:
        return graph.ints([node.attribute("axis", 1)])
    given = node.input(2)
    return graph.op("Reshape", given, graph.ints([1])) if given else graph.ints([-2])


def transform(graph: Graph, x: str, length: str, axis: str, opset: int, onesided: bool = False) -> str:
    """A forward DFT along an axis, int64 [1], of a length, int64 [], continued by zeros.

    Before opset 20 the axis is a constant.
    """
    if opset >= _AXIS_IS_INPUT:
        return graph.op("DFT", x, length, graph.op("Squeeze", axis), onesided=int(onesided))
    (number,) = graph.constant(axis)  # type: ignore[misc]
    return graph.op("DFT", x, length, axis=int(number), onesided=int(onesided))


def _counts(graph: Graph, x: str, axis: str, length: str, like: str) -> str:
    """How often each number of a onesided input is in the whole, in a shape that broadcasts to that of x."""
    zero, one, two = (graph.op("Constant", value_int=value) for value in (0, 1, 2))
    number = graph.op("Range", zero, graph.op("Squeeze", graph.op("Gather", graph.op("Shape", x), axis)), one)
    # The conjugate of number k is number length - k: another one, and not in the input, where 0 < k < length / 2.
    has_other = graph.op(
        "And", graph.op("Greater", number, zero), graph.op("Less", graph.op("Mul", number, two), length)
    )
    is_read = graph.op("Not", graph.op("Greater", graph.op("Mul", number, two), length))
    counts = graph.op("Where", has_other, two, graph.op("Where", is_read, one, zero))
    ones = graph.op("Expand", graph.ints([1]), graph.op("Shape", graph.op("Shape", x)))
    lengths = graph.op("ScatterElements", ones, axis, graph.op("Shape", counts))
    return graph.op("CastLike", graph.op("Reshape", counts, lengths), like)


@form("STFT")
def stft(graph: Graph, node: Node) -> Sequence[str]:
    """Fourier transforms of frames of a signal, each of which is weighted by a window."""
    signal, step, window, length = (node.input(i) for i in range(4))
    x = widened(graph, signal)
    zero, one = (graph.op("Constant", value_int=value) for value in (0, 1))
    if length:
        length = graph.op("Squeeze", graph.op("Cast", length, to=onnx.TensorProto.INT64))
    else:
        length = (
            graph.op("Squeeze", graph.shape(window, 0, 1)) if window else graph.op("Squeeze", graph.shape(signal, 1, 2))
        )
    step = graph.op("Squeeze", graph.op("Cast", step, to=onnx.TensorProto.INT64))
    rest = graph.op("Sub", graph.op("Squeeze", graph.shape(signal, 1, 2)), length)
    count = graph.op("Add", graph.op("Div", rest, step), one)
    starts = graph.op("Mul", graph.op("Range", zero, count, one), step)
    places = graph.op("Add", graph.op("Unsqueeze", starts, graph.ints([1])), graph.op("Range", zero, length, one))
    frames = graph.op("Gather", x, places, axis=1)
    if window:
        frames = graph.op("Mul", frames, graph.op("Unsqueeze", graph.op("CastLike", window, x), graph.ints([1])))
    onesided = bool(node.attribute("onesided", 1))
    axis = graph.ints([2])
    return [narrowed(graph, transform(graph, frames, length, axis, graph.opsets[""], onesided), signal)]
