"""``python -m conformance export``: write the cases in the layout of ONNX's own test data."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import click
import rich.progress
from rich.console import Console

from conformance import export
from conformance.case import Case
from conformance.model import Dialect
from conformance.vectors import collect


@click.command("export")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--select", "glob", default="*", metavar="GLOB", help="Only cases whose id the pattern matches.")
@click.option(
    "--dialect",
    type=click.Choice(["standard", "ortops"]),
    default="standard",
    show_default=True,
    help="ONNX's own nodes, where ONNX has them, or the custom operators.",
)
def export_command(folder: Path, glob: str, dialect: Dialect) -> None:
    """Write cases to DIR as ONNX's test data.

    Each becomes a folder DIR/DIALECT/test_..., as onnx.backend.test and onnx_test_runner read it. Cases in which an
    error is due are left out, and with the standard dialect those of operators and modes that ONNX does not have.

    The exit status is 0 when the cases are written, 2 for a wrong call or where DIR cannot be written.
    """
    cases = [case for case in collect() if fnmatchcase(case.id, glob)]
    if not cases:
        raise click.BadParameter(f"{glob!r} selects no case", param_hint="--select")
    kept, left_out = export.divide(cases, dialect)
    if not kept:
        reasons = "; ".join(_lines(left_out))
        raise click.BadParameter(f"{glob!r} selects no case that can be exported: {reasons}", param_hint="--select")
    _write(kept, folder / dialect, dialect)
    click.echo(f"{len(kept)} cases written to {folder / dialect}")
    for line in _lines(left_out):
        click.echo(line)


def _lines(left_out: Counter[str]) -> list[str]:
    """How many cases were left out and why, the most frequent reason first."""
    return [f"{count} left out: {reason}" for reason, count in left_out.most_common()]


def _write(cases: Sequence[Case], kind_folder: Path, dialect: Dialect) -> None:
    """Write each case, with a progress bar where people look at it.

    Raises:
        click.BadParameter: something cannot be written.
    """
    console = Console(file=sys.stderr)
    shown = rich.progress.track(
        cases, description="export", console=console, transient=True, disable=not console.is_terminal
    )
    try:
        for case in shown:
            export.write(case, kind_folder, dialect)
    except OSError as error:
        raise click.BadParameter(f"cannot write: {error}", param_hint="DIR") from error
