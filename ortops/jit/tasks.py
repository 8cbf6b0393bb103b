"""Run tasks in chunks and on threads.

Signal handlers run between chunks, so that Ctrl-C ends a kernel that takes seconds. They run on the thread that called the
kernel while no task runs, since they may call kernels and sessions. Calls outside a session start their own POSIX threads.
"""

from __future__ import annotations

from typing import Any

from numba import types

from ortops.jit.compile import compiled
from ortops.jit.elements import INTERRUPTED, OUT_OF_MEMORY, Words
from ortops.jit.parallel import allocate, call_unchecked, release
from ortops.jit.scalar import address_of, int64_pointer, maximum, minimum, offset

_pthread_create = types.ExternalFunction("pthread_create", types.int32(types.intp, types.intp, types.intp, types.intp))
_pthread_join = types.ExternalFunction("pthread_join", types.int32(types.intp, types.intp))

_SHARE_FIELDS = 5
"""The number of int64s in a thread's share: the task, its data, the first index, the step and the number of indices."""


@compiled
def run_tasks(runner: int, context: int, count: int, task: int, data: Any) -> bool:
    """Call task(data, index) for each index in range(count) through a runner; return whether the runner succeeded."""
    if runner == 0:
        for index in range(count):
            call_unchecked(task, (data, index))
        return True
    return bool(call_unchecked(runner, (context, task, count, 0, data)) == 0)


@compiled
def run_in_chunks(
    runner: int, context: int, stop: int, workers: int, count: int, chunks: int, task: int, data: Words
) -> int:
    """Split range(count) into chunks, and run a `parallel.task_of` task for each chunk and worker. Also a C function.

    Args:
        runner: the address of the runner (`runners.py`).
        context: the runner's context.
        stop: the address of a function that says whether to stop before the next chunk.
        workers: the number of workers that share a chunk.
        count: the number of indices; a chunk has range(first, last).
        chunks: the number of chunks.
        task: the address of the task.
        data: the task's data; this function sets first and last.

    Returns:
        0; OUT_OF_MEMORY if the runner fails; INTERRUPTED if `stop` said so.
    """
    chunk_size = maximum((count + chunks - 1) // chunks, 1)
    for first in range(0, count, chunk_size):
        if first > 0 and call_unchecked(stop, ()) != 0:
            return INTERRUPTED
        data[0], data[1] = first, minimum(first + chunk_size, count)
        if not run_tasks(runner, context, workers, task, data):
            return OUT_OF_MEMORY
    return 0


@compiled
def never() -> bool:
    """The `stop` function in a library, which has no signal handlers."""
    return False


@compiled
def work(share: int) -> int:
    """Run the tasks of one thread's share."""
    numbers = int64_pointer(share)
    for index in range(numbers[2], numbers[4], numbers[3]):
        call_unchecked(numbers[0], (numbers[1], index))
    return 0


@compiled
def run_on_threads(context: int, task: int, count: int, _batches: int, data: int) -> int:
    """Distribute the tasks over threads. If a thread cannot start, the calling thread runs its tasks."""
    max_threads, worker = int64_pointer(context)[0], int64_pointer(context)[1]
    workers = minimum(max_threads, count)
    shares = allocate(workers * (_SHARE_FIELDS + 1))
    if address_of(shares) == 0:
        for index in range(count):
            call_unchecked(task, (data, index))
        return 0
    threads = offset(shares, workers * _SHARE_FIELDS)
    for k in range(workers):
        share = offset(shares, k * _SHARE_FIELDS)
        share[0], share[1], share[2], share[3], share[4] = task, data, k, workers, count
        if k and _pthread_create(address_of(offset(threads, k)), 0, worker, address_of(share)) != 0:
            threads[k] = 0
    work(address_of(shares))
    for k in range(1, workers):
        if threads[k]:
            _pthread_join(threads[k], 0)
        else:
            work(address_of(offset(shares, k * _SHARE_FIELDS)))
    release(shares)
    return 0
