"""An operator's compiled callbacks in a session (OrtCustomOp).

ctypes would drop an exception that Python raises before a callback's first line or after its last, and ONNX Runtime would
mistake the result for success or for an address. These callbacks succeed only if the Python function that they call returns
success. Otherwise ONNX Runtime gets a status, and the exception is saved for the thread.
"""

from __future__ import annotations

from numba import types

from ortops.engine.compiled.compute import compute_node
from ortops.engine.compiled.getters import fill_getters
from ortops.engine.compiled.layout import API, CREATE, CREATE_KERNEL, FAIL, INFER, INFER_SHAPES, TEXT
from ortops.jit.compile import compiled, small
from ortops.jit.parallel import allocate, call_unchecked, pointer_to, release
from ortops.jit.python_api import (
    call_function,
    call_python,
    enter,
    exception_name,
    int_attribute,
    leave,
    save_exception,
)
from ortops.jit.scalar import address_of, int64_pointer
from ortops.jit.text import text

_append = types.ExternalFunction("strncat", types.intp(types.intp, types.intp, types.intp))

_TEXT_WORDS = 64


@small
def fill_callbacks(table: int, version: int) -> int:
    """Set an OrtCustomOp's API version and callbacks in a zeroed table; unused optional callbacks stay 0. A C function."""
    words = int64_pointer(table)
    fill_getters(words, version)
    words[9] = pointer_to(_destroy)  # KernelDestroy
    words[CREATE_KERNEL] = pointer_to(_create)  # CreateKernelV2
    words[18] = pointer_to(_compute)  # KernelComputeV2
    if words[INFER] != 0:
        words[INFER_SHAPES] = pointer_to(_infer)  # InferOutputShapeFn
    return 0


@compiled
def _create(table: int, api: int, info: int, kernel: int) -> int:
    """Call Python to create a node's kernel, a callable object, from its OrtKernelInfo.

    If the kernel has an attribute `node`, a node's address, compiled code computes the node.
    """
    words, result = int64_pointer(table), int64_pointer(kernel)
    words[API], result[0] = api, 0
    if words[CREATE] == 0:
        return 0
    cells = allocate(3)
    lock = _begin()
    made = call_function(words[CREATE], info) if address_of(cells) != 0 else 0
    if made != 0 and call_python("PyCallable_Check", (made,)) != 0:
        cells[0], cells[1], cells[2] = made, table, int_attribute(made, text("node"))
        status, result[0] = 0, address_of(cells)
    else:
        status = _status(table, made)
        release(cells)
    _end(lock)
    return status


@compiled
def _compute(kernel: int, context: int) -> int:
    cells = int64_pointer(kernel)
    table = cells[1]
    if cells[2] != 0:
        return compute_node(int64_pointer(cells[2]), int64_pointer(table)[API], context)
    lock = _begin()
    status = _status(table, call_function(cells[0], context))
    _end(lock)
    return status


@compiled
def _infer(table: int, context: int) -> int:
    words = int64_pointer(table)
    lock = _begin()
    status = _status(table, call_function(words[INFER], context))
    _end(lock)
    return status


@compiled
def _destroy(kernel: int) -> int:
    if kernel != 0:
        cells = int64_pointer(kernel)
        lock = _begin()
        call_python("Py_DecRef", (cells[0],))  # a table's last kernel frees the table, too
        _end(lock)
        release(cells)
    return 0


@compiled
def _status(table: int, result: int) -> int:
    """The OrtStatus that a Python function returned as an int, 0 for success; a new OrtStatus if the function raised."""
    if result != 0:
        status = call_python("PyLong_AsLongLong", (result,))
        call_python("Py_DecRef", (result,))
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
def _begin() -> int:
    """Acquire the GIL. If the interpreter is finalizing, wait for the process to end instead."""
    enter()
    return call_python("PyGILState_Ensure", ())


@compiled
def _end(lock: int) -> None:
    """Release the GIL. If the interpreter is finalizing, wait for the process to end."""
    call_python("PyGILState_Release", (lock,))
    leave()
