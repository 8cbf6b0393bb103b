"""Whether rounding decides an answer: exact numbers, and inputs moved by what rounding may do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from conformance.case import Array, Case
from conformance.compare import allowed_errors
from conformance.expected_values import expected_outputs
from conformance.families import family_of
from conformance.run import AnswerFunction

GRAIN = 64
"""Exact coordinates and values times this are whole: products of two weights and a value fit in float32."""

MOST_EXACT = 1024.0
"""Exact coordinates, in pixels, and exact values are not larger."""

STEPS = (1.0, 8.0)
"""The factors of their rounding by which coordinates are moved."""

Moves = Iterator[tuple[float, Array]]
"""An input moved by what rounding may do, and how many times that."""


def in_double(case: Case, changed: Mapping[str, Array] = MappingProxyType({})) -> Case:
    """The case in double, some inputs changed and nothing expected: the reference's answer to it is not rounded."""
    given = {**case.inputs, **changed}
    wide = {name: array if array.dtype.kind in "iu" else array.astype(np.float64) for name, array in given.items()}
    return replace(case, inputs=wide, expected=None, expects_error=None, twin=None)


def is_steady(case: Case, name: str, moves: Moves, oracle: AnswerFunction) -> bool:
    """Whether none of the cases with input `name` moved differs by more than moving it smoothly does."""
    growths, allowed = family_of(case.definition).growth(case), allowed_errors(case)
    expected = expected_outputs(case)
    for step, array in moves:
        answer = oracle(in_double(case, {name: array.reshape(case.inputs[name].shape)}))
        if answer.outputs is None:
            return False
        for output, y in answer.outputs.items():
            wanted, tolerance = expected[output], allowed[output] + (step - 1) * growths[output].drift
            with np.errstate(invalid="ignore"):
                is_near = np.abs(y - wanted) <= tolerance
            if not np.all(is_near | (y == wanted) | (np.isnan(y) & np.isnan(wanted))):
                return False
    return True


def are_short(numbers: list[float] | Array) -> bool:
    """Whether numbers are exact, and few bits long."""
    grains = np.asarray(numbers) * GRAIN
    return bool(np.all((grains == np.round(grains)) & (np.abs(grains) <= MOST_EXACT * GRAIN)))


def is_power_of_2(value: float) -> bool:
    """Whether a number is 2 to a whole power."""
    return value > 0 and math.frexp(value)[0] == 0.5


def is_near_whole(numbers: Array, error: float) -> bool:
    """Whether a number is a whole one, or within `error` of one."""
    return bool(np.any(np.abs(numbers - np.round(numbers)) <= error))
