# SPDX-License-Identifier: MIT
"""Rules of normalizations. Half precision is computed in float32, which is ONNX's default stash_type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from onnx_models.gradient.graph import GradientGraph, Node, sum_to
from onnx_models.gradient.registry import Gradients, Incoming, Zero, decomposition, multi_output_rule, rule
from onnx_models.tools.nodes import HALF, downcast, upcast


@dataclass(frozen=True)
class _Normalized:
    """A tensor, minus its mean if `is_centred`, and then multiplied by `inverse`, the reciprocal root of its mean square."""

    values: str
    inverse: str
    axes: str
    is_centred: bool


def _normalized(
    graph: GradientGraph, x: str, axes: Sequence[int], epsilon: float, *, is_centred: bool = True
) -> _Normalized:
    """A tensor normalized along axes; epsilon is added to the variance or the mean square."""
    along = graph.ints(axes)
    centred = graph.op("Sub", x, graph.op("ReduceMean", x, along)) if is_centred else x
    variance = graph.op("ReduceMean", graph.op("Mul", centred, centred), along)
    inverse = _inverse_root(graph, variance, epsilon, x)
    return _Normalized(graph.op("Mul", centred, inverse), inverse, along, is_centred)


def _inverse_root(graph: GradientGraph, variance: str, epsilon: float, like: str) -> str:
    return graph.op("Reciprocal", graph.op("Sqrt", graph.op("Add", variance, graph.number(epsilon, like))))


def _by_normalized(graph: GradientGraph, normalized: _Normalized, gradient: str) -> str:
    """The gradient of a tensor from the gradient of its normalized values.

    The mean removes the constant component of the gradient, and the variance its component along the values.
    """
    values, axes = normalized.values, normalized.axes
    along = graph.op("Mul", values, graph.op("ReduceMean", graph.op("Mul", gradient, values), axes))
    if normalized.is_centred:
        gradient = graph.op("Sub", gradient, graph.op("ReduceMean", gradient, axes))
    return graph.op("Mul", graph.op("Sub", gradient, along), normalized.inverse)


def _computed_in(graph: GradientGraph, x: str) -> int | None:
    """The type to compute in; None if the type of x is unknown."""
    kind = graph.element_type(x)
    return onnx.TensorProto.FLOAT if kind in HALF else kind


def _upcast(graph: GradientGraph, name: str, x: str) -> str:
    """The tensor cast to the type to compute in; an unknown type is taken to be that of x."""
    wanted = _computed_in(graph, x)
    if wanted is None or wanted == (graph.element_type(name) or graph.element_type(x)):
        return name
    return graph.op("Cast", name, to=wanted)


def _of_inputs(
    graph: GradientGraph, node: Node, parts: Sequence[str | None], missing: Zero | None = None
) -> list[str | Zero | None]:
    """The needed gradients of the inputs, cast to the types of the inputs; `missing` for the others."""
    computed_in = _computed_in(graph, node.input(0))
    gradients: list[str | Zero | None] = []
    for i, (part, source) in enumerate(zip(parts, node.inputs, strict=False)):
        if part is None or not node.wants(i):
            gradients.append(missing)
        else:
            is_cast = graph.element_type(source) != computed_in
            gradients.append(graph.op("CastLike", part, source) if is_cast else part)
    return gradients


@multi_output_rule("LayerNormalization", "RMSNormalization")
def layer_normalization(graph: GradientGraph, node: Node, incoming: Incoming) -> Gradients:
    """Normalized along the last axes, times Scale, plus B; further outputs are the mean and the inverse deviation.

    RMSNormalization subtracts no mean, and has neither B nor further outputs.
    """
    x = node.input(0)
    axis = node.attribute("axis", -1)
    first = axis if axis < 0 else axis - graph.rank(x, node)
    dy, by_mean, by_inverse = (None if part is None else _upcast(graph, part, x) for part in _padded(incoming, 3))
    wide, scale = (_upcast(graph, name, x) for name in node.inputs[:2])
    is_centred = node.proto.op_type == "LayerNormalization"
    normalized = _normalized(graph, wide, range(first, 0), node.attribute("epsilon", 1e-5), is_centred=is_centred)
    dx: list[str] = []
    parts: list[str | None] = [None] * len(node.inputs)
    if dy is not None:
        dx.append(_by_normalized(graph, normalized, graph.op("Mul", dy, scale)))
        terms = [graph.op("Mul", dy, normalized.values), dy]
        parts[1:] = [sum_to(graph, term, name, x) for term, name in zip(terms, node.inputs[1:], strict=False)]
    if by_mean is not None or by_inverse is not None:
        count = graph.op("ReduceProd", graph.shape(x, first), keepdims=0)
        share = graph.op("Reciprocal", graph.op("CastLike", count, wide))
    if by_mean is not None:
        dx.append(graph.op("Expand", graph.op("Mul", by_mean, share), graph.shape(x)))
    if by_inverse is not None:
        square = graph.op("Mul", normalized.inverse, normalized.inverse)
        factor = graph.op("Neg", graph.op("Mul", graph.op("Mul", by_inverse, share), square))
        dx.append(graph.op("Mul", normalized.values, factor))
    return _of_inputs(graph, node, [graph.total(dx), *parts[1:]], _INDEPENDENT)


def _padded(incoming: Incoming, count: int) -> list[str | None]:
    """The gradients of outputs, with None for each output that the operator may have and the node lacks."""
    return [*incoming, *[None] * (count - len(incoming))]


_INDEPENDENT = Zero("the loss does not depend on the outputs that depend on it")


@rule("InstanceNormalization")
def instance_normalization(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """Each channel of each sample normalized, times scale, plus B."""
    x = node.input(0)
    count = graph.op("ReduceProd", graph.op("Shape", x, start=2), keepdims=1)
    return _by_groups(graph, node, dy, graph.joined(graph.op("Shape", x, end=2), count))


@rule("GroupNormalization")
def group_normalization(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """Groups of channels normalized, times scale, plus bias; these are per channel, before opset 21 per group."""
    x, groups = node.input(0), graph.ints([node.attribute("num_groups")])
    count = graph.op("Div", graph.op("ReduceProd", graph.op("Shape", x, start=1), keepdims=1), groups)
    return _by_groups(graph, node, dy, graph.joined(graph.op("Shape", x, end=1), groups, count))


def _by_groups(graph: GradientGraph, node: Node, dy: str, shape: str) -> Gradients:
    """The gradients of x, scale and bias, where x is reshaped to [samples, groups, pixels] and normalized along pixels."""
    x = node.input(0)
    wide, scale, wide_dy = (_upcast(graph, name, x) for name in (x, node.input(1), dy))
    of_groups = node.proto.op_type == "GroupNormalization" and node.version < 21
    if of_groups:
        scale = _for_channels(graph, node, scale)
    grouped = graph.in_shape(wide, shape)
    normalized = _normalized(graph, grouped, [2], node.attribute("epsilon", 1e-5))
    parts: list[str | None] = [None, None, _channel_sums(graph, node, wide_dy)]
    if node.wants(0):
        scaled = graph.op("Mul", wide_dy, _by_channel(graph, node, scale))
        by_values = graph.in_shape(scaled, shape)
        parts[0] = graph.reshaped(_by_normalized(graph, normalized, by_values), x)
    if node.wants(1):
        terms = graph.op("Mul", wide_dy, graph.reshaped(normalized.values, x))
        parts[1] = _channel_sums(graph, node, terms)
    if of_groups:
        lines = graph.ints([node.attribute("num_groups"), -1])
        sums = [
            graph.op("ReduceSum", graph.op("Reshape", part, lines), graph.ints([1]), keepdims=0)
            for part in parts[1:]
            if part
        ]
        parts[3 - len(sums) :] = sums
    return _of_inputs(graph, node, parts)


def _for_channels(graph: GradientGraph, node: Node, name: str) -> str:
    """A tensor with a value for each channel, from one with a value for each group."""
    groups = node.attribute("num_groups")
    count = graph.op("Div", graph.shape(node.input(0), 1, 2), graph.ints([groups]))
    lines = graph.op("Expand", graph.op("Unsqueeze", name, graph.ints([1])), graph.joined(groups, count))
    return graph.flat(lines)


def _by_channel(graph: GradientGraph, node: Node, name: str) -> str:
    """A value for each channel, in a shape that broadcasts to that of x."""
    rank = graph.rank(node.input(0), node)
    return graph.op("Unsqueeze", name, graph.ints(range(1, rank - 1))) if rank > 2 else name


def _channel_sums(graph: GradientGraph, node: Node, name: str) -> str:
    """The sum over all axes but that of the channels, of a tensor with the shape of x."""
    rank = graph.rank(node.input(0), node)
    return graph.op("ReduceSum", name, graph.ints([0, *range(2, rank)]), keepdims=0)


@multi_output_rule("BatchNormalization")
def batch_normalization(graph: GradientGraph, node: Node, incoming: Incoming) -> Gradients:
    """(X - mean) / sqrt(variance + epsilon) * scale + B; in training with the mean and variance of the batch."""
    if node.attribute("training_mode", 0):
        return _in_training(graph, node, incoming)
    x, dy = node.input(0), incoming[0]
    if dy is None:
        raise ValueError(f"{node}: with training_mode = 0, all outputs but the first must be unused")
    wide, scale, _, mean, variance = (_upcast(graph, name, x) for name in node.inputs)
    wide_dy = _upcast(graph, dy, x)
    inverse = _inverse_root(graph, variance, node.attribute("epsilon", 1e-5), wide)
    factor = graph.op("Mul", scale, inverse)
    parts: list[str | None] = [None] * 5
    if node.wants(0):
        parts[0] = graph.op("Mul", wide_dy, _by_channel(graph, node, factor))
    if node.wants(2) or node.wants(3):
        sums = _channel_sums(graph, node, wide_dy)
        parts[2:4] = sums, graph.op("Neg", graph.op("Mul", sums, factor))
    if node.wants(1) or node.wants(4):
        centred = graph.op("Sub", wide, _by_channel(graph, node, mean))
        by_scale = graph.op("Mul", _channel_sums(graph, node, graph.op("Mul", wide_dy, centred)), inverse)
        # The derivative of scale / sqrt(variance), divided by one inverse.
        by_variance = graph.op("Mul", graph.op("Mul", factor, inverse), graph.number(-0.5, wide))
        parts[1], parts[4] = by_scale, graph.op("Mul", by_variance, by_scale)
    return _of_inputs(graph, node, parts)


def _in_training(graph: GradientGraph, node: Node, incoming: Incoming) -> Gradients:
    """The gradients in training: through the batch's mean and variance, and through the running mean and variance.

    The running statistics are momentum * input + (1 - momentum) * that of the batch. As in the operator's specification,
    the variance is a mean over all elements of a channel, without Bessel's correction.
    """
    x, momentum = node.input(0), node.attribute("momentum", 0.9)
    axes = [0, *range(2, graph.rank(x, node))]
    wide, scale = (_upcast(graph, name, x) for name in node.inputs[:2])
    wide_dy, by_mean, by_variance = (None if dy is None else _upcast(graph, dy, x) for dy in _padded(incoming, 3))
    keep, share = graph.number(momentum, wide), graph.number(1 - momentum, wide)
    parts: list[str | None] = [None] * 5
    dx = []
    if wide_dy is not None:
        normalized = _normalized(graph, wide, axes, node.attribute("epsilon", 1e-5))
        dx.append(_by_normalized(graph, normalized, graph.op("Mul", wide_dy, _by_channel(graph, node, scale))))
        parts[1] = _channel_sums(graph, node, graph.op("Mul", wide_dy, normalized.values))
        parts[2] = _channel_sums(graph, node, wide_dy)
    if by_mean is not None or by_variance is not None:
        count = graph.op("Max", graph.op("Size", node.input(1)), graph.integer(1))
        terms = graph.op("Div", graph.op("Size", x), count)
        share = graph.op("Div", share, graph.op("CastLike", terms, wide))
    if by_mean is not None:
        parts[3] = graph.op("Mul", by_mean, keep)
        spread = _by_channel(graph, node, graph.op("Mul", by_mean, share))
        dx.append(graph.op("Expand", spread, graph.shape(x)))
    if by_variance is not None:
        parts[4] = graph.op("Mul", by_variance, keep)
        centred = graph.op("Sub", wide, graph.op("ReduceMean", wide, graph.ints(axes)))
        twice = graph.op("Mul", graph.op("Mul", by_variance, share), graph.number(2.0, wide))
        dx.append(graph.op("Mul", centred, _by_channel(graph, node, twice)))
    parts[0] = graph.total(dx)
    return _of_inputs(graph, node, parts, _INDEPENDENT)


@decomposition("MeanVarianceNormalization")
def mean_variance_normalization(graph: GradientGraph, node: Node) -> list[str]:
    """(X - mean) / (deviation + 1e-9), taken along axes.

    The function of the specification is not used: it has float constants for X of any type, and computes the variance as a
    difference of squares.
    """
    x, axes = upcast(graph, node.input(0)), graph.ints(node.attribute("axes", [0, 2, 3]))
    centred = graph.op("Sub", x, graph.op("ReduceMean", x, axes))
    deviation = graph.op("Sqrt", graph.op("ReduceMean", graph.op("Mul", centred, centred), axes))
    normalized = graph.op("Div", centred, graph.op("Add", deviation, graph.number(1e-9, x)))
    return [downcast(graph, normalized, node.input(0))]


@decomposition("LpNormalization")
def lp_normalization(graph: GradientGraph, node: Node) -> list[str]:
    """Vectors along an axis divided by their norms; for a vector of zeros both result and gradient are 0."""
    x, order = node.input(0), node.attribute("p", 2)
    norm = graph.op(f"ReduceL{order}", x, graph.ints([node.attribute("axis", -1)]), keepdims=1)
    is_zero = graph.op("Equal", norm, graph.number(0.0, x))
    return [graph.op("Where", is_zero, graph.number(0.0, x), graph.op("Div", x, norm))]
