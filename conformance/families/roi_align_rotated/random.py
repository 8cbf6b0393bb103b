# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random cases of RoIAlignRotated and its gradient, and whether rounding decides their results."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from conformance.case import Array, Case
from conformance.error_terms import unit_roundoff
from conformance.families.roi_align_rotated.bounds import Roundings
from conformance.families.roi_align_rotated.geometry import Geometry, coordinates, samples_of, work_of
from conformance.families.rois import ONNX_NAMES
from conformance.families.roundings import (
    MAX_EXACT,
    Perturbations,
    Perturbed,
    have_few_bits,
    in_all_directions,
    is_power_of_2,
)
from conformance.families.upright.random import random_indices, random_rois, random_sizes, with_tensors
from ortops.reference.roi_align_rotated import Region, Side
from ortops.spec import Operator

if TYPE_CHECKING:
    from conformance.families.random_draw import DrawnCase, RandomDraw

__all__ = ["perturbed", "random_case", "work"]

QUARTERS = (0.0, math.pi / 2, -math.pi / 2, math.pi, 1e-3, 50 * math.pi)
"""Angles in radians: quarter turns, a small angle, and many turns."""


def work(case: Case) -> float:
    """An estimate of the number of samples that the reference computes for a valid case."""
    return work_of(Geometry(case))


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
    attributes, x = draw.attributes(operator, given), draw.values(sizes[:4])
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
    return float(draw.uniform(-math.pi, math.pi) * (10 if draw.chance(0.2) else 1))


def perturbed(case: Case) -> Perturbed | None:
    """See `conformance.families.PARTS`. The RoIs are perturbed, unless all intermediate numbers are exact in float32.

    That needs angle 0. None if the result depends on infinities or NaN in a way that no rule covers: multiplied by a weight
    of 0, or in the differences that drois is made of.
    """
    geometry = Geometry(case)
    regions = geometry.regions()
    are_finite = all(np.isfinite(a.astype(np.float64)).all() for a in case.inputs.values())
    if not are_finite and any(_is_unspecified(geometry, r, region) for r, region in enumerate(regions)):
        return None
    are_exact = [_is_exact(region, angle) for region, angle in zip(regions, geometry.rois[:, 4], strict=True)]
    if are_finite and all(are_exact):
        return Perturbed(case)
    return Perturbed(case, _moved(geometry, regions, are_exact, are_finite))


def _is_unspecified(geometry: Geometry, r: int, region: Region) -> bool:
    """Whether the result of RoI `r` depends on infinities or NaN in a way that no rule covers."""
    samples = samples_of(region)
    # Some runtimes read the last pixel again in place of one beyond it.
    beyond = (samples.taps < 0).any(axis=1, keepdims=True)
    idle = (samples.taps >= 0) & ((samples.weights == 0) | beyond)
    wants_drois = "drois" in geometry.case.outputs
    if geometry.dy is not None and not np.isfinite(geometry.dy[r]).all() and (wants_drois or idle.any()):
        return True
    if geometry.x is None:
        return False
    odd = np.append(~np.isfinite(geometry.x[geometry.indices[r]]).all(axis=0), False)
    return bool(np.any(odd[samples.taps] & (idle | wants_drois)))


def _has_exact_size(side: Side, scale: float) -> bool:
    """Whether the size and the number of samples of a side are exact."""
    are_powers = is_power_of_2(side.bins) and is_power_of_2(scale)
    return side.size == 0 or (are_powers and have_few_bits([side.size]))


def _is_exact(region: Region, angle: float) -> bool:
    """Whether all intermediate numbers of a region's coordinates are exact."""
    if angle != 0:
        return False
    for side in (region.height, region.width):
        is_few = side.samples < MAX_EXACT and is_power_of_2(max(side.samples, 1))
        if not (is_few and _has_exact_size(side, region.scale)):
            return False
    shift = [region.center_x, region.center_y]
    return have_few_bits(shift) and all(have_few_bits(c) for c in coordinates(region))


def _moved(geometry: Geometry, regions: list[Region], are_exact: list[bool], are_finite: bool) -> Perturbations:
    """The RoIs, moved, stretched and rotated by their rounding errors."""
    by = np.zeros_like(geometry.rois)
    for r, (region, is_exact) in enumerate(zip(regions, are_exact, strict=True)):
        if is_exact and are_finite:
            continue
        error = Roundings(region, float(geometry.rois[r, 4]), unit_roundoff(geometry.case.compute_dtype))
        sides = zip(error.stretch, (region.width, region.height), strict=True)
        stretch = [0.0 if _has_exact_size(side, region.scale) else most for most, side in sides]
        # Rounded down to a power of two, so that exact numbers stay exact in float64.
        shift = [2.0 ** math.floor(math.log2(number)) for number in error.shift]
        by[r] = [*(np.array([*shift, *stretch]) / region.scale), error.turn]
    return in_all_directions("rois", geometry.rois, by)
