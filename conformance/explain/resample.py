"""Drawings of the axes of a resampled tensor: the coordinate of each output over the pixels of the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from conformance.case import Case
from conformance.explain.draw import MOST_CELLS, Drawing, element, image
from conformance.explain.explanation import Comparison, Explanation
from conformance.explain.tables import Row, Table, around, number, table
from ortops.reference.dml_resample import ResampledAxis, resampled_axes
from ortops.shapes import output_shapes

MOST_OUTPUTS = 60

_MARGIN = 40
_TOP, _MARKS, _HEIGHT = 30, 140, 178  # of the pixels, of the outputs below them, and of the drawing


class AxisDrawing(NamedTuple):
    """One axis as a drawing and as a table."""

    drawing: Drawing
    table: Table


def axis_drawings(case: Case, mark: Sequence[int] | None) -> tuple[AxisDrawing, ...]:
    """Draw each axis of a case of DmlResample or of its gradient; `mark` is the index of the worst element, or None."""
    arguments = case.definition.check_attributes(case.attributes)
    is_gradient = "x_shape" in case.inputs
    if is_gradient:
        lengths, sizes = tuple(map(int, case.inputs["x_shape"])), case.inputs["InputGradientTensor"].shape
    else:
        lengths = case.inputs["InputTensor"].shape
        (found,) = output_shapes(case.definition, {"InputTensor": lengths}, {}, arguments)
        sizes = tuple(int(str(length)) for length in found)
    if 0 in lengths or 0 in sizes:
        return ()
    settings = {name: value for name, value in arguments.items() if name != "output_sizes"}
    made = []
    for k, axis in enumerate(resampled_axes(lengths, sizes, **settings)):
        # The index of the mark is one of an output, or in a gradient of a pixel.
        at = None if mark is None else mark[k]
        reads = [{tap.pixel for tap in axis.taps(o)} if is_gradient else {o} for o in range(axis.size)]
        marked = [o for o in range(axis.size) if at in reads[o]]
        rows = [Row((str(o), number(axis.coordinate(o)), _reads(axis, o)), o in marked) for o in range(axis.size)]
        made.append(AxisDrawing(_drawing(k, axis, marked), table(f"Axis {k}", ("output", "coordinate", "reads"), rows)))
    return tuple(made)


def _drawing(k: int, axis: ResampledAxis, marked: list[int]) -> Drawing:
    """Draw the pixels of axis `k` with a dot where each output is read, and below them the outputs with lines to pixels."""
    outputs = around((marked or [0])[0], axis.size, MOST_OUTPUTS)
    centre = round(min(max(axis.coordinate((marked or outputs)[0]), 0.0), axis.length - 1.0))
    pixels = around(centre if marked else centre + MOST_CELLS // 2, axis.length, MOST_CELLS)
    shown = [o for o in outputs if pixels[0] - 2 <= axis.coordinate(o) <= pixels[-1] + 2]
    cell = min(max(480 // len(pixels), 24), 48)
    # A mark for each output, side by side under the pixels.
    pitch = max(len(pixels) * cell / max(len(shown), 1), 14.0)

    def at(c: float) -> float:
        return round(_MARGIN + (c - pixels[0] + 0.5) * cell, 2)

    parts = []
    for i in pixels:
        square = {"x": at(i - 0.5), "y": _TOP, "width": cell, "height": cell, "fill_opacity": 0.16}
        parts.append(element("rect", "", f"pixel {i}", class_="cell heat", **square))
        parts.append(element("text", str(i), x=at(i), y=18, class_="label"))
    for j, o in enumerate(shown):
        mark, kind = round(_MARGIN + (j + 0.5) * pitch, 2), "dot marked" if o in marked else "dot"
        for tap in axis.taps(o):
            line = {
                "x1": at(tap.pixel),
                "y1": _TOP + cell,
                "x2": mark,
                "y2": _MARKS,
                "stroke_opacity": round(tap.weight, 3),
            }
            parts.append(element("line", class_="reading", **line))
        title = f"output {o} at {number(axis.coordinate(o))}: reads {_reads(axis, o)}"
        for x, y, r in ((at(axis.coordinate(o)), _TOP + cell // 2, 3.5), (mark, _MARKS + 4, 4)):
            parts.append(element("circle", "", title, cx=x, cy=y, r=r, class_=kind))
        parts.append(element("text", str(o), x=mark, y=_MARKS + 22, class_="label"))
    scale = "the ratio of the lengths" if axis.scale is None else number(axis.scale)
    offsets = f"offsets {number(axis.input_pixel_offset)} and {number(axis.output_pixel_offset)}"
    some = [f"{len(pixels)} of {axis.length} pixels"] * (len(pixels) < axis.length)
    some += [f"{len(shown)} of {axis.size} outputs"] * (len(shown) < axis.size)
    return Drawing(
        f"Axis {k}: {axis.length} pixels, {axis.size} outputs, scale {scale}, {offsets}",
        image(round(2 * _MARGIN + max(len(pixels) * cell, len(shown) * pitch)), _HEIGHT, parts),
        f"Drawn are {' and '.join(some)}; the others are left out." if some else "",
    )


def _reads(axis: ResampledAxis, o: int) -> str:
    return ", ".join(f"[{tap.pixel}] x {number(tap.weight)}" for tap in axis.taps(o))


def explanation(case: Case, facts: Mapping[str, str], compared: Comparison, roi: int | None) -> Explanation:
    """The drawings of the resampled axes and the tables of a valid case; raises ValueError if `roi` is given."""
    if roi is not None:
        raise ValueError(f"{case.operator} has no RoIs")
    drawings = axis_drawings(case, compared.worst.at if compared.worst else None)
    return Explanation(case, facts, outputs=compared.slices({}), axes=drawings)
