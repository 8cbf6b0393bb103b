"""Whether a case of RoiAlign, DmlRoiAlign or their gradients is well-posed.

A case is well-posed if all intermediate numbers of its coordinates are exact in float32. It is also well-posed if all
outputs stay within their tolerance when the coordinates are perturbed by their rounding error and, for the gradient of a
maximum, also the pixels.

It is not well-posed if its result depends on infinities or NaN in a way that no rule covers: multiplied by a weight of 0,
NaN among the candidates of a maximum whose gradient is computed, or in the differences that drois is made of.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from conformance.case import Array, Case
from conformance.error_terms import unit_roundoff
from conformance.families.roundings import (
    MAX_EXACT,
    Perturbations,
    Perturbed,
    have_few_bits,
    in_all_directions,
    is_power_of_2,
)
from conformance.families.upright.geometry import AxisGeometry, Geometry
from ortops.reference.sampling import points_inside

ROUNDINGS = 16.0
"""The roundings of a candidate of a maximum, which is a sum of products of products."""


def perturbed(case: Case) -> Perturbed | None:
    """See `conformance.families.PARTS`. The RoIs are perturbed, and for the gradient of a maximum also the pixels."""
    geometry = Geometry(case)
    floats = [a.astype(np.float64) for a in case.inputs.values() if a.dtype.kind not in "iu"]
    are_finite = all(np.isfinite(a).all() for a in floats)
    placed = geometry.placed()
    if not are_finite and any(_is_unspecified(geometry, r, *lines) for r, lines in enumerate(placed)):
        return None
    is_exact = are_finite and all(_is_exact(line) for lines in placed for line in lines)
    moved = iter(()) if is_exact else _moved(geometry, placed, are_finite)
    if geometry.sampling.mode == "avg" or geometry.dy is None or (is_exact and all(have_few_bits(a) for a in floats)):
        return Perturbed(case, moved)
    return Perturbed(case, itertools.chain(moved, _with_noise(geometry)))


def _with_noise(geometry: Geometry) -> Perturbations:
    """The map with rounding errors."""
    assert geometry.x is not None  # noqa: S101  # the gradient of a maximum has X
    rng, error = np.random.default_rng(0), ROUNDINGS * unit_roundoff(geometry.case.compute_dtype)
    noise = (rng.uniform(-1.0, 1.0, geometry.x.shape) for _ in range(6))
    return ((geometry.names["x"], 1.0, geometry.x * (1 + error * noise_of_map)) for noise_of_map in noise)


def _is_unspecified(geometry: Geometry, r: int, y: AxisGeometry, x: AxisGeometry) -> bool:
    """Whether the result of RoI `r` depends on infinities or NaN in a way that no rule covers."""
    (rows, idle_rows), (columns, idle_columns) = _reads(y), _reads(x)
    wants_drois = geometry.names["drois"] in geometry.case.outputs
    has_idle = wants_drois or idle_rows.any() or idle_columns.any()
    if has_idle and geometry.dy is not None and not np.isfinite(geometry.dy[r]).all():
        return True
    if geometry.x is None:
        return False
    pixels = geometry.x[geometry.indices[r]]
    odd = ~np.isfinite(pixels).all(axis=0) & np.logical_and.outer(rows, columns)
    if geometry.dy is not None and geometry.sampling.mode != "avg" and np.isnan(pixels[:, odd]).any():
        return True  # a maximum with a NaN candidate is NaN, but no rule says which NaN gets its gradient
    return bool(np.any(odd if wants_drois else odd & np.logical_or.outer(idle_rows, idle_columns)))


def _reads(line: AxisGeometry) -> Array:
    """Whether any sample reads each pixel, and whether any does so with weight 0, [2, L]."""
    reads = np.zeros((2, line.axis.length), bool)
    for p in range(line.axis.bins):
        for point in points_inside(line.axis, p):
            for tap in line.axis.taps(point.coordinate):
                # Some runtimes read the last pixel again in place of one beyond it.
                reads[:, -1 if tap.pixel is None else tap.pixel] |= True, tap.weight == 0
    return reads


def _has_exact_size(line: AxisGeometry) -> bool:
    """Whether ends, size and number of samples are exact, so that rounding moves the RoI but does not stretch it."""
    are_powers = is_power_of_2(line.axis.bins) and is_power_of_2(line.scale)
    return line.size == 0 or (are_powers and have_few_bits([line.first, line.size]))


def _is_exact(line: AxisGeometry) -> bool:
    """Whether all intermediate numbers of its samples' coordinates are exact."""
    if not (_has_exact_size(line) and line.steps < MAX_EXACT and is_power_of_2(max(line.steps, 1))):
        return False
    samples = itertools.product(range(line.axis.bins), range(line.axis.per_bin))
    return have_few_bits([line.first, *line.offsets, *(line.axis.coordinate(p, i) for p, i in samples)])


def _moved(geometry: Geometry, placed: list[tuple[AxisGeometry, AxisGeometry]], are_finite: bool) -> Perturbations:
    """The RoIs, moved and stretched by their rounding errors."""
    by, is_rigid = np.zeros_like(geometry.rois), np.zeros(geometry.rois.shape, bool)
    for r, lines in enumerate(placed):
        for line, ends in zip(lines, ([1, 3], [0, 2]), strict=True):
            # The second end moves by the error of the size, which may change the number of samples.
            errors = np.array([10 * line.reach, max(10 * line.reach, 3 * (abs(line.first) + abs(line.last)))])
            moved = unit_roundoff(geometry.case.compute_dtype) / line.scale * errors
            if _has_exact_size(line):
                # Rounded down to a power of two, so that the size does not change in float64 either.
                rigid = 2.0 ** math.floor(math.log2(moved[0]))
                moved = np.full(2, 0.0 if are_finite and _is_exact(line) else rigid)
            by[r, ends], is_rigid[r, ends] = moved, _has_exact_size(line)
    return in_all_directions(geometry.names["rois"], geometry.rois, by, is_rigid)
