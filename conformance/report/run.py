"""A finished run, and the counts that every format needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from conformance.outcome import Outcome, Result


@dataclass(frozen=True, slots=True)
class Run:
    """The results of a backend, in the order of the cases."""

    backend: str
    results: Sequence[Result]

    @property
    def summary(self) -> dict[Outcome, int]:
        """How many cases have each outcome."""
        return count(self.results)

    @property
    def families(self) -> dict[str, dict[Outcome, int]]:
        """The same for each family."""
        grouped: dict[str, list[Result]] = {}
        for result in self.results:
            grouped.setdefault(result.case.family, []).append(result)
        return {family: count(results) for family, results in grouped.items()}

    @property
    def bad(self) -> list[Result]:
        """The results with which the suite fails."""
        return [result for result in self.results if result.outcome.is_bad]


def count(results: Sequence[Result]) -> dict[Outcome, int]:
    """How many results have each outcome, zeros included."""
    outcomes = [result.outcome for result in results]
    return {outcome: outcomes.count(outcome) for outcome in Outcome}
