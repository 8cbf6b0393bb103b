"""Backends of RoiAlign: one without a mistake, one with a mistake, one that ends the interpreter, one that never answers."""

from __future__ import annotations

import os
from typing import Any

import numpy.typing as npt
import onnx

from conformance.mutants import roi_align
from conformance.mutants.base import Model
from ortops.reference import arguments_of

__all__ = ["Aborts", "Control", "Hangs", "NoHalfPixel"]

NoHalfPixel = roi_align.MUTANTS.find("NoHalfPixel")


class Control(Model):
    """RoiAlign without a mistake."""

    FAMILY = "roi_align"


class Aborts(Control):
    """Ends the interpreter at the first refusal that is due."""

    def __init__(self, model: onnx.ModelProto) -> None:
        super().__init__(model)
        try:
            arguments_of(self.operator, self.attributes)
        except ValueError:
            os.abort()


class Hangs(Control):
    """Never answers a model of mode max."""

    def run(self, inputs: list[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        while self.attributes.get("mode") == "max":
            pass
        return super().run(inputs)
