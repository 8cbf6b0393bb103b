"""Reading what `json.py` renders."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.case import Array
from conformance.outcome import Outcome
from conformance.printable import PrintableError, printable
from conformance.report import tensors
from conformance.report.run import Run


class NotAReportError(PrintableError):
    """A file that is no JSON report of the suite."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What a report says of a case.

    message: empty where it passed.
    outputs: what the backend answered where that did not pass, by name.
    """

    outcome: Outcome
    message: str
    outputs: Mapping[str, Array] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Report:
    """A report: the backend's name, and the entry of each case by id, in the order of the file."""

    backend: str
    entries: Mapping[str, Entry]

    @property
    def families(self) -> dict[str, dict[Outcome, int]]:
        """For each family, how many cases have each outcome, zeros included."""
        counts: dict[str, dict[Outcome, int]] = {}
        for case_id, entry in self.entries.items():
            counts.setdefault(family(case_id), dict.fromkeys(Outcome, 0))[entry.outcome] += 1
        return counts


def family(case_id: str) -> str:
    """The first two parts of an id, which name the line of a report."""
    return "/".join(case_id.split("/")[:2])


def report_of(run: Run) -> Report:
    """The report of a run that has just ended."""
    entries = {result.case.id: Entry(result.outcome, result.message, result.outputs) for result in run.results}
    return Report(run.backend, entries)


def read(file: Path) -> Report:
    """The report in a file.

    Raises:
        NotAReportError: it cannot be read or is no report; says what is wrong.
    """
    try:
        data = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise NotAReportError(f"{file}: {error}") from error
    try:
        return _report(data)
    except ValueError as error:
        raise NotAReportError(f"{file} is no report of the suite: {error}") from error


def read_merged(files: Sequence[Path]) -> list[Report]:
    """The reports in files, those of one backend taken together, in the order in which backends are first named.

    Raises:
        NotAReportError: as `read` does; or two files of one backend have the same case.
    """
    merged: dict[str, dict[str, Entry]] = {}
    origin: dict[tuple[str, str], Path] = {}
    for file in files:
        report = read(file)
        for case_id in report.entries:
            first = origin.setdefault((report.backend, case_id), file)
            if first is not file:
                raise NotAReportError(f"{file} has case {case_id} of {report.backend}, which {first} has, too")
        merged.setdefault(report.backend, {}).update(report.entries)
    return [Report(backend, entries) for backend, entries in merged.items()]


def _report(data: Any) -> Report:
    if not isinstance(data, dict) or not isinstance(data.get("backend"), str):
        raise ValueError("it names no backend")
    if not isinstance(data.get("cases"), list):
        raise ValueError("it has no list of cases")
    entries: dict[str, Entry] = {}
    for case in data["cases"]:
        if not isinstance(case, dict) or not isinstance(case.get("id"), str):
            raise ValueError("a case has no id")
        case_id = printable(case["id"])
        if case_id in entries:
            raise ValueError(f"it has case {case_id} twice")
        entries[case_id] = _entry(case_id, case)
    return Report(printable(data["backend"]), entries)


def _entry(case_id: str, case: Mapping[str, Any]) -> Entry:
    try:
        outcome = Outcome(case.get("outcome"))
    except ValueError as error:
        raise ValueError(f"case {case_id} has the outcome {case.get('outcome')!r}") from error
    try:
        return Entry(outcome, printable(str(case.get("message", ""))), tensors.decode(case.get("outputs", {})))
    except ValueError as error:
        raise ValueError(f"case {case_id}: {error}") from error
