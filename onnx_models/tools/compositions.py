# SPDX-License-Identifier: MIT
"""Operators that are compositions of ONNX's: those of ai.onnx.ml that are differentiable, and ONNX Runtime's fused nodes.

All nodes are in a form that opset 18 and all later ones share. Operators of ai.onnx.ml take [C] or [N, C] and compute in
float. Where their specification is silent, they are what ONNX Runtime computes. Of a fused node, which ONNX Runtime's
optimizer writes and exporters for it, numbers of 16 bits are computed in float32, as ONNX Runtime's kernels do.

Source: ONNX, ``docs/Operators-ml.md``, opset 5; ONNX Runtime, ``docs/ContribOperators.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any

import numpy as np
import onnx

from onnx_models.tools.nodes import NodeBuilder, NodeView, Value, downcast, upcast

Composition = Callable[[NodeBuilder, NodeView], Sequence[str]]
"""Adds nodes that compute the same as a node; returns the names of its first outputs, "" for one that is not computed."""

COMPOSITIONS: dict[tuple[str, str], Composition] = {}
"""The compositions by domain and operator."""


def composition(*operators: str, domain: str) -> Callable[[Composition], Composition]:
    """Register a function as the composition of operators; its errors become a ValueError that names the node."""

    def enter(function: Composition) -> Composition:
        @wraps(function)
        def named(graph: NodeBuilder, node: NodeView) -> Sequence[str]:
            try:
                return function(graph, node)
            except (IndexError, KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{node}: {error}") from error

        COMPOSITIONS.update({(domain, operator): named for operator in operators})
        return named

    return enter


ML = "ai.onnx.ml"

of_ml = partial(composition, domain=ML)


def _float(graph: NodeBuilder, name: str) -> Value:
    cast = graph.op("Cast", name, to=onnx.TensorProto.FLOAT)
    return Value(graph, cast, cast)


def _rows(graph: NodeBuilder, name: str) -> Value:
    """A tensor of [C] or [N, C] as rows, in float."""
    return _float(graph, name).op("Flatten", axis=-1)


def _floats(value: Value, numbers: Sequence[float], *lengths: int) -> Value:
    """A constant of the type of a value: a matrix, a vector, or a number if there is just one."""
    array = np.array(numbers, np.float32).reshape(lengths or (-1,) * (len(numbers) > 1))
    return Value(value.graph, value.graph.op("CastLike", value.graph.tensor(array), value.name), value.kind)


@of_ml("Scaler")
def scaler(graph: NodeBuilder, node: NodeView) -> Sequence[str]:
    """(x - offset) scale."""
    x = _float(graph, node.input(0))
    offset, scale = node.attribute("offset", [0.0]), node.attribute("scale", [1.0])
    return [_by_feature(x, max(len(offset), len(scale)), lambda x: (x - _floats(x, offset)) * _floats(x, scale))]


@of_ml("Imputer")
def imputer(graph: NodeBuilder, node: NodeView) -> Sequence[str]:
    """x, or the imputed value where x equals the replaced one; NaN equals NaN."""
    x = Value(graph, node.input(0), node.input(0))
    if (imputed := node.attribute("imputed_value_floats")) is not None:
        replaced = node.attribute("replaced_value_float", 0.0)
    else:
        imputed, replaced = node.attribute("imputed_value_int64s"), node.attribute("replaced_value_int64", 0)
    return [_by_feature(x, len(imputed), lambda x: _missing(x, replaced).op("Where", _floats(x, imputed), x))]


def _missing(x: Value, replaced: float) -> Value:
    return x.op("IsNaN") if math.isnan(replaced) else x.equals(replaced)


def _by_feature(x: Value, count: int, function: Callable[[Value], Value]) -> str:
    """A function of a tensor and of numbers for `count` features; rows of these are read where the rank may exceed 2."""
    lengths = x.graph.lengths(x.name)
    if count == 1 or (lengths is not None and len(lengths) <= 2):
        return function(x).name
    rows = Value(x.graph, x.graph.op("Reshape", x.name, x.graph.ints([-1, count])), x.kind)
    return x.graph.op("Reshape", function(rows).name, x.graph.op("Shape", x.name))


@of_ml("Normalizer")
def normalizer(graph: NodeBuilder, node: NodeView) -> Sequence[str]:
    """Rows divided by their largest element, by the sum of absolute values or by the length; a row is kept if that is 0."""
    x = _float(graph, node.input(0))
    norms, kind = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}, node.attribute("norm", "MAX")
    if kind not in norms:
        raise ValueError(f"norm = {kind!r}: must be one of {', '.join(norms)}")
    norm = Value(graph, graph.op(norms[kind], x.name, graph.ints([-1])), x.kind)
    return [(x / norm.equals(0).op("Where", x.of(1), norm)).name]


@of_ml("FeatureVectorizer")
def feature_vectorizer(graph: NodeBuilder, node: NodeView) -> Sequence[str]:
    """The features of all inputs, side by side."""
    return [graph.op("Concat", *(_rows(graph, name).name for name in node.inputs), axis=-1)]


@of_ml("LinearRegressor")
def linear_regressor(graph: NodeBuilder, node: NodeView) -> Sequence[str]:
    """The transformed sums of coefficients times features, plus intercepts."""
    targets = node.attribute("targets", 1)
    return [_transformed(node, _sums(graph, node, targets), targets).name]


@of_ml("LinearClassifier")
def linear_classifier(graph: NodeBuilder, node: NodeView) -> Sequence[str]:
    """The second output: transformed scores of all classes. A single score gets that of the other class before it."""
    classes = len(node.attribute("intercepts", []))
    scores = _sums(graph, node, classes)
    if classes > 1:
        return ["", _transformed(node, scores, classes).name]
    kind = node.attribute("post_transform", "NONE")
    if kind == "PROBIT":
        raise ValueError(
            "post_transform = 'PROBIT': must have several scores, ONNX Runtime does not compute the second"
        )
    is_logistic = kind == "LOGISTIC"
    other, own = ((-scores).op("Sigmoid"), scores.op("Sigmoid")) if is_logistic else (1 - scores, scores)
    return ["", other.op("Concat", own, axis=-1).name]


def _sums(graph: NodeBuilder, node: NodeView, count: int) -> Value:
    """[N, count]: coefficients times features, plus intercepts, which a regressor may lack."""
    x, intercepts = _rows(graph, node.input(0)), node.attribute("intercepts", [])
    coefficients = _floats(x, node.attribute("coefficients", []), count, -1)
    return x.op("Gemm", coefficients, *([_floats(x, intercepts, -1)] if len(intercepts) == count else []), transB=1)


def _transformed(node: NodeView, scores: Value, count: int) -> Value:
    """The scores after post_transform; ONNX Runtime transforms a single score by PROBIT only."""
    kind = node.attribute("post_transform", "NONE")
    if kind == "PROBIT":
        return _probit(scores)
    if kind == "NONE" or count == 1:
        return scores
    if kind == "LOGISTIC":
        return scores.op("Sigmoid")
    if kind == "SOFTMAX":
        return scores.op("Softmax", axis=-1)
    # SOFTMAX_ZERO: the softmax of those scores that are not 0; the others stay 0.
    return (abs(scores) > 1e-7).op("Where", scores, scores.of(-math.inf)).op("Softmax", axis=-1)


def _probit(scores: Value) -> Value:
    """sqrt(2) erfinv(2 score - 1), by Winitzki's approximation, without a quotient of zeros where the score is 1/2."""
    x = scores * 2 - 1
    square = x * x
    is_small = square < 1e-6
    log = (1 - square).op("Log")
    ratio = is_small.op("Where", x.of(1), -log / is_small.op("Where", x.of(1), square))
    half = log * 0.5 + 2 / (math.pi * 0.147)
    root = (half * half - log / 0.147).op("Sqrt")
    return x * (ratio * (2 / 0.147) / (half + root)).op("Sqrt")


