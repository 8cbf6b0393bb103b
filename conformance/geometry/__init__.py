"""Where a case's operator reads its input, as the float64 reference computes it: samples of RoIs, pixels of bins, axes."""

from __future__ import annotations

from conformance.case import Case
from conformance.geometry import rois, rotated

_SAMPLES = {"roi_align": rois.samples, "dml_roi_align": rois.samples, "roi_align_rotated": rotated.samples}


def samples(case: Case) -> float:
    """The number of samples of a valid case in one channel; 0 for operators that do not sample RoIs."""
    count = _SAMPLES.get(case.definition.family)
    return count(case) if count else 0.0
