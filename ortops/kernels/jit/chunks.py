"""Run tasks, in chunks and signal handlers between them, so that Ctrl-C ends a kernel that takes seconds.

Handlers run on the thread that called the kernel, while no task runs, since they may call kernels and sessions.
"""

from __future__ import annotations

from typing import Any

from ortops.kernels.jit.compile import compiled
from ortops.kernels.jit.parallel import call
from ortops.kernels.jit.python_api import signal_raised
from ortops.kernels.jit.scalar import maximum, minimum
from ortops.kernels.layout import INTERRUPTED, OUT_OF_MEMORY, Words


@compiled
def run_tasks(runner: int, context: int, count: int, task: int, data: Any) -> bool:
    """Call task(data, index) for each index in range(count) through a runner; whether the runner succeeded."""
    if runner == 0:
        for index in range(count):
            call(task, (data, index))
        return True
    return bool(call(runner, (context, task, count, 0, data)) == 0)


@compiled
def run_in_chunks(runner: int, context: int, workers: int, count: int, chunks: int, task: int, data: Words) -> int:
    """Split range(count) into chunks, and run a task of `parallel.task_of` for each chunk and worker. Also a C function.

    Args:
        runner: the address of the runner (`runners.py`).
        context: the runner's context.
        workers: the number of workers that share a chunk.
        count: the number of indices; those of a chunk are range(first, last).
        chunks: the number of chunks.
        task: the address of the task.
        data: the task's data, of which first and last are set.

    Returns:
        0; OUT_OF_MEMORY if the runner fails; INTERRUPTED if a signal handler raised.
    """
    chunk_size = maximum((count + chunks - 1) // chunks, 1)
    for first in range(0, count, chunk_size):
        if first > 0 and signal_raised():
            return INTERRUPTED
        data[0], data[1] = first, minimum(first + chunk_size, count)
        if not run_tasks(runner, context, workers, task, data):
            return OUT_OF_MEMORY
    return 0
