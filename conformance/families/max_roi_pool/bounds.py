# SPDX-License-Identifier: MIT OR Apache-2.0
"""Error bounds of MaxRoiPool and its gradient.

An output is a pixel of the map or 0, so it is not rounded. The gradient of a pixel is the sum of dY over the outputs that it
is the maximum of.
"""

from __future__ import annotations

import numpy as np

from conformance.case import Case
from conformance.error_terms import ErrorTerms, Floats, finite
from conformance.expected_values import reference


def error_terms(case: Case) -> dict[str, ErrorTerms]:
    """The error terms of Y [R, C, PH, PW], which is not rounded, or of dX [N, C, H, W], by name."""
    none, one = np.zeros(1), np.ones(1)
    if not case.definition.is_gradient:
        return {"Y": ErrorTerms(none, 0.0, none, one)}
    dy = case.inputs["dY"].astype(np.float64)
    magnitude = _passed(case, finite(np.abs(dy)))
    count = _passed(case, np.ones(dy.shape))
    return {"dX": ErrorTerms(magnitude, count, none, count)}


def _passed(case: Case, dy: Floats) -> Floats:
    """The dX of the case with another dY."""
    return reference(case.definition, case.attributes, {**case.inputs, "dY": dy.astype(case.dtype)}, ["dX"])["dX"]
