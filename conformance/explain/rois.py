"""The explanation of a case with sampled RoIs: one RoI by each convention, with its samples on the map."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from conformance.case import Case
from conformance.expected_values import Floats
from conformance.explain.conventions import TORCHVISION, Convention, conventions_of
from conformance.explain.draw import Frame, Scene, picture, samples_between, window
from conformance.explain.explanation import Compared, Explanation, Shown, Way
from conformance.explain.tables import MOST_ROWS, Row, Table, differences, number, table
from conformance.rois.question import Placed, Question, question_of

CORNERS = ("x1", "y1", "x2", "y2")


_MOST_LISTED = 1000


def explanation(case: Case, facts: Mapping[str, str], compared: Compared, roi: int | None) -> Explanation:
    """As `conformance.families.Family` has it."""
    question = question_of(case)
    count = len(question.rois)
    if roi is not None and not 0 <= roi < count:
        raise ValueError(f"RoI {roi}: the case has {count}")
    if count == 0 or 0 in question.sampling.lengths or question.x_shape[1] == 0:
        note = f"The case has {'no RoIs' if count == 0 else 'no pixels'} to draw."
        return Explanation(case, facts, parts=compared.parts({}), notes=(note,))
    found = focus_of(compared, roi, question.output, functools.partial(_roi_at, question))
    return _about_roi(question, facts, compared, *found)


def focus_of(
    compared: Compared, roi: int | None, role: Callable[[str], str], roi_at: Callable[[tuple[int, ...]], int]
) -> tuple[int, int, tuple[int, int] | None]:
    """RoI, channel and bin to look at; no bin where none is worse than the others.

    Args:
        compared: what is expected beside what came of it.
        roi: the number of the RoI that is asked for, or None.
        role: what an output is: y, dx or drois.
        roi_at: a RoI that gives a gradient to an element of dx.
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


def _roi_at(question: Question, index: tuple[int, ...]) -> int:
    """The first RoI that may give a gradient to the pixel; one of its image, or the first, where none does."""
    of_image = [r for r, n in enumerate(question.indices.tolist()) if n == index[0]]
    own = next(convention for convention in conventions_of(question) if convention.is_own)

    def is_near(r: int) -> bool:
        pairs = zip(own.axes(r), index[2:], strict=True)
        return all(min(axis.start, axis.end) - 2 <= i <= max(axis.start, axis.end) + 2 for axis, i in pairs)

    return next(filter(is_near, of_image), (of_image or [0])[0])


def _about_roi(
    question: Question, facts: Mapping[str, str], compared: Compared, r: int, c: int, focus: tuple[int, int] | None
) -> Explanation:
    """RoI `r` and channel `c` of a case by each convention, with bin `focus` in the middle."""
    n, worst = int(question.indices[r]), compared.worst
    roles = {question.output(name): name for name in compared.expected}
    leads = {roles[role]: lead for role, lead in (("y", (r, c)), ("dx", (n, c))) if role in roles}
    if worst and worst.at[:-2] != leads.get(worst.output, worst.at[:-2]):
        compared = replace(compared, worst=compared.worst_within(worst.output, leads[worst.output]))
    conventions = conventions_of(question)
    placed = [convention.axes(r) for convention in conventions]
    own = next(axes for convention, axes in zip(conventions, placed, strict=True) if convention.is_own)
    windows = [window([a[k] for a in placed], own[k], focus[k] if focus else None) for k in (0, 1)]
    data = None if question.x is None else question.x[n, c]
    scene = Scene(Frame(*windows), focus, data)
    seen, what, values = [data] * len(conventions), question.names["x"], None
    if "y" in roles:
        answers = [convention.output(r, c) for convention in conventions]
        bins = [(f"({p}, {q})", (p, q)) for p, q in np.ndindex(*compared.expected[roles["y"]].shape[2:])]
        values = values_of(
            "Values of the bins", "bin", conventions, answers, bins, compared.of(roles["y"], lambda y: y[r, c]), focus
        )
    else:
        gradients = [convention.gradients(tuple(roles)) for convention in conventions]
        if "dx" in roles:
            seen, what = [g["dx"][n, c] if "dx" in g else data for g in gradients], "dX"
        if "drois" in roles:
            name, given = roles["drois"], [g["drois"].reshape(-1, 4)[r] if "drois" in g else None for g in gradients]
            corners = [(corner, (k,)) for k, corner in enumerate(CORNERS)]
            title = f"{name}: derivatives by the RoI"
            values = values_of(
                title, "by", conventions, given, corners, compared.of(name, lambda drois: drois.reshape(-1, 4)[r])
            )
    pictures = [picture(convention, r, scene, grid, what) for convention, grid in zip(conventions, seen, strict=True)]
    ends = ", ".join(f"{name} {number(end)}" for name, end in zip(CORNERS, question.rois[r].tolist(), strict=True))
    return Explanation(
        question.case,
        facts,
        f"RoI {r} of {len(question.rois)}: {ends}; image {n}, channel {c}",
        tuple(map(Shown, conventions, pictures)),
        tuple(
            _coordinates(name, conventions, [axes[k] for axes in placed], focus[k] if focus else None)
            for k, name in enumerate("yx")
        ),
        values,
        tuple(replace(part, tabled=part.title.split("[")[0] != question.names["dx"]) for part in compared.parts(leads)),
        notes=(TORCHVISION, *(f"{o.name}: {note}" for o in conventions for note in o.notes)),
    )


def values_of(
    title: str,
    first: str,
    conventions: Sequence[Way],
    given: Sequence[Floats | None],
    labels: Sequence[tuple[str, tuple[int, ...]]],
    pair: tuple[Floats, Floats | None],
    focus: tuple[int, int] | None = None,
) -> Table:
    """What each convention gives for the labelled elements, what is expected, and what came."""
    expected, got = pair
    rows = []
    for label, at in labels:
        cells = ["not computed" if values is None else number(float(values[at])) for values in given]
        came = [] if got is None else [number(float(got[at])), f"{float(differences(got, expected)[at]):.3g}"]
        rows.append(Row((label, *cells, number(float(expected[at])), *came), at == focus))
    answered = () if got is None else ("got", "difference")
    return table(title, (first, *(o.short for o in conventions), "expected", *answered), rows)


def _coordinates(name: str, conventions: tuple[Convention, ...], placed: list[Placed], focus: int | None) -> Table:
    """Where the samples lie along an axis: of small RoIs all of them, of others those that can be on the map."""
    total = max(axis.axis.bins * axis.axis.per_bin for axis in placed)
    near = [
        {(p, i): a.axis.coordinate(p, i) for p, i in np.ndindex(a.axis.bins, a.axis.per_bin)}
        if total <= MOST_ROWS
        else {(s.p, s.i): s.c for s in samples_between(a, -1.5, a.axis.length + 0.5, _MOST_LISTED)}
        for a in placed
    ]
    rows = [
        Row((str(p), str(i), *(number(found[p, i]) if (p, i) in found else "" for found in near)), p == focus)
        for p, i in sorted(set().union(*near))
    ]
    columns = ("bin", "sample", *(convention.short for convention in conventions))
    return table(f"Coordinates of the samples along {name}", columns, rows, total)
