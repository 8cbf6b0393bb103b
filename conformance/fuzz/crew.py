"""Who does a campaign's tasks: threads here, each with a process of its own, or somebody else's workers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Protocol, TypeVar

from conformance.fuzz.tasks import end_all
from conformance.printable import PrintableError

T = TypeVar("T")


class CrewError(PrintableError):
    """Nobody is there to do what remains."""


class Crew(Protocol):
    """Those who work, and how they are asked.

    lost: what a task raises that ended all who tried to do it.
    """

    lost: tuple[type[BaseException], ...]

    @property
    def width(self) -> int:
        """Tasks that it should have at a time."""

    def submit(self, task: Callable[..., T], *arguments: object) -> Future[T]:
        """Have a task done."""

    def check(self) -> None:
        """Raise CrewError if nobody is there any more."""


class Here:
    """So many threads of this process; a context manager that ends what they do."""

    lost: tuple[type[BaseException], ...] = ()

    def __init__(self, jobs: int) -> None:
        self.width = jobs
        self._threads = ThreadPoolExecutor(jobs)

    def __enter__(self) -> Here:  # noqa: PYI034  # Self is of Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        end_all()
        self._threads.shutdown()

    def submit(self, task: Callable[..., T], *arguments: object) -> Future[T]:
        """See `Crew`."""
        return self._threads.submit(task, *arguments)

    def check(self) -> None:
        """They are always there."""
