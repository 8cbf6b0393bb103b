"""Heat maps of two axes of an output: what is expected, what came, and the difference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from conformance.expect import Floats
from conformance.explain.colour import diverging, sequential
from conformance.explain.table import difference, number

MOST_CELLS = 40
"""Along each axis."""

MARGIN = 22


@dataclass(frozen=True, slots=True)
class Cell:
    """One element, placed."""

    x: int
    y: int
    fill: str
    text: str
    marked: bool
    title: str


@dataclass(frozen=True, slots=True)
class Grid:
    """One heat map, ready to be drawn.

    labels: texts beside and above the cells: x, y, text.
    """

    title: str
    cell: int
    width: int
    height: int
    cells: tuple[Cell, ...]
    labels: tuple[tuple[float, float, str], ...]


@dataclass(frozen=True, slots=True)
class Part:
    """Two axes of an output.

    title: which they are.
    expected, got: [rows, columns]; None where nothing but an error is expected, or where there is no answer.
    mark: row and column of the worst element, or None.
    tabled: whether a table of values has what matters of it, too.
    """

    title: str
    expected: Floats | None
    got: Floats | None
    mark: tuple[int, int] | None
    tabled: bool = False

    @property
    def difference(self) -> Floats | None:
        """What came less what is expected."""
        return None if self.got is None or self.expected is None else differences(self.got, self.expected)

    @property
    def named(self) -> dict[str, Floats]:
        """What there is of the three, by name."""
        each = {"expected": self.expected, "got": self.got, "difference": self.difference}
        return {name: values for name, values in each.items() if values is not None}

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = next(iter(self.named.values())).shape
        return rows, columns

    @property
    def left_out(self) -> str:
        """What the pictures leave out, in words; nothing where they are complete."""
        rows, columns = self._crop()
        if (rows.stop - rows.start, columns.stop - columns.start) == self.shape:
            return ""
        drawn = f"rows {rows.start} to {rows.stop - 1} and columns {columns.start} to {columns.stop - 1}"
        return f"Drawn are {drawn} of {self.shape[0]} x {self.shape[1]}; the others are left out."

    def _crop(self) -> tuple[slice, slice]:
        centre = self.mark or (0, 0)
        rows, columns = (_around(at, n) for at, n in zip(centre, self.shape, strict=True))
        return rows, columns

    def grids(self) -> tuple[Grid, ...]:
        """One heat map, or the three of them where there is an answer to compare."""
        return tuple(self._grid(name, values) for name, values in self.named.items())

    def _values(self, rows: slice, columns: slice) -> list[float]:
        pair = (self.expected, self.got)
        return [value for values in pair if values is not None for value in values[rows, columns].ravel().tolist()]

    def _grid(self, name: str, values: Floats) -> Grid:
        rows, columns = self._crop()
        shown = values[rows, columns]
        flat = shown.ravel().tolist()
        # What came has the colours of what is expected.
        scale = flat if name == "difference" else self._values(rows, columns)
        colour = diverging(scale) if name == "difference" or min(scale, default=0.0) < 0 else sequential(scale)
        size = cell_size(shown.shape[1])
        cells = tuple(
            Cell(
                MARGIN + j * size,
                MARGIN + i * size,
                colour(value),
                short(value, size),
                (rows.start + i, columns.start + j) == self.mark,
                f"[{rows.start + i}, {columns.start + j}] {number(value)}",
            )
            for i, row in enumerate(shown.tolist())
            for j, value in enumerate(row)
        )
        labels = axis_labels(rows.start, shown.shape[0], columns.start, shown.shape[1], size)
        width, height = (2 * MARGIN + size * n for n in (shown.shape[1], shown.shape[0]))
        return Grid(name, size, width, height, cells, labels)


def _around(at: int, length: int) -> slice:
    first = max(min(at - MOST_CELLS // 2, length - MOST_CELLS), 0)
    return slice(first, min(first + MOST_CELLS, length))


def differences(got: Floats, expected: Floats) -> Floats:
    """Element by element, 0 where both are NaN or the same infinity."""
    pairs = zip(got.ravel().tolist(), expected.ravel().tolist(), strict=True)
    return np.array([difference(g, e) for g, e in pairs], np.float64).reshape(expected.shape)


def cell_size(columns: int) -> int:
    """Of a cell, in the picture's units, so that a row of them stays on a page."""
    return max(12, min(44, 480 // max(columns, 1)))


def short(value: float, size: int) -> str:
    """A value that fits into a cell; nothing where none does."""
    return "" if size < 30 else f"{value + 0.0:.3g}"


def axis_labels(
    first_row: int, rows: int, first_column: int, columns: int, size: int
) -> tuple[tuple[float, float, str], ...]:
    """The numbers of rows and columns, as many as there is room for."""
    every = 1 if size >= 20 else 5
    beside = [(MARGIN / 2, MARGIN + (i + 0.5) * size, str(first_row + i)) for i in range(0, rows, every)]
    above = [(MARGIN + (j + 0.5) * size, MARGIN / 2, str(first_column + j)) for j in range(0, columns, every)]
    return (*beside, *above)
