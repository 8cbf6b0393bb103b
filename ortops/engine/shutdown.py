"""The end of the interpreter, with daemon threads still inside a session.

A thread that asks for the GIL of an interpreter that is going away is ended by it, and ONNX Runtime's C++ frames on its
stack turn that into an abort ("exception not rethrown"). So the interpreter waits at exit until the calls under way are
done, and daemon threads that want to begin another one wait, without the GIL, for the process to end.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time

MOST_SECONDS = 60.0
"""After this long the interpreter ends all the same."""


class Call:
    """A context: the current thread is inside a session. May be nested."""

    _lock = threading.Lock()
    _active = 0
    _closing = False
    _depth = threading.local()

    def __enter__(self) -> None:
        """Begin, or wait for the end of the process."""
        depth = getattr(self._depth, "value", 0)
        self._depth.value = depth + 1
        if depth == 0:
            self._wait_for_the_end()
            with self._lock:
                Call._active += 1

    def __exit__(self, *_: object) -> None:
        """End, or wait for the end of the process."""
        self._depth.value -= 1
        if self._depth.value == 0:
            with self._lock:
                Call._active -= 1
            self._wait_for_the_end()

    @classmethod
    def _wait_for_the_end(cls) -> None:
        if cls._closing and threading.current_thread() is not threading.main_thread() and os.name == "posix":
            while True:
                ctypes.CDLL(None).pause()

    @classmethod
    def close(cls) -> None:
        """Let no other thread begin a call, and wait for those under way."""
        cls._closing = True
        deadline = time.monotonic() + MOST_SECONDS
        while cls._active and time.monotonic() < deadline:
            time.sleep(0.001)

    @classmethod
    def forget(cls) -> None:
        """Start anew in a forked child: the threads of its parent are not there, nor is the holder of the lock."""
        cls._lock, cls._active = threading.Lock(), 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Call.forget)

# Threads that are no daemons have ended by now: the interpreter joins them before this runs.
atexit.register(Call.close)
