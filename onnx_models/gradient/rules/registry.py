"""The table of rules, and the operators at which a gradient ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx

from onnx_models.gradient.graph import Graph, Node

REAL = {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
"""The types of tensors that have gradients of their own type."""


@dataclass(frozen=True)
class Zero:
    """The gradient by an input that has no influence, or none that has a derivative other than 0.

    reason: why, as the rest of a sentence that begins with "its derivative is 0, since".
    """

    reason: str


Part = str | Zero | None
"""The gradient by an input: the name of a tensor, a zero, or None for one that is not wanted."""

Incoming = Sequence[str | None]
"""Names of the gradients by the outputs of a node; None where there is none."""

Gradients = Sequence[Part] | Mapping[str, Part]
"""The gradients by the inputs in their order, or by the names of inputs and captured tensors."""

Rule = Callable[[Graph, Node, str], Gradients]
"""From the gradient by the first output to those by the inputs."""

MultiOutputRule = Callable[[Graph, Node, Incoming], Gradients | None]
"""From the gradients by all outputs, at least one of which is there; None leaves the node to the nodes that define it."""

Decomposition = Callable[[Graph, Node], Sequence[str]]
"""Adds nodes that compute the same as a node; the names of its outputs, "" for one that the node does not have."""

RULES: dict[tuple[str, str], MultiOutputRule] = {}
"""By domain and operator."""

DECOMPOSITIONS: dict[tuple[str, str], Decomposition] = {}
"""By domain and operator: of operators that are differentiated as a composition of others."""

_STEP = "it is constant between its steps"
_NUMBERS = "its result is no real number"
_INDEPENDENT = "it reads no more than the shape"

ZEROS: dict[tuple[str, str], Zero] = {
    ("", name): Zero(reason)
    for reason, names in {
        _STEP: ("Ceil", "Floor", "Hardmax", "MelWeightMatrix", "Round", "Sign"),
        _INDEPENDENT: ("ConstantOfShape", "EyeLike", "RandomNormalLike", "RandomUniformLike", "Shape", "Size"),
        "it draws numbers whose distribution alone depends on the input": ("Bernoulli", "Multinomial"),
        _NUMBERS: (
            "And", "ArgMax", "ArgMin", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor",
            "Equal", "Greater", "GreaterOrEqual", "ImageDecoder", "IsInf", "IsNaN", "Less", "LessOrEqual",
            "NonMaxSuppression", "NonZero", "Not", "Or", "StringConcat", "StringNormalizer", "StringSplit",
            "RegexFullMatch", "TfIdfVectorizer", "Xor",
        ),
        "it makes a constant": (
            "BlackmanWindow", "Constant", "HammingWindow", "HannWindow", "RandomNormal",
            "RandomUniform",
        ),
    }.items()
    for name in names
}  # fmt: skip
"""Operators whose derivative is 0 wherever there is one."""

_INTEGERS = "it computes with integers: a gradient passes QuantizeLinear followed by DequantizeLinear alone"
_BITS = "it takes the bits of a number for those of another"
_SEQUENCE = "its values are sequences or optional, which have no gradient here"

REFUSED: dict[tuple[str, str], str] = {
    ("", name): reason
    for reason, names in {
        _INTEGERS: (
            "ConvInteger", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul",
        ),
        _BITS: ("BitCast",),
        _SEQUENCE: (
            "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt",
            "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "SequenceMap",
            "SplitToSequence",
        ),
    }.items()
    for name in names
}  # fmt: skip
"""Operators that a gradient cannot pass, and why."""


def multi_output_rule(*operators: str, domain: str = "") -> Callable[[MultiOutputRule], MultiOutputRule]:
    """Enter a function as the rule of operators with several outputs that have gradients."""

    def enter(function: MultiOutputRule) -> MultiOutputRule:
        RULES.update({(domain, operator): function for operator in operators})
        return function

    return enter


def rule(*operators: str, domain: str = "") -> Callable[[Rule], Rule]:
    """Enter a function as the rule of operators whose first output alone has a gradient."""

    def enter(function: Rule) -> Rule:
        def of_first(graph: Graph, node: Node, incoming: Incoming) -> Gradients:
            for name, gradient in zip(node.outputs[1:], incoming[1:], strict=True):
                if gradient is not None:
                    raise ValueError(f"{node} has no gradient rule for its output {name!r}")
            return function(graph, node, str(incoming[0]))

        multi_output_rule(*operators, domain=domain)(of_first)
        return function

    return enter


def decomposition(*operators: str, domain: str = "") -> Callable[[Decomposition], Decomposition]:
    """Enter a function as the form of operators: it writes a node out in others, which are differentiated."""

    def enter(function: Decomposition) -> Decomposition:
        DECOMPOSITIONS.update({(domain, operator): function for operator in operators})
        return function

    return enter
