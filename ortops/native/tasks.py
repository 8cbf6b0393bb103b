# SPDX-License-Identifier: MIT
"""Run tasks in chunks and on threads.

Signal handlers run between chunks, so that Ctrl-C ends a kernel that takes seconds. They run on the thread that called the
kernel while no task runs, since they may call kernels and sessions. Calls outside a session start their own POSIX threads.
"""

from __future__ import annotations

from typing import Annotated, Any

from numba import types

from ortops.compiler.compile import compiled
from ortops.compiler.parallel import add_atomically, allocate, call_unchecked, exchange_if, pointer_to, release
from ortops.compiler.scalar import address_of, int64_pointer, maximum, minimum
from ortops.compiler.struct_types import field_pointer, items_at, size_of, struct_at
from ortops.native.elements import INTERRUPTED, OUT_OF_MEMORY, Words
from ortops.native.structs import POINTER, Struct

_pthread_create = types.ExternalFunction("pthread_create", types.int32(types.intp, types.intp, types.intp, types.intp))
_pthread_detach = types.ExternalFunction("pthread_detach", types.int32(types.intp))
_pthread_join = types.ExternalFunction("pthread_join", types.int32(types.intp, types.intp))

_WAITING, _RUNNING, _LATE = range(3)


class Job(Struct):
    """Tasks for several threads; whoever is the last to leave releases the memory.

    next: the first task that no thread has begun.
    users: the number of threads that may still read the job.
    """

    task: int
    data: int
    count: int
    next: int
    users: int


class Helper(Struct):
    """A thread that helps the calling thread, in the memory of its job.

    state: _WAITING until the thread runs, then _RUNNING; _LATE if it did not run before all tasks had begun.
    """

    job: Annotated[Job, POINTER]
    state: int
    thread: int


@compiled
def run_tasks(runner: int, context: int, count: int, task: int, data: Any) -> bool:
    """Call task(data, index) for each index in range(count) through a runner; return whether the runner succeeded.

    The runner gets 0 for the number of batches: then ONNX Runtime's threads take one index after the other, too.
    """
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

    `runner` is the address of a runner (`compute.runner_on`), `stop` that of a function that says whether to stop before the
    next chunk. This function sets first and last in the task's data, the range of a chunk.

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
def _work(helper: Helper) -> int:
    job = helper.job
    if exchange_if(field_pointer(helper, "state"), _WAITING, _RUNNING):
        _run_rest(job)
    _leave(job)
    return 0


@compiled
def _run_rest(job: Job) -> None:
    """Run tasks, one after the other, until all have begun."""
    index = add_atomically(field_pointer(job, "next"), 1)
    while index < job.count:
        call_unchecked(job.task, (job.data, index))
        index = add_atomically(field_pointer(job, "next"), 1)


@compiled
def _leave(job: Job) -> None:
    if add_atomically(field_pointer(job, "users"), -1) == 1:
        release(job)


@compiled
def run_on_threads(context: int, task: int, count: int, _batches: int, data: int) -> int:
    """A runner: run the tasks on the calling thread and on threads that help it, as many as can start.

    The call waits for no thread that has begun no task: where other programs keep the processors busy, a thread may start
    late. Measured beside two threads that spin on two processors, with two tasks: a call that takes 2 ms without them
    takes 60 % of the time that it takes if tasks are dealt out before they run; one that takes 1 ms, 40 %.

    Args:
        context: the address of the number of threads, at least 1.
        task: the address of the task.
        count: the number of tasks.
        data: the tasks' data.
    """
    helper_count = maximum(minimum(int64_pointer(context)[0], count) - 1, 0)
    memory = allocate((size_of(Job) + helper_count * size_of(Helper)) // 8)
    if address_of(memory) == 0:
        for index in range(count):
            call_unchecked(task, (data, index))
        return 0
    job, helpers = struct_at(Job, address_of(memory)), items_at(Helper, address_of(memory) + size_of(Job))
    job.task, job.data, job.count, job.next, job.users = task, data, count, 0, helper_count + 1
    for k in range(helper_count):
        helper = helpers[k]
        helper.job, helper.state = job, _WAITING
        if _pthread_create(address_of(field_pointer(helper, "thread")), 0, pointer_to(_work), address_of(helper)) != 0:
            helper.state = _LATE
            _leave(job)
    _run_rest(job)
    for k in range(helper_count):
        helper = helpers[k]
        if exchange_if(field_pointer(helper, "state"), _WAITING, _LATE):
            _pthread_detach(helper.thread)
        elif helper.state == _RUNNING:
            _pthread_join(helper.thread, 0)
    _leave(job)
    return 0
