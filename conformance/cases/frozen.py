# SPDX-License-Identifier: MIT OR Apache-2.0
"""The cases of this release, in `cases.txt`. A test compares them, so no case is added, lost or changed by accident.

The first line is the release of the suite and a digest of all other lines. Then follows a line for each scenario: the first
three parts of its ids, the number of its cases, and a digest of them without their notes and sources. After an intended
change, `make frozen` writes the list again, and CHANGELOG.md tells users of the suite what changed:

    python -m conformance.cases.frozen
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import ortops
from conformance.case import Case, scenario_of
from conformance.formula import Computed

FILE = Path(__file__).with_name("cases.txt")

_WORDS = ("note", "source")
"""Fields of a case that are for readers only and not for a runtime."""


def digests_of(cases: Iterable[Case]) -> dict[str, str]:
    """A digest of each case, by id."""
    return {case.id: _digest(json.dumps(case, default=_plain, sort_keys=True)) for case in cases}


def _plain(value: object) -> Any:
    """A value that JSON does not have."""
    if isinstance(value, Case):
        stored = {name.name: getattr(value, name.name) for name in dataclasses.fields(value) if name.name not in _WORDS}
        if value.formula is not None:
            return stored
        # Sums of BLAS differ in their last digit from machine to machine.
        with np.errstate(over="ignore"):
            rounded = {name: expected.astype(np.float32) for name, expected in (value.expected or {}).items()}
        return {**stored, "expected": rounded if value.expected else None}
    if isinstance(value, np.ndarray):
        return [str(value.dtype), value.shape, hashlib.sha256(value.tobytes()).hexdigest()]
    if isinstance(value, Computed):
        # A smaller problem of the same form stands for the whole one, so that a change of what computes it shows.
        small = Computed(value.formula.smaller(), value.are_inputs)
        # Sums differ in their last digits from machine to machine.
        arrays = dict(small) if value.are_inputs else {name: array.astype(np.float32) for name, array in small.items()}
        return [repr(value.formula), arrays]
    if isinstance(value, Mapping):
        return dict(value)
    return sorted(value) if isinstance(value, frozenset) else np.asarray(value).item()


def render(digests: Mapping[str, str]) -> str:
    """The content of the list for cases with these digests."""
    scenarios: dict[str, list[str]] = defaultdict(list)
    for case_id, digest in digests.items():
        scenarios[scenario_of(case_id)].append(f"{case_id} {digest}")
    lines = [
        f"{name} {len(of_cases)} {_digest(chr(10).join(sorted(of_cases)))}"
        for name, of_cases in sorted(scenarios.items())
    ]
    return "\n".join([f"suite {ortops.__version__} {_digest(chr(10).join(lines))}", *lines, ""])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def changes(digests: Mapping[str, str]) -> list[str]:
    """The differences to the list: old lines marked with `-`, and new ones with `+`."""
    frozen, rendered = (set(text.splitlines()[1:]) for text in (FILE.read_text("utf-8"), render(digests)))
    return sorted(
        [f"- {line}" for line in frozen - rendered] + [f"+ {line}" for line in rendered - frozen],
        key=lambda line: line[2:],
    )


if __name__ == "__main__":
    from conformance.cases import collect

    FILE.write_text(render(digests_of(collect())), "utf-8", newline="\n")
