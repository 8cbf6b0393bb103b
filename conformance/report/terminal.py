"""One run on a terminal, and what changed between two reports."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import rich.box
import rich.table
import rich.text
from rich.console import Console

from conformance.case import Basis
from conformance.outcome import Outcome
from conformance.report.record import Entry, Report, Run
from conformance.report.tally import (
    ACCEPTED_COLOUR,
    COLOURS,
    Tally,
    bases_of,
    fact_of,
    families_of,
    kind_of,
    shape_of,
    spoken,
    together,
)

if TYPE_CHECKING:
    from conformance.diagnosis import Diagnosis

WIDTH = 10_000
"""Characters where the output is no terminal: no table is cut there, and no word broken."""

WHOSE = {
    Basis.TEXT: "text: the operator's specification",
    Basis.VECTORS: "vectors: published numbers",
    Basis.REFERENCE: "reference: ONNX's reference evaluator",
    Basis.OURS: "ours: this project's own reading",
}
"""Whose rule it is, in words."""


def console() -> Console:
    """Standard output, as wide as any table where it is no terminal."""
    out = Console(file=sys.stdout)
    return out if out.is_terminal else Console(file=sys.stdout, width=WIDTH)


def line(out: Console, text: str, style: str | None = None) -> None:
    """Print one line whatever its length; text of a runtime or of a report is no markup."""
    out.print(rich.text.Text(text), style=style, soft_wrap=True)


def table(columns: Iterable[tuple[str, str]], first: str = "family") -> rich.table.Table:
    """An empty table: a column for names, and one for each heading and its colour."""
    made = rich.table.Table(box=rich.box.SIMPLE)
    made.add_column(first, no_wrap=True)
    for heading, style in columns:
        made.add_column(rich.text.Text(heading), justify="right", style=style)
    return made


def write(run: Run, out: Console, diagnoses: Sequence[Diagnosis] = ()) -> None:
    """Print a run: its counts, what is not supported or departs, and what failed.

    The last line is `N passed, N failed`, the crashed among the failed, with the departures behind where there are some.
    """
    report = run.report
    families = families_of(report)
    line(out, f"backend {run.backend}")
    out.print(_counts("family", families))
    bases = bases_of(report)
    if bases:
        out.print(_counts("whose rule", {WHOSE[basis]: tally for basis, tally in bases.items()}))
    for (outcome, reason), n in sorted(_reasons(report).items()):
        line(out, f"{n} {outcome.value}: {reason}", COLOURS[outcome])
    for diagnosis in diagnoses:
        line(out, f"{diagnosis.family} {diagnosis}", "bold")
    for result in run.bad:
        kind = kind_of(report.entries[result.case.id])
        line(out, f"{kind} {result.case.id}", ACCEPTED_COLOUR if kind == "accepted" else COLOURS[result.outcome])
        line(out, f"    {result.message}")
        line(out, f"    {result.case.note} [{result.case.source}]")
    all_of_it = run.summary
    departed = f", {all_of_it[Outcome.DEPARTED]} departed" if all_of_it[Outcome.DEPARTED] else ""
    line(out, f"{all_of_it[Outcome.PASSED]} passed, {len(run.bad)} failed{departed}")


def _counts(first: str, tallies: dict[str, Tally]) -> rich.table.Table:
    """A row for each tally and one for all, a column for each outcome; a column of its own for accepted refusals."""
    total = together(tallies.values())
    accepted = [("of these accepted", ACCEPTED_COLOUR)] if total.accepted else []
    columns = [(spoken(outcome.value), COLOURS[outcome]) for outcome in Outcome]
    after = list(Outcome).index(Outcome.FAILED) + 1
    made = table([*columns[:after], *accepted, *columns[after:]], first)

    def add(name: str, tally: Tally, zero: str) -> None:
        numbers = [tally.counts[outcome] for outcome in Outcome]
        shown = [*numbers[:after], *([tally.accepted] if accepted else []), *numbers[after:]]
        made.add_row(rich.text.Text(name), *(str(n or zero) for n in shown))

    for name, tally in tallies.items():
        add(name, tally, "")
    made.add_section()
    add("all", total, "0")
    return made


def _reasons(report: Report) -> Counter[tuple[Outcome, str]]:
    """Why cases are unsupported, departures or expected failures, and how many for each reason.

    The departures of one fact have one line where their messages have one shape: the first of these messages.
    """
    reasons: Counter[tuple[Outcome, str]] = Counter()
    first: dict[tuple[str, str], str] = {}
    for case_id, entry in report.entries.items():
        if entry.outcome is Outcome.DEPARTED:
            fact = fact_of(case_id)
            reasons[entry.outcome, first.setdefault((fact, shape_of(entry.message)), f"{fact}: {entry.message}")] += 1
        elif entry.outcome in (Outcome.UNSUPPORTED, Outcome.EXPECTED_FAILURE):
            reasons[entry.outcome, entry.message] += 1
    return reasons


class Group(Enum):
    """The kinds of change, the worst first. Each change belongs to one."""

    NEWLY_FAILING = "newly failing"
    FAILING_OTHERWISE = "failing otherwise"
    NO_LONGER_FAILING = "no longer failing"
    OTHER = "with another outcome"
    NEW = "new"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Change:
    """A case whose outcome is not the same in two reports; None stands for a report that does not have it."""

    case_id: str
    before: Entry | None
    after: Entry | None

    @property
    def group(self) -> Group:
        """What kind of change it is. A new case that fails is one that is newly failing."""
        if self.after is None:
            return Group.GONE
        was_bad = self.before is not None and self.before.outcome.is_bad
        if self.after.outcome.is_bad:
            return Group.FAILING_OTHERWISE if was_bad else Group.NEWLY_FAILING
        if self.before is None:
            return Group.NEW
        return Group.NO_LONGER_FAILING if was_bad else Group.OTHER

    def __str__(self) -> str:
        known = [entry.outcome.value for entry in (self.before, self.after) if entry]
        return f"{self.case_id}: {' -> '.join(known)}"


def changes(before: Report, after: Report) -> dict[Group, list[Change]]:
    """The cases that changed, by group; all groups, in their order. Cases are in the later report's order."""
    grouped: dict[Group, list[Change]] = {group: [] for group in Group}
    for case_id in dict.fromkeys((*after.entries, *before.entries)):
        old, new = before.entries.get(case_id), after.entries.get(case_id)
        if old is None or new is None or old.outcome is not new.outcome:
            change = Change(case_id, old, new)
            grouped[change.group].append(change)
    return grouped


