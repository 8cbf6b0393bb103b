# SPDX-License-Identifier: MIT
"""Handle asynchronous exceptions, which a signal handler (Ctrl-C) or the recursion limit may raise at any line."""

from __future__ import annotations

import _thread
import atexit
import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any

from ortops.forks import MAX_WAIT_SECONDS, unforked

KEY = "ortops"
"""The key under which compiled code saves an exception in the thread's dictionary (PyThreadState_GetDict)."""

# c_void_p, since the result is a borrowed reference, which py_object would release.
_thread_dict = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyThreadState_GetDict", ctypes.pythonapi))


def take() -> BaseException | None:
    """Remove and return the last exception that compiled code saved for this thread, or None."""
    address = _thread_dict()
    try:
        thread_dict: dict[str, BaseException] = ctypes.cast(address, ctypes.py_object).value if address else {}
    except ctypes.ArgumentError as error:  # ctypes turns a RecursionError into this
        raise RecursionError(str(error)) from error
    return thread_dict.pop(KEY, None)


_running: set[Any] = set()


def run_shielded(function: Callable[[], Any]) -> Any:
    """Call a function that must run to its end; numba, for example, once interrupted, fails until the process ends.

    The function runs on another thread, since signal handlers run on the main thread. If a handler raises, only the wait
    ends. No other thread forks the process meanwhile.

    Returns:
        The function's result.
    """
    section = unforked()
    if threading.get_ident() != threading.main_thread().ident:
        with section:
            return function()
    results: list[Any] = []
    errors: list[BaseException] = []
    done = _thread.allocate_lock()
    done.acquire()

    def work() -> None:
        with unforked():
            _running.add(done)
            try:
                results.append(function())
            except BaseException as error:  # noqa: BLE001 - raised again below
                errors.append(error)
            finally:
                _running.discard(done)
                done.release()

    try:
        # An asynchronous exception may leave a threading.Thread half started.
        _thread.start_new_thread(work, ())
    except RuntimeError:  # there are too many threads, or the interpreter is exiting
        with section:
            return function()
    done.acquire()
    if errors:
        raise errors[0]
    return results[0]


@atexit.register
def _wait() -> None:
    """Wait for functions whose callers were interrupted: a compiler may crash if the interpreter exits."""
    for done in list(_running):
        done.acquire(timeout=MAX_WAIT_SECONDS)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_running.clear)
