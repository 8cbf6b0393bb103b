"""What a process with Python gives to compiled code: words for both to read and write, and functions of Python's C API."""

from __future__ import annotations

ACTIVE, ENDING, CAPTURING, OPTIONS, API_BASE, FIRST_PYTHON_FUNCTION = range(6)
"""Indices of the words, whose address compiled code has in the shared word "python".

ACTIVE: the number of running callbacks.
ENDING: the number of the thread that finalizes Python, or 0.
CAPTURING: the number of the thread for which RegisterCustomOps only stores its arguments, or 0.
OPTIONS, API_BASE: these arguments: the addresses of an OrtSessionOptions and of OrtApiBase.
FIRST_PYTHON_FUNCTION: from here on the addresses of PYTHON_FUNCTIONS.
"""

PYTHON_FUNCTIONS = (
    "wait",  # no function of Python: the C library's `pause`, on Windows `Sleep`
    "PyCallable_Check",
    "PyDict_GetItemString",
    "PyDict_SetItemString",
    "PyErr_CheckSignals",
    "PyErr_Clear",
    "PyErr_Fetch",
    "PyErr_NormalizeException",
    "PyErr_Occurred",
    "PyExceptionClass_Name",
    "PyException_SetTraceback",
    "PyGILState_Ensure",
    "PyGILState_Release",
    "PyLong_AsLongLong",
    "PyLong_FromLongLong",
    "PyObject_CallObject",
    "PyObject_GetAttrString",
    "PyObject_Type",
    "PyThreadState_GetDict",
    "PyThread_get_thread_ident",
    "PyTuple_New",
    "PyTuple_SetItem",
    "Py_DecRef",
)
