# SPDX-License-Identifier: MIT OR Apache-2.0
"""The explanation of one case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from conformance.case import DTYPES, Array, Case
from conformance.error_terms import Floats
from conformance.expected_values import expected_outputs, reference
from conformance.families import family_of
from conformance.families.view import Drawing, Element, Table, View, number
from conformance.outcome import Result
from conformance.run import Answer


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a case.

    facts: the lines below the id of the case, by heading.
    heading: a description of the drawing; may be empty.
    drawing: where the operator reads the map; None if there is nothing to draw.
    """

    case: Case
    facts: Mapping[str, str]
    heading: str
    drawing: Drawing | None
    tables: Sequence[Table]
    notes: Sequence[str]


def explain(case: Case, answer: Answer | None = None, result: Result | None = None, backend: str = "") -> Explanation:
    """Explain a case.

    Args:
        case: the case.
        answer: the answer of a backend, the RoI of whose worst element is drawn; None for the first RoI.
        result: the verdict on this answer.
        backend: the name of the backend.
    """
    expected, got, view = dict[str, Floats](), _numbers(answer), View()
    worst: Element | None = None
    if case.expects_error:
        view = View(notes=(_refusal(case),))
    elif case.formula is not None:
        got, view = {}, View(notes=("The tensors are too large to list and to draw.",))
    else:
        expected = dict(expected_outputs(case))
        got = {name: y for name, y in got.items() if name in expected and y.shape == expected[name].shape}
        worst = _worst(expected, got, result)
        view = family_of(case.definition).explanation(case, worst)
    names = expected or got
    tables = [*view.tables, *(_outputs(name, expected, got, worst, view.part) for name in names if names[name].size)]
    return Explanation(case, dict(_facts(case, backend, result)), view.heading, view.drawing, tables, view.notes)


def _facts(case: Case, backend: str, result: Result | None) -> Iterator[tuple[str, str]]:
    attributes = ", ".join(f"{name} = {value}" for name, value in case.attributes.items())
    yield "note", case.note
    yield "source", str(case.source)
    yield "operator", f"{case.operator}, tensors of {case.element_type}"
    yield "attributes", attributes or "all by default"
    yield "inputs", ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in case.types.items())
    if result is not None:
        said = result.outcome.value.replace("_", " ")
        yield f"backend {backend}", f"{said}: {result.message}" if result.message else said
        if result.worst is not None and result.message != str(result.worst):
            yield "worst element", str(result.worst)


def _refusal(case: Case) -> str:
    """A sentence that says why an error is expected, with the reference's message."""
    due = f"An error is expected: its {case.expects_error} is wrong."
    try:
        reference(case.definition, case.attributes, case.inputs, case.outputs)
    except (TypeError, ValueError) as error:
        return f"{due} The reference says: {error}"
    return due


def _numbers(answer: Answer | None) -> dict[str, Floats]:
    """The backend's outputs in float64. Outputs of an element type that no operator has are left out."""
    outputs: Mapping[str, Array] = (answer.outputs if answer else None) or {}
    known = set(DTYPES.values())
    return {name: values.astype(np.float64) for name, values in outputs.items() if values.dtype in known}


def _worst(expected: Mapping[str, Floats], got: Mapping[str, Floats], result: Result | None) -> Element | None:
    """The worst element that the verdict names, or else the element with the largest difference of the first output."""
    named = result.worst if result else None
    if named is not None and named.index is not None and named.output in got:
        return named.output, named.index
    for name, due in expected.items():
        if name in got and due.size:
            apart = np.abs(_differences(got[name], due))
            at = np.unravel_index(int(np.argmax(np.where(np.isnan(apart), np.inf, apart))), apart.shape)
            return name, tuple(int(i) for i in at)
    return None


def _outputs(
    name: str, expected: Mapping[str, Floats], got: Mapping[str, Floats], worst: Element | None, part: tuple[int, ...]
) -> Table:
    """The elements of an output whose first indices are `part`: expected, and from the backend if it gave them."""
    columns = {heading: values[name] for heading, values in (("expected", expected), ("got", got)) if name in values}
    if len(columns) == 2:
        columns["difference"] = _differences(columns["got"], columns["expected"])
    shape = next(iter(columns.values())).shape
    indices = [(*part, *rest) for rest in np.ndindex(shape[len(part) :])]
    rows = [(str(list(at)), *(number(float(values[at])) for values in columns.values())) for at in indices]
    marked = worst[1] if worst and worst[0] == name else None
    return Table(name, ("element", *columns), rows, indices.index(marked) if marked in indices else None)


def _differences(got: Floats, expected: Floats) -> Floats:
    """`got` minus `expected`, element by element; 0 where both are NaN or the same infinity."""
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(same, 0.0, got - expected)
