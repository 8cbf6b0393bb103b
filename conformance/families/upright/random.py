# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random cases of operators with RoIs, and how rounding changes those of RoiAlign and DmlRoiAlign."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

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
from ortops.spec import AttributeValue, Operator

if TYPE_CHECKING:
    from conformance.families.random_draw import DrawnCase, RandomDraw


class Sizes(NamedTuple):
    """The lengths of a case with RoIs; `ratio` is the number of samples of a bin along an axis, 0 for adaptive."""

    images: int
    channels: int
    height: int
    width: int
    rois: int
    bins_y: int
    bins_x: int
    ratio: int


LARGEST = Sizes(images=300, channels=300, height=1000, width=1000, rois=300, bins_y=70, bins_x=70, ratio=33)
"""The largest lengths that occur in practice."""


OFTEN = (*Sizes._fields, "images", "channels", "channels", "rois", "rois")
"""The axes that may be large in a large case; those listed twice are more likely."""


ROUNDINGS = 16.0
"""The roundings of a candidate of a maximum, which is a sum of products of products."""

KINDS = ("inside", "across", "mirrored", "flat", "point", "outside", "huge")
"""The positions and shapes of random RoIs."""


def random_sizes(draw: RandomDraw) -> Sizes:
    """Draw small lengths. In some cases one or two are large, and the others are then even smaller."""
    is_large = draw.is_large()
    bins, ratios = ((1, 2, 4), (0, 1, 2)) if draw.exact else ((1, 2, 3, 4, 7), (0, 0, 1, 2, 3, 5))
    few = 2 if is_large else len(ratios)
    x_shape = draw.integer(1, 3), draw.integer(0, few) or 1, draw.integer(1, 9), draw.integer(1, 9)
    rois, bins_y, bins_x = draw.integer(is_large, few), draw.choice(bins[:few]), draw.choice(bins[:few])
    sizes = Sizes(*x_shape, rois, bins_y, bins_x, draw.choice(ratios[: few + 1]))
    names = [draw.choice(OFTEN) for _ in range(draw.integer(1, 2) if is_large else 0)]
    if is_large and draw.chance(0.2):
        names = ["height", "width"]
    for name in names:
        # If two axes are large, each is shorter; height and width less so.
        part = 1 if len(names) == 1 else 3 if name in ("height", "width") else 4
        sizes = sizes._replace(**{name: draw.length(getattr(LARGEST, name) // part + 1)})
    return sizes


def random_rois(draw: RandomDraw, sizes: Sizes, scale_y: float, scale_x: float) -> Array:
    """Draw RoIs x1, y1, x2, y2 in stored coordinates, [R, 4]."""
    count, ends = sizes.rois, np.array([sizes.width, sizes.height] * 2)
    corners = np.sort(draw.uniform(0, 1, (count, 2, 2)), axis=1)
    if draw.chance(0.5):  # sizes of several orders of magnitude, as in large maps
        middle = corners.mean(axis=1, keepdims=True)
        corners = middle + (corners - middle) * np.exp(draw.uniform(-4, 0, (count, 1, 1)))
    kinds = ("inside", draw.choice(KINDS), draw.choice(KINDS))
    rois = np.array([_moved(draw, roi, draw.choice(kinds)) for roi in corners.reshape(-1, 4)]).reshape(-1, 4) * ends
    if draw.exact:
        rois = np.round(np.clip(rois, -512, 512) * 4) / 4
    if draw.chance(0.1):  # bins slightly larger than a whole number of pixels, which adaptive sampling rounds up
        whole = draw.integers(0, 3, (count, 2)) * [sizes.bins_x, sizes.bins_y]
        rois[:, 2:] = rois[:, :2] + whole + draw.choice((1 / 64, 1e-3))
    if draw.chance(0.15):  # the same box more than once
        rois = rois[draw.integers(0, max(count // 2, 1) - 1, (count,)).astype(int)]
    largest = 6e4 if draw.dtype == np.float16 else np.inf
    return np.asarray(np.clip(rois / np.array([scale_x, scale_y] * 2), -largest, largest))


def _moved(draw: RandomDraw, roi: Array, kind: str) -> Array:
    """Move or reshape a RoI to one of the `KINDS`; the map reaches from 0 to 1."""
    if kind == "mirrored":
        roi = roi[list(draw.choice(((2, 3, 0, 1), (2, 1, 0, 3), (0, 3, 2, 1))))]
    if kind == "flat":
        roi = roi[list(draw.choice(((0, 1, 2, 1), (0, 1, 0, 3))))]
    return {
        "across": roi * 2 - 0.5,
        "point": roi[[0, 1, 0, 1]],
        "outside": roi + draw.integer(-3, 3),
        "huge": (roi - 0.5) * draw.choice((30.0, 1e3, 1e6)),
    }.get(kind, roi)


def random_indices(draw: RandomDraw, images: int, count: int) -> Array:
    """Draw the images of RoIs, [R]: from all images or only some of them, in random or ascending order."""
    some = draw.some(draw.integer(1, images), images) if draw.chance(0.4) else np.arange(images)
    indices = some[draw.integers(0, len(some) - 1, (count,)).astype(int)]
    return np.sort(indices) if draw.chance(0.3) else indices


def with_tensors(
    draw: RandomDraw,
    operator: Operator,
    attributes: dict[str, AttributeValue],
    names: Mapping[str, str],
    sizes: Sizes,
    x: Array,
    rois: Array,
    indices: Array,
) -> DrawnCase:
    """The parts of a case of an operator with RoIs; for a gradient this draws dY and the outputs.

    Args:
        draw: the random choices.
        operator: the definition.
        attributes: the drawn attributes.
        names: the names of the tensors by role, see `conformance.families.upright.geometry`.
        sizes: the drawn lengths.
        x: the map, [N, C, H, W].
        rois: RoIs in stored coordinates, [R, 4] or [R, 5].
        indices: the image of each RoI, [R].
    """
    outputs = tuple(tensor.name for tensor in operator.outputs)
    inputs = {names["x"]: x, names["rois"]: rois, names["indices"]: indices}
    if not operator.is_gradient:
        return attributes, inputs, outputs
    outputs = draw.choice((outputs, outputs[:1], outputs[1:]))
    inputs |= {names["dy"]: draw.values((sizes.rois, sizes.channels, *sizes[5:7])), "x_shape": np.array(sizes[:4])}
    (optional,) = (tensor for tensor in operator.inputs if tensor.optional)
    if operator.why_required(optional, attributes, outputs) is None and draw.chance(0.5):
        del inputs[names["x"]]
    return attributes, inputs, outputs


def work(case: Case) -> float:
    """An estimate of the number of samples that the reference computes for a valid case."""
    geometry = Geometry(case)
    _, channels, height, width = geometry.x_shape
    # The reference converts the image to a list for each RoI, and computes the corners of a sample once for all channels.
    lists = len(geometry.rois) * channels * height * width / 300
    return lists + sum(y.on_map * x.on_map for y, x in geometry.placed()) * (channels + 2)


def perturbed(case: Case) -> Perturbed | None:
    """See `conformance.families.PARTS`. The RoIs are perturbed, unless all intermediate numbers are exact in float32.

    For the gradient of a maximum, the pixels are perturbed as well. None if the result depends on infinities or NaN in a way
    that no rule covers: multiplied by a weight of 0, NaN among the candidates of a maximum whose gradient is computed, or in
    the differences that drois is made of.
    """
    geometry = Geometry(case)
    floats = [a.astype(np.float64) for a in case.inputs.values() if a.dtype.kind not in "iu"]
    are_finite = all(np.isfinite(a).all() for a in floats)
    placed = geometry.placed()
    if not are_finite and any(_is_unspecified(geometry, r, *lines) for r, lines in enumerate(placed)):
        return None
    is_exact = are_finite and all(_is_exact(line) for lines in placed for line in lines)
    moved = iter(()) if is_exact else _rounded(geometry, placed, are_finite)
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


def _rounded(geometry: Geometry, placed: list[tuple[AxisGeometry, AxisGeometry]], are_finite: bool) -> Perturbations:
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
