"""Forks of this process: they wait until no other thread does what a child could not go on with.

A child has one thread. The locks of the others stay locked for ever, and what they did stays half done, in numba and LLVM as
well. So a fork waits while another thread compiles, makes a session, or imports a package that these need.
"""

from __future__ import annotations

import _imp
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

MAX_WAIT_SECONDS = 60.0
"""The longest time that a fork, or the interpreter's exit, waits for other threads."""

_PACKAGES = (
    "llvmlite",
    "ml_dtypes",
    "numba",
    "numpy",
    "onnx",
    "onnx_models",
    "onnxruntime",
    "onnxruntime_extensions",
    "ortops",
)

# Each thread has a lock. A signal handler may raise an exception at any line. Only a lock in a `with` statement stays
# consistent then, since C code acquires and releases it.
_locks: dict[int, Any] = {}
_is_cut_off = False


def unforked() -> Any:
    """A context in which no other thread forks the process. Contexts may be nested.

    Raises:
        RuntimeError: this process was forked while another thread was in such a context, for longer than a fork waits.
    """
    if _is_cut_off:
        raise RuntimeError(
            "this process was forked while another thread compiled or made a session: it must be forked at another time, or "
            "be started by 'spawn'"
        )
    return _locks.setdefault(threading.get_ident(), threading.RLock())


def _is_busy() -> bool:
    """Whether another thread does what a child could not go on with."""
    locks = list(_locks.values())
    if "numba.core.compiler_lock" in sys.modules:  # which users' own functions take as well
        locks.append(sys.modules["numba.core.compiler_lock"].global_compiler_lock._lock)  # noqa: SLF001
    for lock in locks:
        if not lock.acquire(blocking=False):
            return True
        lock.release()
    here = threading.get_ident()
    importing = [(name, reference()) for name, reference in list(_importing().items())]
    return any(one and one.owner not in (None, here) and name.split(".")[0] in _PACKAGES for name, one in importing)


def _importing() -> dict[str, Any]:
    """Python's locks of the modules that threads import."""
    found: dict[str, Any] = getattr(sys.modules["_frozen_importlib"], "_module_locks", {})
    return found


def _wait() -> None:
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    while True:
        _imp.acquire_lock()  # `os.fork` takes it, too: if it had to wait for it, another import could begin
        if not _is_busy() or time.monotonic() > deadline:
            return
        _imp.release_lock()
        time.sleep(0.001)


def _reset() -> None:
    global _is_cut_off  # noqa: PLW0603 - a process is forked once
    _imp.release_lock()
    if _is_busy():
        _is_cut_off = True
        _importing().clear()  # an import then fails, where it would wait
    _locks.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_wait, after_in_parent=_imp.release_lock, after_in_child=_reset)


T = TypeVar("T")


class Lazy(Generic[T]):
    """A method that becomes its result: `functools.cached_property`, which holds a lock meanwhile before Python 3.12."""

    def __init__(self, method: Callable[[Any], T]) -> None:
        self._method = method

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> T:
        result = instance.__dict__[self._name] = self._method(instance)
        return result
