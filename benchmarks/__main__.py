"""The command line: ``python -m benchmarks``."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import track

from benchmarks import in_model, models, peers, report
from benchmarks.bench import FLOAT, Cell, measure
from benchmarks.workloads import IN_MODEL, OPERATIONS, PYRAMIDS, RESAMPLINGS, ROTATED, WORKLOADS, Problem
from ortops.jit.runners import available_cpus

CPUS = available_cpus()
BY_DEFAULT = (
    "avg",
    "max",
    "dX",
    "drois",
    "rotated",
    "rotated dX",
    "linear",
    "nearest",
    "linear dX",
    "nearest dX",
    IN_MODEL,
)
TYPES = (FLOAT, "float16", "bfloat16", "double")
OF_TYPES = ("avg", "max", "dX", "drois")
ALL_WORKLOADS = (*WORKLOADS, *ROTATED, *RESAMPLINGS)
NAMES = tuple(dict.fromkeys([*(one.name for one in ALL_WORKLOADS), *(one.name for one in PYRAMIDS)]))
_FILE = click.Path(dir_okay=False, path_type=Path)

Step = TypeVar("Step")


@click.command()
@click.argument("what", type=click.Choice(["peers", "types"]), default="peers")
@click.option(
    "--operation",
    "operations",
    multiple=True,
    type=click.Choice([*(operation.name for operation in OPERATIONS), IN_MODEL]),
    help="The computation; in-model is avg inside a model. [repeatable, as are the next four; "
    f"default: {', '.join(BY_DEFAULT)}]",
)
@click.option(
    "--workload", "workloads", multiple=True, type=click.Choice(NAMES), help="The shapes of the data. [default: all]"
)
@click.option("--type", "types", multiple=True, type=click.Choice(TYPES), help="The element type. [default: float]")
@click.option(
    "--threads",
    multiple=True,
    type=click.IntRange(1, CPUS),
    help=f"The number of threads of a session, and of torch. [default: 1 and {CPUS}]",
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
    "--rounds", type=click.IntRange(1, 10_000), help="The number of timed calls. [default: 7 to 51, as time allows]"
)
@click.option("--json", "json_file", type=_FILE, metavar="F", help="Write all measurements to F.")
@click.option(
    "--chart",
    "chart_file",
    type=_FILE,
    metavar="F.svg",
    help="Draw how many times as long ONNX Runtime's own RoiAlign takes, as F-light.svg and F-dark.svg.",
)
@click.option(
    "--write",
    "document",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="F.md",
    help="Put the tables in place of those of F that have the same headings.",
)
def main(
    what: str,
    operations: Sequence[str],
    workloads: Sequence[str],
    types: Sequence[str],
    threads: Sequence[int],
    peer_names: Sequence[str],
    rounds: int | None,
    json_file: Path | None,
    chart_file: Path | None,
    document: Path | None,
) -> None:
    """Time our operators in ONNX Runtime sessions and other implementations, in turn, on the same data.

    WHAT is peers, the default, or types: RoiAlign and its gradients in other types and in float, without other
    implementations. The exit status is 0, 1 if another implementation computes different values, or 2 for a wrong call.
    """
    for file in (json_file, chart_file):
        if file is not None and not file.parent.is_dir():
            raise click.BadParameter(f"{file.parent} is no folder")
    # Before hours go into it.
    draw = importlib.import_module("benchmarks.chart").draw if chart_file else None
    try:
        found = {name: peers.load(name) for name in peer_names} if peer_names or what == "types" else peers.present()
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--peer") from error
    # With adaptive sampling, other types are much like P2.
    names = workloads or [name for name in NAMES if what == "peers" or name != "P2 adaptive"]
    chosen = operations or (OF_TYPES if what == "types" else BY_DEFAULT)
    kinds = dict.fromkeys(types or (TYPES[1:] if what == "types" else [FLOAT]))
    counts = sorted({*threads} or ({CPUS} if what == "types" else {1, CPUS}))
    steps = [
        (Problem(operation, workload, kind), count)
        # By workload, whose data is then made once.
        for workload, operation, kind, count in product(ALL_WORKLOADS, OPERATIONS, kinds, counts)
        if operation.name in chosen and workload in operation.workloads and workload.name in names
        if kind in operation.operator.element_types(operation.operator.inputs[0])
    ]
    pyramids = [one for one in PYRAMIDS if one.name in names and IN_MODEL in chosen and FLOAT in kinds]
    if not (steps or pyramids):
        raise click.UsageError("no chosen operation is measured on a chosen workload in a chosen type")
    # Asked first, so that the load is that before the measurements.
    where = report.machine()
    cells = [measure(problem, count, models.ours, found, rounds) for problem, count in _track(steps, "operations")]
    for pyramid, count in _track(list(product(pyramids, counts)), "models"):
        cells += in_model.measure(pyramid, count, found, rounds)
    refused = _show(where, cells)
    if json_file:
        json_file.write_text(report.to_json(where, cells), "utf-8")
    try:
        if draw and chart_file:
            draw(where, cells, chart_file)
        if document:
            document.write_text(report.replaced(document.read_text("utf-8"), report.tables(cells)), "utf-8")
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    if refused:
        raise click.exceptions.Exit(1)


def _show(where: Mapping[str, Any], cells: Sequence[Cell]) -> list[str]:
    """Print the machine and the tables, and return the messages for peers that compute something else."""
    versions = ", ".join(f"{name} {version}" for name, version in where["packages"].items())
    refused = [message for cell in cells for message in cell.refused]
    lines = [*report.LEGEND, *dict.fromkeys(note for cell in cells for note in cell.notes), *refused]
    heading = f"{where['cpu']}, {where['cpus']} CPUs, {where['system']}, {versions}"
    click.echo("\n\n".join([heading, *report.tables(cells), "\n".join(lines)]))
    return refused


def _track(steps: Sequence[Step], what: str) -> Iterable[Step]:
    return track(steps, f"measuring {what}", console=Console(stderr=True), transient=True)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