def write_changes(before: Report, after: Report, out: Console) -> None:
    """Print what changed: counts of the families that differ, then the cases. The last line is the count of each group."""
    line(out, f"{before.title} -> {after.title}")
    differing = _differing(before, after)
    if differing.row_count:
        out.print(differing)
    grouped = changes(before, after)
    for group, found in grouped.items():
        if found:
            line(out, f"{len(found)} {group.value}", "bold")
        for change in found:
            line(out, f"  {change}", COLOURS[change.after.outcome] if change.after else "dim")
            if change.after and change.after.outcome.is_bad and change.after.message:
                line(out, f"      {change.after.message}")
    line(out, ", ".join(f"{len(found)} {group.value}" for group, found in grouped.items()))


def _differing(before: Report, after: Report) -> rich.table.Table:
    """A line for each family whose counts differ, a column for each outcome in which one of them does."""
    old, new = ({name: tally.counts for name, tally in families_of(report).items()} for report in (before, after))
    none = dict.fromkeys(Outcome, 0)
    pairs = {name: (old.get(name, none), new.get(name, none)) for name in dict.fromkeys((*new, *old))}
    pairs = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    shown = [outcome for outcome in Outcome if any(a[outcome] != b[outcome] for a, b in pairs.values())]
    made = table((spoken(outcome.value), COLOURS[outcome]) for outcome in shown)
    for name, (a, b) in pairs.items():
        cells = (f"{a[o]} -> {b[o]}" if a[o] != b[o] else str(a[o] or "") for o in shown)
        made.add_row(rich.text.Text(name), *cells)
    return made
