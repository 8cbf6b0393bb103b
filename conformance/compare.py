"""Comparison of outputs with expected values, within a forward error bound for each element.

Let u(T) = 2^-p be the unit roundoff of type T (p significant bits: 8 in bfloat16, 11, 24, 53) and A the type of the
arithmetic, float32 at least (double for double tensors). Then an element may differ by

    u(T) |expected| + half the least subnormal of T      the one rounding to the tensor's type
    + (terms + 8) u(A) magnitude                         sums of `terms` products: each sum, product, weight, division
    + (terms + 8) half the least subnormal of A          the same operations where they underflow
    + coordinate_error                                   coordinates computed in A instead of float64
    + half a unit of the last printed digit              if the expected value was printed
    + input_error * condition                            if it was computed from inputs with more digits

`magnitude`, `terms`, `coordinate_error` and `condition` follow from operator, shapes and data: see `error_bounds/`. The
expected values have float64 coordinates. Most runtimes have float32 coordinates, and `coordinate_error` allows for these. No
term allows for sums or coordinates in half precision.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from conformance.case import Array, Case
from conformance.error_bounds import ErrorTerms, compute_dtype, error_terms, smallest_subnormal, unit_roundoff
from conformance.expected_values import Floats, call_key, expected_outputs, shared
from conformance.outcome import Difference
from conformance.printable import printable


def allowed_errors(case: Case) -> dict[str, Floats]:
    """The largest allowed error of each element, by output, for a case that expects values."""
    return _allowed_errors(case, expected_outputs(case))


def _allowed_errors(case: Case, expected: Mapping[str, Floats]) -> dict[str, Floats]:
    # The error terms follow from what the reference computes from, and from the type of the arithmetic.
    key = call_key(case.definition, case.attributes, case.inputs, case.outputs), compute_dtype(case)
    terms = shared(key, lambda: error_terms(case))
    return {name: _allowed(case, values, terms[name]) for name, values in expected.items()}


def _allowed(case: Case, expected: Floats, terms: ErrorTerms) -> Floats:
    is_finite = np.isfinite(expected)
    rounded = np.abs(np.where(is_finite, expected, 0.0))
    final = unit_roundoff(case.dtype) * rounded + smallest_subnormal(case.dtype) / 2
    widest = compute_dtype(case)
    smallest = np.where(terms.magnitude > 0, smallest_subnormal(widest) / 2, 0.0)
    sums = (terms.terms + 8) * (unit_roundoff(widest) * terms.magnitude + smallest)
    printed = 0.0 if case.decimals is None else 0.5 * 10.0**-case.decimals
    allowed = final + sums + terms.coordinate_error + printed + case.input_error * terms.condition
    return np.asarray(np.where(is_finite, allowed, 0.0), np.float64)


def compare(case: Case, answer: Mapping[str, Array]) -> tuple[bool, Difference | None]:
    """Whether all outputs are within tolerance, and the element with the largest ratio of error to tolerance.

    Args:
        case: one that expects values.
        answer: the outputs by name; further ones are ignored.

    Returns:
        True or False, and the worst difference: None if the outputs are empty.
    """
    outputs = expected_outputs(case)
    allowed = _allowed_errors(case, outputs)
    worst: Difference | None = None
    for name, exact in outputs.items():
        expected = _in_range(exact, case)
        if name not in answer:
            return False, Difference(name, None, f"shape {list(expected.shape)}", "no such output")
        problem = _wrong_type_or_shape(name, case, expected, answer[name])
        if problem is None:
            fits, worst_here = _worst_element(name, expected, answer[name].astype(np.float64), allowed[name])
            if fits:
                worst = _worse(worst, worst_here)
                continue
            problem = worst_here
        return False, problem
    return True, worst


def _in_range(expected: Floats, case: Case) -> Floats:
    """The expected values, with infinities for those beyond the range of the tensor's type."""
    with np.errstate(over="ignore"):
        rounded = expected.astype(case.dtype).astype(np.float64)
    return np.where(np.isinf(rounded), rounded, expected)


def _wrong_type_or_shape(name: str, case: Case, expected: Floats, got: Array) -> Difference | None:
    if got.dtype != case.dtype:
        return Difference(name, None, f"type {case.dtype}", printable(f"type {got.dtype}"))
    if got.shape != expected.shape:
        return Difference(name, None, f"shape {list(expected.shape)}", f"shape {list(got.shape)}")
    return None


def _worst_element(name: str, expected: Floats, got: Floats, allowed: Floats) -> tuple[bool, Difference | None]:
    if expected.size == 0:
        return True, None
    same = (expected == got) | (np.isnan(expected) & np.isnan(got))
    comparable = np.isfinite(expected) & np.isfinite(got)
    error = np.abs(np.subtract(got, expected, where=comparable, out=np.full(expected.shape, np.inf)))
    error[same] = 0.0
    with np.errstate(over="ignore"):
        used = error / np.maximum(allowed, np.finfo(np.float64).tiny)
    at = np.unravel_index(int(np.argmax(used)), used.shape)
    index = tuple(int(i) for i in at)
    finite = bool(comparable[at] or same[at])
    worst = Difference(
        name,
        index,
        f"{expected[at]:.9g}",
        f"{got[at]:.9g}",
        float(error[at]) if finite else None,
        float(allowed[at]) if finite else None,
    )
    return bool(used[at] <= 1.0), worst


def _worse(first: Difference | None, second: Difference | None) -> Difference | None:
    def used(difference: Difference) -> float:
        return (difference.error or 0.0) / (difference.allowed or 1.0)

    if first is None or second is None:
        return second if first is None else first
    return max(first, second, key=used)
