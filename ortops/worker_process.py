"""A worker process for code that may crash or hang, and a memory limit for the current process."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

START_TIMEOUT = 120.0
"""Seconds that a worker may take to start and import its modules."""

STEP = 0.5
"""Seconds between two looks at whether a worker lives."""

_SIZES = Path("/proc/self/statm")


class WorkerProcess:
    """A process that `connection` starts at its first call, and starts again after `end`.

    Args:
        serve: a function of a module, which the process runs. It gets `args` and a connection, and sends one object when
            it is ready.
        args: arguments that can be pickled.

    Attributes:
        greeting: the object that the process sent when it was ready.
    """

    greeting: Any = None

    def __init__(self, serve: Callable[..., None], *args: Any) -> None:
        self._serve, self._args = serve, args
        self._running: tuple[BaseProcess, Connection] | None = None

    def connection(self) -> Connection:
        """The connection to the process, which is ready for requests.

        Raises:
            EOFError, OSError: the process ended, or took more than `START_TIMEOUT` to start.
        """
        if self._running is not None and self._running[0].exitcode is not None:
            self.end()
        if self._running is not None:
            return self._running[1]
        # Not a fork: a forked child lacks the threads that a runtime or numba may have started in the parent.
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=self._serve, args=(*self._args, there), daemon=True)
        process.start()
        there.close()
        self._running = process, here
        self.greeting = self.receive(START_TIMEOUT)
        return here

    def receive(self, seconds: float) -> Any:
        """The next object that the process sends.

        Raises:
            TimeoutError: it sends none in this time.
            EOFError, OSError: it ended, or its end of the pipe is closed.
            pickle.UnpicklingError: it sent something that is no object.
        """
        if self._running is None:
            raise EOFError
        process, connection = self._running
        deadline = time.monotonic() + seconds
        # The end of the process does not close the pipe if it has forked a process that is alive.
        while not connection.poll(min(STEP, max(0.0, deadline - time.monotonic()))):
            if process.exitcode is not None and not connection.poll():
                raise EOFError
            if time.monotonic() >= deadline:
                raise TimeoutError
        # Part of an object would let the call below wait for the rest for ever.
        watch = threading.Timer(max(STEP, deadline - time.monotonic()), process.kill)
        watch.start()
        try:
            return connection.recv()
        except (EOFError, OSError):
            raise
        except Exception as error:  # unpickling what is no pickle raises any exception
            raise pickle.UnpicklingError(f"{type(error).__name__}: {error}") from error
        finally:
            watch.cancel()

    def kill(self) -> None:
        """End the process at once. A thread that waits for its answer finds the connection closed."""
        if (running := self._running) is not None:
            running[0].kill()

    def end(self) -> int | None:
        """End the process and return its exit code, or None if it is not running. The next `connection` starts a new one."""
        if self._running is None:
            return None
        process, connection = self._running
        self._running = None
        connection.close()
        process.join(1.0)
        if process.exitcode is None:
            process.kill()
            process.join()
        return process.exitcode


def can_limit_memory() -> bool:
    """Whether the memory of this process can be limited, which is the case on Linux."""
    return _SIZES.exists()


@contextlib.contextmanager
def limited_memory(size: int) -> Iterator[None]:
    """A context in which the process may take `size` bytes of address space beyond what it has."""
    import resource  # not on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(_SIZES.read_text("ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    lowest = min(limit for limit in (used + size, soft, hard) if limit != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_AS, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
