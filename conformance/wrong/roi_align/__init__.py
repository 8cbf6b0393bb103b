"""RoiAlign and its gradient, right (`Control`) and wrong, one file a family of faults."""

from __future__ import annotations

from conformance.wrong.roi_align import (
    borders,
    coordinates,
    counts,
    defaults,
    gradients,
    indexing,
    precision,
    reductions,
)
from conformance.wrong.roi_align.control import Control

__all__ = ["WRONG", "Control"]

WRONG: tuple[type[Control], ...] = (
    *coordinates.FAULTS,
    *borders.FAULTS,
    *counts.FAULTS,
    *reductions.FAULTS,
    *precision.FAULTS,
    *indexing.FAULTS,
    *gradients.FAULTS,
    *defaults.FAULTS,
)


def __getattr__(name: str) -> type[Control]:
    """The fault of this name, whichever file has it: a backend is named `conformance.wrong.roi_align:NAME`."""
    for fault in WRONG:
        if fault.__name__ == name:
            return fault
    raise AttributeError(f"{__name__} has no fault {name!r}")
