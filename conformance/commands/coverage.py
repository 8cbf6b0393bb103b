"""``python -m conformance coverage``: what the suite covers, and which wrong implementations it catches."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
from rich.console import Console

from conformance.coverage.measure import measure
from conformance.coverage.report import Summary
from conformance.progress import with_progress
from conformance.vectors import collect
from conformance.wrong import FAULTS

_FILE = click.Path(dir_okay=False, path_type=Path)

WIDTH = 200
"""Characters where the output is no terminal."""


@click.command("coverage")
@click.option("--json", "json_file", type=_FILE, metavar="F", help="Write all that was measured to F.")
@click.option("--markdown", "markdown_file", type=_FILE, metavar="F", help="Write the tables to F as Markdown.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="J", help="Processes; one a CPU by default.")
@click.option("--all", "everything", is_flag=True, help="Ask all cases: --json then lists all that catch a fault.")
def coverage_command(json_file: Path | None, markdown_file: Path | None, jobs: int | None, everything: bool) -> None:
    """Measure the suite itself.

    Shows which values of attributes the cases have, which of the wrong implementations of `conformance.wrong` they
    catch, and how many facts are the first to catch one.

    The exit status is 0 when every wrong implementation is caught, 1 when not, 2 for a wrong call.
    """
    for file in (json_file, markdown_file):
        if file is not None and not file.parent.is_dir():
            raise click.BadParameter(f"{file.parent} is no folder")
    catches = measure(jobs or os.cpu_count() or 1, everything=everything)
    unit = "wrong implementations"
    summary = Summary(collect(), list(with_progress(catches, "coverage", total=len(FAULTS), unit=unit)))
    shown = Console(file=sys.stdout)
    summary.write(shown if shown.is_terminal else Console(file=sys.stdout, width=WIDTH))
    if json_file is not None:
        json_file.write_text(summary.json(), "utf-8")
    if markdown_file is not None:
        markdown_file.write_text(summary.markdown(), "utf-8")
    if not summary.is_sound:
        raise click.exceptions.Exit(1)
