# SPDX-License-Identifier: MIT
"""Compiled functions in this process, which has them otherwise only as parts of a library."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from llvmlite import binding as llvm

from ortops.compiler import compile as compiler
from ortops.compiler import machine_code
from ortops.runtime import PROCESS, library

_PYTHON = ctypes.c_size_t(ctypes.addressof(PROCESS))


@functools.cache
def c_function(function: Any, element: str = "") -> int:
    """The address of a compiled C function, whose annotations give its parameters."""
    library()  # fills PROCESS
    machine_code.processor()  # initializes LLVM
    llvm.add_symbol("ortops.python", ctypes.addressof(_PYTHON))
    code = compiler.library_of(function.py_func.__name__, function, element)
    return machine_code.load(code.emit(code.module))
