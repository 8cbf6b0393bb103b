"""Reports side by side: families by backends, as a table for the terminal and in Markdown."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import rich.text
from rich.console import Console

from conformance.outcome import Outcome
from conformance.report.record import Report
from conformance.report.tally import MEANINGS, Tally, bases_of, families_of, spoken, together
from conformance.report.terminal import WHOSE, table
from conformance.vectors import collect
from ortops.operators import BY_NAME

_MARKUP = re.compile(r"([\\`*|<>\[\]~&]|(?<!\w)_|_(?!\w))")
_NOTHING = Tally(dict.fromkeys(Outcome, 0))


@dataclass(frozen=True, slots=True)
class Row:
    """A family with its cell in each column."""

    name: str
    cells: tuple[Tally, ...]

    @property
    def function(self) -> str:
        """The first part of its name."""
        return self.name.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Backends and families, both in a fixed order."""

    reports: Sequence[Report]

    @property
    def rows(self) -> list[Row]:
        """The families of which a backend was asked something, function by function, unknown ones last."""
        families = [families_of(report) for report in self.reports]
        names = sorted({name for found in families for name in found}, key=_place)
        return [Row(name, tuple(found.get(name, _NOTHING) for found in families)) for name in names]

    @property
    def bases(self) -> list[Row]:
        """The same for each basis, where the reports say whose rules their cases check."""
        bases = [bases_of(report) for report in self.reports]
        rows = [Row(words, tuple(found.get(basis, _NOTHING) for found in bases)) for basis, words in WHOSE.items()]
        return [row for row in rows if any(cell.asked for cell in row.cells)]

    @property
    def total(self) -> Row:
        """All families together."""
        return _together("all", self.rows, len(self.reports))

    @property
    def folded(self) -> list[Row]:
        """The rows, those of a function in one that say the same: each backend passes all of it, or supports none."""
        groups: dict[tuple[object, ...], list[Row]] = {}
        rows = self.rows
        for row in rows:
            said = tuple(cell.worst for cell in row.cells)
            is_plain = all(len(cell.rest) == 0 for cell in row.cells)
            groups.setdefault((row.function, said) if is_plain else (row.name,), []).append(row)
        return [_together(_common_name(group, rows), group, len(self.reports)) for group in groups.values()]


def _place(name: str) -> tuple[int, int, str]:
    """Where a family has its row: by operator, and there in the order of the suite."""
    functions, families = _order()
    function = name.partition("/")[0]
    return functions.get(function, len(functions)), families.get(name, len(families)), name


@functools.cache
def _order() -> tuple[dict[str, int], dict[str, int]]:
    functions = dict.fromkeys(operator.function for operator in BY_NAME.values())
    families = dict.fromkeys(case.family for case in collect())
    return {name: i for i, name in enumerate(functions)}, {name: i for i, name in enumerate(families)}


def _together(name: str, rows: Sequence[Row], columns: int) -> Row:
    return Row(name, tuple(together(row.cells[k] for row in rows) for k in range(columns)))


def _common_name(group: Sequence[Row], rows: Sequence[Row]) -> str:
    """The family's where there is one, the function's where these are all it has, or else the families'."""
    function = group[0].function
    if len(group) == 1:
        return group[0].name
    if len(group) == sum(row.function == function for row in rows):
        return function
    return f"{function}: {', '.join(row.name.removeprefix(f'{function}/') for row in group)}"


def markdown(matrix: Matrix) -> str:
    """The matrix as a table in Markdown, short enough for a README, and another one by basis where that is known.

    A line for each family; those of one function share a line where all backends pass all of it or support none.
    Releases of one backend beside each other share a column where all their cells are the same.
    """
    bases, every = matrix.bases, [*matrix.folded, matrix.total]
    columns = _columns(matrix, [*every, *bases])
    reports = matrix.reports
    titles = [reports[k].title + (f" to {reports[last].origin.version}" if last > k else "") for k, last in columns]
    every, bases = ([Row(row.name, tuple(row.cells[k] for k, _ in columns)) for row in rows] for rows in (every, bases))
    lines = [*_lines("family", titles, every), "", _legend(matrix.total)]
    if bases:
        lines += ["", *_lines("whose rule", titles, bases)]
    return "\n".join(lines) + "\n"


def _columns(matrix: Matrix, rows: Sequence[Row]) -> list[tuple[int, int]]:
    """The numbers of the first and the last report of each column."""
    columns = [(0, 0)]
    for k in range(1, len(matrix.reports)):
        before, report = matrix.reports[k - 1], matrix.reports[k]
        is_release = report.backend == before.backend and report.origin.version
        if is_release and all(row.cells[k] == row.cells[k - 1] for row in rows):
            columns[-1] = columns[-1][0], k
        else:
            columns.append((k, k))
    return columns


def _legend(total: Row) -> str:
    """What the words in the cells mean, those of them that are there."""
    kinds = {kind for cell in total.cells for kind in cell.kinds}
    meanings = [f"{spoken(kind).capitalize()}: {MEANINGS[kind]}." for kind in MEANINGS if kind in kinds - {"passed"}]
    return " ".join(("Passed/asked.", *meanings))


def _lines(first: str, titles: Sequence[str], rows: Sequence[Row]) -> list[str]:
    rule = f"| --- |{' ---: |' * len(titles)}"
    return [_line(first, titles), rule, *(_line(row.name, map(str, row.cells)) for row in rows)]


def _line(first: str, others: Iterable[str]) -> str:
    return f"| {' | '.join(map(_text, (first, *others)))} |"


def _text(text: str) -> str:
    """Text of a report is no markup, and has no line ends."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def write(matrix: Matrix, out: Console) -> None:
    """Print a matrix: families, their sum, and whose rules they are."""
    out.print("passed/asked")
    _print("family", matrix, matrix.rows, [matrix.total], out)
    if matrix.bases:
        _print("whose rule", matrix, matrix.bases, [], out)


def _print(first: str, matrix: Matrix, rows: Sequence[Row], last: Sequence[Row], out: Console) -> None:
    made = table([(report.title, "") for report in matrix.reports], first)
    for row in rows:
        made.add_row(rich.text.Text(row.name), *(cell.text() for cell in row.cells))
    made.add_section()
    for row in last:
        made.add_row(rich.text.Text(row.name), *(cell.text() for cell in row.cells))
    out.print(made)
