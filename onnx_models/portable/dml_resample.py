# SPDX-License-Identifier: MIT
"""The bodies of DirectML's Resample and of its gradient, which work axis by axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from onnx_models.portable.attributes import Attributes, BodyRequest
from onnx_models.portable.graph import Value, concat, ones, zeros
from onnx_models.portable.sampling import Rounding, resample_taps
from ortops.operators.dml_resample import INPUT_PIXEL_OFFSET, OUTPUT_PIXEL_OFFSET
from ortops.spec import MAX_RANK

_DEFAULTS = {"input_pixel_offsets": INPUT_PIXEL_OFFSET, "output_pixel_offsets": OUTPUT_PIXEL_OFFSET}


def outputs(given: Mapping[str, Value], request: BodyRequest) -> dict[str, Value]:
    """Return the wanted outputs by name."""
    (name,) = request.wanted
    values = [given[tensor.name] for tensor in request.operator.inputs]
    tensor = values[0].cast(request.sums)
    if not request.operator.is_gradient:
        return {name: forward(tensor, request.attributes)}
    return {name: gradient(tensor, values[1].cast("int64"), request)}


def forward(x: Value, attributes: Attributes) -> Value:
    """Scale a tensor along each axis; lists have a value for each axis."""
    sizes = attributes.count("output_sizes")
    lengths = x.lengths(attributes.count("scales") or sizes)
    if sizes:
        outputs = [attributes.entry("output_sizes", axis, "int64") for axis in range(sizes)]
    else:
        scales = [attributes.entry("scales", axis, "double") for axis in range(len(lengths))]
        scaled = zip(lengths, scales, strict=True)
        outputs = [(length.cast("double") * scale).floor().cast("int64") for length, scale in scaled]
    # If Y is empty, no pixel is read along its other axes, where X may be empty.
    some = _at_most_one(outputs)
    for axis, length in enumerate(lengths):
        if not sizes and _is_identity(attributes, axis):
            continue
        low, high, f = _axis(attributes, axis, outputs[axis] * some, length)
        before = x.gather(low, axis)
        if f is None:
            x = before
            continue
        f = f.cast(x.kind).unsqueeze(*range(1, len(lengths) - axis))
        # A sample exactly on a pixel ignores the next pixel, which may be infinite or NaN.
        x = (f > 0.0).where(before * (1.0 - f) + x.gather(high, axis) * f, before)
    return x.reshape(*outputs)


def gradient(dy: Value, x_shape: Value, request: BodyRequest) -> Value:
    """Apply the transpose of `forward`, to the shape `x_shape`."""
    attributes = request.attributes
    rank = max(attributes.count(name) for name in ("scales", *_DEFAULTS))
    if rank:
        outputs, lengths = dy.lengths(rank), x_shape.entries(rank)
    else:
        outputs = dy.lengths_up_to(MAX_RANK)
        missing = ones(MAX_RANK - dy.rank)
        lengths = concat(0, missing, x_shape).entries(MAX_RANK)
    dx, some = dy.reshape(*outputs), _at_most_one(outputs)
    done: list[Value] = list(outputs)
    for axis, length in enumerate(lengths):
        dx = _collected(
            dx, done, axis, length, _axis(attributes, axis, outputs[axis] * some, length), request.without_loops
        )
        done[axis] = length
    return dx.op("Reshape", x_shape, allowzero=1)


def _at_most_one(lengths: Sequence[Value]) -> Value:
    """Return 1 if a tensor of these lengths has elements, else 0, int64[1]."""
    return math.prod(lengths, start=lengths[0].graph.constant([1], "int64")).at_most(1)


_Taps = tuple[Value, Value, Value | None]
"""For each output, the pixels before and after it and its distance from the former."""


def _axis(attributes: Attributes, axis: int, outputs: Value, length: Value) -> _Taps:
    reading: Rounding = attributes.word("rounding_direction")
    if attributes.word("interpolation_mode") == "linear":
        reading = "linear"
    before, after = (
        attributes.entry(name, axis, "double") if attributes.count(name) else outputs.graph.constant(default, "double")
        for name, default in _DEFAULTS.items()
    )
    scale = attributes.entry("scales", axis, "double") if attributes.count("scales") else None
    return resample_taps(outputs, length, reading, scale=scale, offsets=(before, after))


def _is_identity(attributes: Attributes, axis: int) -> bool:
    """Return whether no node changes an axis."""
    offsets = [attributes.known(name, axis, default) for name, default in _DEFAULTS.items()]
    scale = attributes.known("scales", axis, None)
    return scale == 1.0 and None not in offsets and sum(offset for offset in offsets if offset is not None) == 0.0


def _collected(
    dy: Value, lengths: Sequence[Value], axis: int, length: Value, taps: _Taps, without_loops: bool
) -> Value:
    """Return the gradient along one axis: for each pixel, the weighted sum over the outputs that read it.

    Since coordinates ascend, the outputs that read a pixel are consecutive: iteration k adds the k-th output of each pixel,
    unless `without_loops` asks for all outputs at once.
    """
    low, high, f = taps
    graph, outputs = dy.graph, lengths[axis]
    after = range(1, len(lengths) - axis)

    def add(total: Value, pixels: Value, weights: Value | None) -> Value:
        if without_loops:
            part = dy.slice(axis, graph.constant([0], "int64"), pixels.length(0))
            if weights is not None:
                weights = weights.unsqueeze(*after)
                part = (weights > 0.0).where(part * weights, 0.0)
            places = pixels.unsqueeze(*after).op("Expand", part.shape())
            return total.op("ScatterElements", places, part, axis=axis, reduction="add")
        count = zeros("int64", length).op("ScatterElements", pixels, ones(pixels.length(0)), axis=0, reduction="add")
        first = count.op("CumSum", graph.constant(0, "int64"), exclusive=1)
        rounds = concat(0, count, graph.constant([0], "int64")).max(0).reshape(1)

        def of_round(k: Value, carried: list[Value]) -> tuple[list[Value], list[Value]]:
            output = (first + k).at_most(outputs - 1)
            part, reads = dy.gather(output, axis), count > k
            if weights is not None:
                weight = weights.gather(output)
                part, reads = part * weight.unsqueeze(*after), reads & (weight > 0.0)
            return [carried[0] + reads.unsqueeze(*after).where(part, 0.0)], []

        (total,) = graph.loop(rounds, of_round, [total])
        return total

    target = zeros(dy.kind, *[*lengths[:axis], length, *lengths[axis + 1 :]])
    if f is None:
        return add(target, low, None)
    f = f.cast(dy.kind)
    return add(add(target, low, 1.0 - f), high, f)
