"""The explanation of one case: the facts, drawings and tables that the page and the terminal show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from conformance.case import Array, Case
from conformance.expected_values import Floats, expected_outputs, reference
from conformance.explain.draw import Drawing, OutputSlice
from conformance.explain.tables import Table, differences
from conformance.outcome import Result
from conformance.run import Answer
from ortops.spec import ELEMENT_DTYPES

if TYPE_CHECKING:
    from conformance.explain.resample import AxisDrawing

HINT = (
    "The coordinate of a pixel's centre is its index. The box is the RoI, and dashed lines are the edges of its bins. "
    "Filled dots are samples on the map, and hollow dots are samples off the map."
)
"""How to read a picture of sampled RoIs."""


class Convention(Protocol):
    """A convention, one way to interpret the attributes of a case, as headings and tables show it."""

    @property
    def name(self) -> str:
        """The name that headings show."""
        ...

    @property
    def short(self) -> str:
        """The short name that columns of tables show."""
        ...

    @property
    def detail(self) -> str:
        """A line that describes it."""
        ...

    @property
    def is_own(self) -> bool:
        """Whether the case itself uses this convention."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about attributes of the case that this convention does not have."""
        ...


class ConventionDrawing(NamedTuple):
    """A convention with its drawing, and a line of the values that it gives, which may be empty."""

    convention: Convention
    drawing: Drawing
    result: str = ""


class WorstElement(NamedTuple):
    """The element of an output with the largest error, and its index."""

    output: str
    at: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a case.

    facts: the lines under the id of the case, by heading.
    roi: the RoI that the drawings show, as text; empty if they show none.
    conventions: the drawings of the conventions; empty if there are no RoIs.
    hint: a text that says how to read these drawings.
    coordinates: the tables of sample coordinates.
    values: the table of the values that each convention gives, or None.
    outputs: the outputs as heat maps.
    axes: the drawings of resampled axes.
    notes: further sentences.
    """

    case: Case
    facts: Mapping[str, str]
    roi: str = ""
    conventions: tuple[ConventionDrawing, ...] = ()
    hint: str = HINT
    coordinates: tuple[Table, ...] = ()
    values: Table | None = None
    outputs: tuple[OutputSlice, ...] = ()
    axes: tuple[AxisDrawing, ...] = ()
    notes: tuple[str, ...] = ()


def explain(
    case: Case, roi: int | None = None, answer: Answer | None = None, result: Result | None = None, backend: str = ""
) -> Explanation:
    """Explain a case.

    Args:
        case: the case.
        roi: the number of the RoI to draw. None draws the RoI of the worst element, or the first one without a backend.
        answer: the answer of a backend, or None.
        result: the verdict on this answer.
        backend: the name of the backend.

    Raises:
        ValueError: the case has no RoI of this number.
    """
    facts, outputs = _facts(case, backend, result), _numbers(answer)
    if case.expects_error:
        if roi is not None:
            raise ValueError(f"roi = {roi}: a case that expects an error has no RoI to draw")
        return Explanation(case, facts, outputs=_accepted(outputs), notes=(_refusal(case),))
    expected = expected_outputs(case)
    got = {name: y for name, y in outputs.items() if name in expected and y.shape == expected[name].shape}
    compared = Comparison(expected, got, _worst(expected, got, result))
    return _of_family(case)(case, facts, compared, roi)


def _of_family(case: Case) -> Callable[[Case, Mapping[str, str], Comparison, int | None], Explanation]:
    """The function that explains a valid case of the family of the case's operator."""
    from conformance.explain import max_roi_pool, resample, rois, rotated  # these modules import this one

    return {
        "roi_align": rois.explanation,
        "dml_roi_align": rois.explanation,
        "roi_align_rotated": rotated.explanation,
        "dml_resample": resample.explanation,
        "max_roi_pool": max_roi_pool.explanation,
    }[case.definition.family]


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
    """A sentence that says why an error is expected, with the message of the reference."""
    due = f"An error is expected: its {case.expects_error} is wrong."
    try:
        reference(case.definition, case.attributes, case.inputs, case.outputs)
    except (TypeError, ValueError) as error:
        return f"{due} The reference says: {error}"
    return due


def _numbers(answer: Answer | None) -> dict[str, Floats]:
    """The backend's outputs in float64. Outputs of an element type that no operator has are left out."""
    outputs: Mapping[str, Array] = (answer.outputs if answer else None) or {}
    known = set(ELEMENT_DTYPES.values())
    return {name: values.astype(np.float64) for name, values in outputs.items() if values.dtype in known}


def _accepted(outputs: Mapping[str, Floats]) -> tuple[OutputSlice, ...]:
    """The first two-dimensional slice of each output of a backend that should have raised an error."""
    leads = {name: (0,) * max(values.ndim - 2, 0) for name, values in outputs.items() if values.size}
    return tuple(OutputSlice(_title(n, lead), None, np.atleast_2d(outputs[n][lead])) for n, lead in leads.items())


def _title(name: str, lead: tuple[int, ...]) -> str:
    """The title of the slice of an output at the indices `lead` of all axes but the last two."""
    return name + (f"[{', '.join(map(str, lead))}]" if lead else "")


def _worst(expected: Mapping[str, Floats], got: Mapping[str, Floats], result: Result | None) -> WorstElement | None:
    """The worst element that the verdict names, or else the element with the largest difference of the first output."""
    named = result.worst if result else None
    if named is not None and named.index is not None and named.output in got:
        return WorstElement(named.output, named.index)
    return next((WorstElement(n, _furthest(got[n], due)) for n, due in expected.items() if n in got and due.size), None)


def _furthest(got: Floats, expected: Floats) -> tuple[int, ...]:
    apart = np.abs(differences(got, expected))
    at = np.unravel_index(int(np.argmax(np.where(np.isnan(apart), np.inf, apart))), apart.shape)
    return tuple(int(i) for i in at)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The expected outputs of a case beside those of a backend.

    got: the backend's outputs of the right shape.
    worst: the element with the largest error, or None without outputs to compare.
    """

    expected: Mapping[str, Floats]
    got: Mapping[str, Floats]
    worst: WorstElement | None

    def worst_within(self, output: str, lead: tuple[int, ...]) -> WorstElement:
        """The element with the largest error in the part `lead` of one of the backend's outputs."""
        return WorstElement(output, (*lead, *_furthest(self.got[output][lead], self.expected[output][lead])))

    def of(self, output: str, part: Callable[[Floats], Floats]) -> tuple[Floats, Floats | None]:
        """A part of the expected output, and the same part of the backend's, which may be None."""
        return part(self.expected[output]), part(self.got[output]) if output in self.got else None

    def slices(self, leads: Mapping[str, tuple[int, ...]]) -> tuple[OutputSlice, ...]:
        """The last two axes of each output that has elements; `leads` are the indices of the other axes, by output."""
        parts = []
        for name, values in self.expected.items():
            if values.size == 0:
                continue
            # A tensor of rank 1 is drawn as one row.
            index = self.worst.at if self.worst and self.worst.output == name else None
            lead = leads.get(name, index[:-2] if index else (0,) * max(values.ndim - 2, 0))
            mark = None if index is None or index[:-2] != lead else (index[-2] if len(index) > 1 else 0, index[-1])
            came = np.atleast_2d(self.got[name][lead]) if name in self.got else None
            parts.append(OutputSlice(_title(name, lead), np.atleast_2d(values[lead]), came, mark))
        return tuple(parts)
