"""What comes of a call that a signal may interrupt, in words, and which of them are right."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from conformance.case import Array

from .subject import Subject

RIGHT = "right"
RAISED = "raised"
"""What the signal's handler raised, or RecursionError where the depth of calls is what is tried."""
INTERRUPTED = "interrupted"
"""An error of ONNX Runtime that says that the operator was interrupted."""
LOST = "lost"
"""A handler raised, and nothing came of it."""
WRONG, MISSING = "wrong", "missing"
NOT_A_NUMBER = "NaN"
"""An output without numbers: all are NaN, or there is none."""


MAKE_SESSIONS = ("storm-create", "recursion", "cold-compile")
"""Programs in which a signal may come while a session is made."""


def allowed(subject: Subject, program: str) -> Collection[str]:
    """The outcomes of a program that are right for a kind of session.

    Our class raises what the handler did. A plain one has no place for it but the text of ONNX Runtime's error, and what
    shape inference reports while a session is made ONNX Runtime drops. With the Python operators of onnxruntime-extensions
    there is no such text: a call that fails gives NaN, or nothing at all.
    """
    if subject.session == "ours":
        return {RIGHT, RAISED}
    if subject.engine == "pyop":
        return {RIGHT, RAISED, NOT_A_NUMBER}
    return {RIGHT, RAISED, INTERRUPTED} | ({LOST} if program in MAKE_SESSIONS else set())


def of_answer(answer: Any, expected: Array) -> str:
    """The outcome of a run by its only output."""
    if answer is None:
        return MISSING
    # np.array_equal takes whatever is raised in it for a difference, what a signal handler raises, too.
    if answer.shape == expected.shape and answer.tobytes() == expected.tobytes():
        return RIGHT
    return NOT_A_NUMBER if np.isnan(answer).all() else WRONG


def of_error(error: BaseException, awaited: type[BaseException]) -> str:
    """The outcome of a call that raises."""
    if isinstance(error, awaited):
        return RAISED
    text = " ".join(str(error).split())
    return INTERRUPTED if "interrupted" in text else f"other: {type(error).__name__}: {text[-160:]}"
