"""The matrix as a table in Markdown, short enough for a README."""

from __future__ import annotations

import re
from collections.abc import Sequence

from conformance.report.matrix import Matrix, Row

LEGEND = "Passed/asked. Expected failures are listed in the suite with their reasons."

_MARKUP = re.compile(r"([\\`*|<>\[\]~&]|(?<!\w)_|_(?!\w))")


def render(matrix: Matrix) -> str:
    """A line for each family; those of one function share a line where all backends pass all of it or support none."""
    lines = [
        _line("family", [column.title for column in matrix.columns]),
        f"| --- |{' ---: |' * len(matrix.columns)}",
        *(_row(row) for row in matrix.folded),
        _row(matrix.total),
        "",
        LEGEND,
    ]
    return "\n".join(lines) + "\n"


def _row(row: Row) -> str:
    return _line(row.name, [", ".join((cell.score, *(words for _, words in cell.rest))) for cell in row.cells])


def _line(first: str, others: Sequence[str]) -> str:
    return f"| {' | '.join(map(_text, (first, *others)))} |"


def _text(text: str) -> str:
    """Text of a report is no markup, and has no line ends."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))
