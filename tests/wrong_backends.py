"""Backends that do worse than answer wrongly: one ends the interpreter, one never answers. And those beside them."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy.typing as npt

from conformance.mutants import roi_align
from conformance.mutants.roi_align import Control

__all__ = ["Aborts", "Control", "Hangs", "MaxTheOtherWay", "NoHalfPixel", "Rude"]

MaxTheOtherWay, NoHalfPixel = roi_align.mutant.find("MaxTheOtherWay"), roi_align.mutant.find("NoHalfPixel")


class Aborts(Control):
    """Ends the interpreter at the first refusal that is due."""

    def check_attributes(self) -> None:
        try:
            super().check_attributes()
        except ValueError:
            os.abort()


class Rude(Aborts):
    """Ends the interpreter, and never answers where max has no floor."""

    def run(self, inputs: list[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        while self.attributes["mode"] == "max" and inputs[0].size and inputs[0].max() < 0:
            time.sleep(1.0)
        return super().run(inputs)


class Hangs(Control):
    """Never answers a model of mode max."""

    def run(self, inputs: list[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        while self.attributes["mode"] == "max":
            pass
        return super().run(inputs)
