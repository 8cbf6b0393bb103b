"""Compiles kernels in parallel, with one process per CPU."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any, TypeVar

from ortops import precompile
from ortops.calls.records import functions
from ortops.jit.runners import available_cpus  # noqa: TID251
from ortops.jit.source import Source  # noqa: TID251
from ortops.operators import BY_NAME

T = TypeVar("T")

ENTRY_POINTS = (
    Source("jit.tasks", "work", ""),
    Source("jit.tasks", "run_on_threads", ""),
    Source("engine.compiled.callbacks", "fill", ("*int64", "int64")),
    Source("engine.compiled.allocator", "fill", ("*int64",)),
    Source("engine.compiled.inputs", "describe", ("int64", "int64", "int64", "int64", "*int64")),
)
"""The sources that `precompile.compile_entry_points` compiles."""


def needed(operators: Iterable[str], types: Iterable[str]) -> list[Source]:
    """The sources that `ortops.warmup` compiles for these operators, in the element types that each supports."""
    found = {
        Source(function.function.module, function.function.function, function.element)
        for kind in types
        for name in operators
        if any(kind in kinds for kinds in BY_NAME[name].types.values())
        for kernels in precompile.nodes([name], [kind])
        for record in kernels.records
        for function in functions(record)
    }
    # The code without element types is the largest, so it starts first.
    return [*sorted(found, key=lambda source: (source.arguments != "", source.name, source.arguments)), *ENTRY_POINTS]


def in_processes(sources: Sequence[Source], make: Callable[[Source], T]) -> Iterator[tuple[Source, float, T]]:
    """Call a function of a module other than the main one with each source, in parallel.

    Yields:
        Each source when it is done, the seconds that it took, and the function's result.
    """
    with _pool(available_cpus()) as pool:
        for done in as_completed([pool.submit(_timed, make, source) for source in sources]):
            yield done.result()


def _timed(make: Callable[[Source], T], source: Source) -> tuple[Source, float, T]:
    began = time.perf_counter()
    made = make(source)
    return source, time.perf_counter() - began, made


def _pool(workers: int) -> ProcessPoolExecutor:
    """Processes that end with this process, even if a signal ends it; otherwise they would wait for work forever."""
    return ProcessPoolExecutor(workers, _Context(), _end_with_parent)


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


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)  # the main thread may compile for minutes, or wait for work

    threading.Thread(target=wait, daemon=True).start()
