"""Remedies for errors about operators that a model needs and a session lacks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from ortops.spec import DOMAIN, Operator
from ortops.standard import STANDARD_NAMES
from ortops.third_party import THIRD_PARTY

_MESSAGES = (
    re.compile(r"(?P<domain>[^\s:]+):(?P<name>\w+)\(-?\d+\) is not a registered function/op"),
    re.compile(r'In Node, \(".*?", (?P<name>\w+), "(?P<domain>[^"]+)", .*No Op registered for '),
)
"""ONNX Runtime's messages for a missing operator: in a domain without operators, and in a domain with other operators."""

_NO_KERNEL = re.compile(r"Could not find an implementation for (?P<name>\w+)\(")
"""ONNX Runtime's message for a node of ONNX that it knows but has no kernel for."""

_OTHERS = ("ai.onnx", "com.microsoft")
"""Domains, and prefixes of domains, in which users have no operators."""

_THIRD_PARTY = {domain for domain, _ in THIRD_PARTY}


def remedy(
    message: str, own: Iterable[Operator], ours: Iterable[Operator], unknown_in_our_domain: str | None = None
) -> str | None:
    """The remedy for an ONNX Runtime error; None if the error is not about a missing operator or kernel.

    Args:
        message: the error's text.
        own: the user's operators that the session has.
        ours: this project's operators.
        unknown_in_our_domain: the remedy for an unknown operator in this project's domain.
    """
    lacking = _NO_KERNEL.search(message)
    if lacking and lacking["name"] in STANDARD_NAMES:
        return f"ortops runs {lacking['name']} on the CPU with standard=True, or after onnx_models.convert."
    found = next(filter(None, (pattern.search(message) for pattern in _MESSAGES)), None)
    if found is None:
        return None
    given = list(own)
    label = f"{found['domain']}::{found['name']}"
    forward = next((one for one in given if label in _gradients_of(one)), None)
    if forward is not None:
        return (
            f"{label} computes the gradient of {forward.label}: pass both to the session, "
            f"operators=[{forward.name}, {found['name']}]."
        )
    near = {one.name: f"{one.domain}::{one.name}" for one in (*ours, *given)}
    close = get_close_matches(found["name"], near, 1, 0.75)
    if close and near[close[0]] != label:
        return f"Did you mean {near[close[0]]}, which the session has?"
    if found["domain"] == DOMAIN and not close:
        return unknown_in_our_domain
    if close or found["domain"].startswith(_OTHERS):
        return None
    if found["domain"] in _THIRD_PARTY:
        return (
            f"ortops has no {label}: write it with ortops.operator(domain={found['domain']!r}), and pass it to the "
            f"session, operators=[{found['name']}]."
        )
    has = f"; it has {', '.join(one.label for one in given)}" if given else ""
    return (
        f"If {label} is an operator made by ortops.operator, pass it to the session, operators=[{found['name']}]{has}."
    )


def _gradients_of(operator: Operator) -> tuple[str, ...]:
    """The label of an operator's gradient as it is declared, and as it is usually called."""
    declared = operator.gradient or ""
    return (declared if "::" in declared else f"{operator.domain}::{declared}", f"{operator.label}Grad")
