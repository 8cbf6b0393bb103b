"""Readings of the specification that a runtime can choose instead of the suite's.

max_interpolated      `max` is the largest interpolated sample, as ONNX's text can be read, and not the largest weighted
                      pixel as in ONNX's vectors
float16_arithmetic    float16 and bfloat16 tensors are computed in their own type, and not at least in float32
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from conformance.case import Case
from conformance.formula import Computed

CONVENTIONS = ("max_interpolated", "float16_arithmetic")


def check(conventions: Collection[str]) -> None:
    """Raise ValueError if a convention is unknown."""
    for name in conventions:
        if name not in CONVENTIONS:
            raise ValueError(f"convention {name!r}: must be one of {', '.join(CONVENTIONS)}")


def with_conventions(case: Case, conventions: Collection[str]) -> Case:
    """The case with the values that these conventions expect. The runtime itself gets the original case."""
    if conventions and case.before:
        case = replace(case, before=tuple(with_conventions(call, conventions) for call in case.before))
    if "max_interpolated" in conventions and case.attributes.get("mode") == "max" and not case.expects_error:
        mode = "max_interpolated"
        case = replace(
            case, attributes={**case.attributes, "mode": mode}, expected=None, decimals=None, input_error=0.0
        )
        if case.formula is not None:
            formula = case.formula.with_mode(mode)
            case = replace(case, inputs=Computed(formula), expected=Computed(formula, are_inputs=False))
    if "float16_arithmetic" in conventions:
        case = replace(case, is_in_own_type=True)
    return case