@of_ml("SVMRegressor")
def svm_regressor(graph: NodeBuilder, node: NodeView) -> Sequence[str]:
    """Rho plus the sum of coefficients times the kernel of x and each support vector, or times features without these."""
    if node.attribute("one_class", 0):
        raise ValueError("one_class = 1: must be 0, its output is constant between its steps")
    x, count = _rows(graph, node.input(0)), node.attribute("n_supports", 0)
    if count:
        x = _kernel(node, x, _floats(x, node.attribute("support_vectors"), count, -1))
    coefficients, rho = _floats(x, node.attribute("coefficients"), 1, -1), _floats(x, node.attribute("rho"), -1)
    return [x.op("Gemm", coefficients, rho, transB=1).name]


def _kernel(node: NodeView, x: Value, vectors: Value) -> Value:
    """[N, number of vectors]."""
    kind = node.attribute("kernel_type", "LINEAR")
    gamma, coef0, degree = node.attribute("kernel_params") or (0.0, 0.0, 3.0)
    if kind == "RBF":
        graph = x.graph
        between = Value(graph, graph.op("Unsqueeze", x.name, graph.ints([1])), x.kind) - vectors
        squares = graph.op("ReduceSumSquare", between.name, graph.ints([-1]), keepdims=0)
        return (Value(graph, squares, x.kind) * -gamma).op("Exp")
    if kind == "LINEAR":
        return x.op("Gemm", vectors, transB=1)
    scaled = x.op("Gemm", vectors, alpha=gamma, transB=1) + coef0
    return scaled.op("Tanh") if kind == "SIGMOID" else scaled.op("Pow", x.of(degree))


