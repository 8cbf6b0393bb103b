"""The list of cases of this release, in `cases.txt`, so that nobody adds, loses or renames one unawares.

It has the release of the suite in its first line, then a line for each fact: the first three parts of its ids, how many
cases it has and a digest of their ids. Whoever changes the cases on purpose rewrites it:

    python -m conformance.vectors.frozen
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import ortops

FILE = Path(__file__).with_name("cases.txt")

COMMAND = "python -m conformance.vectors.frozen"


def render(ids: Iterable[str]) -> str:
    """The list of the cases with these ids."""
    scenarios: dict[str, list[str]] = defaultdict(list)
    for case_id in ids:
        scenarios["/".join(case_id.split("/")[:3])].append(case_id)
    lines = [
        f"{scenario} {len(ids_of_scenario)} {_digest(ids_of_scenario)}"
        for scenario, ids_of_scenario in sorted(scenarios.items())
    ]
    return "\n".join([f"suite {ortops.__version__}", *lines, ""])


def _digest(ids: list[str]) -> str:
    return hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()[:8]


def changes(ids: Iterable[str]) -> list[str]:
    """The lines of the list that are not true of these ids, marked with `-`, and the true ones, marked with `+`."""
    frozen, found = set(FILE.read_text("utf-8").splitlines()), set(render(ids).splitlines())
    return sorted(
        [f"- {line}" for line in frozen - found] + [f"+ {line}" for line in found - frozen], key=lambda line: line[2:]
    )


if __name__ == "__main__":
    from conformance.vectors import collect

    FILE.write_text(render(case.id for case in collect()), "utf-8", newline="\n")
