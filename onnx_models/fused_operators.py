"""The fused nodes that ONNX Runtime's optimizer writes, and exporters for it, as compositions of ONNX's operators.

Source: ONNX Runtime, ``docs/ContribOperators.md``. Numbers of 16 bits are computed in float32, as its kernels do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from onnx_models.compositions import composition
from onnx_models.half_precision import downcast, upcast
from onnx_models.nodes import NodeBuilder, NodeView, Value

MICROSOFT = "com.microsoft"

fused = partial(composition, domain=MICROSOFT)


def _sum(graph: NodeBuilder, node: NodeView, *places: int) -> Value:
    """The sum of those inputs that are given, in float32 if they have 16 bits."""
    names = [upcast(graph, node.input(i)) for i in places if node.input(i)]
    first, *others = (Value(graph, name, names[0]) for name in names)
    return sum(others, first)


def _rounded(graph: NodeBuilder, node: NodeView, value: Value) -> str:
    return downcast(graph, value.name, node.input(0))


@fused("Gelu", "BiasGelu")
def gelu(graph: NodeBuilder, node: NodeView) -> Sequence[str]:
    """X (1 + erf(x / sqrt(2))) / 2 of the sum of all inputs."""
    x = _sum(graph, node, 0, 1)
    return [_rounded(graph, node, x * 0.5 * ((x * math.sqrt(0.5)).op("Erf") + 1))]


@fused("FastGelu")
def fast_gelu(graph: NodeBuilder, node: NodeView) -> Sequence[str]:
    """Gelu by a hyperbolic tangent, of the sum of all inputs."""
    x = _sum(graph, node, 0, 1)
    inner = x * ((x * x) * (0.044715 * math.sqrt(2 / math.pi)) + math.sqrt(2 / math.pi))
    return [_rounded(graph, node, x * 0.5 * (inner.op("Tanh") + 1))]


@fused("QuickGelu")
def quick_gelu(graph: NodeBuilder, node: NodeView) -> Sequence[str]:
    """X sigmoid(alpha x)."""
    x = _sum(graph, node, 0)
    return [_rounded(graph, node, x * (x * node.attribute("alpha", 1.702)).op("Sigmoid"))]


@fused("FusedMatMul", "TransposeMatMul")
def fused_matmul(graph: NodeBuilder, node: NodeView) -> Sequence[str]:
    """Alpha A' B', where a factor may be transposed, or have the first axis of its matrices before the others."""
    product = graph.op("MatMul", _factor(graph, node, 0, "ik"), _factor(graph, node, 1, "kj"))
    alpha = node.attribute("alpha", 1.0)
    return [product if alpha == 1 else (Value(graph, product, product) * alpha).name]


def _factor(graph: NodeBuilder, node: NodeView, i: int, matrix: str) -> str:
    """Input i as MatMul reads it. Einsum transposes it, since the rank may be unknown."""
    is_split, is_transposed = (node.attribute(f"{name}{'AB'[i]}", 0) for name in ("transBatch", "trans"))
    given = matrix[::-1] if is_transposed else matrix
    axes = f"{given[0]}...{given[1]}" if is_split else f"...{given}"
    wanted = f"...{matrix}"
    return node.input(i) if axes == wanted else graph.op("Einsum", node.input(i), equation=f"{axes}->{wanted}")


@fused("FusedGemm")
def fused_gemm(graph: NodeBuilder, node: NodeView) -> Sequence[str]:
    """Gemm and an activation."""
    given = {name: node.attribute(name) for name in ("alpha", "beta", "transA", "transB")}
    made = graph.op("Gemm", *node.inputs, **{name: value for name, value in given.items() if value is not None})
    settings = {name: node.attribute(f"activation_{name}") for name in ("alpha", "beta", "gamma")}
    return [_activated(graph, node, made, settings)]


@fused("FusedConv")
def fused_conv(graph: NodeBuilder, node: NodeView) -> Sequence[str]:
    """Conv, plus Z, and an activation."""
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    given = {name: node.attribute(name) for name in names}
    made = graph.op("Conv", *node.inputs[:3], **{name: value for name, value in given.items() if value is not None})
    if node.input(3):
        made = graph.op("Add", made, node.input(3))
    parameters = node.attribute("activation_params", [])
    if node.attribute("activation") == "Clip":
        return [graph.op("Clip", made, *(graph.number(value, made) for value in parameters))]
    return [_activated(graph, node, made, dict(zip(("alpha", "beta"), parameters, strict=False)))]


def _activated(graph: NodeBuilder, node: NodeView, name: str, settings: Mapping[str, Any]) -> str:
    """The activation of a tensor: an operator of ONNX, with the attributes that are given."""
    activation = node.attribute("activation", "")
    return graph.op(activation, name, **{k: v for k, v in settings.items() if v is not None}) if activation else name


@fused("SkipLayerNormalization")
def skip_layer_normalization(graph: NodeBuilder, node: NodeView) -> Sequence[str]:
    """LayerNormalization of input + skip + bias; the fourth output is that sum."""
    total = _sum(graph, node, 0, 1, 4)
    weights = [upcast(graph, name) for name in node.inputs[2:4]]
    made = graph.op("LayerNormalization", total.name, *weights, epsilon=node.attribute("epsilon", 1e-12))
    return [downcast(graph, made, node.input(0)), "", "", _rounded(graph, node, total)]


@fused("SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(graph: NodeBuilder, node: NodeView) -> Sequence[str]:
    """SimplifiedLayerNormalization of input + skip + bias; the fourth output is that sum."""
    total = _sum(graph, node, 0, 1, 3)
    made = _by_root_mean_square(graph, total, node.input(2), -1, node.attribute("epsilon", 1e-12))
    return [_rounded(graph, node, made), "", "", _rounded(graph, node, total)]


@composition("SimplifiedLayerNormalization", domain="")
def simplified_layer_normalization(graph: NodeBuilder, node: NodeView) -> Sequence[str]:
    """Scale x / sqrt(mean(x^2) + epsilon), with the mean along the axes from `axis` on."""
    axis, epsilon = node.attribute("axis", -1), node.attribute("epsilon", 1e-5)
    return [_rounded(graph, node, _by_root_mean_square(graph, _sum(graph, node, 0), node.input(1), axis, epsilon))]


def _by_root_mean_square(graph: NodeBuilder, x: Value, scale: str, axis: int, epsilon: float) -> Value:
    rows = x.op("Flatten", axis=axis)
    mean = Value(graph, graph.op("ReduceMean", (rows * rows).name, graph.ints([-1])), rows.kind)
    normalized = graph.op("Reshape", (rows / (mean + epsilon).op("Sqrt")).name, graph.op("Shape", x.name))
    return Value(graph, upcast(graph, scale), x.kind) * Value(graph, normalized, x.kind)
