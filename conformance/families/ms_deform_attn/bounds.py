# SPDX-License-Identifier: MIT OR Apache-2.0
"""Error bounds of multi-scale deformable attention and its gradient, point by point.

A point's coordinates have the error of a few roundings. They change the weight of a pixel by as much, and a sample by as
much times the steepest slope, which is at most twice the largest pixel of its level.
"""

from __future__ import annotations

import numpy as np

from conformance.case import Case
from conformance.error_terms import ErrorTerms, Floats, finite, smallest_subnormal
from conformance.families.ms_deform_attn.geometry import Placed, points_of

CORNERS = 4
"""The pixels around a point."""


def error_terms(case: Case) -> dict[str, ErrorTerms]:
    """The error terms of Y, or of the wanted ones of dvalue, dlocations and dweights, by name."""
    value = finite(np.abs(case.inputs["value"].astype(np.float64)))
    weights = finite(np.abs(case.inputs["attention_weights"].astype(np.float64)))
    images, _, heads, channels = value.shape
    queries = weights.shape[1]
    gradient = np.ones((images, queries, heads, channels))
    if case.definition.is_gradient:
        gradient = finite(np.abs(case.inputs["dY"].astype(np.float64))).reshape(gradient.shape)
    shapes = {"Y": gradient.shape, "dvalue": value.shape, "dlocations": (*weights.shape, 2), "dweights": weights.shape}
    sums = {name: np.zeros((4, *shape)) for name, shape in shapes.items()}
    tiny = smallest_subnormal(case.compute_dtype)
    for point in points_of(case):
        image, query, head, *_ = point.place
        _add_point(point, value[image, :, head], weights[point.place], gradient[image, query, head], tiny, sums)
    sums["Y"] = sums["Y"].reshape(4, images, queries, heads * channels)
    return {
        name: ErrorTerms(magnitude, np.max(terms, initial=0.0), by_coordinates, condition)
        for name, (magnitude, terms, by_coordinates, condition) in sums.items()
        if name in case.outputs
    }


def _add(total: Floats, at: tuple[int, ...], *parts: Floats | float) -> None:
    """Add the fields of `ErrorTerms` of a part of an element's sum."""
    for field, part in zip(total, parts, strict=True):
        field[at] += part


def _add_point(point: Placed, value: Floats, weight: float, g: Floats, tiny: float, sums: dict[str, Floats]) -> None:
    """Add the terms of a point.

    Args:
        point: the point.
        value: the absolute pixels of its image and head [S, D].
        weight: its absolute weight.
        g: the absolute gradient of its query and head [D].
        tiny: the error of a product or sum that is rounded to a subnormal number, which later factors multiply.
        sums: the fields of `ErrorTerms` of each output, to add to.
    """
    image, query, head, *_ = point.place
    level, error = point.level, point.error_x + point.error_y
    steepest = 2 * value[level.start : level.start + level.height * level.width].max(axis=0, initial=0.0)
    sample, along_x, along_y = np.zeros((3, len(g)))
    for corner in point.corners:
        pixel = value[corner.pixel]
        sample += corner.weight * pixel
        along_x += abs(corner.along_x) * pixel
        along_y += abs(corner.along_y) * pixel
        at = image, corner.pixel, head
        _add(sums["dvalue"], at, weight * g * corner.weight, 1, weight * g * error, weight * corner.weight)
    if point.is_near_pixel():  # rounding may give a pixel beyond those some weight
        top, left = round(point.y), round(point.x)
        for row in range(max(top - 1, 0), min(top + 2, level.height)):
            for column in range(max(left - 1, 0), min(left + 2, level.width)):
                at = image, level.start + row * level.width + column, head
                _add(sums["dvalue"], at, np.zeros(1), 1, weight * g * error, 0.0)
    _add(
        sums["Y"], (image, query, head), weight * sample, CORNERS, weight * (error * steepest + CORNERS * tiny), weight
    )
    count, rest = CORNERS * len(g), CORNERS * tiny * (float(g.sum()) + len(g))
    total = float((g * steepest).sum())
    _add(
        sums["dweights"],
        point.place,
        np.array((g * sample).sum()),
        count,
        np.array(error * total + rest),
        float(g.sum()),
    )
    for axis, (length, along, other) in enumerate(
        ((level.width, along_x, point.error_y), (level.height, along_y, point.error_x))
    ):
        scale = weight * length
        magnitude = np.array(scale * (g * along).sum())
        by_coordinates = np.array(scale * (other * 2 * total + 2 * rest))
        _add(sums["dlocations"], (*point.place, axis), magnitude, count, by_coordinates, 2 * scale * float(g.sum()))
