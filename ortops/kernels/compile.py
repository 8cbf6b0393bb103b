"""Compiling: what `numba.njit` and `numba.cfunc` do, on first use, with the code kept on disk (`disk.py`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeVar

from numba import njit
from numba.core.ccallback import CFunc
from numba.core.sigutils import normalize_signature

from ortops.kernels.disk import DiskCache

Function = TypeVar("Function", bound=Callable[..., Any])

INNER: Final = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""How functions are compiled that only compiled code calls: measured, without the wrappers half a second sooner."""


def cached(function: Function) -> Function:
    """Compile a function that Python calls; keep the result on disk where any folder for it can be written."""
    dispatcher = njit(nogil=True)(function)
    dispatcher._cache = DiskCache(function)  # noqa: SLF001 - numba offers no other way to choose the cache
    compiled: Function = dispatcher
    return compiled


class CFunction:
    """A C function, which any thread may call; compiled when its address is first asked for, and kept on disk too."""

    def __init__(self, signature: Any, function: Callable[..., Any]) -> None:
        self._signature, self._function = signature, function
        self._cache = DiskCache(function)

    @functools.cached_property
    def address(self) -> int:
        """Its address, good for as long as this object lives."""
        # As numba's decorator `cfunc` does, which would compile it at once and knows no cache but its own.
        compiled: Any = CFunc(self._function, normalize_signature(self._signature), locals={}, options={})
        compiled._cache = self._cache  # noqa: SLF001 - as above
        compiled.compile()
        self._compiled = compiled
        return int(compiled.address)


def cached_cfunc(signature: Any) -> Callable[[Callable[..., Any]], CFunction]:
    """Compile a function for C, of this signature."""
    return functools.partial(CFunction, signature)
