"""The explanation of a case of RoiAlign or DmlRoiAlign: one RoI by each convention, with its samples on the map."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from conformance.case import Case
from conformance.expected_values import Floats
from conformance.explain.conventions import TORCHVISION, RoiConvention, conventions_of
from conformance.explain.draw import Frame, Scene, result_of, roi_drawing, sample_values, samples_between, window
from conformance.explain.explanation import Comparison, Convention, ConventionDrawing, Explanation
from conformance.explain.tables import MOST_ROWS, Row, Table, differences, number, table
from conformance.geometry.rois import AxisGeometry, Geometry, geometry_of

CORNERS = ("x1", "y1", "x2", "y2")


_MOST_LISTED = 1000


def explanation(case: Case, facts: Mapping[str, str], compared: Comparison, roi: int | None) -> Explanation:
    """The drawings and tables that explain a valid case; see `conformance.explain.explain`."""
    geometry = geometry_of(case)
    count = len(geometry.rois)
    if roi is not None and not 0 <= roi < count:
        raise ValueError(f"RoI {roi}: the case has {count}")
    if count == 0 or 0 in geometry.sampling.lengths or geometry.x_shape[1] == 0:
        note = f"The case has {'no RoIs' if count == 0 else 'no pixels'} to draw."
        return Explanation(case, facts, outputs=compared.slices({}), notes=(note,))
    found = focus_of(compared, roi, geometry.output, functools.partial(_roi_near, geometry))
    return _explain_roi(geometry, facts, compared, *found)


def focus_of(
    compared: Comparison, roi: int | None, role: Callable[[str], str], roi_at: Callable[[tuple[int, ...]], int]
) -> tuple[int, int, tuple[int, int] | None]:
    """The RoI, the channel and the bin to draw: those of the worst element. The bin is None if there is no such bin.

    Args:
        compared: the expected outputs beside those of a backend.
        roi: the number of the RoI that the user asks for, or None.
        role: the role of an output by its name: y, dx or drois.
        roi_at: a RoI that contributes to an element of dx, by the index of the element.
    """
    worst = compared.worst
    if worst is None:
        return roi or 0, 0, None
    index = worst.at
    if role(worst.output) == "drois":
        return index[-2] if roi is None else roi, 0, None
    if role(worst.output) == "dx":
        return roi_at(index) if roi is None else roi, index[1], None
    if roi is not None and index[0] != roi:
        index = compared.worst_within(worst.output, (roi,)).at
    return index[0], index[1], (index[2], index[3])


def _roi_near(geometry: Geometry, index: tuple[int, ...]) -> int:
    """The first RoI that may contribute to the gradient of a pixel, else a RoI of the pixel's image, else RoI 0."""
    of_image = [r for r, n in enumerate(geometry.indices.tolist()) if n == index[0]]
    own = next(convention for convention in conventions_of(geometry) if convention.is_own)

    def is_near(r: int) -> bool:
        pairs = zip(own.axes(r), index[2:], strict=True)
        return all(min(axis.start, axis.end) - 2 <= i <= max(axis.start, axis.end) + 2 for axis, i in pairs)

    return next(filter(is_near, of_image), (of_image or [0])[0])


