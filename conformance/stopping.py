"""A run that the user stops by a signal, told apart from a backend that raises KeyboardInterrupt itself."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


class StoppedError(KeyboardInterrupt):
    """A signal that the block of `stopped_by_signals` has received."""


def is_stop(error: BaseException) -> bool:
    """Whether an exception that a call of a backend raised has to end the run."""
    return issubclass(type(error), StoppedError)  # isinstance would call __class__, which may be anyone's


@contextlib.contextmanager
def user_told_apart() -> Iterator[None]:
    """A context for a call of a backend in which the user's Ctrl-C raises `StoppedError`, and only that.

    It does so at the end of the block if the backend has swallowed the exception. SIGINT has its handler again afterwards,
    whatever the backend did.
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
    """A handler of signals that notes the signal's number and raises `StoppedError`."""

    def stop(number: int, _frame: object) -> None:
        received.append(number)
        raise StoppedError

    return stop


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[list[int]]:
    """Let SIGINT and SIGTERM end the block; the list then has the signal's number.

    A backend may swallow the exception, so the block has to look at the list after each call of one.
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
