# SPDX-License-Identifier: MIT
"""Forks of this process: they wait until no other thread does what a child could not go on with.

A child has one thread. The locks of the others stay locked for ever, and what they did stays half done, in numba and LLVM as
well. So a fork waits while another thread compiles, makes a session, or imports a package that these need.
"""

from __future__ import annotations

import _imp
import concurrent.futures.thread  # noqa: F401 - see `register_at_fork` below
import contextlib
import os
import sys
import threading
import time
from typing import Any

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
_new = threading.RLock()
_held: list[contextlib.ExitStack | None] = []
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
    here = threading.get_ident()
    if here not in _locks:
        with _new:
            return _locks.setdefault(here, threading.RLock())
    return _locks[here]


def _taken() -> contextlib.ExitStack | None:
    """All locks, so that other threads begin nothing until they are released; None if another thread holds one."""
    with contextlib.ExitStack() as stack:
        _imp.acquire_lock()
        stack.callback(_imp.release_lock)
        _new.acquire()
        stack.callback(_new.release)
        numba = getattr(sys.modules.get("numba.core.compiler_lock"), "global_compiler_lock", None)
        # Functions of users take the lock of numba as well.
        locks = [*_locks.values()] if numba is None else [*_locks.values(), numba._lock]  # noqa: SLF001
        for lock in locks:
            if not lock.acquire(blocking=False):
                return None
            stack.callback(lock.release)
        return None if _is_importing() else stack.pop_all()


def _is_importing() -> bool:
    """Whether another thread imports one of the packages."""
    mine = (None, threading.get_ident())
    locks = [reference() for name, reference in list(_module_locks().items()) if name.split(".")[0] in _PACKAGES]
    return any(lock is not None and lock.owner not in mine for lock in locks)


def _module_locks() -> dict[str, Any]:
    """Python's locks of the modules that threads import."""
    locks: dict[str, Any] = getattr(sys.modules["_frozen_importlib"], "_module_locks", {})
    return locks


def _wait() -> None:
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    while (taken := _taken()) is None and time.monotonic() < deadline:
        time.sleep(0.001)
    _held.append(taken)


def _go_on() -> None:
    if taken := _held.pop():
        taken.close()


def _reset() -> None:
    global _is_cut_off  # noqa: PLW0603 - a process is forked once
    if not _held[-1] or _is_importing():  # one may have begun after all
        _is_cut_off = True
        _module_locks().clear()  # an import then fails, where it would wait
    _go_on()
    _locks.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    # What was registered last is called first. The modules logging and concurrent.futures.thread, which are imported above,
    # register functions that take locks. Threads for which `_wait` waits may need these.
    os.register_at_fork(before=_wait, after_in_parent=_go_on, after_in_child=_reset)
