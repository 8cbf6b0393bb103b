# SPDX-License-Identifier: MIT
"""ONNX's own operators that this project's operators implement, by a model's opset."""

from __future__ import annotations

import functools
from dataclasses import replace

import onnx

from ortops.operators import OPERATORS
from ortops.spec import Attribute, Operator

_OURS = {operator.standard: operator for operator in OPERATORS if operator.standard}

STANDARD_NAMES = frozenset(name for name, _ in _OURS)
"""The names of these operators in ONNX's domain."""

_ADDED_MODES = ("max_interpolated",)
"""Values of mode that this project adds to ONNX's."""


@functools.cache
def onnx_names() -> frozenset[str]:
    """The names of all operators of ONNX's own domain, at any opset."""
    return frozenset(schema.name for schema in onnx.defs.get_all_schemas_with_history() if not schema.domain)


def implementation(name: str, opset: int) -> Operator:
    """This project's operator that implements ONNX's operator at an opset.

    Args:
        name: one of `STANDARD_NAMES`.
        opset: the version of ONNX's domain that a model or a function imports.

    Raises:
        ValueError: ONNX has no such operator at this opset, or has a later version than this project.
    """
    if not onnx.defs.has(name, opset, ""):
        raise ValueError(f"ONNX has no {name} there")
    since = onnx.defs.get_schema(name, opset, "").since_version
    if (name, since) not in _OURS:
        known = ", ".join(str(version) for known_name, version in _OURS if known_name == name)
        raise ValueError(f"is version {since}, must be one of {known}")
    return _OURS[name, since]


@functools.cache
def onnx_definition(ours: Operator) -> Operator:
    """The definition of the ONNX operator that this project's operator implements, with ONNX's name and attributes."""
    if ours.standard is None:
        raise ValueError(f"{ours.name} implements no operator of ONNX")
    return replace(ours, name=ours.standard[0], domain="", attributes=tuple(map(_as_in_onnx, ours.attributes)))


def _as_in_onnx(attribute: Attribute) -> Attribute:
    """An attribute without this project's values, and without this project's default if ONNX requires a value."""
    choices = tuple(choice for choice in attribute.choices if choice not in _ADDED_MODES)
    return replace(attribute, default=None if attribute.required else attribute.default, choices=choices)


@functools.cache
def standard_operators(opset: int) -> tuple[Operator, ...]:
    """The definitions, at an opset, of all ONNX operators that this project implements.

    Raises:
        ValueError: at this opset, ONNX has a later version of an operator than this project.
    """
    present = [name for name in sorted(STANDARD_NAMES) if onnx.defs.has(name, opset, "")]
    return tuple(onnx_definition(implementation(name, opset)) for name in present)
