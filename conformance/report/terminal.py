# SPDX-License-Identifier: MIT OR Apache-2.0
"""Output on a terminal: lines and tables, one run, several runs, or the changes between two."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from conformance.case import group_of, scenario_of
from conformance.cases import by_id
from conformance.outcome import Outcome, Reason, Result
from conformance.report import counts
from conformance.report.counts import COLOURS, MEANINGS, Row, cut, in_words, kind_of, kind_or_failed
from conformance.report.record import Report
from conformance.report.verdict import verdict

if TYPE_CHECKING:
    import rich.table
    from rich.console import Console
    from rich.text import Text

    from conformance.report.causes import Cause

WIDTH = 10_000
"""The length of a line if the output is not a terminal: enough for all tables and lines."""

INDENT = 4
"""Spaces before the parts of a broken line, after the first part."""

SPACES = 10
"""Spaces of a row of a table with three columns."""

MAX_CAUSES = 8
"""How many causes of failures are listed."""

MAX_EXAMPLES = 4
"""How many failures are shown in full."""

MAX_REASONS = 4
"""How many reasons for unsupported cases and expected failures are listed."""


def console() -> Console:
    """The standard output, with lines of `WIDTH` characters if it is not a terminal."""
    from rich.console import Console  # of the extra conformance

    out = Console(file=sys.stdout)
    return out if out.is_terminal else Console(file=sys.stdout, width=WIDTH)


def line(out: Console, text: str, style: str | None = None, *, is_whole: bool = False) -> None:
    """Print one line, without reading rich's markup in it.

    On a terminal a long line is broken between words, unless `is_whole`. The lines after the first are indented.
    """
    import rich.text

    whole = rich.text.Text(text)
    if is_whole or not out.is_terminal or whole.cell_len <= out.width:
        out.print(whole, style=style, soft_wrap=True)
        return
    spaces = len(text) - len(text.lstrip(" "))
    indent = spaces or INDENT
    for k, part in enumerate(rich.text.Text(text[spaces:]).wrap(out, out.width - indent)):
        out.print(rich.text.Text(" " * (indent if k else spaces)) + part, style=style, soft_wrap=True)


def table(
    columns: Iterable[tuple[str, str]], first: str, rows: Iterable[tuple[str, Iterable[str | Text]]] = ()
) -> rich.table.Table:
    """A table with a column for names and a column for each heading and colour. Rows have a name and the other cells.

    Strings are printed literally, without rich's markup.
    """
    import rich.box
    import rich.table
    import rich.text

    drawn = rich.table.Table(box=rich.box.SIMPLE)
    drawn.add_column(first, no_wrap=True)
    for heading, style in columns:
        longest = max(map(len, heading.split()), default=1)
        drawn.add_column(rich.text.Text(heading), justify="right", style=style, overflow="fold", min_width=longest)
    for name, cells in rows:
        drawn.add_row(*(rich.text.Text(cell) if isinstance(cell, str) else cell for cell in (name, *cells)))
    return drawn


def write(
    report: Report, out: Console, causes: Sequence[Cause] = (), *, has_own_list: bool = False, verbose: bool = False
) -> None:
    """Print a report: the verdict, counts, causes, some failures, the table of the groups, and the counts that matter.

    Args:
        report: the report of a run.
        out: the terminal.
        causes: the causes of its failures.
        has_own_list: whether the expected failures are those that the backend declares.
        verbose: whether to print everything: all causes, failures, departures and groups.
    """
    tally = Counter(map(kind_of, report.entries.values()))
    line(out, f"backend {report.backend}")
    line(out, verdict(report, causes), "bold")
    own = {"expected_failure": " (the backend's own list)"} if has_own_list else {}
    words = ", ".join(text + own.get(kind, "") for text, kind in counts.others(tally))
    line(out, f"{tally['passed']} of {tally.total()} passed{', ' * bool(words)}{words}; {report.seconds:.0f} s")
    _write_some([(str(cause), "bold") for cause in causes], None if verbose else MAX_CAUSES, "causes", out)
    if tally["unexpected_pass"]:
        line(out, "take unexpected passes off the list, as --write-expected-failures F --update does")
    outcomes = (Outcome.UNSUPPORTED, Outcome.EXPECTED_FAILURE, *([Outcome.DEPARTED] if verbose else []))
    reasons = counts.reasons_of(report, *outcomes)
    told = [(f"{counts.counted(n, outcome)}: {cut(reason)}", COLOURS[outcome.value]) for outcome, reason, n in reasons]
    _write_some(told, None if verbose else MAX_REASONS, "reasons", out)
    _write_failures(report, out, list(report.failing) if verbose else _examples(report, causes))
    write_tables([report], out, counts.MAX_ROWS, verbose=verbose)
    failed, departed = ([text for text, _ in counts.others(tally, kinds)] for kinds in (counts.BAD, ["departed"]))
    line(out, ", ".join((f"{tally['passed']} passed", *(failed or ["0 failed"]), *departed)))


def _write_some(lines: Sequence[tuple[str, str]], most: int | None, what: str, out: Console) -> None:
    """Print lines with their styles, or the first of them and the number of the others."""
    shown = lines if most is None or len(lines) <= most else lines[:most]
    for text, style in shown:
        line(out, text, style)
    if len(shown) < len(lines):
        line(out, f"and {len(lines) - len(shown)} other {what}: see --verbose", "dim")


def _examples(report: Report, causes: Sequence[Cause]) -> list[str]:
    """The failures that are shown in full: first one of each cause, then one of each scenario, then others."""
    first = [cause.results[0].id for cause in causes]
    scenarios = {scenario_of(case_id): case_id for case_id in reversed([*first, *report.failing])}
    return list(dict.fromkeys([*first, *reversed(scenarios.values()), *report.failing]))[:MAX_EXAMPLES]


def _write_failures(report: Report, out: Console, chosen: Sequence[str]) -> None:
    cases = by_id()
    for case_id in chosen:
        entry, case = report.entries[case_id], cases[case_id]
        line(out, f"{in_words(kind_of(entry))} {case_id}", COLOURS[kind_of(entry)], is_whole=True)  # to be copied
        line(out, f"    {entry.message}")
        line(out, f"    {case.note} [{case.source}]")
    rest = len(report.failing) - len(chosen)
    if rest:
        line(out, f"and {rest} other failure{'s' * (rest > 1)}: see --verbose", "dim")


def write_tables(reports: Sequence[Report], out: Console, most: int | None = None, *, verbose: bool = False) -> None:
    """Print a table of the groups of cases with their total, and a table of the bases, with a column for each report.

    Args:
        reports: the reports. One alone has a column for passed/total, and one for the other outcomes.
        out: the terminal.
        most: see `counts.brief`.
        verbose: whether each group gets its own row.
    """
    import rich.text  # of the extra conformance

    is_one = len(reports) == 1
    if not is_one:
        out.print("passed/total")
    headings = ["passed/total", "others"] if is_one else [report.title for report in reports]

    def cells(row: Row, room: int) -> list[Text]:
        columns = []
        for tally in row.tallies:
            (score, worst), *others = counts.cell(tally)
            styled = [(score, worst if worst in ("passed", "unsupported") else ""), *others]
            columns.append([rich.text.Text(text, COLOURS.get(kind, "")) for text, kind in styled])
        if is_one:
            return [columns[0][0], _in_lines(columns[0][1:], room)]
        return [rich.text.Text("\n").join(texts) for texts in columns]

    def shown(first: str, rows: Sequence[Row]) -> rich.table.Table:
        room = out.width - max(len(row.name) for row in rows) - len(headings[0]) - SPACES
        drawn = table([(heading, "") for heading in headings], first, [(row.name, cells(row, room)) for row in rows])
        drawn.columns[-1].justify = "left" if is_one else "right"
        return drawn

    groups, bases = counts.rows(reports), counts.basis_rows(reports)
    if groups:
        rows = groups if verbose else counts.brief(groups, most)
        drawn = shown("group of cases", [*rows, *([counts.total(groups)] if len(rows) > 1 else [])])
        if drawn.row_count > 1:
            drawn.rows[-2].end_section = True  # draws a line above the total
        out.print(drawn)
    if bases:
        out.print(shown("whose rule", bases))


def _in_lines(texts: Iterable[Text], room: int) -> Text:
    """Texts with commas between them, in lines that break only after a comma."""
    import rich.text

    lines: list[Text] = []
    for text in texts:
        if lines and lines[-1].cell_len + text.cell_len + len(", ,") <= room:
            lines[-1] = rich.text.Text(", ").join((lines[-1], text))
        else:
            lines.append(text)
    return rich.text.Text(",\n").join(lines)


NEWLY_FAILING = "newly failing"
LISTED = "passing unexpectedly"
CHANGES = (NEWLY_FAILING, "failing otherwise", LISTED, "no longer failing", "with another outcome", "new", "gone")
"""The kinds of change between two reports, the worst first."""


def _change(before: Result | None, after: Result | None) -> str:
    """The kind of a change; None stands for a report without the case. A new case that fails is newly failing."""
    if after is None:
        return "gone"
    if after.reason is Reason.LISTED:
        return LISTED
    was_bad = before is not None and before.outcome.is_bad and before.reason is not Reason.LISTED
    if after.outcome.is_bad:
        return "failing otherwise" if was_bad else NEWLY_FAILING
    if before is None:
        return "new"
    return "no longer failing" if was_bad else "with another outcome"


def write_changes(before: Report, after: Report, out: Console) -> Mapping[str, Sequence[str]]:
    """Print the groups of cases whose counts differ, the changed cases, and the number of changes of each kind.

    Returns:
        The ids of the cases whose outcome changed, by the kind of change, in the order of the later report.
    """
    line(out, f"{before.title} -> {after.title}")
    differing = _differing(before, after)
    if differing.row_count:
        out.print(differing)
    changed: dict[str, list[str]] = {kind: [] for kind in CHANGES}
    for case_id in {**after.entries, **before.entries}:
        old, new = before.entries.get(case_id), after.entries.get(case_id)
        if old is None or new is None or kind_or_failed(old) != kind_or_failed(new):
            changed[_change(old, new)].append(case_id)
    for kind, ids in changed.items():
        if ids:
            line(out, f"{len(ids)} {kind}", "bold")
        for case_id in ids:
            entries = [report.entries[case_id] for report in (before, after) if case_id in report.entries]
            new = after.entries.get(case_id)
            said = " -> ".join(map(kind_or_failed, entries))
            line(out, f"  {case_id}: {said}", COLOURS[kind_or_failed(new)] if new else "dim")
            if new and new.outcome.is_bad and new.message:
                line(out, f"      {new.message}")
    line(out, ", ".join(f"{len(ids)} {kind}" for kind, ids in changed.items()))
    return changed


def _differing(before: Report, after: Report) -> rich.table.Table:
    """A table of the groups whose counts differ, with a column for each kind of outcome that differs."""
    old, new = (counts.tallies_of(r, lambda case_id, _: group_of(case_id), kind_or_failed) for r in (before, after))
    pairs = {name: (old.get(name, Counter()), new.get(name, Counter())) for name in {**new, **old}}
    pairs = {name: (a, b) for name, (a, b) in pairs.items() if a != b}
    shown = [kind for kind in MEANINGS if any(a[kind] != b[kind] for a, b in pairs.values())]
    rows = (
        (name, [f"{a[kind]} -> {b[kind]}" if a[kind] != b[kind] else str(a[kind] or "") for kind in shown])
        for name, (a, b) in pairs.items()
    )
    return table(((in_words(kind), COLOURS[kind]) for kind in shown), "group of cases", rows)
