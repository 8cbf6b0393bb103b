"""Counts of cases by kind of outcome, with the name, meaning and colour of each kind."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from conformance.case import Basis, group_of, scenario_of
from conformance.outcome import Outcome
from conformance.report.record import Entry, Report

if TYPE_CHECKING:
    import rich.text

Key = TypeVar("Key")

COLOURS = {
    "crashed": "magenta",
    "failed": "red",
    "accepted": "dark_orange",
    "departed": "cyan",
    "expected_failure": "yellow",
    "passed": "green",
    "unsupported": "dim",
}
"""The colours of the kinds (see `kind_of`) on a terminal, the worst kind first."""

WHOSE = {
    Basis.TEXT: "text: the operator's specification",
    Basis.VECTORS: "vectors: published numbers",
    Basis.REFERENCE: "reference: ONNX's reference evaluator",
    Basis.OURS: "ours: this project's own reading",
}
"""The name of each basis in reports."""

MEANINGS = {
    "passed": "the answer is right",
    "failed": "the answer is wrong, or the runtime refused a valid case",
    "accepted": "the case failed, because the runtime accepted an invalid node",
    "crashed": "the process ended, or the case exceeded its time or memory",
    "departed": "the case failed, but its rule is too weak to fail the run",
    "expected_failure": "the case failed, and the list of expected failures has it",
    "unsupported": "the runtime does not have the operator, the mode or the element type",
}
"""The meaning of each kind, in the page's order."""

_VARIES = re.compile(r"\b(b?float(16|32|64)?|double)\b|[-+]?(\d[\d.]*(e[-+]?\d+)?|\binf\b|\bnan\b)", re.ASCII)


MAX_CHARACTERS = 240
"""The largest length of a reason that is made from a message."""


def in_words(kind: str) -> str:
    """The name of a kind or an outcome without underscores."""
    return kind.replace("_", " ")


def kind_of(entry: Entry) -> str:
    """The kind of an entry: its outcome, or `accepted` for a failure without a wrong number."""
    return "accepted" if entry.accepted and entry.outcome is Outcome.FAILED else entry.outcome.value


def pattern_of(message: str) -> str:
    """A message with `#` in place of numbers and element types, so that most failures with one cause have the same."""
    return _VARIES.sub("#", message)


def counted(n: int, outcome: Outcome) -> str:
    """A number of cases with an outcome, in words."""
    return f"{n} {in_words(outcome.value)}{'s' * (outcome is Outcome.EXPECTED_FAILURE and n != 1)}"


def cut(message: str) -> str:
    """A message of at most `MAX_CHARACTERS`."""
    return message if len(message) <= MAX_CHARACTERS else f"{message[: MAX_CHARACTERS - 3].rstrip()}..."


@dataclass(frozen=True, slots=True)
class Tally:
    """The number of cases of each kind."""

    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def counts(self) -> Counter[Outcome]:
        """The number of cases with each outcome; `accepted` counts as failed."""
        counts = Counter({outcome: self.kinds[outcome.value] for outcome in Outcome})
        return counts + Counter({Outcome.FAILED: self.kinds["accepted"]})

    @property
    def total(self) -> int:
        """The number of cases."""
        return self.kinds.total()

    @property
    def passed(self) -> int:
        """The number of cases that passed."""
        return self.kinds["passed"]

    @property
    def bad(self) -> int:
        """The number of cases that fail the run."""
        return sum(n for outcome, n in self.counts.items() if outcome.is_bad)

    @property
    def worst(self) -> str:
        """The worst kind, `unsupported` only if there is no other; empty without cases."""
        return next((kind for kind in COLOURS if self.kinds[kind]), "")

    @property
    def score(self) -> str:
        """Passed/total; `unsupported` if all cases are, and empty without cases."""
        return self.worst if self.worst in ("", "unsupported") else f"{self.passed}/{self.total}"

    @property
    def rest(self) -> dict[str, str]:
        """The counts of cases that did not pass, in words by outcome; empty if the score is `unsupported`."""
        return {} if self.worst == "unsupported" else self.words

    @property
    def words(self) -> dict[str, str]:
        """The counts of cases that did not pass, in words by outcome."""
        words = {}
        for outcome in map(Outcome, (kind for kind in COLOURS if kind not in ("accepted", "passed"))):
            n, accepted = self.counts[outcome], self.kinds["accepted"] if outcome is Outcome.FAILED else 0
            if n:
                words[outcome.value] = counted(n, outcome) + f" ({accepted} accepted)" * bool(accepted)
        return words

    def __str__(self) -> str:
        return ", ".join((self.score, *self.rest.values()))

    def texts(self) -> list[rich.text.Text]:
        """The score and the counts of other outcomes, for a terminal."""
        import rich.text  # of the extra conformance

        score = rich.text.Text(self.score, COLOURS[self.worst] if self.worst in ("passed", "unsupported") else "")
        return [score, *(rich.text.Text(words, COLOURS[outcome]) for outcome, words in self.rest.items())]


def total_of(tallies: Iterable[Tally]) -> Tally:
    """The sum of tallies."""
    return Tally(sum((tally.kinds for tally in tallies), Counter[str]()))


def groups_of(report: Report) -> dict[str, Tally]:
    """The tally of each group of cases, in the report's order."""
    return _tallies((group_of(case_id), entry) for case_id, entry in report.entries.items())


def bases_of(report: Report) -> dict[Basis, Tally]:
    """The tally of each basis of the cases, the strongest first; empty if the report does not have the basis."""
    found = _tallies((entry.basis, entry) for entry in report.entries.values())
    return {basis: found[basis] for basis in Basis if basis in found}


def reasons_of(report: Report, *outcomes: Outcome) -> list[tuple[Outcome, str, int]]:
    """The reasons for these outcomes with their numbers of cases, the most frequent first.

    Messages with the same pattern count as one reason, and so do departures of one scenario.
    """
    counts, first = Counter[tuple[Outcome, str]](), dict[tuple[Outcome, str], str]()
    for case_id, entry in report.entries.items():
        if entry.outcome in outcomes:
            where = f"{scenario_of(case_id)}: " if entry.outcome is Outcome.DEPARTED else ""
            key = entry.outcome, where + pattern_of(entry.message)
            first.setdefault(key, where + entry.message)
            counts[key] += 1
    return [(key[0], first[key], n) for key, n in counts.most_common()]


def _tallies(pairs: Iterable[tuple[Key, Entry]]) -> dict[Key, Tally]:
    tallies: dict[Key, Tally] = {}
    for key, entry in pairs:
        tallies.setdefault(key, Tally()).kinds[kind_of(entry)] += 1
    return tallies
