"""Whether a case is well-posed: whether its result does not depend on how a coordinate or a product is rounded.

Only failing cases are tested, because a test evaluates the reference dozens of times. The conditions depend on the
operator's family, except for overflow, which is tested here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from conformance.backends.reference import Reference
from conformance.case import Array, Case
from conformance.child import START_TIMEOUT, stage
from conformance.compare import allowed_errors
from conformance.error_terms import overflow_threshold
from conformance.expected_values import expected_outputs
from conformance.families import error_terms, family_of
from conformance.families.roundings import Perturbations, Perturbed
from conformance.run import Answer, ask

REFERENCE = "the reference"
"""The stage of a call in which the reference computes a case."""

TIME_LIMIT = 60.0
"""Seconds that the backend or the reference may take for a case: the first may compile, on a busy machine."""

_backend = Reference()


def reference(case: Case, changed: Mapping[str, Array] = MappingProxyType({})) -> Answer:
    """The reference's answer to a case in double, so that it is not rounded, with some inputs changed."""
    given = {**case.inputs, **changed}
    wide = {name: array if array.dtype.kind in "iu" else array.astype(np.float64) for name, array in given.items()}
    stage(REFERENCE, TIME_LIMIT)
    try:
        return ask(_backend, replace(case, inputs=wide, expected=None, expects_error=None, twin=None))
    finally:
        stage(REFERENCE, START_TIMEOUT)


def is_well_posed(case: Case) -> bool:
    """Whether a case, with its expected values or error, is well-posed."""
    if case.expects_error:
        return True
    if not _fits(case):
        return False
    perturbed: Perturbed | None = family_of(case.definition).perturbed(case)
    return perturbed is not None and _is_stable(perturbed.case, perturbed.perturbations)


def _is_stable(case: Case, perturbations: Perturbations) -> bool:
    """Whether every perturbation changes the outputs by no more than their error bounds allow."""
    terms, allowed = error_terms(case), allowed_errors(case)
    expected = expected_outputs(case)
    for name, factor, array in perturbations:
        answer = reference(case, {name: array.reshape(case.inputs[name].shape)})
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
