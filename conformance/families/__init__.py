"""Random cases of each family of operators, and whether rounding decides their results: a module for each, for the fuzzer.

`Operator.family` is the name of the module, as in `ortops.reference`. The mutants of a family are in
`conformance.mutants.<family>`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol, cast

from conformance.case import Array, Case
from ortops.spec import AttributeValue, Operator

if TYPE_CHECKING:
    # These modules import this one.
    from conformance.fuzz.random_draw import RandomDraw
    from conformance.run import AnswerFunction

DrawnCase = tuple[dict[str, AttributeValue], dict[str, Array], tuple[str, ...]]
"""The attributes, the inputs (float64 or integer, by name) and the names of the outputs of a random case."""


class Family(Protocol):
    """The functions of each module here. "Valid" cases are those that no runtime should refuse."""

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


def family_of(operator: Operator) -> Family:
    """The module of an operator's family.

    Raises:
        ModuleNotFoundError: the family has no module here.
    """
    return cast(Family, importlib.import_module(f"{__name__}.{operator.family}"))
