"""Measure the peak memory of steps in a new process: ``python -m benchmarks.networks.memory RUNTIME SOURCE THREADS``.

This module does not import PyTorch, whose memory would count for ONNX Runtime.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import ortops
from conformance.backends.session import CPU, options

STEPS = 4
"""A session needs more memory for the second step than for the first."""

TORCH, PLAIN, REGISTERED = "torch", "plain", "registered"
"""PyTorch, or ONNX Runtime without and with our operators."""

_STATUS = Path("/proc/self/status")
"""Linux's status of this process. Unlike `resource`, it counts from the start of the program."""


def session(model: bytes | str, threads: int, *, plain: bool) -> Any:
    """Create a session of a model as bytes or in a file, with our operators unless it is `plain`.

    Memory patterns are disabled. With them, a gradient graph needs up to twice the memory and is not faster, since ONNX
    Runtime allocates a block for the whole pattern beside the memory that it already has.
    """
    chosen = options()
    chosen.intra_op_num_threads = threads
    chosen.enable_mem_pattern = False
    return (onnxruntime.InferenceSession if plain else ortops.InferenceSession)(model, chosen, providers=[CPU])


def peak(runtime: str, source: str, threads: int) -> float | None:
    """Return the peak bytes of a process beyond those after its imports; None if the system does not report them.

    Args:
        runtime: `TORCH`, `PLAIN` or `REGISTERED`.
        source: for `TORCH`, the name of the network and its size or "usual", separated by a space; else the path of a
            model, whose inputs are in an npz file beside it.
        threads: the number of threads.
    """
    if not _STATUS.exists():
        return None
    command = [sys.executable, "-m", "benchmarks.networks.memory", runtime, source, str(threads)]
    return float(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)  # noqa: S603 - our own module


def _steps_of_torch(source: str, threads: int) -> Callable[[], Callable[[], object]]:
    import torch

    from benchmarks.networks import step, zoo

    name, size = source.split()
    zoo.models()
    torch.set_num_threads(threads)
    return lambda: step.torch_step(zoo.build(name, None if size == "usual" else int(size)))


def _steps_of_session(source: str, threads: int, *, plain: bool) -> Callable[[], Callable[[], object]]:
    if not plain:
        _ = ortops.InferenceSession  # which is imported now and not by `session`

    def begin() -> Callable[[], object]:
        inputs, made = dict(np.load(Path(source).with_suffix(".npz"))), session(source, threads, plain=plain)
        return lambda: made.run(None, inputs)

    return begin


def _high_water() -> int:
    lines = dict(line.split(":", 1) for line in _STATUS.read_text("utf-8").splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024


def main(runtime: str, source: str, threads: int) -> None:
    """Make steps, and print the peak memory beyond that of the imports."""
    is_torch = runtime == TORCH
    begin = _steps_of_torch(source, threads) if is_torch else _steps_of_session(source, threads, plain=runtime == PLAIN)
    before, step = _high_water(), begin()
    for _ in range(STEPS):
        step()
    sys.stdout.write(str(_high_water() - before))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
