# SPDX-License-Identifier: MIT
"""The command line: ``python -m benchmarks``."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track

from benchmarks import in_model, report
from benchmarks.against import checkout
from benchmarks.measure import Cell, Peer, measure
from benchmarks.peers import COMPARISONS, CPUS, PEERS, load
from benchmarks.workloads import ATTENTIONS, IN_MODEL, OPERATIONS, RESAMPLINGS, ROTATED, WORKLOADS, AnyWorkload, Problem

ROOT = Path(__file__).parents[1]
NAME = click.Choice([operation.name for operation in OPERATIONS])
PATH = click.Path(exists=True, path_type=Path)


@click.command()
@click.argument("comparisons", nargs=-1, type=click.Choice([name for name in COMPARISONS if name != "against"]))
@click.option("--operation", "operations", multiple=True, type=NAME, help="[default: those of the documents]")
@click.option("--workload", "workloads", multiple=True, help="The name of a workload. [default: all]")
@click.option("--threads", multiple=True, type=click.IntRange(1, CPUS), help=f"[default: 1 and {CPUS}; types: {CPUS}]")
@click.option("--peer", "names", multiple=True, type=click.Choice(list(PEERS)), help="[default: those installed]")
@click.option("--against", type=PATH, metavar="DIR", help="Compare only with the operators of another checkout.")
@click.option("--rounds", type=click.IntRange(1), help="The number of timed calls. [default: 7 to 51, as time allows]")
@click.option("--picture", type=click.Path(path_type=Path), metavar="F.svg", help="Draw the README's picture.")
@click.option("--write", type=PATH, metavar="F.md", help="Replace the tables in F.md.")
def main(
    comparisons: Sequence[str],
    operations: Sequence[str],
    workloads: Sequence[str],
    threads: Sequence[int],
    names: Sequence[str],
    against: Path | None,
    rounds: int | None,
    picture: Path | None,
    write: Path | None,
) -> None:
    """Time calls in turn on the same data. Print median milliseconds and, in brackets, the ratio to the first column.

    COMPARISONS are, by default, the first four of: roi-align and others, our operators and other implementations; types,
    RoiAlign in all types; in-model, RoiAlign inside a model, from the runtimes' profiles; torch, our RoiAlign in PyTorch
    and torchvision's; custom-calls, operators that do nothing.

    The exit status is 0, 1 if an implementation computes different values, or 2 for a wrong call.
    """
    # Imported first, so that a missing package is found before hours of measuring.
    draw = pkgutil.resolve_name("benchmarks.picture:draw") if picture else None
    machine, cells, errors = report.machine(), list[Cell](), list[str]()
    with ExitStack() as stack:
        if against:
            if not (against / "ortops").is_dir():
                raise click.BadParameter(f"{against} has no package ortops", param_hint="--against")
            folders = {"this": ROOT, str(against): against}
            checkouts = {name: stack.enter_context(checkout(folder)) for name, folder in folders.items()}
            peers: Mapping[str, Mapping[str, Peer]] = {"against": checkouts}
        else:
            usual = {name: COMPARISONS[name].peers for name in comparisons or list(COMPARISONS)[:4]}
            peers = {name: load([*row[:1], *(names or row[1:])], bool(names)) for name, row in usual.items()}
        chosen = (operations, workloads, threads, rounds)
        steps = [step for name, loaded in peers.items() for step in _steps(name, loaded, *chosen)]
        if not steps:
            raise click.UsageError("no chosen operation is measured on a chosen workload")
        for step in track(steps, "measuring", console=Console(stderr=True), transient=True):
            try:
                cells += step()
            except click.ClickException as error:
                errors.append(error.message)
    click.echo(f"{machine['cpu']}, {machine['cpus']} CPUs, {machine['system']}, {machine['packages']}\n")
    tables = report.tables(cells)
    for table in tables.values():
        report.show(table)
    errors += [message for cell in cells for message in cell.refused]
    click.echo("\n".join(errors))
    if draw:
        draw(machine, cells, picture)
    if write:
        write.write_text(report.replaced(write.read_text("utf-8"), tables), "utf-8")
    if errors:
        raise click.exceptions.Exit(1)


def _steps(
    name: str,
    peers: Mapping[str, Peer],
    operations: Sequence[str],
    workloads: Sequence[str],
    threads: Sequence[int],
    rounds: int | None,
) -> Iterator[Callable[[], Iterable[Cell]]]:
    """Yield what measures a comparison, of chosen operations and workloads, or all if none are chosen."""
    comparison = COMPARISONS[name]
    counts = sorted(set(threads or comparison.threads))
    if name == "custom-calls":
        yield partial(pkgutil.resolve_name("benchmarks.custom_calls:measure"), rounds)
    elif name == "in-model":
        for workload, count in product(IN_MODEL, counts):
            if not workloads or workload.name in workloads:
                yield partial(in_model.measure, workload, count, peers, rounds)
    else:
        # By workload, whose data is then made once.
        data: tuple[AnyWorkload, ...] = (*WORKLOADS, *ROTATED, *RESAMPLINGS, *ATTENTIONS)
        for each, operation, count in product(data, OPERATIONS, counts):
            is_chosen = operation.name in (operations or comparison.operations) and each in operation.workloads
            if is_chosen and (not workloads or each.name in workloads):
                yield partial(measure, name, Problem(operation, each), count, peers, rounds)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
