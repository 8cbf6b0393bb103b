"""The compiled runner for calls outside a session, which starts POSIX threads for each call."""

from __future__ import annotations

from numba import types

from ortops.kernels.jit.compile import compiled
from ortops.kernels.jit.parallel import allocate, call, release
from ortops.kernels.jit.scalar import address_of, int64_pointer, minimum, offset

_pthread_create = types.ExternalFunction("pthread_create", types.int32(types.intp, types.intp, types.intp, types.intp))
_pthread_join = types.ExternalFunction("pthread_join", types.int32(types.intp, types.intp))

_SHARE_FIELDS = 5
"""The number of int64 in a thread's share: the task, its data, the first index, the step and the number of indices."""


@compiled
def work(share: int) -> int:
    """Run the tasks of one thread's share."""
    numbers = int64_pointer(share)
    for index in range(numbers[2], numbers[4], numbers[3]):
        call(numbers[0], (numbers[1], index))
    return 0


@compiled
def run_on_threads(context: int, task: int, count: int, _batches: int, data: int) -> int:
    """Distribute the tasks over threads; the calling thread runs the tasks of threads that cannot be started."""
    max_threads, worker = int64_pointer(context)[0], int64_pointer(context)[1]
    workers = minimum(max_threads, count)
    shares = allocate(workers * (_SHARE_FIELDS + 1))
    if address_of(shares) == 0:
        for index in range(count):
            call(task, (data, index))
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
