# SPDX-License-Identifier: MIT OR Apache-2.0
"""Comparison of outputs with expected values, within a forward error bound for each element.

Let u(T) = 2^-p be the unit roundoff of type T (p significant bits: 8 in bfloat16, 11, 24, 53) and A the type of the
arithmetic, float32 at least (double for double tensors). Then an element may differ by

    u(T) |expected| + half the least subnormal of T      the one rounding to the tensor's type
    + (terms + 8) u(A) magnitude                         sums of `terms` products: each sum, product, weight, division
    + (terms + 8) half the least subnormal of A          the same operations where they underflow
    + coordinate_error                                   coordinates computed in A instead of float64
    + half a unit of the last printed digit              if the expected value was printed
    + input_error * condition                            if it was computed from inputs with more digits

`magnitude`, `terms`, `coordinate_error` and `condition` follow from operator, shapes and data: see `bounds.py` of each
family. The expected values have float64 coordinates. Most runtimes have float32 coordinates, and `coordinate_error` allows
for these. No term allows for sums or coordinates in half precision.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from conformance.case import Array, Case
from conformance.error_terms import ErrorTerms, Floats, overflow_threshold, smallest_subnormal, unit_roundoff
from conformance.expected_values import call_key, expected_outputs, shared
from conformance.families import error_terms
from conformance.outcome import Difference, Reason
from conformance.printable import printable

PART = 2**16
"""How many elements of a large output are compared at once; they fit into a core's cache."""


def allowed_errors(case: Case) -> dict[str, Floats]:
    """The largest allowed error of each element, by output, for a case that expects values."""
    terms = _terms(case)
    return {name: _allowed(case, values, terms[name]) for name, values in expected_outputs(case).items()}


def sampled(case: Case, name: str, step: int) -> tuple[Floats, Floats]:
    """Each `step`-th expected element of an output in C order, and the largest allowed error of each, both flat."""
    expected, terms = expected_outputs(case)[name], _terms(case)[name]
    fields = (getattr(terms, field.name) for field in dataclasses.fields(ErrorTerms))
    parts = [np.broadcast_to(field, expected.shape).flat[::step] for field in fields]
    values = expected.reshape(-1)[::step].astype(np.float64)
    return values, _allowed(case, values, ErrorTerms(*parts))


def _terms(case: Case) -> dict[str, ErrorTerms]:
    """The error terms of each output, which depend on the reference's arguments and on the type of the arithmetic."""
    if case.formula is not None:
        return error_terms(case)
    fields = [field.name for field in dataclasses.fields(ErrorTerms)]
    arrays = shared(
        (call_key(case.definition, case.attributes, case.inputs, case.outputs), case.compute_dtype),
        lambda: {
            f"{name} {field}": np.asarray(getattr(terms, field), np.float64)
            for name, terms in error_terms(case).items()
            for field in fields
        },
    )
    return {name: ErrorTerms(*(arrays[f"{name} {field}"] for field in fields)) for name in case.outputs}


def _allowed(case: Case, expected: Floats, terms: ErrorTerms) -> Floats:
    widest = case.compute_dtype
    smallest = np.where(terms.magnitude > 0, smallest_subnormal(widest) / 2, 0.0)
    sums = (terms.terms + 8) * (unit_roundoff(widest) * terms.magnitude + smallest)
    printed = 0.0 if case.decimals is None else 0.5 * 10.0**-case.decimals
    before_rounding = sums + terms.coordinate_error + printed + case.input_error * terms.condition
    # One number if the terms are uniform, so that few operations read all elements of a large output.
    constant = before_rounding + smallest_subnormal(case.dtype) / 2
    allowed = unit_roundoff(case.dtype) * np.abs(expected) + constant
    is_finite = np.isfinite(expected)
    return np.asarray(allowed if is_finite.all() else np.where(is_finite, allowed, 0.0), np.float64)


