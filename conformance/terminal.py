"""Lines and tables on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import rich.table
    from rich.console import Console

WIDTH = 10_000
"""Characters of a line if the output is no terminal: enough for tables and lines of any length."""


def console() -> Console:
    """The standard output, with lines of `WIDTH` characters if it is no terminal."""
    from rich.console import Console  # of the extra conformance

    out = Console(file=sys.stdout)
    return out if out.is_terminal else Console(file=sys.stdout, width=WIDTH)


def line(out: Console, text: str, style: str | None = None) -> None:
    """Print one line of any length, without reading rich's markup in it."""
    import rich.text

    out.print(rich.text.Text(text), style=style, soft_wrap=True)


def table(columns: Iterable[tuple[str, str]], first: str) -> rich.table.Table:
    """An empty table with a column for names, and one for each heading and colour."""
    import rich.box
    import rich.table
    import rich.text

    made = rich.table.Table(box=rich.box.SIMPLE)
    made.add_column(first, no_wrap=True)
    for heading, style in columns:
        made.add_column(rich.text.Text(heading), justify="right", style=style, overflow="fold")
    return made
