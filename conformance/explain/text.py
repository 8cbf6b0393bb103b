"""The short version for the terminal: coordinates and values."""

from __future__ import annotations

import sys

import rich.box
import rich.table
import rich.text
from rich.console import Console

from conformance.explain.explanation import Explanation
from conformance.explain.grid import Part
from conformance.explain.table import Row, Table, kept, number

MOST_ROWS = 24


WIDTH = 110
"""Characters where the output is no terminal."""


def console() -> Console:
    """Standard output, as wide as the tables like it where nobody has set a width."""
    out = Console(file=sys.stdout)
    return out if out.is_terminal else Console(file=sys.stdout, width=WIDTH)


def write(explanation: Explanation, console: Console) -> None:
    """Print an explanation."""
    _line(console, explanation.case.id, "bold")
    for heading, fact in explanation.facts.items():
        _line(console, f"{heading}: {fact}")
    if explanation.roi:
        _line(console, f"\n{explanation.roi}", "bold")
    for shown in explanation.shown:
        own = " (this case)" if shown.convention.is_own else ""
        _line(console, f"  {shown.convention.name}: {shown.convention.detail}{own}")
    for table in (*explanation.coordinates, *(axis.table for axis in explanation.axes)):
        _table(console, table)
    if explanation.values:
        _table(console, explanation.values)
    for part in explanation.parts:
        if not part.tabled:
            _table(console, _elements(part))
    for note in explanation.notes:
        _line(console, note, "dim")


def _elements(part: Part) -> Table:
    """The elements of an output, one a row."""
    rows = [
        Row((f"[{i}, {j}]", *(number(float(values[i, j])) for values in part.named.values())), (i, j) == part.mark)
        for i in range(part.shape[0])
        for j in range(part.shape[1])
    ]
    return Table(part.title, ("element", *part.named), kept(rows, MOST_ROWS), len(rows))


def _table(console: Console, whole: Table) -> None:
    table = whole.cut(MOST_ROWS)
    printed = rich.table.Table(title=rich.text.Text(table.title), box=rich.box.SIMPLE, title_justify="left")
    for column in table.columns:
        printed.add_column(rich.text.Text(column), justify="right", overflow="fold")
    for row in table.rows:
        # Text, not str: brackets are no markup here.
        printed.add_row(*map(rich.text.Text, row.cells), style="bold red" if row.marked else None)
    console.print(printed)
    if table.left_out:
        _line(console, f"  and {table.left_out} more", "dim")


def _line(console: Console, text: str, style: str | None = None) -> None:
    console.print(rich.text.Text(text), style=style, soft_wrap=True)
