"""The view of a case of DmlResample: the coordinate of the input that each output reads."""

from __future__ import annotations

import itertools

import numpy as np

from conformance.case import Case
from conformance.explain.drawing import MAX_SAMPLES, Drawing, Sample, number
from conformance.explain.parts import Focus, Table, View
from conformance.families.dml_resample.geometry import axes_of
from ortops.reference.dml_resample import resampled_axes

HINT = (
    "A pixel's centre has its index as coordinate.",
    "Each dot is the place of the input that one output reads, along the last two axes.",
    "A hollow dot lies beyond the centre of the outermost pixel, and reads that pixel.",
)


def explanation(case: Case, focus: Focus) -> View:
    """The view of a valid case; raises ValueError if a RoI is chosen."""
    if focus.roi is not None:
        raise ValueError(f"{case.operator} has no RoIs")
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
