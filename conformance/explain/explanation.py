"""All that is said about one case, gathered for the page and for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from conformance.case import Array, Case
from conformance.expect import Floats, expected_outputs, reference
from conformance.explain.conventions import TORCHVISION, Convention, conventions_of
from conformance.explain.grid import Part, differences
from conformance.explain.picture import Picture, Scene, picture, samples_between, window
from conformance.explain.resample import AxisPicture, axis_pictures
from conformance.explain.table import MOST_ROWS, Row, Table, difference, kept, number
from conformance.outcome import Result
from conformance.question import Placed, Question, question_of
from conformance.run import Answer
from ortops.spec import ELEMENT_DTYPES

CORNERS = ("x1", "y1", "x2", "y2")
_MOST_LISTED = 1000


class Shown(NamedTuple):
    """A convention with its picture."""

    convention: Convention
    picture: Picture


class Worst(NamedTuple):
    """The element that is furthest from what it should be."""

    output: str
    at: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known about a case.

    facts: lines under its id, by heading.
    roi: what the pictures are about, in words; empty where they are about no RoI.
    shown: the conventions, none where there are no RoIs.
    coordinates: tables of sample coordinates.
    values: the table of what each convention gives, or None.
    parts: the outputs as heat maps.
    axes: pictures of resampled axes.
    notes: what else is to be known.
    """

    case: Case
    facts: Mapping[str, str]
    roi: str = ""
    shown: tuple[Shown, ...] = ()
    coordinates: tuple[Table, ...] = ()
    values: Table | None = None
    parts: tuple[Part, ...] = ()
    axes: tuple[AxisPicture, ...] = ()
    notes: tuple[str, ...] = ()


def explain(
    case: Case, roi: int | None = None, answer: Answer | None = None, result: Result | None = None, backend: str = ""
) -> Explanation:
    """What there is to say about a case.

    Args:
        case: the case.
        roi: number of the RoI to draw; None for the one with the worst element, or else the first.
        answer: what a backend made of the case, or None where none was asked.
        result: how that was judged.
        backend: its name.

    Raises:
        ValueError: the case has no RoI of this number.
    """
    facts = _facts(case, backend, result)
    if case.expects_error:
        if roi is not None:
            raise ValueError("a case that is to be refused has no RoI to draw")
        return Explanation(case, facts, parts=_accepted(answer), notes=(_refusal(case),))
    expected = expected_outputs(case)
    got = _comparable(expected, answer)
    worst = _worst(case, expected, got, result)
    if "resample" in case.definition.function:
        if roi is not None:
            raise ValueError(f"{case.operator} has no RoIs")
        pictures = axis_pictures(case, worst.at if worst else None)
        return Explanation(case, facts, parts=_parts(expected, got, worst, {}), axes=pictures)
    return _about_rois(case, facts, roi, expected, got, worst)


def _facts(case: Case, backend: str, result: Result | None) -> dict[str, str]:
    facts = {
        "fact": case.note,
        "source": str(case.source),
        "operator": f"{case.operator}, tensors of {case.element_type}",
        "attributes": ", ".join(f"{name} = {value}" for name, value in case.attributes.items())
        or "none, all by default",
        "inputs": ", ".join(f"{name} {list(value.shape)}" for name, value in case.inputs.items()),
    }
    if result is not None:
        said = f"{result.outcome.value.replace('_', ' ')}{': ' if result.message else ''}{result.message}"
        facts[f"backend {backend}"] = said
        if result.worst is not None and result.message != str(result.worst):
            facts["worst element"] = str(result.worst)
    return facts


def _refusal(case: Case) -> str:
    """Why a case is to be refused, in the reference's words."""
    due = f"An error is expected: its {case.expects_error} is wrong."
    try:
        reference(case.definition, case.attributes, case.inputs, case.outputs)
    except (TypeError, ValueError) as error:
        return f"{due} The reference says: {error}"
    return due


def _comparable(expected: Mapping[str, Floats], answer: Answer | None) -> dict[str, Floats]:
    """The backend's outputs that have the shape they should have."""
    outputs = _numbers(answer)
    return {name: outputs[name] for name in expected if name in outputs and outputs[name].shape == expected[name].shape}


def _accepted(answer: Answer | None) -> tuple[Part, ...]:
    """The first two-dimensional slices of what came where an error is due."""
    return tuple(
        Part(_title(name, lead), None, np.atleast_2d(values[lead]), None)
        for name, values in _numbers(answer).items()
        for lead in [(0,) * max(values.ndim - 2, 0)]
        if values.size
    )


def _numbers(answer: Answer | None) -> dict[str, Floats]:
    """The backend's outputs, widened; what is no tensor of numbers is none."""
    outputs: Mapping[str, Array] = (answer.outputs if answer else None) or {}
    known = set(ELEMENT_DTYPES.values())
    return {name: values.astype(np.float64) for name, values in outputs.items() if values.dtype in known}


def _title(name: str, lead: tuple[int, ...]) -> str:
    """Which two axes of an output a part has."""
    return name + (f"[{', '.join(map(str, lead))}]" if lead else "")


