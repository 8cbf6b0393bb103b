# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random cases of GridSample."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from conformance.case import Array, Case
from conformance.families.grid_sample.geometry import coordinate_errors, coordinates_of, rule_of
from conformance.families.roundings import FACTORS, Perturbed, have_few_bits
from ortops.reference.grid_sample import weights_of
from ortops.spec import Operator

if TYPE_CHECKING:
    from conformance.families.random_draw import DrawnCase, RandomDraw

__all__ = ["perturbed", "random_case", "work"]

DIRECTIONS = 8
"""How many random directions each location is moved in."""

EXACT_LENGTHS = ((1, 2, 4, 8), (2, 3, 5, 9))
"""Lengths for which short binary fractions of the grid are those of coordinates, without and with align_corners."""


def work(case: Case) -> float:
    """An estimate of the time of the reference for a valid case, in samples of RoiAlign, which read four pixels."""
    x, grid = case.inputs["X"], case.inputs["grid"]
    pixels = len(weights_of(0.0, rule_of(case).mode)) ** (x.ndim - 2)
    return float(math.prod(grid.shape[:-1]) * (x.shape[1] + 1) * (pixels / 4 + 1))


def random_case(draw: RandomDraw, operator: Operator) -> DrawnCase:
    """A random case of GridSample."""
    rank, align_corners = len(operator.inputs[0].shape) - 2, draw.integer(0, 1)
    lengths = [draw.choice(EXACT_LENGTHS[align_corners]) if draw.exact else draw.integer(1, 9) for _ in range(rank)]
    if draw.is_large() and not draw.exact:
        lengths[draw.integer(0, rank - 1)] = draw.length(300)
    images, places = draw.integer(1, 3), [draw.integer(1, 5) for _ in range(rank)]
    if draw.chance(0.3):
        places[draw.integer(0, rank - 1)] = draw.length(40)
    shape, last_first = (images, *places), lengths[::-1]
    if draw.exact:
        quarters = [draw.integers(-4 * length, 8 * length, shape) / 4 for length in last_first]
        scaled = [
            2 * c / (length - 1) - 1 if align_corners else (2 * c + 1) / length - 1
            for c, length in zip(quarters, last_first, strict=True)
        ]
        grid = np.stack(scaled, axis=-1)
    else:
        grid = draw.uniform(-1.8, 1.8, (*shape, rank))
    if grid.size and not draw.no_extremes and draw.chance(0.3):
        grid.flat[draw.integer(0, grid.size - 1)] = draw.choice((3e4, -3e4, np.inf, -np.inf))
    attributes = draw.attributes(operator, {"align_corners": align_corners})
    return attributes, {"X": draw.values((images, draw.integer(1, 4), *lengths)), "grid": grid}, ("Y",)


def perturbed(case: Case) -> Perturbed | None:
    """See `conformance.families.PARTS`: None where a half beyond the edges, NaN or infinity has no rule.

    Numbers of few bits are not rounded, unless a pixel that is infinite or NaN may have the weight 0.
    """
    grid, c, rule = case.inputs["grid"].astype(np.float64), coordinates_of(case), rule_of(case)
    if np.isnan(c).any() or (rule.padding == "reflection" and not np.isfinite(c).all()):
        return None
    with np.errstate(invalid="ignore"):
        is_half = np.mod(c, 1.0) == 0.5
    is_outside = (c < -0.5) | (c > np.array(case.inputs["X"].shape[2:]) - 0.5)
    if (
        rule.mode == "nearest"
        and rule.padding == "reflection"
        and not rule.align_corners
        and (is_half & is_outside).any()
    ):
        return None
    if have_few_bits(grid) and np.isfinite(case.inputs["X"].astype(np.float64)).all():
        return Perturbed(case)
    return Perturbed(case, _moved(case, grid))


def _moved(case: Case, grid: Array) -> Iterator[tuple[str, float, Array]]:
    """Yield the grid with each number moved up or down by its error times each of `FACTORS`."""
    lengths = np.array(case.inputs["X"].shape[2:])
    per_pixel = 2 / np.maximum(lengths - rule_of(case).align_corners, 1)
    by, rng = (coordinate_errors(case) * per_pixel)[..., ::-1], np.random.default_rng(0)
    for factor in FACTORS:
        for _ in range(DIRECTIONS):
            yield "grid", factor, grid + factor * by * rng.choice([-1.0, 1.0], grid.shape)
