"""One way to run the tasks of a kernel, on the threads of an ONNX Runtime session or on the caller's.

A *runner* is the address of a C function with the signature of OrtApi's KernelContext_ParallelFor,

    void* runner(void* context, void (*task)(void* data, size_t index), size_t count, size_t batches, void* data)

or 0 for a plain loop on this thread. ONNX Runtime brings its own; `thread_runner` is ours for calls outside a session.
"""

from __future__ import annotations

import functools
import os
from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ortops.kernels.compile import INNER, cached_cfunc

Runner: TypeAlias = tuple[int, int]
"""A runner and its context."""


@intrinsic
def parallel_for(_typing: Any, runner: Any, context: Any, count: Any, kernel: Any, args: Any) -> Any:
    """Call kernel(*args, index) for each index below count through a runner; whether any call failed (out of memory).

    For compiled code only. The kernel is compiled into the caller, wrapped as a C function whose data is a copy of `args`
    on the caller's stack: nothing is allocated, and numba's cache on disk holds the whole.
    """
    signature = kernel.get_call_type(_typing, (*args.types, types.intp), {})

    def codegen(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        runner_value, context_value, count_value, _, args_value = values
        compiled = kernel.dispatcher.get_compile_result(signature)
        context.add_linking_libs((compiled.library,))
        byte, pointer, size = ir.IntType(8), ir.IntType(8).as_pointer(), ir.IntType(64)

        args_value = _borrowed(context, builder, args, args_value)
        box_type = ir.LiteralStructType([context.get_value_type(args), byte])
        box = cgutils.alloca_once(builder, box_type)
        builder.store(args_value, cgutils.gep_inbounds(builder, box, 0, 0))
        builder.store(byte(0), cgutils.gep_inbounds(builder, box, 0, 1))
        data = builder.bitcast(box, pointer)

        task_type = ir.FunctionType(ir.VoidType(), [pointer, size])
        name = builder.module.get_unique_name(f"task.{compiled.fndesc.mangled_name}")
        task = ir.Function(builder.module, task_type, name=name)
        task.linkage = "internal"
        body = ir.IRBuilder(task.append_basic_block("entry"))
        own_box = body.bitcast(task.args[0], box_type.as_pointer())
        unpacked = cgutils.unpack_tuple(body, body.load(cgutils.gep_inbounds(body, own_box, 0, 0)), len(args.types))
        # No Python state exists on a foreign thread: a failure is noted in the box and raised by the caller.
        status, _ = context.call_internal_no_propagate(
            body, compiled.fndesc, signature, [*unpacked, body.trunc(task.args[1], context.get_value_type(types.intp))]
        )
        with body.if_then(status.is_error):
            body.store(byte(1), cgutils.gep_inbounds(body, own_box, 0, 1))
        body.ret_void()

        runner_type = ir.FunctionType(pointer, [pointer, task_type.as_pointer(), size, size, pointer])
        with builder.if_else(cgutils.is_null(builder, runner_value)) as (here, there):
            with here, cgutils.for_range(builder, count_value) as loop:
                builder.call(task, [data, loop.index])
            with there:
                run = builder.inttoptr(runner_value, runner_type.as_pointer())
                status = builder.call(run, [builder.inttoptr(context_value, pointer), task, count_value, size(0), data])
                with builder.if_then(cgutils.is_not_null(builder, status)):
                    builder.store(byte(1), cgutils.gep_inbounds(builder, box, 0, 1))
        failed = builder.load(cgutils.gep_inbounds(builder, box, 0, 1))
        return builder.icmp_unsigned("!=", failed, byte(0))

    return types.boolean(types.intp, types.intp, types.intp, kernel, args), codegen


def _borrowed(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """A value whose arrays own nothing.

    They outlive the call, and so no task counts references to them, which is atomic and shared by all.
    """
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        array.meminfo = ir.Constant(array.meminfo.type, None)
        return array._getvalue()  # noqa: SLF001 - numba's only way
    if isinstance(kind, types.BaseTuple):
        for k, part in enumerate(kind.types):
            value = builder.insert_value(value, _borrowed(context, builder, part, builder.extract_value(value, k)), k)
    return value


@intrinsic
def _call(_typing: Any, task: Any, data: Any, index: Any) -> Any:
    def codegen(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        pointer, size = ir.IntType(8).as_pointer(), ir.IntType(64)
        task_type = ir.FunctionType(ir.VoidType(), [pointer, size])
        function = builder.inttoptr(values[0], task_type.as_pointer())
        builder.call(function, [builder.inttoptr(values[1], pointer), values[2]])
        return ir.Constant(ir.IntType(8), 0)

    return types.int8(types.intp, types.intp, types.intp), codegen


_pthread_create = types.ExternalFunction("pthread_create", types.int32(types.intp, types.intp, types.intp, types.intp))
_pthread_join = types.ExternalFunction("pthread_join", types.int32(types.intp, types.intp))


@njit(**INNER)
def _work(share):
    task, data, first, step, count = share
    for index in range(first, count, step):
        _call(task, data, index)


@cached_cfunc(types.intp(types.CPointer(types.intp)))
def _worker(share):
    _work(carray(share, 5))
    return 0


@cached_cfunc(types.intp(types.CPointer(types.intp), types.intp, types.intp, types.intp, types.intp))
def _run_on_threads(context, task, count, _batches, data):
    most, worker = carray(context, 2)
    workers = min(most, count)
    if workers == 0:
        return 0
    shares = np.empty((workers, 5), np.intp)
    threads = np.zeros(workers, np.intp)
    for k in range(workers):
        share = shares[k]
        share[0], share[1], share[2], share[3], share[4] = task, data, k, workers, count
        if k and _pthread_create(threads[k:].ctypes.data, 0, worker, shares[k].ctypes.data) != 0:
            threads[k] = 0
    _work(shares[0])
    for k in range(1, workers):
        if threads[k]:
            _pthread_join(threads[k], 0)
        else:
            _work(shares[k])
    return 0


def available_cpus() -> int:
    """The number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def thread_runner(threads: int) -> Runner:
    """A runner and its context that use `threads` POSIX threads, or (0, 0), a plain loop, where there are none.

    Threads made for the call cost some 20 us each and, unlike a pool, survive a fork; without Python in them, nothing can
    interrupt a call halfway.
    """
    if threads < 2 or os.name == "nt":
        return 0, 0
    context = np.array([threads, _worker.address], np.intp)
    _contexts.append(context)
    return _run_on_threads.address, context.ctypes.data


_contexts: list[Any] = []
