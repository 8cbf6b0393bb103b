"""The axes of DmlResample and its gradient: which coordinate of the input each output reads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from conformance.case import Case
from conformance.expected_values import Floats
from ortops.operators.dml_resample import INPUT_PIXEL_OFFSET, OUTPUT_PIXEL_OFFSET
from ortops.shapes import output_shapes


class Axis(NamedTuple):
    """One axis: its lengths after and before resampling, the scale S and the pixel offsets I and O."""

    outputs: int
    length: int
    scale: float
    before: float
    after: float

    @property
    def coordinates(self) -> Floats:
        """The input coordinate of each output, in pixels, [outputs]."""
        return (np.arange(float(self.outputs)) - self.after) / self.scale - self.before


def axes_of(case: Case) -> list[Axis]:
    """The axes of a valid case."""
    arguments = case.definition.check_attributes(case.attributes)
    if "x_shape" in case.inputs:
        lengths, outputs = case.inputs["x_shape"].tolist(), case.inputs["InputGradientTensor"].shape
    else:
        lengths = case.inputs["InputTensor"].shape
        (outputs,) = output_shapes(case.definition, {"InputTensor": lengths}, {}, arguments)
    # Without scales, the ratio of the lengths. An axis without pixels has no outputs and needs no scale.
    scales = arguments["scales"] or [many / max(few, 1) for many, few in zip(outputs, lengths, strict=True)]
    before = arguments["input_pixel_offsets"] or [INPUT_PIXEL_OFFSET] * len(lengths)
    after = arguments["output_pixel_offsets"] or [OUTPUT_PIXEL_OFFSET] * len(lengths)
    return list(map(Axis, outputs, lengths, scales, before, after))
