# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random cases of MaxRoiPool and its gradient."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.case import Case
from conformance.error_terms import Floats
from conformance.families.max_roi_pool.geometry import pixels_of, rois_of
from conformance.families.roundings import Perturbed
from conformance.families.upright.random import random_indices, random_rois, random_sizes
from ortops.spec import Operator

if TYPE_CHECKING:
    from conformance.families.random_draw import DrawnCase, RandomDraw

__all__ = ["perturbed", "random_case", "work"]

PIXELS_A_SAMPLE = 20
"""How many pixels the reference compares in the time of one RoiAlign sample."""

MAX_IMAGES = 256
"""The most images of a case: bfloat16 represents every batch_id below this exactly."""


def work(case: Case) -> float:
    """An estimate of the time of the reference for a valid case, in samples of RoiAlign."""
    evaluations = 3 if case.definition.is_gradient else 1  # the error terms of a gradient take two more
    _, channels, *_ = case.inputs["X"].shape
    areas: list[int] = []
    for _, sides in rois_of(case):
        rows, columns = (sum(max(b.widest.stop - b.widest.start, 1) for b in pixels_of(side)) for side in sides)
        areas.append(rows * columns)
    return float(evaluations * channels * sum(areas) / PIXELS_A_SAMPLE)


def random_case(draw: RandomDraw, operator: Operator) -> DrawnCase:
    """A random case of MaxRoiPool or its gradient."""
    scale, sizes = draw.scale(), random_sizes(draw)
    sizes = sizes._replace(images=min(sizes.images, MAX_IMAGES))
    attributes = draw.attributes(operator, {"pooled_shape": (sizes.bins_y, sizes.bins_x), "spatial_scale": scale})
    x, boxes = draw.values(sizes[:4]), random_rois(draw, sizes, scale, scale)
    indices = random_indices(draw, sizes.images, sizes.rois)
    inputs = {"X": x, "rois": np.concatenate([indices[:, None], boxes], axis=1)}
    if operator.is_gradient:
        inputs = {"dY": draw.values((sizes.rois, sizes.channels, sizes.bins_y, sizes.bins_x)), **inputs}
    return attributes, inputs, (operator.outputs[0].name,)


def perturbed(case: Case) -> Perturbed | None:
    """See `conformance.families.PARTS`: None if rounding of RoI ends or bin bounds decides which pixel is a maximum.

    Ties have a rule, the first pixel in row order, so their gradient is well-posed. Which of several NaN is the maximum has
    no rule, so their gradient is not.
    """
    dtypes, is_gradient = {np.dtype(np.float64), case.compute_dtype}, case.definition.is_gradient
    x = case.inputs["X"].astype(np.float64)
    for n, sides in rois_of(case):
        rows, columns = (list(pixels_of(side, *dtypes)) for side in sides)
        for row in rows:
            for column in columns:
                widest = _largest(x[n], row.widest, column.widest, is_gradient)
                if is_gradient and np.isnan(x[n][:, row.widest, column.widest]).any():
                    return None
                is_exact = row.widest == row.narrowest and column.widest == column.narrowest
                if not is_exact and widest != _largest(x[n], row.narrowest, column.narrowest, is_gradient):
                    return None
    return Perturbed(case)


def _largest(image: Floats, rows: slice, columns: slice, is_gradient: bool) -> list[Any]:
    """For each channel, the maximum of a bin, or for a gradient its position; 0 or None if the bin is empty."""
    size = (rows.stop - rows.start) * (columns.stop - columns.start)
    if not size:
        return [None if is_gradient else 0.0] * len(image)
    block = image[:, rows, columns].reshape(len(image), size)
    if not is_gradient:
        largest = block.max(axis=1).tolist()
        return ["nan" if math.isnan(value) else value for value in largest]
    row, column = np.divmod(block.argmax(axis=1), columns.stop - columns.start)
    return list(zip((rows.start + row).tolist(), (columns.start + column).tolist(), strict=True))
