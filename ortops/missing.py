"""What to do about an operator of a model that a session does not have."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from ortops.spec import DOMAIN, Operator
from ortops.standard import STANDARD_NAMES

_MESSAGES = (
    re.compile(r"(?P<domain>[^\s:]+):(?P<name>\w+)\(-?\d+\) is not a registered function/op"),
    re.compile(r'In Node, \(".*?", (?P<name>\w+), "(?P<domain>[^"]+)", .*No Op registered for '),
)
"""ONNX Runtime's, for a domain of which it has no operator, and of which it has others."""

_NO_KERNEL = re.compile(r"Could not find an implementation for (?P<name>\w+)\(")
"""Likewise, for a node of ONNX that it knows and has no kernel of."""

_OTHERS = ("ai.onnx", "com.microsoft")
"""Domains, and beginnings of domains, in which users have no operators."""


def remedy(
    message: str, own: Iterable[Operator], ours: Iterable[Operator], unknown_in_our_domain: str | None = None
) -> str | None:
    """The remedy for an error of ONNX Runtime, None if it is not of a missing operator or kernel.

    Args:
        message: the error's text.
        own: the operators of the user that the session has.
        ours: those of this project.
        unknown_in_our_domain: the remedy for another operator of this project's domain.
    """
    lacking = _NO_KERNEL.search(message)
    if lacking and lacking["name"] in STANDARD_NAMES:
        return f"ortops runs {lacking['name']} on the CPU with standard=True, or after onnx_models.convert."
    found = next(filter(None, (pattern.search(message) for pattern in _MESSAGES)), None)
    if found is None:
        return None
    given = list(own)
    near = {one.name: f"{one.domain}::{one.name}" for one in (*ours, *given)}
    close = get_close_matches(found["name"], near, 1, 0.75)
    label = f"{found['domain']}::{found['name']}"
    if close and near[close[0]] != label:
        return f"Did you mean {near[close[0]]}, which the session has?"
    if found["domain"] == DOMAIN and not close:
        return unknown_in_our_domain
    if close or found["domain"].startswith(_OTHERS):
        return None
    has = f"; it has {', '.join(one.label for one in given)}" if given else ""
    return (
        f"If {label} is an operator made by ortops.operator, pass it to the session, operators=[{found['name']}]{has}."
    )
