"""Measure the peak memory of steps in a new process: ``python -m benchmarks.networks.memory RUNTIME SOURCE THREADS``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

STEPS = 4
"""A session needs more memory for the second step than for the first."""

TORCH, PLAIN, REGISTERED = "torch", "plain", "registered"
"""PyTorch, or ONNX Runtime without and with our operators."""

_STATUS = Path("/proc/self/status")
"""Linux's status of this process. Unlike `resource`, it counts from the start of the program."""


def is_known() -> bool:
    """Return whether the system reports peak memory."""
    return _STATUS.exists()


def peak(runtime: str, source: str, threads: int) -> float | None:
    """Return the peak bytes of a process beyond those after its imports; None if the system does not report them.

    Args:
        runtime: `TORCH`, `PLAIN` or `REGISTERED`.
        source: for `TORCH`, the name of the network and its size or "usual", separated by a space; else the path of a
            model, whose inputs are in an npz file beside it.
        threads: the number of threads.
    """
    if not is_known():
        return None
    command = [sys.executable, "-m", "benchmarks.networks.memory", runtime, source, str(threads)]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True)  # noqa: S603 - our own module
    return float(json.loads(answer.stdout))


def _torch(source: str, threads: int) -> Callable[[], object]:
    import torch

    from benchmarks.networks import step, zoo

    name, size = source.split()
    zoo.models()
    torch.set_num_threads(threads)

    def run() -> None:
        call = step.torch_step(zoo.build(name, None if size == "usual" else int(size)))
        for _ in range(STEPS):
            call()

    return run


def _session(source: str, threads: int, *, plain: bool) -> Callable[[], object]:
    import numpy as np

    from benchmarks.networks.sessions import session

    if not plain:
        import ortops.engine.session  # noqa: F401 - `session` would

    def run() -> None:
        inputs = dict(np.load(Path(source).with_suffix(".npz")))
        made = session(Path(source), threads, plain=plain)
        for _ in range(STEPS):
            made.run(None, inputs)

    return run


def _high_water() -> int:
    lines = dict(line.split(":", 1) for line in _STATUS.read_text("utf-8").splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024


def main(runtime: str, source: str, threads: int) -> None:
    """Make steps, and print the peak memory beyond that of the imports."""
    run = _torch(source, threads) if runtime == TORCH else _session(source, threads, plain=runtime == PLAIN)
    before = _high_water()
    run()
    sys.stdout.write(json.dumps(_high_water() - before))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
