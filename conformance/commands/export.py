"""``python -m conformance export``: write the cases in the layout of ONNX's own test data."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

import click

from conformance import export
from conformance.model import Dialect
from conformance.progress import with_progress
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
@click.option("--with-huge", is_flag=True, help=f"Also cases of more than {export.MOST_SAMPLES} samples.")
def export_command(folder: Path, glob: str, dialect: Dialect, with_huge: bool) -> None:
    """Write cases to DIR as ONNX's test data.

    Each becomes a folder DIR/DIALECT/test_..., as onnx.backend.test and onnx_test_runner read it; `run-exported` runs
    them. What the layout cannot say is left out and counted: cases in which an error is due, and with the standard
    dialect those of operators and modes that ONNX does not have.

    The exit status is 0 when the cases are written, 2 for a wrong call or where DIR cannot be written.
    """
    cases = [case for case in collect() if fnmatchcase(case.id, glob)]
    if not cases:
        raise click.BadParameter(f"{glob!r} selects no case", param_hint="--select")
    kept, left_out = export.divide(cases, dialect, with_huge=with_huge)
    if not kept:
        reasons = "; ".join(_lines(left_out))
        raise click.BadParameter(f"{glob!r} selects no case that can be exported: {reasons}", param_hint="--select")
    try:
        for case in with_progress(kept, "export", len(kept)):
            export.write(case, folder / dialect, dialect)
    except OSError as error:
        raise click.BadParameter(f"cannot write: {error}", param_hint="DIR") from error
    click.echo(f"{len(kept)} cases written to {folder / dialect}")
    for line in _lines(left_out):
        click.echo(line)


def _lines(left_out: Counter[str]) -> list[str]:
    """How many cases were left out and why, the most frequent reason first."""
    return [f"{count} left out: {reason}" for reason, count in left_out.most_common()]
