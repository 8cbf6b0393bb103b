"""The terms of the forward error bound of each operator: what `conformance.compare` computes a case's tolerance from."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from conformance.case import Case
from conformance.error_bounds import dml_resample, max_roi_pool, rois, rotated
from conformance.error_bounds.terms import (
    ErrorTerms,
    compute_dtype,
    overflow_threshold,
    smallest_subnormal,
    unit_roundoff,
)

__all__ = [
    "FAMILIES",
    "ErrorTerms",
    "compute_dtype",
    "error_terms",
    "overflow_threshold",
    "smallest_subnormal",
    "unit_roundoff",
]

FAMILIES: Mapping[str, Callable[[Case], dict[str, ErrorTerms]]] = {
    "roi_align": rois.error_terms,
    "dml_roi_align": rois.error_terms,
    "roi_align_rotated": rotated.error_terms,
    "dml_resample": dml_resample.error_terms,
    "max_roi_pool": max_roi_pool.error_terms,
}
"""By family of operators, the function that `error_terms` calls."""


def error_terms(case: Case) -> dict[str, ErrorTerms]:
    """The terms of the error bounds of a case's outputs, by name, for a case that no runtime should refuse."""
    if case.formula is not None:
        rounding = unit_roundoff(compute_dtype(case))
        return {name: case.formula.error_terms(name, rounding) for name in case.outputs}
    return FAMILIES[case.definition.family](case)
