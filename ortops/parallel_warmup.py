"""Compiles operators in several processes, and tells what they compile."""

from __future__ import annotations

import multiprocessing
import queue
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from ortops import precompile

_begun: Any = None
"""In a process of the pool: the queue for the names of the calls that it begins."""


def in_processes(operators_by_type: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Do what `ortops.warmup` does, with a process for each element type.

    It yields as often as there are calls: the first time when a call begins, and then when one has ended and others have
    not, with the name of the call that has begun last.

    Args:
        operators_by_type: the names of the operators for each element type.
    """
    context = multiprocessing.get_context("spawn")
    begun = context.Queue()
    with ProcessPoolExecutor(mp_context=context, initializer=_take_queue, initargs=(begun,)) as pool:
        futures = [pool.submit(_warm_up, names, kind) for kind, names in operators_by_type.items()]
        running, latest = len(futures), ""
        while running and not all(future.done() for future in futures):  # a process may die without a word
            try:
                name, is_first = begun.get(timeout=1.0)
            except queue.Empty:
                continue
            running -= not name
            if running and (not is_first or not latest):
                yield name or latest
            latest = name or latest
        for future in futures:
            future.result()


def _take_queue(begun: Any) -> None:
    global _begun  # noqa: PLW0603 - it can be handed to a process only at its start
    _begun = begun


def _warm_up(names: Sequence[str], kind: str) -> None:
    for number, call in enumerate(precompile.calls(names, [kind])):
        _begun.put((str(call), number == 0))
        call.run()
    _begun.put(("", False))
    precompile.compile_entry_points()
