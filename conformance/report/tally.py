"""Counting the entries of a report, and what the outcomes are called and coloured wherever they are counted."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import rich.text

from conformance.case import Basis
from conformance.outcome import Outcome
from conformance.report.record import Counts, Entry, Report, count, family

COLOURS = {
    Outcome.PASSED: "green",
    Outcome.FAILED: "red",
    Outcome.CRASHED: "magenta",
    Outcome.DEPARTED: "cyan",
    Outcome.UNSUPPORTED: "dim",
    Outcome.EXPECTED_FAILURE: "yellow",
}
ACCEPTED_COLOUR = "dark_orange"

FAILURES = (Outcome.CRASHED, Outcome.FAILED, Outcome.DEPARTED, Outcome.EXPECTED_FAILURE)
"""The outcomes of a runtime that has a case wrong, whether that is known or not; the worst first."""

MEANINGS = {
    "passed": "the answer is right",
    "failed": "the answer is wrong, or the runtime refused what it has to answer",
    "accepted": "a failure without a wrong number: the runtime answered where an error is due",
    "crashed": "the runtime ended its process, or gave no answer in time",
    "departed": "it fails a case whose rule is weaker than the run insists on",
    "expected_failure": "it fails as the list of expected failures says",
    "unsupported": "the runtime does not have the operator, the mode or the element type",
}
"""The key to words and colours."""

_VARIES = re.compile(r"\b(b?float(16|32|64)?|double)\b|[-+]?(\d[\d.]*(e[-+]?\d+)?|\binf\b|\bnan\b)", re.ASCII)


def spoken(outcome: str) -> str:
    """An outcome as sentences have it."""
    return outcome.replace("_", " ")


def kind_of(entry: Entry) -> str:
    """The word for what came of a case: the outcome, or `accepted` for a failure that is no wrong number."""
    return "accepted" if entry.accepted and entry.outcome is Outcome.FAILED else entry.outcome.value


def fact_of(case_id: str) -> str:
    """The first three parts of an id, which the types, opsets and variants of one fact have in common."""
    return "/".join(case_id.split("/")[:3])


def shape_of(message: str) -> str:
    """A message without its numbers and element types, in which those of one cause differ."""
    return _VARIES.sub("#", message)


@dataclass(frozen=True, slots=True)
class Tally:
    """How many cases have each outcome.

    accepted: how many of the failed have no wrong number, but an answer where an error is due.
    """

    counts: Counts
    accepted: int = 0

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Tally:
        """The tally of entries."""
        listed = list(entries)
        return cls(count(entry.outcome for entry in listed), sum(kind_of(entry) == "accepted" for entry in listed))

    @property
    def asked(self) -> int:
        """How many cases there are."""
        return sum(self.counts.values())

    @property
    def passed(self) -> int:
        """How many of them passed; the unsupported are none of these."""
        return self.counts[Outcome.PASSED]

    @property
    def kinds(self) -> dict[str, int]:
        """How many cases there are of each kind, as `kind_of` has it; the worst first, no zeros."""
        counts: dict[str, int] = {}
        for outcome in (*FAILURES, Outcome.PASSED, Outcome.UNSUPPORTED):
            counts[outcome.value] = self.counts[outcome] - (self.accepted if outcome is Outcome.FAILED else 0)
            if outcome is Outcome.FAILED:
                counts["accepted"] = self.accepted
        return {kind: n for kind, n in counts.items() if n}

    @property
    def worst(self) -> str:
        """The worst kind; `unsupported` only where there is nothing else, and empty where nothing was asked."""
        return next(iter(self.kinds), "")

    @property
    def score(self) -> str:
        """Passed of asked; `unsupported` where all are, and nothing where nothing was asked."""
        return self.worst if self.worst in ("", Outcome.UNSUPPORTED) else f"{self.passed}/{self.asked}"

    @property
    def rest(self) -> tuple[tuple[Outcome, str], ...]:
        """What did not pass, in words; nothing where the score says it."""
        if self.worst == Outcome.UNSUPPORTED:
            return ()
        return tuple((o, self._words(o)) for o in (*FAILURES, Outcome.UNSUPPORTED) if self.counts[o])

    def _words(self, outcome: Outcome) -> str:
        n = self.counts[outcome]
        plural = "s" if outcome is Outcome.EXPECTED_FAILURE and n != 1 else ""
        accepted = f" ({self.accepted} accepted)" if outcome is Outcome.FAILED and self.accepted else ""
        return f"{n} {spoken(outcome.value)}{plural}{accepted}"

    def __str__(self) -> str:
        return ", ".join((self.score, *(words for _, words in self.rest)))

    def text(self) -> rich.text.Text:
        """The score, and a line for each other outcome, for a terminal."""
        style = COLOURS[Outcome(self.worst)] if self.worst in (Outcome.PASSED, Outcome.UNSUPPORTED) else ""
        text = rich.text.Text(self.score, style)
        for outcome, words in self.rest:
            text.append(f"\n{words}", COLOURS[outcome])
        return text


def together(tallies: Iterable[Tally]) -> Tally:
    """The sum of tallies."""
    listed = list(tallies)
    return Tally({o: sum(t.counts[o] for t in listed) for o in Outcome}, sum(t.accepted for t in listed))


def families_of(report: Report) -> dict[str, Tally]:
    """The tally of each family, in the report's order."""
    groups = report.grouped(lambda case_id, _: family(case_id))
    return {name: Tally.of(entries) for name, entries in groups.items()}


def bases_of(report: Report) -> dict[Basis, Tally]:
    """The tally of each basis that a case has, the strongest first; nothing where the report does not say whose rules."""
    groups = report.grouped(lambda _, entry: entry.basis)
    return {basis: Tally.of(groups[basis]) for basis in Basis if basis in groups}
