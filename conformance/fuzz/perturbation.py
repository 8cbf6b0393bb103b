"""Tests whether rounding decides a result: by exact arithmetic, or by perturbing an input by the rounding error."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from conformance.case import Array, Case
from conformance.compare import allowed_errors
from conformance.expected_values import expected_outputs
from conformance.families import error_terms
from conformance.run import AnswerFunction

DENOMINATOR = 64
"""Exact coordinates and values are multiples of 1/64, so that products of two weights and a value fit in float32."""

MAX_EXACT = 1024.0
"""The largest absolute value of exact coordinates, in pixels, and of exact values."""

FACTORS = (1.0, 8.0)
"""Coordinates are perturbed by their rounding error times these."""

Perturbations = Iterator[tuple[float, Array]]
"""Pairs of a factor and the input perturbed by its rounding error times the factor."""


def in_double(case: Case, changed: Mapping[str, Array] = MappingProxyType({})) -> Case:
    """Return the case in double, with some inputs changed and nothing expected: the reference's result is not rounded."""
    given = {**case.inputs, **changed}
    wide = {name: array if array.dtype.kind in "iu" else array.astype(np.float64) for name, array in given.items()}
    return replace(case, inputs=wide, expected=None, expects_error=None, twin=None)


def is_stable(case: Case, name: str, perturbations: Perturbations, oracle: AnswerFunction) -> bool:
    """Whether every perturbation of input `name` changes the outputs by no more than their error bounds allow."""
    terms, allowed = error_terms(case), allowed_errors(case)
    expected = expected_outputs(case)
    for factor, array in perturbations:
        answer = oracle(in_double(case, {name: array.reshape(case.inputs[name].shape)}))
        if answer.outputs is None:
            return False
        for output, y in answer.outputs.items():
            wanted, tolerance = expected[output], allowed[output] + (factor - 1) * terms[output].coordinate_error
            with np.errstate(invalid="ignore"):
                is_near = np.abs(y - wanted) <= tolerance
            if not np.all(is_near | (y == wanted) | (np.isnan(y) & np.isnan(wanted))):
                return False
    return True


def have_few_bits(numbers: list[float] | Array) -> bool:
    """Whether numbers are multiples of 1/`DENOMINATOR` and at most `MAX_EXACT`, so that arithmetic on them is exact."""
    multiples = np.asarray(numbers) * DENOMINATOR
    return bool(np.all((multiples == np.round(multiples)) & (np.abs(multiples) <= MAX_EXACT * DENOMINATOR)))


def is_power_of_2(value: float) -> bool:
    """Whether a number is a power of 2."""
    return value > 0 and math.frexp(value)[0] == 0.5


def is_near_integer(numbers: Array, error: float) -> bool:
    """Whether any number is within `error` of an integer."""
    return bool(np.any(np.abs(numbers - np.round(numbers)) <= error))
