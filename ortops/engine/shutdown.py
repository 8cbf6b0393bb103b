"""The end of the interpreter, with daemon threads still inside a session.

A thread that asks for the lock of an interpreter that is going away is ended by it, and ONNX Runtime's C++ frames on its
stack turn that into an abort ("exception not rethrown"). So the interpreter waits at exit until the calls under way are
done, and daemon threads that want to begin another one wait, without the lock, for the process to end.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from typing import Any

import numpy as np

from ortops.kernels.jit.exceptions import MAX_WAIT_SECONDS
from ortops.kernels.jit.machine_code import keep_forever
from ortops.kernels.layout import ACTIVE, ENDING

PROCESS = np.zeros(2, np.int64)
"""What callbacks of sessions see and count (`ortops.kernels.layout`)."""
keep_forever(PROCESS)

# An exception may come at any line: a lock that C code takes and gives in a `with` is the one thing that stays in step.
_locks: dict[int, Any] = {}
_shut = threading.RLock()
_is_shut = False


def inside() -> Any:
    """A context in which the current thread is inside a session. May be nested.

    While the interpreter ends, a thread that was not inside waits there for the end of the process.
    """
    thread = threading.get_ident()
    if thread not in _locks and _is_shut:
        return _shut
    return _locks.setdefault(thread, threading.RLock())


def close() -> None:
    """Let no other thread begin a call, and wait for those under way."""
    global _is_shut  # noqa: PLW0603 - the interpreter ends once
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    _shut.acquire()
    _is_shut = True
    for lock in list(_locks.values()):
        lock.acquire(timeout=max(deadline - time.monotonic(), 0.0))
    # Callbacks of sessions of onnxruntime's own, which hold no lock of these.
    PROCESS[ENDING] = threading.get_ident()
    while PROCESS[ACTIVE] > 0 and time.monotonic() < deadline:
        time.sleep(0.001)


def forget() -> None:
    """Start anew in a forked child: the threads of its parent are not there."""
    _locks.clear()
    PROCESS[ACTIVE] = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget)


def close_first() -> None:
    """Have the interpreter do so before what other modules have it do at its end, which may take away what calls use.

    Threads that are no daemons have ended by then: the interpreter joins them before.
    """
    atexit.unregister(close)
    atexit.register(close)


close_first()
