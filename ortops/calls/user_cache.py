"""Machine code of users' functions on disk, under the rules of `jit.disk`, so that later processes do without numba.

A function without a digest (`user_digest`) is compiled in each process, and the logger "ortops" says why at level INFO. So
is one that calls functions of numba, such as those of random numbers, which a process without numba lacks.
"""

from __future__ import annotations

import hashlib
import logging

from ortops.calls.user_arguments import UserCode
from ortops.calls.user_digest import Digest
from ortops.calls.user_runtime import C_FUNCTIONS
from ortops.jit import disk, exceptions, machine_code


def load(source: UserCode) -> int:
    """Load a function, compiled for this processor, from disk or from numba.

    Returns:
        The address of a C function ``entry(node, call)``, valid until the process ends.

    Raises:
        CompileError: numba cannot compile it, or its code calls the interpreter.
    """
    address: int = exceptions.uninterrupted(lambda: machine_code.load(_code_of(source)))
    return address


def bitcode(source: UserCode) -> bytes:
    """The bitcode of a function for any processor, from disk or from numba; see `user_code.bitcode`."""
    return _code_of(source, disk.BITCODE)


def _code_of(source: UserCode, processor: tuple[str, ...] | None = None) -> bytes:
    """A function's code for this processor, or its `disk.BITCODE`: from disk, or compiled and then stored if it can be."""
    digest = Digest(source.function)
    code = disk.find(_name(source, digest), source.types, processor) if digest.value else None
    if code is None:
        from ortops.calls import user_code  # which imports numba

        called: list[str] = []
        if processor is None:
            code, called = user_code.object_code(source)
        else:
            code = user_code.bitcode(source)
        digest.note_compiled()
        again = Digest(source.function)  # numba has loaded its extensions, and another thread may have changed a value
        lacking = [name for name in called if name not in _C_FUNCTIONS]
        why = (
            digest.unknown or again.unknown or ", ".join(lacking) or ("" if digest.value == again.value else "a change")
        )
        if why:
            logging.getLogger("ortops").info("%s is compiled in each process: %s", source.operator, why)
        else:
            disk.save(_name(source, digest), source.types, code, processor)
    return code


_C_FUNCTIONS = frozenset(name for names in C_FUNCTIONS.values() for name in names)


def _name(source: UserCode, digest: Digest) -> str:
    """The function's name in the cache, which begins alike for all versions (`disk.MAX_VERSIONS`)."""
    function = f"{source.operator} {source.function.__module__}.{source.function.__qualname__}"
    return f"user.{hashlib.sha256(function.encode()).hexdigest()[:16]}.{digest.value}"
