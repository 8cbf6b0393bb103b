"""Reports side by side: families by backends."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conformance.outcome import Outcome
from conformance.report.read import Report, report_of
from conformance.report.run import Run
from conformance.report.versions import version
from conformance.vectors import collect
from ortops.operators import BY_NAME

Counts = Mapping[Outcome, int]
"""How many cases have each outcome, zeros included."""

FAILURES = (Outcome.CRASHED, Outcome.FAILED, Outcome.EXPECTED_FAILURE)
"""The outcomes of a runtime that has a case wrong, whether that is known or not."""


@dataclass(frozen=True, slots=True)
class Column:
    """A backend's report, and the version of its package; empty where that is not known."""

    report: Report
    version: str = ""

    @property
    def title(self) -> str:
        """As headings have it."""
        return f"{self.report.backend} {self.version}".rstrip()


def column_of(run: Run) -> Column:
    """The column of a run that has just ended here."""
    return Column(report_of(run), version(run.backend))


@dataclass(frozen=True, slots=True)
class Cell:
    """What came of the cases of a family that one backend was asked."""

    counts: Counts

    @property
    def asked(self) -> int:
        """How many cases."""
        return sum(self.counts.values())

    @property
    def passed(self) -> int:
        """How many of them passed; the unsupported are none of these."""
        return self.counts[Outcome.PASSED]

    @property
    def worst(self) -> Outcome | None:
        """The worst outcome; `unsupported` only where there is nothing else, and None where nothing was asked."""
        order = (*FAILURES, Outcome.PASSED, Outcome.UNSUPPORTED)
        return next((outcome for outcome in order if self.counts[outcome]), None)

    @property
    def score(self) -> str:
        """Passed of asked; `unsupported` where all are, and nothing where nothing was asked."""
        if self.worst in (None, Outcome.UNSUPPORTED):
            return "" if self.worst is None else "unsupported"
        return f"{self.passed}/{self.asked}"

    @property
    def rest(self) -> tuple[tuple[Outcome, str], ...]:
        """What did not pass, in words; nothing where the score says it."""
        if self.worst is Outcome.UNSUPPORTED:
            return ()
        shown = [outcome for outcome in (*FAILURES, Outcome.UNSUPPORTED) if self.counts[outcome]]
        return tuple((outcome, _words(outcome, self.counts[outcome])) for outcome in shown)


@dataclass(frozen=True, slots=True)
class Row:
    """A family with its cell in each column."""

    name: str
    cells: tuple[Cell, ...]

    @property
    def function(self) -> str:
        """The first part of its name."""
        return self.name.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Backends and families, both in a fixed order."""

    columns: Sequence[Column]

    @property
    def rows(self) -> list[Row]:
        """The families of which a backend was asked something, function by function, unknown ones last."""
        families = [column.report.families for column in self.columns]
        none = dict.fromkeys(Outcome, 0)
        names = sorted({name for found in families for name in found}, key=_place)
        return [Row(name, tuple(Cell(found.get(name, none)) for found in families)) for name in names]

    @property
    def total(self) -> Row:
        """All families together."""
        return _together("all", self.rows, len(self.columns))

    @property
    def folded(self) -> list[Row]:
        """The rows, those of a function in one that say the same: each backend passes all of it, or supports none."""
        groups: dict[tuple[object, ...], list[Row]] = {}
        rows = self.rows
        for row in rows:
            said = tuple(cell.worst for cell in row.cells)
            is_plain = all(len(cell.rest) == 0 for cell in row.cells)
            groups.setdefault((row.function, said) if is_plain else (row.name,), []).append(row)
        return [_together(_common_name(group, rows), group, len(self.columns)) for group in groups.values()]


def _words(outcome: Outcome, count: int) -> str:
    plural = "s" if outcome is Outcome.EXPECTED_FAILURE and count != 1 else ""
    return f"{count} {outcome.value.replace('_', ' ')}{plural}"


def _place(name: str) -> tuple[int, int, str]:
    """Where a family has its row: by operator, and there in the order of the suite."""
    functions, families = _order()
    function = name.partition("/")[0]
    return functions.get(function, len(functions)), families.get(name, len(families)), name


@functools.cache
def _order() -> tuple[dict[str, int], dict[str, int]]:
    functions = dict.fromkeys(operator.function for operator in BY_NAME.values())
    families = dict.fromkeys(case.family for case in collect())
    return {name: i for i, name in enumerate(functions)}, {name: i for i, name in enumerate(families)}


def _together(name: str, rows: Sequence[Row], columns: int) -> Row:
    cells = [[row.cells[k] for row in rows] for k in range(columns)]
    return Row(name, tuple(Cell({o: sum(c.counts[o] for c in column) for o in Outcome}) for column in cells))


def _common_name(group: Sequence[Row], rows: Sequence[Row]) -> str:
    """The family's where there is one, the function's where these are all it has, or else the families'."""
    function = group[0].function
    if len(group) == 1:
        return group[0].name
    if len(group) == sum(row.function == function for row in rows):
        return function
    return f"{function}: {', '.join(row.name.removeprefix(f'{function}/') for row in group)}"


def unsupported(report: Report) -> Counter[str]:
    """Why cases are not supported, and how many for each reason."""
    return Counter(entry.message for entry in report.entries.values() if entry.outcome is Outcome.UNSUPPORTED)
