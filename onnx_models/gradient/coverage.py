"""A table of operators and how each is differentiated."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from onnx_models.gradient.expand import has_body
from onnx_models.gradient.ours import DOMAIN, DOMAIN_VERSION, OPERATORS
from onnx_models.gradient.rules import DECOMPOSITIONS, REFUSED, RULES, ZEROS
from onnx_models.tools.compositions import COMPOSITIONS, ML

RULE, COMPOSITION, FUNCTION = "rule", "composition", "function of the specification"
ZERO, REFUSAL, NONE = "zero", "refused", "none"


@dataclass(frozen=True)
class Coverage:
    """How an operator is differentiated.

    domain: "" for ONNX's own.
    way: "rule"; "composition" of other operators; "function of the specification"; "zero" if the derivative is 0 wherever
        it exists; "refused" if there is no gradient; "none" if the operator is unknown.
    reason: the reason of a zero or a refusal, else "".
    """

    domain: str
    operator: str
    way: str
    reason: str = ""


def coverage_of(operator: str, domain: str, version: int) -> Coverage:
    """How an operator is differentiated at opset `version` of its domain."""
    key = domain, operator
    if key in ZEROS:
        return Coverage(*key, ZERO, ZEROS[key].reason)
    if key in REFUSED:
        return Coverage(*key, REFUSAL, REFUSED[key])
    if key in RULES:
        return Coverage(*key, RULE)
    if key in DECOMPOSITIONS:
        return Coverage(*key, COMPOSITION)
    node = onnx.NodeProto(op_type=operator, domain=domain)
    return Coverage(*key, FUNCTION if has_body(node, version) else NONE)


def coverage() -> list[Coverage]:
    """How each operator is differentiated: ONNX's operators at the newest opsets, then fused and this project's ones."""
    schemas = {
        (one.domain, one.name)
        for one in onnx.defs.get_all_schemas()
        if one.domain == ML or (one.domain == "" and not one.deprecated)
    }
    names = [*sorted(schemas), *sorted(COMPOSITIONS.keys() - schemas)]
    found = [coverage_of(name, domain, onnx.defs.onnx_opset_version()) for domain, name in names]
    return found + [coverage_of(one.name, DOMAIN, DOMAIN_VERSION) for one in OPERATORS]
