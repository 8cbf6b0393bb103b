"""``python -m conformance [run]``: ask a backend every case, and report."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import click
import rich.progress
from rich.console import Console

from conformance import backends
from conformance.case import Case
from conformance.expected_failures import ExpectedFailure, find
from conformance.isolate import IsolatedBackend
from conformance.outcome import Result
from conformance.report import Run, html, json, junit, terminal
from conformance.run import Answer, Asker, ask, run_suite
from conformance.vectors import collect

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("run")
@click.option(
    "--backend",
    "backend_name",
    default="ortops",
    show_default=True,
    metavar="B",
    help=f"Who answers: {', '.join(backends.NAMES)}, or module[:Class] with ONNX's backend interface.",
)
@click.option("--select", "glob", default="*", metavar="GLOB", help="Only cases whose id the pattern matches.")
@click.option("--list", "only_list", is_flag=True, help="Print the ids and run nothing.")
@click.option("--json", "json_file", type=_FILE, metavar="F", help="Write the results to F as JSON.")
@click.option("--junit", "junit_file", type=_FILE, metavar="F", help="Write the results to F as JUnit XML.")
@click.option("--html", "html_file", type=_FILE, metavar="F", help="Write the results to F as a page.")
@click.option("--isolate", is_flag=True, help="Run the backend in a child process, which a case may end.")
def run_command(
    backend_name: str,
    glob: str,
    only_list: bool,
    json_file: Path | None,
    junit_file: Path | None,
    html_file: Path | None,
    isolate: bool,
) -> None:
    """Run the conformance suite.

    The exit status is 0 when no case failed or crashed, 1 when one did, 2 for a wrong call.
    """
    cases = [case for case in collect() if fnmatchcase(case.id, glob)]
    if not cases:
        raise click.BadParameter(f"{glob!r} selects no case", param_hint="--select")
    for file in (json_file, junit_file, html_file):
        if file is not None and not file.parent.is_dir():
            raise click.BadParameter(f"{file.parent} is no folder")
    if only_list:
        for case in cases:
            click.echo(case.id)
        return
    with _asker(backend_name, isolate=isolate) as (asker, known):
        run = Run(backend_name, list(_with_progress(cases, run_suite(cases, asker, known))))
    renderers: Sequence[tuple[Path | None, Callable[[Run], str]]] = (
        (json_file, json.render),
        (junit_file, junit.render),
        (html_file, html.render),
    )
    for file, render in renderers:
        if file is not None:
            file.write_text(render(run), "utf-8")
    terminal.write(run, Console(file=sys.stdout))
    if run.bad:
        raise click.exceptions.Exit(1)


@contextlib.contextmanager
def _asker(backend_name: str, *, isolate: bool) -> Iterator[tuple[Asker, Sequence[ExpectedFailure]]]:
    """Who is asked, and what is known of it. Cases known to end the process are asked in a child in any event."""
    try:
        backend = backends.load(backend_name)
    except backends.MissingBackendError as error:
        raise click.BadParameter(str(error), param_hint="--backend") from error
    known = backend.expected_failures

    def asker(case: Case) -> Answer:
        failure = find(known, case.id)
        return child.ask(case) if isolate or (failure and failure.crashes) else ask(backend, case)

    with IsolatedBackend(backend_name) as child:
        yield asker, known


def _with_progress(cases: Sequence[Case], results: Iterator[Result]) -> Iterator[Result]:
    """The results, with a progress bar where people look at it."""
    console = Console(stderr=True)
    return iter(
        rich.progress.track(
            results,
            description="conformance",
            total=len(cases),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
    )