def _explain_roi(
    geometry: Geometry, facts: Mapping[str, str], compared: Comparison, r: int, c: int, focus: tuple[int, int] | None
) -> Explanation:
    """Explain RoI `r` and channel `c` by each convention, with bin `focus` in the middle of the drawings."""
    n, worst = int(geometry.indices[r]), compared.worst
    roles = {geometry.output(name): name for name in compared.expected}
    leads = {roles[role]: lead for role, lead in (("y", (r, c)), ("dx", (n, c))) if role in roles}
    if worst and worst.at[:-2] != leads.get(worst.output, worst.at[:-2]):
        compared = replace(compared, worst=compared.worst_within(worst.output, leads[worst.output]))
    conventions = conventions_of(geometry)
    axes_of_all = [convention.axes(r) for convention in conventions]
    own = next(axes for convention, axes in zip(conventions, axes_of_all, strict=True) if convention.is_own)
    windows = [window([a[k] for a in axes_of_all], own[k], focus[k] if focus else None) for k in (0, 1)]
    data = None if geometry.x is None else geometry.x[n, c]
    scene = Scene(Frame(*windows), focus, data)
    seen, what, values = [data] * len(conventions), geometry.names["x"], None
    results = [""] * len(conventions)
    if "y" in roles:
        answers = [convention.output(r, c) for convention in conventions]
        bins = [(f"({p}, {q})", (p, q)) for p, q in np.ndindex(*compared.expected[roles["y"]].shape[2:])]
        values = value_table(
            "Values of the bins", "bin", conventions, answers, bins, compared.of(roles["y"], lambda y: y[r, c]), focus
        )
        results = [
            result_of(roles["y"], output, sample_values(convention, r, data))
            for convention, output in zip(conventions, answers, strict=True)
        ]
    else:
        gradients = [convention.gradients(tuple(roles)) for convention in conventions]
        if "dx" in roles:
            seen, what = [g["dx"][n, c] if "dx" in g else data for g in gradients], "dX"
        if "drois" in roles:
            name, given = roles["drois"], [g["drois"].reshape(-1, 4)[r] if "drois" in g else None for g in gradients]
            corners = [(corner, (k,)) for k, corner in enumerate(CORNERS)]
            title = f"{name}: derivatives by the RoI"
            values = value_table(
                title, "by", conventions, given, corners, compared.of(name, lambda drois: drois.reshape(-1, 4)[r])
            )
    pictures = [
        roi_drawing(convention, r, scene, grid, what) for convention, grid in zip(conventions, seen, strict=True)
    ]
    ends = ", ".join(f"{name} {number(end)}" for name, end in zip(CORNERS, geometry.rois[r].tolist(), strict=True))
    return Explanation(
        geometry.case,
        facts,
        f"RoI {r} of {len(geometry.rois)}: {ends}; image {n}, channel {c}",
        tuple(map(ConventionDrawing, conventions, pictures, results)),
        coordinates=tuple(
            _coordinates(name, conventions, [axes[k] for axes in axes_of_all], focus[k] if focus else None)
            for k, name in enumerate("yx")
        ),
        values=values,
        outputs=tuple(
            replace(part, is_tabled=part.title.split("[")[0] != geometry.names["dx"]) for part in compared.slices(leads)
        ),
        notes=(TORCHVISION, *(f"{o.name}: {note}" for o in conventions for note in o.notes)),
    )


def value_table(
    title: str,
    first: str,
    conventions: Sequence[Convention],
    given: Sequence[Floats | None],
    labels: Sequence[tuple[str, tuple[int, ...]]],
    pair: tuple[Floats, Floats | None],
    focus: tuple[int, int] | None = None,
) -> Table:
    """A table of the labelled elements by each convention, beside the expected values and the backend's."""
    expected, got = pair
    rows = []
    for label, at in labels:
        cells = ["not computed" if values is None else number(float(values[at])) for values in given]
        came = [] if got is None else [number(float(got[at])), f"{float(differences(got, expected)[at]):.3g}"]
        rows.append(Row((label, *cells, number(float(expected[at])), *came), at == focus))
    answered = () if got is None else ("got", "difference")
    return table(title, (first, *(o.short for o in conventions), "expected", *answered), rows)


def _coordinates(
    name: str, conventions: tuple[RoiConvention, ...], geometries: list[AxisGeometry], focus: int | None
) -> Table:
    """A table of the samples along an axis: of all samples, or for a large RoI of those near the map."""
    total = max(axis.axis.bins * axis.axis.per_bin for axis in geometries)
    near = [
        {(p, i): a.axis.coordinate(p, i) for p, i in np.ndindex(a.axis.bins, a.axis.per_bin)}
        if total <= MOST_ROWS
        else {(s.p, s.i): s.c for s in samples_between(a, -1.5, a.axis.length + 0.5, _MOST_LISTED)}
        for a in geometries
    ]
    rows = [
        Row((str(p), str(i), *(number(found[p, i]) if (p, i) in found else "" for found in near)), p == focus)
        for p, i in sorted(set().union(*near))
    ]
    columns = ("bin", "sample", *(convention.short for convention in conventions))
    return table(f"Coordinates of the samples along {name}", columns, rows, total)
