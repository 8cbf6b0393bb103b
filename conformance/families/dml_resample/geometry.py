# SPDX-License-Identifier: MIT OR Apache-2.0
"""The axes of DmlResample and its gradient: which coordinate of the input each output reads."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from conformance.case import Case
from conformance.error_terms import Floats
from conformance.families.view import MAX_SAMPLES, Drawing, Element, Sample, Table, View, number
from ortops.operators.dml_resample import INPUT_PIXEL_OFFSET, OUTPUT_PIXEL_OFFSET
from ortops.reference.dml_resample import resampled_axes
from ortops.shapes import output_shapes

HINT = (
    "A pixel's centre has its index as coordinate.",
    "Each dot is the place of the input that one output reads, along the last two axes.",
    "A hollow dot lies beyond the centre of the outermost pixel, and reads that pixel.",
)


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


def samples(_case: Case) -> float:
    """See `conformance.families.PARTS`."""
    return 0.0


def explanation(case: Case, _worst: Element | None) -> View:
    """See `conformance.families.PARTS`."""
    lengths, sizes = ([getattr(axis, name) for axis in axes_of(case)] for name in ("length", "outputs"))
    if 0 in lengths or 0 in sizes:
        return View(notes=("The case has no pixels to draw.",))
    settings = case.definition.check_attributes(case.attributes)
    settings.pop("output_sizes", None)
    axes = resampled_axes(lengths, sizes, **settings)
    tables = []
    for k, axis in enumerate(axes):
        read = (", ".join(f"[{t.pixel}] x {number(t.weight)}" for t in axis.taps(o)) for o in range(axis.size))
        rows = [(str(o), number(axis.coordinate(o)), text) for o, text in enumerate(read)]
        tables.append(
            Table(f"Axis {k}: {axis.length} pixels, {axis.size} outputs", ("output", "coordinate", "reads"), rows)
        )
    *_, ys, xs = [0.0], *([axis.coordinate(o) for o in range(axis.size)] for axis in axes)
    if len(ys) * len(xs) > MAX_SAMPLES:
        return View(tables=tables, notes=(f"{len(ys) * len(xs)} outputs are too many to draw.",))
    height, width = (1, *lengths)[-2:]
    x = case.inputs.get("InputTensor")
    pixels = None if x is None else x.astype(np.float64).reshape(-1, height, width)[0]
    samples = [
        Sample(y, c, "sample" if 0 <= y <= height - 1 and 0 <= c <= width - 1 else "sample outside")
        for y, c in itertools.product(ys, xs)
    ]
    detail = f"{' x '.join(map(str, lengths))} pixels, {' x '.join(map(str, sizes))} outputs"
    return View("", Drawing(case.operator, detail, HINT, (height, width), pixels, (), samples), tables)
