# SPDX-License-Identifier: MIT OR Apache-2.0
"""Counts of cases by kind of outcome, and the rows of the tables that a terminal, a page and Markdown show."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from conformance.case import Basis, group_of, scenario_of
from conformance.cases import collect
from conformance.outcome import Outcome, Reason, Result
from conformance.report.record import Report
from ortops.operators.asked import BY_NAME

Key = TypeVar("Key")
Tally = Counter[str]
"""The number of cases of each kind: see `kind_of`."""

COLOURS = {
    "crashed": "magenta",
    "failed": "red",
    "accepted": "dark_orange",
    "unexpected_pass": "dark_orange",
    "departed": "cyan",
    "expected_failure": "yellow",
    "passed": "green",
    "unsupported": "dim",
}
"""The colours of the kinds on a terminal, the worst kind first."""

BAD = ("crashed", "failed", "accepted", "unexpected_pass")
"""The kinds of cases that fail a run."""

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
    "unexpected_pass": "the answer is right, but the list of expected failures has the case",
    "crashed": "the process ended, or the case exceeded its time or memory",
    "departed": "the case failed, but the level does not ask for its rule",
    "expected_failure": "the case failed, and the list of expected failures has it",
    "unsupported": "the runtime does not have the operator, the mode or the element type",
}
"""The meaning of each kind, in the page's order."""

MAX_CHARACTERS = 240
"""The largest length of a reason that is made from a message."""

MAX_ROWS = 10
"""The largest number of rows for single groups in a short table."""

_VARIES = re.compile(r"\b(b?float(16|32|64)?|double)\b|[-+]?(\d[\d.]*(e[-+]?\d+)?|\binf\b|\bnan\b)", re.ASCII)
_MARKUP = re.compile(r"([\\`*|<>\[\]~&]|(?<!\w)_|_(?!\w))")


def in_words(kind: str) -> str:
    """The name of a kind or an outcome without underscores."""
    return kind.replace("_", " ")


_OF_FAILED = {Reason.ACCEPTED: "accepted", Reason.LISTED: "unexpected_pass"}
"""The kinds of failures that are not wrong answers, by their reasons."""

_PLURALS = {"expected_failure": "s", "unexpected_pass": "es"}


def kind_of(entry: Result) -> str:
    """The kind of an entry: its outcome, or `accepted` or `unexpected_pass` for failures for these reasons."""
    kind = _OF_FAILED.get(entry.reason) if entry.reason and entry.outcome is Outcome.FAILED else None
    return kind or entry.outcome.value


def pattern_of(message: str) -> str:
    """A message with `#` in place of numbers and element types, so that most failures with one cause have the same."""
    return _VARIES.sub("#", message)


def cut(message: str) -> str:
    """A message of at most `MAX_CHARACTERS`."""
    return message if len(message) <= MAX_CHARACTERS else f"{message[: MAX_CHARACTERS - 3].rstrip()}..."


def counted(n: int, kind: str) -> str:
    """A number of cases of a kind, in words."""
    return f"{n} {in_words(kind)}{_PLURALS.get(kind, '') if n != 1 else ''}"


def kind_or_failed(entry: Result) -> str:
    """The kind of an entry, with `failed` in place of `accepted`, which old reports do not tell apart."""
    kind = kind_of(entry)
    return "failed" if kind == "accepted" else kind


def others(tally: Tally, kinds: Iterable[str] = COLOURS) -> list[tuple[str, str]]:
    """The counts of cases that did not pass, in words with their kind; `accepted` is a part of `failed`."""
    words, accepted = [], tally["accepted"]
    for kind in kinds:
        count = tally[kind] + (accepted if kind == "failed" else 0)
        if count and kind not in ("accepted", "passed"):
            text = counted(count, kind)
            words.append((f"{text} ({accepted} accepted)" if accepted and kind == "failed" else text, kind))
    return words


def cell(tally: Tally) -> list[tuple[str, str]]:
    """The texts of a cell: passed/total with the worst kind, and the others with their outcome.

    The only text is `unsupported` if all cases are, and empty without cases.
    """
    worst = next((kind for kind in COLOURS if tally[kind]), "")
    if worst in ("", "unsupported"):
        return [(worst, worst)]
    return [(f"{tally['passed']}/{tally.total()}", worst), *others(tally)]


@dataclass(frozen=True, slots=True)
class Row:
    """A row for one group of cases, for several groups, or for a basis, with a tally for each report.

    groups: the groups of a row for several groups.
    """

    name: str
    tallies: tuple[Tally, ...]
    groups: tuple[str, ...] = ()


