"""An operator's compiled callbacks in a session (OrtCustomOp).

ctypes would drop an exception that Python raises before a callback's first line or after its last, and ONNX Runtime would
mistake the result for success or for an address. These callbacks succeed only if the Python function that they call returns
success. Otherwise ONNX Runtime gets a status, and the exception is saved for the thread.
"""

from __future__ import annotations

from typing import Any

from numba import types

from ortops.engine.compiled.compute import compute_node
from ortops.engine.compiled.getters import fill_getters
from ortops.engine.compiled.layout import (
    ACTIVE,
    API,
    CREATE,
    CREATE_KERNEL,
    ENDING,
    FAIL,
    INFER,
    INFER_SHAPES,
    PROCESS,
    TEXT,
)
from ortops.jit.compile import compiled, small
from ortops.jit.parallel import add_atomically, allocate, call_unchecked, pointer_to, release
from ortops.jit.python_api import (
    acquire_gil,
    call_python,
    decref,
    exception_name,
    int_attribute,
    is_callable,
    release_gil,
    save_exception,
    to_int64,
)
from ortops.jit.scalar import address_of, int64_pointer, offset
from ortops.jit.text import text

_thread = types.ExternalFunction("PyThread_get_thread_ident", types.intp())
_pause = types.ExternalFunction("pause", types.int32())
_append = types.ExternalFunction("strncat", types.intp(types.intp, types.intp, types.intp))

_TEXT_WORDS = 64


@small
def fill(table: Any, version: int) -> int:
    """Set an OrtCustomOp's API version and callbacks in a zeroed table; unused optional callbacks stay 0."""
    fill_getters(table, version)
    table[9] = pointer_to(_destroy)  # KernelDestroy
    table[CREATE_KERNEL] = pointer_to(_create)  # CreateKernelV2
    table[18] = pointer_to(_compute)  # KernelComputeV2
    if table[INFER] != 0:
        table[INFER_SHAPES] = pointer_to(_infer)  # InferOutputShapeFn
    return 0


@compiled
def _create(table: int, api: int, info: int, kernel: int) -> int:
    """Call Python to create a node's kernel, a callable object, from its OrtKernelInfo.

    If the kernel has an attribute `node`, a node's address, compiled code computes the node and calls the object only to
    load functions (`compute.compute_node`).
    """
    words, result = int64_pointer(table), int64_pointer(kernel)
    words[API], result[0] = api, 0
    if words[CREATE] == 0:
        return 0
    cells = allocate(3)
    lock = _begin(words[PROCESS])
    made = call_python(words[CREATE], info) if address_of(cells) != 0 else 0
    if made != 0 and is_callable(made) != 0:
        cells[0], cells[1], cells[2] = made, table, int_attribute(made, text("node"))
        status, result[0] = 0, address_of(cells)
    else:
        status = _status(table, made)
        release(cells)
    _end(words[PROCESS], lock)
    return status


@compiled
def _compute(kernel: int, context: int) -> int:
    cells = int64_pointer(kernel)
    if cells[2] == 0:
        return _call_kernel(kernel, context)
    words = int64_pointer(cells[1])
    _enter(words[PROCESS])
    status = compute_node(int64_pointer(cells[2]), words[API], context, pointer_to(_resolve), kernel)
    _leave(words[PROCESS])
    return status


@compiled
def _resolve(kernel: int, needed: int) -> int:
    """Call a kernel's Python object during a call, which meanwhile does not count as running: it may wait there forever."""
    process = int64_pointer(int64_pointer(kernel)[1])[PROCESS]
    _leave(process)
    status = _call_kernel(kernel, needed)
    _enter(process)
    return status


@compiled
def _call_kernel(kernel: int, argument: int) -> int:
    """Call a kernel's Python object, which returns an OrtStatus or 0."""
    cells = int64_pointer(kernel)
    table = cells[1]
    process = int64_pointer(table)[PROCESS]
    lock = _begin(process)
    status = _status(table, call_python(cells[0], argument))
    _end(process, lock)
    return status


@compiled
def _infer(table: int, context: int) -> int:
    words = int64_pointer(table)
    lock = _begin(words[PROCESS])
    status = _status(table, call_python(words[INFER], context))
    _end(words[PROCESS], lock)
    return status


@compiled
def _destroy(kernel: int) -> int:
    if kernel != 0:
        cells = int64_pointer(kernel)
        process = int64_pointer(cells[1])[PROCESS]
        lock = _begin(process)
        decref(cells[0])  # a table's last kernel frees the table, too
        _end(process, lock)
        release(cells)
    return 0


@compiled
def _status(table: int, result: int) -> int:
    """The OrtStatus that a Python function returned as an int, 0 for success; a new OrtStatus if the function raised."""
    if result != 0:
        status = to_int64(result)
        decref(result)
        return status
    memory = allocate(_TEXT_WORDS)
    message, max_length = address_of(memory), 4 * _TEXT_WORDS - 1
    words, name = int64_pointer(table), exception_name()
    create_status = int64_pointer(words[API])[0]
    if message == 0 or name == 0:
        status = call_unchecked(create_status, (FAIL, words[TEXT]))
    else:
        memory[0] = 0
        _append(message, words[TEXT], max_length)
        _append(message, name, max_length)
        status = call_unchecked(create_status, (FAIL, message))
    release(memory)
    save_exception()
    return status


@compiled
def _begin(state: int) -> int:
    """Acquire the GIL. If the interpreter is finalizing, wait for the process to end instead."""
    _enter(state)
    return acquire_gil()


@compiled
def _end(state: int, lock: int) -> None:
    """Release the GIL. If the interpreter is finalizing, wait for the process to end."""
    release_gil(lock)
    _leave(state)


@compiled
def _enter(state: int) -> None:
    """Count a running callback. If the interpreter is finalizing, wait for the process to end instead."""
    process = int64_pointer(state)
    add_atomically(offset(process, ACTIVE), 1)
    if _has_ended(process):
        add_atomically(offset(process, ACTIVE), -1)
        _wait()


@compiled
def _leave(state: int) -> None:
    """Stop counting a callback. If the interpreter is finalizing, wait for the process to end."""
    process = int64_pointer(state)
    add_atomically(offset(process, ACTIVE), -1)
    if _has_ended(process):
        _wait()


@compiled
def _has_ended(process: Any) -> bool:
    """Whether another thread is finalizing the interpreter."""
    return process[ENDING] != 0 and process[ENDING] != _thread()


@compiled
def _wait() -> None:
    while True:
        _pause()
