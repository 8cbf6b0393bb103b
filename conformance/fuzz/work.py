"""What a process does for a campaign: judge the cases of a range, or make a case that fails small."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from conformance.case import Case
from conformance.fuzz.check import Failure, Kind, check
from conformance.fuzz.generate import generate
from conformance.fuzz.shrink import shrink
from conformance.run import Asker

TIME_LIMIT = 60.0
"""Seconds that a backend may take for a case: its first may compile, on a machine that is busy with others."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Which cases there are, and who is asked.

    operators: names; empty for all.
    """

    backend: str
    seed: int
    operators: tuple[str, ...] = ()

    def case(self, number: int) -> Case:
        """The case of this number."""
        return generate(self.seed, number, self.operators)


@dataclass(frozen=True, slots=True)
class Found:
    """A case that fails, by its number alone: the plan makes it again.

    signature: its failure's rough one.
    ends: whether it ends the process that asks the reference. It is not asked again, then.
    """

    number: int
    kind: Kind
    message: str
    signature: tuple[str, ...]
    ends: bool = False

    @staticmethod
    def of(number: int, failure: Failure, *, ends: bool = False) -> Found:
        """What remains of a failure."""
        return Found(number, failure.kind, failure.message, failure.rough_signature, ends)

    @staticmethod
    def end(plan: Plan, number: int, text: str) -> Found:
        """Of a case that ended who asked the reference; `text` says how."""
        return Found.of(number, Failure(plan.case(number), "reference", text), ends=True)

    def as_it_was(self, plan: Plan) -> Failure:
        """The failure of the case that was found."""
        return Failure(plan.case(self.number), self.kind, self.message)


@dataclass(frozen=True, slots=True)
class Look:
    """To judge the cases from `first` to `stop` - 1: at least one, and no other once so many seconds are over."""

    plan: Plan
    first: int
    stop: int
    seconds: float

    def answers(self, asker: Asker) -> Iterator[str | Found]:
        """What came of each case."""
        ends = time.monotonic() + self.seconds
        for number in range(self.first, self.stop):
            outcome = check(self.plan.case(number), asker)
            yield Found.of(number, outcome) if isinstance(outcome, Failure) else outcome
            if time.monotonic() >= ends:
                break


@dataclass(frozen=True, slots=True)
class Shrink:
    """To make a case small, as far as that goes in so many seconds."""

    plan: Plan
    found: Found
    seconds: float

    def answers(self, asker: Asker) -> Iterator[Failure]:
        """The failure of the small case."""
        ends = time.monotonic() + self.seconds
        again = check(self.plan.case(self.found.number), asker)
        if isinstance(again, Failure):
            yield shrink(again, lambda case: "no time" if time.monotonic() >= ends else check(case, asker))
        else:
            yield self.found.as_it_was(self.plan)
