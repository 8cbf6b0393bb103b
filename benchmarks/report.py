# SPDX-License-Identifier: MIT
"""The report of all measurements: tables for the terminal and, in Markdown, for the documents; the machine."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping, Sequence
from importlib import metadata, util
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from benchmarks.measure import Cell
from benchmarks.peers import CPUS

PACKAGES = ("ortops", "onnxruntime", "onnxruntime-extensions", "numba", "numpy", "openvino", "torch", "torchvision")
WORDS = ("operation", "workload")
"""The headings of columns of words."""


class Grid(NamedTuple):
    """The texts of a table."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


def machine() -> dict[str, Any]:
    """Return the processor, the number of CPUs of this process, the system and versions."""
    info = Path("/proc/cpuinfo")
    model = re.search(r"^model name\s*: (.*)", info.read_text("utf-8") if info.exists() else "", re.MULTILINE)
    return {
        "cpu": model[1] if model else platform.processor() or platform.machine(),
        "cpus": CPUS,
        "system": platform.platform(),
        "packages": {name: metadata.version(name) for name in PACKAGES if util.find_spec(name.replace("-", "_"))},
    }


def show(grid: Grid) -> None:
    """Print a table."""
    table = Table(box=MARKDOWN)
    for heading in grid.headings:
        table.add_column(heading, justify="left" if heading in WORDS else "right", no_wrap=True)
    for row in grid.rows:
        table.add_row(*row)
    Console(width=250).print(table)


def replaced(document: str, tables: Mapping[str, Grid]) -> str:
    """Return a Markdown document in which these tables replace those below the lines `<!-- COMPARISON -->`."""
    for comparison, grid in tables.items():
        rules = ["---" if heading in WORDS else "---:" for heading in grid.headings]
        lines = (
            "|" + "|".join(f" {text} " if text else " " for text in row) + "|" for row in (grid[0], rules, *grid[1])
        )
        parts = re.split(rf"(?<=^<!-- {comparison} -->\n\n)(?:\|.*\n)*", document, flags=re.MULTILINE)
        if len(parts) != 2:
            raise click.ClickException(f"the document must have one line <!-- {comparison} -->, not {len(parts) - 1}")
        document = parts[0] + "".join(f"{line}\n" for line in lines) + parts[1]
    return document


def tables(cells: Sequence[Cell]) -> dict[str, Grid]:
    """Return a table for each comparison: a row for each operation, workload and number of threads."""
    comparisons: dict[str, dict[str, list[Cell]]] = {}
    for cell in cells:
        comparisons.setdefault(cell.comparison, {}).setdefault(cell.operation, []).append(cell)
    return {name: _table(list(chain(*operations.values()))) for name, operations in comparisons.items()}


def _table(cells: Sequence[Cell]) -> Grid:
    peers = list(dict.fromkeys(name for cell in cells for name in cell.times))
    rows, before = list[list[str]](), ("", "")
    for cell in cells:
        label = (cell.operation, cell.workload)
        # Labels are not repeated.
        shown, before = ("", "") if label == before else label, label
        rows.append([*shown, str(cell.threads), *(_text(cell, name) for name in peers)])
    return Grid(["operation", "workload", "threads", *peers], rows)


def _text(cell: Cell, name: str) -> str:
    """Return a peer's milliseconds and, for all peers but the first, their ratio to the first peer's."""
    if name not in cell.times:
        return ""
    ratio = f" ({digits(cell.ratio(name), 1)})" if name != next(iter(cell.times)) else ""
    return digits(cell.ms(name), 0) + ratio


def digits(value: float, least: int) -> str:
    """Format a number with two significant digits; from 9.95 on, with `least` digits after the point."""
    return f"{value:.{3 if value < 0.0995 else 2 if value < 0.995 else 1 if value < 9.95 else least}f}"
