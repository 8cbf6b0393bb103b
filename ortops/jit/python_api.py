"""Call Python from compiled code through the C API: call a function, run signal handlers.

A signal handler or the recursion limit may raise an exception before any Python function's first line and after its last
line. Compiled code sees each exception and saves it for the thread (`exceptions.py`).
"""

from __future__ import annotations

import sys

from numba import types

from ortops.jit.compile import compiled
from ortops.jit.exceptions import KEY
from ortops.jit.parallel import allocate, release
from ortops.jit.scalar import address_of

_OBJECT, _INT = types.intp, types.int32

# Each of these must be in `machine_code.PYTHON_FUNCTIONS`, too.
acquire_gil = types.ExternalFunction("PyGILState_Ensure", _INT())
release_gil = types.ExternalFunction("PyGILState_Release", types.void(_INT))
decref = types.ExternalFunction("Py_DecRef", types.void(_OBJECT))
is_callable = types.ExternalFunction("PyCallable_Check", _INT(_OBJECT))
to_int64 = types.ExternalFunction("PyLong_AsLongLong", types.int64(_OBJECT))
_integer = types.ExternalFunction("PyLong_FromLongLong", _OBJECT(types.int64))
_tuple = types.ExternalFunction("PyTuple_New", _OBJECT(types.intp))
_tuple_set = types.ExternalFunction("PyTuple_SetItem", _INT(_OBJECT, types.intp, _OBJECT))
call = types.ExternalFunction("PyObject_CallObject", _OBJECT(_OBJECT, _OBJECT))
_check_signals = types.ExternalFunction("PyErr_CheckSignals", _INT())
_fetch_error = types.ExternalFunction("PyErr_Fetch", types.void(types.intp, types.intp, types.intp))
_normalize = types.ExternalFunction("PyErr_NormalizeException", types.void(types.intp, types.intp, types.intp))
_set_traceback = types.ExternalFunction("PyException_SetTraceback", _INT(_OBJECT, _OBJECT))
_occurred = types.ExternalFunction("PyErr_Occurred", _OBJECT())
_class_name = types.ExternalFunction("PyExceptionClass_Name", types.intp(_OBJECT))
_clear = types.ExternalFunction("PyErr_Clear", types.void())
_thread_dict = types.ExternalFunction("PyThreadState_GetDict", _OBJECT())
_get_attribute = types.ExternalFunction("PyObject_GetAttrString", _OBJECT(_OBJECT, types.intp))
_dict_set = types.ExternalFunction("PyDict_SetItemString", _INT(_OBJECT, types.intp, _OBJECT))

_KEY = int.from_bytes(KEY.ljust(8, b"\0"), sys.byteorder)


@compiled
def signal_raised() -> bool:
    """Run the handlers of pending signals if this is the main thread; return whether a handler raised."""
    lock = acquire_gil()
    raised = _check_signals() != 0
    if raised:
        save_exception()
    release_gil(lock)
    return raised


@compiled
def call_python(function: int, argument: int) -> int:
    """Call a Python function with an integer. The caller must hold the GIL.

    Returns:
        A new reference to the result; or 0 if the function raised, and the caller must then call `save_exception`.
    """
    number, arguments, result = _integer(argument), _tuple(1), 0
    if number != 0 and arguments != 0:
        _tuple_set(arguments, 0, number)  # steals the reference
        result = call(function, arguments)
    elif number != 0:
        decref(number)
    if arguments != 0:
        decref(arguments)
    return result


@compiled
def int_attribute(thing: int, name: int) -> int:
    """The value of an object's integer attribute; 0 if the object lacks it. The caller must hold the GIL."""
    value = _get_attribute(thing, name)
    if value == 0:
        _clear()
        return 0
    number = to_int64(value)
    decref(value)
    return number


@compiled
def exception_name() -> int:
    """The address of the class name of the pending exception (a C string), or 0."""
    exception_type = _occurred()
    return _class_name(exception_type) if exception_type != 0 else 0


@compiled
def save_exception() -> None:
    """Clear the pending exception and save it in the thread's dictionary, where `exceptions.take` finds it."""
    memory = allocate(4)
    here = address_of(memory)
    if here == 0:
        _clear()
        return
    memory[0], memory[1], memory[2], memory[3] = 0, 0, 0, _KEY
    _fetch_error(here, here + 8, here + 16)
    _normalize(here, here + 8, here + 16)
    error, thread_dict = memory[1], _thread_dict()
    if error != 0 and memory[2] != 0:
        _set_traceback(error, memory[2])
    if error != 0 and thread_dict != 0:
        _dict_set(thread_dict, here + 24, error)
    _clear()
    for i in range(3):
        if memory[i] != 0:
            decref(memory[i])
    release(memory)
