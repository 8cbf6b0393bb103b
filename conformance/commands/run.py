"""``python -m conformance [run]``: ask a backend every case, and report."""

from __future__ import annotations

import contextlib
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import click
import rich.progress
from rich.console import Console

from conformance import backends, isolate
from conformance.case import Case
from conformance.expected_failures import ExpectedFailure, read
from conformance.outcome import Result
from conformance.report import Run, html, json, junit, terminal
from conformance.report.matrix import Matrix, column_of
from conformance.run import run_suite
from conformance.vectors import collect

_FILE = click.Path(dir_okay=False, path_type=Path)


def _part(_context: click.Context, _option: click.Parameter, value: str) -> tuple[int, int]:
    """The two numbers of `i/n`."""
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
    help=f"Who answers: {', '.join(backends.NAMES)}, module[:Class] with ONNX's backend interface, or module:function "
    "on NumPy arrays (see conformance/backends/external.py).",
)
@click.option(
    "--provider",
    metavar="NAME",
    help=f"ONNX Runtime's execution provider, for {', '.join(backends.WITH_PROVIDER)}. [default: the CPU's]",
)
@click.option("--select", "glob", default="*", metavar="GLOB", help="Only cases whose id the pattern matches.")
@click.option(
    "--shard",
    callback=_part,
    default="1/1",
    metavar="I/N",
    help="Only part I of N of those cases. The parts have no case in common and take about as long.",
)
@click.option(
    "--expected-failures",
    "failures_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="F",
    help="What is known to fail, in TOML, in place of the backend's own list (see conformance/expected_failures).",
)
@click.option("--list", "only_list", is_flag=True, help="Print the ids and run nothing.")
@click.option("--json", "json_file", type=_FILE, metavar="F", help="Write the results to F as JSON.")
@click.option("--junit", "junit_file", type=_FILE, metavar="F", help="Write the results to F as JUnit XML.")
@click.option("--html", "html_file", type=_FILE, metavar="F", help="Write the results to F as a page.")
@click.option(
    "--isolate", "is_isolated", is_flag=True, help="Run the backend in a child process, which a case may end."
)
@click.option(
    "--time-limit",
    type=click.FloatRange(min=0, min_open=True, max=86400),
    metavar="SECONDS",
    help=f"With --isolate: what a case may take. [default: {isolate.TIME_LIMIT:g}]",
)
@click.option(
    "--memory-limit",
    type=click.IntRange(min=1),
    metavar="MIB",
    help="With --isolate, on Linux: the memory that a case may take beyond what the backend has. [default: any]",
)
def run_command(
    backend_name: str,
    provider: str | None,
    glob: str,
    shard: tuple[int, int],
    failures_file: Path | None,
    only_list: bool,
    json_file: Path | None,
    junit_file: Path | None,
    html_file: Path | None,
    is_isolated: bool,
    time_limit: float | None,
    memory_limit: int | None,
) -> None:
    """Run the conformance suite.

    The exit status is 0 when no case failed or crashed, 1 when one did, 2 for a wrong call.
    """
    cases = _chosen(glob, *shard)
    for file in (json_file, junit_file, html_file):
        if file is not None and not file.parent.is_dir():
            raise click.BadParameter(f"{file.parent} is no folder")
    _check_limits(is_isolated, time_limit, memory_limit)
    listed = None if failures_file is None else _listed(failures_file)
    if only_list:
        for case in cases:
            click.echo(case.id)
        return
    asking = isolate.asking(
        backend_name,
        provider=provider,
        known=listed,
        isolate=is_isolated,
        time_limit=time_limit,
        memory_limit=memory_limit,
    )
    label = backend_name if provider is None else f"{backend_name} on {provider}"
    with _wrong_calls(), asking as (asker, known):
        run = Run(label, list(with_progress(cases, run_suite(cases, asker, known))))
    renderers: Sequence[tuple[Path | None, Callable[[Run], str]]] = (
        (json_file, json.render),
        (junit_file, junit.render),
        (html_file, lambda run: html.render(Matrix([column_of(run)]))),
    )
    for file, render in renderers:
        if file is not None:
            file.write_text(render(run), "utf-8", "replace")
    terminal.write(run, Console(file=sys.stdout))
    if run.bad:
        raise click.exceptions.Exit(1)


def deal(cases: Sequence[Case], part: int, parts: int) -> list[Case]:
    """The cases of one part, counted from 1.

    They are dealt like cards, family by family and type by type, so that each part has as many of each: a runtime
    answers some families in no time, and does not support some types.
    """
    order = sorted(range(len(cases)), key=lambda i: (cases[i].family, cases[i].element_type, i))
    return [cases[i] for i in sorted(order[part - 1 :: parts])]


def _chosen(glob: str, part: int, parts: int) -> list[Case]:
    cases = [case for case in collect() if fnmatchcase(case.id, glob)]
    if not cases:
        raise click.BadParameter(f"{glob!r} selects no case", param_hint="--select")
    if parts > len(cases):
        rule = f"must have at most as many parts as there are cases, {len(cases)}"
        raise click.BadParameter(f"'{part}/{parts}': {rule}", param_hint="--shard")
    return deal(cases, part, parts)


def _check_limits(is_isolated: bool, time_limit: float | None, memory_limit: int | None) -> None:
    if time_limit is not None and math.isnan(time_limit):
        raise click.BadParameter(f"{time_limit}: must be a number", param_hint="--time-limit")
    for name, limit in (("--time-limit", time_limit), ("--memory-limit", memory_limit)):
        if limit is not None and not is_isolated:
            raise click.BadParameter(f"{limit:g}: only with --isolate", param_hint=name)
    if memory_limit is not None and not isolate.can_limit_memory():
        raise click.BadParameter(f"{memory_limit}: only on Linux", param_hint="--memory-limit")


def _listed(file: Path) -> list[ExpectedFailure]:
    try:
        return read(file, [case.id for case in collect()])
    except (OSError, ValueError) as error:
        raise click.BadParameter(str(error), param_hint="--expected-failures") from error


@contextlib.contextmanager
def _wrong_calls() -> Iterator[None]:
    """A backend or a provider that is not there is a wrong call."""
    try:
        yield
    except backends.MissingBackendError as error:
        raise click.BadParameter(str(error), param_hint="--backend") from error
    except backends.ProviderError as error:
        raise click.BadParameter(str(error), param_hint="--provider") from error


def with_progress(cases: Sequence[Case], results: Iterator[Result], title: str = "conformance") -> Iterator[Result]:
    """The results, with a progress bar where people look at it."""
    console = Console(stderr=True)
    return iter(
        rich.progress.track(
            results,
            description=title,
            total=len(cases),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
    )
