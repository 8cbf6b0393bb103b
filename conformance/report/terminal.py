"""A line for each family, what failed, and the counts."""

from __future__ import annotations

from collections import Counter

import rich.box
import rich.table
import rich.text
from rich.console import Console

from conformance.outcome import Outcome
from conformance.report.run import Run

COLOURS = {
    Outcome.PASSED: "green",
    Outcome.FAILED: "red",
    Outcome.CRASHED: "magenta",
    Outcome.DEPARTED: "yellow",
    Outcome.UNSUPPORTED: "dim",
    Outcome.EXPECTED_FAILURE: "yellow",
}


def write(run: Run, console: Console) -> None:
    """Print a run. The last line is `N passed, N failed`, the crashed among the failed."""
    console.print(_table(run))
    reasons = Counter(
        (result.outcome, result.message)
        for result in run.results
        if result.outcome in (Outcome.UNSUPPORTED, Outcome.EXPECTED_FAILURE)
    )
    for (outcome, reason), count in sorted(reasons.items()):
        _line(console, outcome, f"{count} {outcome.value}: {reason}")
    for result in run.bad:
        _line(console, result.outcome, f"{result.outcome.value} {result.case.id}")
        _line(console, None, f"    {result.message}")
        _line(console, None, f"    {result.case.note} [{result.case.source}]")
    summary = run.summary
    bad = summary[Outcome.FAILED] + summary[Outcome.CRASHED]
    _line(console, None, f"{summary[Outcome.PASSED]} passed, {bad} failed")


def _table(run: Run) -> rich.table.Table:
    table = rich.table.Table(title=f"backend {run.backend}", box=rich.box.SIMPLE, title_justify="left")
    table.add_column("family", no_wrap=True)
    for outcome in Outcome:
        table.add_column(outcome.value.replace("_", "\n"), justify="right", style=COLOURS[outcome], vertical="bottom")
    for family, counts in run.families.items():
        table.add_row(family, *(str(counts[outcome] or "") for outcome in Outcome))
    table.add_section()
    table.add_row("all", *(str(count) for count in run.summary.values()))
    return table


def _line(console: Console, outcome: Outcome | None, text: str) -> None:
    """One line whatever its length, in the outcome's colour; text of a runtime is no markup."""
    style = None if outcome is None else COLOURS[outcome]
    console.print(rich.text.Text(text, style or ""), soft_wrap=True)
