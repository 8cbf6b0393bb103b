"""The outcomes of a call that a signal may interrupt, and which of them are right."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from conformance.case import Array

from .subject import Subject

RIGHT = "right"
RAISED = "raised"
"""The call raised the exception of the signal's handler, or RecursionError in the program that tests recursion."""
INTERRUPTED = "interrupted"
"""The call raised an error of ONNX Runtime that says that the operator was interrupted."""
LOST = "lost"
"""A handler raised, but the call did not."""
WRONG, MISSING = "wrong", "missing"
NOT_A_NUMBER = "NaN"
"""All elements of the output are NaN, or it has none."""


MAKE_SESSIONS = ("storm-create", "recursion", "cold-compile")
"""Programs in which a signal may come while a session is created."""


def allowed(subject: Subject, program: str) -> Collection[str]:
    """The outcomes of a program that are right for a subject.

    ortops.InferenceSession raises the handler's exception. A plain session can only report it in the text of ONNX Runtime's
    error, and ONNX Runtime ignores errors of shape inference when it creates a session. The Python operators of
    onnxruntime-extensions report no text: a failed call returns NaN or an empty output.
    """
    if subject.session == "ours":
        return {RIGHT, RAISED}
    if subject.engine == "pyop":
        return {RIGHT, RAISED, NOT_A_NUMBER}
    return {RIGHT, RAISED, INTERRUPTED} | ({LOST} if program in MAKE_SESSIONS else set())


def of_answer(answer: Any, expected: Array) -> str:
    """The outcome of a run that returned its only output."""
    if answer is None:
        return MISSING
    # Not np.array_equal, which returns False for any exception inside it, also one from a signal handler.
    if answer.shape == expected.shape and answer.tobytes() == expected.tobytes():
        return RIGHT
    return NOT_A_NUMBER if np.isnan(answer).all() else WRONG


def of_error(error: BaseException, awaited: type[BaseException]) -> str:
    """The outcome of a call that raised an error."""
    if isinstance(error, awaited):
        return RAISED
    text = " ".join(str(error).split())
    return INTERRUPTED if "interrupted" in text else f"other: {type(error).__name__}: {text[-160:]}"
