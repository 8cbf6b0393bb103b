"""What changed between two runs, from their reports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import rich.box
import rich.markup
import rich.table
import rich.text
from rich.console import Console

from conformance.outcome import Outcome
from conformance.report.read import Entry, Report
from conformance.report.terminal import COLOURS


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
        if self.before is None or self.after is None:
            entry = self.after or self.before
            return f"{self.case_id}: {entry.outcome.value if entry else ''}"
        return f"{self.case_id}: {self.before.outcome.value} -> {self.after.outcome.value}"


def changes(before: Report, after: Report) -> dict[Group, list[Change]]:
    """The cases that changed, by group; all groups, in their order. Cases are in the later report's order."""
    grouped: dict[Group, list[Change]] = {group: [] for group in Group}
    for case_id in dict.fromkeys((*after.entries, *before.entries)):
        old, new = before.entries.get(case_id), after.entries.get(case_id)
        if old is None or new is None or old.outcome is not new.outcome:
            change = Change(case_id, old, new)
            grouped[change.group].append(change)
    return grouped


def write(before: Report, after: Report, console: Console) -> None:
    """Print what changed: counts of the families that differ, then the cases. The last line is the count of each group."""
    table = _table(before, after)
    if table.row_count:
        console.print(table)
    else:
        _line(console, None, f"{before.backend} -> {after.backend}")
    grouped = changes(before, after)
    for group, found in grouped.items():
        if found:
            _line(console, "bold", f"{len(found)} {group.value}")
        for change in found:
            _write_change(change, console)
    _line(console, None, ", ".join(f"{len(found)} {group.value}" for group, found in grouped.items()))


def _write_change(change: Change, console: Console) -> None:
    _line(console, COLOURS[change.after.outcome] if change.after else "dim", f"  {change}")
    if change.after and change.after.outcome.is_bad and change.after.message:
        _line(console, None, f"      {change.after.message}")


def _table(before: Report, after: Report) -> rich.table.Table:
    """A line for each family whose counts differ, a column for each outcome in which one of them does."""
    old, new = before.families, after.families
    none = dict.fromkeys(Outcome, 0)
    pairs = {name: (old.get(name, none), new.get(name, none)) for name in dict.fromkeys((*new, *old))}
    pairs = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    shown = [outcome for outcome in Outcome if any(a[outcome] != b[outcome] for a, b in pairs.values())]
    title = rich.markup.escape(f"{before.backend} -> {after.backend}")
    table = rich.table.Table(title=title, box=rich.box.SIMPLE, title_justify="left")
    table.add_column("family", no_wrap=True)
    for outcome in shown:
        table.add_column(outcome.value.replace("_", "\n"), justify="right", style=COLOURS[outcome], vertical="bottom")
    for name, (a, b) in pairs.items():
        table.add_row(rich.markup.escape(name), *_cells((a[outcome], b[outcome]) for outcome in shown))
    return table


def _cells(counts: Iterable[tuple[int, int]]) -> list[str]:
    """`before -> after` where they differ, the one number where not, nothing where that is 0."""
    return [f"{a} -> {b}" if a != b else str(a or "") for a, b in counts]


def _line(console: Console, style: str | None, text: str) -> None:
    """One line whatever its length; text of a report is no markup."""
    console.print(rich.text.Text(text, style or ""), soft_wrap=True)
