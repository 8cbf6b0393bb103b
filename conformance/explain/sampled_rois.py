"""The explanation of a case of an operator that samples RoIs: one RoI by each convention, with its samples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from conformance.case import Case
from conformance.expected_values import Floats
from conformance.explain.conventions import Convention, Placed
from conformance.explain.drawing import MAX_SAMPLES, Drawing, Outline, Sample, number
from conformance.explain.parts import Comparison, Explanation, Table, differences
from conformance.upright.geometry import RoiCase
from ortops.reference.sampling import taps

HINT = (
    "The coordinate of a pixel's centre is its index. The box is the RoI, and dashed lines are the edges of its bins. "
    "Filled dots are samples on the map, and hollow dots are samples off the map."
)

_FEW = 4
"""The largest number of samples, and of bins, whose values are a line of text below a drawing."""

_MAX_LINES = 200
"""The largest number of bins along an axis whose edges are drawn."""


def explanation(
    case: Case,
    facts: Mapping[str, str],
    compared: Comparison,
    roi: int | None,
    geometry: RoiCase,
    conventions_of: Callable[[int], list[Convention]],
    numbers: Sequence[str],
    closing: str,
) -> Explanation:
    """The explanation of a valid case.

    Args:
        case: the case.
        facts: the lines under its id, by heading.
        compared: the expected outputs and those of a backend.
        roi: the number of the RoI to draw; None for that of the worst element.
        geometry: the tensors of the case.
        conventions_of: takes the number of a RoI and returns the conventions to show.
        numbers: the names of the numbers of a RoI; an `angle` is in radians.
        closing: the note on where the conventions come from.

    Raises:
        ValueError: the case has no such RoI.
    """
    count = len(geometry.rois)
    if roi is not None and not 0 <= roi < count:
        raise ValueError(f"RoI {roi}: the case has {count}")
    if count == 0 or 0 in geometry.x_shape[1:]:
        note = f"The case has {'no RoIs' if count == 0 else 'no pixels'} to draw."
        return Explanation(case, facts, tables=compared.tables(), notes=(note,))
    r, c, bin_ = _focus(case, compared, roi, geometry.indices.tolist())
    n, map_size = int(geometry.indices[r]), geometry.lengths
    x = None if geometry.x is None else geometry.x[n, c]
    conventions = conventions_of(r)
    tables, results = compared.tables(), [""] * len(conventions)
    if not case.definition.is_gradient:
        (name,) = compared.expected
        got = compared.got[name][r, c] if name in compared.got else None
        answers = [convention.output(x) for convention in conventions]
        tables = [_bins(conventions, answers, compared.expected[name][r, c], got, bin_)]
        results = [_result(name, *one, x) for one in zip(conventions, answers, strict=True)]
    drawings = [
        Drawing(one.name, one.detail, map_size, x, _outlines(one.placed, bin_), _samples(one.placed), result)
        for one, result in zip(conventions, results, strict=True)
    ]
    ends = ", ".join(f"{name} {number(end)}" for name, end in zip(numbers, geometry.rois[r].tolist(), strict=True))
    degrees = f" ({number(math.degrees(float(geometry.rois[r, 4])))} degrees)" if "angle" in numbers else ""
    notes = [f"{one.name}: {one.detail}{' (this case)' * one.is_own}" for one in conventions]
    notes.append(closing)
    notes += [f"{one.name}: {note}" for one in conventions for note in one.notes]
    totals = [(one.name, one.placed.total) for one in conventions]
    notes += [f"{one}: {n} samples, too many to draw and to list" for one, n in totals if n > MAX_SAMPLES]
    heading = f"RoI {r} of {count}: {ends}{degrees}; image {n}, channel {c}"
    return Explanation(case, facts, heading, drawings, HINT, [_coordinates(conventions, bin_), *tables], notes)


def _focus(
    case: Case, compared: Comparison, roi: int | None, images: list[int]
) -> tuple[int, int, tuple[int, int] | None]:
    """The RoI, the channel and the bin of the worst element; the bin is None if it belongs to another RoI or to none."""
    if compared.worst is None:
        return roi or 0, 0, None
    name, index = compared.worst
    if not case.definition.is_gradient:
        is_here = roi in (None, index[0])
        return (index[0] if roi is None else roi), index[1], (index[2], index[3]) if is_here else None
    if name == case.definition.outputs[0].name:  # dX: the first RoI on the image of the pixel
        of_image = [r for r, n in enumerate(images) if n == index[0]]
        return ((of_image or [0])[0] if roi is None else roi), index[1], None
    return (index[-2] if roi is None else roi), 0, None


def _outlines(placed: Placed, bin_: tuple[int, int] | None) -> list[Outline]:
    """The edges between the bins, the RoI, and the bin of the worst element."""
    point, (rows, columns) = placed.point, placed.bins
    outlines = [Outline("bin", [point(p / rows, 0), point(p / rows, 1)]) for p in range(1, min(rows, _MAX_LINES))]
    outlines += [
        Outline("bin", [point(0, q / columns), point(1, q / columns)]) for q in range(1, min(columns, _MAX_LINES))
    ]
    outlines.append(Outline("roi", [point(0, 0), point(0, 1), point(1, 1), point(1, 0)]))
    if bin_:
        (top, bottom), (left, right) = ((at / n, (at + 1) / n) for at, n in zip(bin_, placed.bins, strict=True))
        corners = (top, left), (top, right), (bottom, right), (bottom, left)
        outlines.append(Outline("worst", list(itertools.starmap(point, corners))))
    return outlines


def _samples(placed: Placed) -> list[Sample]:
    if placed.total > MAX_SAMPLES:
        return []
    pairs = zip(*(c.ravel().tolist() for c in placed.coordinates()), strict=True)
    return [Sample(y, x, "sample" if placed.is_inside(y, x) else "sample outside") for y, x in pairs]


def _bins(
    conventions: Sequence[Convention],
    answers: Sequence[Floats | None],
    expected: Floats,
    got: Floats | None,
    bin_: tuple[int, int] | None,
) -> Table:
    """The values of the bins by each convention, the expected values and the backend's values."""
    rows = []
    for at in np.ndindex(*expected.shape):
        cells = ["not computed" if values is None else number(float(values[at])) for values in answers]
        came = [] if got is None else [number(float(got[at])), f"{float(differences(got, expected)[at]):.3g}"]
        rows.append((str(at), *cells, number(float(expected[at])), *came))
    columns = ("bin", *(one.short for one in conventions), "expected", *(() if got is None else ("got", "difference")))
    marked = None if bin_ is None else int(np.ravel_multi_index(bin_, expected.shape))
    return Table("Values of the bins", columns, rows, marked)


