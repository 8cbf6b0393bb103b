"""All that is said about one case, gathered for the page and for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from conformance.case import Array, Case
from conformance.expected_values import Floats, expected_outputs, reference
from conformance.explain.draw import Drawing, Part
from conformance.explain.resample import Axis
from conformance.explain.tables import Table, differences
from conformance.families import family_of
from conformance.outcome import Result
from conformance.run import Answer
from ortops.spec import ELEMENT_DTYPES


class Way(Protocol):
    """One way to read a case, as it is named."""

    @property
    def name(self) -> str:
        """The name in headings."""
        ...

    @property
    def short(self) -> str:
        """The name in the headings of columns."""
        ...

    @property
    def detail(self) -> str:
        """What it is, in words."""
        ...

    @property
    def is_own(self) -> bool:
        """Whether it is that of the case."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """In what it cannot follow the case."""
        ...


class Shown(NamedTuple):
    """A convention with its picture."""

    convention: Way
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
    return family_of(case.definition).explanation(case, facts, compared, roi)


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
