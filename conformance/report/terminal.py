"""Output on a terminal: one run, or the changes between two reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from conformance.outcome import Outcome
from conformance.report import tally
from conformance.report.record import Entry, Report
from conformance.report.tally import COLOURS, WHOSE, Tally, in_words, kind_of
from conformance.terminal import line, table, with_total
from conformance.vectors import collect

if TYPE_CHECKING:
    import rich.table
    from rich.console import Console

    from conformance.diagnosis import Diagnosis


def write(report: Report, out: Console, diagnoses: Sequence[Diagnosis] = ()) -> None:
    """Print a report: counts, reasons of unsupported cases and departures, failures, and `N passed, N failed`.

    That last line counts crashes as failures, and adds the number of departures if there are any.
    """
    counts, cases = report.summary, {case.id: case for case in collect()}
    line(out, f"backend {report.backend}")
    out.print(_counts("group of cases", tally.groups_of(report)))
    bases = tally.bases_of(report)
    if bases:
        out.print(_counts("whose rule", {WHOSE[basis]: own for basis, own in bases.items()}))
    for (outcome, reason), n in sorted(tally.reasons_of(report).items()):
        line(out, f"{n} {in_words(outcome.value)}: {reason}", COLOURS[outcome.value])
    for diagnosis in diagnoses:
        line(out, f"{diagnosis.family} {diagnosis}", "bold")
    for case_id, entry in report.failing.items():
        kind, case = kind_of(entry), cases[case_id]
        line(out, f"{kind} {case_id}", COLOURS[kind])
        line(out, f"    {entry.message}")
        line(out, f"    {case.note} [{case.source}]")
    departed = f", {counts[Outcome.DEPARTED]} departed" if counts[Outcome.DEPARTED] else ""
    line(out, f"{counts[Outcome.PASSED]} passed, {len(report.failing)} failed{departed}")


def _counts(first: str, tallies: Mapping[str, Tally]) -> rich.table.Table:
    """A row for each tally and one for all, with a column for each outcome, and one for `accepted` if there are any."""
    total = tally.total_of(tallies.values())
    kinds = [outcome.value for outcome in Outcome]
    if total.kinds["accepted"]:
        kinds.insert(kinds.index("failed") + 1, "accepted")
    columns = [("of these accepted" if kind == "accepted" else in_words(kind), COLOURS[kind]) for kind in kinds]

    def cells(own: Tally, zero: str = "") -> list[str]:
        numbers = (own.kinds[kind] if kind == "accepted" else own.counts[Outcome(kind)] for kind in kinds)
        return [str(n or zero) for n in numbers]

    rows = [(name, cells(own)) for name, own in tallies.items()]
    return with_total(table(columns, first, [*rows, ("all", cells(total, "0"))]))


class Group(Enum):
    """The kinds of change between two reports, the worst first."""

    NEWLY_FAILING = "newly failing"
    FAILING_OTHERWISE = "failing otherwise"
    NO_LONGER_FAILING = "no longer failing"
    OTHER = "with another outcome"
    NEW = "new"
    GONE = "gone"


def _group(before: Entry | None, after: Entry | None) -> Group:
    """The kind of a change; None is for a report without the case. A new case that fails is newly failing."""
    if after is None:
        return Group.GONE
    was_bad = before is not None and before.outcome.is_bad
    if after.outcome.is_bad:
        return Group.FAILING_OTHERWISE if was_bad else Group.NEWLY_FAILING
    if before is None:
        return Group.NEW
    return Group.NO_LONGER_FAILING if was_bad else Group.OTHER


def changes(before: Report, after: Report) -> dict[Group, list[str]]:
    """The ids of the cases whose outcome changed, for every group, in the order of the later report."""
    grouped: dict[Group, list[str]] = {group: [] for group in Group}
    for case_id in {**after.entries, **before.entries}:
        old, new = before.entries.get(case_id), after.entries.get(case_id)
        if old is None or new is None or old.outcome is not new.outcome:
            grouped[_group(old, new)].append(case_id)
    return grouped


def write_changes(before: Report, after: Report, out: Console) -> dict[Group, list[str]]:
    """Print the groups of cases whose counts differ, the cases that changed and the size of each kind of change."""
    line(out, f"{before.title} -> {after.title}")
    differing = _differing(before, after)
    if differing.row_count:
        out.print(differing)
    grouped = changes(before, after)
    for group, found in grouped.items():
        if found:
            line(out, f"{len(found)} {group.value}", "bold")
        for case_id in found:
            outcomes = [report.entries[case_id].outcome for report in (before, after) if case_id in report.entries]
            new = after.entries.get(case_id)
            said = " -> ".join(outcome.value for outcome in outcomes)
            line(out, f"  {case_id}: {said}", COLOURS[new.outcome.value] if new else "dim")
            if new and new.outcome.is_bad and new.message:
                line(out, f"      {new.message}")
    line(out, ", ".join(f"{len(found)} {group.value}" for group, found in grouped.items()))
    return grouped


def _differing(before: Report, after: Report) -> rich.table.Table:
    """A row for each group whose counts differ, and a column for each outcome in which they do."""
    old, new = ({name: own.counts for name, own in tally.groups_of(report).items()} for report in (before, after))
    pairs = {name: (old.get(name, Counter()), new.get(name, Counter())) for name in {**new, **old}}
    pairs = {name: (a, b) for name, (a, b) in pairs.items() if a != b}
    shown = [outcome for outcome in Outcome if any(a[outcome] != b[outcome] for a, b in pairs.values())]
    rows = (
        (name, [f"{a[o]} -> {b[o]}" if a[o] != b[o] else str(a[o] or "") for o in shown])
        for name, (a, b) in pairs.items()
    )
    return table(((in_words(outcome.value), COLOURS[outcome.value]) for outcome in shown), "group of cases", rows)
