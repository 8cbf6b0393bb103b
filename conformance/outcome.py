"""The six outcomes of a case."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from conformance.case import Array, Case

ACCEPTED = "accepted, though "
"""The start of a result's message if the backend accepted a case that expects an error."""

WRITTEN = "the backend has written to "
"""The start of a result's message if the backend changed its inputs or an earlier answer."""

MISSING = "no implementation: "
"""The start of a result's message if the runtime lacks an operator that it should have."""

LISTED = "passed, but is listed as an expected failure: "
"""The start of a result's message if a case passed although the list of expected failures has it."""


WRONG_TYPE = "wrong element type"
"""The start of `Result.wrong_output` if an output's element type is wrong."""

_DIFFERENCE = re.compile(r".*?: expected (?P<expected>.*?), got (?P<got>.*?)(?P<size>, off by .*)?", re.DOTALL)
"""The form of a `Difference`."""


class Outcome(StrEnum):
    """The outcome of a case. `unsupported` and `crashed` are never counted as passed.

    A case is `departed` if it fails and its `Basis` is weaker than the run's `--strict`.
    """

    PASSED = "passed"
    FAILED = "failed"
    CRASHED = "crashed"
    DEPARTED = "departed"
    UNSUPPORTED = "unsupported"
    EXPECTED_FAILURE = "expected_failure"

    @property
    def is_bad(self) -> bool:
        """Whether it fails the run."""
        return self in (Outcome.FAILED, Outcome.CRASHED)


@dataclass(frozen=True, slots=True)
class Difference:
    """An element of an output and its expected value, or a whole output if `index` is None.

    error, allowed: None if the difference has no size: a wrong shape or type, or NaN.
    call: words for an earlier call of a session, or nothing.
    """

    output: str
    index: tuple[int, ...] | None
    expected: str
    got: str
    error: float | None = None
    allowed: float | None = None
    call: str = ""

    def __str__(self) -> str:
        where = self.output if self.index is None else f"{self.output}{list(self.index)}"
        beyond = "" if self.error is None else f", off by {self.error:.3g} where {self.allowed:.3g} is allowed"
        return f"{where}{self.call}: expected {self.expected}, got {self.got}{beyond}"


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one case.

    message: the reason if the case did not pass, else empty.
    worst: the element with the largest ratio of error to tolerance, or the output with a wrong shape or type; None if no
        values were compared.
    seconds: the time that the backend took.
    outputs: if the case did not pass, the backend's small outputs by name.
    """

    case: Case
    outcome: Outcome
    message: str = ""
    worst: Difference | None = None
    seconds: float = 0.0
    outputs: Mapping[str, Array] = field(default_factory=dict, compare=False)

    @property
    def wrong_output(self) -> str:
        """What is wrong with an output of a failed case, without the element; empty if the case failed in another way.

        It is read from the message, because a report in JSON has no more.
        """
        found = _DIFFERENCE.fullmatch(self.message) if self.message.startswith(self.case.outputs) else None
        if found is None:
            return ""
        expected, got = found["expected"], found["got"]
        if expected.startswith("type "):
            return f"{WRONG_TYPE}, such as {got.removeprefix('type ')} instead of {expected.removeprefix('type ')}"
        if expected.startswith("shape "):
            return "wrong shape" if got.startswith("shape ") else "missing output"
        if found["size"]:
            return "wrong number"
        if expected.lstrip("-") in ("nan", "inf"):
            return "wrong output where NaN or infinity is expected"
        return f"{'NaN' if got == 'nan' else 'infinity'} instead of a number"

    @property
    def has_written(self) -> bool:
        """Whether the case failed because the backend changed arrays that belong to its caller."""
        return self.message.startswith(WRITTEN)
