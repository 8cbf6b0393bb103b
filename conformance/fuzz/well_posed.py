"""Whether a case is well-posed: whether its result does not depend on how a coordinate or a product is rounded.

Only failing cases are tested, because a test evaluates the reference dozens of times. The conditions depend on the
operator's family, except for overflow, which is tested here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from conformance.case import Array, Case
from conformance.compare import allowed_errors
from conformance.error_terms import overflow_threshold
from conformance.expected_values import expected_outputs
from conformance.families import error_terms, family_of
from conformance.families.roundings import Perturbations, Perturbed
from conformance.run import AnswerFunction


def is_well_posed(case: Case, oracle: AnswerFunction) -> bool:
    """Whether a case, with its expected values or error, is well-posed; the oracle is the reference."""
    if case.expects_error:
        return True
    if not _fits(case):
        return False
    perturbed: Perturbed | None = family_of(case.definition).perturbed(case)
    return perturbed is not None and _is_stable(perturbed.case, perturbed.perturbations, oracle)


def in_double(case: Case, changed: Mapping[str, Array] = MappingProxyType({})) -> Case:
    """Return the case in double, with some inputs changed and nothing expected: the reference's result is not rounded."""
    given = {**case.inputs, **changed}
    wide = {name: array if array.dtype.kind in "iu" else array.astype(np.float64) for name, array in given.items()}
    return replace(case, inputs=wide, expected=None, expects_error=None, twin=None)


def _is_stable(case: Case, perturbations: Perturbations, oracle: AnswerFunction) -> bool:
    """Whether every perturbation changes the outputs by no more than their error bounds allow."""
    terms, allowed = error_terms(case), allowed_errors(case)
    expected = expected_outputs(case)
    for name, factor, array in perturbations:
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


def _fits(case: Case) -> bool:
    """Whether no output is so close to the largest number of its type that rounding decides whether it overflows.

    The sums of a gradient must be within the range of the compute type. Those of an average need not be: they exceed its
    values only if the division comes too late.
    """
    largest, widest = overflow_threshold(case.dtype), overflow_threshold(case.compute_dtype)
    terms, allowed = error_terms(case), allowed_errors(case)
    for name, y in expected_outputs(case).items():
        size, error = np.abs(y[np.isfinite(y)]), allowed[name][np.isfinite(y)]
        if np.any((size - error < largest) & (size + error >= largest)):
            return False
        if case.definition.is_gradient and np.max(terms[name].magnitude, initial=0.0) >= widest / 2:
            return False
    return True
