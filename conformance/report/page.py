"""An HTML page in a single file: the matrix, and below it the failures with drawings that explain them.

Failures with one probable cause share a card: their messages differ only in numbers and element types. Failures with
wrong numbers all have such messages, so these must also belong to one scenario. The drawings are pieces of HTML, stored
once each, gzipped and in base64; the browser inflates them when somebody opens them.
"""

from __future__ import annotations

import base64
import dataclasses
import gzip
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from conformance.case import Basis, Case, family_of, scenario_of
from conformance.explain import explain
from conformance.explain import page as explained
from conformance.outcome import Difference, Outcome, Result
from conformance.report.matrix import Matrix
from conformance.report.record import Entry, Report
from conformance.report.tally import COLOURS, MEANINGS, in_words, kind_of, pattern_of
from conformance.report.terminal import WHOSE
from conformance.run import Answer, judge
from conformance.vectors import collect

if TYPE_CHECKING:
    from conformance.diagnosis import Diagnosis

NODE = ("operator", "attributes", "inputs")
"""The facts shown beside the drawings; the page shows the others beside the id of the case."""

NO_CASE = "not a case of this release of the suite"


@dataclass(frozen=True, slots=True)
class Listed:
    """A case that a backend fails.

    case: None if this release of the suite does not have it.
    worst: its worst element; empty if that is unknown or equals the message.
    pictures: the numbers of the pieces of HTML that explain it.
    """

    id: str
    entry: Entry
    case: Case | None
    worst: str
    pictures: Sequence[int]


@dataclass(frozen=True, slots=True)
class Card:
    """The failing cases of a backend with one probable cause."""

    backend: str
    kind: str
    cases: list[Listed] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The cases' scenario; if there are several, the family or the function and the number of scenarios."""
        scenarios = list(dict.fromkeys(scenario_of(one.id) for one in self.cases))
        if len(scenarios) == 1:
            return scenarios[0]
        families = {family_of(scenario) for scenario in scenarios}
        return f"{scenarios[0].split('/')[0] if len(families) > 1 else families.pop()}: {len(scenarios)} scenarios"

    @property
    def note(self) -> str:
        """The cases' note and source, a line each; empty if they differ."""
        told = {f"{one.case.note}\n{one.case.source}" if one.case else NO_CASE for one in self.cases}
        return told.pop() if len(told) == 1 else ""

    def variant(self, one: Listed) -> str:
        """The part of a case's id that follows the title."""
        return one.id.removeprefix(self.title).lstrip("/") or one.id


def render(matrix: Matrix, diagnoses: Mapping[str, Sequence[Diagnosis]] | None = None) -> str:
    """A matrix as HTML, with the diagnoses by title of report."""
    import jinja2  # of the extra conformance

    pictures = Pictures()
    cards = [card for report in matrix.reports for card in _cards(report, pictures)]
    listed = [one for card in cards for one in card.cases]
    folders = ("report", "explain")
    loader = jinja2.ChoiceLoader([jinja2.PackageLoader("conformance", folder) for folder in folders])
    environment = explained.environment().overlay(loader=loader)
    environment.filters |= {"in_words": in_words, "family": family_of}
    return environment.get_template("page.html.jinja").render(
        matrix=matrix,
        headline=headline(matrix.reports),
        key=MEANINGS,
        order=list(COLOURS),
        bases={words: basis.value for basis, words in WHOSE.items()},
        choices={
            "backend": ("backend", [report.title for report in matrix.reports]),
            "outcome": ("outcome", [kind for kind in MEANINGS if kind in {card.kind for card in cards}]),
            "family": ("family", [row.name for row in matrix.rows]),
            "basis": ("whose rule", [basis.value for basis in Basis if basis in {one.entry.basis for one in listed}]),
            "type": ("element type", sorted({one.case.element_type for one in listed if one.case})),
        },
        cards=cards,
        diagnoses=diagnoses or {},
        reasons={
            report.title: Counter(e.message for e in report.entries.values() if e.outcome is Outcome.UNSUPPORTED)
            for report in matrix.reports
        },
        pictures=pictures.packed,
    )


def headline(reports: Sequence[Report]) -> str:
    """The titles of the reports, and what they have in common of the date and the versions of the suite and of onnx."""
    parts = [report.title for report in reports]
    origins = [report.origin for report in reports]
    for word, values in (
        ("", {origin.date[:10] for origin in origins}),
        ("suite ", {origin.suite for origin in origins}),
        ("onnx ", {origin.onnx for origin in origins}),
    ):
        parts += [word + value for value in values if value and len(values) == 1]
    return f"Conformance of {', '.join(parts)}"


def _cards(report: Report, pictures: Pictures) -> list[Card]:
    cases = {case.id: case for case in collect()}
    cards: dict[tuple[str, ...], Card] = {}
    for case_id, entry in report.entries.items():
        if entry.outcome in (Outcome.PASSED, Outcome.UNSUPPORTED):
            continue
        case, kind = cases.get(case_id), kind_of(entry)
        numbers, worst = pictures.add(case, entry) if case else ([], None)
        is_number = entry.outcome is not Outcome.EXPECTED_FAILURE and entry.max_error is not None
        place = scenario_of(case_id) if is_number else case_id.split("/")[0]
        said = "" if worst is None or str(worst) == entry.message else str(worst)
        card = cards.setdefault((place, kind, pattern_of(entry.message)), Card(report.title, kind))
        card.cases.append(Listed(case_id, entry, case, said, numbers))
    return list(cards.values())


class Pictures:
    """The drawings of a page, as numbered pieces of HTML."""

    def __init__(self) -> None:
        self.packed: list[str] = []
        self._numbers: dict[bytes, int] = {}
        self._known: dict[tuple[object, ...], tuple[list[int], Difference | None]] = {}

    def add(self, case: Case, entry: Entry) -> tuple[list[int], Difference | None]:
        """The numbers of the pieces that explain an entry, and the worst element of its outputs or None."""
        answered = ((name, y.dtype.str, y.shape, y.tobytes()) for name, y in entry.outputs.items())
        key = case.id, *answered
        if key not in self._known:  # releases share most answers, and an explanation takes milliseconds
            answer = Answer("outputs", dict(entry.outputs)) if entry.outputs else None
            worst = judge(case, answer).worst if answer else None
            explanation = explain(case, None, answer, Result(case, entry.outcome, entry.message, worst))
            node = {heading: explanation.facts[heading] for heading in NODE}
            pieces = explained.sections(dataclasses.replace(explanation, facts=node))
            self._known[key] = [self._number(piece) for piece in pieces], worst
        return self._known[key]

    def _number(self, piece: str) -> int:
        data = piece.encode("utf-8")
        key = hashlib.sha256(data).digest()
        if key not in self._numbers:
            self._numbers[key] = len(self.packed)
            self.packed.append(base64.b64encode(gzip.compress(data, 9, mtime=0)).decode("ascii"))
        return self._numbers[key]
