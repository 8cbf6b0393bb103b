"""DmlResample and its gradient, right (`Control`) and wrong."""

from __future__ import annotations

from conformance.wrong.dml_resample import coordinates, values
from conformance.wrong.dml_resample.control import Control

__all__ = ["WRONG", "Control"]

WRONG: tuple[type[Control], ...] = (*coordinates.FAULTS, *values.FAULTS)


def __getattr__(name: str) -> type[Control]:
    """The fault of this name: a backend is named `conformance.wrong.dml_resample:NAME`."""
    for fault in WRONG:
        if fault.__name__ == name:
            return fault
    raise AttributeError(f"{__name__} has no fault {name!r}")