def compare(case: Case, answer: Mapping[str, Array]) -> tuple[bool, Difference | None]:
    """Whether all outputs are within tolerance, and the element with the largest ratio of error to tolerance.

    Args:
        case: one that expects values.
        answer: the outputs by name.

    Returns:
        True or False, and the worst difference: None if the outputs are empty.
    """
    if not answer.keys() <= set(case.outputs):
        due, given = (f"{len(names)} ({', '.join(map(printable, names))})" for names in (case.outputs, answer))
        return False, Difference("outputs", None, due, given, reason=Reason.EXTRA_OUTPUT)
    terms = _terms(case)
    worst: list[Difference] = []
    for name, expected in expected_outputs(case).items():
        shape, got = f"shape {list(expected.shape)}", answer.get(name)
        if got is None:
            return False, Difference(name, None, shape, "no such output, or None", reason=Reason.NO_OUTPUT)
        if got.dtype != case.dtype:
            wrong = printable(f"type {got.dtype}")
            return False, Difference(name, None, f"type {case.dtype}", wrong, reason=Reason.TYPE)
        if got.shape != expected.shape:
            return False, Difference(name, None, shape, f"shape {list(got.shape)}", reason=Reason.SHAPE)
        fits, difference = _worst_element(case, name, expected, got, terms[name])
        if not fits:
            return False, difference
        worst += [difference] if difference else []
    return True, max(worst, key=lambda each: (each.error or 0.0) / (each.allowed or 1.0), default=None)


def _in_range(expected: Floats, case: Case) -> Floats:
    """The expected values, with infinity for values beyond the range of the tensor's type."""
    if np.abs(expected).max() < overflow_threshold(case.dtype):
        return expected
    with np.errstate(over="ignore"):
        rounded = expected.astype(case.dtype).astype(np.float64)
    return np.where(np.isinf(rounded), rounded, expected)


class _Worst(NamedTuple):
    """The element with the largest ratio of error to tolerance.

    used: the ratio.
    at: the number of the element.
    expected, got: the numbers.
    error, allowed: None if the difference has no size.
    """

    used: float
    at: int
    expected: float
    got: float
    error: float | None
    allowed: float | None

    @property
    def reason(self) -> Reason:
        """What is wrong with the element if it is beyond the tolerance."""
        if self.error is not None:
            return Reason.NUMBER
        if not math.isfinite(self.expected):
            return Reason.SPECIAL
        return Reason.NAN if math.isnan(self.got) else Reason.INFINITY


def _worst_element(
    case: Case, name: str, expected: Floats, got: Array, terms: ErrorTerms
) -> tuple[bool, Difference | None]:
    """Whether all elements are within tolerance, and the worst one."""
    if expected.size == 0:
        return True, None
    if terms.is_uniform:  # part by part, which takes little memory
        flat, given = expected.reshape(-1), got.reshape(-1)
        parts, dtype = [slice(first, first + PART) for first in range(0, expected.size, PART)], case.dtype
        with np.errstate(over="ignore"):  # a part without another error than the last rounding needs no bounds
            inexact = [part for part in parts if not np.array_equal(given[part], flat[part].astype(dtype))]
        worst_of_parts = [_worst_of(case, flat[part], given[part], terms, part.start) for part in inexact or parts[:1]]
        worst = max(worst_of_parts, key=lambda element: element.used)
    else:
        worst = _worst_of(case, expected, got, terms, 0)
    index = tuple(int(i) for i in np.unravel_index(worst.at, expected.shape))
    numbers = f"{worst.expected:.9g}", f"{worst.got:.9g}", worst.error, worst.allowed
    return worst.used <= 1.0, Difference(name, index, *numbers, worst.reason)


def _worst_of(case: Case, exact: Floats, given: Array, terms: ErrorTerms, first: int) -> _Worst:
    """The worst of some elements, whose numbers begin at `first`."""
    exact, got = exact.astype(np.float64, copy=False), given.astype(np.float64)
    expected, allowed = _in_range(exact, case), _allowed(case, exact, terms)
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(got - expected)
        if not np.isfinite(error).all():
            error[(expected == got) | (np.isnan(expected) & np.isnan(got))] = 0.0
            error[np.isnan(error)] = np.inf
        used = error / np.maximum(allowed, np.finfo(np.float64).tiny)
    at = int(np.argmax(used))
    is_number = bool(np.isfinite(error.flat[at]))
    numbers = (float(error.flat[at]), float(allowed.flat[at])) if is_number else (None, None)
    return _Worst(float(used.flat[at]), first + at, float(expected.flat[at]), float(got.flat[at]), *numbers)
