"""The gradient of a Resize by which each axis grows by an integer, as a convolution with a stride."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import numpy as np
import onnx

from onnx_models.gradient.graph import Graph
from onnx_models.gradient.ours import AttributeValue
from onnx_models.tools.nodes import downcast, upcast

_MAX_SPATIAL = 3
"""The most axes that runtimes convolve along."""


@dataclass(frozen=True)
class Reads:
    """The outputs along an axis that read a pixel of the input: pixel t is read by outputs from t * scale - pads[0] on.

    scale: the number of outputs for each pixel.
    weights: the weight of the pixel in each of these outputs.
    beyond: how many pixels before and after the input are read, which are copies of its first and its last pixel.
    pads: by how many outputs the windows of the first and the last of all these pixels extend beyond the axis.
    """

    scale: int
    weights: tuple[float, ...]
    beyond: tuple[int, int]
    pads: tuple[int, int]


def reads(attributes: Mapping[str, AttributeValue], axis: int, scale: int) -> Reads:
    """The outputs that read each pixel along an axis of a DmlResample node whose length grows by the integer `scale`.

    Output k * scale + r is at the coordinate k + c, where c depends on r alone.
    """
    begin, end = (Fraction(attributes[f"{name}_pixel_offsets"][axis]) for name in ("input", "output"))
    parts: dict[int, list[Fraction]] = {}
    for r in range(scale):
        c = (r - end) / scale - begin
        if attributes["interpolation_mode"] == "linear":
            low = math.floor(c)
            found = {low: 1 - (c - low), low + 1: c - low}
        else:
            found = {math.ceil(c) if attributes["rounding_direction"] == "increasing" else math.floor(c): Fraction(1)}
        for offset, weight in found.items():
            if weight:
                parts.setdefault(offset, [Fraction(0)] * scale)[r] = weight
    before, after = max(0, -min(parts)), max(0, *parts)
    # Output t * scale + (r - d * scale) reads pixel t at offset d.
    weights = [weight for d in range(after, -before - 1, -1) for weight in parts.get(d, [Fraction(0)] * scale)]
    used = [i for i, weight in enumerate(weights) if weight]
    whole = (before + after) * scale
    pads = whole - used[0], whole - (len(weights) - 1 - used[-1])
    return Reads(scale, tuple(float(weight) for weight in weights[used[0] : used[-1] + 1]), (before, after), pads)


def upsampling_gradient(graph: Graph, x: str, dy: str, axes: Sequence[Reads]) -> str | None:
    """The gradient of x; None if runtimes cannot convolve along that many axes."""
    first = next((i for i, axis in enumerate(axes) if axis.scale > 1), len(axes))
    lengths = graph.lengths(x) or [None] * len(axes)
    # Convolving each channel separately is twice as fast as convolving as many samples, but there must be a channel: ONNX
    # Runtime (1.32 at least) divides by the number of channels.
    channels = lengths[1] if first >= 2 and lengths[1] else None
    lead = 2 if isinstance(channels, int) else first
    if not 1 <= len(axes) - lead <= _MAX_SPATIAL:
        return None
    # ONNX Runtime convolves an empty axis only if it has pads.
    may_be_empty = [
        not any(axis.pads) and (n == 0 or not isinstance(n, int)) for axis, n in zip(axes, lengths, strict=True)
    ]
    made, resized = upcast(graph, dy), axes[lead:]
    kernel = reduce(np.multiply.outer, (np.array(axis.weights) for axis in resized))[None, None]
    weights = graph.tensor(kernel.astype(np.float32))
    if graph.element_type(made) != onnx.TensorProto.FLOAT:
        weights = graph.op("CastLike", weights, made)
    if isinstance(channels, int):
        weights = graph.op("Expand", weights, graph.ints([channels, 1, *kernel.shape[2:]]))
    else:
        samples = graph.op("ReduceProd", graph.shape(dy, 0, lead), keepdims=1)
        made = graph.in_shape(made, samples, 1, graph.shape(dy, lead))
    spare = [axis.scale * is_open for axis, is_open in zip(resized, may_be_empty[lead:], strict=True)]
    pads = [axis.pads[0] for axis in resized] + [axis.pads[1] + n for axis, n in zip(resized, spare, strict=True)]
    group = channels if isinstance(channels, int) else 1
    made = graph.op("Conv", made, weights, strides=[axis.scale for axis in resized], pads=pads, group=group)
    if not isinstance(channels, int):
        made = graph.in_shape(made, graph.shape(dy, 0, lead), graph.op("Shape", made, start=2))
    for number, axis in enumerate(axes):
        if any(axis.beyond) or (number >= lead and may_be_empty[number]):
            made = _folded(graph, made, x, number, axis)
    return downcast(graph, made, x)


def _folded(graph: Graph, made: str, x: str, axis: int, read: Reads) -> str:
    """The gradient of the input's pixels. Gradients of the copies beyond it are added to its first and last pixel."""
    places, (before, after) = graph.ints([axis]), read.beyond
    length = graph.shape(x, axis, axis + 1)
    start = graph.ints([before])
    end = graph.op("Add", start, length)
    rest = graph.op("Sub", length, graph.ints([1]))
    zero = graph.ints([0])
    parts = [graph.op("Slice", made, start, end, places)]
    for count, ends, pads in ((before, (zero, start), (zero, rest)), (after, (end, graph.ints([2**62])), (rest, zero))):
        if count:
            edge = graph.op("ReduceSum", graph.op("Slice", made, *ends, places), places)
            parts.append(graph.op("Pad", edge, graph.op("Concat", *pads, axis=0), "", places))
    return graph.total(parts)
