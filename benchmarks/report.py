"""Write the tables to a terminal and as Markdown, and all measurements as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import rich.box
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from benchmarks import counts
from benchmarks.agreement import Difference
from benchmarks.cost_model import TERMS, Model, models
from benchmarks.first_call import FirstCall
from benchmarks.measure import OURS, Cell
from benchmarks.sweeps import Point, Sweep
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
    """All measurements, the machine and the versions.

    swept: the cells of the plot with their sweep and point. single: whether every call was timed (`interleave`).
    """

    machine: Mapping[str, object]
    packages: Mapping[str, str]
    peers: Sequence[str]
    cells: Sequence[Cell]
    swept: Sequence[tuple[Sweep, Point, Cell]] = ()
    first_calls: Sequence[FirstCall] = ()
    single: bool = False

    @property
    def all_cells(self) -> list[Cell]:
        """The cells of the tables and of the plot."""
        return [*self.cells, *(cell for _, _, cell in self.swept)]

    @property
    def refused(self) -> list[str]:
        """The messages for peers that compute different values."""
        return [message for cell in self.all_cells for message in cell.refused]

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


def markdown(run: Run) -> str:
    """Return the tables as Markdown."""
    parts = [run.heading, *map(markdown_table, _tables(run))]
    parts.append("\n".join(f"- {line}" for line in _lines(run)))
    return "\n\n".join(parts) + "\n"


def to_json(data: Mapping[str, Any]) -> str:
    """Return what `to_data` returns as JSON."""
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def to_data(run: Run) -> dict[str, Any]:
    """Return {"machine", "packages", "single", "cells": [...], "swept": [...], "first_calls": [...], "models": {...}}.

    A cell is {"operation", "workload", "facts", "element_type", "threads", "rounds", "seconds": {call: {"median", "min",
    "all"}}, "differences": {peer: {"relative", "allowed", "departs", "is_refused"}}}; a refused peer has no
    seconds, and a peer without a difference does not support the operation. A swept cell also has {"sweep", "value",
    "work"}; work is a `cost_model.Work`, or null if it is not counted. A first call is {"case", "seconds": {column: as of a
    call}}. A model is that of a swept operation: {"seconds": {term: its cost}, "median_error", "largest_error"}.
    """
    data: dict[str, Any] = {
        "machine": run.machine,
        "packages": run.packages,
        "single": run.single,
        "cells": [_cell(cell) for cell in run.cells],
        "swept": [_swept(*one) for one in run.swept],
        "first_calls": [{"case": one.case, "seconds": _seconds(one.times)} for one in run.first_calls],
    }
    return {**data, "models": {operation: _model(model) for operation, model in models(data).items()}}


def _tables(run: Run) -> list[Table]:
    first_calls = [first_call_table(run.first_calls)] if run.first_calls else []
    swept = [cell for _, _, cell in run.swept]
    return [*tables(run.cells, run.peers), *tables(swept, run.peers), *first_calls]


def _lines(run: Run) -> list[str]:
    """Return the lines below the tables."""
    timed = SINGLE_CALLS if run.single else SECOND_CALLS
    legends = [*((timed, *LEGEND) if run.all_cells else ()), *(FIRST_CALL_LEGEND if run.first_calls else ())]
    return [*legends, *notes(run.all_cells)]


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


def _swept(sweep: Sweep, point: Point, cell: Cell) -> dict[str, Any]:
    counted = counts.work(cell.operation, point.workload) if cell.element_type == "float" else None
    return {"sweep": sweep.name, "value": point.value, "work": asdict(counted) if counted else None, **_cell(cell)}


def _model(model: Model) -> dict[str, Any]:
    seconds = {term.name: cost for term, cost in zip(TERMS, model.costs, strict=True)}
    return {"seconds": seconds, "median_error": model.median_error, "largest_error": model.largest_error}


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
