"""The command line: ``python -m benchmarks.networks``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import IO

import click
import numpy as np
import torch
from rich.console import Console
from rich.progress import track

from benchmarks.bench import interleave
from benchmarks.networks import memory, step
from benchmarks.networks.zoo import NETWORKS, build
from benchmarks.report import machine, markdown
from benchmarks.workloads import Array
from ortops.jit.runners import available_cpus
from ortops.spec import DOMAIN

OURS, TORCH = "ortops", "torch"
CPUS = available_cpus()

MAX_RATIO_TO_TORCH, MAX_ERROR = 3.0, 1e-4
"""A gradient is right if its error is at most so many times that of PyTorch's, or at most so large relative to the largest
element of all gradients. The latter is for gradients that are nearly 0, such as those for the weights before a ReLU near 0,
for which both computations are inexact."""

HEADINGS = [
    "network",
    "threads",
    "ms",
    TORCH,
    "times",
    "MiB",
    TORCH,
    "times",
    "error",
    TORCH,
    "wrong",
    "nodes",
    "ms of gradient",
]
LEGEND = (
    "A step: the network, its loss, and the gradients for its input and parameters; a batch of 1 image, 2 to 8 sequences.",
    f"ms: medians of steps in turn, of ONNX Runtime, of {TORCH} with autograd, and their ratio.",
    "MiB: peak memory beyond that of the imports, in a separate process.",
    "error: the largest difference from float64, relative to the largest element of all gradients.",
    f"wrong: gradients with over {MAX_RATIO_TO_TORCH:g} times {TORCH}'s difference, and over {MAX_ERROR:g} of all.",
    "ms of gradient: of onnx_models.gradient, which writes the model, per 1,000 nodes of it: processor time, median of 3.",
    "*: the model contains operators of ours.",
)


@dataclass(frozen=True)
class Row:
    """The measurements of a network.

    seconds: the seconds of each step of `OURS` and `TORCH`. memory: peak bytes beyond the imports, None if unknown.
    errors: the largest of `OURS` and `TORCH`, as `errors` returns them. wrong: the names of our wrong gradients.
    nodes: those of the model. gradient_ms: the processor time of `onnx_models.gradient` per 1,000 of them.
    plain: whether all operators are standard.
    """

    network: str
    threads: int
    seconds: Mapping[str, list[float]]
    memory: Mapping[str, float | None]
    errors: Mapping[str, float]
    wrong: Sequence[str]
    nodes: int
    gradient_ms: float
    plain: bool


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
@click.option(
    "--json", "json_file", type=click.File("w", "utf-8", lazy=False), metavar="F", help="Write all measurements to F."
)
def main(
    names: Sequence[str], threads: Sequence[int], size: int | None, rounds: int | None, json_file: IO[str] | None
) -> None:
    """Time training steps of whole networks in ONNX Runtime and in PyTorch, and compare their gradients.

    The exit status is 0, 1 if a network cannot be differentiated or a gradient is wrong, or 2 for a wrong call.
    """
    where = machine()
    rows: list[Row] = []
    refused: list[str] = []
    for name in track(names, "measuring networks", console=Console(stderr=True), transient=True):
        try:
            rows += measure(name, sorted(set(threads)), rounds, size)
        except ValueError as error:  # noqa: PERF203 - a network takes minutes
            refused.append(str(error))
    notes = dict.fromkeys(f"{row.network}: wrong by {', '.join(row.wrong)}" for row in rows if row.wrong)
    table = markdown(HEADINGS, list(map(_texts, rows)))
    click.echo("\n\n".join([str(where["cpu"]), table, "\n".join([*LEGEND, *notes, *refused])]))
    if json_file:
        json.dump({"machine": where, "rows": list(map(asdict, rows)), "refused": refused}, json_file, indent=1)
    if refused or notes:
        raise click.exceptions.Exit(1)


def measure(name: str, threads: Sequence[int], rounds: int | None = None, size: int | None = None) -> Iterator[Row]:
    """Yield the rows of a network, one for each number of threads.

    Raises:
        ValueError: the network cannot be exported with its gradients, or cannot be run.
    """
    network = build(name, size)
    try:
        model = step.exported(network)
        data, nodes = model.SerializeToString(), len(model.graph.node)
        by_gradient = step.gradient_ms(model)
        plain = all(item.domain != DOMAIN for item in model.opset_import)
        del model
        feeds, truth = step.feeds(network), step.torch_gradients(network, wide=True)
        for count in threads:
            torch.set_num_threads(count)
            made = memory.session(data, count, plain=plain)
            found = {OURS: step.session_gradients(made, feeds), TORCH: step.torch_gradients(network)}
            calls = {OURS: lambda made=made: made.run(None, feeds), TORCH: step.torch_step(network)}  # type: ignore[misc]
            seconds = interleave(calls, rounds)
            del made, calls
            peaks = _peaks(name, size, data, feeds, count, plain)
            yield Row(name, count, seconds, peaks, *errors(found, truth), nodes, by_gradient, plain)
    except Exception as error:  # of PyTorch's exporter and of ONNX Runtime, of any class
        raise ValueError(f"{name}: {' '.join(str(error).split()) or type(error).__name__}") from error


def errors(found: Mapping[str, Mapping[str, Array]], truth: Mapping[str, Array]) -> tuple[dict[str, float], list[str]]:
    """Compare gradients of `OURS` and `TORCH` in float with those in float64, all by the names of the tensors.

    Returns:
        The largest error of each, relative to the largest element of all gradients, and the names of ours that are wrong or
        missing.
    """
    whole = max(_largest(value) for value in truth.values())
    off = {who: {name: _off(given.get(name), value) for name, value in truth.items()} for who, given in found.items()}
    wrong = [
        name for name in truth if not off[OURS][name] <= max(MAX_RATIO_TO_TORCH * off[TORCH][name], MAX_ERROR * whole)
    ]
    return {who: max(values.values()) / whole for who, values in off.items()}, wrong


def _off(given: Array | None, truth: Array) -> float:
    if given is None or given.shape != truth.shape:
        return np.inf
    off = _largest(given.astype(np.float64) - truth)
    return off if np.isfinite(off) else np.inf


def _largest(values: Array) -> float:
    return float(np.abs(values).max(initial=0.0))


def _peaks(
    name: str, size: int | None, data: bytes, feeds: Mapping[str, Array], threads: int, plain: bool
) -> dict[str, float | None]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(data)
        np.savez(path.with_suffix(".npz"), allow_pickle=False, **feeds)
        ours = memory.peak(memory.PLAIN if plain else memory.REGISTERED, str(path), threads)
    return {OURS: ours, TORCH: memory.peak(memory.TORCH, f"{name} {size or 'usual'}", threads)}


def _texts(row: Row) -> list[str]:
    """Return the cells of a row."""
    ms, peers_ms = (median(row.seconds[who]) * 1e3 for who in (OURS, TORCH))
    mib, peers_mib = (row.memory[who] or np.nan for who in (OURS, TORCH))
    return [
        row.network + ("" if row.plain else "*"),
        str(row.threads),
        *(f"{ms:.1f}", f"{peers_ms:.1f}", f"{ms / peers_ms:.2f}"),
        *(f"{mib / 2**20:.0f}", f"{peers_mib / 2**20:.0f}", f"{mib / peers_mib:.2f}"),
        *(f"{row.errors[who]:.0e}" for who in (OURS, TORCH)),
        str(len(row.wrong)),
        str(row.nodes),
        f"{row.gradient_ms:.0f}",
    ]


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.networks")
