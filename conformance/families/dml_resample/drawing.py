"""The explanation of a case of DmlResample: the coordinate of the input that each output reads."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from conformance.case import Case
from conformance.explain.drawing import MAX_SAMPLES, Drawing, Sample, number
from conformance.explain.parts import Comparison, Explanation, Table
from conformance.families.dml_resample.geometry import axes_of
from ortops.reference.dml_resample import resampled_axes

HINT = (
    "The coordinate of a pixel's centre is its index. A dot is where an output reads the input, along the last two axes; a "
    "hollow dot is beyond the edge and reads the pixel at the edge."
)


def explanation(case: Case, facts: Mapping[str, str], compared: Comparison, roi: int | None) -> Explanation:
    """The explanation of a valid case; raises ValueError if `roi` is given."""
    if roi is not None:
        raise ValueError(f"{case.operator} has no RoIs")
    lengths, sizes = ([getattr(axis, name) for axis in axes_of(case)] for name in ("length", "outputs"))
    if 0 in lengths or 0 in sizes:
        return Explanation(case, facts, tables=compared.tables(), notes=("The case has no pixels to draw.",))
    settings = case.definition.check_attributes(case.attributes)
    settings.pop("output_sizes", None)
    axes = resampled_axes(lengths, sizes, **settings)
    tables = [
        Table(
            f"Axis {k}: {axis.length} pixels, {axis.size} outputs",
            ("output", "coordinate", "reads"),
            [
                (
                    str(o),
                    number(axis.coordinate(o)),
                    ", ".join(f"[{t.pixel}] x {number(t.weight)}" for t in axis.taps(o)),
                )
                for o in range(axis.size)
            ],
        )
        for k, axis in enumerate(axes)
    ]
    coordinates = [[axis.coordinate(o) for o in range(axis.size)] for axis in axes[-2:]]
    x = case.inputs.get("InputTensor")
    map_size, pixels = (1, *lengths)[-2:], None
    if x is not None:
        pixels = x.astype(np.float64).reshape(-1, *map_size)[0]
    rows, columns = coordinates if len(coordinates) == 2 else ([0.0], coordinates[0])
    samples = [
        Sample(y, c, "sample" if 0 <= y <= map_size[0] - 1 and 0 <= c <= map_size[1] - 1 else "sample outside")
        for y, c in itertools.product(rows, columns)
    ]
    detail = f"{' x '.join(map(str, lengths))} pixels, {' x '.join(map(str, sizes))} outputs"
    drawing = Drawing(case.operator, detail, (map_size[0], map_size[1]), pixels, (), samples)
    tables += compared.tables()
    if len(samples) > MAX_SAMPLES:
        return Explanation(case, facts, tables=tables, notes=(f"{len(samples)} outputs are too many to draw.",))
    return Explanation(case, facts, drawings=(drawing,), hint=HINT, tables=tables)
