"""Kernels: functions of this package, specialised for the types of their arguments.

A kernel is a C function `int64_t kernel(const int64_t* arguments)`. Each argument is a number or an array's address, in 8
bytes. So all arrays of one element type share the code, including read-only arrays and views of a session's memory. If the
machine code is cached, neither numba nor the kernel's source is imported.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import platform
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from ortops.jit import disk, exceptions, machine_code
from ortops.jit.elements import INTERRUPTED
from ortops.jit.forks import Lazy
from ortops.jit.source import ArgType, Function, FunctionName, Source

Array: TypeAlias = np.ndarray[Any, Any]

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
"""The pointer type for each element type. Compiled code uses uint16 for float16, and int16 for bfloat16."""

_lock = threading.RLock()


def code_of(source: Source) -> bytes:
    """A source's object file, from the cache; otherwise compiled, then cached.

    Raises:
        RuntimeError: the source must be compiled, and a numba option in the environment prevents that.
    """
    with _uncollected():
        code = disk.find(source.name, source.arg_types)
        if code is None:
            code = bytes(_compiler().object_code(source))
            disk.save(source.name, source.arg_types, code)
        return code


def compile_bitcode(source: Source) -> bytes:
    """A source's LLVM bitcode for any processor.

    numba reads its options at import, so only processes that compile nothing else may call this.
    """
    for name, _ in disk.numba_options():
        del os.environ[name]
    if platform.machine() in machine_code.PORTABLE:
        os.environ |= zip(
            ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"), machine_code.PORTABLE[platform.machine()], strict=True
        )
    with _uncollected():
        return bytes(_compiler().bitcode(source))


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Switch Python's garbage collector off during compilation, which makes many objects and uses them to its end.

    Measured: a first average takes a tenth less processor time.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    _pauses.append(True)
    try:
        yield
    finally:
        _resume()


_pauses: list[bool] = []


def _resume() -> None:
    """Switch the collector on again, even in a process that was forked while another thread compiled."""
    if _pauses:
        _pauses.clear()
        gc.enable()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_resume)


_RULES: tuple[tuple[str, Callable[[str], bool], str], ...] = (
    ("NUMBA_DISABLE_JIT", lambda value: int(value) == 0, "must be 0 or unset"),
    ("NUMBA_NUM_THREADS", lambda value: int(value) > 0, "must be > 0 or unset"),
    (
        "NUMBA_CPU_FEATURES",
        lambda value: all(feature[:1] in "+-" for feature in value.split(",")),
        "must be features separated by commas, each prefixed by + or -",
    ),
)
"""Rules for numba's options: other values make numba compile nothing or end the process."""


def _compiler() -> Any:
    """The module `compile`, which imports numba.

    Raises:
        RuntimeError: a numba option in the environment would stop the compilation of kernels.
    """
    for name, is_allowed, rule in _RULES:
        value = os.environ.get(name)
        with contextlib.suppress(ValueError):  # numba ignores a value that is not an integer
            if value is not None and not is_allowed(value):
                raise RuntimeError(f"{name} = {value!r}: {rule}, since numba compiles the kernels")
    from ortops.jit import compile as compiler

    return compiler


loaded: list[Source] = []
"""The sources of all machine code that this process has loaded."""


def _address_of(source: Source) -> int:
    """Load a source's machine code and return its address."""
    address = machine_code.load(code_of(source))
    loaded.append(source)
    return address


class Kernel:
    """A kernel, compiled or loaded from the cache at the first call with each tuple of element types."""

    def __init__(self, function: Function) -> None:
        self._function: FunctionName = function
        self._loaded: dict[tuple[Any, ...], Callable[..., int]] = {}

    def __call__(self, *arguments: Any) -> int:
        """Run the kernel and return its status.

        Args:
            arguments: C-contiguous arrays, ints, floats, and named tuples of these. In each call, numbers must have the same
                types as in the first call, and tuples the same fields.

        Raises:
            BaseException: a signal handler raised it while the kernel ran.
        """
        dtypes: list[Any] = []
        values: list[int | float] = []
        _flatten(arguments, dtypes, values)
        key = tuple(dtypes)
        run = self._loaded.get(key) or exceptions.uninterrupted(lambda: self._load(key, arguments))
        result: int = run(*values)
        if result == INTERRUPTED:
            raise exceptions.take() or KeyboardInterrupt
        return result

    def _load(self, dtypes: tuple[Any, ...], arguments: tuple[Any, ...]) -> Callable[..., int]:
        with _lock:
            if dtypes not in self._loaded:
                words: list[str] = []
                address = _address_of(
                    Source(*self._function, tuple(_arg_type(argument, words) for argument in arguments))
                )
                # ctypes releases the GIL while the function runs.
                function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p)(address)
                pack = struct.Struct("".join("d" if arg_type == FLOAT else "q" for arg_type in words)).pack
                self._loaded[dtypes] = lambda *values: function(pack(*values))
            return self._loaded[dtypes]


class CFunction:
    """A compiled C function. Its annotations give its parameters' types; they are passed as 64-bit words.

    Args:
        function: the function.
        element: the element type of `elements.Stored` parameters; "" for a function without such parameters.
    """

    def __init__(self, function: Function, element: str = "") -> None:
        self._function: FunctionName = function
        self.element = element

    @Lazy
    def address(self) -> int:
        """The function's address, valid until the process ends."""
        address: int = exceptions.uninterrupted(self._load)
        return address

    def _load(self) -> int:
        with _lock:
            return _address_of(Source(*self._function, self.element))


_of_numbers: set[type[Any]] = set()
"""The classes of named tuples in earlier calls whose fields are all numbers."""


def _flatten(arguments: tuple[Any, ...], dtypes: list[Any], values: list[int | float]) -> None:
    """Append each array's element type and each argument's value, flattening tuples."""
    for argument in arguments:
        kind = type(argument)
        if kind is int:  # the most frequent type comes first
            values.append(argument)
        elif kind in _of_numbers:  # Measured: a small call takes 4 of 30 us less.
            values += argument
        elif isinstance(argument, tuple):
            _flatten(argument, dtypes, values)
        elif isinstance(argument, np.ndarray):
            dtypes.append(argument.dtype)
            values.append(data_pointer(argument))
        else:
            values.append(argument)


_HEAD = object.__basicsize__
_word_at = ctypes.c_size_t.from_address


def data_pointer(array: Array) -> int:
    """The address of an array's first element."""
    # NumPy's binary interface puts it right after the object's head. Measured: a sixth of the time of array.ctypes.data.
    return _word_at(id(array) + _HEAD).value


_PROBE = np.empty(1)
if data_pointer(_PROBE) != _PROBE.ctypes.data:
    raise ImportError("NumPy's arrays do not begin as ortops expects: it needs CPython and NumPy's binary interface")


def _arg_type(argument: Any, words: list[str]) -> ArgType:
    """An argument's type; appends the types of the numbers and addresses that the argument is passed as to `words`."""
    if isinstance(argument, tuple):
        types = tuple(_arg_type(field, words) for field in argument)
        if hasattr(argument, "_fields") and all(one in (INTEGER, FLOAT) for one in types):
            _of_numbers.add(type(argument))
        return type(argument), types
    if isinstance(argument, np.ndarray):
        words.append(_POINTERS[argument.dtype])
    else:
        words.append(FLOAT if isinstance(argument, float) else INTEGER)
    return words[-1]
