"""One page without other files, for people: the matrix, and below it what failed with the pictures that explain it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import jinja2

from conformance.case import Case
from conformance.explain import page
from conformance.outcome import Outcome
from conformance.report.matrix import FAILURES, Column, Matrix, unsupported
from conformance.report.pictures import Pictures
from conformance.report.read import Entry, family
from conformance.vectors import collect


@dataclass(frozen=True, slots=True)
class Listed:
    """A case that a backend has wrong.

    case: None where the suite has it no longer, or not yet.
    worst: its worst element; empty where that is not known or the message says it.
    pictures: numbers of the pieces that explain it.
    """

    backend: str
    id: str
    entry: Entry
    case: Case | None
    worst: str
    pictures: tuple[int, ...]

    @property
    def family(self) -> str:
        """The row of the matrix."""
        return family(self.id)

    @property
    def element_type(self) -> str:
        """Of the case; empty where that is not known."""
        return self.case.element_type if self.case else ""


def render(matrix: Matrix) -> str:
    """A matrix as HTML."""
    pictures = Pictures()
    listed = [one for column in matrix.columns for one in _listed(column, pictures)]
    folders = ("report", "explain")
    loader = jinja2.ChoiceLoader([jinja2.PackageLoader("conformance", folder) for folder in folders])
    return (
        page.environment()
        .overlay(loader=loader)
        .get_template("page.html.jinja")
        .render(
            matrix=matrix,
            outcomes=list(Outcome),
            choices=_choices(matrix, listed),
            listed=listed,
            reasons=[(column.title, unsupported(column.report).most_common()) for column in matrix.columns],
            pictures=pictures.packed,
        )
    )


def _choices(matrix: Matrix, listed: Sequence[Listed]) -> dict[str, tuple[str, list[str]]]:
    """The filters: by name, the label and the values."""
    return {
        "backend": ("backend", [column.report.backend for column in matrix.columns]),
        "outcome": ("outcome", [outcome.value for outcome in FAILURES]),
        "family": ("family", [row.name for row in matrix.rows]),
        "type": ("element type", sorted({one.element_type for one in listed} - {""})),
    }


def _listed(column: Column, pictures: Pictures) -> Iterator[Listed]:
    cases = {case.id: case for case in collect()}
    backend = column.report.backend
    for case_id, entry in column.report.entries.items():
        if entry.outcome not in FAILURES:
            continue
        case = cases.get(case_id)
        numbers, worst = pictures.add(case, entry, backend) if case else ([], None)
        said = "" if worst is None or str(worst) == entry.message else str(worst)
        yield Listed(backend, case_id, entry, case, said, tuple(numbers))
