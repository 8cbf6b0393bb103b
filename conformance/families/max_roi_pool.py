"""MaxRoiPool and its gradient.

An output is a pixel of the map or 0: nothing is rounded. Of the gradient a pixel gets a sum, of as many outputs as it is the
largest pixel of.

What rounding may change is which pixels a bin has. Caffe and ONNX Runtime scale the ends of a RoI in float32, and multiply
the number of a bin by the size of one in float32; others do so in float64. Of all these readings of a bin there are a widest
and a narrowest range of pixels. If both have the same largest pixel, every reading has.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from conformance.case import Case
from conformance.expected_values import Floats, reference
from conformance.explain.explanation import Compared, Explanation
from conformance.explain.tables import Row, Table, number, table
from conformance.families import Drawn
from conformance.fuzz.draw import Draw, chosen
from conformance.growth import Growth, arithmetic
from conformance.rois.random import random_indices, random_rois, random_sizes
from conformance.run import AnswerFunction
from ortops.operators.max_roi_pool import LARGEST
from ortops.spec import Operator

PIXELS_A_SAMPLE = 20
"""The reference compares so many pixels in the time that another one takes for a sample of a RoI."""

MOST_IMAGES = 256
"""Of a case: bfloat16 holds every batch_id of so many."""


class Side(NamedTuple):
    """A RoI along one axis of the map: its stored ends, the scale, bins, and pixels of the map."""

    ends: tuple[float, float]
    scale: float
    bins: int
    length: int


class Bounds(NamedTuple):
    """Pixels of a bin along one axis: the widest range that it has in any reading, and the narrowest."""

    widest: slice
    narrowest: slice


def growth(case: Case) -> dict[str, Growth]:
    """Growth into Y [R, C, PH, PW], which is not rounded, or into dX [N, C, H, W]."""
    none, one = np.zeros(1), np.ones(1)
    if not case.definition.is_gradient:
        return {"Y": Growth(none, 0.0, none, one)}
    dy = case.inputs["dY"].astype(np.float64)
    # What is infinite or not a number is compared exactly.
    magnitude = _passed(case, np.where(np.isfinite(dy), np.abs(dy), 0.0))
    count = _passed(case, np.ones(dy.shape))
    return {"dX": Growth(magnitude, count, none, count)}


def _passed(case: Case, dy: Floats) -> Floats:
    """DX of another gradient."""
    return reference(case.definition, case.attributes, {**case.inputs, "dY": dy.astype(case.dtype)}, ["dX"])["dX"]


def samples(case: Case) -> float:
    """It takes none: a RoI has pixels, and only those of the map are visited."""
    del case
    return 0


def work(case: Case) -> float:
    """As `conformance.families.Family` has it."""
    evaluations = 3 if case.definition.is_gradient else 1  # the errors of a gradient take two more
    _, channels, *_ = case.inputs["X"].shape
    areas: list[int] = []
    for _, sides in _rois(case):
        rows, columns = (sum(max(b.widest.stop - b.widest.start, 1) for b in _bounds(side)) for side in sides)
        areas.append(rows * columns)
    return float(evaluations * channels * sum(areas) / PIXELS_A_SAMPLE)


def random_case(draw: Draw, operator: Operator) -> Drawn:
    """As `conformance.families.Family` has it."""
    scale, sizes = draw.scale(), random_sizes(draw)
    sizes = sizes._replace(images=min(sizes.images, MOST_IMAGES))
    attributes = chosen(draw, operator, {"pooled_shape": (sizes.bins_y, sizes.bins_x), "spatial_scale": scale})
    x, boxes = draw.values(sizes[:4]), random_rois(draw, sizes, scale, scale)
    indices = random_indices(draw, sizes.images, sizes.rois)
    inputs = {"X": x, "rois": np.concatenate([indices[:, None], boxes], axis=1)}
    if operator.is_gradient:
        inputs = {"dY": draw.values((sizes.rois, sizes.channels, sizes.bins_y, sizes.bins_x)), **inputs}
    return attributes, inputs, (operator.outputs[0].name,)


def is_settled(case: Case, oracle: AnswerFunction) -> bool:
    """Whether the rounding of an end or of a bin's bound decides nowhere which pixel is the largest of a bin.

    That of several the first wins, row by row, is a rule, so they have one gradient. Of several NaN no rule says which of
    them is the largest, so their gradient is not settled.
    """
    del oracle
    dtypes, is_gradient = {np.dtype(np.float64), arithmetic(case)}, case.definition.is_gradient
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


def explanation(case: Case, facts: Mapping[str, str], compared: Compared, roi: int | None) -> Explanation:
    """As `conformance.families.Family` has it; in place of pictures the pixels of the RoI's bins."""
    rois = list(_rois(case))
    if roi is not None and not 0 <= roi < len(rois):
        raise ValueError(f"RoI {roi}: the case has {len(rois)}")
    if not rois or not case.inputs["X"].size:
        note = f"The case has {'no pixels' if rois else 'no RoIs'} to list."
        return Explanation(case, facts, parts=compared.parts({}), notes=(note,))
    worst, is_gradient = compared.worst, case.definition.is_gradient
    of_worst = 0 if worst is None else worst.at[0]
    if worst is not None and is_gradient:  # the first RoI of the pixel's image, if there is one
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
        coordinates=tuple(
            _listed(name, side, marked[k] if marked else None)
            for k, (name, side) in enumerate(zip("yx", rois[r][1], strict=True))
        ),
        parts=compared.parts({case.outputs[0]: lead}),
    )


