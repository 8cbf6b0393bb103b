"""``python -m conformance coverage``: what the suite covers, and which wrong implementations it catches."""

from __future__ import annotations

import os
from pathlib import Path

import click

from conformance.commands.options import JOBS, out_file
from conformance.coverage.measure import measure
from conformance.coverage.report import Summary
from conformance.mutants import MUTANTS
from conformance.progress import with_progress
from conformance.report.terminal import console
from conformance.vectors import collect

WIDTH = 200
"""Characters where the output is no terminal."""


@click.command("coverage")
@out_file("--json", "Write all that was measured to F.")
@out_file("--markdown", "Write the tables to F as Markdown.")
@JOBS
@click.option("--all", "everything", is_flag=True, help="Ask all cases: --json then lists all that catch a fault.")
def coverage_command(json_file: Path | None, markdown_file: Path | None, jobs: int | None, everything: bool) -> None:
    """Measure the suite itself.

    Shows which values of attributes the cases have, which of the wrong implementations of `conformance.mutants` they
    catch, and how many facts are the first to catch one.

    The exit status is 0 when every wrong implementation is caught, 1 when not, 2 for a wrong call.
    """
    catches = measure(jobs or os.cpu_count() or 1, everything=everything)
    unit = "wrong implementations"
    summary = Summary(collect(), list(with_progress(catches, "coverage", total=len(MUTANTS), unit=unit)))
    summary.write(console(WIDTH))
    if json_file is not None:
        json_file.write_text(summary.json(), "utf-8")
    if markdown_file is not None:
        markdown_file.write_text(summary.markdown(), "utf-8")
    if not summary.is_sound:
        raise click.exceptions.Exit(1)
