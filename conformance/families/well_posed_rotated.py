"""Whether a case of RoIAlignRotated or its gradient is well-posed.

A case is well-posed if all intermediate numbers of its coordinates are exact in float32, which needs angle 0.
It is also well-posed if all outputs stay within their tolerance when the RoIs are perturbed by their rounding error.

It is not well-posed if its result depends on infinities or NaN in a way that no rule covers: multiplied by a weight of 0,
or in the differences that drois is made of.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from conformance.case import Case
from conformance.error_bounds import compute_dtype, unit_roundoff
from conformance.error_bounds.rotated import Roundings
from conformance.families.well_posed_rois import FEW
from conformance.fuzz.perturbation import FACTORS, MOST_EXACT, Perturbations, have_few_bits, is_power_of_2, is_stable
from conformance.geometry.rotated import Geometry, coordinates, geometry_of, samples_of
from conformance.run import AnswerFunction
from ortops.reference.roi_align_rotated import Region, Side


def is_well_posed(case: Case, oracle: AnswerFunction) -> bool:
    """Whether a valid case is well-posed; the oracle is the reference."""
    geometry = geometry_of(case)
    regions = geometry.regions()
    are_finite = all(np.isfinite(a.astype(np.float64)).all() for a in case.inputs.values())
    if not are_finite and any(_is_unspecified(geometry, r, region) for r, region in enumerate(regions)):
        return False
    are_exact = [_is_exact(region, angle) for region, angle in zip(regions, geometry.rois[:, 4], strict=True)]
    if are_finite and all(are_exact):
        return True
    return is_stable(case, "rois", _perturbed(geometry, regions, are_exact, are_finite), oracle)


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
        is_few = side.samples < MOST_EXACT and is_power_of_2(max(side.samples, 1))
        if not (is_few and _has_exact_size(side, region.scale)):
            return False
    shift = [region.center_x, region.center_y]
    return have_few_bits(shift) and all(have_few_bits(c) for c in coordinates(region))


def _perturbed(geometry: Geometry, regions: list[Region], are_exact: list[bool], are_finite: bool) -> Perturbations:
    """Yield the RoIs, moved, stretched and rotated by their rounding errors."""
    by = np.zeros_like(geometry.rois)
    for r, (region, is_exact) in enumerate(zip(regions, are_exact, strict=True)):
        if is_exact and are_finite:
            continue
        error = Roundings(region, float(geometry.rois[r, 4]), unit_roundoff(compute_dtype(geometry.case)))
        sides = zip(error.stretch, (region.width, region.height), strict=True)
        stretch = [0.0 if _has_exact_size(side, region.scale) else most for most, side in sides]
        # Rounded down to a power of two, so that exact numbers stay exact in float64.
        shift = [2.0 ** math.floor(math.log2(one)) for one in error.shift]
        by[r] = [*(np.array([*shift, *stretch]) / region.scale), error.turn]
    rng, shape = np.random.default_rng(0), geometry.rois.shape
    whole = itertools.product((-1.0, 1.0), repeat=5) if len(by) <= FEW else ()
    directions = [
        *(np.tile(signs, (len(by), 1)) for signs in whole),
        *(rng.choice([-1.0, 1.0], shape) for _ in range(4)),
    ]
    for factor, signs in itertools.product(FACTORS, directions):
        yield factor, geometry.rois + factor * by * signs
