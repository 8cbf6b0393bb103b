"""A case that each mutant fails: `python tests/catching_cases.py` writes it to catching_cases.json.

It is a decisive case that a default run counts. A mutant that breaks only a rule of this project has a case of that rule.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from pathlib import Path

from conformance.case import Basis, Case, scenario_of
from conformance.coverage.measure import decisive, failing
from conformance.mutants import MUTANTS, Mutant
from conformance.vectors import collect
from rules_of_ours import lives, rule_of

FILE = Path(__file__).with_suffix(".json")


@functools.cache
def recorded() -> dict[str, str]:
    """The id of the case of each mutant, by the mutant's name."""
    return dict(json.loads(FILE.read_text("utf-8")))


def candidates(mutant: Mutant) -> list[Case]:
    """The decisive cases that a default run counts, or of the one rule that the mutant breaks."""
    rule = lives().get(mutant.name)
    cases = decisive(mutant, collect())
    return [case for case in cases if (rule_of(case) == rule if case.basis is Basis.OURS else rule is None)]


def first_caught(mutant: Mutant, lately: dict[str, None]) -> str:
    """The first case that catches the mutant: those that caught others first, then one of each kind of scenario."""
    met: Counter[str] = Counter()
    ranks = {}
    for case in candidates(mutant):
        kind = re.sub(r"\d+", "", scenario_of(case.id))
        ranks[case] = (case.id != recorded().get(mutant.name), case.id not in lately, met[kind])
        met[kind] += 1
    return next(failing(mutant.backend, sorted(ranks, key=ranks.__getitem__))).id


def main() -> None:
    """Write the file."""
    found: dict[str, str] = {}
    for mutant in MUTANTS:
        found[mutant.name] = first_caught(mutant, dict.fromkeys([*found.values()][-3:]))
    FILE.write_text(json.dumps(found, indent=0) + "\n", "utf-8")


if __name__ == "__main__":
    main()
