# SPDX-License-Identifier: MIT OR Apache-2.0
"""The six outcomes of a case, and the reasons why a case did not pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from conformance.case import Array, Basis, Level, group_of


class Reason(StrEnum):
    """Why a case did not pass.

    The first ones are what is wrong with an output: a wrong number, NaN or infinity instead of a number, another value where
    NaN or infinity is expected, the element type, the shape, or that it is missing. Then the backend gave more outputs, a
    valid case was refused or an invalid one accepted, the caller's arrays were written to, an operator has no kernel, or a
    case passed although the list of expected failures has it. A case has crashed because it took too much time or memory, or
    ended the process.
    """

    NUMBER = "number"
    NAN = "nan"
    INFINITY = "infinity"
    SPECIAL = "special"
    TYPE = "type"
    SHAPE = "shape"
    NO_OUTPUT = "no_output"
    EXTRA_OUTPUT = "extra_output"
    REFUSED = "refused"
    ACCEPTED = "accepted"
    WROTE = "wrote"
    NO_KERNEL = "no_kernel"
    LISTED = "listed"
    TIME = "time"
    MEMORY = "memory"
    ENDED = "ended"


WRONG_OUTPUT = {
    Reason.NUMBER: "wrong number",
    Reason.NAN: "NaN instead of a number",
    Reason.INFINITY: "infinity instead of a number",
    Reason.SPECIAL: "wrong output where NaN or infinity is expected",
    Reason.TYPE: "wrong element type",
    Reason.SHAPE: "wrong shape",
    Reason.NO_OUTPUT: "missing output",
}
"""What is wrong with an output, in words."""


class Outcome(StrEnum):
    """The outcome of a case. `unsupported` and `crashed` are never counted as passed.

    A case is `departed` if it fails and the run's `Level` does not ask for rules of its `Basis`.
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
    reason: what is wrong if the difference is larger than allowed.
    call: words for an earlier call of a session, or nothing.
    """

    output: str
    index: tuple[int, ...] | None
    expected: str
    got: str
    error: float | None = None
    allowed: float | None = None
    reason: Reason = Reason.NUMBER
    call: str = ""

    def __str__(self) -> str:
        where = self.output if self.index is None else f"{self.output}{list(self.index)}"
        beyond = "" if self.error is None else f", off by {self.error:.3g} where {self.allowed:.3g} is allowed"
        return f"{where}{self.call}: expected {self.expected}, got {self.got}{beyond}"


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one case, and its entry in a report.

    id: that of the case.
    message: the reason in words if the case did not pass, else empty.
    worst: the element with the largest ratio of error to tolerance, or the output with a wrong shape or type; None if no
        values were compared. Of a result that was read from a file, only `error` and `allowed` are known.
    seconds: the time that the backend took.
    outputs: if the case did not pass, the backend's small outputs by name.
    reason: None if the case passed or is unsupported, or if an old report does not have the reason.
    basis: the case's; None if an old report does not have it.
    """

    id: str
    outcome: Outcome
    message: str = ""
    worst: Difference | None = field(default=None, compare=False)
    seconds: float = field(default=0.0, compare=False)
    outputs: Mapping[str, Array] = field(default_factory=dict, compare=False)
    reason: Reason | None = None
    basis: Basis | None = None

    @property
    def group(self) -> str:
        """The row of a report that counts the case."""
        return group_of(self.id)

    @property
    def wrong_output(self) -> str:
        """What is wrong with an output, in words without the element; empty if the case did not pass for another reason."""
        if self.reason is Reason.TYPE:
            expected, _, got = self.message.partition(": expected type ")[2].partition(", got type ")
            return f"{WRONG_OUTPUT[self.reason]}, such as {got} instead of {expected}"
        return WRONG_OUTPUT.get(self.reason, "") if self.reason else ""


def at_level(result: Result, level: Level) -> Result:
    """The result with the outcome that the level gives it: failed or departed.

    A node that writes to its caller's arrays fails at any level, and so does a case that is listed although it passes.
    """
    always = Reason.WROTE, Reason.LISTED
    if result.outcome not in (Outcome.FAILED, Outcome.DEPARTED) or result.reason in always or result.basis is None:
        return result
    return replace(result, outcome=Outcome.FAILED if level.asks(result.basis) else Outcome.DEPARTED)
