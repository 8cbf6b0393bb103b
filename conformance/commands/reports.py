# SPDX-License-Identifier: MIT OR Apache-2.0
"""``python -m conformance matrix``, ``compare`` and ``history``: a table of reports, changes between two, a page of many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import click

from conformance import backends, schedule
from conformance.case import Case, Level
from conformance.commands.options import IN_FILE, JOBS, LEVELS, SELECT, out_file, selected_cases, wrong_call
from conformance.report import counts, history, terminal
from conformance.report.record import NotAReportError, Report, read, read_merged, report_of
from conformance.report.terminal import console, line
from conformance.schedule import WorkerPool
from ortops import atomic_file
from ortops.progress import with_progress


@click.command("matrix", epilog="Example: python -m conformance matrix ortops onnxruntime")
@click.argument("sources", metavar="SOURCES...", nargs=-1, required=True)
@SELECT
@JOBS
@out_file("--markdown", "Write the table to F as Markdown.")
def matrix_command(sources: tuple[str, ...], glob: str, jobs: int, markdown_file: Path | None) -> None:
    """Show a table of groups of cases by backends.

    A source is a file that `run --json` wrote, or the name of a backend, which then runs every case in a child process.
    Several files of one backend are parts of one report.

    The exit status is 0 if the table is complete, even if cases failed, and 2 for a wrong call.
    """
    # A name that ends in .json is a file, so that a missing one is not taken for a backend.
    files = [source for source in sources if source.endswith(".json") or Path(source).is_file()]
    if markdown_file is not None and any(markdown_file.exists() and markdown_file.samefile(file) for file in files):
        raise click.UsageError(f"{markdown_file}: must not be one of SOURCES, which it would replace")
    names = [source for source in sources if source not in files]
    _check_once(names)
    cases = selected_cases(glob) if names else []
    with wrong_call("SOURCES", NotAReportError):
        reports = [_selected(report, glob) for report in read_merged([Path(file) for file in files])]
    if missing := list(filter(None, map(_missing, names))):
        raise click.BadParameter("; ".join(missing), param_hint="SOURCES")
    reports += [_run(name, cases, jobs) for name in names]
    _check_once([report.title for report in reports])
    if markdown_file is not None:
        atomic_file.write(markdown_file, counts.markdown(reports))
    out = console()
    line(out, ", ".join(report.title for report in reports))
    terminal.write_tables(reports, out)


def _selected(report: Report, glob: str) -> Report:
    entries = {name: entry for name, entry in report.entries.items() if fnmatchcase(name, glob)}
    if not entries:
        raise click.BadParameter(f"{glob!r} selects no case of {report.title}", param_hint="--select")
    return replace(report, entries=entries)


def _check_once(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise click.BadParameter(f"backend {name}: must be named once", param_hint="SOURCES")


def _missing(name: str) -> str:
    """The reason why a backend cannot run; empty if it can."""
    try:
        backends.load(name)
    except backends.MissingBackendError as error:
        return str(error)
    return ""


def _run(name: str, cases: Sequence[Case], jobs: int) -> Report:
    """The report of a backend on the cases, each in a child process, which it may end."""
    with WorkerPool(jobs) as pool:
        version, results = schedule.run_cases(pool, schedule.Setting(name), cases)
        by_id = {result.id: result for result in with_progress(results, name, len(cases))}
    return report_of(name, [by_id[case.id] for case in cases], version=version)


@click.command("compare", epilog="Example: python -m conformance compare before.json after.json")
@click.argument("before_file", metavar="A.json", type=IN_FILE)
@click.argument("after_file", metavar="B.json", type=IN_FILE)
def compare_command(before_file: Path, after_file: Path) -> None:
    """Show what changed from report A.json to report B.json.

    `run --json` writes such files. They may be from two backends, or from two versions of one backend.

    The exit status is 0 if every case that fails or crashes in B also did so in A, 1 if not (new cases included, unexpected
    passes not), 2 if a file is not a report.
    """
    with wrong_call(None, NotAReportError):
        before, after = read(before_file), read(after_file)
    if terminal.write_changes(before, after, console())[terminal.NEWLY_FAILING]:
        raise click.exceptions.Exit(1)


@click.command("history", epilog="Example: python -m conformance history old.json new.json --html history.html")
@click.argument("files", metavar="REPORTS...", nargs=-1, required=True, type=IN_FILE)
@click.option(
    "--level",
    type=LEVELS,
    default="standard",
    show_default=True,
    help="Whose rules count, as for `run --level`, whatever the runs asked for.",
)
@out_file("--html", "Write the page to F.", required=True)
def history_command(files: tuple[Path, ...], level: str, html_file: Path) -> None:
    """Write a page about runtimes over their releases: how many cases pass, and which rules each release breaks.

    `run --json` writes such files, best without a list of expected failures. They may be in any order, of any runtimes and
    levels, and of parts of the cases.

    The exit status is 0 if the page is written, 2 for a wrong call or if a file is not a report.
    """
    if any(html_file.exists() and html_file.samefile(file) for file in files):
        raise click.UsageError(f"{html_file}: must not be one of REPORTS, which it would replace")
    with wrong_call("REPORTS", NotAReportError):
        reports = read_merged(files)
    atomic_file.write(html_file, history.render(reports, Level(level)))
    click.echo(f"{len(reports)} release{'s' * (len(reports) != 1)} written to {html_file}")
