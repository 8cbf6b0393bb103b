"""MaxRoiPool and its gradient.

An output is a pixel of the map or 0, so it is not rounded. The gradient of a pixel is the sum of dY over the outputs that it
is the maximum of.

Rounding may change which pixels a bin has. Caffe and ONNX Runtime scale RoI ends in float32 and multiply the number
of a bin by the bin size in float32, others in float64. Among all these variants, a bin has a widest and a narrowest
range of pixels. If both have the same maximum, all variants do.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from conformance.case import Case
from conformance.error_bounds import ErrorTerms, compute_dtype
from conformance.expected_values import Floats, reference
from conformance.explain import max_roi_pool as drawing
from conformance.explain.explanation import Comparison, ConventionDrawing, Explanation
from conformance.explain.tables import Row, Table, number, table
from conformance.families import DrawnCase
from conformance.fuzz.random_draw import RandomDraw, draw_attributes
from conformance.rois.random import random_indices, random_rois, random_sizes
from conformance.run import AnswerFunction
from ortops.operators.max_roi_pool import MAX_COORDINATE
from ortops.spec import Operator

PIXELS_A_SAMPLE = 20
"""The number of pixels that the reference compares in the time in which RoiAlign's computes a sample."""

MOST_IMAGES = 256
"""The most images of a case: bfloat16 represents every batch_id below this exactly."""


class Side(NamedTuple):
    """A RoI along one axis of the map: its stored ends, the scale, the number of bins, and the length of the map."""

    ends: tuple[float, float]
    scale: float
    bins: int
    length: int


class Bounds(NamedTuple):
    """The widest and the narrowest range of pixels that rounding may give a bin along one axis."""

    widest: slice
    narrowest: slice


def error_terms(case: Case) -> dict[str, ErrorTerms]:
    """The error terms of Y [R, C, PH, PW], which is not rounded, or of dX [N, C, H, W], by name."""
    none, one = np.zeros(1), np.ones(1)
    if not case.definition.is_gradient:
        return {"Y": ErrorTerms(none, 0.0, none, one)}
    dy = case.inputs["dY"].astype(np.float64)
    # Outputs that infinities or NaN reach are compared exactly.
    magnitude = _passed(case, np.where(np.isfinite(dy), np.abs(dy), 0.0))
    count = _passed(case, np.ones(dy.shape))
    return {"dX": ErrorTerms(magnitude, count, none, count)}


def _passed(case: Case, dy: Floats) -> Floats:
    """The dX of the case with another dY."""
    return reference(case.definition, case.attributes, {**case.inputs, "dY": dy.astype(case.dtype)}, ["dX"])["dX"]


def samples(case: Case) -> float:
    """Return 0: the operator visits pixels instead of sampling RoIs."""
    del case
    return 0


def work(case: Case) -> float:
    """An estimate of the time of the reference for a valid case, in samples of RoiAlign."""
    evaluations = 3 if case.definition.is_gradient else 1  # the error terms of a gradient take two more
    _, channels, *_ = case.inputs["X"].shape
    areas: list[int] = []
    for _, sides in _rois(case):
        rows, columns = (sum(max(b.widest.stop - b.widest.start, 1) for b in _bounds(side)) for side in sides)
        areas.append(rows * columns)
    return float(evaluations * channels * sum(areas) / PIXELS_A_SAMPLE)


def random_case(draw: RandomDraw, operator: Operator) -> DrawnCase:
    """A random case of MaxRoiPool or its gradient."""
    scale, sizes = draw.scale(), random_sizes(draw)
    sizes = sizes._replace(images=min(sizes.images, MOST_IMAGES))
    attributes = draw_attributes(draw, operator, {"pooled_shape": (sizes.bins_y, sizes.bins_x), "spatial_scale": scale})
    x, boxes = draw.values(sizes[:4]), random_rois(draw, sizes, scale, scale)
    indices = random_indices(draw, sizes.images, sizes.rois)
    inputs = {"X": x, "rois": np.concatenate([indices[:, None], boxes], axis=1)}
    if operator.is_gradient:
        inputs = {"dY": draw.values((sizes.rois, sizes.channels, sizes.bins_y, sizes.bins_x)), **inputs}
    return attributes, inputs, (operator.outputs[0].name,)


def is_well_posed(case: Case, oracle: AnswerFunction) -> bool:
    """Whether rounding of RoI ends and bin bounds decides nowhere which pixel is the maximum of a bin.

    Ties have a rule, the first pixel in row order, so their gradient is well-posed. Which of several NaN is the maximum has
    no rule, so their gradient is not.
    """
    del oracle
    dtypes, is_gradient = {np.dtype(np.float64), compute_dtype(case)}, case.definition.is_gradient
    x = case.inputs["X"].astype(np.float64)
    for n, sides in _rois(case):
        rows, columns = (list(_bounds(side, *dtypes)) for side in sides)
        for row in rows:
            for column in columns:
                widest = _largest(x[n], row.widest, column.widest, is_gradient)
                if is_gradient and np.isnan(x[n][:, row.widest, column.widest]).any():
                    return False
                is_exact = row.widest == row.narrowest and column.widest == column.narrowest
                if not is_exact and widest != _largest(x[n], row.narrowest, column.narrowest, is_gradient):
                    return False
    return True


