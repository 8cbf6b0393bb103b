# SPDX-License-Identifier: MIT OR Apache-2.0
"""Where an operator reads the map in a valid case, as families describe it: a drawing and tables of one RoI.

The coordinate of a pixel's centre is its index, so pixel 0 goes from -0.5 to 0.5. A point is y before x.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from conformance.case import Case
from conformance.error_terms import Floats

Point = tuple[float, float]

Element = tuple[str, tuple[int, ...]]
"""The name of an output, and the index of one of its elements."""

MAX_SAMPLES = 400
"""The largest number of samples in a drawing. If there are more, it shows none."""

MAX_ROWS = 24
"""The largest number of rows that a table shows."""


class Sample(NamedTuple):
    """A point that the operator reads; `largest` marks the pixel that is a maximum."""

    y: float
    x: float
    kind: Literal["sample", "sample outside", "largest"] = "sample"


class Outline(NamedTuple):
    """A polygon, or a line between two points."""

    kind: Literal["roi", "bin", "block", "worst"]
    corners: Sequence[Point]


@dataclass(frozen=True, slots=True)
class Drawing:
    """What an operator reads of a map.

    name, detail: the lines above it.
    hint: how to read it, in sentences.
    map_size: height and width of the map.
    pixels: [H, W], the values of the map; None if the case does not have them.
    result: the line below it; empty for none.
    """

    name: str
    detail: str
    hint: Sequence[str]
    map_size: tuple[int, int]
    pixels: Floats | None
    outlines: Sequence[Outline]
    samples: Sequence[Sample]
    result: str = ""


class Table(NamedTuple):
    """A table with a title; `marked` is the row of the worst element, around which rows are shown."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    marked: int | None = None

    @property
    def shown(self) -> range:
        """The rows that are shown."""
        first = max(min((self.marked or 0) - MAX_ROWS // 2, len(self.rows) - MAX_ROWS), 0)
        return range(first, min(first + MAX_ROWS, len(self.rows)))


class View(NamedTuple):
    """What a case shows of where its operator reads.

    heading: a description of the drawing.
    drawing: None if there is nothing to draw.
    part: the first indices of the drawn elements of the outputs; empty for all elements.
    notes: the reasons why something is left out.
    """

    heading: str = ""
    drawing: Drawing | None = None
    tables: Sequence[Table] = ()
    part: tuple[int, ...] = ()
    notes: Sequence[str] = ()


def focus_of(case: Case, worst: Element | None, images: Sequence[int]) -> tuple[int, int, tuple[int, ...] | None]:
    """The RoI of an element, its channel, and the bin of an output: what to explain of a case with RoIs.

    Args:
        case: a case of an operator with RoIs, whose first gradient is that by the map.
        worst: the element with the largest error. None for the first RoI and channel.
        images: the image of each RoI.
    """
    if worst is None:
        return 0, 0, None
    name, index = worst
    if not case.definition.is_gradient:
        return index[0], index[1], index[2:]
    if name == case.definition.outputs[0].name:  # the first RoI on the image of the pixel
        return next((r for r, n in enumerate(images) if n == index[0]), 0), index[1], None
    return index[-2], 0, None


def number(value: float) -> str:
    """A value as drawings and tables print it: with 6 significant digits."""
    return "nan" if math.isnan(value) else f"{value + 0.0:.6g}"


def number_list(values: Floats) -> str:
    """The values of an array [rows, columns] in brackets; a single value has no brackets."""
    rows = [", ".join(map(number, row)) for row in values.tolist()]
    return rows[0] if values.size == 1 else f"[{', '.join(f'[{row}]' for row in rows)}]"
