"""Run tasks in chunks and signal handlers between them, so that Ctrl-C ends a kernel that takes seconds.

Handlers run on the thread that called the kernel, while no task runs, since they may call kernels and sessions.
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
    """Split range(count) into chunks, and call task(*args, first, last, worker) for each chunk and worker.

    Args:
        runner: the address of the runner (`runners.py`).
        context: the runner's context.
        workers: the number of workers that share a chunk.
        count: the number of indices; those of a chunk are range(first, last).
        chunks: the number of chunks.
        task: the compiled function that a worker runs.
        args: the task's first arguments.

    Returns:
        0; OUT_OF_MEMORY if the runner fails; INTERRUPTED if a signal handler raised.
    """
    chunk_size = maximum((count + chunks - 1) // chunks, 1)
    for first in range(0, count, chunk_size):
        if first > 0 and signal_raised():
            return INTERRUPTED
        last = minimum(first + chunk_size, count)
        if not parallel_for(runner, context, workers, task, args + (first, last)):  # noqa: RUF005 - numba has no other
            return OUT_OF_MEMORY
    return 0
