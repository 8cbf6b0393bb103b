# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random cases of multi-scale deformable attention and its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from conformance.case import Case
from conformance.families.ms_deform_attn.geometry import points_of
from conformance.families.roundings import Perturbed
from ortops.spec import Operator

if TYPE_CHECKING:
    from conformance.families.random_draw import DrawnCase, RandomDraw

__all__ = ["perturbed", "random_case", "work"]

POINTS_A_SAMPLE = 8
"""How many samples of RoiAlign, in one channel, the reference and the bounds compute in the time of a point."""


def work(case: Case) -> float:
    """An estimate of the time of the reference for a valid case, in samples of RoiAlign."""
    return POINTS_A_SAMPLE * float(np.prod(case.types["attention_weights"].shape))


def random_case(draw: RandomDraw, operator: Operator) -> DrawnCase:
    """A random case of MSDeformAttn or its gradient."""
    images, heads, channels = draw.integer(1, 2), draw.integer(1, 3), draw.integer(1, 5)
    queries, levels, points = draw.integer(1, 4), draw.integer(1, 3), draw.integer(1, 3)
    if draw.is_large():
        kind = draw.choice(("channels", "queries", "points"))
        channels = draw.length(100) if kind == "channels" else channels
        queries = draw.length(120) if kind == "queries" else queries
        points = draw.length(40) if kind == "points" else points
    sides = [1, 2, 4, 8] if draw.exact else list(range(1, 10))
    shapes = np.array([[draw.choice(sides), draw.choice(sides)] for _ in range(levels)])
    ends = np.cumsum(shapes.prod(axis=1))
    inputs = {"spatial_shapes": shapes}
    pixels = int(ends[-1])
    if draw.chance(0.5):
        pixels += draw.integer(0, 3)
        firsts = [draw.integer(0, pixels - height * width) for height, width in shapes.tolist()]
        inputs["level_start_index"] = np.array(firsts)
    shape = images, queries, heads, levels, points
    locations = draw.uniform(-0.3, 1.3, (*shape, 2))
    if draw.exact:
        locations = draw.integers(-4, 20, (*shape, 2)) / 16
    if not draw.no_extremes and draw.chance(0.2):
        locations.flat[draw.integer(0, locations.size - 1)] = draw.choice((np.nan, np.inf, -np.inf))
    inputs |= {"value": draw.values((images, pixels, heads, channels)), "sampling_locations": locations}
    inputs["attention_weights"] = draw.integers(-8, 8, shape) / 8 if draw.exact else draw.uniform(0.0, 1.0, shape)
    outputs: tuple[str, ...] = ("Y",)
    if operator.is_gradient:
        inputs["dY"] = draw.values((images, queries, heads * channels))
        names = tuple(tensor.name for tensor in operator.outputs)
        outputs = draw.choice((names, *((name,) for name in names)))
    return {}, {t.name: inputs[t.name] for t in operator.inputs if t.name in inputs}, outputs


def perturbed(case: Case) -> Perturbed | None:
    """See `conformance.families.PARTS`: None if rounding decides which pixels a point reads, and that matters.

    It matters where a pixel, a weight or a gradient is infinite or NaN, and to the slopes of dlocations.
    """
    numbers = [array for array in case.inputs.values() if array.dtype.kind not in "iu"]
    is_finite = all(
        np.isfinite(array.astype(np.float64)).all()
        for array in numbers
        if array is not case.inputs["sampling_locations"]
    )
    matters = not is_finite or "dlocations" in case.outputs
    if matters and any(point.is_near_pixel() for point in points_of(case)):
        return None
    return Perturbed(case)
