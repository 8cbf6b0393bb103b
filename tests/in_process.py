"""Compiled functions in this process, which has them otherwise only as parts of a library."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from llvmlite import binding as llvm

from ortops.jit import compile as compiler
from ortops.jit import machine_code
from ortops.runtime import PROCESS, library

_PYTHON = ctypes.c_int64(PROCESS.ctypes.data)


@functools.cache
def c_function(function: Any, element: str = "") -> int:
    """The address of a compiled C function, whose annotations give its parameters."""
    return _load(function, element)


@functools.cache
def kernel(function: Any, *types: str) -> Callable[..., int]:
    """A compiled function of arguments of these types, such as "*float32", which gets numbers and addresses."""
    run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(_load(function, types))
    return lambda *values: run((ctypes.c_int64 * len(values))(*values))


def _load(function: Any, arguments: Any) -> int:
    library()  # fills PROCESS
    machine_code.processor()  # initializes LLVM
    llvm.add_symbol("ortops.python", ctypes.addressof(_PYTHON))
    name = function.py_func.__name__
    code = compiler.library_of(name, function, arguments)
    return machine_code.load(code.emit(code.module))
