"""Output on a terminal: one run, or the changes between two reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING

from conformance.case import scenario_of
from conformance.cases import collect
from conformance.outcome import Outcome
from conformance.report import matrix, tally
from conformance.report.matrix import Matrix
from conformance.report.record import Entry, Report
from conformance.report.tally import COLOURS, cut, in_words, kind_of
from conformance.terminal import line, table

if TYPE_CHECKING:
    import rich.table
    from rich.console import Console

    from conformance.report.causes import Cause


MAX_CAUSES = 8
"""How many causes of failures are listed."""

MAX_EXAMPLES = 4
"""How many failures are shown in full."""

MAX_REASONS = 4
"""How many reasons for unsupported cases and expected failures are listed."""


def write(report: Report, out: Console, causes: Sequence[Cause] = (), *, verbose: bool = False) -> None:
    """Print a report: counts, causes of failures, some failures, the table of the groups, and `N passed, N failed`.

    The last line counts crashes as failures, and adds the number of departures if there are any.

    Args:
        report: the report of a run.
        out: the terminal.
        causes: the causes of its failures.
        verbose: whether to print everything: all causes, failures, departures and groups.
    """
    counts, made = report.summary, Matrix([report])
    total = made.total.cells[0]
    line(out, f"backend {report.backend}")
    words = [f"{total.passed} of {total.total} passed", *total.words.values()]
    line(out, f"{', '.join(words)}; {report.seconds:.0f} s")
    _write_some([(str(one), "bold") for one in causes], None if verbose else MAX_CAUSES, "causes", out)
    outcomes = (Outcome.UNSUPPORTED, Outcome.EXPECTED_FAILURE, *([Outcome.DEPARTED] if verbose else []))
    reasons = tally.reasons_of(report, *outcomes)
    told = [(f"{tally.counted(n, outcome)}: {cut(reason)}", COLOURS[outcome.value]) for outcome, reason, n in reasons]
    _write_some(told, None if verbose else MAX_REASONS, "reasons", out)
    _write_failures(report, out, list(report.failing) if verbose else _examples(report, causes))
    matrix.write(made, out, matrix.MAX_ROWS, verbose=verbose)
    departed = f", {counts[Outcome.DEPARTED]} departed" if counts[Outcome.DEPARTED] else ""
    line(out, f"{counts[Outcome.PASSED]} passed, {len(report.failing)} failed{departed}")


def _write_some(lines: Sequence[tuple[str, str]], most: int | None, what: str, out: Console) -> None:
    """Print lines with their styles, or the first of them and the number of the others."""
    shown = lines if most is None or len(lines) <= most else lines[:most]
    for text, style in shown:
        line(out, text, style)
    if len(shown) < len(lines):
        line(out, f"and {len(lines) - len(shown)} other {what}: see --verbose", "dim")


def _examples(report: Report, causes: Sequence[Cause]) -> list[str]:
    """The failures that are shown in full: first one of each cause, then one of each scenario, then others."""
    first = [cause.results[0].case.id for cause in causes]
    scenarios = {scenario_of(case_id): case_id for case_id in reversed([*first, *report.failing])}
    return list(dict.fromkeys([*first, *reversed(scenarios.values()), *report.failing]))[:MAX_EXAMPLES]


def _write_failures(report: Report, out: Console, chosen: Sequence[str]) -> None:
    cases = {case.id: case for case in collect()}
    for case_id in chosen:
        entry, case = report.entries[case_id], cases[case_id]
        line(out, f"{kind_of(entry)} {case_id}", COLOURS[kind_of(entry)], is_whole=True)  # to be copied
        line(out, f"    {entry.message}")
        line(out, f"    {case.note} [{case.source}]")
    rest = len(report.failing) - len(chosen)
    if rest:
        line(out, f"and {rest} other failure{'s' * (rest > 1)}: see --verbose", "dim")


class Group(Enum):
    """The kinds of change between two reports, the worst first."""

    NEWLY_FAILING = "newly failing"
    FAILING_OTHERWISE = "failing otherwise"
    NO_LONGER_FAILING = "no longer failing"
    OTHER = "with another outcome"
    NEW = "new"
    GONE = "gone"


def _group(before: Entry | None, after: Entry | None) -> Group:
    """The kind of a change; None stands for a report without the case. A new case that fails is newly failing."""
    if after is None:
        return Group.GONE
    was_bad = before is not None and before.outcome.is_bad
    if after.outcome.is_bad:
        return Group.FAILING_OTHERWISE if was_bad else Group.NEWLY_FAILING
    if before is None:
        return Group.NEW
    return Group.NO_LONGER_FAILING if was_bad else Group.OTHER


def changes(before: Report, after: Report) -> dict[Group, list[str]]:
    """The ids of the cases whose outcome changed, by kind of change, in the order of the later report."""
    grouped: dict[Group, list[str]] = {group: [] for group in Group}
    for case_id in {**after.entries, **before.entries}:
        old, new = before.entries.get(case_id), after.entries.get(case_id)
        if old is None or new is None or old.outcome is not new.outcome:
            grouped[_group(old, new)].append(case_id)
    return grouped


def write_changes(before: Report, after: Report, out: Console) -> dict[Group, list[str]]:
    """Print the groups of cases whose counts differ, the changed cases, and the number of changes of each kind."""
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
    """A table of the groups whose counts differ, with a column for each outcome that differs."""
    old, new = ({name: own.counts for name, own in tally.groups_of(report).items()} for report in (before, after))
    pairs = {name: (old.get(name, Counter()), new.get(name, Counter())) for name in {**new, **old}}
    pairs = {name: (a, b) for name, (a, b) in pairs.items() if a != b}
    shown = [outcome for outcome in Outcome if any(a[outcome] != b[outcome] for a, b in pairs.values())]
    rows = (
        (name, [f"{a[o]} -> {b[o]}" if a[o] != b[o] else str(a[o] or "") for o in shown])
        for name, (a, b) in pairs.items()
    )
    return table(((in_words(outcome.value), COLOURS[outcome.value]) for outcome in shown), "group of cases", rows)
