"""What the suite knows of each family of operators beyond its cases: a module here for each, with the functions of `Family`.

`Operator.family` names the module, here as in `ortops.reference` and `ortops.kernels`. The wrong implementations of a family
are `conformance.wrong.<family>`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, cast

from conformance.case import Array, Case
from ortops.spec import AttributeValue, Operator

if TYPE_CHECKING:
    # Those that ask a family import this module.
    from conformance.explain.explanation import Compared, Explanation
    from conformance.fuzz.draw import Draw
    from conformance.growth import Growth
    from conformance.run import AnswerFunction

Drawn = tuple[dict[str, AttributeValue], dict[str, Array], tuple[str, ...]]
"""The attributes, the inputs in float64 and integers, and the outputs of a random case."""


class Family(Protocol):
    """The functions of a module."""

    @staticmethod
    def growth(case: Case) -> dict[str, Growth]:
        """How errors grow into the outputs of a right case, by their names."""
        ...

    @staticmethod
    def samples(case: Case) -> float:
        """The samples that a right case asks for in one channel; 0 of an operator that takes none."""
        ...

    @staticmethod
    def random_case(draw: Draw, operator: Operator) -> Drawn:
        """A random case for the fuzz campaign."""
        ...

    @staticmethod
    def work(case: Case) -> float:
        """About as many samples as the reference computes for a right case."""
        ...

    @staticmethod
    def is_settled(case: Case, oracle: AnswerFunction) -> bool:
        """Whether a right case has one right answer, and not several of which the last bit of a number decides."""
        ...

    @staticmethod
    def explanation(case: Case, facts: Mapping[str, str], compared: Compared, roi: int | None) -> Explanation:
        """The drawings and tables of a right case.

        Args:
            case: the case.
            facts: lines under its id, by heading.
            compared: what is expected beside what came of it.
            roi: the number of the RoI to draw; None for the one with the worst element, or else the first.

        Raises:
            ValueError: the case has no RoI of this number.
        """
        ...


def family_of(operator: Operator) -> Family:
    """The module of an operator's family.

    Raises:
        ModuleNotFoundError: there is none.
    """
    return cast(Family, importlib.import_module(f"{__name__}.{operator.family}"))
