"""Compiling: what `numba.njit` does, with a cache on disk that notices a change in any file of this folder.

numba looks only at the file of the cached function, but a kernel is compiled together with all that it calls.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from numba import cfunc, njit
from numba.core.caching import CompileResultCacheImpl, FunctionCache

Function = TypeVar("Function", bound=Callable[..., Any])

_SOURCES = hashlib.sha256(
    b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
).hexdigest()


class _OfAllSources:
    def get_source_stamp(self) -> str:
        return _SOURCES


class _Implementation(CompileResultCacheImpl):
    # numba's own: $NUMBA_CACHE_DIR, __pycache__ beside the source, the user's cache folder; the first that can be written.
    _locator_classes = tuple(
        type(base.__name__, (_OfAllSources, base), {})
        for base in CompileResultCacheImpl._locator_classes  # noqa: SLF001 - their public names are newer
    )


class _Cache(FunctionCache):
    _impl_class = _Implementation


def cached(function: Function) -> Function:
    """Compile a function that Python calls; keep the result on disk where any cache folder can be written."""
    dispatcher = njit(nogil=True)(function)
    with contextlib.suppress(RuntimeError):  # no folder can be written: compile again in each process
        dispatcher._cache = _Cache(function)  # noqa: SLF001 - numba offers no other way to choose the cache
    compiled: Function = dispatcher
    return compiled


def cached_cfunc(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a C function, whose `address` any thread may call; the cache is numba's own, so it must call no other file."""

    def compile_it(function: Callable[..., Any]) -> Any:
        try:
            return cfunc(signature, cache=True)(function)
        except RuntimeError:  # as above
            return cfunc(signature)(function)

    return compile_it
