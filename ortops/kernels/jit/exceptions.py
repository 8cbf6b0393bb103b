"""Exceptions that Python raises at any line: a signal handler raises them (Ctrl-C), or the recursion limit."""

from __future__ import annotations

import _thread
import atexit
import ctypes
import threading
from collections.abc import Callable
from typing import Any

KEY = b"ortops"
"""Under which compiled code keeps an exception in the dictionary that Python has for each thread."""

MOST_SECONDS = 60.0
"""After this long the interpreter ends, whatever its threads do."""

# Its result is a borrowed reference, which py_object would give up.
_thread_dict = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyThreadState_GetDict", ctypes.pythonapi))


def take() -> BaseException | None:
    """The last exception that compiled code has kept for this thread, which it keeps no longer; or None."""
    address = _thread_dict()
    try:
        own: dict[str, BaseException] = ctypes.cast(address, ctypes.py_object).value if address else {}
    except ctypes.ArgumentError as error:  # what ctypes makes of a RecursionError
        raise RecursionError(str(error)) from error
    return own.pop(KEY.decode(), None)


_running: set[Any] = set()


def uninterrupted(function: Callable[[], Any]) -> Any:
    """What a function returns that must not end halfway: numba, for one, would fail for as long as the process lives.

    Signal handlers run on the main thread, so it runs on another one. An exception of a handler ends the waiting alone.
    """
    if threading.get_ident() != threading.main_thread().ident:
        return function()
    results: list[Any] = []
    errors: list[BaseException] = []
    done = _thread.allocate_lock()
    done.acquire()

    def work() -> None:
        _running.add(done)
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised below
            errors.append(error)
        finally:
            _running.discard(done)
            done.release()

    try:
        # Not threading.Thread, which an exception leaves half started.
        _thread.start_new_thread(work, ())
    except RuntimeError:  # no thread can be had: there are too many, or the interpreter ends
        return function()
    done.acquire()
    if errors:
        raise errors[0]
    return results[0]


@atexit.register
def _wait() -> None:
    """Wait for functions whose callers wait no longer: a compiler does not like to lose the interpreter."""
    for done in list(_running):
        done.acquire(timeout=MOST_SECONDS)
