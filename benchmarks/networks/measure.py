"""Measure a row of the table: a network with a number of threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import torch

from benchmarks.bench import interleave
from benchmarks.networks import memory as peaks
from benchmarks.networks import sessions, step
from benchmarks.networks.errors import Errors, errors
from benchmarks.networks.zoo import build

OURS, TORCH = "ortops", "torch"


@dataclass(frozen=True)
class Row:
    """The measurements of a network.

    seconds: the seconds of each step of `OURS` and `TORCH`. memory: peak bytes beyond the imports, None if unknown.
    errors: the errors of the gradients. nodes, size: the number of the model's nodes, and its bytes.
    plain: whether all operators are standard.
    """

    network: str
    threads: int
    seconds: dict[str, list[float]]
    memory: dict[str, float | None]
    errors: Errors
    nodes: int
    size: int
    plain: bool

    @property
    def ratio(self) -> float:
        """The median of our steps divided by torch's."""
        return median(self.seconds[OURS]) / median(self.seconds[TORCH])

    @property
    def memory_ratio(self) -> float | None:
        """Our memory divided by torch's."""
        ours, peer = self.memory[OURS], self.memory[TORCH]
        return None if ours is None or peer is None else ours / peer


def measure(name: str, threads: Sequence[int], rounds: int | None = None, size: int | None = None) -> Iterator[Row]:
    """Yield the rows of a network, one for each number of threads.

    Raises:
        ValueError: the network cannot be exported with its gradients, or cannot be run.
    """
    network = build(name, size)
    try:
        model = step.exported(network)
        data, plain, nodes = model.SerializeToString(), sessions.is_plain(model), len(model.graph.node)
        del model
        feeds = step.feeds(network)
        truth = step.torch_gradients(network, wide=True)
        for count in threads:
            torch.set_num_threads(count)
            made = sessions.session(data, count, plain=plain)
            found = errors(sessions.session_gradients(made, feeds), step.torch_gradients(network), truth)
            calls = {OURS: lambda made=made: made.run(None, feeds), TORCH: step.torch_step(network)}  # type: ignore[misc]
            seconds = interleave(calls, rounds)
            del made, calls
            memory = _memory(name, size, data, feeds, count, plain)
            yield Row(name, count, seconds, memory, found, nodes, len(data), plain)
    except Exception as error:  # of PyTorch's exporter and of ONNX Runtime, of any class
        raise ValueError(f"{name}: {' '.join(str(error).split()) or type(error).__name__}") from error


def _memory(
    name: str, size: int | None, data: bytes, feeds: dict[str, sessions.Array], threads: int, plain: bool
) -> dict[str, float | None]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(data)
        np.savez(path.with_suffix(".npz"), allow_pickle=False, **feeds)
        ours = peaks.peak(peaks.PLAIN if plain else peaks.REGISTERED, str(path), threads)
    return {OURS: ours, TORCH: peaks.peak(peaks.TORCH, f"{name} {size or 'usual'}", threads)}
