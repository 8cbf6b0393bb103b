"""The tables of an explanation, and its text for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from conformance.expected_values import Floats

if TYPE_CHECKING:
    from rich.console import Console

    from conformance.explain.explanation import Explanation

MOST_ROWS = 100
"""The limit of rows in a table."""

_MOST_PRINTED = 24


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table; the row of the worst element is marked."""

    cells: tuple[str, ...]
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a title.

    total: the number of rows, including those that are left out.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    total: int

    @property
    def left_out(self) -> int:
        """The number of rows that are left out."""
        return self.total - len(self.rows)


def table(title: str, columns: tuple[str, ...], rows: Sequence[Row], total: int = 0) -> Table:
    """A table of at most `MOST_ROWS` rows: those around the marked row, or the first ones."""
    return Table(title, columns, rows_around_marked(rows, MOST_ROWS), max(total, len(rows)))


def rows_around_marked(rows: Sequence[Row], most: int) -> tuple[Row, ...]:
    """At most `most` consecutive rows: those around the marked row, or the first ones if none is marked."""
    run = around(next((i for i, row in enumerate(rows) if row.marked), 0), len(rows), most)
    return tuple(rows[run.start : run.stop])


def around(at: int, length: int, most: int) -> range:
    """A range of at most `most` of `length` indices that contains `at`, in its middle if the ends allow it."""
    first = max(min(at - most // 2, length - most), 0)
    return range(first, min(first + most, length))


def number(value: float) -> str:
    """A value as tables print it: with 6 significant digits."""
    return "nan" if math.isnan(value) else f"{value + 0.0:.6g}"


def differences(got: Floats, expected: Floats) -> Floats:
    """`got` minus `expected`, element by element; 0 where both are NaN or the same infinity."""
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(same, 0.0, got - expected)


def write(explanation: Explanation, out: Console) -> None:
    """Print the facts, the coordinates and the values of an explanation."""
    from conformance.report.terminal import line  # needs the extra, which families of operators must not

    line(out, explanation.case.id, "bold")
    for heading, fact in explanation.facts.items():
        line(out, f"{heading}: {fact}")
    if explanation.roi:
        line(out, f"\n{explanation.roi}", "bold")
    for convention in (shown.convention for shown in explanation.conventions):
        line(out, f"  {convention.name}: {convention.detail}{' (this case)' if convention.is_own else ''}")
    tables = [*explanation.coordinates, *(axis.table for axis in explanation.axes)]
    tables += [explanation.values] if explanation.values else []
    for part in explanation.outputs:
        if not part.is_tabled:
            named = part.named
            rows = [
                Row((f"[{i}, {j}]", *(number(float(values[i, j])) for values in named.values())), (i, j) == part.mark)
                for i, j in np.ndindex(*part.shape)
            ]
            tables.append(table(part.title, ("element", *named), rows))
    for each in tables:
        _print(out, each)
    for note in explanation.notes:
        line(out, note, "dim")


def _print(out: Console, whole: Table) -> None:
    shown = replace(whole, rows=rows_around_marked(whole.rows, _MOST_PRINTED))
    import rich.box
    import rich.table
    import rich.text

    from conformance.report.terminal import line

    line(out, f"\n{shown.title}", "italic")
    printed = rich.table.Table(box=rich.box.SIMPLE)
    for column in shown.columns:
        printed.add_column(rich.text.Text(column), justify="right", overflow="fold")
    for row in shown.rows:
        # Text, not str: brackets are no markup here.
        printed.add_row(*map(rich.text.Text, row.cells), style="bold red" if row.marked else None)
    out.print(printed)
    if shown.left_out:
        line(out, f"  and {shown.left_out} more", "dim")
