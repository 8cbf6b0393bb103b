"""Distinguishes a user who stops the run by a signal from a backend that raises KeyboardInterrupt itself."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


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
