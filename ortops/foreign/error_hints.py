# SPDX-License-Identifier: MIT
"""Hints for ONNX Runtime's errors about operators that a model needs and a session lacks, and about element types."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx

from ortops.custom.operator import OTHER_DOMAIN, CustomOperator
from ortops.foreign.model_nodes import declared_types, nodes_of
from ortops.foreign.near_names import near_names
from ortops.foreign.standard import STANDARD_NAMES, onnx_names
from ortops.foreign.third_party import THIRD_PARTY
from ortops.operators import OPERATORS
from ortops.spec import DOMAIN, ELEMENT_DTYPES, Operator, Tensor

_MISSING = (
    re.compile(r"(?P<domain>[^\s:]+):(?P<name>\w+)\(-?\d+\) is not a registered function/op"),
    re.compile(
        r'In Node, \(".*?", (?P<name>\w+), "(?P<domain>[^"]*)", .*?\) : \((?P<inputs>.*?)\) -> .*No Op registered for '
    ),
)
"""ONNX Runtime's messages for a missing operator: in a domain without operators, and in a domain with other operators."""

_NO_KERNEL = re.compile(r"Could not find an implementation for (?P<name>\w+)\((?P<version>\d+)\)")
"""ONNX Runtime's message for a node of ONNX that it knows but has no kernel for."""

_WRONG_TYPE = re.compile(
    r"Type '?tensor\((?P<type>\w+)\)'? of input parameter \((?P<tensor>.*?)\) of operator \((?P<name>\w+)\) "
    r"in node \((?P<node>.*?)\) is invalid"
)
"""ONNX Runtime's message for an input whose element type its operator does not take."""

_OTHERS = ("ai.onnx.ml", "com.microsoft")
"""Domains, and prefixes of domains, in which users have no operators."""

_THIRD_PARTY = {domain for domain, _ in THIRD_PARTY}


def hint_for(
    message: str, model: object, users: Sequence[Operator], nodes: Iterable[Operator], alone: str | None = None
) -> str | None:
    """The hint for an ONNX Runtime error; None if the error is not about an operator, a kernel or an element type.

    Args:
        message: the error's text.
        model: the model, as for a session.
        users: the user's operators that the session has.
        nodes: the definitions of nodes of ONNX and other projects that the session runs.
        alone: the hint for an unknown operator in this project's domain, if onnxruntime-extensions' operators are missing.
    """
    operators = (*OPERATORS, *users)
    if (lacking := _NO_KERNEL.search(message)) and lacking["name"] in STANDARD_NAMES:
        return f"ortops runs {lacking['name']} on the CPU with standard=True, or after onnx_models.convert."
    if wrong := _WRONG_TYPE.search(message):
        return _hint_for_type(wrong, model, (*operators, *nodes))
    missing = next(filter(None, (pattern.search(message) for pattern in _MISSING)), None)
    return missing and _hint_for_operator(missing, model, users, operators, alone)


def _hint_for_type(wrong: re.Match[str], model: object, operators: Iterable[Operator]) -> str | None:
    known = {(operator.domain, operator.name): operator for operator in operators}
    kind, name = wrong["type"], wrong["tensor"]
    for node in nodes_of(model, wrong["name"]):
        operator = known.get((node.domain, node.op_type))
        if operator is None or node.name != wrong["node"]:
            continue
        for given, tensor in zip(node.input, _repeated(operator.inputs), strict=False):
            if given == name and kind not in operator.element_types(tensor):
                allowed = " or ".join(operator.element_types(tensor))
                hint = f"{operator.label} takes {tensor.name} as {allowed}: cast {name!r} in the model (Cast)"
                if isinstance(operator, CustomOperator) and kind in ELEMENT_DTYPES:
                    hint += f", or annotate {tensor.name} with NDArray[np.{ELEMENT_DTYPES[kind].name}]"
                return f"{hint}."
    return None


def _repeated(tensors: Sequence[Tensor]) -> Iterator[Tensor]:
    """The tensors, followed by the last one again and again, which may be variadic."""
    return itertools.chain(tensors, itertools.cycle(tensors[-1:]))


def _hint_for_operator(
    missing: re.Match[str], model: object, users: Sequence[Operator], operators: Iterable[Operator], alone: str | None
) -> str | None:
    name, domain = missing["name"], missing["domain"]
    label = f"{domain}::{name}" if domain else name
    forward = next((operator for operator in users if label in _gradients_of(operator)), None)
    if forward is not None:
        return (
            f"{label} computes the gradient of {forward.label}: pass both to the session, "
            f"operators=[{forward.name}, {name}]."
        )
    types = declared_types(model)
    nodes = [node for node in nodes_of(model, name) if node.domain == domain]
    alike = {
        operator.name: f"{operator.domain}::{operator.name}"
        for operator in operators
        if any(_takes(operator, node, types) for node in nodes)
    }
    near = [alike[other] for other in near_names(name, alike) if alike[other] != label]
    if near:
        return f"Did you mean {near[0]}, which the session has?"
    if domain == DOMAIN:
        has = f"ortops has no {name}. {alone}" if alone else f"Neither ortops nor onnxruntime-extensions has {name}"
        return f"{has}. {OTHER_DOMAIN}."
    if domain.startswith(_OTHERS) or (not domain and name in onnx_names()):
        return None
    if domain in _THIRD_PARTY or not domain:
        who = "ortops" if domain else "ONNX"
        return (
            f"{who} has no {label}: write it with ortops.operator(domain={domain!r}), and pass it to the session, "
            f"operators=[{name}]."
        )
    has = f"; it has {', '.join(operator.label for operator in users)}" if users else ""
    return f"If {label} is an operator made by ortops.operator, pass it to the session, operators=[{name}]{has}."


def _takes(operator: Operator, node: onnx.NodeProto, types: Mapping[str, str]) -> bool:
    """Whether an operator can have as many inputs and outputs as a node, and the types that are declared of them."""
    for tensors, names in ((operator.inputs, node.input), (operator.outputs, node.output)):
        least = sum(not tensor.optional for tensor in tensors)
        if len(names) < least or (len(names) > len(tensors) and not any(tensor.variadic for tensor in tensors)):
            return False
        for name, tensor in zip(names, _repeated(tensors), strict=False):
            if name in types and types[name] not in operator.element_types(tensor):
                return False
    return True


def _gradients_of(operator: Operator) -> tuple[str, ...]:
    """The label of an operator's gradient as it is declared, and as it is usually called."""
    declared = operator.gradient or ""
    return (declared if "::" in declared else f"{operator.domain}::{declared}", f"{operator.label}Grad")
