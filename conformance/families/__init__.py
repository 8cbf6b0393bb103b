"""The operator-specific code of the suite: one module for each family of operators, with the functions of `Family`.

`Operator.family` is the name of the module, as in `ortops.reference`. The mutants of a family are in
`conformance.mutants.<family>`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, cast

from conformance.case import Array, Case
from ortops.spec import AttributeValue, Operator

if TYPE_CHECKING:
    # These modules import this one.
    from conformance.error_bounds import ErrorTerms
    from conformance.explain.explanation import Comparison, Explanation
    from conformance.fuzz.random_draw import RandomDraw
    from conformance.run import AnswerFunction

DrawnCase = tuple[dict[str, AttributeValue], dict[str, Array], tuple[str, ...]]
"""The attributes, the inputs (float64 or integer, by name) and the names of the outputs of a random case."""


class Family(Protocol):
    """The functions of each module here. "Valid" cases are those that no runtime should refuse."""

    @staticmethod
    def error_terms(case: Case) -> dict[str, ErrorTerms]:
        """The terms of the error bounds of a valid case's outputs, by name."""
        ...

    @staticmethod
    def samples(case: Case) -> float:
        """The number of samples of a valid case in one channel; 0 for operators that do not sample RoIs."""
        ...

    @staticmethod
    def random_case(draw: RandomDraw, operator: Operator) -> DrawnCase:
        """A random case for a fuzz campaign."""
        ...

    @staticmethod
    def work(case: Case) -> float:
        """An estimate of the number of samples that the reference computes for a valid case."""
        ...

    @staticmethod
    def is_well_posed(case: Case, oracle: AnswerFunction) -> bool:
        """Whether the result of a valid case does not depend on how a number is rounded; the oracle is the reference."""
        ...

    @staticmethod
    def explanation(case: Case, facts: Mapping[str, str], compared: Comparison, roi: int | None) -> Explanation:
        """The drawings and tables that explain a valid case.

        Args:
            case: the case.
            facts: the lines under the case's id, by heading.
            compared: expected and actual outputs.
            roi: the number of the RoI to draw; None for the one with the worst element, or else the first.

        Raises:
            ValueError: the case has no RoI of this number.
        """
        ...


def family_of(operator: Operator) -> Family:
    """The module of an operator's family.

    Raises:
        ModuleNotFoundError: the family has no module here.
    """
    return cast(Family, importlib.import_module(f"{__name__}.{operator.family}"))
