"""Everything that was measured, for the reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from conformance.case import Case
from conformance.coverage.facts import decisive, grouped, needed
from conformance.coverage.measure import Catch
from conformance.coverage.reasons import Account, account
from conformance.coverage.values import Line, by_operator
from conformance.wrong import Family, Fault

OFFICIAL = "roi_align/official"
"""The family of ONNX's own vectors."""


@dataclass(frozen=True)
class Summary:
    """What the cases cover.

    catches: of every fault, in the order of the faults.
    """

    cases: tuple[Case, ...]
    catches: Sequence[Catch]

    @cached_property
    def values(self) -> dict[str, list[Line]]:
        """What the cases of each operator have."""
        return by_operator(self.cases)

    @cached_property
    def by_family(self) -> dict[Family, list[Catch]]:
        """The faults of each family."""
        return {family: [c for c in self.catches if c.fault.family is family] for family in Family}

    @cached_property
    def facts(self) -> list[str]:
        """All facts, in the suite's order."""
        return list(grouped(self.cases))

    @cached_property
    def needed(self) -> dict[str, list[Fault]]:
        """The facts without which a fault would not be caught by what comes before, each with those faults."""
        return needed({catch.fault: self._first_decisive(catch) for catch in self.catches})

    @cached_property
    def account(self) -> Account:
        """What is said of the others."""
        return account(self.facts, self.needed)

    @cached_property
    def caught_by_onnx(self) -> frozenset[Fault]:
        """Those that one of ONNX's own vectors catches."""
        official = of_onnx(self.cases)
        return frozenset(
            catch.fault
            for catch in self.catches
            if not set(catch.ids).isdisjoint(case.id for case in decisive(catch.fault, official))
        )

    @cached_property
    def uncaught(self) -> list[Fault]:
        """Faults that no case catches."""
        return [catch.fault for catch in self.catches if not catch.ids]

    @property
    def is_sound(self) -> bool:
        """Whether every fault is caught, every fact is needed or has a reason, and every reason is one of a fact."""
        return not (self.uncaught or self.account.unexplained or self.account.unused)

    def _first_decisive(self, catch: Catch) -> Case | None:
        caught = set(catch.ids)
        return next((case for case in decisive(catch.fault, self.cases) if case.id in caught), None)


def of_onnx(cases: tuple[Case, ...]) -> tuple[Case, ...]:
    """ONNX's own vectors among them."""
    return tuple(case for case in cases if case.family == OFFICIAL)


def has_vectors(fault: Fault) -> bool:
    """Whether ONNX has vectors of an operator that has the fault."""
    return fault.operators == OFFICIAL.partition("/")[0]
