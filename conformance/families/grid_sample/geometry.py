# SPDX-License-Identifier: MIT OR Apache-2.0
"""Where GridSample reads its map, and how much an answer may differ.

A sum has a product for each pixel that a location reads, and the weights of a product are those along each axis. A
coordinate has a few roundings, in any order of evaluation. Except with nearest, the value along an axis is continuous, and
its slope is at most `SLOPES` times the largest pixel nearby.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from conformance.case import Array, Case
from conformance.error_terms import ErrorTerms, Floats, finite, unit_roundoff
from conformance.expected_values import expected_outputs
from conformance.families.view import MAX_SAMPLES, Drawing, Element, Sample, Table, View, number
from ortops.reference.grid_sample import Rule, Tap, interpolated, place_of, taps_of

ROUNDINGS = 8
"""The roundings of a coordinate: of the number of the grid to the type of the arithmetic, of products, and of padding."""

SLOPES = {1: 0.0, 2: 2.0, 4: 3.0}
"""The largest sum of the slopes of an axis's weights, by their number; the cubic one is in the middle of two pixels."""

WIDEST = 1.375
"""The largest sum of the absolute values of an axis's weights: the cubic ones in the middle of two pixels."""

CUBIC_ROUNDINGS = 64
"""The error of an axis's cubic weights, whose terms are up to 6 where a weight is nearly 0, in units of the last place."""

HINT = (
    "A pixel's centre has its index as coordinate.",
    "Each dot is a location of the grid, after padding.",
    "A hollow dot is not between the centres of pixels of the map.",
)


def rule_of(case: Case) -> Rule:
    """The attributes of a valid case."""
    arguments = case.definition.check_attributes(case.attributes)
    return Rule(arguments["mode"], arguments["padding_mode"], bool(arguments["align_corners"]))


def grid_of(case: Case) -> Floats:
    """The grid in float64, with the numbers of a location in the order of the map's axes."""
    return case.inputs["grid"].astype(np.float64)[..., ::-1]


def coordinates_of(case: Case) -> Floats:
    """The coordinates of all locations in pixels, before rounding and padding, in the order of the map's axes."""
    lengths = np.array(case.inputs["X"].shape[2:])
    with np.errstate(over="ignore", invalid="ignore"):
        if rule_of(case).align_corners:
            return np.asarray((grid_of(case) + 1) / 2 * (lengths - 1))
        return np.asarray(((grid_of(case) + 1) * lengths - 1) / 2)


def coordinate_errors(case: Case) -> Floats:
    """An upper bound of the error of each of `coordinates_of` if they are computed in the case's arithmetic, in pixels."""
    reach = (np.abs(finite(grid_of(case))) + 1) * np.array(case.inputs["X"].shape[2:]) / 2 + 1
    return np.asarray(ROUNDINGS * unit_roundoff(case.compute_dtype) * reach)


def read_by(case: Case) -> Iterator[tuple[tuple[int, ...], list[list[Tap]]]]:
    """Yield the image and the place of each location, and the pixels that it reads along each axis of the map."""
    rule, lengths, grid = rule_of(case), case.inputs["X"].shape[2:], case.inputs["grid"].astype(np.float64)
    for at in np.ndindex(*grid.shape[:-1]):
        yield at, taps_of(grid[at].tolist(), lengths, rule)


def error_terms(case: Case) -> dict[str, ErrorTerms]:
    """The error terms of Y, by name."""
    x, rule = np.abs(finite(case.inputs["X"].astype(np.float64))), rule_of(case)
    y = np.zeros((*x.shape[:2], *case.inputs["grid"].shape[1:-1]))
    magnitude, moved, condition, terms = y, y.copy(), y.copy(), 1
    errors, grid, rounding = coordinate_errors(case), grid_of(case), unit_roundoff(case.compute_dtype)
    for (n, *place), axes in read_by(case):
        absolute = [[tap._replace(weight=abs(tap.weight)) for tap in taps] for taps in axes]
        numbers, terms = grid[(n, *place)].tolist(), max(terms, math.prod(map(len, axes)))
        near = tuple(_near(place_of(g, length, rule), length) for g, length in zip(numbers, x.shape[2:], strict=True))
        steps = np.minimum(errors[(n, *place)], 4.0) * [SLOPES[len(taps)] for taps in axes]
        steps += [CUBIC_ROUNDINGS * rounding * (len(taps) == 4) for taps in axes]
        for c, channel in enumerate(x[n]):
            magnitude[(n, c, *place)] = interpolated(channel, absolute)
            largest = channel[near].max(initial=0.0)
            moved[(n, c, *place)] = steps.sum() * largest * WIDEST ** (len(axes) - 1)
            condition[(n, c, *place)] = math.prod(sum(tap.weight for tap in taps) for taps in absolute)
    return {"Y": ErrorTerms(magnitude, float(terms), moved, condition)}


def _near(c: float, length: int) -> slice:
    """The pixels within three of a coordinate."""
    if not -4 < c < length + 4:
        return slice(0, 0)
    return slice(max(math.floor(c) - 2, 0), max(math.floor(c) + 4, 0))


def samples(_case: Case) -> float:
    """See `conformance.families.PARTS`."""
    return 0.0


def explanation(case: Case, worst: Element | None) -> View:
    """See `conformance.families.PARTS`: the locations of one image."""
    x: Array = case.inputs["X"].astype(np.float64)
    n, c = worst[1][:2] if worst else (0, 0)
    grid, rule, lengths = grid_of(case), rule_of(case), x.shape[2:]
    if not grid.size or not x.size:
        return View(notes=("The case has no locations or no channels to draw.",))
    y, names = expected_outputs(case)["Y"], "zyx"[-len(lengths) :]
    places = list(np.ndindex(*grid.shape[1:-1]))
    moved = [
        [place_of(g, length, rule) for g, length in zip(grid[(n, *at)].tolist(), lengths, strict=True)] for at in places
    ]
    rows = [
        (str(at), *map(number, where), number(float(y[(n, c, *at)]))) for at, where in zip(places, moved, strict=True)
    ]
    marked = places.index(worst[1][2:]) if worst else None
    table = Table(f"Locations of image {n}, channel {c}", ("output", *names, "Y"), rows, marked)
    if len(lengths) != 2 or len(places) > MAX_SAMPLES:
        return View(tables=[table], notes=("A map with three axes, or so many locations, are not drawn.",))
    dots = [Sample(at[0], at[1], "sample" if _is_inside(at, lengths) else "sample outside") for at in moved]
    detail = f"{rule.mode}, {rule.padding}, -1 and 1 are the {'centres' if rule.align_corners else 'edges'} of pixels"
    drawing = Drawing(case.operator, detail, HINT, (lengths[0], lengths[1]), x[n, c], (), dots)
    return View(f"image {n}, channel {c}", drawing, [table], (n, c))


def _is_inside(at: list[float], lengths: tuple[int, ...]) -> bool:
    return all(0 <= c <= length - 1 for c, length in zip(at, lengths, strict=True))
