"""Kernels: functions of this package that are compiled for the types of their arguments.

A kernel is a C function `int64_t kernel(const int64_t* arguments)`. Its arguments are numbers and the addresses of arrays,
eight bytes each, so that all arrays of one type, read-only ones and views of a session's memory too, share the code.
Neither numba nor the source of a kernel is imported where its machine code is found on disk.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from ortops.kernels.jit import disk, machine_code

Array: TypeAlias = np.ndarray[Any, Any]

Kinds: TypeAlias = "str | tuple[type[Any], tuple[Kinds, ...]]"
"""The kind of an argument, INTEGER, FLOAT or a pointer as in _POINTERS; of a named tuple its class and its fields' kinds."""

INTEGER, FLOAT = "int64", "float64"

_POINTERS = {
    np.dtype(dtype): f"*{word}"
    for dtype, word in (
        (np.float16, "uint16"),
        (ml_dtypes.bfloat16, "int16"),
        (np.float32, "float32"),
        (np.float64, "float64"),
        (np.int64, "int64"),
    )
}
"""Pointers to each element type. Compiled code knows float16 as uint16 and bfloat16 as int16."""

_lock = threading.RLock()


class Kernel:
    """One kernel.

    Args:
        module: the file below `ortops.kernels` that defines it.
        function: its name there.
    """

    def __init__(self, module: str, function: str) -> None:
        self.module, self.function = module, function
        self._loaded: dict[tuple[str, ...], Callable[..., int]] = {}

    def __call__(self, *arguments: Any) -> int:
        """Run it; the number that it returns.

        Args:
            arguments: C-contiguous arrays, ints, floats, and named tuples of these.
        """
        kinds: list[str] = []
        values: list[int | float] = []
        _flatten(arguments, kinds, values)
        key = tuple(kinds)
        return (self._loaded.get(key) or self._load(key, arguments))(*values)

    def _load(self, kinds: tuple[str, ...], arguments: tuple[Any, ...]) -> Callable[..., int]:
        with _lock:
            if kinds not in self._loaded:
                name = f"{self.module}.{self.function}"
                code = disk.find(name, kinds)
                if code is None:
                    from ortops.kernels.jit.compile import compile_kernel

                    code = compile_kernel(self.module, self.function, _kinds_of(arguments))
                    disk.keep(name, kinds, code)
                # ctypes releases the interpreter's lock while the function runs.
                function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p)(machine_code.load(code))
                pack = struct.Struct("".join("d" if kind == FLOAT else "q" for kind in kinds)).pack
                self._loaded[kinds] = lambda *values: function(pack(*values))
            return self._loaded[kinds]


class CFunction:
    """A compiled function of another signature: its parameters, `parameters` in number, and its result are all intptr_t."""

    def __init__(self, module: str, function: str, parameters: int) -> None:
        self.module, self.function, self.parameters = module, function, parameters

    @functools.cached_property
    def address(self) -> int:
        """Where it is, for as long as this process lives."""
        name, kinds = f"{self.module}.{self.function}", (INTEGER,) * self.parameters
        with _lock:
            code = disk.find(name, kinds)
            if code is None:
                from ortops.kernels.jit.compile import compile_function

                code = compile_function(self.module, self.function, self.parameters)
                disk.keep(name, kinds, code)
            return machine_code.load(code)


def _flatten(arguments: tuple[Any, ...], kinds: list[str], values: list[int | float]) -> None:
    """Append the kind and the eight bytes of each argument."""
    for argument in arguments:
        if isinstance(argument, np.ndarray):
            kinds.append(_POINTERS[argument.dtype])
            values.append(_address(argument))
        elif isinstance(argument, tuple):
            _flatten(argument, kinds, values)
        else:
            kinds.append(FLOAT if isinstance(argument, float) else INTEGER)
            values.append(argument)


def _address(array: Array) -> int:
    """Where the elements of an array are."""
    try:
        # Measured: a quarter of the time of array.ctypes.data.
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type] # arrays are buffers
    except (TypeError, ValueError):  # it is read-only, empty, or of a type that the buffer protocol does not know
        return array.ctypes.data


def _kinds_of(arguments: tuple[Any, ...]) -> tuple[Kinds, ...]:
    return tuple(_kind_of(argument) for argument in arguments)


def _kind_of(argument: Any) -> Kinds:
    if isinstance(argument, tuple):
        return type(argument), _kinds_of(argument)
    kinds: list[str] = []
    _flatten((argument,), kinds, [])
    return kinds[0]
