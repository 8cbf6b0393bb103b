"""Machine code of users' functions on disk, under the rules of `compiler.cache`, so that later processes do without numba.

A function without a digest (`digest`) is compiled in each process, and the logger "ortops" says why at level INFO. So
is one that calls functions of numba, such as those of random numbers, which a process without numba lacks.
"""

from __future__ import annotations

import hashlib
import logging

from ortops import exceptions
from ortops.compiler import cache, machine_code
from ortops.custom.arguments import UserCode
from ortops.custom.counted_memory import C_FUNCTIONS
from ortops.custom.digest import Digest


def load(source: UserCode) -> int:
    """Load a function, compiled for this processor, from disk or from numba.

    Returns:
        The address of a C function ``entry(node, call)``, valid until the process ends.

    Raises:
        CompileError: numba cannot compile it, or its code calls the interpreter.
    """
    address: int = exceptions.run_shielded(lambda: machine_code.load(_code_of(source)))
    return address


def bitcode(source: UserCode) -> bytes:
    """The bitcode of a function for any processor, from disk or from numba; see `code.bitcode`."""
    return _code_of(source, cache.BITCODE)


def _code_of(source: UserCode, processor: tuple[str, ...] | None = None) -> bytes:
    """A function's code for this processor, or its `cache.BITCODE`: from disk, or compiled and then stored if it can be."""
    digest = Digest(source.function)
    code = cache.find(_name(source, digest), source.types, processor) if digest.value else None
    if code is None:
        from ortops.custom import code as user_code  # which imports numba

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
            cache.save(_name(source, digest), source.types, code, processor)
            cache.remove_unused()
    return code


_C_FUNCTIONS = frozenset(name for names in C_FUNCTIONS.values() for name in names)


def _name(source: UserCode, digest: Digest) -> str:
    """The function's name in the cache, which begins alike for all versions (`cache.MAX_VERSIONS`)."""
    function = f"{source.operator} {source.function.__module__}.{source.function.__qualname__}"
    return f"user.{hashlib.sha256(function.encode()).hexdigest()[:16]}.{digest.value}"
