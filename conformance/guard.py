# SPDX-License-Identifier: MIT OR Apache-2.0
"""Protects the process from a backend's call: the standard streams, Ctrl-C, os._exit and forks.

A user who stops the run by a signal is distinguished from a backend that raises KeyboardInterrupt itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TextIO


class EndOfProcessError(BaseException):
    """Raised in place of os._exit, which would end the process."""


@contextlib.contextmanager
def kept_surroundings() -> Iterator[None]:
    """A context for a call of a backend, which restores standard output and standard error afterwards.

    os._exit raises `EndOfProcessError` in the block. A process that is forked in the block ends with the block: otherwise it
    would run the rest of the suite, too, and write the same reports. Outside of the main thread the context does nothing,
    because the streams belong to the whole process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    process, end = os.getpid(), os._exit
    streams, copies = (sys.stdout, sys.stderr), _copies()

    def refuse(status: int) -> None:
        if os.getpid() != process:
            end(status)
        raise EndOfProcessError(f"os._exit({status!r})")

    sys.stdout, sys.stderr = map(_Shielded, streams)
    os._exit = refuse  # type: ignore[assignment]
    try:
        with user_told_apart():
            yield
    finally:
        if os.getpid() != process:
            end(0)
        os._exit = end
        for descriptor, copy in copies.items():
            _restore(descriptor, copy)
        sys.stdout, sys.stderr = (_open(stream, descriptor) for stream, descriptor in zip(streams, (1, 2), strict=True))


class _Shielded:
    """A stream that cannot be closed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def close(self) -> None:
        """Do nothing."""


def _copies() -> dict[int, int]:
    """Copies of the descriptors of standard output and standard error, if they are open."""
    copies = {}
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            copies[descriptor] = os.dup(descriptor)
    return copies


def _restore(descriptor: int, copy: int) -> None:
    """Restore a descriptor from its copy, unless the copy was closed as well."""
    with contextlib.suppress(OSError):
        if not _is_same(descriptor, copy):
            os.dup2(copy, descriptor)
        os.close(copy)


def _is_same(descriptor: int, copy: int) -> bool:
    expected = os.fstat(copy)
    try:
        return os.path.samestat(os.fstat(descriptor), expected)
    except OSError:  # it was closed
        return False


def _open(stream: TextIO, descriptor: int) -> TextIO:
    """The stream; if it was closed, a new one that writes to the descriptor."""
    if not getattr(stream, "closed", False):
        return stream
    try:
        return open(descriptor, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    except OSError:
        return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123


class StoppedError(KeyboardInterrupt):
    """The block of `stopped_by_signals` has received a signal."""


def is_stop(error: BaseException) -> bool:
    """Whether an exception from a call of a backend must end the run."""
    return issubclass(type(error), StoppedError)  # isinstance would call __class__, which may be anyone's


@contextlib.contextmanager
def user_told_apart() -> Iterator[None]:
    """A context for a call of a backend. In it the user's Ctrl-C raises `StoppedError`, which nothing else does.

    If the backend swallows the exception, it is raised at the end of the block. Afterwards SIGINT has its earlier handler,
    even if the backend changed it.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stopper(received))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if received:
        raise StoppedError


def _stopper(received: list[int]) -> Callable[[int, object], None]:
    """A signal handler that stores the signal's number and raises `StoppedError`."""

    def stop(number: int, _frame: object) -> None:
        received.append(number)
        raise StoppedError

    return stop


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[list[int]]:
    """Let SIGINT and SIGTERM end the block; the list then has the signal's number.

    A backend may swallow the exception, so the block must check the list after each call of a backend.
    """
    stopped: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return

    stop = _stopper(stopped)
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    except StoppedError:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
