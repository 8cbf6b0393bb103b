"""The outcomes of a call that a signal may interrupt, and which of them are right."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from conformance.case import Array

from .subject import Subject

RIGHT = "right"
RAISED = "raised"
"""The call raised the exception of the signal's handler, or RecursionError in the program recursion."""
INTERRUPTED = "interrupted"
"""The call raised ONNX Runtime's error that the operator was interrupted."""
LOST = "lost"
"""A handler raised an exception, and the call did not."""
WRONG, MISSING = "wrong", "missing"
NOT_A_NUMBER = "NaN"
"""All elements of the output are NaN, or it has none."""


MAKE_SESSIONS = ("storm-create", "recursion", "cold-compile")
"""The programs in which a signal may arrive while a session is made."""


def allowed(subject: Subject, program: str) -> Collection[str]:
    """The outcomes of a program that are right for a kind of session.

    A session of our class raises the handler's exception. A plain session raises ONNX Runtime's error, and ONNX Runtime
    ignores errors of shape inference while it makes a session. With the Python operators of onnxruntime-extensions there is
    no such error: a call that fails returns NaN or an empty output.
    """
    if subject.session == "ours":
        return {RIGHT, RAISED}
    if subject.engine == "pyop":
        return {RIGHT, RAISED, NOT_A_NUMBER}
    return {RIGHT, RAISED, INTERRUPTED} | ({LOST} if program in MAKE_SESSIONS else set())


def of_answer(answer: Any, expected: Array) -> str:
    """The outcome of a run that returned, by its only output."""
    if answer is None:
        return MISSING
    # Not np.array_equal, which returns False if a signal handler raises an exception in it.
    if answer.shape == expected.shape and answer.tobytes() == expected.tobytes():
        return RIGHT
    return NOT_A_NUMBER if np.isnan(answer).all() else WRONG


def of_error(error: BaseException, awaited: type[BaseException]) -> str:
    """The outcome of a call that raised an exception."""
    if isinstance(error, awaited):
        return RAISED
    text = " ".join(str(error).split())
    return INTERRUPTED if "interrupted" in text else f"other: {type(error).__name__}: {text[-160:]}"
