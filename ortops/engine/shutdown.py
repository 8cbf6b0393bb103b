# SPDX-License-Identifier: MIT
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
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any, TypeVar

from ortops.forks import MAX_WAIT_SECONDS
from ortops.runtime import PROCESS

_MAX_WAIT_FOR_OTHERS = 1.0
"""Seconds that the exit waits for sessions of onnxruntime, which may have none of our nodes, and then never wait."""

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


def _codes(frame: FrameType | None) -> Iterator[CodeType]:
    """The code of a frame's function and of its callers."""
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


def _is_inside_session(frame: FrameType | None) -> bool:
    """Whether a session's method called a frame's function, or is it."""
    return any(code in _methods for code in _codes(frame))


def _other_frames() -> list[FrameType]:
    """The innermost frames of the other threads. Calls of sessions pay nothing for this."""
    frames = sys._current_frames()  # noqa: SLF001 - documented
    return [frame for thread, frame in frames.items() if thread != threading.get_ident()]


def _other_threads_are_inside() -> bool:
    """Whether another thread is inside a session and does not wait for the process to end."""
    return any(frame.f_code is not wait.__code__ and _is_inside_session(frame) for frame in _other_frames())


def _threads_inside_onnxruntime() -> int:
    """How many other threads are inside a method of an onnxruntime.InferenceSession."""
    file = getattr(sys.modules.get("onnxruntime.capi.onnxruntime_inference_collection"), "__file__", None)
    return sum(any(code.co_filename == file for code in _codes(frame)) for frame in _other_frames())


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
    # A thread that left its callback before `ending` was set needs the GIL once more, then waits in its next callback.
    deadline = min(deadline, time.monotonic() + _MAX_WAIT_FOR_OTHERS)
    while _threads_inside_onnxruntime() > PROCESS.waiting and time.monotonic() < deadline:
        time.sleep(0.001)


def reset_after_fork() -> None:
    """Forget the callbacks of the parent's threads, which a forked child does not have."""
    PROCESS.active = PROCESS.waiting = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=reset_after_fork)


def register_exit_function() -> None:
    """Register `close` as the first exit function, so that other modules' exit functions free nothing that calls still use.

    By then the interpreter has joined all threads that are not daemons.
    """
    atexit.unregister(close)
    atexit.register(close)


register_exit_function()
