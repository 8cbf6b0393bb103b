"""One axis of a resampled tensor: where each output is read, over the pixels of the input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from conformance.case import Case
from conformance.explain.table import MOST_ROWS, Row, Table, kept, number
from ortops.reference.dml_resample import ResampledAxis, resampled_axes
from ortops.shapes import output_shapes

MOST_PIXELS = 40
MOST_OUTPUTS = 60

_CELL, _MARGIN, _HEIGHT = 24, 40, 170


class Place(NamedTuple):
    """A pixel of the input: its left edge and its number."""

    x: int
    number: int


class Reading(NamedTuple):
    """An output's pixel it reads: the line to it, and how strong."""

    x: float
    weight: float


@dataclass(frozen=True, slots=True)
class Output:
    """An output: where it is read, where its own mark is, and what it reads."""

    number: int
    at: float
    mark: float
    readings: tuple[Reading, ...]
    marked: bool
    title: str


@dataclass(frozen=True, slots=True)
class AxisPicture:
    """One axis, ready to be drawn."""

    title: str
    width: int
    height: int
    cell: int
    pixels: tuple[Place, ...]
    outputs: tuple[Output, ...]
    left_out: str
    table: Table


def axis_pictures(case: Case, mark: Sequence[int] | None) -> tuple[AxisPicture, ...]:
    """A picture of every axis of a right case.

    Args:
        case: of DmlResample or of its gradient.
        mark: index of the worst element, or None.
    """
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
    axes = resampled_axes(lengths, sizes, **settings)
    return tuple(
        _axis(k, axis, None if mark is None else mark[k], is_gradient=is_gradient) for k, axis in enumerate(axes)
    )


def _axis(k: int, axis: ResampledAxis, mark: int | None, *, is_gradient: bool) -> AxisPicture:
    """Axis `k`; `mark` is an output, or in a gradient a pixel."""
    marked = [o for o in range(axis.size) if _is_marked(axis, o, mark, is_gradient=is_gradient)]
    first_output = max(min((marked or [0])[0] - MOST_OUTPUTS // 2, axis.size - MOST_OUTPUTS), 0)
    outputs = range(first_output, min(first_output + MOST_OUTPUTS, axis.size))
    centre = round(min(max(axis.coordinate((marked or outputs)[0]), 0.0), axis.length - 1.0))
    first = max(min(centre - (MOST_PIXELS // 2 if marked else 0), axis.length - MOST_PIXELS), 0)
    pixels = range(first, min(first + MOST_PIXELS, axis.length))
    shown = [o for o in outputs if pixels[0] - 2 <= axis.coordinate(o) <= pixels[-1] + 2]
    # A mark for each output, side by side under the pixels.
    pitch = max(len(pixels) * _CELL / max(len(shown), 1), 14.0)
    drawn = tuple(_output(axis, o, pixels[0], (j + 0.5) * pitch, marked=o in marked) for j, o in enumerate(shown))
    scale = "the ratio of the lengths" if axis.scale is None else number(axis.scale)
    offsets = f"offsets {number(axis.input_pixel_offset)} and {number(axis.output_pixel_offset)}"
    parts = [f"{len(pixels)} of {axis.length} pixels"] * (len(pixels) < axis.length)
    parts += [f"{len(shown)} of {axis.size} outputs"] * (len(shown) < axis.size)
    return AxisPicture(
        f"Axis {k}: {axis.length} pixels, {axis.size} outputs, scale {scale}, {offsets}",
        round(2 * _MARGIN + max(len(pixels) * _CELL, len(shown) * pitch)),
        _HEIGHT,
        _CELL,
        tuple(Place(_MARGIN + (i - pixels[0]) * _CELL, i) for i in pixels),
        drawn,
        f"Drawn are {' and '.join(parts)}; the others are left out." if parts else "",
        _table(k, axis, set(marked)),
    )


def _is_marked(axis: ResampledAxis, o: int, mark: int | None, *, is_gradient: bool) -> bool:
    return any(tap.pixel == mark for tap in axis.taps(o)) if is_gradient else o == mark


def _output(axis: ResampledAxis, o: int, first: int, mark: float, *, marked: bool) -> Output:
    def at(c: float) -> float:
        return round(_MARGIN + (c - first + 0.5) * _CELL, 2)

    readings = tuple(Reading(at(tap.pixel), round(tap.weight, 3)) for tap in axis.taps(o))
    title = f"output {o} at {number(axis.coordinate(o))}: reads {_reads(axis, o)}"
    return Output(o, at(axis.coordinate(o)), round(_MARGIN + mark, 2), readings, marked, title)


def _reads(axis: ResampledAxis, o: int) -> str:
    return ", ".join(f"[{tap.pixel}] x {number(tap.weight)}" for tap in axis.taps(o))


def _table(k: int, axis: ResampledAxis, marked: set[int]) -> Table:
    rows = [Row((str(o), number(axis.coordinate(o)), _reads(axis, o)), o in marked) for o in range(axis.size)]
    return Table(f"Axis {k}", ("output", "coordinate", "reads"), kept(rows, MOST_ROWS), len(rows))
