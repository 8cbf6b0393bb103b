# SPDX-License-Identifier: MIT
"""What a process with Python gives to compiled code: numbers for both to read and write, and functions of Python's C API."""

from __future__ import annotations

from ortops.native.structs import Struct


class PythonApi(Struct):
    """The addresses of functions of Python's C API, and of the C library's `pause`, on Windows `Sleep`."""

    wait: int
    PyCallable_Check: int
    PyDict_GetItemString: int
    PyDict_SetItemString: int
    PyErr_CheckSignals: int
    PyErr_Clear: int
    PyErr_Fetch: int
    PyErr_NormalizeException: int
    PyErr_Occurred: int
    PyExceptionClass_Name: int
    PyException_SetTraceback: int
    PyGILState_Ensure: int
    PyGILState_Release: int
    PyLong_AsLongLong: int
    PyLong_FromLongLong: int
    PyObject_CallObject: int
    PyObject_GetAttrString: int
    PyObject_Type: int
    PyThreadState_GetDict: int
    PyThread_get_thread_ident: int
    PyTuple_New: int
    PyTuple_SetItem: int
    Py_DecRef: int


class Process(Struct):
    """A process with Python, whose address compiled code has in the shared word "python"."""

    active: int  # the number of running callbacks
    waiting: int  # the number of threads that wait for the process to end
    ending: int  # the number of the thread that finalizes Python, or 0
    capturing: int  # the number of the thread for which RegisterCustomOps only stores its arguments, or 0
    options: int  # these arguments: the addresses of an OrtSessionOptions
    api_base: int  # and of OrtApiBase
    python: PythonApi
