"""What has happened so far, counted by many threads at once; and what is wrong with an answer."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass

import numpy as np

from conformance.case import Array

from .pool import Outputs, Problem

MOST_NOTED = 10
"""Faults whose words are kept, of each problem one of a kind; the others are counted."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with what came of a call.

    kind: as it is counted.
    problem: whose call it was.
    words: what came of it.
    """

    kind: str
    problem: str
    words: str


class Tally:
    """Counts.

    most_calls: after which no other is begun, or None.
    """

    def __init__(self, most_calls: int | None = None) -> None:
        self.calls = 0
        self.refusals = 0
        self.sessions = 0
        self.options = 0
        self.faults = Counter[str]()
        self.noted: dict[tuple[str, str], Fault] = {}
        self._most_calls = most_calls
        self._begun = 0
        self._lock = threading.Lock()

    def begin(self) -> bool:
        """Whether one more call may be made."""
        with self._lock:
            if self._most_calls is not None and self._begun >= self._most_calls:
                return False
            self._begun += 1
            return True

    @property
    def is_full(self) -> bool:
        """Whether no more calls may be made."""
        return self._begun == self._most_calls

    def make(self, sessions: int = 0, options: int = 0) -> None:
        """Count what is made, or refused."""
        with self._lock:
            self.sessions += sessions
            self.options += options

    def end(self, fault: Fault | None, *, refused: bool = False) -> None:
        """Count a call that has ended.

        Args:
            fault: what was wrong, or None where the call did what it should.
            refused: whether it was, rightly.
        """
        with self._lock:
            self.calls += 1
            self.refusals += refused
            if fault is not None:
                self.faults[fault.kind] += 1
                if len(self.noted) < MOST_NOTED:
                    self.noted.setdefault((fault.kind, fault.problem), fault)


def fault_of(problem: Problem, got: Outputs | Exception, errors: tuple[type[Exception], ...]) -> Fault | None:
    """What is wrong with what came of a call.

    Args:
        problem: that was asked.
        got: the outputs, or what was raised.
        errors: classes of which a refusal is.
    """

    def fault(kind: str, words: str) -> Fault:
        return Fault(kind, f"{problem.case.id}, {problem.case.operator}", words)

    if isinstance(got, Exception):
        words = f"{type(got).__name__}: {got}"
        if problem.expected is not None:
            return fault("unexpected error", words)
        if not isinstance(got, errors):
            return fault("refusal of another class", words)
        return None if problem.rule in str(got) else fault("refusal in other words", f"{words}; not {problem.rule!r}")
    if problem.expected is None:
        return fault("not refused", problem.rule)
    if set(got) != set(problem.expected):
        return fault("wrong answer", f"outputs {sorted(got)}, expected {sorted(problem.expected)}")
    for name, expected in problem.expected.items():
        if wrong := _difference(got[name], expected):
            return fault("wrong answer", f"{name}{wrong}")
    return None


def _difference(got: Array, expected: Array) -> str:
    """Where an output has other bits than expected, and which; or ""."""
    if got.dtype != expected.dtype or got.shape != expected.shape:
        return f" is {got.dtype}{list(got.shape)}, expected {expected.dtype}{list(expected.shape)}"
    if got.tobytes() == expected.tobytes():
        return ""
    first, second = (np.ascontiguousarray(array).view(np.uint8).reshape(array.size, -1) for array in (got, expected))
    wrong = np.flatnonzero(np.any(first != second, axis=1))
    at = tuple(map(int, np.unravel_index(wrong[0], got.shape)))
    return f"{list(at)} = {got[at]!r}, expected {expected[at]!r}; so are {len(wrong)} of {got.size}"