def _listed(name: str, side: Side, marked: int | None) -> Table:
    """The pixels of each bin along an axis, as far as they are on the map."""
    rows = []
    for p, bounds in enumerate(_bounds(side)):
        first, end = bounds.widest.start, bounds.widest.stop
        rows.append(Row((str(p), *((str(first), str(end - 1)) if first < end else ("none", "none"))), p == marked))
    return table(f"Pixels of the bins along {name}", ("bin", "first", "last"), rows)


def _rois(case: Case) -> Iterator[tuple[int, tuple[Side, Side]]]:
    """Of each RoI its image, and its sides along y and along x."""
    arguments = case.definition.check_attributes(case.attributes)
    bins = case.inputs["dY"].shape[2:] if case.definition.is_gradient else arguments["pooled_shape"]
    height, width = case.inputs["X"].shape[2:]
    scale = arguments["spatial_scale"]
    for n, x1, y1, x2, y2 in case.inputs["rois"].astype(np.float64).tolist():
        yield int(n), (Side((y1, y2), scale, bins[0], height), Side((x1, x2), scale, bins[1], width))


def _bounds(side: Side, *dtypes: np.dtype[Any]) -> Iterator[Bounds]:
    """The bounds of each bin, by the definition and as they may be where they are computed in any of some types."""
    wide: np.dtype[Any] = np.dtype(np.float64)
    of_roi = {_pixels_of(side, dtype) for dtype in (wide, *dtypes)}
    readings = [_edges(*pixels, side.bins, dtype) for pixels in of_roi for dtype in (None, *dtypes)]
    for p in range(side.bins):
        first, stop = ([reading[p][k] for reading in readings] for k in (0, 1))
        yield Bounds(_on_map(min(first), max(stop), side.length), _on_map(max(first), min(stop), side.length))


def _pixels_of(side: Side, dtype: np.dtype[Any]) -> tuple[int, int]:
    """The first pixel of a RoI and how many it has, where its ends are scaled in a type."""
    with np.errstate(over="ignore"):
        scaled = (np.array(side.ends, dtype) * np.array(side.scale, dtype)).astype(np.float64).tolist()
    start, end = (_half_away(min(max(one, -LARGEST), LARGEST)) for one in scaled)
    return start, max(end - start + 1, 1)


def _half_away(end: float) -> int:
    """The nearest pixel, of two the one further from 0."""
    pixel = math.floor(abs(end))
    pixel += abs(end) - pixel >= 0.5
    return pixel if end > 0 else -pixel


def _edges(start: int, size: int, bins: int, dtype: np.dtype[Any] | None) -> list[tuple[int, int]]:
    """Of each bin the first pixel and the one after the last, where a type has the size of a bin; None is exact."""
    if dtype is None:
        return [(start + p * size // bins, start - (-(p + 1) * size // bins)) for p in range(bins)]
    edges = (np.arange(bins + 1).astype(dtype) * (np.array(size, dtype) / np.array(bins, dtype))).astype(np.float64)
    return [(start + math.floor(low), start + math.ceil(high)) for low, high in itertools.pairwise(edges.tolist())]


def _on_map(begin: int, end: int, length: int) -> slice:
    begin = min(max(begin, 0), length)
    return slice(begin, min(max(end, begin), length))


def _largest(image: Floats, rows: slice, columns: slice, is_gradient: bool) -> list[Any]:
    """Of each channel the largest pixel of a bin, or where the first of several is; 0 or none where the bin is empty."""
    size = (rows.stop - rows.start) * (columns.stop - columns.start)
    if not size:
        return [None if is_gradient else 0.0] * len(image)
    block = image[:, rows, columns].reshape(len(image), size)
    if not is_gradient:
        largest = block.max(axis=1).tolist()
        return ["nan" if math.isnan(value) else value for value in largest]
    row, column = np.divmod(block.argmax(axis=1), columns.stop - columns.start)
    return list(zip((rows.start + row).tolist(), (columns.start + column).tolist(), strict=True))
