# SPDX-License-Identifier: MIT
"""Raises operators' exceptions at the end of a session's call, since ONNX Runtime's errors contain only their text."""

from __future__ import annotations

import itertools
import re
import threading
from contextlib import AbstractContextManager

from ortops import exceptions
from ortops.engine import shutdown

_MAX_KEPT = 100

_INTERRUPTED = ": interrupted by "
"""Part of the status of an operator that an exception interrupted (`ortops.native.ort.callbacks`)."""

_thread = threading.local()
_numbers = itertools.count(1)


def _call() -> _Call | None:
    """The innermost call on this thread that makes a session or runs one with users' operators."""
    return getattr(_thread, "call", None)


def is_inside_call() -> bool:
    """Whether this thread makes an `ortops.InferenceSession` or runs one with users' operators."""
    return _call() is not None


def keep_cause(error: BaseException) -> None:
    """Keep the cause of an error that becomes a status, for the session's call on this thread, if any."""
    call = _call()
    if call is not None and error.__cause__ is not None:
        call.causes.append(error.__cause__)


def session_in_the_making() -> SessionErrors | None:
    """The errors of the `ortops.InferenceSession` that this thread is making, if it has users' operators."""
    call = _call()
    return call.session if call is not None and call.is_making else None


class SessionErrors:
    """The errors of users' operators in a session, on ONNX Runtime's own threads. Each belongs to a call of the session.

    Such a thread (ORT_PARALLEL) does not know its call. So the error's status gets a number, and the call whose error has
    this number takes the error.
    """

    def __init__(self) -> None:
        self._calls: set[_Call] = set()
        self._kept: dict[int, tuple[BaseException, bool]] = {}

    def begin(self, call: _Call) -> None:
        """Number errors until the call ends."""
        self._calls.add(call)

    def keep(self, error: BaseException, *, leaves: bool) -> str:
        """Keep an operator's error, and return the text to append to its status.

        Args:
            error: the error.
            leaves: whether the call raises this error, and not ONNX Runtime's error with this error's cause.
        """
        if not self._calls:  # in run_async, for example, which would show users the number
            return ""
        number = next(_numbers)
        self._kept[number] = error, leaves
        for old in list(self._kept)[:-_MAX_KEPT]:
            self._kept.pop(old, None)
        return f" (error {number} of an operator)"

    def end(self, call: _Call, raised: BaseException | None) -> tuple[BaseException | None, bool]:
        """End a call, take the error whose number ONNX Runtime's error contains, and remove the number from the text."""
        kept = self._taken(raised) if raised is not None and self._kept else None
        self._calls.discard(call)
        if self._kept:
            # Drop errors that no call took, as when several nodes fail at once. A call that begins after the next line has
            # errors with larger numbers.
            number = next(_numbers)
            for old in [] if self._calls else [key for key in list(self._kept) if key < number]:
                self._kept.pop(old, None)
        return kept or (None, False)

    def _taken(self, raised: BaseException) -> tuple[BaseException, bool] | None:
        match = _NUMBER.search(_text_of(raised))
        kept = self._kept.pop(int(match[1]), None) if match else None
        if match and kept is not None:
            raised.args = (match.string[: match.start()] + match.string[match.end() :], *raised.args[1:])
        return kept


_NUMBER = re.compile(r" \(error (\d+) of an operator\)")


def calling(session: SessionErrors | None) -> AbstractContextManager[None]:
    """A context for a call that runs a session, which raises operators' exceptions at its end.

    For an exception that is not an operator's answer, such as KeyboardInterrupt, ONNX Runtime gets only a status with the
    text "interrupted", and the context raises the exception instead of ONNX Runtime's error. An exception in a user's
    function becomes the cause of ONNX Runtime's error. While the interpreter exits, the call does not begin.

    Args:
        session: the session's errors; None without users' operators, whose calls have nothing to do where none fails.
    """
    if shutdown.is_exiting:
        shutdown.wait()
    return _interruptions if session is None else _Call(session, is_making=False)


def making(session: SessionErrors | None) -> AbstractContextManager[None]:
    """As `calling`, for a call that makes a session, where ONNX Runtime ignores the statuses of shape inference."""
    if shutdown.is_exiting:
        shutdown.wait()
    return _Call(session, is_making=True)


class _Interruptions:
    """The context of a session's calls without users' operators, for all at once: it must cost little."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, raised: BaseException | None, __: object) -> None:
        if raised is not None:
            _raise_interruption(raised)


_interruptions = _Interruptions()


def _raise_interruption(raised: BaseException) -> None:
    """Raise the exception by which ONNX Runtime's error says that it was interrupted, instead of the error.

    An earlier onnxruntime.InferenceSession may have left an exception of its own on this thread.
    """
    error = exceptions.take()
    if error is not None and _INTERRUPTED in _text_of(raised):
        raise error from error.__cause__


def _text_of(raised: BaseException) -> str:
    """The text of ONNX Runtime's error, "" for other exceptions, whose ``__str__`` may be anything."""
    return raised.args[0] if raised.args and isinstance(raised.args[0], str) else ""


class _Call:
    """The context of a call that makes a session or runs one with users' operators.

    session: the session's errors; None without users' operators.
    is_making: whether the call makes the session.
    causes: the causes of errors on this thread.
    """

    def __init__(self, session: SessionErrors | None, *, is_making: bool) -> None:
        self.session, self.is_making = session, is_making
        self.causes: list[BaseException] = []

    def __enter__(self) -> None:
        if self.is_making:
            exceptions.take()  # which an earlier onnxruntime.InferenceSession has left on this thread
        if self.session is not None:
            self.session.begin(self)
        self._outer, _thread.call = _call(), self

    def __exit__(self, _: object, raised: BaseException | None, __: object) -> None:
        _thread.call = self._outer
        kept, leaves = self.session.end(self, raised) if self.session is not None else (None, False)
        if self.is_making and (error := exceptions.take()) is not None:
            raise error from error.__cause__
        if raised is None:
            return
        if kept is not None and leaves:
            raise kept from kept.__cause__
        _raise_interruption(raised)
        causes = self.causes if kept is None or kept.__cause__ is None else [kept.__cause__]
        if causes:
            raised.__cause__ = causes[0]
