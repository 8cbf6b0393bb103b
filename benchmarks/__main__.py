"""The command line: ``python -m benchmarks``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TypeVar

import click
from rich.console import Console
from rich.progress import track

from benchmarks import first_call, fresh_process, in_model, operations, peers, report
from benchmarks.machine import PACKAGES, machine, versions
from benchmarks.measure import measure
from benchmarks.operations import IN_MODEL, OPERATIONS, Operation
from benchmarks.peers import MissingPeerError, Peer
from benchmarks.problem import Problem
from benchmarks.report import Run
from benchmarks.sweeps import Point, Sweep, sweeps
from benchmarks.workloads import PYRAMIDS, RESAMPLINGS, ROTATED, WORKLOADS, Pyramid
from ortops.kernels.jit.runners import available_cpus

CPUS = available_cpus()
OPERATION_NAMES = (*(operation.name for operation in OPERATIONS), IN_MODEL.name, first_call.NAME)
TYPES = ("float", "float16", "bfloat16", "double")
ALL_WORKLOADS = (*WORKLOADS, *ROTATED, *RESAMPLINGS)
# RoiAlign of some workloads is measured in models, too.
WORKLOAD_NAMES = tuple(dict.fromkeys([*(one.name for one in ALL_WORKLOADS), *(one.name for one in PYRAMIDS)]))
_FILE = click.Path(dir_okay=False, path_type=Path)

Step = TypeVar("Step")
Cells = list[tuple[Problem, int]]
Models = list[tuple[Pyramid, int]]
Swept = list[tuple[Sweep, Point, Problem, int]]


@click.command()
@click.option(
    "--operation",
    "operation_names",
    multiple=True,
    default=operations.BY_DEFAULT,
    show_default=True,
    type=click.Choice(OPERATION_NAMES),
    help="What is computed; in-model is avg among the other nodes of a model, first-call what it costs to compile or load "
    "avg and dX, which always is in float and has no workload. [repeatable, as are the next four]",
)
@click.option(
    "--workload",
    "workload_names",
    multiple=True,
    default=WORKLOAD_NAMES,
    show_default=True,
    type=click.Choice(WORKLOAD_NAMES),
    help="On what.",
)
@click.option(
    "--type", "types", multiple=True, default=["float"], show_default=True, type=click.Choice(TYPES), help="In what."
)
@click.option(
    "--threads",
    multiple=True,
    default=sorted({1, CPUS}),
    show_default=True,
    type=click.IntRange(1, CPUS),
    help="Of a session, and of torch.",
)
@click.option(
    "--peer",
    "peer_names",
    multiple=True,
    type=click.Choice(peers.NAMES),
    help="Who else computes it; bodies are our own models in a stock session, where they run as standard operators. "
    f"[default: those installed of {', '.join(peers.BY_DEFAULT)}]",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 10_000),
    help="Calls of each. [default: as many as fit in the time for a cell of the table, at least 7; 3 of first-call]",
)
@click.option("--json", "json_file", type=_FILE, metavar="F", help="Write everything to F.")
@click.option("--markdown", "markdown_file", type=_FILE, metavar="F", help="Write the tables to F.")
@click.option(
    "--plot",
    "plot_file",
    type=_FILE,
    metavar="F",
    help="Also vary RoIs, channels, sampling ratio, RoI size and threads one at a time, and draw what a call of "
    "RoiAlign's operations then takes, in the first of the types, and of the threads where these are not varied.",
)
def main(
    operation_names: Sequence[str],
    workload_names: Sequence[str],
    types: Sequence[str],
    threads: Sequence[int],
    peer_names: Sequence[str],
    rounds: int | None,
    json_file: Path | None,
    markdown_file: Path | None,
    plot_file: Path | None,
) -> None:
    """Time our operators in ONNX Runtime sessions beside their peers: the same data and threads, called in turn.

    The exit status is 0, 1 when a peer computes something else than we do, or 2 for a wrong call.
    """
    for file in (json_file, markdown_file, plot_file):
        if file is not None and not file.parent.is_dir():
            raise click.BadParameter(f"{file.parent} is no folder")
    chosen = [operation for operation in OPERATIONS if operation.name in operation_names]
    cells = _cells(chosen, workload_names, types, sorted(set(threads)))
    models = _models(operation_names, workload_names, types, sorted(set(threads)))
    cases = list(fresh_process.CASES) if first_call.NAME in operation_names else []
    if not (cells or models or cases):
        raise click.UsageError("no chosen operation is measured on a chosen workload in a chosen type")
    swept = _swept(chosen, types, threads) if plot_file else []
    if plot_file:
        _check_plot(plot_file, swept)
    found = _peers(peer_names)
    run = _run(cells, models, swept, cases, found, rounds)
    report.write(run, Console(file=sys.stdout, width=report.WIDTH))
    if json_file:
        json_file.write_text(report.to_json(run), "utf-8")
    if markdown_file:
        markdown_file.write_text(report.markdown(run), "utf-8")
    if plot_file:
        from benchmarks.plot import draw

        draw(run, plot_file)
    if run.refused:
        raise click.exceptions.Exit(1)


def _cells(chosen: Sequence[Operation], names: Sequence[str], types: Sequence[str], threads: Sequence[int]) -> Cells:
    """What is in the tables: one workload after the other, whose data is then made once."""
    return [
        (Problem(operation, workload, kind), count)
        for workload, operation, kind, count in product(ALL_WORKLOADS, chosen, dict.fromkeys(types), threads)
        if workload.name in names and workload in operation.workloads and kind in operation.element_types
    ]


def _models(
    operation_names: Sequence[str], names: Sequence[str], types: Sequence[str], threads: Sequence[int]
) -> Models:
    """What follows in the tables: RoiAlign in models."""
    if IN_MODEL.name not in operation_names or in_model.ELEMENT_TYPE not in types:
        return []
    return [(pyramid, count) for pyramid in PYRAMIDS if pyramid.name in names for count in threads]


def _swept(chosen: Sequence[Operation], types: Sequence[str], threads: Sequence[int]) -> Swept:
    """What is in the plot."""
    return [
        (sweep, point, Problem(operation, point.workload, types[0]), point.threads or threads[0])
        for sweep in sweeps(CPUS)
        for point in sweep.points
        for operation in chosen
        if operation.family == "roi_align"
    ]


def _check_plot(file: Path, swept: Swept) -> None:
    """See that the plot can be made before hours go into it."""
    if not swept:
        raise click.BadParameter("shows operations of RoiAlign, of which none is chosen", param_hint="--plot")
    try:
        from benchmarks.plot import FORMATS
    except ImportError as error:
        rule = "needs matplotlib, which the extra bench installs: pip install 'ortops[bench]'"
        raise click.BadParameter(f"{rule} ({error})", param_hint="--plot") from error
    if file.suffix[1:] not in FORMATS:
        rule = f"must end in one of {', '.join('.' + one for one in FORMATS)}"
        raise click.BadParameter(f"{str(file)!r}: {rule}", param_hint="--plot")


def _peers(names: Sequence[str]) -> Mapping[str, Peer]:
    try:
        return {name: peers.load(name) for name in names} if names else peers.present()
    except MissingPeerError as error:
        raise click.BadParameter(str(error), param_hint="--peer") from error


def _run(
    cells: Cells, models: Models, swept: Swept, cases: Sequence[str], found: Mapping[str, Peer], rounds: int | None
) -> Run:
    packages = versions(dict.fromkeys((*PACKAGES, *(peer.PACKAGE for peer in found.values()))))
    # The load is that before all this.
    where = machine()
    measured = [measure(problem, threads, found, rounds) for problem, threads in _track(cells, "operations")]
    for pyramid, threads in _track(models, "models"):
        measured += in_model.measure(pyramid, threads, found, rounds)
    swept_cells = [
        (sweep, point, measure(problem, threads, found, rounds))
        for sweep, point, problem, threads in _track(swept, "the plot")
    ]
    first_calls = [first_call.measure(case, rounds) for case in _track(cases, "first calls")]
    return Run(where, packages, list(found), measured, swept_cells, first_calls)


def _track(steps: Sequence[Step], what: str) -> Iterable[Step]:
    return track(steps, f"measuring {what}", console=Console(stderr=True), transient=True)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
