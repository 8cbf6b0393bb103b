"""The report on a terminal."""

from __future__ import annotations

import rich.box
import rich.markup
import rich.table
from rich.console import Console

from conformance.coverage import rows
from conformance.coverage.summary import Summary


def write(summary: Summary, console: Console) -> None:
    """Print it. The last line has the totals."""
    tables = [rows.of_values(name, lines) for name, lines in summary.values.items()]
    for table in (*tables, *rows.of_faults(summary), rows.of_facts(summary)):
        _write(table, console)
    for line in rows.conclusions(summary):
        console.print(rich.markup.escape(line), soft_wrap=True, highlight=False)


def _write(table: rows.Table, console: Console) -> None:
    shown = rich.table.Table(title=rich.markup.escape(table.title), box=rich.box.SIMPLE, title_justify="left")
    for column in table.columns:
        is_number = all(row[table.columns.index(column)].isdigit() for row in table.rows)
        style = "yellow" if column == "legal, never used" else None
        shown.add_column(column, justify="right" if is_number else "left", style=style, overflow="fold")
    for row in table.rows:
        shown.add_row(*map(rich.markup.escape, row))
    console.print(shown)
