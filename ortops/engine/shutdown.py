"""The interpreter's exit while daemon threads are inside a session.

An exiting interpreter ends every thread that asks for the GIL, and ONNX Runtime's C++ frames on the stack turn that into an
abort ("exception not rethrown"). So the interpreter waits at exit until running calls are done. A daemon thread that begins
another call then waits, without the GIL, for the process to end.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from typing import Any

import numpy as np

from ortops.engine.compiled.layout import ACTIVE, ENDING
from ortops.jit.forks import MAX_WAIT_SECONDS
from ortops.jit.machine_code import keep_forever

PROCESS_STATE = np.zeros(2, np.int64)
"""The words ACTIVE and ENDING (`ortops.engine.compiled.layout`), which the compiled callbacks read and write."""
keep_forever(PROCESS_STATE)

# Each thread has a lock. A signal handler may raise an exception at any line. Only a lock in a `with` statement stays
# consistent then, since C code acquires and releases it.
_locks: dict[int, Any] = {}
_closed_lock = threading.RLock()
_is_closed = False


def inside_session() -> Any:
    """A context in which the current thread is inside a session. Contexts may be nested.

    While the interpreter exits, a thread that enters its first context waits for the process to end.
    """
    thread = threading.get_ident()
    if thread not in _locks and _is_closed:
        return _closed_lock
    return _locks.setdefault(thread, threading.RLock())


def close() -> None:
    """Stop other threads from beginning calls, and wait for running calls, at most `MAX_WAIT_SECONDS`."""
    global _is_closed  # noqa: PLW0603 - the interpreter exits once
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    _closed_lock.acquire()
    _is_closed = True
    for lock in list(_locks.values()):
        lock.acquire(timeout=max(deadline - time.monotonic(), 0.0))
    # An onnxruntime.InferenceSession holds none of these locks; its callbacks read ENDING and count in ACTIVE.
    PROCESS_STATE[ENDING] = threading.get_ident()
    while PROCESS_STATE[ACTIVE] > 0 and time.monotonic() < deadline:
        time.sleep(0.001)


def reset_after_fork() -> None:
    """Forget the threads of the parent, which a forked child does not have."""
    _locks.clear()
    PROCESS_STATE[ACTIVE] = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=reset_after_fork)


def register_exit_function() -> None:
    """Register `close` as the first exit function, so that other modules' exit functions free nothing that calls still use.

    By then the interpreter has joined all threads that are not daemons.
    """
    atexit.unregister(close)
    atexit.register(close)


register_exit_function()
