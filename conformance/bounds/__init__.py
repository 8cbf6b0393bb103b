"""How errors grow into the outputs of a case: `GROWTH` has for each family of operators the function that computes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from conformance.bounds import dml_resample, roi_align
from conformance.bounds.growth import Growth
from conformance.case import Case

__all__ = ["GROWTH", "Growth"]

GROWTH: Mapping[str, Callable[[Case], dict[str, Growth]]] = {
    "roi_align": roi_align.growth,
    "dml_roi_align": roi_align.growth,
    "dml_resample": dml_resample.growth,
}