def _result(name: str, convention: Convention, output: Floats | None, x: Floats | None) -> str:
    """The line below a drawing with the values of few samples and bins; empty if there are more."""
    if output is None or x is None or output.size > _FEW:
        return ""
    bins = [", ".join(map(number, row)) for row in output.tolist()]
    values = bins[0] if output.size == 1 else f"[{', '.join(f'[{row}]' for row in bins)}]"
    placed = convention.placed
    if output.size > 1 or placed.total > _FEW or convention.attributes.get("mode", "avg") == "max":
        return f"{name} = {values}"
    places = zip(*(c.ravel().tolist() for c in placed.coordinates()), strict=True)
    outside = convention.attributes.get("out_of_bounds_input_value", 0.0)
    read = [
        sum(
            a.weight * b.weight * float(x[a.pixel, b.pixel])
            for a, b in itertools.product(taps(y, x.shape[0]), taps(c, x.shape[1]))
            if a.pixel is not None and b.pixel is not None
        )
        if placed.is_inside(y, c)
        else outside
        for y, c in places
    ]
    return f"samples {', '.join(map(number, read))}: {name} = {values}"


def _coordinates(conventions: Sequence[Convention], bin_: tuple[int, int] | None) -> Table:
    """The coordinates y and x of the samples by each convention."""
    found = [_by_sample(one.placed) if one.placed.total <= MAX_SAMPLES else {} for one in conventions]
    names = sorted(set().union(*found))
    rows = [(f"({p}, {q})", f"({i}, {j})", *(each.get((p, q, i, j), "") for each in found)) for p, q, i, j in names]
    marked = next((k for k, name in enumerate(names) if name[:2] == bin_), None)
    columns = ("bin", "sample", *(convention.short for convention in conventions))
    return Table("Coordinates y, x of the samples", columns, rows, marked)


def _by_sample(placed: Placed) -> dict[tuple[int, int, int, int], str]:
    (rows, columns), (ys, xs) = placed.per_bin, placed.coordinates()
    return {
        (k // rows, m // columns, k % rows, m % columns): f"{number(float(ys[k, m]))}, {number(float(xs[k, m]))}"
        for k, m in np.ndindex(*ys.shape)
    }
