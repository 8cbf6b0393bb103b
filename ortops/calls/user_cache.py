"""Machine code of users' functions on disk, under the rules of `jit.disk`, so that later processes do without numba.

It is found by the digest of the function's bytecode and of all that it uses. A function that uses something whose value
cannot be told, such as an object, is compiled in each process.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from ortops.calls.user_arguments import UserCode
from ortops.jit import disk, exceptions, machine_code


def load(source: UserCode) -> int:
    """Load a function, compiled for this processor, from disk or from numba.

    Returns:
        The address of a C function ``entry(node, call)``, valid until the process ends.

    Raises:
        CompileError: numba cannot compile it, or its code calls the interpreter.
    """
    address: int = exceptions.uninterrupted(lambda: _load(source))
    return address


def _load(source: UserCode) -> int:
    name = digest_of(source.function)
    code = name and disk.find(f"user.{name}", source.types)
    if not code:
        from ortops.calls.user_code import object_code  # which imports numba

        code, names = object_code(source)
        # numba's own functions, such as those of random numbers, are in a process that has imported it.
        if name and not any(one.startswith(("numba_", "NRT_")) for one in names):
            disk.save(f"user.{name}", source.types, code)
    return machine_code.load(code)


def bitcode(source: UserCode) -> bytes:
    """The bitcode of a function for any processor, from disk or from numba; see `user_code.bitcode`."""
    name = digest_of(source.function)
    code = name and disk.find(f"user.{name}", source.types, disk.BITCODE)
    if not code:
        from ortops.calls.user_code import bitcode as made

        code = made(source)
        if name:
            disk.save(f"user.{name}", source.types, code, disk.BITCODE)
    return code


def digest_of(function: Callable[..., Any]) -> str | None:
    """The digest of a function and of all that it uses; None if it uses something whose value cannot be told."""
    try:
        parts = [sys.version, np.__version__, *_function(function, set())]
    except _UnknownError:
        return None
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:32]


class _UnknownError(Exception):
    """A value that cannot be told."""


_MODULES = ("builtins", "math", "cmath", "numpy", "numba")


def _function(function: Any, seen: set[int]) -> Iterator[str]:
    plain = getattr(function, "py_func", function)
    if not isinstance(plain, FunctionType):
        raise _UnknownError
    if id(plain) in seen:
        return
    seen.add(id(plain))
    yield repr(sorted(getattr(function, "targetoptions", {}).items()))
    names: set[str] = set()
    yield from _code(plain.__code__, names)
    used = {name: plain.__globals__[name] for name in names if name in plain.__globals__}
    cells = zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=True)
    for name, cell in cells:
        used[name] = cell.cell_contents
    for name in sorted(used):
        yield name
        yield from _value(used[name], seen)
    yield from _value(plain.__defaults__, seen)


def _code(code: CodeType, names: set[str]) -> Iterator[str]:
    names.update(code.co_names)
    yield code.co_code.hex() + getattr(code, "co_exceptiontable", b"").hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_argcount, code.co_flags))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant, names)
        else:
            yield repr((type(constant), constant))


def _value(value: Any, seen: set[int]) -> Iterator[str]:
    if value is None or type(value) in (bool, int, float, complex, str, bytes):
        yield repr((type(value), value))
    elif type(value) is tuple:
        yield str(len(value))
        for one in value:
            yield from _value(one, seen)
    elif isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc":
        yield repr((type(value), value.dtype, value.shape, value.tobytes()))
    elif isinstance(value, ModuleType | type | BuiltinFunctionType | np.ufunc):
        module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "numpy")
        if str(module).split(".")[0] not in _MODULES:
            raise _UnknownError
        yield f"{module}.{value.__name__}"
    else:
        yield from _function(value, seen)
