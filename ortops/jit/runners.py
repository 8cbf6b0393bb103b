"""Runners, which run a kernel's tasks in parallel.

A runner is a pair: the address of a C function with the signature of OrtApi's KernelContext_ParallelFor,

    void* runner(void* context, void (*task)(void* data, size_t index), size_t count, size_t batches, void* data)

and its context. (0, 0) means a loop on the calling thread. In a session ONNX Runtime provides the runner; this module
provides it for other calls.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

Runner: TypeAlias = tuple[int, int]

SERIAL: Runner = (0, 0)


def available_cpus() -> int:
    """The number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def thread_runner(count: int) -> Runner:
    """A runner that uses `count` POSIX threads; SERIAL for one thread and on Windows.

    Each call starts its own threads, which takes some 20 us each. Unlike a pool's threads, they work after a fork. They run
    no Python, so no exception can interrupt a call halfway.
    """
    if count < 2 or os.name == "nt":
        return SERIAL
    from ortops.jit.kernel import CFunction
    from ortops.jit.source import Unimported

    if TYPE_CHECKING:
        from ortops.jit import tasks
    else:
        tasks = Unimported("jit.tasks")
    context = np.array([count, CFunction(tasks.work).address], np.int64)
    _contexts.append(context)
    return CFunction(tasks.run_on_threads).address, context.ctypes.data


_contexts: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