def tallies_of(
    report: Report, key: Callable[[str, Result], Key], kind: Callable[[Result], str] = kind_of
) -> dict[Key, Tally]:
    """The tally of the cases with each key, a function of the id and the entry, in the report's order."""
    tallies: dict[Key, Tally] = {}
    for case_id, entry in report.entries.items():
        tallies.setdefault(key(case_id, entry), Counter())[kind(entry)] += 1
    return tallies


def rows(reports: Sequence[Report]) -> list[Row]:
    """A row for each group of cases in the reports, function by function, unknown ones last."""
    groups = [tallies_of(report, lambda case_id, _: group_of(case_id)) for report in reports]
    names = sorted({name for tallies in groups for name in tallies}, key=_place)
    return [Row(name, tuple(tallies.get(name, Counter()) for tallies in groups)) for name in names]


def basis_rows(reports: Sequence[Report]) -> list[Row]:
    """A row for each basis of the cases; none if the reports do not have the basis."""
    bases = [tallies_of(report, lambda _, entry: entry.basis) for report in reports]
    every = [Row(words, tuple(tallies.get(basis, Counter()) for tallies in bases)) for basis, words in WHOSE.items()]
    return [row for row in every if any(row.tallies)]


def total(every: Sequence[Row], name: str = "all") -> Row:
    """One row for several rows."""
    columns = zip(*(row.tallies for row in every), strict=True)
    return Row(name, tuple(sum(column, Counter()) for column in columns))


def brief(every: Sequence[Row], most: int | None = None) -> list[Row]:
    """The rows, with one row for all groups that no backend supports.

    Args:
        every: the rows of groups.
        most: how many other rows there may be. If there are more, one row has the groups that all backends pass, and another
            one has the groups with fewer failures.
    """
    shown, unsupported = _split(every, lambda row: _is_all(row, "unsupported"))
    passed: list[Row] = []
    few: list[Row] = []
    if most is not None and len(shown) > most:
        shown, passed = _split(shown, lambda row: _is_all(row, "passed"))
        worst = sorted(shown, key=lambda row: -sum(tally[kind] for tally in row.tallies for kind in BAD))[:most]
        shown, few = _split(shown, lambda row: row not in worst)
    folded = ("other groups", few), ("groups that pass", passed), ("unsupported groups", unsupported)
    for name, some in folded:
        if len(some) == 1:
            shown += some
        elif some:
            names = tuple(row.name for row in some)
            shown.append(replace(total(some, f"{len(some)} {name}"), groups=names))
    return shown


def _split(every: Sequence[Row], is_apart: Callable[[Row], bool]) -> tuple[list[Row], list[Row]]:
    return [row for row in every if not is_apart(row)], [row for row in every if is_apart(row)]


def _is_all(row: Row, kind: str) -> bool:
    return all(set(+tally) <= {kind} for tally in row.tallies)


def _place(name: str) -> tuple[int | str, ...]:
    """A sort key for the row of a group: by operator, then in the order of the suite."""
    parts = zip((name.partition("/")[0], name), _order(), strict=True)
    return *(order.index(part) if part in order else len(order) for part, order in parts), name


@functools.cache
def _order() -> tuple[list[str], list[str]]:
    functions = dict.fromkeys(operator.function for operator in BY_NAME.values())
    return list(functions), list(dict.fromkeys(case.group for case in collect()))


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


def markdown(reports: Sequence[Report]) -> str:
    """Reports as a Markdown table, short enough for a README, and a second table by basis if they have it."""
    titles, groups, bases = [report.title for report in reports], rows(reports), basis_rows(reports)
    every = [*brief(groups, MAX_ROWS), total(groups)]

    def lines(heading: str, table: Sequence[Row]) -> list[str]:
        texts = [[row.name, *(", ".join(text for text, _ in cell(tally)) for tally in row.tallies)] for row in table]
        return [_line([heading, *titles]), f"| --- |{' ---: |' * len(titles)}", *map(_line, texts)]

    kinds = {kind for tally in every[-1].tallies for kind in +tally} - {"passed"}
    meanings = [f"{in_words(kind).capitalize()}: {MEANINGS[kind]}." for kind in MEANINGS if kind in kinds]
    text = [*lines("group of cases", every), "", " ".join(("Passed/total.", *meanings))]
    return "\n".join([*text, "", *lines("whose rule", bases)] if bases else text) + "\n"


def _line(cells: Iterable[str]) -> str:
    """A line of a table, with markup in the text of reports escaped and line ends removed."""
    texts = [_MARKUP.sub(r"\\\1", " ".join(text.split())) for text in cells]
    return f"| {' | '.join(texts)} |"
