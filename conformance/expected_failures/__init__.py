"""What a runtime is known to get wrong, as data with reasons: one JSON file a backend.

    found_with      the release that it was found with
    failures        reason, the globs of case ids in `cases`, and `crashes` where those end the process

It is strict both ways: a listed case that passes fails the suite, so that its entry is removed. Backends from elsewhere
carry theirs as `EXPECTED_FAILURES`, a mapping from glob to reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources


@dataclass(frozen=True, slots=True)
class ExpectedFailure:
    """Cases that fail for one reason; with `crashes` they may end the process."""

    glob: str
    reason: str
    crashes: bool = False


def load(backend: str) -> tuple[str, list[ExpectedFailure]]:
    """The release that the file of `backend` speaks of, and what it lists."""
    data = json.loads(resources.files(__name__).joinpath(f"{backend}.json").read_text("utf-8"))
    failures = [
        ExpectedFailure(glob, entry["reason"], entry.get("crashes", False))
        for entry in data["failures"]
        for glob in entry["cases"]
    ]
    return data["found_with"], failures


def from_mapping(reasons: Mapping[str, str]) -> list[ExpectedFailure]:
    """The same from a mapping of globs to reasons."""
    return [ExpectedFailure(glob, reason) for glob, reason in reasons.items()]


def find(known: Sequence[ExpectedFailure], case_id: str) -> ExpectedFailure | None:
    """The first that lists the case, or None."""
    return next((failure for failure in known if fnmatchcase(case_id, failure.glob)), None)
