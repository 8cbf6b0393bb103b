# SPDX-License-Identifier: MIT
"""Rules of Fourier transforms. The last axis holds real and imaginary parts, or real parts only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from onnx_models.gradient.graph import GradientGraph, Node
from onnx_models.gradient.registry import Gradients, decomposition, rule
from onnx_models.tools.nodes import downcast, upcast

_AXIS_IS_INPUT = 20
"""From this opset on, DFT has its axis as an input."""


@rule("DFT")
def dft(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """The discrete Fourier transform of a signal truncated or zero-padded to a length.

    The matrix is symmetric, so the gradient is the transform of dy by the conjugate matrix. The missing half of a onesided
    result contributes nothing. In a onesided input with inverse = 1 most numbers count twice, once as their conjugates.
    """
    x, y = node.input(0), node.outputs[0]
    inverse, onesided = bool(node.attribute("inverse", 0)), bool(node.attribute("onesided", 0))
    axis = _axis(graph, node)
    x_length = graph.op("Gather", graph.op("Shape", x), axis)
    length = graph.op("Gather", graph.op("Shape", y), axis)
    if onesided and not inverse:  # y has half of the transform; the length is dft_length or that of x
        length = graph.op("Reshape", node.input(1), graph.ints([1])) if node.input(1) else x_length
    wide = upcast(graph, dy)
    size = graph.op("Squeeze", length)
    if inverse:
        dx = graph.op("Div", transform(graph, wide, size, axis, node.version), graph.op("CastLike", length, wide))
    else:  # not by inverse = 1: ONNX Runtime (1.31 at least) then rounds 1/length to float
        sign = graph.op("CastLike", graph.tensor(np.array([1, -1], np.float32)), wide)
        dx = graph.op("Mul", transform(graph, graph.op("Mul", wide, sign), size, axis, node.version), sign)
    rest = graph.op("Sub", x_length, length)
    dx = graph.op("Pad", dx, graph.op("Concat", graph.ints([0]), rest, axis=0), "", axis)
    if onesided and inverse:
        dx = graph.op("Mul", dx, _counts(graph, node, axis, length, wide))
    parts = graph.op("Slice", dx, graph.ints([0]), graph.op("Shape", x, start=-1), graph.ints([-1]))
    return [downcast(graph, parts, x)]


def _axis(graph: GradientGraph, node: Node) -> str:
    """The axis that is transformed, int64 [1]."""
    if node.version < _AXIS_IS_INPUT:
        return graph.ints([node.attribute("axis", 1)])
    axis = node.input(2)
    return graph.op("Reshape", axis, graph.ints([1])) if axis else graph.ints([-2])


def transform(
    graph: GradientGraph, x: str, length: str, axis: str, opset: int, *, inverse: bool = False, onesided: bool = False
) -> str:
    """Add a DFT along an axis (int64 [1], a constant before opset 20), zero-padded to a length (int64 [])."""
    flags = {"inverse": int(inverse), "onesided": int(onesided)}
    if opset >= _AXIS_IS_INPUT:
        return graph.op("DFT", x, length, graph.op("Squeeze", axis), **flags)
    (number,) = graph.constant(axis)  # type: ignore[misc]
    return graph.op("DFT", x, length, axis=int(number), **flags)


def _counts(graph: GradientGraph, node: Node, axis: str, length: str, like: str) -> str:
    """How often each number of a onesided input occurs in the full spectrum, in a shape that broadcasts to x.

    Determined by transforming real and imaginary units: if x does not have exactly half of the spectrum, runtimes disagree
    on which numbers are also used as conjugates.
    """
    x, one, size = node.input(0), graph.ints([1]), graph.op("Squeeze", length)
    units = graph.op("CastLike", graph.tensor(np.eye(2, dtype=np.float32)[:, None]), like)
    x_length = graph.op("Gather", graph.op("Shape", x), axis)
    probe = graph.op("Expand", units, graph.op("Concat", one, x_length, one, axis=0))
    parts = transform(graph, probe, size, one, node.version, inverse=True, onesided=True)  # [2, length, 1]
    sign = graph.op("CastLike", graph.tensor(np.array([1, -1], np.float32)), like)
    whole = graph.op("Mul", graph.op("Transpose", parts, perm=[2, 1, 0]), sign)
    spectrum = graph.op("Round", transform(graph, whole, size, one, node.version))
    counts = graph.op("Slice", spectrum, graph.ints([0]), one, graph.ints([2]))
    rest = graph.op("Sub", x_length, length)
    counts = graph.op("Pad", counts, graph.op("Concat", graph.ints([0]), rest, axis=0), "", one)
    ones = graph.op("Expand", one, graph.op("Shape", graph.op("Shape", x)))
    return graph.op("Reshape", counts, graph.op("ScatterElements", ones, axis, x_length))


@decomposition("STFT")
def stft(graph: GradientGraph, node: Node) -> Sequence[str]:
    """Fourier transforms of the frames of a signal, weighted by a window."""
    signal, step, window, length = (node.input(i) for i in range(4))
    x = upcast(graph, signal)
    if length:
        length = graph.op("Squeeze", graph.op("Cast", length, to=onnx.TensorProto.INT64))
    else:
        length = (
            graph.op("Squeeze", graph.shape(window, 0, 1)) if window else graph.op("Squeeze", graph.shape(signal, 1, 2))
        )
    step = graph.op("Squeeze", graph.op("Cast", step, to=onnx.TensorProto.INT64))
    rest = graph.op("Sub", graph.op("Squeeze", graph.shape(signal, 1, 2)), length)
    count = graph.op("Add", graph.op("Div", rest, step), graph.integer(1))
    starts = graph.op("Mul", graph.counted(count), step)
    places = graph.op("Add", graph.op("Unsqueeze", starts, graph.ints([1])), graph.counted(length))
    frames = graph.op("Gather", x, places, axis=1)
    if window:
        frames = graph.op("Mul", frames, graph.op("Unsqueeze", graph.op("CastLike", window, x), graph.ints([1])))
    onesided = bool(node.attribute("onesided", 1))
    axis = graph.ints([2])
    return [downcast(graph, transform(graph, frames, length, axis, graph.opsets[""], onesided=onesided), signal)]
