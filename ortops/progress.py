# SPDX-License-Identifier: MIT
"""Shows a long task's progress: a bar on a terminal if rich is installed, else a line every few seconds."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

SECONDS = 10.0
"""The time between two lines."""

T = TypeVar("T")


def with_progress(
    items: Iterable[T],
    title: str,
    total: float | None = None,
    *,
    note: Callable[[], str] = str,
    unit: str = "cases",
) -> Iterator[T]:
    """Yield the items and show the progress on standard error.

    Args:
        items: the items to count.
        title: the task's name.
        total: the number of items, or None if unknown. If it is known, a bar shows the remaining time.
        note: returns further text; called whenever the progress is shown.
        unit: what an item is called, in the plural.
    """
    has_bar = sys.stderr.isatty() and importlib.util.find_spec("rich") is not None
    return (_with_bar if has_bar else _with_lines)(items, title, total, note, unit)


def _with_bar(items: Iterable[T], title: str, total: float | None, note: Callable[[], str], unit: str) -> Iterator[T]:
    import rich.progress
    from rich.console import Console

    columns = (
        rich.progress.TextColumn("{task.description}", markup=False),
        rich.progress.BarColumn(),
        rich.progress.TextColumn("{task.completed:.0f} " + unit),
        rich.progress.TimeElapsedColumn(),
        rich.progress.TimeRemainingColumn(),
        rich.progress.TextColumn("{task.fields[note]}", markup=False),
    )
    with rich.progress.Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total, note="")
        for count, item in enumerate(items, 1):
            yield item
            progress.update(task, completed=count, note=note())


def _with_lines(items: Iterable[T], title: str, total: float | None, note: Callable[[], str], unit: str) -> Iterator[T]:
    begun = last = time.monotonic()
    for count, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now - last >= SECONDS:
            last = now
            done = f"{count}" if total is None else f"{count} of {total:.0f}"
            words = filter(None, [f"{title}: {done} {unit}", f"{now - begun:.0f} s", note()])
            sys.stderr.write(f"{', '.join(words)}\n")
            sys.stderr.flush()
