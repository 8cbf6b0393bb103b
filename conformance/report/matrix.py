"""A table of several reports: groups of cases by backends, for the terminal and as Markdown."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from conformance.cases import collect
from conformance.report.record import Report
from conformance.report.tally import MEANINGS, WHOSE, Tally, bases_of, groups_of, in_words, total_of
from conformance.terminal import table, with_total
from ortops.operators import BY_NAME

if TYPE_CHECKING:
    import rich.table
    from rich.console import Console

MAX_ROWS = 10
"""The largest number of rows for single groups in a short table."""

SPACES = 10
"""Spaces of a row of a table with three columns."""

_MARKUP = re.compile(r"([\\`*|<>\[\]~&]|(?<!\w)_|_(?!\w))")


@dataclass(frozen=True, slots=True)
class Row:
    """A row for one group of cases, for several groups, or for a basis, with a cell for each backend.

    groups: the groups of a row for several groups.
    """

    name: str
    cells: tuple[Tally, ...]
    groups: tuple[str, ...] = ()

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
        """The rows of all groups of cases in the reports, function by function, unknown ones last."""
        groups = [groups_of(report) for report in self.reports]
        names = sorted({name for found in groups for name in found}, key=_place)
        return [Row(name, tuple(found.get(name, Tally()) for found in groups)) for name in names]

    @property
    def bases(self) -> list[Row]:
        """A row for each basis of the cases; none if the reports do not have the basis."""
        bases = [bases_of(report) for report in self.reports]
        rows = [Row(words, tuple(found.get(basis, Tally()) for found in bases)) for basis, words in WHOSE.items()]
        return [row for row in rows if any(cell.total for cell in row.cells)]

    @property
    def total(self) -> Row:
        """The row for all cases."""
        return _total_row("all", self.rows)

    def brief(self, most: int | None = None) -> list[Row]:
        """The rows, with one row for all groups that no backend supports.

        Args:
            most: how many other rows there may be. If there are more, one row has the groups that all backends pass,
                and another one has the groups with fewer failures.
        """
        rows, unsupported = _split(self.rows, lambda row: _is_all(row, "unsupported"))
        passed: list[Row] = []
        few: list[Row] = []
        if most is not None and len(rows) > most:
            rows, passed = _split(rows, lambda row: _is_all(row, "passed"))
            worst = sorted(rows, key=lambda row: sum(-cell.bad for cell in row.cells))[:most]
            rows, few = _split(rows, lambda row: row not in worst)
        folded = ("other groups", few), ("groups that pass", passed), ("unsupported groups", unsupported)
        return [*rows, *(_in_one(name, some) for name, some in folded if some)]


def _split(rows: Sequence[Row], is_apart: Callable[[Row], bool]) -> tuple[list[Row], list[Row]]:
    """The rows for which the function is false, and those for which it is true."""
    return [row for row in rows if not is_apart(row)], [row for row in rows if is_apart(row)]


def _is_all(row: Row, kind: str) -> bool:
    """Whether all cases of a row are of this kind."""
    return all(set(+cell.kinds) <= {kind} for cell in row.cells)


def _in_one(name: str, rows: Sequence[Row]) -> Row:
    """One row for several rows, with their number in its name."""
    total = _total_row(f"{len(rows)} {name}", rows)
    return rows[0] if len(rows) == 1 else replace(total, groups=tuple(row.name for row in rows))


def _place(name: str) -> tuple[int | str, ...]:
    """A sort key for the row of a group: by operator, then in the order of the suite."""
    parts = zip((name.partition("/")[0], name), _order(), strict=True)
    return *(order.index(part) if part in order else len(order) for part, order in parts), name


@functools.cache
def _order() -> tuple[list[str], list[str]]:
    functions = dict.fromkeys(operator.function for operator in BY_NAME.values())
    return list(functions), list(dict.fromkeys(case.group for case in collect()))


def _total_row(name: str, rows: Sequence[Row]) -> Row:
    return Row(name, tuple(map(total_of, zip(*(row.cells for row in rows), strict=True))))


def markdown(matrix: Matrix) -> str:
    """The matrix as a Markdown table, short enough for a README, and a second table by basis if the reports have it."""
    titles, bases, every = (
        [report.title for report in matrix.reports],
        matrix.bases,
        [*matrix.brief(MAX_ROWS), matrix.total],
    )

    def lines(heading: str, rows: Sequence[Row]) -> list[str]:
        cells = [[row.name, *map(str, row.cells)] for row in rows]
        return [_line([heading, *titles]), f"| --- |{' ---: |' * len(titles)}", *map(_line, cells)]

    kinds = {kind for cell in every[-1].cells for kind in +cell.kinds} - {"passed"}
    meanings = [f"{in_words(kind).capitalize()}: {MEANINGS[kind]}." for kind in MEANINGS if kind in kinds]
    text = [*lines("group of cases", every), "", " ".join(("Passed/total.", *meanings))]
    return "\n".join([*text, "", *lines("whose rule", bases)] if bases else text) + "\n"


def _line(cells: Iterable[str]) -> str:
    """A line of a table, with markup in the text of reports escaped and line ends removed."""
    texts = [_MARKUP.sub(r"\\\1", " ".join(cell.split())) for cell in cells]
    return f"| {' | '.join(texts)} |"


def _in_lines(texts: Iterable[rich.text.Text], room: int) -> rich.text.Text:
    """Texts with commas between them, in lines that break only after a comma."""
    import rich.text

    lines: list[rich.text.Text] = []
    for text in texts:
        if lines and lines[-1].cell_len + text.cell_len + len(", ,") <= room:
            lines[-1] = rich.text.Text(", ").join((lines[-1], text))
        else:
            lines.append(text)
    return rich.text.Text(",\n").join(lines)


def write(matrix: Matrix, out: Console, most: int | None = None, *, verbose: bool = False) -> None:
    """Print a matrix: a table of the groups of cases with their total, and a table of the bases.

    Args:
        matrix: the matrix.
        out: the terminal.
        most: see `Matrix.brief`.
        verbose: whether each group gets its own row.
    """
    import rich.text  # of the extra conformance

    is_one = len(matrix.reports) == 1
    if not is_one:
        out.print("passed/total")
    headings = ["passed/total", "others"] if is_one else [report.title for report in matrix.reports]

    def cells(row: Row, room: int) -> list[rich.text.Text]:
        texts = [cell.texts() for cell in row.cells]
        if is_one:
            return [texts[0][0], _in_lines(texts[0][1:], room)]
        return [rich.text.Text("\n").join(own) for own in texts]

    def shown(first: str, rows: Sequence[Row]) -> rich.table.Table:
        room = out.width - max(len(row.name) for row in rows) - len(headings[0]) - SPACES
        made = table([(heading, "") for heading in headings], first, [(row.name, cells(row, room)) for row in rows])
        made.columns[-1].justify = "left" if is_one else "right"
        return made

    if matrix.rows:
        rows = matrix.rows if verbose else matrix.brief(most)
        out.print(with_total(shown("group of cases", [*rows, *([matrix.total] if len(rows) > 1 else [])])))
    if matrix.bases:
        out.print(shown("whose rule", matrix.bases))
