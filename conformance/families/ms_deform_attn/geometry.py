# SPDX-License-Identifier: MIT OR Apache-2.0
"""The points of multi-scale deformable attention: where each lies on its level, and which pixels it reads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from conformance.case import Case
from conformance.error_terms import Floats, unit_roundoff
from conformance.families.view import MAX_SAMPLES, Drawing, Element, Sample, Table, View, number
from ortops.reference.ms_deform_attn import Corner, Level, coordinate, corners, levels_of

ROUNDINGS = 4
"""The roundings of a coordinate: of a product and a difference, in any order of evaluation."""

HINT = (
    "A pixel's centre has its index as coordinate.",
    "Each dot is a point of the query and the head on the first level.",
    "A hollow dot reads no pixel.",
)


class Placed(NamedTuple):
    """A point: its place [n, q, m, l, p], its level, its coordinates, the errors of these, and the pixels that it reads."""

    place: tuple[int, ...]
    level: Level
    y: float
    x: float
    error_y: float
    error_x: float
    corners: list[Corner]

    def is_near_pixel(self) -> bool:
        """Whether rounding may move the point across a row or a column of pixels."""
        pairs = (self.y, self.error_y), (self.x, self.error_x)
        return any(math.isfinite(at) and error > 0 and abs(at - round(at)) <= error for at, error in pairs)


def points_of(case: Case) -> Iterator[Placed]:
    """The points of a valid case."""
    locations = case.inputs["sampling_locations"].astype(np.float64)
    starts, rounding = case.inputs.get("level_start_index"), unit_roundoff(case.compute_dtype)
    levels = levels_of(case.inputs["value"], case.inputs["spatial_shapes"], starts)
    for index in np.ndindex(locations.shape[:5]):
        level, (x, y) = levels[index[3]], locations[index].tolist()
        (error_x, at_x), (error_y, at_y) = (
            _with_error(fraction, length, rounding) for fraction, length in ((x, level.width), (y, level.height))
        )
        yield Placed(index, level, at_y, at_x, error_y, error_x, list(corners((x, y), level)))


def _with_error(fraction: float, length: int, rounding: float) -> tuple[float, float]:
    """The error of a coordinate, 0 if each step is exact in float32, and the coordinate."""
    at = coordinate(fraction, length)
    steps = fraction * length, at, 2 * fraction - 1, fraction * length * 2
    if not math.isfinite(at) or all(step == float(np.float32(step)) and step * 2**12 % 1 == 0 for step in steps):
        return 0.0, at
    return ROUNDINGS * rounding * (abs(fraction) * length + 1), at


def samples(case: Case) -> float:
    """See `conformance.families.PARTS`."""
    return float(np.prod(case.types["attention_weights"].shape))


def explanation(case: Case, worst: Element | None) -> View:
    """The view of a valid case: the points of the query and head of the worst element, or of the first ones."""
    shape = case.inputs["attention_weights"].shape
    if 0 in shape:
        return View(notes=("The case has no points to draw.",))
    chosen: tuple[int, ...] = (0, 0, 0)
    if worst is not None and worst[0] != "dvalue":
        index = worst[1]
        chosen = (*index[:2], index[2] // max(case.inputs["value"].shape[3], 1) if len(index) == 3 else index[2])
    points = [point for point in points_of(case) if point.place[:3] == chosen]
    rows = [
        (
            f"{point.place[3]}, {point.place[4]}",
            f"{number(point.y)}, {number(point.x)}",
            ", ".join(f"[{corner.pixel}] x {number(corner.weight)}" for corner in point.corners),
        )
        for point in points
    ]
    table = Table("Points", ("level, point", "y, x", "reads"), rows)
    first = [point for point in points if point.place[3] == 0]
    if len(first) > MAX_SAMPLES:
        return View(tables=(table,), notes=(f"{len(first)} points are too many to draw.",))
    dots = [Sample(p.y, p.x, "sample" if p.corners else "sample outside") for p in first if math.isfinite(p.x + p.y)]
    level, heading = first[0].level, "query {1} of image {0}, head {2}".format(*chosen)
    pixels: Floats = case.inputs["value"].astype(np.float64)[chosen[0], level.start :, chosen[2]].sum(1)
    size = level.height, level.width
    shown = pixels[: level.height * level.width].reshape(size) if pixels.size else None
    return View(heading, Drawing(case.operator, heading, HINT, size, shown, (), dots), (table,))
