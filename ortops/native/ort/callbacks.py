# SPDX-License-Identifier: MIT
"""An operator's compiled callbacks in a session (OrtCustomOp).

ctypes would drop an exception that Python raises before a callback's first line or after its last, and ONNX Runtime would
mistake the result for success or for an address. These callbacks succeed only if the Python function that they call returns
success. Otherwise ONNX Runtime gets a status, and the exception is saved for the thread.
"""

from __future__ import annotations

from numba import types

from ortops.compiler.compile import compiled, optimize_for_size
from ortops.compiler.parallel import allocate, pointer_to, release
from ortops.compiler.scalar import address_of
from ortops.compiler.struct_types import allocate_struct, struct_at
from ortops.compiler.text import text
from ortops.native.elements import Words
from ortops.native.ort.compute import compute_node
from ortops.native.ort.getters import fill_getters
from ortops.native.ort.ort_api import call_api
from ortops.native.ort.types import FAIL, PythonKernel, Table
from ortops.native.python_api import (
    call_function,
    call_python,
    enter,
    exception_name,
    int_attribute,
    leave,
    save_exception,
)
from ortops.native.types import Node

_append = types.ExternalFunction("strncat", types.intp(types.intp, types.intp, types.intp))

_TEXT_WORDS = 64


@optimize_for_size
def fill_callbacks(table: Table, version: int) -> int:
    """Set an OrtCustomOp's API version and callbacks in a zeroed table; unused optional callbacks stay 0. A C function."""
    fill_getters(table.custom_op, version)
    table.custom_op.kernel_destroy = pointer_to(_destroy)
    table.custom_op.create_kernel = pointer_to(_create)
    table.custom_op.kernel_compute = pointer_to(_compute)
    if table.infer != 0:
        table.custom_op.infer_output_shape = pointer_to(_infer)
    return 0


@compiled
def _create(table: Table, api: int, info: int, result: Words) -> int:
    """Call Python to create a node's kernel, a callable object, from its OrtKernelInfo.

    If the kernel has an attribute `node`, a node's address, compiled code computes the node.
    """
    table.api, result[0] = api, 0
    if table.create == 0:
        return 0
    kernel = allocate_struct(PythonKernel)
    lock = _enter_python()
    instance = call_function(table.create, info) if kernel is not None else 0
    if kernel is not None and instance != 0 and call_python("PyCallable_Check", (instance,)) != 0:
        kernel.callable, kernel.table = instance, table
        kernel.node = struct_at(Node, int_attribute(instance, text("node")))
        status, result[0] = 0, address_of(kernel)
    else:
        status = _status(table, instance)
        release(kernel)
    _leave_python(lock)
    return status


@compiled
def _compute(kernel: PythonKernel, context: int) -> int:
    if kernel.node is not None:
        return compute_node(kernel.node, kernel.table.api, context)
    lock = _enter_python()
    status = _status(kernel.table, call_function(kernel.callable, context))
    _leave_python(lock)
    return status


@compiled
def _infer(table: Table, context: int) -> int:
    lock = _enter_python()
    status = _status(table, call_function(table.infer, context))
    _leave_python(lock)
    return status


@compiled
def _destroy(kernel: PythonKernel | None) -> int:
    if kernel is not None:
        lock = _enter_python()
        call_python("Py_DecRef", (kernel.callable,))  # a table's last kernel frees the table, too
        _leave_python(lock)
        release(kernel)
    return 0


@compiled
def _status(table: Table, result: int) -> int:
    """The OrtStatus that a Python function returned as an int, 0 for success; a new OrtStatus if the function raised."""
    if result != 0:
        status = call_python("PyLong_AsLongLong", (result,))
        call_python("Py_DecRef", (result,))
        return status
    memory = allocate(_TEXT_WORDS)
    message, max_length = address_of(memory), 4 * _TEXT_WORDS - 1
    name = exception_name()
    if message == 0 or name == 0:
        status = call_api(table.api, "CreateStatus", (FAIL, table.prefix))
    else:
        memory[0] = 0
        _append(message, table.prefix, max_length)
        _append(message, name, max_length)
        status = call_api(table.api, "CreateStatus", (FAIL, message))
    release(memory)
    save_exception()
    return status


@compiled
def _enter_python() -> int:
    """Acquire the GIL. If the interpreter is finalizing, wait for the process to end instead."""
    enter()
    return call_python("PyGILState_Ensure", ())


@compiled
def _leave_python(lock: int) -> None:
    """Release the GIL. If the interpreter is finalizing, wait for the process to end."""
    call_python("PyGILState_Release", (lock,))
    leave()
