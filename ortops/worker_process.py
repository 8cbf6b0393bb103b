"""A child process that answers questions, for what may end or stop its process, and a limit of memory in it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

START_TIMEOUT = 120.0
"""Seconds for a child to import what it needs."""

_SIZES = Path("/proc/self/statm")


class WorkerProcess:
    """A process that is started when it is first asked, and anew after it ended.

    Args:
        serve: a function of a module. It gets `args` and a connection, to which it sends once when it is ready.
        args: what can be sent to another process.
    """

    def __init__(self, serve: Callable[..., None], *args: Any) -> None:
        self._serve, self._args = serve, args
        self._running: tuple[BaseProcess, Connection] | None = None

    def connection(self) -> Connection:
        """To the process, which is ready.

        Raises:
            EOFError, OSError: it ended, or took more than `START_TIMEOUT`.
        """
        if self._running is not None:
            return self._running[1]
        # Not a fork: the parent may have threads, of a runtime or of numba, that a forked child would lack.
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=self._serve, args=(*self._args, there), daemon=True)
        process.start()
        there.close()
        self._running = process, here
        if not here.poll(START_TIMEOUT):
            raise EOFError
        here.recv()
        return here

    def kill(self) -> None:
        """End the process at once. Another thread that waits for its answer finds the connection closed."""
        if (running := self._running) is not None:
            running[0].kill()

    def end(self) -> int | None:
        """The exit code of the process, which is ended: the next question has a new one. None where there was none."""
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
    """Whether the memory of this process can be limited: on Linux."""
    return _SIZES.exists()


@contextlib.contextmanager
def limited_memory(size: int) -> Iterator[None]:
    """The block may take so many bytes of address space beyond what the process has."""
    import resource  # not on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    had = int(_SIZES.read_text("ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    lowest = min(limit for limit in (had + size, soft, hard) if limit != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_AS, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
