"""The progress of a long task: a bar on a terminal where rich is installed, else a line every few seconds."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

SECONDS = 10.0
"""Time between two lines."""

T = TypeVar("T")


def with_progress(
    items: Iterable[T],
    title: str,
    total: float | None = None,
    *,
    note: Callable[[], str] = str,
    unit: str = "cases",
    label: Callable[[T], str] | None = None,
) -> Iterator[T]:
    """The items as they come, with the progress on the standard error.

    Args:
        items: the items to count.
        title: the name of the task.
        total: the number of items, or None if it is not known. If it is known, the time that is left is shown.
        note: a function for further text, called whenever the progress is shown.
        unit: what an item is, in the plural.
        label: a function for the name of an item, shown while it is worked on: ``compile RoiAlign_16 (3 of 12)``.
    """
    has_bar = sys.stderr.isatty() and importlib.util.find_spec("rich") is not None
    shown = _with_bar if has_bar else _with_lines
    return shown(items, title, total, note, unit, label)


def _with_bar(
    items: Iterable[T],
    title: str,
    total: float | None,
    note: Callable[[], str],
    unit: str,
    label: Callable[[T], str] | None,
) -> Iterator[T]:
    import rich.progress
    from rich.console import Console

    columns = (
        rich.progress.TextColumn("{task.description}", markup=False),
        rich.progress.BarColumn(),
        *([rich.progress.TextColumn("{task.completed:.0f} " + unit)] if label is None else []),
        rich.progress.TimeElapsedColumn(),
        *([] if total is None else [rich.progress.TextColumn("left:"), rich.progress.TimeRemainingColumn()]),
        rich.progress.TextColumn("{task.fields[note]}", markup=False),
    )
    with rich.progress.Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total, note="")
        for count, item in enumerate(items, 1):
            if label is not None:  # `items` may do the work between two of them
                about = f"{title} {label(item)} ({_of_total(count, total)})"
                progress.update(task, description=about, completed=count - 1)
            yield item
            if label is None:
                progress.update(task, advance=1, note=note())


def _with_lines(
    items: Iterable[T],
    title: str,
    total: float | None,
    note: Callable[[], str],
    unit: str,
    label: Callable[[T], str] | None,
) -> Iterator[T]:
    begun = last = time.monotonic()
    for count, item in enumerate(items, 1):
        if label is None:
            yield item
        now = time.monotonic()
        if now - last >= SECONDS:
            last = now
            done = count if label is None else count - 1
            counted = _of_total(count, total)
            what = f"{title}: {counted} {unit}" if label is None else f"{title} {label(item)} ({counted})"
            words = [what, f"{now - begun:.0f} s"]
            if total is not None and done:
                words.append(f"about {(now - begun) / done * (total - done):.0f} s left")
            sys.stderr.write(f"{', '.join(filter(None, [*words, note()]))}\n")
            sys.stderr.flush()
        if label is not None:
            yield item


def _of_total(count: int, total: float | None) -> str:
    return f"{count}" if total is None else f"{count} of {total:.0f}"
