"""Tables that the page and the terminal show alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

MOST_ROWS = 100
"""Rows that a table keeps; the terminal shows fewer."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row; a marked one has the worst element."""

    cells: tuple[str, ...]
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A titled table.

    total: how many rows there are, those left out included.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    total: int

    @property
    def left_out(self) -> int:
        """Rows that are not here."""
        return self.total - len(self.rows)

    def cut(self, most: int) -> Table:
        """The table with `most` rows at most, the marked one among them."""
        return Table(self.title, self.columns, kept(self.rows, most), self.total)


def kept(rows: Sequence[Row], most: int) -> tuple[Row, ...]:
    """At most `most` rows in a run that has the marked one; the first ones where none is marked."""
    marked = next((i for i, row in enumerate(rows) if row.marked), 0)
    first = max(min(marked - most // 2, len(rows) - most), 0)
    return tuple(rows[first : first + most])


def number(value: float) -> str:
    """A value as the tables print it."""
    return "nan" if math.isnan(value) else f"{value + 0.0:.6g}"


def difference(got: float, expected: float) -> float:
    """What is between two values; 0 where both are NaN or the same infinity."""
    return 0.0 if got == expected or (math.isnan(got) and math.isnan(expected)) else got - expected
