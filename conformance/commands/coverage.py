"""``python -m conformance coverage``: the attribute values and the wrong implementations that the suite covers."""

from __future__ import annotations

from pathlib import Path

import click

from conformance.commands.options import JOBS, out_file
from conformance.coverage.measure import measure
from conformance.coverage.report import Summary
from conformance.mutants import MUTANTS
from conformance.terminal import console
from conformance.vectors import collect
from ortops import atomic_file
from ortops.progress import with_progress

WIDTH = 200
"""Characters of a line if the output is no terminal."""


@click.command("coverage")
@out_file("--json", "Write all measurements to F.")
@out_file("--markdown", "Write the tables to F as Markdown.")
@JOBS
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Run all cases: --json then lists every case that catches a wrong implementation.",
)
def coverage_command(json_file: Path | None, markdown_file: Path | None, jobs: int, everything: bool) -> None:
    """Show what the suite itself covers and catches.

    This counts the attribute values that the cases have. It shows the first case that each wrong implementation of
    `conformance.mutants` fails, and for each family of cases how many scenarios are the first to catch one.

    The exit status is 0 if every wrong implementation is caught, 1 if not, 2 for a wrong call.
    """
    catches = measure(jobs, everything=everything)
    unit = "wrong implementations"
    summary = Summary(collect(), list(with_progress(catches, "coverage", total=len(MUTANTS), unit=unit)))
    summary.write(console())
    if json_file is not None:
        atomic_file.write(json_file, summary.json())
    if markdown_file is not None:
        atomic_file.write(markdown_file, summary.markdown())
    if not summary.is_sound:
        raise click.exceptions.Exit(1)
