"""Arguments and output that several commands share."""

from __future__ import annotations

import importlib
import operator
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import click

from ortops.custom.decorator import CustomOperator

MODEL = click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
OUT_FILE = click.Path(dir_okay=False, path_type=Path)
OUT = click.option("--out", required=True, type=OUT_FILE, help="File to write.")
FORCE = click.option("--force", is_flag=True, help="Allow --out to be the file MODEL, which is then replaced.")

OPERATORS = click.option(
    "--operators",
    "operators",
    multiple=True,
    metavar="MODULE:NAME",
    help="An operator made by ortops.operator that the model uses: a module, installed or in the working folder, and the "
    "operator's name in it; may be repeated.",
)

T = TypeVar("T")


def imported(names: Sequence[str]) -> list[CustomOperator]:
    """Import the operators of --operators.

    Raises:
        click.BadParameter: a value is not MODULE:NAME, or does not name an operator made by `ortops.operator`.
    """
    found: list[CustomOperator] = []
    for name in names:
        module, _, attribute = name.partition(":")
        try:
            one = operator.attrgetter(attribute)(importlib.import_module(module))
        except (ImportError, AttributeError, ValueError) as error:
            raise click.BadParameter(f"--operators {name}: must be MODULE:NAME ({error})") from error
        if not isinstance(one, CustomOperator):
            raise click.BadParameter(f"--operators {name}: must be an operator made by ortops.operator")
        found.append(one)
    return found


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows of one-line cells below their headings, each column as wide as its longest cell."""
    lines = [columns, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def with_progress(items: Iterable[T], title: str, total: int) -> Iterator[T]:
    """Yield the items, and show a progress bar on standard error if that is a terminal."""
    is_hidden = not sys.stderr.isatty()
    with click.progressbar(items, total, title, file=sys.stderr, hidden=is_hidden) as shown:
        yield from shown


def count(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: ``1 node``, ``2 nodes``."""
    return f"{number} {one if number == 1 else many or one + 's'}"