def explanation(case: Case, facts: Mapping[str, str], compared: Comparison, roi: int | None) -> Explanation:
    """The tables and drawings that explain a valid case, with the pixels of the RoI's bins; see `Family`."""
    rois = list(_rois(case))
    if roi is not None and not 0 <= roi < len(rois):
        raise ValueError(f"RoI {roi}: the case has {len(rois)}")
    if not rois or not case.inputs["X"].size:
        note = f"The case has {'no pixels' if rois else 'no RoIs'} to list."
        return Explanation(case, facts, outputs=compared.slices({}), notes=(note,))
    worst, is_gradient = compared.worst, case.definition.is_gradient
    of_worst = 0 if worst is None else worst.at[0]
    if worst is not None and is_gradient:  # the first RoI on the image of the worst pixel, if there is one
        of_worst = next((r for r, (n, _) in enumerate(rois) if n == worst.at[0]), 0)
    r = of_worst if roi is None else roi
    channel = worst.at[1] if worst else 0
    lead = (rois[r][0] if is_gradient else r, channel)
    marked = worst.at[2:] if worst and not is_gradient and worst.at[0] == r else None
    ends = ", ".join(map(number, case.inputs["rois"][r].astype(np.float64).tolist()))
    return Explanation(
        case,
        facts,
        f"RoI {r} of {len(rois)}: {ends}; channel {channel}",
        conventions=(_drawing(case, *rois[r], channel, (marked[0], marked[1]) if marked else None),),
        hint=drawing.HINT,
        coordinates=tuple(
            _listed(name, side, marked[k] if marked else None)
            for k, (name, side) in enumerate(zip("yx", rois[r][1], strict=True))
        ),
        outputs=compared.slices({case.outputs[0]: lead}),
    )


def _drawing(case: Case, n: int, sides: tuple[Side, Side], c: int, marked: tuple[int, int] | None) -> ConventionDrawing:
    """The bins of a RoI on channel `c` of image `n`, with one of them marked."""
    y, x = (
        drawing.Side(
            (side.ends[0] * side.scale, side.ends[1] * side.scale), [b.widest for b in _bounds(side)], side.length
        )
        for side in sides
    )
    return drawing.bins_shown(case.inputs["X"][n, c].astype(np.float64), (y, x), marked)


def _listed(name: str, side: Side, marked: int | None) -> Table:
    """A table of the pixels of each bin along an axis, as far as they are on the map."""
    rows = []
    for p, bounds in enumerate(_bounds(side)):
        first, end = bounds.widest.start, bounds.widest.stop
        rows.append(Row((str(p), *((str(first), str(end - 1)) if first < end else ("none", "none"))), p == marked))
    return table(f"Pixels of the bins along {name}", ("bin", "first", "last"), rows)


def _rois(case: Case) -> Iterator[tuple[int, tuple[Side, Side]]]:
    """Yield the image of each RoI and its sides along y and along x."""
    arguments = case.definition.check_attributes(case.attributes)
    bins = case.inputs["dY"].shape[2:] if case.definition.is_gradient else arguments["pooled_shape"]
    height, width = case.inputs["X"].shape[2:]
    scale = arguments["spatial_scale"]
    for n, x1, y1, x2, y2 in case.inputs["rois"].astype(np.float64).tolist():
        yield int(n), (Side((y1, y2), scale, bins[0], height), Side((x1, x2), scale, bins[1], width))


def _bounds(side: Side, *dtypes: np.dtype[Any]) -> Iterator[Bounds]:
    """Yield the bounds of each bin over the exact definition and computations in any of these types."""
    wide: np.dtype[Any] = np.dtype(np.float64)
    of_roi = {_pixels_of(side, dtype) for dtype in (wide, *dtypes)}
    readings = [_edges(*pixels, side.bins, dtype) for pixels in of_roi for dtype in (None, *dtypes)]
    for p in range(side.bins):
        first, stop = ([reading[p][k] for reading in readings] for k in (0, 1))
        yield Bounds(_on_map(min(first), max(stop), side.length), _on_map(max(first), min(stop), side.length))


def _pixels_of(side: Side, dtype: np.dtype[Any]) -> tuple[int, int]:
    """The first pixel and the number of pixels of a RoI whose ends are scaled in this type."""
    with np.errstate(over="ignore"):
        scaled = (np.array(side.ends, dtype) * np.array(side.scale, dtype)).astype(np.float64).tolist()
    start, end = (_half_away(min(max(one, -MAX_COORDINATE), MAX_COORDINATE)) for one in scaled)
    return start, max(end - start + 1, 1)


def _half_away(end: float) -> int:
    """The nearest pixel; ties go away from 0."""
    pixel = math.floor(abs(end))
    pixel += abs(end) - pixel >= 0.5
    return pixel if end > 0 else -pixel


def _edges(start: int, size: int, bins: int, dtype: np.dtype[Any] | None) -> list[tuple[int, int]]:
    """The first and end pixel of each bin, with the bin size computed in this type; None computes exactly."""
    if dtype is None:
        return [(start + p * size // bins, start - (-(p + 1) * size // bins)) for p in range(bins)]
    edges = (np.arange(bins + 1).astype(dtype) * (np.array(size, dtype) / np.array(bins, dtype))).astype(np.float64)
    return [(start + math.floor(low), start + math.ceil(high)) for low, high in itertools.pairwise(edges.tolist())]


def _on_map(begin: int, end: int, length: int) -> slice:
    begin = min(max(begin, 0), length)
    return slice(begin, min(max(end, begin), length))


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
