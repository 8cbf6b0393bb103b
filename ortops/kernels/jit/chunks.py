"""Rounds of tasks, between which signal handlers run: so Ctrl-C ends a kernel that takes seconds.

Handlers run on the thread that has called the kernel and while no task runs, since they may call kernels and sessions.
"""

from __future__ import annotations

from typing import Any

from ortops.kernels.jit.compile import compiled
from ortops.kernels.jit.parallel import parallel_for
from ortops.kernels.jit.python_api import signal_raised
from ortops.kernels.jit.scalar import maximum, minimum
from ortops.kernels.layout import INTERRUPTED, OUT_OF_MEMORY


@compiled
def run_in_chunks(runner: int, context: int, workers: int, count: int, chunks: int, task: Any, args: Any) -> int:
    """Call task(*args, first, last, worker) for each worker and each round, the numbers from `first` to below `last`.

    Args:
        runner: runs the tasks, with its context (`run.py`).
        context: see there.
        workers: how many share a round.
        count: the numbers to deal with in all.
        rounds: into how many rounds to cut them.
        task: what a worker does.
        args: its first arguments.

    Returns:
        0; OUT_OF_MEMORY where the runner fails; INTERRUPTED where a signal handler has raised.
    """
    chunk_size = maximum((count + chunks - 1) // chunks, 1)
    for first in range(0, count, chunk_size):
        if first > 0 and signal_raised():
            return INTERRUPTED
        last = minimum(first + chunk_size, count)
        if not parallel_for(runner, context, workers, task, args + (first, last)):  # noqa: RUF005 - numba has no other
            return OUT_OF_MEMORY
    return 0
