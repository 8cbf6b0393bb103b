"""``python -m conformance compare``: what changed between two runs."""

from __future__ import annotations

from pathlib import Path

import click

from conformance.commands.options import IN_FILE, wrong_call
from conformance.report import terminal
from conformance.report.record import NotAReportError, read
from conformance.terminal import console


@click.command("compare")
@click.argument("before_file", metavar="A.json", type=IN_FILE)
@click.argument("after_file", metavar="B.json", type=IN_FILE)
def compare_command(before_file: Path, after_file: Path) -> None:
    """Show what changed from report A.json to report B.json.

    `run --json` writes such files. They may be from two backends, or from two versions of one backend.

    The exit status is 0 if every case that fails or crashes in B also did so in A, 1 if not (new cases included), 2 if a
    file is not a report.
    """
    with wrong_call(None, NotAReportError):
        before, after = read(before_file), read(after_file)
    if terminal.write_changes(before, after, console())[terminal.Group.NEWLY_FAILING]:
        raise click.exceptions.Exit(1)