def _worst(
    case: Case, expected: Mapping[str, Floats], got: Mapping[str, Floats], result: Result | None
) -> Worst | None:
    """The one the judge names; where it names none, the largest difference."""
    if result is not None and result.worst is not None and result.worst.index is not None:
        return Worst(result.worst.output, result.worst.index)
    for name in case.outputs:
        if name in got and expected[name].size:
            return Worst(name, _furthest(got[name], expected[name]))
    return None


def _furthest(got: Floats, expected: Floats) -> tuple[int, ...]:
    apart = np.abs(differences(got, expected))
    at = np.unravel_index(int(np.argmax(np.where(np.isnan(apart), np.inf, apart))), apart.shape)
    return tuple(int(i) for i in at)


def _parts(
    expected: Mapping[str, Floats], got: Mapping[str, Floats], worst: Worst | None, leads: Mapping[str, tuple[int, ...]]
) -> tuple[Part, ...]:
    """Two axes of every output that has elements; `leads` are the indices of the other axes."""
    parts = []
    for name, values in expected.items():
        if values.size == 0:
            continue
        is_worst = worst is not None and worst.output == name
        lead = leads.get(name, worst.at[:-2] if worst and is_worst else (0,) * max(values.ndim - 2, 0))
        # The index of the one row or vector that a tensor of rank 1 is.
        index = worst.at if worst and is_worst else None
        mark = None if index is None or index[:-2] != lead else (index[-2] if len(index) > 1 else 0, index[-1])
        answered = np.atleast_2d(got[name][lead]) if name in got else None
        parts.append(Part(_title(name, lead), np.atleast_2d(values[lead]), answered, mark))
    return tuple(parts)


def _about_rois(
    case: Case,
    facts: Mapping[str, str],
    roi: int | None,
    expected: Mapping[str, Floats],
    got: Mapping[str, Floats],
    worst: Worst | None,
) -> Explanation:
    question = question_of(case)
    count = len(question.rois)
    if roi is not None and not 0 <= roi < count:
        raise ValueError(f"RoI {roi}: the case has {count}")
    if count == 0 or 0 in question.sampling.lengths or question.x_shape[1] == 0:
        what = "no RoIs" if count == 0 else "no pixels"
        return Explanation(
            case, facts, parts=_parts(expected, got, worst, {}), notes=(f"The case has {what} to draw.",)
        )
    r, c, focus = _focus(question, roi, expected, got, worst)
    n = int(question.indices[r])
    leads = {name: {"y": (r, c), "dx": (n, c)}.get(question.output(name)) for name in expected}
    chosen = {name: lead for name, lead in leads.items() if lead is not None}
    if worst and worst.output in chosen and worst.at[:-2] != chosen[worst.output]:
        lead = chosen[worst.output]
        part = got[worst.output][lead] if worst.output in got else None
        worst = None if part is None else Worst(worst.output, (*lead, *_furthest(part, expected[worst.output][lead])))
    conventions = conventions_of(question)
    shown, values = _shown_and_values(question, conventions, (r, c, focus), expected, got)
    parts = _parts(expected, got, worst, chosen)
    corners = ", ".join(f"{name} {number(end)}" for name, end in zip(CORNERS, question.rois[r].tolist(), strict=True))
    return Explanation(
        case,
        facts,
        f"RoI {r} of {count}: {corners}; image {n}, channel {c}",
        shown,
        _coordinates(conventions, r, focus),
        values,
        tuple(replace(part, tabled=part.title.split("[")[0] != question.names["dx"]) for part in parts),
        notes=(TORCHVISION, *(f"{c.name}: {note}" for c in conventions for note in c.notes)),
    )


def _focus(
    question: Question, roi: int | None, expected: Mapping[str, Floats], got: Mapping[str, Floats], worst: Worst | None
) -> tuple[int, int, tuple[int, int] | None]:
    """RoI, channel and bin to look at; no bin where none is worse than the others."""
    if worst is None:
        return roi or 0, 0, None
    role, index = question.output(worst.output), worst.at
    if role == "drois":
        return index[-2] if roi is None else roi, 0, None
    if role == "dx":
        return _roi_at(question, index) if roi is None else roi, index[1], None
    if roi is not None and index[0] != roi:
        if worst.output not in got:
            return roi, 0, None
        index = (roi, *_furthest(got[worst.output][roi], expected[worst.output][roi]))
    return index[0], index[1], (index[2], index[3])


def _roi_at(question: Question, index: tuple[int, ...]) -> int:
    """The first RoI that may give a gradient to the pixel; one of its image, or the first, where none does."""
    of_image = [r for r, n in enumerate(question.indices.tolist()) if n == index[0]]
    own = next(convention for convention in conventions_of(question) if convention.is_own)
    for r in of_image:
        axes = own.axes(r)
        if all(min(a.start, a.end) - 2 <= i <= max(a.start, a.end) + 2 for a, i in zip(axes, index[2:], strict=True)):
            return r
    return (of_image or [0])[0]


