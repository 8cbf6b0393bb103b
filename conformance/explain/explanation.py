"""All that is said about one case, gathered for the page and for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from conformance.case import Array, Case
from conformance.expect import Floats, expected_outputs, reference
from conformance.explain.conventions import TORCHVISION, Convention, conventions_of
from conformance.explain.draw import Drawing, Frame, Part, Scene, picture, samples_between, window
from conformance.explain.resample import Axis, axes_of
from conformance.explain.tables import MOST_ROWS, Row, Table, differences, number, table
from conformance.outcome import Result
from conformance.question import Placed, Question, question_of
from conformance.run import Answer
from ortops.spec import ELEMENT_DTYPES

CORNERS = ("x1", "y1", "x2", "y2")
_MOST_LISTED = 1000


class Shown(NamedTuple):
    """A convention with its picture."""

    convention: Convention
    picture: Drawing


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
    axes: tuple[Axis, ...] = ()
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
    facts, outputs = _facts(case, backend, result), _numbers(answer)
    if case.expects_error:
        if roi is not None:
            raise ValueError("a case that is to be refused has no RoI to draw")
        return Explanation(case, facts, parts=_accepted(outputs), notes=(_refusal(case),))
    expected = expected_outputs(case)
    got = {name: y for name, y in outputs.items() if name in expected and y.shape == expected[name].shape}
    compared = Compared(expected, got, _worst(expected, got, result))
    if "resample" in case.definition.function:
        if roi is not None:
            raise ValueError(f"{case.operator} has no RoIs")
        axes = axes_of(case, compared.worst.at if compared.worst else None)
        return Explanation(case, facts, parts=compared.parts({}), axes=axes)
    question = question_of(case)
    count = len(question.rois)
    if roi is not None and not 0 <= roi < count:
        raise ValueError(f"RoI {roi}: the case has {count}")
    if count == 0 or 0 in question.sampling.lengths or question.x_shape[1] == 0:
        note = f"The case has {'no RoIs' if count == 0 else 'no pixels'} to draw."
        return Explanation(case, facts, parts=compared.parts({}), notes=(note,))
    return _about_roi(question, facts, compared, *_focus(question, roi, compared))


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


def _numbers(answer: Answer | None) -> dict[str, Floats]:
    """The backend's outputs in float64, without those whose element type no operator of the suite has."""
    outputs: Mapping[str, Array] = (answer.outputs if answer else None) or {}
    known = set(ELEMENT_DTYPES.values())
    return {name: values.astype(np.float64) for name, values in outputs.items() if values.dtype in known}


def _accepted(outputs: Mapping[str, Floats]) -> tuple[Part, ...]:
    """The first two-dimensional slice of each output that came where an error is due."""
    leads = {name: (0,) * max(values.ndim - 2, 0) for name, values in outputs.items() if values.size}
    return tuple(Part(_title(n, lead), None, np.atleast_2d(outputs[n][lead])) for n, lead in leads.items())


def _title(name: str, lead: tuple[int, ...]) -> str:
    """The name of the slice of an output: of its last two axes, where the other axes have the indices `lead`."""
    return name + (f"[{', '.join(map(str, lead))}]" if lead else "")


def _worst(expected: Mapping[str, Floats], got: Mapping[str, Floats], result: Result | None) -> Worst | None:
    """The element that the judge names, or else the one with the largest difference, of an output that came."""
    named = result.worst if result else None
    if named is not None and named.index is not None and named.output in got:
        return Worst(named.output, named.index)
    return next((Worst(n, _furthest(got[n], due)) for n, due in expected.items() if n in got and due.size), None)


def _furthest(got: Floats, expected: Floats) -> tuple[int, ...]:
    apart = np.abs(differences(got, expected))
    at = np.unravel_index(int(np.argmax(np.where(np.isnan(apart), np.inf, apart))), apart.shape)
    return tuple(int(i) for i in at)


@dataclass(frozen=True, slots=True)
class Compared:
    """What is expected of a case beside what came of it.

    got: the backend's outputs that have the shape they should have.
    worst: the element that is furthest from what it should be, if anything came.
    """

    expected: Mapping[str, Floats]
    got: Mapping[str, Floats]
    worst: Worst | None

    def worst_within(self, output: str, lead: tuple[int, ...]) -> Worst:
        """The element that is furthest from what it should be, within a part of an output that came."""
        return Worst(output, (*lead, *_furthest(self.got[output][lead], self.expected[output][lead])))

    def of(self, output: str, part: Callable[[Floats], Floats]) -> tuple[Floats, Floats | None]:
        """What is expected of a part of an output, and what came."""
        return part(self.expected[output]), part(self.got[output]) if output in self.got else None

    def parts(self, leads: Mapping[str, tuple[int, ...]]) -> tuple[Part, ...]:
        """Two axes of every output that has elements; `leads` are the indices of the other axes."""
        parts = []
        for name, values in self.expected.items():
            if values.size == 0:
                continue
            # The index of the one row or vector that a tensor of rank 1 is.
            index = self.worst.at if self.worst and self.worst.output == name else None
            lead = leads.get(name, index[:-2] if index else (0,) * max(values.ndim - 2, 0))
            mark = None if index is None or index[:-2] != lead else (index[-2] if len(index) > 1 else 0, index[-1])
            came = np.atleast_2d(self.got[name][lead]) if name in self.got else None
            parts.append(Part(_title(name, lead), np.atleast_2d(values[lead]), came, mark))
        return tuple(parts)


def _focus(question: Question, roi: int | None, compared: Compared) -> tuple[int, int, tuple[int, int] | None]:
    """RoI, channel and bin to look at; no bin where none is worse than the others."""
    worst = compared.worst
    if worst is None:
        return roi or 0, 0, None
    role, index = question.output(worst.output), worst.at
    if role == "drois":
        return index[-2] if roi is None else roi, 0, None
    if role == "dx":
        return _roi_at(question, index) if roi is None else roi, index[1], None
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
        values = _values(
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
            values = _values(
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


def _values(
    title: str,
    first: str,
    conventions: tuple[Convention, ...],
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
