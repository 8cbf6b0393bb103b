"""The list of cases of this release, in `cases.txt`: a test compares it, so no case is added, lost or renamed by accident.

The first line is the release of the suite. Then follows a line for each scenario: the first three parts of its ids, the
number of its cases, and a digest of their ids. After an intended change, write the list again:

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
    """The content of the list for cases with these ids."""
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
    """The differences to the list: its lines that do not fit these ids, marked with `-`, and the new ones with `+`."""
    frozen, found = set(FILE.read_text("utf-8").splitlines()), set(render(ids).splitlines())
    return sorted(
        [f"- {line}" for line in frozen - found] + [f"+ {line}" for line in found - frozen], key=lambda line: line[2:]
    )


if __name__ == "__main__":
    from conformance.vectors import collect

    FILE.write_text(render(case.id for case in collect()), "utf-8", newline="\n")
