"""Backends of RoiAlign: one without a mistake, one with a mistake, one that ends the interpreter, one that never answers."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from conformance.families.roi_align import mutants as roi_align
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


def answers_one(_op_type: str, inputs: dict[str, Any], _attributes: object, outputs: tuple[str, ...]) -> Any:
    """Answers every float case with ones of a wrong shape, and of a wrong value where the shape happens to be right."""
    if outputs[0] != "Y" or inputs["X"].dtype != np.float32:
        raise NotImplementedError("only forward, in float32")
    return np.ones((1, 1, 1, 1), np.float32)


def fails_in_many_ways(op_type: str, inputs: dict[str, Any], _attributes: object, _outputs: object) -> Any:
    """Has more reasons to refuse a case, and to have no support for one, than a report can list."""
    size = sum(array.size for array in inputs.values() if array is not None)
    word = "".join(chr(ord("a") + int(digit)) for digit in str(size))
    if size % 3 == 0:
        raise NotImplementedError(f"no {op_type} of {word}")
    raise ValueError(f"{op_type} cannot be done with {word}, which is a word that no other number of elements has")
