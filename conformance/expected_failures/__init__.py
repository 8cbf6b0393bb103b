# SPDX-License-Identifier: MIT OR Apache-2.0
"""The known failures of runtimes, as data with reasons: one JSON file for each runtime.

    found_with      the release that the list was made with
    failures        `reason`, the globs of case ids in `cases`, and `crashes` where those may end the process

The files of the runtimes in docs/findings.md have more keys, which `docs.findings` reads:

    title, about, order     the runtime's heading, what was tested, and its place in the document
    backend                 its name in reports, where that is not the file's
    releases                all releases that were tested, the oldest first
    failures                `harm`: memory, numbers, refuses or accepts; `case`: the id of a case that shows it; `rule`:
                            what the specification says; `answer`: what the runtime answered; `upstream`: addresses of
                            threads; `since`: the first release that was tested for it, if not all were; `until`: the
                            last release that has it, if a newer release does not

An entry with `until` is no longer expected to fail, and is in no backend's list.

The lists are strict: a listed case that passes fails the run, so that its entry is removed. Other projects' backends have
their list in `EXPECTED_FAILURES`, a mapping from globs to reasons. A user can replace the list by a TOML file with a table
for each reason:

    found_with = "runtime 1.0"          # optional, for readers
    level = "standard"                  # optional; that of a run without --level
    at_least = 5000                     # optional; fewer judged cases fail a run
    select = "roi_align/*"              # the cases that count for this, by default all; `exclude` is a list of globs
    [[expected_failure]]
    cases = ["roi_align/edge/*/v16/*"]  # or glob = "..." for one glob, or id = "..." for one case
    reason = "half a pixel off"
    crashes = true                      # if the cases may end the process; false by default

`conformance.report.failure_list` writes such a file from a run.
"""

from __future__ import annotations

import glob as globs
import json
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from conformance.case import Level
from conformance.outcome import Outcome
from conformance.printable import printable

TABLE = "expected_failure"
"""The name of the tables in a TOML file."""

FOUND_WITH = "found_with"
"""The name of the versions in a TOML file."""

LEVEL = "level"
"""The name of the level in a TOML file."""

FLOOR = ("at_least", "select", "exclude")
"""The names of the fields of a floor in a TOML file."""


@dataclass(frozen=True, slots=True)
class ExpectedFailure:
    """Cases that match a glob and fail for one reason; with `crashes` they may end the process."""

    glob: str
    reason: str
    crashes: bool = False


@dataclass(frozen=True, slots=True)
class Floor:
    """A number of cases that a run must judge. A case is judged unless it is unsupported.

    at_least: the number.
    select, exclude: globs of the ids of the cases that count, as `--select` and `--exclude` take them.
    """

    at_least: int
    select: str = "*"
    exclude: tuple[str, ...] = ()

    def __str__(self) -> str:
        excluded = "".join(f" without {glob}" for glob in self.exclude)
        return f"at least {self.at_least} judged cases in {self.select}{excluded}"

    def counted(self, ids: Collection[str]) -> set[str]:
        """The ids that count."""
        excluded = {case_id for glob in self.exclude for case_id in ids if fnmatchcase(case_id, glob)}
        return {case_id for case_id in ids if fnmatchcase(case_id, self.select)} - excluded

    def breach(self, outcomes: Mapping[str, Outcome], ids: Collection[str]) -> str:
        """A sentence if the run judged too few cases; empty if it judged enough, or did not run all cases that count.

        Args:
            outcomes: the outcomes of the run by case id.
            ids: the ids of all cases of the suite.
        """
        counted = self.counted(ids)
        judged = judged_of({case_id: outcomes[case_id] for case_id in counted & set(outcomes)})
        if judged >= self.at_least or not counted <= set(outcomes):
            return ""
        return f"{judged} of {len(counted)} cases were judged: must be at least {self.at_least}"


class Listed(NamedTuple):
    """The content of a TOML file.

    floor: the number of cases that a run must judge; None if the file does not have it.
    level: that of the run which wrote the file, or None.
    """

    failures: tuple[ExpectedFailure, ...] = ()
    floor: Floor | None = None
    level: Level | None = None


def load(backend: str) -> tuple[str, list[ExpectedFailure]]:
    """The release for which the list of `backend` holds, and the list."""
    data = json.loads(resources.files(__name__).joinpath(f"{backend}.json").read_text("utf-8"))
    failures = [
        ExpectedFailure(glob, entry["reason"], entry.get("crashes", False))
        for entry in data["failures"]
        if "until" not in entry
        for glob in entry["cases"]
    ]
    return data["found_with"], failures


