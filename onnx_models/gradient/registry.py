# SPDX-License-Identifier: MIT
"""The tables of rules and decompositions, and of the operators at which a gradient ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import onnx

from onnx_models.gradient.graph import GradientGraph, Node
from onnx_models.tools.compositions import COMPOSITIONS, ML

REAL = {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
"""The element types of tensors whose gradients have the same type."""

RANDOM = {
    "Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
}  # fmt: skip
"""Operators that may draw random numbers; Dropout does in training."""


@dataclass(frozen=True)
class Zero:
    """Marks an input with respect to which the derivative is 0.

    reason: the end of a sentence that begins with "its derivative is 0, because".
    """

    reason: str


Part = str | Zero | None
"""The gradient of an input: the name of a tensor, a zero, or None if it is not needed."""

Incoming = Sequence[str | None]
"""Names of the gradients of a node's outputs; None for an output that the loss does not depend on."""

Gradients = Sequence[Part] | Mapping[str, Part]
"""The gradients of the inputs in order, or by the names of inputs and captured tensors."""

Rule = Callable[[GradientGraph, Node, str], Gradients | str]
"""Takes the gradient of the first output and returns the gradients of the inputs, or that of the only one that has one."""

MultiOutputRule = Callable[[GradientGraph, Node, Incoming], Gradients | None]
"""Takes the gradients of all outputs, at least one of them not None. A result of None asks for the decomposition."""

Decomposition = Callable[[GradientGraph, Node], Sequence[str]]
"""Adds nodes that compute the same as a node; returns the names of the outputs, "" for one that the node omits."""

RULES: dict[tuple[str, str], MultiOutputRule] = {}
"""The rules by domain and operator."""

DECOMPOSITIONS: dict[tuple[str, str], Decomposition] = {**COMPOSITIONS}
"""The decompositions by domain and operator."""

_STEP = "it is constant between its steps"
_NUMBERS = "its output is not floating-point"
_INDEPENDENT = "it depends only on the shape"

ZEROS: dict[tuple[str, str], Zero] = {
    ("", name): Zero(reason)
    for reason, names in {
        _STEP: ("Ceil", "Floor", "Hardmax", "MelWeightMatrix", "Round", "Sign"),
        _INDEPENDENT: ("ConstantOfShape", "EyeLike", "RandomNormalLike", "RandomUniformLike", "Shape", "Size"),
        "only the distribution of its random numbers depends on the input": ("Bernoulli", "Multinomial"),
        _NUMBERS: (
            "And", "ArgMax", "ArgMin", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor",
            "Equal", "Greater", "GreaterOrEqual", "ImageDecoder", "IsInf", "IsNaN", "Less", "LessOrEqual",
            "NonMaxSuppression", "NonZero", "Not", "OptionalHasElement", "Or", "SequenceLength", "StringConcat",
            "StringNormalizer", "StringSplit", "RegexFullMatch", "TfIdfVectorizer", "Xor",
        ),
        "its output is a constant": (
            "BlackmanWindow", "Constant", "HammingWindow", "HannWindow", "RandomNormal",
            "RandomUniform",
        ),
    }.items()
    for name in names
} | {
    (ML, name): Zero(reason)
    for reason, names in {
        _STEP: (
            "Binarizer", "LabelEncoder", "OneHotEncoder", "TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor",
        ),
        _NUMBERS: ("CategoryMapper",),
    }.items()
    for name in names
}  # fmt: skip
"""Operators whose derivative is 0 wherever it exists."""

_INTEGERS = "it computes with integers; only QuantizeLinear followed by DequantizeLinear passes a gradient"
_BITS = "it reinterprets the bits of its input as another type"
_MAPS = "maps are not differentiated"
_OPTIONAL = "optional values are not differentiated"
_SEQUENCE = "a sequence is differentiated only where the number of its tensors and the positions in it are known"

REFUSED: dict[tuple[str, str], str] = {
    ("", name): reason
    for reason, names in {
        _INTEGERS: (
            "ConvInteger", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul",
        ),
        _BITS: ("BitCast",),
        _SEQUENCE: (
            "ConcatFromSequence", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert",
            "SequenceMap", "SplitToSequence",
        ),
        _OPTIONAL: ("Optional", "OptionalGetElement"),
    }.items()
    for name in names
} | {
    (ML, "CastMap"): _MAPS, (ML, "DictVectorizer"): _MAPS, (ML, "ZipMap"): _MAPS,
    (ML, "SVMClassifier"): "its scores are votes, or probabilities that an iteration finds",
}  # fmt: skip
"""Operators that cannot be differentiated, with the reason."""


F = TypeVar("F")


def _entry(table: dict[tuple[str, str], F], operators: Sequence[str], domain: str) -> Callable[[F], F]:
    def enter(function: F) -> F:
        table.update({(domain, operator): function for operator in operators})
        return function

    return enter


def multi_output_rule(*operators: str, domain: str = "") -> Callable[[MultiOutputRule], MultiOutputRule]:
    """Register a function as the rule of operators with gradients of several outputs."""
    return _entry(RULES, operators, domain)


def decomposition(*operators: str, domain: str = "") -> Callable[[Decomposition], Decomposition]:
    """Register a function as the decomposition of operators into others, which are differentiated."""
    return _entry(DECOMPOSITIONS, operators, domain)


def rule(*operators: str, domain: str = "") -> Callable[[Rule], Rule]:
    """Register a function as the rule of operators with a gradient of the first output only."""

    def enter(function: Rule) -> Rule:
        def of_first(graph: GradientGraph, node: Node, incoming: Incoming) -> Gradients:
            for name, gradient in zip(node.outputs[1:], incoming[1:], strict=True):
                if gradient is not None:
                    raise ValueError(f"{node} has a gradient rule for its first output, but none for {name!r}")
            gradients = function(graph, node, str(incoming[0]))
            return [gradients] if isinstance(gradients, str) else gradients

        multi_output_rule(*operators, domain=domain)(of_first)
        return function

    return enter
