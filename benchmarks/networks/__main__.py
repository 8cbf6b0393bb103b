"""The command line: ``python -m benchmarks.networks``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

import click
from rich.console import Console
from rich.progress import track

from benchmarks.networks.errors import MAX_OF_ALL, MAX_RATIO_TO_TORCH
from benchmarks.networks.measure import OURS, TORCH, Row, measure
from benchmarks.networks.zoo import NETWORKS
from benchmarks.report import machine, markdown
from ortops.jit.runners import available_cpus

CPUS = available_cpus()
_FILE = click.Path(dir_okay=False, path_type=Path)

LEGEND = (
    "A step: the network, its loss, and the gradients for its input and parameters; a batch of 1 image, 2 to 8 sequences.",
    f"ms: medians of steps in turn, of ONNX Runtime, of {TORCH} with autograd, and their ratio.",
    "MiB: peak memory beyond that of the imports, in a separate process.",
    "of each: the largest difference from float64, relative to the largest element of the same gradient.",
    "of all: the same, relative to the largest element of all gradients.",
    f"wrong: gradients with over {MAX_RATIO_TO_TORCH:g} times {TORCH}'s difference, and over {MAX_OF_ALL:g} of all.",
    "nodes, MB: of the model, with its weights. *: it contains operators of ours.",
)
"""The legend of the table."""


@click.command()
@click.option(
    "--network",
    "names",
    multiple=True,
    default=list(NETWORKS),
    type=click.Choice(list(NETWORKS)),
    help="A network to measure. [repeatable, default: all]",
)
@click.option(
    "--threads",
    multiple=True,
    default=sorted({1, CPUS}),
    show_default=True,
    type=click.IntRange(1, CPUS),
    help="The number of threads of a session, and of torch. [repeatable]",
)
@click.option(
    "--size",
    type=click.IntRange(16),
    help="Pixels of a side, or number of tokens. [default: each network's usual size]",
)
@click.option(
    "--rounds", type=click.IntRange(1, 10_000), help="The number of timed steps. [default: 7 to 51, as time allows]"
)
@click.option("--json", "json_file", type=_FILE, metavar="F", help="Write all measurements to F.")
def main(
    names: Sequence[str],
    threads: Sequence[int],
    size: int | None,
    rounds: int | None,
    json_file: Path | None,
) -> None:
    """Time training steps of whole networks in ONNX Runtime and in PyTorch, and compare their gradients.

    The exit status is 0, 1 if a network cannot be differentiated or a gradient is wrong, or 2 for a wrong call.
    """
    if json_file is not None and not json_file.parent.is_dir():
        raise click.BadParameter(f"{json_file.parent} is no folder")
    where = machine()
    rows, refused = _measured(names, sorted(set(threads)), rounds, size)
    click.echo("\n\n".join([str(where["cpu"]), _table(rows), "\n".join([*LEGEND, *_notes(rows), *refused])]))
    if json_file:
        data = {"machine": where, "rows": [asdict(row) for row in rows], "refused": refused}
        json_file.write_text(json.dumps(data, indent=1) + "\n", "utf-8")
    if refused or any(row.errors.wrong for row in rows):
        raise click.exceptions.Exit(1)


def _measured(
    names: Sequence[str], threads: Sequence[int], rounds: int | None, size: int | None
) -> tuple[list[Row], list[str]]:
    """Return the rows, and messages for networks that cannot be measured."""
    rows: list[Row] = []
    refused: list[str] = []

    def add(name: str) -> None:
        try:
            rows.extend(measure(name, threads, rounds, size))
        except ValueError as error:
            refused.append(str(error))

    console = Console(stderr=True)
    for name in track(list(dict.fromkeys(names)), "measuring networks", console=console, transient=True):
        add(name)
    return rows, refused


def _table(rows: Sequence[Row]) -> str:
    headings = ["network", "threads", "ms", TORCH, "times", "MiB", TORCH, "times"]
    headings += ["of each", TORCH, "of all", TORCH, "wrong", "nodes", "MB"]
    return markdown(headings, [_row(row) for row in rows])


def _row(row: Row) -> list[str]:
    times = (f"{median(row.seconds[name]) * 1e3:.1f}" for name in (OURS, TORCH))
    memory = ("-" if bytes_ is None else f"{bytes_ / 2**20:.0f}" for bytes_ in (row.memory[OURS], row.memory[TORCH]))
    found = row.errors
    return [
        row.network + ("" if row.plain else "*"),
        str(row.threads),
        *times,
        f"{row.ratio:.2f}",
        *memory,
        "-" if row.memory_ratio is None else f"{row.memory_ratio:.2f}",
        *(f"{value:.0e}" for value in (found.each, found.torch_each, found.of_all, found.torch_of_all)),
        str(len(found.wrong)),
        str(row.nodes),
        f"{row.size / 1e6:.1f}",
    ]


def _notes(rows: Sequence[Row]) -> list[str]:
    """Return a line for each network with wrong gradients, once for all numbers of threads."""
    return list(
        dict.fromkeys(f"{row.network}: wrong by {', '.join(row.errors.wrong)}" for row in rows if row.errors.wrong)
    )


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.networks")
