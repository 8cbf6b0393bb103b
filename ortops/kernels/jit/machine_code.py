"""Load object files into this process by LLVM, without numba."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from llvmlite import binding as llvm

SYMBOL = "ortops_kernel"
"""The symbol of the kernel in every object file."""

PYTHON_FUNCTIONS = (
    "PyCallable_Check",
    "PyCFunction_NewEx",
    "PyDict_GetItem",
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
    "PyThreadState_GetDict",
    "PyThread_get_thread_ident",
    "PyTuple_GetItem",
    "PyTuple_New",
    "PyTuple_SetItem",
    "Py_DecRef",
    "Py_IncRef",
)
"""Functions of Python's C API that compiled code calls. LLVM may not find their symbols by itself if Python is embedded."""


def keep_forever(thing: object) -> None:
    """Keep an object alive until the process ends.

    The interpreter clears modules when it exits, and ONNX Runtime may still use what it was given: sessions can end later.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def load(code: bytes) -> int:
    """Load an object file and return the address of its kernel, valid until the process ends.

    Raises:
        RuntimeError: LLVM rejects the file.
    """
    # Every file has an engine of its own, since all kernels have the same symbol.
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    keep_forever(engine)
    address: int = engine.get_function_address(SYMBOL)
    if not address:
        raise RuntimeError(f"an object file has no function {SYMBOL}")
    return address


def _target_machine() -> Any:
    _initialize()
    return llvm.Target.from_default_triple().create_target_machine(jit=True)


@functools.cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for name in PYTHON_FUNCTIONS:
        llvm.add_symbol(name, ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value)


def processor() -> tuple[str, str, str]:
    """The target triple, the CPU's name and its features, on which the machine code depends."""
    _initialize()
    return llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
