"""Random cases of RoIAlignRotated and its gradient."""

from __future__ import annotations

import math

import numpy as np

from conformance.case import Array, Case
from conformance.families import DrawnCase
from conformance.families.random_rois import random_indices, random_rois, random_sizes, with_tensors
from conformance.families.well_posed_rotated import is_well_posed
from conformance.fuzz.random_draw import RandomDraw, draw_attributes
from conformance.geometry.rois import ONNX_NAMES
from conformance.geometry.rotated import geometry_of, work_of
from ortops.spec import Operator

__all__ = ["is_well_posed", "random_case", "work"]

QUARTERS = (0.0, math.pi / 2, -math.pi / 2, math.pi, 1e-3, 50 * math.pi)
"""Angles in radians: quarter turns, a small angle, and many turns."""


def work(case: Case) -> float:
    """An estimate of the number of samples that the reference computes for a valid case."""
    return work_of(geometry_of(case))


def random_case(draw: RandomDraw, operator: Operator) -> DrawnCase:
    """A random case of RoIAlignRotated or its gradient."""
    scale, sizes = draw.scale(), random_sizes(draw)
    given = {
        "output_height": sizes.bins_y,
        "output_width": sizes.bins_x,
        "aligned": draw.integer(0, 1),
        "clockwise": draw.integer(0, 1),
        "sampling_ratio": sizes.ratio,
        "spatial_scale": scale,
    }
    attributes, x = draw_attributes(draw, operator, given), draw.values(sizes[:4])
    upright, indices = random_rois(draw, sizes, scale, scale), random_indices(draw, sizes.images, sizes.rois)
    return with_tensors(draw, operator, attributes, ONNX_NAMES, sizes, x, _turned(draw, upright), indices)


def _turned(draw: RandomDraw, upright: Array) -> Array:
    """Convert RoIs x1, y1, x2, y2 to cx, cy, w, h, angle, [R, 5]: with angle 0 in exact cases, else with random angles."""
    first, last = upright[:, :2], upright[:, 2:]
    # A RoI from one end of the float16 range to the other has a size beyond it.
    largest = float(np.finfo(np.float16).max) if draw.dtype == np.float16 else np.inf
    angles = [0.0 if draw.exact else _angle(draw) for _ in upright]
    sizes = np.clip(last - first, -largest, largest)
    return np.concatenate([first / 2 + last / 2, sizes, np.array(angles).reshape(-1, 1)], axis=1)


def _angle(draw: RandomDraw) -> float:
    """A random angle in radians: up to half a turn, several turns, or one of `QUARTERS`."""
    if draw.chance(0.3):
        return draw.choice(QUARTERS)
    return float(draw.rng.uniform(-math.pi, math.pi) * (10 if draw.chance(0.2) else 1))
