# SPDX-License-Identifier: MIT
"""Call Python from compiled code through the C API: call a function, run signal handlers.

A library does not link Python. A process with Python gives it the addresses of the functions (`process`); in
another host there are none, and nothing here is called.

A signal handler or the recursion limit may raise an exception before any Python function's first line and after its last
line. Compiled code sees each exception and saves it for the thread (`exceptions.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ortops.compiler.compile import compiled
from ortops.compiler.parallel import add_atomically, shared_word, to_words
from ortops.compiler.struct_types import clear_struct, field_address, field_pointer, local_struct, struct_at
from ortops.compiler.text import text
from ortops.exceptions import KEY
from ortops.native.process import Process, PythonApi
from ortops.native.structs import Struct

_INT, _INT64 = ir.IntType(32), ir.IntType(64)

_INT_RESULTS = {
    "PyCallable_Check",
    "PyDict_SetItemString",
    "PyErr_CheckSignals",
    "PyException_SetTraceback",
    "PyGILState_Ensure",
    "PyTuple_SetItem",
}
"""The functions whose result is a C int."""


@intrinsic(prefer_literal=True)
def _call(_typing: Any, name: Any, args: Any) -> Any:
    function = name.literal_value
    place = Process.fields["python"].offset + PythonApi.fields[function].offset
    given = types.BaseTuple.from_types(tuple(map(types.unliteral, args.types)))

    def codegen(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        words = list(to_words(builder, values[1], given))
        result = _INT if function in _INT_RESULTS else _INT64
        kind = ir.FunctionType(result, [_INT64] * len(words)).as_pointer()
        known = builder.module.globals.get("ortops.python")
        python = builder.load(known or ir.GlobalVariable(builder.module, _INT64, "ortops.python"))
        address = builder.inttoptr(builder.add(python, _INT64(place)), kind.as_pointer())
        result_word = builder.call(builder.load(address), words)
        return builder.sext(result_word, _INT64) if result == _INT else result_word

    return types.intp(name, given), codegen


if TYPE_CHECKING:

    def call_python(name: str, args: tuple[object, ...]) -> int:
        """Call a function of Python's C API with 8-byte words."""
else:
    call_python = _call


@compiled
def python_process() -> Process | None:
    """The process, if it has given the functions of Python's C API."""
    return struct_at(Process, shared_word("python")[0])


@compiled
def enter() -> None:
    """Count a running callback. If the interpreter is finalizing, wait for the process to end instead."""
    process = python_process()
    if process is not None:
        add_atomically(field_pointer(process, "active"), 1)
        if _has_ended(process):
            add_atomically(field_pointer(process, "active"), -1)
            _wait(process)


@compiled
def leave() -> None:
    """Stop counting a callback. If the interpreter is finalizing, wait for the process to end."""
    process = python_process()
    if process is not None:
        add_atomically(field_pointer(process, "active"), -1)
        if _has_ended(process):
            _wait(process)


@compiled
def _has_ended(process: Process) -> bool:
    """Whether another thread is finalizing the interpreter."""
    return process.ending != 0 and process.ending != call_python("PyThread_get_thread_ident", ())


@compiled
def _wait(process: Process) -> None:
    add_atomically(field_pointer(process, "waiting"), 1)
    while True:
        call_python("wait", (0xFFFFFFFF,))


@compiled
def signal_raised() -> bool:
    """Run the handlers of pending signals if this is the main thread; return whether a handler raised. A C function."""
    if python_process() is None:
        return False
    lock = call_python("PyGILState_Ensure", ())
    raised = call_python("PyErr_CheckSignals", ()) != 0
    if raised:
        save_exception()
    call_python("PyGILState_Release", (lock,))
    return raised


@compiled
def call_function(function: int, argument: int) -> int:
    """Call a Python function with an integer. The caller must hold the GIL.

    Returns:
        A new reference to the result; or 0 if the function raised, and the caller must then call `save_exception`.
    """
    number, arguments, result = call_python("PyLong_FromLongLong", (argument,)), call_python("PyTuple_New", (1,)), 0
    if number != 0 and arguments != 0:
        call_python("PyTuple_SetItem", (arguments, 0, number))  # steals the reference
        result = call_python("PyObject_CallObject", (function, arguments))
    elif number != 0:
        call_python("Py_DecRef", (number,))
    if arguments != 0:
        call_python("Py_DecRef", (arguments,))
    return result


@compiled
def int_attribute(thing: int, name: int) -> int:
    """The value of an object's integer attribute; 0 if the object lacks it. The caller must hold the GIL."""
    value = call_python("PyObject_GetAttrString", (thing, name))
    if value == 0:
        call_python("PyErr_Clear", ())
        return 0
    number = call_python("PyLong_AsLongLong", (value,))
    call_python("Py_DecRef", (value,))
    return number


@compiled
def exception_name() -> int:
    """The address of the class name of the pending exception (a C string), or 0."""
    exception_type = call_python("PyErr_Occurred", ())
    return call_python("PyExceptionClass_Name", (exception_type,)) if exception_type != 0 else 0


@compiled
def name_of_saved() -> int:
    """The address of the class name of the exception that `save_exception` has saved for this thread (a C string)."""
    lock, name = call_python("PyGILState_Ensure", ()), text("an exception")
    thread_dict = call_python("PyThreadState_GetDict", ())
    error = call_python("PyDict_GetItemString", (thread_dict, text(KEY))) if thread_dict != 0 else 0
    if error != 0:
        error_type = call_python("PyObject_Type", (error,))
        name = call_python("PyExceptionClass_Name", (error_type,))
        call_python("Py_DecRef", (error_type,))  # the exception has another reference
    call_python("PyGILState_Release", (lock,))
    return name


class Raised(Struct):
    """A raised exception, whose objects Python's functions set."""

    type: int
    value: int
    traceback: int


@compiled
def save_exception() -> None:
    """Clear the pending exception and save it in the thread's dictionary, where `exceptions.take` finds it."""
    raised = local_struct(Raised)
    clear_struct(raised)
    places = field_address(raised, "type"), field_address(raised, "value"), field_address(raised, "traceback")
    call_python("PyErr_Fetch", places)
    call_python("PyErr_NormalizeException", places)
    thread_dict = call_python("PyThreadState_GetDict", ())
    if raised.value != 0 and raised.traceback != 0:
        call_python("PyException_SetTraceback", (raised.value, raised.traceback))
    if raised.value != 0 and thread_dict != 0:
        call_python("PyDict_SetItemString", (thread_dict, text(KEY), raised.value))
    call_python("PyErr_Clear", ())
    for thing in (raised.type, raised.value, raised.traceback):
        if thing != 0:
            call_python("Py_DecRef", (thing,))
