"""The command line: ``python -m benchmarks``."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import track

from benchmarks import documented_tables, first_call, fresh_process, in_model, operations, peers, report
from benchmarks.machine import PACKAGES, machine, versions
from benchmarks.measure import measure
from benchmarks.operations import IN_MODEL, OPERATIONS, Operation
from benchmarks.peers import MissingPeerError, Peer
from benchmarks.problem import Problem
from benchmarks.report import Run
from benchmarks.workloads import PYRAMIDS, RESAMPLINGS, ROTATED, WORKLOADS, Pyramid
from ortops.kernels.jit.runners import available_cpus

CPUS = available_cpus()
OPERATION_NAMES = (*(operation.name for operation in OPERATIONS), IN_MODEL.name, first_call.NAME)
TYPES = ("float", "float16", "bfloat16", "double")
ALL_WORKLOADS = (*WORKLOADS, *ROTATED, *RESAMPLINGS)
# RoiAlign of some workloads is measured in models, too.
WORKLOAD_NAMES = tuple(dict.fromkeys([*(one.name for one in ALL_WORKLOADS), *(one.name for one in PYRAMIDS)]))
_FILE = click.Path(dir_okay=False, path_type=Path)
_CHART_HELP = (
    "Draw how many times longer ONNX Runtime's own RoiAlign takes. "
    "The files are F-light.svg and F-dark.svg, for GitHub's two themes."
)
_TYPE_HELP = "The element type."
_ROUNDS = click.IntRange(1, 10_000)

Step = TypeVar("Step")
Cells = list[tuple[Problem, int]]
Models = list[tuple[Pyramid, int]]


@click.group(invoke_without_command=True)
@click.option(
    "--operation",
    "operation_names",
    multiple=True,
    default=operations.BY_DEFAULT,
    show_default=True,
    type=click.Choice(OPERATION_NAMES),
    help="The computation; in-model is avg inside a model, alone and with the runtime's conversions for it, and first-call "
    "is compiling or loading avg and dX, always in float and on a workload of its own. [repeatable, as are the next four]",
)
@click.option(
    "--workload",
    "workload_names",
    multiple=True,
    default=WORKLOAD_NAMES,
    show_default=True,
    type=click.Choice(WORKLOAD_NAMES),
    help="The shapes of the data.",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    default=["float"],
    show_default=True,
    type=click.Choice(TYPES),
    help=_TYPE_HELP,
)
@click.option(
    "--threads",
    multiple=True,
    default=sorted({1, CPUS}),
    show_default=True,
    type=click.IntRange(1, CPUS),
    help="The number of threads of a session, and of torch.",
)
@click.option(
    "--peer",
    "peer_names",
    multiple=True,
    type=click.Choice(peers.NAMES),
    help="An implementation to compare with; bodies is our own models in a stock session, as standard operators. "
    f"[default: those installed of {', '.join(peers.BY_DEFAULT)}]",
)
@click.option(
    "--rounds",
    type=_ROUNDS,
    help="The number of timed calls. [default: as many as fit in the time for a table's row, at least 7; 3 of first-call]",
)
@click.option(
    "--single",
    is_flag=True,
    help="Time every call, each right after one of another implementation. [default: of two calls in a row, the second]",
)
@click.option("--json", "json_file", type=_FILE, metavar="F", help="Write all measurements to F.")
@click.option("--chart", "chart_file", type=_FILE, metavar="F.svg", help=_CHART_HELP)
@click.pass_context
def main(
    context: click.Context,
    operation_names: Sequence[str],
    workload_names: Sequence[str],
    types: Sequence[str],
    threads: Sequence[int],
    peer_names: Sequence[str],
    rounds: int | None,
    single: bool,
    json_file: Path | None,
    chart_file: Path | None,
) -> None:
    """Time our operators in ONNX Runtime sessions beside other implementations, in turn, on the same data.

    The exit status is 0, 1 if another implementation computes different values, or 2 for a wrong call.
    """
    if context.invoked_subcommand is not None:
        return
    _check_folders(json_file, chart_file)
    chosen = [operation for operation in OPERATIONS if operation.name in operation_names]
    cells = _cells(chosen, workload_names, types, sorted(set(threads)))
    models = _models(operation_names, workload_names, types, sorted(set(threads)))
    cases = list(fresh_process.CASES) if first_call.NAME in operation_names else []
    if not (cells or models or cases):
        raise click.UsageError("no chosen operation is measured on a chosen workload in a chosen type")
    found = _peers(peer_names)
    if chart_file:
        _check_chart(chart_file, cells, models, found)
    run = _run(cells, models, cases, found, rounds, single)
    data = _write(run, json_file)
    if chart_file:
        _chart().draw(data, chart_file)
    if run.refused:
        raise click.exceptions.Exit(1)


@main.command("types")
@click.option(
    "--workload",
    "workload_names",
    multiple=True,
    default=[workload.name for workload in WORKLOADS if workload.name != "P2 adaptive"],  # much like P2
    show_default=True,
    type=click.Choice([workload.name for workload in WORKLOADS]),
    help="The shapes of the data. [repeatable]",
)
@click.option("--threads", default=CPUS, show_default=True, type=click.IntRange(1, CPUS), help="The number of threads.")
@click.option("--rounds", type=_ROUNDS, help="The number of timed calls. [default: as many as for a table's row]")
@click.option("--json", "json_file", type=_FILE, metavar="F", help="Write all measurements to F.")
def types_command(workload_names: Sequence[str], threads: int, rounds: int | None, json_file: Path | None) -> None:
    """Measure our RoiAlign and its gradients in float16, bfloat16 and double beside float, without other implementations."""
    _check_folders(json_file)
    chosen = [operation for operation in OPERATIONS if operation.name in ("avg", "max", "dX", "drois")]
    cells = _cells(chosen, workload_names, TYPES[1:], [threads])
    _write(_run(cells, [], [], {}, rounds, single=False), json_file)


def _write(run: Run, json_file: Path | None) -> dict[str, Any]:
    """Print the tables, write the data and return it."""
    report.write(run, Console(file=sys.stdout, width=report.WIDTH))
    data = report.to_data(run)
    if json_file:
        json_file.write_text(report.to_json(data), "utf-8")
    return data


@main.command("tables")
@click.argument(
    "report_files",
    metavar="REPORT...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option(
    "--write",
    "document",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="F.md",
    help="Put them in place of the tables of F that have the same headings, instead.",
)
def tables(report_files: Sequence[Path], document: Path | None) -> None:
    """Print the tables of docs/performance.md, in Markdown, for which files that --json wrote have the times."""
    try:
        made = [table for file in report_files for table in documented_tables.tables(_read_report(file))]
    except ValueError as error:
        raise click.ClickException(f"a report {error}") from error
    if document is None:
        click.echo("\n\n".join(made))
        return
    try:
        document.write_text(documented_tables.replaced(document.read_text("utf-8"), made), "utf-8")
    except ValueError as error:
        raise click.ClickException(f"{document} {error}") from error


def _read_report(file: Path) -> Any:
    try:
        return json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise click.BadParameter(f"{file}: must be JSON ({error})", param_hint="REPORT") from error


def _cells(chosen: Sequence[Operation], names: Sequence[str], types: Sequence[str], threads: Sequence[int]) -> Cells:
    """Return the problems of the tables, ordered by workload, whose data is then made once."""
    return [
        (Problem(operation, workload, kind), count)
        for workload, operation, kind, count in product(ALL_WORKLOADS, chosen, dict.fromkeys(types), threads)
        if workload.name in names and workload in operation.workloads and kind in operation.element_types
    ]


def _models(
    operation_names: Sequence[str], names: Sequence[str], types: Sequence[str], threads: Sequence[int]
) -> Models:
    """Return the models in which RoiAlign is measured."""
    if IN_MODEL.name not in operation_names or in_model.ELEMENT_TYPE not in types:
        return []
    return [(pyramid, count) for pyramid in PYRAMIDS if pyramid.name in names for count in threads]


def _check_chart(file: Path, cells: Cells, models: Models, found: Mapping[str, Peer]) -> None:
    """Check that the chart can be drawn before hours go into it."""
    chart = _chart()
    if file.suffix != ".svg":
        raise click.BadParameter(f"{str(file)!r}: must end in .svg", param_hint="--chart")
    shown = {problem.operation.name for problem, _ in cells if problem.element_type == chart.ELEMENT_TYPE}
    if chart.PEER not in found or not (models or shown & chart.PANELS.keys()):
        rule = f"shows {', '.join(chart.PANELS)} in {chart.ELEMENT_TYPE} beside {chart.PEER}, but none is chosen"
        raise click.BadParameter(rule, param_hint="--chart")


def _chart() -> Any:
    """Import the module that needs matplotlib."""
    try:
        return importlib.import_module("benchmarks.chart")
    except ImportError as error:
        rule = "needs matplotlib, which the extra bench installs: pip install 'ortops[bench]'"
        raise click.BadParameter(f"{rule} ({error})", param_hint="--chart") from error


def _check_folders(*files: Path | None) -> None:
    for file in files:
        if file is not None and not file.parent.is_dir():
            raise click.BadParameter(f"{file.parent} is no folder")


def _peers(names: Sequence[str]) -> Mapping[str, Peer]:
    try:
        return {name: peers.load(name) for name in names} if names else peers.present()
    except MissingPeerError as error:
        raise click.BadParameter(str(error), param_hint="--peer") from error


def _run(
    cells: Cells,
    models: Models,
    cases: Sequence[str],
    found: Mapping[str, Peer],
    rounds: int | None,
    single: bool,
) -> Run:
    packages = versions(dict.fromkeys((*PACKAGES, *(peer.PACKAGE for peer in found.values()))))
    # Asked first, so that the load is that before the measurements.
    where = machine()
    measured = [measure(problem, threads, found, rounds, single) for problem, threads in _track(cells, "operations")]
    for pyramid, threads in _track(models, "models"):
        measured += in_model.measure(pyramid, threads, found, rounds, single)
    first_calls = [first_call.measure(case, rounds) for case in _track(cases, "first calls")]
    return Run(where, packages, list(found), measured, first_calls, single)


def _track(steps: Sequence[Step], what: str) -> Iterable[Step]:
    return track(steps, f"measuring {what}", console=Console(stderr=True), transient=True)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
