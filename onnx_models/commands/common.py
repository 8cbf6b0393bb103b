"""Arguments and output that several commands share."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

MODEL = click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
OUT_FILE = click.Path(dir_okay=False, path_type=Path)
OUT = click.option("--out", required=True, type=OUT_FILE, help="File to write.")

WIDTH = 160
"""The width of tables outside of a terminal, in columns."""


def console() -> Console:
    """Return a console for the standard output, which is wide outside of a terminal."""
    made = Console()
    return made if made.is_terminal else Console(width=WIDTH)


def say(text: str) -> None:
    """Print a line without markup, highlighting or wrapping."""
    Console().print(text, highlight=False, soft_wrap=True, markup=False)


def count(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: ``1 node``, ``2 nodes``."""
    return f"{number} {one if number == 1 else many or one + 's'}"
