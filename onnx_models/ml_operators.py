"""The differentiable operators of ai.onnx.ml as compositions of ONNX's operators.

They take [C] or [N, C] and compute in float. Where the specification is silent, they are what ONNX Runtime computes.

Source: ONNX, ``docs/Operators-ml.md``, opset 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import onnx

from onnx_models.compositions import composition
from onnx_models.nodes import NodeBuilder, NodeView, Value

ML = "ai.onnx.ml"

of_ml = partial(composition, domain=ML)


def _float(graph: NodeBuilder, name: str) -> Value:
    made = graph.op("Cast", name, to=onnx.TensorProto.FLOAT)
    return Value(graph, made, made)


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
