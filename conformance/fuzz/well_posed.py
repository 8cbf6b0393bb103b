"""Whether a case is well-posed: whether its result does not depend on how a coordinate or a product is rounded.

Only failing cases are tested, because a test evaluates the reference dozens of times. The conditions depend on the
operator's family, except for overflow, which is tested here.
"""

from __future__ import annotations

import numpy as np

from conformance.case import Case
from conformance.compare import allowed_errors
from conformance.error_bounds import compute_dtype, overflow_threshold
from conformance.expected_values import expected_outputs
from conformance.families import error_terms, family_of
from conformance.run import AnswerFunction


def is_well_posed(case: Case, oracle: AnswerFunction) -> bool:
    """Whether a case, with its expected values or error, is well-posed; the oracle is the reference."""
    return bool(case.expects_error) or (_fits(case) and family_of(case.definition).is_well_posed(case, oracle))


def _fits(case: Case) -> bool:
    """Whether no output is so close to the largest number of its type that rounding decides whether it overflows.

    The sums of a gradient must be within the range of the compute type. Those of an average need not be: they exceed its
    values only if the division comes too late.
    """
    largest, widest = overflow_threshold(case.dtype), overflow_threshold(compute_dtype(case))
    terms, allowed = error_terms(case), allowed_errors(case)
    for name, y in expected_outputs(case).items():
        size, error = np.abs(y[np.isfinite(y)]), allowed[name][np.isfinite(y)]
        if np.any((size - error < largest) & (size + error >= largest)):
            return False
        if case.definition.is_gradient and np.max(terms[name].magnitude, initial=0.0) >= widest / 2:
            return False
    return True
