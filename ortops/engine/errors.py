"""Raises operators' exceptions at the end of a session's call, since ONNX Runtime's errors contain only their text."""

from __future__ import annotations

import itertools
import re
import threading

from ortops.jit import exceptions

_MAX_KEPT = 100

_thread = threading.local()
_keeps_causes = False
_numbers = itertools.count(1)


def keep_causes() -> None:
    """Let sessions' calls keep causes of errors from now on, since users' operators exist, whose errors have causes."""
    global _keeps_causes  # noqa: PLW0603 - without users' operators, sessions save the cost
    _keeps_causes = True


def _call() -> RaiseOperatorErrors | None:
    """The innermost call of an `ortops.InferenceSession` that runs on this thread."""
    return getattr(_thread, "call", None)


def is_inside_call() -> bool:
    """Whether a call of an `ortops.InferenceSession` runs on this thread."""
    return _call() is not None


def keep_cause(error: BaseException) -> None:
    """Keep the cause of an error that becomes a status, for the session's call on this thread, if any."""
    call = _call()
    if call is not None and error.__cause__ is not None:
        call.causes.append(error.__cause__)


def session_in_the_making() -> SessionErrors | None:
    """The errors of the `ortops.InferenceSession` that this thread is making, if any."""
    call = _call()
    return call.session if call is not None and call.is_making else None


class SessionErrors:
    """The errors of a session's operators on ONNX Runtime's own threads, each of which belongs to a call of the session.

    Such a thread (ORT_PARALLEL) does not know its call. So the error's status gets a number, and the call whose error has
    this number takes the error.
    """

    def __init__(self) -> None:
        self._calls: set[RaiseOperatorErrors] = set()
        self._kept: dict[int, tuple[BaseException, bool]] = {}

    def begin(self, call: RaiseOperatorErrors) -> None:
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

    def end(self, call: RaiseOperatorErrors, raised: BaseException | None) -> tuple[BaseException | None, bool]:
        """End a call, take the error whose number ONNX Runtime's error contains, and remove the number from the text."""
        kept = self._taken(raised) if raised is not None and self._kept else None
        self._calls.discard(call)
        if self._kept:
            # Drop errors that no call took, as when several nodes fail at once. A call that begins after the next line has
            # errors with larger numbers.
            number = next(_numbers)
            for old in [] if self._calls else [one for one in list(self._kept) if one < number]:
                self._kept.pop(old, None)
        return kept or (None, False)

    def _taken(self, raised: BaseException) -> tuple[BaseException, bool] | None:
        text = raised.args[0] if raised.args else None
        found = _NUMBER.search(text) if isinstance(text, str) else None
        kept = self._kept.pop(int(found[1]), None) if found else None
        if found and kept is not None:
            raised.args = (found.string[: found.start()] + found.string[found.end() :], *raised.args[1:])
        return kept


_NUMBER = re.compile(r" \(error (\d+) of an operator\)")


class RaiseOperatorErrors:
    """A context for ONNX Runtime's calls that raises an operator's exception at its end.

    For an exception that is not an operator's answer, such as KeyboardInterrupt, ONNX Runtime gets only a status with the
    text "interrupted", and this context raises the exception instead of ONNX Runtime's error. An exception in a user's
    function becomes the cause of ONNX Runtime's error.

    Args:
        session: the session's errors.
        is_making: whether the call makes the session.
    """

    def __init__(self, session: SessionErrors, *, is_making: bool = False) -> None:
        self.session, self.is_making = session, is_making

    def __enter__(self) -> None:
        """Drop an exception that an earlier onnxruntime.InferenceSession has left on this thread."""
        exceptions.take()
        self._keeps_causes = _keeps_causes
        if _keeps_causes:
            self.causes: list[BaseException] = []
            self._outer, _thread.call = _call(), self
            self.session.begin(self)

    def __exit__(self, _: object, raised: BaseException | None, __: object) -> None:
        """Raise the first exception instead of ONNX Runtime's error."""
        error = exceptions.take()
        causes: list[BaseException] = []
        if self._keeps_causes:
            _thread.call, causes = self._outer, self.causes
            kept, leaves = self.session.end(self, raised)
            if kept is not None and leaves:
                error = error or kept
            elif kept is not None and kept.__cause__ is not None:
                causes.insert(0, kept.__cause__)
        if error is not None:
            raise error from error.__cause__
        if raised is not None and causes:
            raised.__cause__ = causes[0]