def _shown_and_values(
    question: Question,
    conventions: tuple[Convention, ...],
    at: tuple[int, int, tuple[int, int] | None],
    expected: Mapping[str, Floats],
    got: Mapping[str, Floats],
) -> tuple[tuple[Shown, ...], Table | None]:
    r, c, focus = at
    n = int(question.indices[r])
    placed = [convention.axes(r) for convention in conventions]
    own = next(axes for convention, axes in zip(conventions, placed, strict=True) if convention.is_own)
    view_y, view_x = (window([axes[k] for axes in placed], own[k], None if focus is None else focus[k]) for k in (0, 1))
    data = None if question.x is None else question.x[n, c]
    scene = Scene((view_y, view_x), focus, data)
    values: Table | None = None
    roles = {question.output(name): name for name in expected}
    if "y" in roles:
        answers = [convention.output(r, c) for convention in conventions]
        drawn, what = [data] * len(conventions), question.names["x"]
        values = _bin_table(conventions, answers, expected[roles["y"]][r, c], _slice(got, roles["y"], (r, c)), focus)
    else:
        gradients = [convention.gradients(tuple(roles)) for convention in conventions]
        drawn = [g["dx"][n, c] if "dx" in g else data for g in gradients]
        what = "dX" if "dx" in roles else question.names["x"]
        if "drois" in roles:
            values = _corner_table(question, conventions, gradients, r, expected, got)
    pictures = [picture(o, r, scene, grid, what) for o, grid in zip(conventions, drawn, strict=True)]
    return tuple(map(Shown, conventions, pictures)), values


def _slice(got: Mapping[str, Floats], name: str, index: tuple[int, ...]) -> Floats | None:
    return got[name][index] if name in got else None


def _bin_table(
    conventions: tuple[Convention, ...],
    answers: list[Floats | None],
    expected: Floats,
    got: Floats | None,
    focus: tuple[int, int] | None,
) -> Table:
    rows = [
        Row(_cells(f"({p}, {q})", [None if a is None else float(a[p, q]) for a in answers], *pair), (p, q) == focus)
        for p, q in np.ndindex(*expected.shape)
        for pair in [(float(expected[p, q]), None if got is None else float(got[p, q]))]
    ]
    columns = _columns("bin", conventions, answered=got is not None)
    return Table("Values of the bins", columns, kept(rows, MOST_ROWS), len(rows))


def _corner_table(
    question: Question,
    conventions: tuple[Convention, ...],
    gradients: list[dict[str, Floats]],
    r: int,
    expected: Mapping[str, Floats],
    got: Mapping[str, Floats],
) -> Table:
    name = question.names["drois"]
    due = expected[name].reshape(-1, 4)[r].tolist()
    answered = got[name].reshape(-1, 4)[r].tolist() if name in got else None
    given = [g["drois"].reshape(-1, 4)[r].tolist() if "drois" in g else None for g in gradients]
    rows = tuple(
        Row(_cells(corner, [g and g[k] for g in given], due[k], answered and answered[k]))
        for k, corner in enumerate(CORNERS)
    )
    return Table(f"{name}: derivatives by the RoI", _columns("by", conventions, answered=bool(answered)), rows, 4)


def _columns(first: str, conventions: tuple[Convention, ...], *, answered: bool) -> tuple[str, ...]:
    return (first, *(o.short for o in conventions), "expected", *(("got", "difference") if answered else ()))


def _cells(first: str, values: list[float | None], expected: float, got: float | None) -> tuple[str, ...]:
    given = tuple("not computed" if value is None else number(value) for value in values)
    answer = () if got is None else (number(got), f"{difference(got, expected):.3g}")
    return (first, *given, number(expected), *answer)


def _coordinates(conventions: tuple[Convention, ...], r: int, focus: tuple[int, int] | None) -> tuple[Table, ...]:
    """Where the samples lie along y and along x, those that lie on the map or near it first of all."""
    placed = [convention.axes(r) for convention in conventions]
    return tuple(
        _axis_table(name, conventions, [axes[k] for axes in placed], None if focus is None else focus[k])
        for k, name in enumerate("yx")
    )


def _axis_table(name: str, conventions: tuple[Convention, ...], placed: list[Placed], focus: int | None) -> Table:
    near = [
        {(s.p, s.i): s.c for s in samples_between(axis, -1.5, axis.axis.length + 0.5, _MOST_LISTED)} for axis in placed
    ]
    total = max(axis.axis.bins * axis.axis.per_bin for axis in placed)
    # Of small RoIs all samples, of others those that can be on the map.
    if total <= MOST_ROWS:
        near = [
            {(p, i): a.axis.coordinate(p, i) for p in range(a.axis.bins) for i in range(a.axis.per_bin)} for a in placed
        ]
    keys = sorted(set().union(*near))
    rows = [
        Row((str(p), str(i), *(number(found[p, i]) if (p, i) in found else "" for found in near)), p == focus)
        for p, i in keys
    ]
    columns = ("bin", "sample", *(convention.short for convention in conventions))
    return Table(f"Coordinates of the samples along {name}", columns, kept(rows, MOST_ROWS), max(total, len(rows)))
