"""The suite's part of each family of operators, in one folder for each family: `Operator.family` is its name.

A folder has a record `FAMILY`, which names its parts, and these files:

    vectors/*.json   cases with published or derived numbers (`conformance.cases.printed`)
    refusals.json    what the operators must refuse (`conformance.cases.refusals`)
    geometry.py      where the operators read their input, and `samples` if they sample RoIs
    bounds.py        how much an answer may differ
    random.py        random cases, and whether rounding decides their results
    mutants.py       deliberately wrong implementations
    drawing.py       what `explain` shows

The folder `upright` has what families with upright RoIs share. No family imports another one. A family by analogy
(`analogy.py`) has only a record and mutants.
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import resources
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from conformance.case import Array, Case
from conformance.error_bounds import compute_dtype, unit_roundoff
from conformance.error_terms import ErrorTerms
from ortops.operators import OPERATORS
from ortops.spec import AttributeValue, Operator

if TYPE_CHECKING:
    from importlib.abc import Traversable

    # The modules of a family import this one.
    from conformance.explain.parts import Focus, View
    from conformance.families.random_draw import RandomDraw
    from conformance.mutants.base import Mutant

DrawnCase = tuple[dict[str, AttributeValue], dict[str, Array], tuple[str, ...]]
"""The attributes, the inputs (float64 or integer, by name) and the names of the outputs of a random case."""

PARTS: Mapping[str, tuple[str, ...]] = {
    "bounds": ("error_terms",),
    "random": ("random_case", "work", "is_well_posed"),
    "mutants": ("MUTANTS",),
    "drawing": ("explanation",),
    "geometry": (),
}
"""The modules of every family that is not by analogy, and the names in them."""


class Family:
    """The record of a family. A part is loaded at its first use, because some parts need more packages than others.

    Args:
        package: the package of the family.
        elsewhere: the modules of parts that the family shares with others, by the names of `PARTS`.
    """

    like = ""
    """For a family by analogy, the name of the other family."""

    def __init__(self, package: str, **elsewhere: str) -> None:
        self.package, self.name = package, package.rpartition(".")[2]
        self.modules = {part: elsewhere.get(part, f"{package}.{part}") for part in PARTS}

    @property
    def folder(self) -> Traversable:
        """The folder with the family's JSON files."""
        return resources.files(self.package)

    @property
    def vectors(self) -> list[Traversable]:
        """The files with printed numbers."""
        folder = self.folder / "vectors"
        return list(folder.iterdir()) if folder.is_dir() else []

    @property
    def refusals(self) -> dict[str, Any]:
        """The content of `refusals.json`; empty without the file."""
        file = self.folder / "refusals.json"
        return dict(json.loads(file.read_text("utf-8"))) if file.is_file() else {}

    def _part(self, name: str) -> Any:
        return importlib.import_module(self.modules[name])

    def cases_like(self, cases: Iterable[Case]) -> Iterator[Case]:
        """Its cases that follow from cases of other families."""
        del cases
        return iter(())

    def samples(self, case: Case) -> float:
        """The number of samples of a valid case in one channel; 0 for operators that do not sample RoIs."""
        found = getattr(self._part("geometry"), "samples", None)
        return float(found(case)) if found else 0.0

    def error_terms(self, case: Case) -> dict[str, ErrorTerms]:
        """The terms of the error bounds of a valid case's outputs, by name."""
        return self._part("bounds").error_terms(case)  # type: ignore[no-any-return]

    def random_case(self, draw: RandomDraw, operator: Operator) -> DrawnCase:
        """A random case for a fuzz campaign."""
        return self._part("random").random_case(draw, operator)  # type: ignore[no-any-return]

    def work(self, case: Case) -> float:
        """An estimate of the number of samples that the reference computes for a valid case."""
        return self._part("random").work(case)  # type: ignore[no-any-return]

    def is_well_posed(self, case: Case, oracle: Callable[[Case], Any]) -> bool:
        """Whether a valid case's result does not depend on how a number is rounded. The oracle is the reference."""
        return self._part("random").is_well_posed(case, oracle)  # type: ignore[no-any-return]

    @property
    def mutants(self) -> Mapping[str, Mutant]:
        """Implementations with one mistake each, by name."""
        return self._part("mutants").MUTANTS  # type: ignore[no-any-return]

    def explanation(self, case: Case, focus: Focus) -> View:
        """The tables and the drawing of a valid case."""
        return self._part("drawing").explanation(case, focus)  # type: ignore[no-any-return]


@functools.cache
def family_of(operator: Operator) -> Family:
    """The family of an operator.

    Raises:
        ModuleNotFoundError: the family has no package here.
    """
    found: Family = importlib.import_module(f"{__name__}.{operator.family}").FAMILY
    return found


@functools.cache
def families() -> tuple[Family, ...]:
    """All families with a folder here, in the order of their operators. A test finds families without one."""
    names = dict.fromkeys(operator.family for operator in OPERATORS)
    known = {name for name in names if find_spec(f"{__name__}.{name}")}
    return tuple(dict.fromkeys(family_of(operator) for operator in OPERATORS if operator.family in known))


def error_terms(case: Case) -> dict[str, ErrorTerms]:
    """The terms of the error bounds of a valid case's outputs, by name."""
    if case.formula is not None:
        rounding = unit_roundoff(compute_dtype(case))
        return {name: case.formula.error_terms(name, rounding) for name in case.outputs}
    return family_of(case.definition).error_terms(case)


@functools.cache
def all_mutants() -> tuple[Mutant, ...]:
    """The mutants of all families."""
    return tuple(mutant for family in families() for mutant in family.mutants.values())
