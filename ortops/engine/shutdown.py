"""The interpreter's exit while daemon threads are inside a session.

An exiting interpreter ends every thread that asks for the GIL, and ONNX Runtime's C++ frames on the stack turn that into an
abort ("exception not rethrown"). So the interpreter waits at exit until running calls are done. A daemon thread that begins
another call then waits, without the GIL, for the process to end.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar

from ortops.forks import MAX_WAIT_SECONDS
from ortops.runtime import PROCESS

is_exiting = False
"""Whether the interpreter's exit has begun. Then a thread must call `wait` before it enters a session."""

_exit_lock = threading.RLock()
_methods: list[CodeType] = []
_F = TypeVar("_F", bound=Callable[..., Any])


def awaited_at_exit(method: _F) -> _F:
    """Decorate a session's method: the interpreter's exit waits until no thread runs it."""
    _methods.append(method.__code__)
    return method


def wait() -> None:
    """Wait for the process to end, but not in the exiting thread, nor if the call of a session is inside another."""
    method = sys._getframe()  # noqa: SLF001 - documented
    while method.f_code not in _methods and method.f_back is not None:
        method = method.f_back
    if not _is_inside_session(method.f_back):
        with _exit_lock:  # for ever, but not in the exiting thread, which holds it
            pass


def _is_inside_session(frame: FrameType | None) -> bool:
    """Whether a session's method called a frame's function, or is it."""
    while frame is not None and frame.f_code not in _methods:
        frame = frame.f_back
    return frame is not None


def _other_threads_are_inside() -> bool:
    """Whether another thread is inside a session. Calls pay nothing for this: it is read from the threads' frames."""
    return any(
        thread != threading.get_ident() and frame.f_code is not wait.__code__ and _is_inside_session(frame)
        for thread, frame in sys._current_frames().items()  # noqa: SLF001 - documented
    )


def close() -> None:
    """Stop other threads from beginning calls, and wait for running calls, at most `MAX_WAIT_SECONDS`."""
    global is_exiting  # noqa: PLW0603 - the interpreter exits once
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    _exit_lock.acquire()
    is_exiting = True
    while _other_threads_are_inside() and time.monotonic() < deadline:
        time.sleep(0.001)
    # These methods are not an onnxruntime.InferenceSession's; its callbacks read `ending` and count in `active`.
    PROCESS.ending = threading.get_ident()
    while PROCESS.active > 0 and time.monotonic() < deadline:
        time.sleep(0.001)


def reset_after_fork() -> None:
    """Forget the callbacks of the parent's threads, which a forked child does not have."""
    PROCESS.active = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=reset_after_fork)


def register_exit_function() -> None:
    """Register `close` as the first exit function, so that other modules' exit functions free nothing that calls still use.

    By then the interpreter has joined all threads that are not daemons.
    """
    atexit.unregister(close)
    atexit.register(close)


register_exit_function()
