"""Write the tables to a terminal, and all measurements as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import rich.box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from benchmarks.agreement import Difference
from benchmarks.first_call import FirstCall
from benchmarks.measure import OURS, Cell
from benchmarks.tables import (
    FIRST_CALL_LEGEND,
    LEGEND,
    SECOND_CALLS,
    SINGLE_CALLS,
    Table,
    first_call_table,
    notes,
    tables,
)

WIDTH = 150
"""The width of the tables in columns, also in a pipe."""


@dataclass(frozen=True)
class Run:
    """All measurements, the machine and the versions. `single`: whether every call was timed (`interleave`)."""

    machine: Mapping[str, object]
    packages: Mapping[str, str]
    peers: Sequence[str]
    cells: Sequence[Cell]
    first_calls: Sequence[FirstCall] = ()
    single: bool = False

    @property
    def refused(self) -> list[str]:
        """The messages for peers that compute different values."""
        return [message for cell in self.cells for message in cell.refused]

    @property
    def heading(self) -> str:
        """The machine and the versions, in a line."""
        packages = ", ".join(f"{name} {version}" for name, version in self.packages.items())
        return f"{self.machine['cpu']}, {self.machine['cpus']} CPUs, {self.machine['system']}, {packages}"


def write(run: Run, console: Console) -> None:
    """Print the tables."""
    console.print(escape(run.heading), highlight=False)
    for table in _tables(run):
        console.print(rich_table(table))
    for line in _lines(run):
        console.print(escape(line), highlight=False)


def to_json(data: Mapping[str, Any]) -> str:
    """Return what `to_data` returns as JSON."""
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def to_data(run: Run) -> dict[str, Any]:
    """Return {"machine", "packages", "single", "cells": [...], "first_calls": [...]}.

    A cell is {"operation", "workload", "facts", "element_type", "threads", "rounds", "seconds": {call: {"median", "min",
    "all"}}, "differences": {peer: {"relative", "allowed", "departs", "is_refused"}}}; a refused peer has no
    seconds, and a peer without a difference does not support the operation. A first call is {"case", "seconds": {column:
    as of a call}}.
    """
    return {
        "machine": run.machine,
        "packages": run.packages,
        "single": run.single,
        "cells": [_cell(cell) for cell in run.cells],
        "first_calls": [{"case": one.case, "seconds": _seconds(one.times)} for one in run.first_calls],
    }


def _tables(run: Run) -> list[Table]:
    first_calls = [first_call_table(run.first_calls)] if run.first_calls else []
    return [*tables(run.cells, run.peers), *first_calls]


def _lines(run: Run) -> list[str]:
    """Return the lines below the tables."""
    timed = SINGLE_CALLS if run.single else SECOND_CALLS
    legends = [*((timed, *LEGEND) if run.cells else ()), *(FIRST_CALL_LEGEND if run.first_calls else ())]
    return [*legends, *notes(run.cells)]


def rich_table(table: Table) -> RichTable:
    """Return a table for a terminal."""
    made = RichTable(title=escape(table.title), box=rich.box.SIMPLE, title_justify="left")
    for heading, is_text in zip(table.headings, table.are_text, strict=True):
        made.add_column(escape(heading), justify="left" if is_text else "right", no_wrap=True)
    for row in table.rows:
        made.add_row(*map(escape, row))
    return made


def markdown_table(table: Table) -> str:
    """Return a table in Markdown."""
    rules = ("---" if is_text else "---:" for is_text in table.are_text)
    lines = (table.headings, rules, *table.rows)
    # The asterisks in cells are not emphasis.
    rows = ["| " + " | ".join(line).replace("*", r"\*") + " |" for line in lines]
    return "\n".join((f"**{table.title}**", "", *rows))


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "operation": cell.operation,
        "workload": cell.workload.name,
        "facts": cell.workload.facts,
        "element_type": cell.element_type,
        "threads": cell.threads,
        "rounds": len(cell.times[OURS]),
        "seconds": _seconds(cell.times),
        "differences": {peer: _difference(difference) for peer, difference in cell.differences.items()},
    }


def _seconds(times: Mapping[str, list[float]]) -> dict[str, dict[str, object]]:
    return {name: {"median": median(taken), "min": min(taken), "all": taken} for name, taken in times.items()}


def _difference(difference: Difference) -> dict[str, object]:
    return {
        # JSON has neither infinity nor NaN.
        "relative": difference.relative if math.isfinite(difference.relative) else None,
        "allowed": difference.allowed,
        "departs": difference.expected_difference,
        "is_refused": difference.is_refused,
    }
