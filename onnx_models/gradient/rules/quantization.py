# SPDX-License-Identifier: MIT
"""Rules of quantization: straight-through gradients, as in PyTorch's fake quantization.

For y = DequantizeLinear(QuantizeLinear(x, s), s), dx is dy where the rounded value is in the range of the integers, and 0
where it saturates. ds is that of PyTorch's learnable fake quantization, and of the paper "Learned Step Size Quantization"
without its factor: the sum of dy*(q - x/s) where nothing saturates, and of dy*q where it does, with q the integer minus
the zero point. Each of the two operators computes a part of it. Floating-point types of 8 bits and less have the same
rules; PyTorch has none for these.

The gradient of an integer tensor, or of a small floating-point tensor, has type float.
"""

from __future__ import annotations

import onnx

from onnx_models.gradient.graph import GradientGraph, Node, sum_to
from onnx_models.gradient.registry import Gradients, rule
from onnx_models.gradient.rules.indexing import element_indices, scatter_added

_FLOAT = onnx.TensorProto.FLOAT

_RANGES: dict[str, tuple[float, float]] = {
    **{f"INT{bits}": (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1) for bits in (2, 4, 8, 16)},
    **{f"UINT{bits}": (0.0, 2.0**bits - 1) for bits in (2, 4, 8, 16)},
}
"""The minimum and maximum of each integer type."""

_LARGEST = {
    "FLOAT8E4M3FN": 448.0, "FLOAT8E4M3FNUZ": 240.0, "FLOAT8E5M2": 57344.0, "FLOAT8E5M2FNUZ": 57344.0,
    "FLOAT6E2M3": 7.5, "FLOAT6E3M2": 28.0, "FLOAT4E2M1": 6.0,
}  # fmt: skip
"""The maximum of each small floating-point type; the minimum is its negative."""


@rule("QuantizeLinear")
def quantize(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """x/s rounded to integers, plus the zero point, saturated to the range of the integers."""
    x, scale, zero_point = (node.input(i) for i in range(3))
    spread = _spread(graph, node, _wide(graph, scale))
    ratio = graph.op("Div", _wide(graph, x), spread)
    low, high, is_whole = _range(graph, node)
    rounded = graph.op("Round", ratio) if is_whole else ratio
    if is_whole and zero_point:
        rounded = graph.op("Add", rounded, _spread(graph, node, _wide(graph, zero_point)))
    is_inside = graph.op(
        "And",
        graph.op("GreaterOrEqual", rounded, graph.number(low, ratio)),
        graph.op("LessOrEqual", rounded, graph.number(high, ratio)),
    )
    share = graph.masked(is_inside, graph.op("Div", dy, spread), ratio)
    dx = _narrow(graph, share, x) if node.wants(0) else None
    if not node.wants(1):
        return [dx]
    # An infinite ratio saturates; 0 times it would be NaN.
    by_ratio = graph.op("Mul", share, graph.masked(is_inside, ratio, ratio))
    return [dx, _by_scale(graph, node, graph.op("Neg", by_ratio))]


@rule("DequantizeLinear")
def dequantize(graph: GradientGraph, node: Node, dy: str) -> Gradients:
    """Integers minus the zero point, times the scale."""
    x, scale, zero_point = (node.input(i) for i in range(3))
    wide_dy = _wide(graph, dy)
    dx = graph.op("Mul", wide_dy, _spread(graph, node, _wide(graph, scale))) if node.wants(0) else None
    if not node.wants(1):
        return [dx]
    steps = _wide(graph, x)
    if zero_point:
        steps = graph.op("Sub", steps, _spread(graph, node, _wide(graph, zero_point)))
    return [dx, _by_scale(graph, node, graph.op("Mul", wide_dy, steps))]


def _range(graph: GradientGraph, node: Node) -> tuple[float, float, bool]:
    """The minimum and maximum of the output's type, and whether it is an integer type."""
    kind = graph.element_type(node.outputs[0])
    name = onnx.TensorProto.DataType.Name(kind) if kind is not None else "unknown"
    if name in _RANGES:
        return (*_RANGES[name], True)
    if name in _LARGEST:
        return -_LARGEST[name], _LARGEST[name], False
    raise ValueError(
        f"{node}: its output has type {name.lower()}: must be one of {', '.join([*_RANGES, *_LARGEST]).lower()}"
    )


def _wide(graph: GradientGraph, name: str) -> str:
    return name if graph.element_type(name) == _FLOAT else graph.op("Cast", name, to=_FLOAT)


def _narrow(graph: GradientGraph, name: str, source: str) -> str:
    return name if graph.element_type(source) == _FLOAT else graph.op("CastLike", name, source)


def _spread(graph: GradientGraph, node: Node, scale: str) -> str:
    """A scale or zero point (per tensor, per axis or per block) in a shape that broadcasts to x."""
    if node.attribute("block_size", 0):
        return graph.op("Gather", scale, _blocks(graph, node), axis=node.attribute("axis", 1))
    x = node.input(0)
    if graph.rank(node.input(1), node) == 0:
        return scale
    rank = graph.rank(x, node)
    axis = node.attribute("axis", 1)
    behind = range(1, rank - (axis % rank if axis < 0 else axis))
    return graph.op("Unsqueeze", scale, graph.ints(behind)) if behind else scale


def _blocks(graph: GradientGraph, node: Node) -> str:
    axis = node.attribute("axis", 1) % graph.rank(node.input(0), node)
    length = graph.op("Squeeze", graph.shape(node.input(0), axis, axis + 1))
    return graph.op("Div", graph.counted(length), graph.integer(node.attribute("block_size")))


def _by_scale(graph: GradientGraph, node: Node, terms: str) -> str:
    """The gradient of the scale: terms in the shape of x, summed over the elements that each scale applies to."""
    x, scale = node.input(0), node.input(1)
    if node.attribute("block_size", 0):
        return scatter_added(graph, scale, _spread(graph, node, element_indices(graph, scale)), terms)
    spread = _spread(graph, node, scale)
    return _narrow(graph, graph.reshaped(sum_to(graph, terms, spread, x), scale), scale)
