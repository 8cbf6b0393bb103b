"""Whether a case has one right answer, or several because the last bit of a coordinate or of a product decides.

It is asked of cases that failed only: it costs some dozens of evaluations. What may decide is a matter of the family of the
operator; that an output lies at the end of its type's range is one for all.
"""

from __future__ import annotations

import numpy as np

from conformance.case import Case
from conformance.compare import allowed_errors
from conformance.expected_values import expected_outputs
from conformance.families import family_of
from conformance.growth import arithmetic, limit
from conformance.run import AnswerFunction


def is_settled(case: Case, oracle: AnswerFunction) -> bool:
    """Whether a case with the values that it expects, or the error, has one right answer; the oracle is the reference."""
    return bool(case.expects_error) or (_fits(case) and family_of(case.definition).is_settled(case, oracle))


def _fits(case: Case) -> bool:
    """Whether it is clear of each output that it is beyond its type's range, or that it is not.

    The sums of a gradient must be within the range of the arithmetic; those of a mean need not: it has none that are
    larger than its values unless they are divided too late.
    """
    largest, widest = limit(case.dtype), limit(arithmetic(case))
    growths, allowed = family_of(case.definition).growth(case), allowed_errors(case)
    for name, y in expected_outputs(case).items():
        size, error = np.abs(y[np.isfinite(y)]), allowed[name][np.isfinite(y)]
        if np.any((size - error < largest) & (size + error >= largest)):
            return False
        if case.definition.is_gradient and np.max(growths[name].magnitude, initial=0.0) >= widest / 2:
            return False
    return True
