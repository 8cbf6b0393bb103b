"""``python -m conformance [run]``: run the cases on a backend, and report the outcomes."""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import click

import ortops
from conformance import backends, isolate
from conformance.case import Case
from conformance.commands.options import (
    DASK,
    IN_FILE,
    JOBS,
    SELECT,
    chosen_workers,
    out_file,
    selected_cases,
    wrong_call,
)
from conformance.conventions import CONVENTIONS
from conformance.diagnosis import Diagnosis, diagnose
from conformance.expected_failures import ExpectedFailure, read
from conformance.outcome import Outcome, Result
from conformance.report import failure_list, junit, page, record, terminal
from conformance.report.matrix import Matrix
from conformance.report.record import Report, report_of
from conformance.run import STRICT
from conformance.stopping import stopped_by_signals
from conformance.terminal import console
from conformance.vectors import collect
from conformance.workers import WorkerPoolError
from ortops import atomic_file, worker_process
from ortops.progress import with_progress


def _part(_context: click.Context, _option: click.Parameter, value: str) -> tuple[int, int]:
    """The numbers i and n of `i/n`."""
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", value, re.ASCII)
    part, parts = map(int, found.groups()) if found else (0, 0)
    if not 1 <= part <= parts:
        raise click.BadParameter(f"{value!r}: must be i/n with 1 <= i <= n")
    return part, parts


@click.command("run")
@click.option(
    "--backend",
    "backend_name",
    default="ortops",
    show_default=True,
    metavar="B",
    help=f"Backend to check: {', '.join(backends.NAMES)}, module[:Class] with ONNX's backend interface, or "
    "module:function on NumPy arrays (see docs/conformance.md, and the command init).",
)
@click.option(
    "--provider",
    metavar="NAME",
    help=f"Execution provider of ONNX Runtime, for {', '.join(backends.WITH_PROVIDER)}. [default: the CPU's]",
)
@SELECT
@click.option(
    "--exclude",
    "excluded",
    multiple=True,
    metavar="GLOB",
    help="No cases whose id matches; may be repeated.",
)
@click.option(
    "--shard",
    callback=_part,
    default="1/1",
    metavar="I/N",
    help="Only part I of N of those cases. The parts are disjoint and take about the same time.",
)
@click.option(
    "--expected-failures",
    "failures_file",
    type=IN_FILE,
    metavar="F",
    help="TOML file with the expected failures, which replaces the backend's own list (see docs/conformance.md).",
)
@out_file(
    "--write-expected-failures",
    "Run without a list, and write the failures to F as a list for --expected-failures, by cause.",
)
@click.option(
    "--update",
    is_flag=True,
    help="Keep the entries of that F, and their reasons, where they still hold, and print what changed.",
)
@click.option(
    "--strict",
    type=click.Choice(list(STRICT)),
    default="reference",
    show_default=True,
    help="Weakest basis whose cases can fail: the operator's text, published vectors, the results of ONNX's reference "
    "evaluator, or all: also this suite's own rules. A case of a weaker basis departs instead.",
)
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
    help="Continue the run that wrote F as JSON, without the cases that it has.",
)
@JOBS
@DASK
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True, max=86400),
    metavar="SECONDS",
    default=isolate.TIME_LIMIT,
    show_default=True,
    help="Time limit for a case, without the compilation of our kernels.",
)
@click.option(
    "--memory-limit",
    type=click.IntRange(min=1),
    metavar="MIB",
    help="On Linux: memory that a case may take in addition to the backend's. [default: any]",
)
def run_command(
    backend_name: str,
    provider: str | None,
    glob: str,
    excluded: tuple[str, ...],
    shard: tuple[int, int],
    failures_file: Path | None,
    write_expected_failures_file: Path | None,
    update: bool,
    strict: str,
    named: tuple[str, ...],
    only_list: bool,
    json_file: Path | None,
    junit_file: Path | None,
    html_file: Path | None,
    earlier_file: Path | None,
    jobs: int,
    address: str | None,
    time_limit: float,
    memory_limit: int | None,
) -> None:
    """Run the conformance suite on a backend.

    The backend runs in child processes, so a case that ends its process or exceeds a limit has crashed, and the others go
    on. Results and reports are the same for any number of processes.

    SIGINT and SIGTERM stop the run, which still writes its reports; --resume continues from one in JSON.

    The exit status is 0 if no case failed or crashed, or if a list of those that did was written, 1 if one did or if the
    backend supports no case, 2 for a wrong call, 128 plus the signal's number if a signal stopped the run.
    """
    cases = _selected_cases(glob, excluded, *shard)
    _check_limits(time_limit, memory_limit)
    older = _older(write_expected_failures_file, failures_file, update=update)
    listed = None if failures_file is None else _listed(failures_file)
    if only_list:
        for case in cases:
            click.echo(case.id)
        return
    label = backend_name if provider is None else f"{backend_name} on {provider}"
    earlier = {} if earlier_file is None else _earlier(earlier_file, label, cases)
    reports = Reports(label, len(cases), json=json_file, junit=junit_file, html=html_file)
    setting = isolate.Setting(
        backend_name,
        provider,
        known=() if write_expected_failures_file else None if listed is None else tuple(listed),
        strict=STRICT[strict],
        conventions=named,
        time_limit=time_limit,
        memory_limit=memory_limit,
    )
    left = [case for case in cases if case.id not in earlier]
    with (
        wrong_call("--backend", backends.MissingBackendError),
        wrong_call("--provider", backends.ProviderError),
        wrong_call("--dask", WorkerPoolError),
        stopped_by_signals() as stopped,
        chosen_workers(min(jobs, max(len(left), 1)), address, backend_name) as pool,
    ):
        found = isolate.results(pool, setting, left)
        try:
            for case in with_progress(cases, "conformance", len(cases), note=reports.note):
                reports.add(earlier.get(case.id) or next(found))
        finally:
            reports.write()
    report = reports.report
    terminal.write(report, console(), reports.diagnoses)
    if stopped:
        click.echo(f"stopped by signal {stopped[0]} after {len(reports.results)} of {len(cases)} cases")
        raise click.exceptions.Exit(128 + stopped[0])
    is_tested = any(entry.outcome is not Outcome.UNSUPPORTED for entry in report.entries.values())
    if not is_tested:
        click.echo("the backend supports none of the selected cases; nothing was tested")
    if is_tested and write_expected_failures_file is not None:
        reports.write_list(write_expected_failures_file, older)
    for error in reports.errors:
        click.echo(error)
    if reports.errors or not is_tested or (report.failing and write_expected_failures_file is None):
        raise click.exceptions.Exit(1)


