# SPDX-License-Identifier: MIT OR Apache-2.0
"""The suite's part of each family of operators, in one folder for each family: `Operator.family` is its name.

A folder has a record `FAMILY`, which finds its parts, and these files:

    vectors/*.json   cases with published or derived numbers (`conformance.cases.printed`)
    refusals.json    what the operators must refuse (`conformance.cases.refusals`)
    geometry.py      where the operators read their input, also for the drawings of `explain`
    bounds.py        how much an answer may differ
    random.py        random cases, and the perturbations by which rounding changes their inputs
    mutants.py       deliberately wrong implementations

The folder `upright` has what families with upright RoIs share. No family imports another one. A family by analogy
(`analogy.py`) has only a record and mutants.
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from conformance.case import Case
from conformance.error_terms import ErrorTerms, unit_roundoff
from conformance.formula import terms_of
from conformance.mutants.base import Mutant
from ortops.operators.asked import OPERATORS
from ortops.spec import Operator

if TYPE_CHECKING:
    from importlib.abc import Traversable

PARTS: Mapping[str, tuple[str, ...]] = {
    "bounds": ("error_terms",),
    "random": ("random_case", "work", "perturbed"),
    "mutants": ("MUTANTS",),
    "geometry": ("samples", "explanation"),
}
"""The modules of every family that is not by analogy, and the names in them.

    error_terms(case)             the terms of the error bounds of a valid case's outputs, by name
    random_case(draw, operator)   a random case for a fuzz campaign (`random_draw.DrawnCase`)
    work(case)                    an estimate of the number of samples that the reference computes for a valid case
    perturbed(case)               how rounding may change a valid case (`roundings.Perturbed`); None if it decides the result
    samples(case)                 the number of samples of a valid case in one channel; 0 without sampled RoIs
    explanation(case, worst)      the tables and the drawing of a valid case (`view.View`)
"""


class Family:
    """The record of a family. Its attributes are the names in `PARTS`, too.

    A part is loaded at its first use, because some parts need more packages than others.

    Args:
        package: the package of the family.
        elsewhere: the modules of parts that the family shares with others, by the names of `PARTS`.
    """

    like = ""
    """For a family by analogy, the name of the other family."""

    def __init__(self, package: str, **elsewhere: str) -> None:
        self.package, self.name = package, package.rpartition(".")[2]
        self.modules = {part: elsewhere.get(part, f"{package}.{part}") for part in PARTS}

    def __getattr__(self, name: str) -> Any:
        """A name of a part."""
        part = next((part for part, names in PARTS.items() if name in names), None)
        if part not in self.modules:
            raise AttributeError(name)
        return getattr(importlib.import_module(self.modules[part]), name)

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

    @property
    def mutants(self) -> Mapping[str, Mutant]:
        """Implementations with one mistake each, by name."""
        return self.MUTANTS  # type: ignore[no-any-return]

    def cases_like(self, cases: Iterable[Case]) -> Iterator[Case]:
        """Its cases that follow from cases of other families."""
        del cases
        return iter(())


@functools.cache
def family_of(operator: Operator) -> Family:
    """The family of an operator.

    Raises:
        ModuleNotFoundError: the family has no package here.
    """
    record: Family = importlib.import_module(f"{__name__}.{operator.family}").FAMILY
    return record


@functools.cache
def families() -> tuple[Family, ...]:
    """All families with a folder here, in the order of their operators. A test finds families without one."""
    names = dict.fromkeys(operator.family for operator in OPERATORS)
    known = {name for name in names if find_spec(f"{__name__}.{name}")}
    return tuple(dict.fromkeys(family_of(operator) for operator in OPERATORS if operator.family in known))


def error_terms(case: Case) -> dict[str, ErrorTerms]:
    """The terms of the error bounds of a valid case's outputs, by name."""
    if case.formula is not None:
        rounding = unit_roundoff(case.compute_dtype)
        return {name: terms_of(case.formula.in_float, name, rounding) for name in case.outputs}
    return family_of(case.definition).error_terms(case)  # type: ignore[no-any-return]


@functools.cache
def all_mutants() -> tuple[Mutant, ...]:
    """The mutants of all families."""
    return tuple(mutant for family in families() for mutant in family.mutants.values())
