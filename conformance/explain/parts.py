"""What an explanation consists of: facts, drawings and tables, and the outputs of a backend that it compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from conformance.case import Case
from conformance.expected_values import Floats
from conformance.explain.drawing import Drawing, number

MAX_ROWS = 24
"""The largest number of rows that a table shows."""


class Table(NamedTuple):
    """A table with a title; `marked` is the row of the worst element, around which rows are shown."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    marked: int | None = None

    @property
    def shown(self) -> range:
        """The rows that are shown."""
        first = max(min((self.marked or 0) - MAX_ROWS // 2, len(self.rows) - MAX_ROWS), 0)
        return range(first, min(first + MAX_ROWS, len(self.rows)))


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of a case.

    facts: the lines under the id of the case, by heading.
    heading: the RoI that the drawings show, as text; empty if they show none.
    drawings: one for each convention, that of the case among them; empty if there is nothing to draw.
    hint: a text that says how to read the drawings.
    """

    case: Case
    facts: Mapping[str, str]
    heading: str = ""
    drawings: Sequence[Drawing] = ()
    hint: str = ""
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """The expected outputs of a case and the outputs of a backend.

    expected: empty for a case that expects an error.
    got: the backend's outputs.
    worst: the output and the index of the element with the largest error, or None without outputs to compare.
    """

    expected: Mapping[str, Floats]
    got: Mapping[str, Floats]
    worst: tuple[str, tuple[int, ...]] | None = None

    def tables(self) -> list[Table]:
        """A table of the elements of each output that has some."""
        return [self._table(name) for name in (self.expected or self.got) if (self.expected or self.got)[name].size]

    def _table(self, name: str) -> Table:
        known = {"expected": self.expected.get(name), "got": self.got.get(name)}
        if self.expected.get(name) is not None and self.got.get(name) is not None:
            known["difference"] = differences(self.got[name], self.expected[name])
        columns = {heading: values for heading, values in known.items() if values is not None}
        shape = next(iter(columns.values())).shape
        rows = [
            (str(list(at)), *(number(float(values[at])) for values in columns.values())) for at in np.ndindex(shape)
        ]
        is_here = self.worst is not None and self.worst[0] == name
        marked = int(np.ravel_multi_index(self.worst[1], shape)) if is_here and self.worst else None
        return Table(name, ("element", *columns), rows, marked)


def differences(got: Floats, expected: Floats) -> Floats:
    """`got` minus `expected`, element by element; 0 where both are NaN or the same infinity."""
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(same, 0.0, got - expected)
