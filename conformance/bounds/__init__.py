"""How errors grow into the outputs of a case: `GROWTH` has for each function of an operator one that computes it.

A new operator brings one function from its case to a `Growth` for each output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from conformance.bounds import dml_resample, roi_align
from conformance.bounds.growth import Growth
from conformance.case import Case

__all__ = ["GROWTH", "Growth"]

GROWTH: Mapping[str, Callable[[Case], dict[str, Growth]]] = {
    "roi_align": roi_align.forward,
    "roi_align_grad": roi_align.gradient,
    "dml_roi_align": roi_align.forward,
    "dml_roi_align_grad": roi_align.gradient,
    "dml_resample": dml_resample.growth,
    "dml_resample_grad": dml_resample.growth,
}
