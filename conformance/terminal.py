"""Lines and tables on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import rich.table
    from rich.console import Console
    from rich.text import Text

WIDTH = 10_000
"""The length of a line if the output is not a terminal: enough for all tables and lines."""

INDENT = 4
"""Spaces before the parts of a broken line, after the first part."""


def console() -> Console:
    """The standard output, with lines of `WIDTH` characters if it is not a terminal."""
    from rich.console import Console  # of the extra conformance

    out = Console(file=sys.stdout)
    return out if out.is_terminal else Console(file=sys.stdout, width=WIDTH)


def line(out: Console, text: str, style: str | None = None, *, is_whole: bool = False) -> None:
    """Print one line, without reading rich's markup in it.

    On a terminal a long line is broken between words, unless `is_whole`. The lines after the first are indented.
    """
    import rich.text

    made = rich.text.Text(text)
    if is_whole or not out.is_terminal or made.cell_len <= out.width:
        out.print(made, style=style, soft_wrap=True)
        return
    spaces = len(text) - len(text.lstrip(" "))
    indent = spaces or INDENT
    for k, part in enumerate(rich.text.Text(text[spaces:]).wrap(out, out.width - indent)):
        out.print(rich.text.Text(" " * (indent if k else spaces)) + part, style=style, soft_wrap=True)


def table(
    columns: Iterable[tuple[str, str]], first: str, rows: Iterable[tuple[str, Iterable[str | Text]]] = ()
) -> rich.table.Table:
    """A table with a column for names and a column for each heading and colour. Rows have a name and the other cells.

    Strings are printed literally, without rich's markup.
    """
    import rich.box
    import rich.table
    import rich.text

    made = rich.table.Table(box=rich.box.SIMPLE)
    made.add_column(first, no_wrap=True)
    for heading, style in columns:
        longest = max(map(len, heading.split()), default=1)
        made.add_column(rich.text.Text(heading), justify="right", style=style, overflow="fold", min_width=longest)
    for name, cells in rows:
        made.add_row(*(rich.text.Text(cell) if isinstance(cell, str) else cell for cell in (name, *cells)))
    return made


def with_total(table: rich.table.Table) -> rich.table.Table:
    """The table with a line above its last row."""
    if table.row_count > 1:
        table.rows[-2].end_section = True
    return table
