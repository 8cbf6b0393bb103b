"""A case that each mutant fails: `python tests/catching_cases.py` writes it to catching_cases.json.

It is a decisive case that a default run counts. A mutant that breaks only a rule of this project has a case of that rule.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from conformance.backends.external import OnnxBackend
from conformance.case import Basis, Case, scenario_of
from conformance.families import all_mutants
from conformance.mutants.base import Category, Mutant
from conformance.run import ask, judge
from conformance.vectors import collect
from docs.rules import lives, rule_of

FILE = Path(__file__).with_suffix(".json")


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
    own = [case for case in cases if mutant.concerns(case.definition) and case.formula is None]
    if mutant.category is Category.TYPES:
        return own
    has_values = mutant.category is Category.SIZES
    return [case for case in own if _is_decisive(case) or (has_values and "/values/" in case.id)]


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


def first_caught(mutant: Mutant, lately: dict[str, None]) -> str:
    """The first case that catches the mutant: those that caught others first, then one of each kind of scenario."""
    met: Counter[str] = Counter()
    ranks = {}
    for case in candidates(mutant, collect()):
        kind = re.sub(r"\d+", "", scenario_of(case.id))
        ranks[case] = (case.id != recorded().get(mutant.name), case.id not in lately, met[kind])
        met[kind] += 1
    return next(failing(mutant.backend, sorted(ranks, key=ranks.__getitem__))).id


def main() -> None:
    """Write the file."""
    found: dict[str, str] = {}
    for mutant in all_mutants():
        found[mutant.name] = first_caught(mutant, dict.fromkeys([*found.values()][-3:]))
    FILE.write_text(json.dumps(found, indent=0) + "\n", "utf-8")


if __name__ == "__main__":
    main()
