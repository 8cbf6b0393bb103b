# SPDX-License-Identifier: MIT
"""Processes that compile: one for each CPU, which end with the process that started them, however that ends."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any, TypeVar

from ortops.compute import available_cpus

S = TypeVar("S")
T = TypeVar("T")


def in_processes(
    sources: Sequence[S], compile_source: Callable[[S], T], jobs: int | None = None
) -> Iterator[tuple[S, T]]:
    """Call a function of a module other than the main one with each source, in parallel.

    Args:
        sources: the arguments.
        compile_source: the function.
        jobs: the number of processes; None for one per CPU.

    Yields:
        Each source and the function's result, when it is done.

    Raises:
        BaseException: the function raised it. The processes then end at once.
    """
    if not sources:
        return
    reader, writer = multiprocessing.Pipe(duplex=False)
    workers = min(jobs or available_cpus(), len(sources))
    with reader, writer, ProcessPoolExecutor(workers, _Context(), _start, (reader,)) as pool:
        try:
            running = {pool.submit(compile_source, source): source for source in sources}
            for done in as_completed(running):
                yield running[done], done.result()
        except BaseException:
            writer.close()  # ends the processes, which would finish all sources
            raise


class _Process(SpawnProcess):
    """A process that does not import the main module, which may be a script that builds a library without further ado."""

    @staticmethod
    def _Popen(process_obj: BaseProcess) -> Any:  # noqa: N802 - the name is Python's
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            return SpawnProcess._Popen(process_obj)  # noqa: SLF001 - Python's own
        finally:
            sys.modules["__main__"] = main


class _Context(SpawnContext):
    Process = _Process


def _start(reader: Connection) -> None:
    """Leave Ctrl-C to the process that started this one, and end when it ends or closes its end of the pipe.

    The garbage collector is off, since compiling uses its many objects to its end. Measured: a tenth less processor time.
    """
    gc.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def wait() -> None:
        connection.wait([reader])  # nobody writes, so it waits for the end
        os._exit(1)  # the main thread may compile for a minute, or wait for work

    threading.Thread(target=wait, daemon=True).start()
