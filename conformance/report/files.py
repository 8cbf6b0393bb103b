# SPDX-License-Identifier: MIT OR Apache-2.0
"""The report files of a run, which are written during the run and at its end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from conformance.case import Case, Level
from conformance.cases import by_id
from conformance.diagnosis import Diagnosis, diagnose
from conformance.expected_failures import Floor, Listed
from conformance.outcome import Outcome, Reason, Result, at_level
from conformance.report import adopters, failure_list, junit, page, record
from conformance.report.causes import Cause, causes_of
from conformance.report.record import Report, report_of
from ortops import atomic_file

RENDERERS: Mapping[str, Callable[[Report, Sequence[Cause]], str]] = {
    "json": lambda report, _: record.render(report),
    "junit": junit.render,
    "html": page.render,
}
"""The functions that make the text of a report file, by the option that names the file."""


class Reports:
    """The report files of a run, and its results so far.

    Args:
        label: the backend's name in reports.
        level: whose rules count.
        cases: the cases of the run.
        files: the files to write, by the keys of `RENDERERS`. JSON is written every `SECONDS`, all files at the end.

    Attributes:
        version: the one that a backend outside this package states.
        failed: the number of failures so far.
        diagnoses, causes: those of the failures, after the files are written.
        errors: the reasons why a file could not be written at the end.
    """

    SECONDS = 2.0

    def __init__(self, label: str, level: Level, cases: Sequence[Case], **files: Path | None) -> None:
        self._label, self._level, self._cases = label, level, cases
        self._found: dict[str, Result] = {}
        # A backend may change the working folder.
        self._files = {option: file.absolute() for option, file in files.items() if file is not None}
        self._begun = self._written = time.monotonic()
        self._seconds: float | None = None
        self.version = ""
        self._earlier_seconds = 0.0
        self.failed = 0
        self.diagnoses: list[Diagnosis] = []
        self.causes: list[Cause] = []
        self.errors: list[str] = []

    def take(self, earlier: Report, *, without_list: bool) -> None:
        """Take the results of an earlier run, which may have had another level.

        `without_list` leaves out those that its list of expected failures changed.
        """
        self._earlier_seconds, self.version = earlier.seconds, earlier.origin.version
        for result in (earlier.entries[case.id] for case in self._cases if case.id in earlier.entries):
            is_changed = result.outcome is Outcome.EXPECTED_FAILURE or result.reason is Reason.LISTED
            if not (without_list and is_changed):
                self.add(at_level(result, self._level))

    @property
    def left(self) -> list[Case]:
        """The cases without a result."""
        return [case for case in self._cases if case.id not in self._found]

    @property
    def results(self) -> list[Result]:
        """The results so far, in the order of the cases."""
        return [self._found[case.id] for case in self._cases if case.id in self._found]

    @property
    def report(self) -> Report:
        """The report of the results so far."""
        seconds = time.monotonic() - self._begun if self._seconds is None else self._seconds
        return report_of(
            self._label,
            self.results,
            complete=len(self._found) == len(self._cases),
            seconds=seconds + self._earlier_seconds,
            level=self._level,
            version=self.version,
        )

    def add(self, result: Result) -> None:
        """Add a result."""
        self._found[result.id] = result
        self.failed += result.outcome.is_bad
        if "json" in self._files and time.monotonic() - self._written >= self.SECONDS:
            with contextlib.suppress(OSError):  # there may be room again at the end
                atomic_file.write(self._files["json"], record.render(self.report))
            self._written = time.monotonic()

    def write(self) -> None:
        """Write all files, with the causes of failures. If one cannot be written, the others still are."""
        self._seconds = time.monotonic() - self._begun
        report, results = self.report, self.results
        try:
            self.diagnoses = diagnose(results)
        finally:  # a signal may end it
            self.causes = causes_of(results, self.diagnoses)
            for option, file in self._files.items():
                try:
                    atomic_file.write(file, RENDERERS[option](report, self.causes))
                except OSError as error:  # each file is tried
                    self.errors.append(f"{file} is not written: {error}")

    def write_list(self, file: Path, older: Listed, floor: Floor | None) -> list[str]:
        """Write the list of expected failures and the floor, and return lines about it and what changes in an older one.

        The older floor stays if the run did not ask all of its cases.
        """
        report, ids = self.report, by_id()
        known = failure_list.listed(self.results, self.diagnoses, older.failures, ids)
        if floor is None or (older.floor is not None and not older.floor.counted(ids) <= set(report.entries)):
            floor = older.floor
        changed = list(failure_list.changes(older.failures, known))
        if older.floor is not None and floor != older.floor:
            changed += [f"- {older.floor}", f"+ {floor}"]
        lines = [] if older == Listed() else changed or ["no changes"]
        reasons = len({entry.reason for entry in known})
        said = f"{reasons} reason{'s' * (reasons != 1)} for {len(report.failing)} failing cases"
        if late := sum(result.reason is Reason.TIME for result in report.failing.values()):
            lines.append(
                f"{late} of the failing cases exceeded the time limit. On a faster machine such a case may pass, and the "
                "list then fails the run: take it off, or raise --time-limit."
            )
        return lines + self._write(file, failure_list.render(known, floor, report), said)

    def write_adopters_list(self, file: Path, form: str) -> list[str]:
        """Write the list of the cases that do not pass in another project's format, one of `adopters.FORMATS`.

        Returns:
            Lines about it.
        """
        entries = adopters.entries_of(self.results, self.diagnoses)
        title = f"{failure_list.versions_of(self.report)}, level {self._level}"
        text = adopters.render(form, entries, title, file)
        listed = sum(bool(entry.reason) for entry in entries)
        others = sum(result.outcome is not Outcome.PASSED for result in self.results) - listed
        left_out = f", without {others} others" if others else ""
        return self._write(file, text, f"{listed} of {len(entries)} cases for ONNX's runners{left_out}")

    def _write(self, file: Path, text: str, said: str) -> list[str]:
        try:
            atomic_file.write(file, text)
        except OSError as error:
            self.errors.append(f"{file} is not written: {error}")
            return []
        return [f"{said} written to {file}"]
