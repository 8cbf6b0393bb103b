# SPDX-License-Identifier: MIT OR Apache-2.0
"""``python -m conformance [run]``: run the cases on a backend, and report the outcomes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import click

import ortops
from conformance import backends, child, schedule
from conformance.case import Case, chosen_level
from conformance.cases import by_id
from conformance.commands.options import (
    IN_FILE,
    JOBS,
    LEVEL,
    SELECT,
    STRICT,
    TIME_LIMIT,
    out_file,
    selected_cases,
    wrong_call,
)
from conformance.expected_failures import Floor, Listed, judged_of, read, shortfalls
from conformance.expected_values import CONVENTIONS
from conformance.guard import stopped_by_signals
from conformance.report import record, terminal
from conformance.report.adopters import FORMATS
from conformance.report.files import Reports
from conformance.report.record import Report
from conformance.report.terminal import console
from ortops.progress import with_progress


def _part(_context: click.Context, _option: click.Parameter, value: str) -> tuple[int, int]:
    """The numbers i and n of `i/n`."""
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", value, re.ASCII)
    part, parts = map(int, match.groups()) if match else (0, 0)
    if not 1 <= part <= parts:
        raise click.BadParameter(f"{value!r}: must be i/n with 1 <= i <= n")
    return part, parts


@click.command("run", epilog="Example: python -m conformance run --backend my_backend:answer --html report.html")
@click.option(
    "--backend",
    "backend_name",
    default="ortops",
    show_default=True,
    metavar="B",
    help=f"The backend to check. Built in: {', '.join(backends.NAMES)}. Your own: module:Class with ONNX's backend "
    "interface, or module:function on NumPy arrays (the command init writes one), or exec:'PROGRAM ARGUMENTS' for a "
    "program that speaks the protocol of docs/protocol.md. A library that `python -m ortops "
    "library` wrote: library:PATH, or library-standard:PATH for its versions of ONNX's own operators.",
)
@click.option(
    "--provider",
    metavar="NAME",
    help=f"ONNX Runtime's execution provider, for {', '.join(backends.WITH_PROVIDER)}. [default: the CPU's]",
)
@SELECT
@click.option(
    "--exclude",
    "excluded",
    multiple=True,
    metavar="GLOB",
    help="Leave out cases whose id matches; may be repeated.",
)
@click.option(
    "--shard",
    callback=_part,
    default="1/1",
    metavar="I/N",
    help="Run part I of N of the selected cases. The parts are disjoint and take about the same time.",
)
@click.option(
    "--expected-failures",
    "failures_file",
    type=IN_FILE,
    metavar="F",
    help="TOML file with the expected failures. It replaces the backend's own list.",
)
@out_file(
    "--write-expected-failures",
    "Run without a list, and write the failures to F, grouped by cause, for --expected-failures. F also gets the number "
    "of judged cases. With --resume and a complete report, no case runs.",
)
@click.option(
    "--format",
    "list_format",
    type=click.Choice(["toml", *FORMATS]),
    default="toml",
    show_default=True,
    help="With --write-expected-failures: write toml, which --expected-failures reads, or what the tests of ONNX Runtime, "
    "OpenVINO, OpenCV and burn or web-platform-tests (ini) read, for the cases that `export --names onnx` writes.",
)
@click.option(
    "--at-least",
    type=click.IntRange(min=1),
    metavar="N",
    help="Fail if fewer cases are judged, which are all but the unsupported ones. A list of expected failures may also "
    "set this.",
)
@click.option(
    "--update",
    is_flag=True,
    help="With --write-expected-failures: keep the entries of F that still hold and their reasons, and print the "
    "changes.",
)
@LEVEL
@STRICT
@click.option(
    "--convention",
    "named",
    type=click.Choice(CONVENTIONS),
    multiple=True,
    help="Judge the backend by this reading of the specification; may be repeated.",
)
@click.option("--list", "only_list", is_flag=True, help="Print the ids of the cases instead of running them.")
@out_file("--json", "Write the results to F as JSON.")
@out_file("--junit", "Write the results to F as JUnit XML.")
@out_file("--html", "Write the results to F as an HTML page.")
@click.option(
    "--resume",
    "earlier_file",
    type=IN_FILE,
    metavar="F",
    help="Continue the run that wrote F as JSON; its cases do not run again.",
)
@JOBS
@TIME_LIMIT
@click.option(
    "--memory-limit",
    type=click.IntRange(min=1),
    metavar="MIB",
    help="On Linux: the memory that a case may use in addition to the loaded backend. [default: unlimited]",
)
@click.option("--verbose", "-v", is_flag=True, help="Print all causes, failures, departures and groups of cases.")
def run_command(
    backend_name: str,
    provider: str | None,
    glob: str,
    excluded: tuple[str, ...],
    shard: tuple[int, int],
    failures_file: Path | None,
    write_expected_failures_file: Path | None,
    list_format: str,
    at_least: int | None,
    update: bool,
    level: str | None,
    strict: str | None,
    named: tuple[str, ...],
    only_list: bool,
    json_file: Path | None,
    junit_file: Path | None,
    html_file: Path | None,
    earlier_file: Path | None,
    jobs: int,
    time_limit: float,
    memory_limit: int | None,
    verbose: bool,
) -> None:
    """Run the conformance suite on a backend.

    The backend runs in child processes. A case that ends its process or exceeds a limit counts as crashed, and the run
    continues. The number of processes does not change results or reports.

    SIGINT and SIGTERM stop the run. It still writes its reports, and --resume continues from the JSON report.

    The exit status is 0 if no case failed or crashed, or if the failures were written as a list. It is 1 if a case failed
    or crashed, if the backend supports no case, or if too few cases were judged. It is 2 for a wrong call, and 128 plus the
    signal's number if a signal stopped the run.
    """
    cases = _selected_cases(glob, excluded, *shard)
    _check_limits(time_limit, memory_limit)
    if at_least is not None and at_least > len(cases):
        raise click.BadParameter(
            f"{at_least}: must be at most the number of cases, {len(cases)}", param_hint="--at-least"
        )
    if list_format != "toml" and (update or write_expected_failures_file is None):
        raise click.UsageError(
            "--format: must come with --write-expected-failures, and without --update unless it is toml"
        )
    older = _older(write_expected_failures_file, failures_file, update=update)
    listed = Listed()
    if failures_file is not None:
        with wrong_call("--expected-failures", OSError, ValueError):
            listed = read(failures_file, by_id())
    if only_list:
        for case in cases:
            click.echo(case.id)
        return
    label = backend_name if provider is None else f"{backend_name} on {provider}"
    asked = chosen_level(level, strict, listed.level, older.level)
    reports = Reports(label, asked, cases, json=json_file, junit=junit_file, html=html_file)
    if earlier_file is not None:
        reports.take(_earlier(earlier_file, label), without_list=write_expected_failures_file is not None)
    setting = schedule.Setting(
        backend_name,
        provider,
        known=listed.failures if failures_file or write_expected_failures_file else None,
        level=asked,
        conventions=named,
        time_limit=time_limit,
        memory_limit=memory_limit,
    )
    left = reports.left
    with (
        wrong_call("--backend", backends.MissingBackendError),
        wrong_call("--provider", backends.ProviderError),
        stopped_by_signals() as stopped,
        schedule.WorkerPool(min(jobs, max(len(left), 1))) as pool,
    ):
        version, results = schedule.run_cases(pool, setting, left)
        reports.version = version or reports.version
        try:
            for result in with_progress(results, "conformance", len(left), note=lambda: f"{reports.failed} failed"):
                reports.add(result)
        finally:
            reports.write()
    report = reports.report
    outcomes = {case_id: entry.outcome for case_id, entry in report.entries.items()}
    said: list[str] = []
    if judged_of(outcomes) and write_expected_failures_file is not None and not stopped:
        # Whether a large case is judged depends on the time that it would take.
        judged = judged_of({case_id: outcome for case_id, outcome in outcomes.items() if not by_id()[case_id].formula})
        new_floor = Floor(judged, glob, excluded) if judged and shard == (1, 1) else None
        if list_format == "toml":
            said = reports.write_list(write_expected_failures_file, older, new_floor)
        else:
            said = reports.write_adopters_list(write_expected_failures_file, list_format)
    terminal.write(report, console(), reports.causes, has_own_list=setting.known is None, verbose=verbose)
    if stopped:
        click.echo(f"stopped by signal {stopped[0]} after {len(report.entries)} of {len(cases)} cases")
        raise click.exceptions.Exit(128 + stopped[0])
    errors = shortfalls(outcomes, listed.floor, by_id())
    if at_least and (breach := Floor(at_least).breach(outcomes, outcomes)):
        errors.append(breach)
    for text in (*said, *errors, *reports.errors):
        click.echo(text)
    if errors or reports.errors or (report.failing and write_expected_failures_file is None):
        raise click.exceptions.Exit(1)


def _earlier(file: Path, label: str) -> Report:
    """The report of an earlier run.

    Raises:
        click.BadParameter: the file is not a report of this backend by this release of the suite.
    """
    with wrong_call("--resume", record.NotAReportError):
        report = record.read(file)
    suite = report.origin.suite
    if (report.backend, suite) != (label, ortops.__version__):
        content = f"has results of {report.backend} by suite {suite or 'unknown'}"
        rule = f"must have results of {label} by suite {ortops.__version__}"
        raise click.BadParameter(f"{file} {content}: {rule}", param_hint="--resume")
    return report


def shard_of(cases: Sequence[Case], part: int, parts: int) -> list[Case]:
    """The cases of one part, counted from 1.

    Each part has the same number of cases of each group and element type, because some groups take longer and a runtime
    may not support some types.
    """
    order = sorted(range(len(cases)), key=lambda i: (cases[i].group, cases[i].element_type, i))
    return [cases[i] for i in sorted(order[part - 1 :: parts])]


def _selected_cases(glob: str, excluded: Sequence[str], part: int, parts: int) -> list[Case]:
    cases = selected_cases(glob)
    for pattern in excluded:
        kept = [case for case in cases if not fnmatchcase(case.id, pattern)]
        if len(kept) in (0, len(cases)):
            rule = "leaves no case" if not kept else "excludes no case"
            raise click.BadParameter(f"{pattern!r} {rule}", param_hint="--exclude")
        cases = kept
    if parts > len(cases):
        rule = f"must have at most as many parts as there are cases, {len(cases)}"
        raise click.BadParameter(f"'{part}/{parts}': {rule}", param_hint="--shard")
    return shard_of(cases, part, parts)


def _check_limits(time_limit: float, memory_limit: int | None) -> None:
    if math.isnan(time_limit):
        raise click.BadParameter(f"{time_limit}: must be a number", param_hint="--time-limit")
    if memory_limit is not None and not child.can_limit_memory():
        raise click.BadParameter(f"{memory_limit}: only on Linux", param_hint="--memory-limit")


def _older(file: Path | None, failures_file: Path | None, *, update: bool) -> Listed:
    """The list that `--write-expected-failures` begins with."""
    option = "--write-expected-failures"
    if file is None:
        if update:
            raise click.UsageError(f"--update: must come with {option}")
        return Listed()
    if failures_file is not None:
        raise click.UsageError(f"--expected-failures: cannot be used with {option}, which runs without a list")
    if not file.exists():
        return Listed()
    if not update:
        raise click.BadParameter(f"{file} exists: must be a new file, or --update must be given", param_hint=option)
    with wrong_call(option, OSError, ValueError):
        return read(file, ids=None)  # what names no case any more is removed
