"""One page without other files, for people: the matrix, and below it what failed with the pictures that explain it.

The pictures are stored as pieces of HTML, gzipped and in base64, equal ones once; a browser inflates them when they are
looked at. Element types, versions and backends share most of their pieces.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import jinja2

from conformance.case import Case
from conformance.explain import explain
from conformance.explain import page as explained
from conformance.outcome import Difference, Outcome, Result
from conformance.report.matrix import Matrix
from conformance.report.record import Entry, Report, family
from conformance.report.tally import FAILURES
from conformance.run import Answer, judge
from conformance.vectors import collect

NODE = ("operator", "attributes", "inputs")
"""The facts that are told with the pictures; the page has the others where it names the case."""


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
    listed = [one for column in matrix.reports for one in _listed(column, pictures)]
    folders = ("report", "explain")
    loader = jinja2.ChoiceLoader([jinja2.PackageLoader("conformance", folder) for folder in folders])
    return (
        explained.environment()
        .overlay(loader=loader)
        .get_template("page.html.jinja")
        .render(
            matrix=matrix,
            outcomes=list(Outcome),
            choices=_choices(matrix, listed),
            listed=listed,
            reasons=[(column.title, unsupported(column).most_common()) for column in matrix.reports],
            pictures=pictures.packed,
        )
    )


def _choices(matrix: Matrix, listed: Sequence[Listed]) -> dict[str, tuple[str, list[str]]]:
    """The filters: by name, the label and the values."""
    return {
        "backend": ("backend", [column.title for column in matrix.reports]),
        "outcome": ("outcome", [outcome.value for outcome in FAILURES]),
        "family": ("family", [row.name for row in matrix.rows]),
        "type": ("element type", sorted({one.element_type for one in listed} - {""})),
    }


def _listed(report: Report, pictures: Pictures) -> Iterator[Listed]:
    cases = {case.id: case for case in collect()}
    backend = report.title
    for case_id, entry in report.entries.items():
        if entry.outcome not in FAILURES:
            continue
        case = cases.get(case_id)
        numbers, worst = pictures.add(case, entry, backend) if case else ([], None)
        said = "" if worst is None or str(worst) == entry.message else str(worst)
        yield Listed(backend, case_id, entry, case, said, tuple(numbers))


def unsupported(report: Report) -> Counter[str]:
    """Why cases are not supported, and how many for each reason."""
    return Counter(entry.message for entry in report.entries.values() if entry.outcome is Outcome.UNSUPPORTED)


class Pictures:
    """The pieces of a page, by number."""

    def __init__(self) -> None:
        self.packed: list[str] = []
        self._numbers: dict[bytes, int] = {}

    def add(self, case: Case, entry: Entry, backend: str) -> tuple[list[int], Difference | None]:
        """The numbers of the pieces that explain an entry, and the worst element of its outputs, if there is one."""
        answer = Answer("outputs", dict(entry.outputs)) if entry.outputs else None
        worst = judge(case, answer).worst if answer else None
        explanation = explain(case, None, answer, Result(case, entry.outcome, entry.message, worst), backend)
        node = {heading: explanation.facts[heading] for heading in NODE}
        return [self._number(piece) for piece in explained.sections(replace(explanation, facts=node))], worst

    def _number(self, piece: str) -> int:
        data = piece.encode("utf-8")
        key = hashlib.sha256(data).digest()
        if key not in self._numbers:
            self._numbers[key] = len(self.packed)
            self.packed.append(base64.b64encode(gzip.compress(data, 9, mtime=0)).decode("ascii"))
        return self._numbers[key]
