"""The six outcomes of a case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from conformance.case import Array, Case

ACCEPTED = "accepted, though "
"""How the message of a result begins where the backend answered a case in which an error is due."""


class Outcome(str, Enum):
    """What came of a case. `unsupported` and `crashed` are never counted as passed.

    A case is `departed` if it fails and its rule is weaker than those that the run insists on: see `Basis`.
    """

    PASSED = "passed"
    FAILED = "failed"
    CRASHED = "crashed"
    DEPARTED = "departed"
    UNSUPPORTED = "unsupported"
    EXPECTED_FAILURE = "expected_failure"

    @property
    def is_bad(self) -> bool:
        """Whether the suite fails with it."""
        return self in (Outcome.FAILED, Outcome.CRASHED)


@dataclass(frozen=True, slots=True)
class Difference:
    """One element, or one whole output where `index` is None, beside what was expected of it.

    error, allowed: None where the two cannot be subtracted: shapes, types, NaN.
    """

    output: str
    index: tuple[int, ...] | None
    expected: str
    got: str
    error: float | None = None
    allowed: float | None = None

    def __str__(self) -> str:
        where = self.output if self.index is None else f"{self.output}{list(self.index)}"
        beyond = "" if self.error is None else f", off by {self.error:.3g} where {self.allowed:.3g} is allowed"
        return f"{where}: expected {self.expected}, got {self.got}{beyond}"


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one case.

    message: why it is not `passed`; empty where it is.
    worst: of a case whose values were compared, the element that uses most of what it is allowed, or what is wrong with
        a whole output.
    seconds: time that the backend took.
    outputs: what the backend answered where that did not pass, by name; those that are too large to keep are left out.
    """

    case: Case
    outcome: Outcome
    message: str = ""
    worst: Difference | None = None
    seconds: float = 0.0
    outputs: Mapping[str, Array] = field(default_factory=dict, compare=False)
