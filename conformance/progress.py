"""The progress of a long task: a bar on a terminal, a line every few seconds in a file or in the log of a CI job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import rich.progress
from rich.console import Console

SECONDS = 10.0
"""Time between two lines."""

T = TypeVar("T")


def with_progress(
    items: Iterable[T], title: str, total: float | None = None, *, note: Callable[[], str] = str, unit: str = "cases"
) -> Iterator[T]:
    """The items as they come, with the progress on the standard error.

    Args:
        items: the items to count.
        title: the name of the task.
        total: the number of items, or None if it is not known.
        note: a function for further text, called whenever the progress is shown.
        unit: what an item is, in the plural.
    """
    console = Console(stderr=True)
    shown = _with_bar if console.is_terminal else _with_lines
    return shown(console, items, title, total, note, unit)


def _with_bar(
    console: Console, items: Iterable[T], title: str, total: float | None, note: Callable[[], str], unit: str
) -> Iterator[T]:
    columns = (
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.TextColumn("{task.completed:.0f} " + unit),
        rich.progress.TimeElapsedColumn(),
        rich.progress.TextColumn("{task.fields[note]}", markup=False),
    )
    with rich.progress.Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(title, total=total, note="")
        for item in items:
            yield item
            progress.update(task, advance=1, note=note())


def _with_lines(
    console: Console, items: Iterable[T], title: str, total: float | None, note: Callable[[], str], unit: str
) -> Iterator[T]:
    begun = last = time.monotonic()
    for count, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now - last >= SECONDS:
            last = now
            of_total = "" if total is None else f" of {total:.0f}"
            words = filter(None, [f"{title}: {count}{of_total} {unit}", f"{now - begun:.0f} s", note()])
            console.file.write(f"{', '.join(words)}\n")
            console.file.flush()
