# SPDX-License-Identifier: MIT
"""A case that each mutant fails: `python tests/catching_cases.py [FAMILY ...]` writes it to the package.

It is a decisive case that a default run counts. A mutant that breaks only a rule of this project has a case of that rule.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator

from conformance.backends.external import OnnxBackend
from conformance.case import Basis, Case, scenario_of
from conformance.cases import collect
from conformance.export import CATCHING
from conformance.families import all_mutants, families, family_of
from conformance.mutants.base import Category, Mutant
from conformance.run import ask, judge
from docs.rules import lives, rule_of

FILE = CATCHING

HANDICAP = 4
"""How many cases of a kind are tried before those about what caught no mistake of the same category."""


@functools.cache
def recorded() -> dict[str, str]:
    """The id of the case of each mutant, by the mutant's name."""
    return dict(json.loads(FILE.read_text("utf-8")))


def failing(backend: object, cases: Iterable[Case]) -> Iterator[Case]:
    """The cases that a class with ONNX's backend interface fails, one by one.

    Raises:
        NameError: the text of a mutant has an undefined name, which would be taken for a refusal.
    """
    tried = OnnxBackend(backend)
    for case in cases:
        answer = ask(tried, case)
        if answer.text.startswith(("NameError", "UnboundLocalError")):
            raise NameError(f"{backend}: {answer.text}")
        if judge(case, answer).outcome.is_bad:
            yield case


def decisive(mutant: Mutant, cases: tuple[Case, ...]) -> list[Case]:
    """The cases that decide whether a scenario catches a mutant.

    For a mutant about element types these are all cases. For others they are the cases of one type, float if the scenario
    has it, because it would be chance if only half precision showed, say, a wrong border. For mutants about sizes they
    also include the cases at the limits of all types.
    """
    # The loops of a mutant take minutes for a large case.
    concerned = [case for case in cases if mutant.concerns(case.definition) and case.formula is None]
    if mutant.category is Category.TYPES:
        return concerned
    has_values = mutant.category is Category.SIZES
    return [case for case in concerned if _is_decisive(case) or (has_values and "/values/" in case.id)]


@functools.cache
def _is_decisive(case: Case) -> bool:
    # The element type of a refusal may be the very reason for it.
    chosen = "float" if scenario_of(case.id) in _of_float() else "double"
    return case.expects_error is not None or case.element_type == chosen


@functools.cache
def _of_float() -> set[str]:
    return {scenario_of(case.id) for case in collect() if not case.expects_error and case.element_type == "float"}


def candidates(mutant: Mutant, cases: tuple[Case, ...]) -> list[Case]:
    """Those of the cases that are decisive and that a default run counts, or of the one rule that the mutant breaks."""
    rule = lives().get(mutant.name)
    return [
        case
        for case in decisive(mutant, cases)
        if (rule_of(case) == rule if case.basis is Basis.OURS else rule is None)
    ]


@functools.cache
def _cost(case: Case) -> float:
    """About how long the reference takes for a case."""
    return 0 if case.expects_error else family_of(case.definition).work(case) + case.nbytes / 64


def _kind(id_: str) -> tuple[str, ...]:
    """What a case is about: its id without operator, element type and numbers."""
    return tuple(re.sub(r"\d+", "", scenario_of(id_)).split("/")[1:3])


def first_caught(mutant: Mutant, known: dict[str, str]) -> str | None:
    """The id of the first case that catches a mutant, None if none does. Small cases come before large ones.

    The case that caught it before comes first, then those like the ones that caught the same mistake in other families,
    and those about what caught the mistakes of the same category, then one of each kind.
    """
    caught = {other: known[other.name] for other in all_mutants() if known.get(other.name)}
    alike = {_kind(id_) for other, id_ in caught.items() if other.short_name == mutant.short_name}
    groups = {_kind(id_)[0] for other, id_ in caught.items() if other.category is mutant.category}
    met: Counter[tuple[str, ...]] = Counter()
    ranks = {}
    for case in sorted(candidates(mutant, collect()), key=_cost):
        kind = _kind(case.id)
        is_before = case.id == known.get(mutant.name)
        ranks[case] = (not is_before, kind not in alike, met[kind] + (kind[0] not in groups) * HANDICAP)
        met[kind] += 1
    caught_by = (case.id for case in failing(mutant.backend, sorted(ranks, key=ranks.__getitem__)))
    return next(caught_by, None)


def main(names: list[str]) -> int:
    """Write the file; only the rows of the named families if any are named. Return 1 if a mutant is not caught."""
    known = {family.name for family in families()}
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"no family {unknown[0]}: must be one of {', '.join(sorted(known))}")
    caught = recorded() if FILE.exists() else {}
    caught = {mutant.name: caught.get(mutant.name, "") for mutant in all_mutants()}
    chosen = [mutant for mutant in all_mutants() if not names or mutant.family in names]
    for mutant in chosen:
        caught[mutant.name] = first_caught(mutant, caught) or ""
    FILE.write_text(json.dumps({name: case for name, case in caught.items() if case}, indent=0) + "\n", "utf-8")
    missed = [mutant for mutant in chosen if not caught[mutant.name]]
    for mutant in missed:
        print(not_caught(mutant, caught))
    return 1 if missed else 0


def not_caught(mutant: Mutant, caught: dict[str, str]) -> str:
    """A line that names a mutant that no case catches, and the cases by which other families catch the same mistake."""
    others = [other for other in all_mutants() if other.short_name == mutant.short_name and caught.get(other.name)]
    others.sort(key=lambda other: other.steps is not mutant.steps)
    there = [f"{other.family} catches it by case {caught[other.name]}" for other in others]
    return f"not caught: {mutant.name}" + (f"; {', '.join(there)}" if there else f" ({mutant.description})")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