RENDERERS: Mapping[str, Callable[[Report, Sequence[Diagnosis]], str]] = {
    "json": lambda report, _: record.render(report),
    "junit": lambda report, _: junit.render(report),
    "html": lambda report, diagnoses: page.render(Matrix([report]), {report.title: diagnoses}),
}
"""What makes the text of a report's file, by the option that names the file."""


class Reports:
    """The report files of a run, and its results so far.

    total: the number of cases of the run.
    files: the files to write, by the keys of `RENDERERS`. JSON is written every `SECONDS`, all of them at the end.
    errors: the reasons why a file could not be written at the end.
    """

    SECONDS = 2.0

    def __init__(self, label: str, total: int, **files: Path | None) -> None:
        self.results: list[Result] = []
        self._label, self._total = label, total
        # A backend may change the working folder.
        self._files = {option: file.absolute() for option, file in files.items() if file is not None}
        self._written = time.monotonic()
        self._failed = 0
        self.diagnoses: list[Diagnosis] = []
        self.errors: list[str] = []

    @property
    def report(self) -> Report:
        """The report of the results so far."""
        return report_of(self._label, self.results, complete=len(self.results) == self._total)

    def add(self, result: Result) -> None:
        """Add a result."""
        self.results.append(result)
        self._failed += result.outcome.is_bad
        if "json" in self._files and time.monotonic() - self._written >= self.SECONDS:
            with contextlib.suppress(OSError):  # there may be room again at the end
                atomic_file.write(self._files["json"], record.render(self.report))
            self._written = time.monotonic()

    def note(self) -> str:
        """The number of failures in words."""
        return f"{self._failed} failed"

    def write(self) -> None:
        """Write all files, with the diagnoses of the failures. One that cannot be written does not keep others from it."""
        report, self.diagnoses = self.report, diagnose(self.results)
        for option, file in self._files.items():
            try:
                atomic_file.write(file, RENDERERS[option](report, self.diagnoses))
            except OSError as error:  # noqa: PERF203  # each file is tried
                self.errors.append(f"{file} is not written: {error}")

    def write_list(self, file: Path, older: Sequence[ExpectedFailure]) -> None:
        """Write the list of expected failures, and print its changes."""
        known = failure_list.listed(self.results, self.diagnoses, older, [case.id for case in collect()])
        if older:
            click.echo("\n".join(failure_list.changes(older, known)) or "no changes")
        try:
            atomic_file.write(file, failure_list.render(known, self.report))
        except OSError as error:
            self.errors.append(f"{file} is not written: {error}")
            return
        reasons = len({entry.reason for entry in known})
        said = f"{reasons} reason{'s' * (reasons != 1)} for {len(self.report.failing)} failing cases"
        click.echo(f"{said} written to {file}")


def _earlier(file: Path, label: str, cases: Sequence[Case]) -> dict[str, Result]:
    """The results of an earlier run by case id.

    Raises:
        click.BadParameter: the file is not a report of this backend by this release of the suite.
    """
    with wrong_call("--resume", record.NotAReportError):
        report = record.read(file)
    suite = report.origin.suite
    if (report.backend, suite) != (label, ortops.__version__):
        found = f"is of {report.backend}, by suite {suite or 'unknown'}"
        rule = f"must be of {label}, by suite {ortops.__version__}"
        raise click.BadParameter(f"{file} {found}: {rule}", param_hint="--resume")
    return {result.case.id: result for result in report.results(cases)}


def shard_of(cases: Sequence[Case], part: int, parts: int) -> list[Case]:
    """The cases of one part, counted from 1.

    Each part has as many cases of each group and element type, because groups differ in their time and a runtime may
    not support some types.
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
    if memory_limit is not None and not worker_process.can_limit_memory():
        raise click.BadParameter(f"{memory_limit}: only on Linux", param_hint="--memory-limit")


def _listed(file: Path) -> list[ExpectedFailure]:
    with wrong_call("--expected-failures", OSError, ValueError):
        return read(file, [case.id for case in collect()])


def _older(file: Path | None, failures_file: Path | None, *, update: bool) -> list[ExpectedFailure]:
    """The list that `--write-expected-failures` begins with."""
    option = "--write-expected-failures"
    if file is None:
        if update:
            raise click.UsageError(f"--update: must come with {option}")
        return []
    if failures_file is not None:
        raise click.UsageError(f"--expected-failures: cannot be used with {option}, which runs without a list")
    if not file.exists():
        return []
    if not update:
        raise click.BadParameter(f"{file} exists: must be a new file, or --update must be given", param_hint=option)
    with wrong_call(option, OSError, ValueError):
        return read(file, ids=None)  # what names no case any more is removed
