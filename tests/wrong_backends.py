# SPDX-License-Identifier: MIT
"""Backends of RoiAlign: one without a mistake, and others with one."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.families.roi_align import mutants as roi_align
from conformance.mutants.base import Model

__all__ = ["Control", "NoHalfPixel"]

NoHalfPixel = roi_align.MUTANTS.find("NoHalfPixel")


class Control(Model):
    """RoiAlign without a mistake."""

    FAMILY = "roi_align"


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


def ten(op_type: str, inputs: dict[str, Any], _attributes: object, _outputs: object) -> Any:
    """Answers ten, and eleven in float."""
    if op_type != "RoiAlign":
        raise NotImplementedError(f"no {op_type}")
    return np.full((1, 1, 1, 1), 10 + (inputs["X"].dtype == np.float32), inputs["X"].dtype)
