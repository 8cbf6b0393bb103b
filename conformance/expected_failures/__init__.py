"""What a runtime is known to get wrong, as data with reasons: one JSON file a backend.

    found_with      the release that it was found with
    failures        reason, the globs of case ids in `cases`, and `crashes` where those end the process

It is strict both ways: a listed case that passes fails the suite, so that its entry is removed. Backends from elsewhere
carry theirs as `EXPECTED_FAILURES`, a mapping from glob to reason. Whoever runs the suite may give a list of their own in
its place, a TOML file with a table for each reason:

    [[expected_failure]]
    glob = "roi_align/edge/*/v16/*"     # or id = "...", one case
    reason = "half a pixel off"
    crashes = true                      # where they may end the process; may be left out
"""

from __future__ import annotations

import glob as globs
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from typing import Any

from conformance.printable import printable

TABLE = "expected_failure"
"""The name of a table in a TOML file."""


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
    return [ExpectedFailure(glob, printable(str(reason))) for glob, reason in reasons.items()]


def read(file: Path, ids: Sequence[str]) -> list[ExpectedFailure]:
    """What a TOML file lists.

    Args:
        file: its path.
        ids: of all cases there are, of which each table must name one at least.

    Raises:
        OSError: it cannot be read.
        ValueError: something in it breaks a rule; names argument, value and rule.
    """
    # Imported here: with Python 3.10 the package is of an extra, and backends load their lists without it.
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        data = tomllib.loads(file.read_text("utf-8"))
    except ValueError as error:  # what is no TOML or no UTF-8
        raise ValueError(f"{file}: must be TOML in UTF-8: {error}") from error
    tables = data.get(TABLE, [])
    if set(data) - {TABLE} or not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ValueError(f"{file} has {', '.join(sorted(data))}: must have tables [[{TABLE}]] and nothing else")
    return [_from_table(f"{file}: {TABLE} {i}", table, ids) for i, table in enumerate(tables, 1)]


def _from_table(where: str, table: dict[str, Any], ids: Sequence[str]) -> ExpectedFailure:
    unknown = sorted(set(table) - {"id", "glob", "reason", "crashes"})
    if unknown:
        raise ValueError(f"{where}: {unknown[0]} = {table[unknown[0]]!r}: must be one of id, glob, reason, crashes")
    if ("id" in table) == ("glob" in table):
        raise ValueError(f"{where} has {', '.join(sorted(table)) or 'nothing'}: must have either id or glob")
    key = "id" if "id" in table else "glob"
    for name in (key, "reason"):
        value = table.get(name)
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{where}: {name} = {value!r}: must be a string that is not empty")
    crashes = table.get("crashes", False)
    if not isinstance(crashes, bool):
        raise ValueError(f"{where}: crashes = {crashes!r}: must be true or false")
    glob = globs.escape(table["id"]) if key == "id" else table["glob"]
    if not any(fnmatchcase(case_id, glob) for case_id in ids):
        rule = "be the id of a case" if key == "id" else "match a case"
        raise ValueError(f"{where}: {key} = {table[key]!r}: must {rule}")
    return ExpectedFailure(glob, printable(table["reason"]), crashes)


def find(known: Sequence[ExpectedFailure], case_id: str) -> ExpectedFailure | None:
    """The first that lists the case, or None."""
    return next((failure for failure in known if fnmatchcase(case_id, failure.glob)), None)