@of_ml("ArrayFeatureExtractor")
def array_feature_extractor(graph: NodeBuilder, node: NodeView) -> Sequence[str]:
    """The chosen features; a vector counts as one row."""
    x, places = node.inputs
    chosen = graph.op("Gather", x, graph.op("Reshape", places, graph.ints([-1])), axis=-1)
    return [graph.op("Expand", chosen, graph.ints([1, 1]))]


fused = partial(composition, domain="com.microsoft")


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
    product = graph.op("Gemm", *node.inputs, **{name: value for name, value in given.items() if value is not None})
    settings = {name: node.attribute(f"activation_{name}") for name in ("alpha", "beta", "gamma")}
    return [_activated(graph, node, product, settings)]


@fused("FusedConv")
def fused_conv(graph: NodeBuilder, node: NodeView) -> Sequence[str]:
    """Conv, plus Z, and an activation."""
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    given = {name: node.attribute(name) for name in names}
    convolved = graph.op(
        "Conv", *node.inputs[:3], **{name: value for name, value in given.items() if value is not None}
    )
    if node.input(3):
        convolved = graph.op("Add", convolved, node.input(3))
    parameters = node.attribute("activation_params", [])
    if node.attribute("activation") == "Clip":
        return [graph.op("Clip", convolved, *(graph.number(value, convolved) for value in parameters))]
    return [_activated(graph, node, convolved, dict(zip(("alpha", "beta"), parameters, strict=False)))]


def _activated(graph: NodeBuilder, node: NodeView, name: str, settings: Mapping[str, Any]) -> str:
    """The activation of a tensor: an operator of ONNX, with the attributes that are given."""
    activation = node.attribute("activation", "")
    return graph.op(activation, name, **{k: v for k, v in settings.items() if v is not None}) if activation else name


@fused("SkipLayerNormalization")
def skip_layer_normalization(graph: NodeBuilder, node: NodeView) -> Sequence[str]:
    """LayerNormalization of input + skip + bias; the fourth output is that sum."""
    total = _sum(graph, node, 0, 1, 4)
    weights = [upcast(graph, name) for name in node.inputs[2:4]]
    normalized = graph.op("LayerNormalization", total.name, *weights, epsilon=node.attribute("epsilon", 1e-12))
    return [downcast(graph, normalized, node.input(0)), "", "", _rounded(graph, node, total)]


@fused("SkipSimplifiedLayerNormalization")
def skip_simplified_layer_normalization(graph: NodeBuilder, node: NodeView) -> Sequence[str]:
    """SimplifiedLayerNormalization of input + skip + bias; the fourth output is that sum."""
    total = _sum(graph, node, 0, 1, 3)
    normalized = _by_root_mean_square(graph, total, node.input(2), -1, node.attribute("epsilon", 1e-12))
    return [_rounded(graph, node, normalized), "", "", _rounded(graph, node, total)]


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
