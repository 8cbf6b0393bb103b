"""The most memory of steps in a process of its own: ``python -m benchmarks.networks.memory RUNTIME SOURCE THREADS``."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

STEPS = 4
"""A session needs more for the second than for the first."""

TORCH, PLAIN, REGISTERED = "torch", "plain", "registered"
"""PyTorch, or ONNX Runtime without and with our operators."""

_STATUS = Path("/proc/self/status")
"""Linux's: of this process from the start of its program on, which the numbers of `resource` are not."""


def is_known() -> bool:
    """Whether the system tells."""
    return _STATUS.exists()


def peak(runtime: str, source: str, threads: int) -> float | None:
    """Bytes of a process over what it has after its imports; None where the system does not tell.

    Args:
        runtime: `TORCH`, `PLAIN` or `REGISTERED`.
        source: of `TORCH`, the name of the network and its size or "usual", with a blank between them; else the path of a
            model, beside which its inputs are, as NumPy's npz.
        threads: how many there are.
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
    """Make steps, and print how much more memory that took than the imports before."""
    run = _torch(source, threads) if runtime == TORCH else _session(source, threads, plain=runtime == PLAIN)
    before = _high_water()
    run()
    sys.stdout.write(json.dumps(_high_water() - before))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
