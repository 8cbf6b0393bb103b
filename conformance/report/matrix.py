"""Reports side by side: a table of families by backends, for the terminal and in Markdown."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conformance.report.record import Report
from conformance.report.tally import MEANINGS, Tally, bases_of, families_of, in_words, total_of
from conformance.report.terminal import WHOSE, table
from conformance.vectors import collect
from ortops.operators import BY_NAME

if TYPE_CHECKING:
    from rich.console import Console

_MARKUP = re.compile(r"([\\`*|<>\[\]~&]|(?<!\w)_|_(?!\w))")


@dataclass(frozen=True, slots=True)
class Row:
    """A row for a family, for several, or for a basis, with a cell for each backend."""

    name: str
    cells: tuple[Tally, ...]

    @property
    def function(self) -> str:
        """The first part of its name, the function."""
        return self.name.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Matrix:
    """The reports of several backends, as a table."""

    reports: Sequence[Report]

    @property
    def rows(self) -> list[Row]:
        """The rows of all families in the reports, function by function, unknown ones last."""
        families = [families_of(report) for report in self.reports]
        names = sorted({name for found in families for name in found}, key=_place)
        return [Row(name, tuple(found.get(name, Tally()) for found in families)) for name in names]

    @property
    def bases(self) -> list[Row]:
        """A row for each basis of the cases; none if the reports do not have the basis."""
        bases = [bases_of(report) for report in self.reports]
        rows = [Row(words, tuple(found.get(basis, Tally()) for found in bases)) for basis, words in WHOSE.items()]
        return [row for row in rows if any(cell.asked for cell in row.cells)]

    @property
    def total(self) -> Row:
        """The row for all families together."""
        return _total_row("all", self.rows)

    @property
    def folded(self) -> list[Row]:
        """The rows, with families of one function in one row if each backend passes all of them or supports none."""
        groups: dict[tuple[object, ...], list[Row]] = {}
        for row in (rows := self.rows):
            is_plain = not any(cell.rest for cell in row.cells)
            key = (row.function, *(cell.worst for cell in row.cells)) if is_plain else (row.name, None)
            groups.setdefault(key, []).append(row)
        return [_total_row(_common_name(group, rows), group) for group in groups.values()]


def _place(name: str) -> tuple[int | str, ...]:
    """A sort key for the row of a family: by operator, then in the order of the suite."""
    parts = zip((name.partition("/")[0], name), _order(), strict=True)
    return *(order.index(part) if part in order else len(order) for part, order in parts), name


@functools.cache
def _order() -> tuple[list[str], list[str]]:
    functions = dict.fromkeys(operator.function for operator in BY_NAME.values())
    return list(functions), list(dict.fromkeys(case.family for case in collect()))


def _total_row(name: str, rows: Sequence[Row]) -> Row:
    return Row(name, tuple(map(total_of, zip(*(row.cells for row in rows), strict=True))))


def _common_name(group: Sequence[Row], rows: Sequence[Row]) -> str:
    """A name for a group of rows: its only family, the function if it has all of its families, or a list of families."""
    function = group[0].function
    if len(group) == 1:
        return group[0].name
    if len(group) == sum(row.function == function for row in rows):
        return function
    return f"{function}: {', '.join(row.name.removeprefix(f'{function}/') for row in group)}"


def markdown(matrix: Matrix) -> str:
    """The matrix as a Markdown table, short enough for a README, and another one by basis if that is known.

    It has the rows of `Matrix.folded`. Neighbouring releases of one backend share a column if all their cells are equal.
    """
    bases, every = matrix.bases, [*matrix.folded, matrix.total]
    columns = _columns(matrix.reports, [*every, *bases])
    firsts = [matrix.reports[first] for first, _ in columns]
    lasts = [f" to {matrix.reports[last].origin.version}" if last > first else "" for first, last in columns]
    titles = [report.title + to for report, to in zip(firsts, lasts, strict=True)]

    def lines(heading: str, rows: Sequence[Row]) -> list[str]:
        cells = [[row.name, *(str(row.cells[first]) for first, _ in columns)] for row in rows]
        return [_line([heading, *titles]), f"| --- |{' ---: |' * len(titles)}", *map(_line, cells)]

    kinds = {kind for cell in every[-1].cells for kind in +cell.kinds} - {"passed"}
    meanings = [f"{in_words(kind).capitalize()}: {MEANINGS[kind]}." for kind in MEANINGS if kind in kinds]
    text = [*lines("family", every), "", " ".join(("Passed/asked.", *meanings))]
    return "\n".join([*text, "", *lines("whose rule", bases)] if bases else text) + "\n"


def _columns(reports: Sequence[Report], rows: Sequence[Row]) -> list[tuple[int, int]]:
    """The indices of the first and the last report of each column."""
    columns = [(0, 0)]
    for k in range(1, len(reports)):
        is_release = reports[k].backend == reports[k - 1].backend and reports[k].origin.version
        if is_release and all(row.cells[k] == row.cells[k - 1] for row in rows):
            columns[-1] = columns[-1][0], k
        else:
            columns.append((k, k))
    return columns


def _line(cells: Iterable[str]) -> str:
    """A line of a table, with markup in the text of reports escaped and line ends removed."""
    texts = [_MARKUP.sub(r"\\\1", " ".join(cell.split())) for cell in cells]
    return f"| {' | '.join(texts)} |"


def write(matrix: Matrix, out: Console) -> None:
    """Print a matrix: the families with their total, and the bases."""
    import rich.text  # of the extra conformance

    out.print("passed/asked")
    for first, rows, last in (("family", matrix.rows, [matrix.total]), ("whose rule", matrix.bases, [])):
        made = table([(report.title, "") for report in matrix.reports], first)
        for row in (*rows, *last):
            made.add_row(rich.text.Text(row.name), *(cell.text() for cell in row.cells), end_section=row is rows[-1])
        if rows:
            out.print(made)
