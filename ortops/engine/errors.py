"""Raises the exceptions of operators at the end of a session's call, since ONNX Runtime's errors only tell of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ortops.jit import exceptions

if TYPE_CHECKING:
    from ortops.engine.pyop import RunErrors

_thread = threading.local()
_keeps_causes = False


def keep_causes() -> None:
    """From now on let calls of sessions keep causes: there are operators of users, whose errors have some."""
    global _keeps_causes  # noqa: PLW0603 - what it costs is saved as long as there are none
    _keeps_causes = True


def keep_cause(error: BaseException) -> None:
    """Keep the cause of an error that becomes a status, for the call of a session that runs on this thread, if any."""
    causes = getattr(_thread, "causes", None)
    if causes is not None and error.__cause__ is not None:
        causes.append(error.__cause__)


class RaiseOperatorErrors:
    """A context for calls of ONNX Runtime that raises the exception of an operator at its end.

    ONNX Runtime gets only a status with the text "interrupted" for an exception that is no answer of an operator, such as
    KeyboardInterrupt, which is raised in place of ONNX Runtime's error. An exception in a user's function becomes the cause
    of that error. With the pyop engine ONNX Runtime gets no error at all.

    Args:
        run_errors: begins to collect the errors of the run with the pyop engine.
    """

    def __init__(self, run_errors: Callable[[], RunErrors] | None) -> None:
        self._run_errors = run_errors

    def __enter__(self) -> None:
        """Drop an exception that an earlier session of onnxruntime's own class has left on this thread."""
        exceptions.take()
        self._keeps_causes = _keeps_causes
        if _keeps_causes:
            self._outer, _thread.causes = getattr(_thread, "causes", None), []
        self._errors = self._run_errors() if self._run_errors else None

    def __exit__(self, _: object, raised: BaseException | None, __: object) -> None:
        """Raise the first exception, in place of ONNX Runtime's error."""
        causes: list[BaseException] = []
        if self._keeps_causes:
            causes, _thread.causes = _thread.causes, self._outer
        error = exceptions.take()
        if self._errors is not None:
            error = error or self._errors.end()
        if error is not None:
            raise error from error.__cause__
        if raised is not None and causes:
            raised.__cause__ = causes[0]
