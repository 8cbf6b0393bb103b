"""The matrix on a terminal."""

from __future__ import annotations

import rich.box
import rich.table
import rich.text
from rich.console import Console

from conformance.outcome import Outcome
from conformance.report.matrix import Cell, Matrix, Row
from conformance.report.terminal import COLOURS


def write(matrix: Matrix, console: Console) -> None:
    """Print a matrix."""
    table = rich.table.Table(box=rich.box.SIMPLE, title="passed/asked", title_justify="left")
    table.add_column("family", no_wrap=True)
    for column in matrix.columns:
        table.add_column(rich.text.Text(column.title), justify="right")
    for row in matrix.rows:
        _add(table, row)
    table.add_section()
    _add(table, matrix.total)
    console.print(table)


def _add(table: rich.table.Table, row: Row) -> None:
    # Text, not str: what a report says is no markup.
    table.add_row(rich.text.Text(row.name), *map(_text, row.cells))


def _text(cell: Cell) -> rich.text.Text:
    """The score, and a line for each other outcome."""
    style = COLOURS[cell.worst] if cell.worst in (Outcome.PASSED, Outcome.UNSUPPORTED) else ""
    text = rich.text.Text(cell.score, style)
    for outcome, words in cell.rest:
        text.append(f"\n{words}", COLOURS[outcome])
    return text
