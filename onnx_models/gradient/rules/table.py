"""The table of rules, and the operators at which a gradient ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnx_models.gradient.graph import Graph, Node

Gradients = Sequence[str | None]
"""Names of tensors, one for each output or input of a node; None where there is no gradient."""

Rule = Callable[[Graph, Node, str], Gradients]
"""From the gradient by the first output to those by the inputs."""

RuleOfOutputs = Callable[[Graph, Node, Gradients], Gradients]
"""From the gradients by all outputs, at least one of which is there."""

RULES: dict[tuple[str, str], RuleOfOutputs] = {}
"""By domain and operator."""

STOPS = {
    ("", name)
    for name in (
        "And", "ArgMax", "ArgMin", "Bernoulli", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor",
        "BlackmanWindow", "Ceil", "Constant", "ConstantOfShape", "ConvInteger", "Equal", "EyeLike", "Floor", "Greater",
        "GreaterOrEqual", "HammingWindow", "HannWindow", "Hardmax", "IsInf", "IsNaN", "Less", "LessOrEqual",
        "MatMulInteger", "MelWeightMatrix", "Multinomial", "NonMaxSuppression", "NonZero", "Not", "OptionalHasElement",
        "Or", "QLinearConv", "QLinearMatMul", "QuantizeLinear", "RandomNormal", "RandomNormalLike", "RandomUniform",
        "RandomUniformLike", "RegexFullMatch", "Round", "SequenceLength", "Shape", "Sign", "Size", "StringConcat",
        "StringNormalizer", "StringSplit", "TfIdfVectorizer", "Xor",
    )
}  # fmt: skip
"""Operators whose derivative is 0 wherever there is one, or whose results are no real numbers."""


def rule_of_outputs(*operators: str, domain: str = "") -> Callable[[RuleOfOutputs], RuleOfOutputs]:
    """Enter a function as the rule of operators with several outputs that have gradients."""

    def enter(function: RuleOfOutputs) -> RuleOfOutputs:
        RULES.update({(domain, operator): function for operator in operators})
        return function

    return enter


def rule(*operators: str, domain: str = "") -> Callable[[Rule], Rule]:
    """Enter a function as the rule of operators whose first output alone has a gradient."""

    def enter(function: Rule) -> Rule:
        def of_first(graph: Graph, node: Node, incoming: Gradients) -> Gradients:
            for name, gradient in zip(node.outputs[1:], incoming[1:], strict=True):
                if gradient is not None:
                    raise ValueError(f"{node} has no gradient rule for its output {name!r}")
            return function(graph, node, str(incoming[0]))

        rule_of_outputs(*operators, domain=domain)(of_first)
        return function

    return enter
