"""What several commands have in common: a model in, a model out, and the line that says so."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

MODEL = click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
OUT_FILE = click.Path(dir_okay=False, path_type=Path)
OUT = click.option("--out", required=True, type=OUT_FILE, help="File to write.")

WIDTH = 160
"""Columns of a table that no terminal limits."""


def console() -> Console:
    """The standard output, wide where it is no terminal."""
    made = Console()
    return made if made.is_terminal else Console(width=WIDTH)


def say(text: str) -> None:
    """Print a line as it is."""
    Console().print(text, highlight=False, soft_wrap=True, markup=False)


def count(number: int, one: str, many: str = "") -> str:
    """A number of things, in words."""
    return f"{number} {one if number == 1 else many or one + 's'}"