def from_mapping(reasons: Mapping[str, str]) -> list[ExpectedFailure]:
    """A list of expected failures from a mapping of globs to reasons.

    Raises:
        ValueError: it is not such a mapping.
    """
    if not isinstance(reasons, Mapping):
        raise ValueError(f"EXPECTED_FAILURES = {reasons!r}: must be a mapping of globs to reasons")
    for glob, reason in reasons.items():
        if not isinstance(glob, str) or not isinstance(reason, str):
            raise ValueError(f"EXPECTED_FAILURES has {glob!r}: {reason!r}: must map strings to strings")
    return [ExpectedFailure(glob, printable(reason)) for glob, reason in reasons.items()]


def read(file: Path, ids: Collection[str] | None) -> Listed:
    """The list of expected failures in a TOML file, with its floor and its level.

    Args:
        file: its path.
        ids: the ids of all cases. Each glob must match at least one; None skips this check.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is not TOML, or a table breaks a rule.
    """
    data = _data(file)
    tables = enumerate(data.get(TABLE, []), 1)
    failures = [entry for i, table in tables for entry in _entries(f"{file}: {TABLE} {i}", table, ids)]
    level = data.get(LEVEL)
    _require(level is None or level in list(Level), file, LEVEL, level, f"be one of {', '.join(Level)}")
    floor = _floor(file, {name: value for name, value in data.items() if name in FLOOR})
    return Listed(tuple(failures), floor, Level(level) if level else None)


def _require(is_right: bool, where: object, name: str, value: object, rule: str) -> None:
    if not is_right:
        raise ValueError(f"{where}: {name} = {value!r}: must {rule}")


def _floor(file: Path, given: Mapping[str, Any]) -> Floor | None:
    at_least: Any = given.get("at_least")
    select, exclude = given.get("select", "*"), given.get("exclude", [])
    if not given:
        return None
    _require(type(at_least) is int and at_least >= 1, file, "at_least", at_least, "be a number of cases, at least 1")
    _require(isinstance(select, str), file, "select", select, "be a glob")
    is_list = isinstance(exclude, list) and all(isinstance(glob, str) for glob in exclude)
    _require(is_list, file, "exclude", exclude, "be a list of globs")
    return Floor(at_least, select, tuple(exclude))


def _data(file: Path) -> dict[str, Any]:
    try:
        data: dict[str, Any] = tomllib.loads(file.read_text("utf-8"))
    except ValueError as error:  # not TOML, or not UTF-8
        raise ValueError(f"{file}: must be TOML in UTF-8: {error}") from error
    tables = data.get(TABLE, [])
    known = {TABLE, FOUND_WITH, LEVEL, *FLOOR}
    if set(data) - known or not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        rule = f"must have tables [[{TABLE}]], {FOUND_WITH}, {LEVEL}, {', '.join(FLOOR)} and nothing else"
        raise ValueError(f"{file} has {', '.join(sorted(data))}: {rule}")
    return data


def _entries(where: str, table: dict[str, Any], ids: Collection[str] | None) -> Iterator[ExpectedFailure]:
    names = {"id", "glob", "cases"}
    for name in sorted(set(table) - names - {"reason", "crashes"}):
        _require(False, where, name, table[name], "be one of id, glob, cases, reason, crashes")
    if len(names & set(table)) != 1:
        raise ValueError(f"{where} has {', '.join(sorted(table)) or 'nothing'}: must have one of id, glob and cases")
    (key,) = names & set(table)
    values, crashes = table[key] if key == "cases" else [table[key]], table.get("crashes", False)
    _require(isinstance(values, list) and bool(values), where, key, values, "be a list of globs that is not empty")
    for name, value in [*((key, value) for value in values), ("reason", table.get("reason"))]:
        _require(isinstance(value, str) and bool(value.strip()), where, name, value, "be a string that is not empty")
    _require(isinstance(crashes, bool), where, "crashes", crashes, "be true or false")
    for value in values:
        glob = globs.escape(value) if key == "id" else value
        is_known = ids is None or any(fnmatchcase(case_id, glob) for case_id in ids)
        _require(is_known, where, key, value, "be the id of a case" if key == "id" else "match a case")
        yield ExpectedFailure(glob, printable(table["reason"]), crashes)


def find(known: Sequence[ExpectedFailure], case_id: str) -> ExpectedFailure | None:
    """The first entry that matches the case, or None."""
    return next((failure for failure in known if fnmatchcase(case_id, failure.glob)), None)


NOTHING_TESTED = "the backend supports none of the selected cases; nothing was tested"


def shortfalls(outcomes: Mapping[str, Outcome], floor: Floor | None, ids: Collection[str]) -> list[str]:
    """Why a run judged too few cases, as sentences: none, or fewer than the floor of its list. See `Floor.breach`."""
    breach = floor.breach(outcomes, ids) if floor else ""
    return [reason for reason in ("" if judged_of(outcomes) else NOTHING_TESTED, breach) if reason]


def judged_of(outcomes: Mapping[str, Outcome]) -> int:
    """How many of the cases were judged."""
    return sum(outcome is not Outcome.UNSUPPORTED for outcome in outcomes.values())
