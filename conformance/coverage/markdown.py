"""The report as Markdown."""

from __future__ import annotations

from conformance.coverage import rows
from conformance.coverage.summary import Summary


def render(summary: Summary) -> str:
    """The three parts under headings, the totals first."""
    values = [_table(rows.of_values(name, lines)) for name, lines in summary.values.items()]
    faults = [_table(table) for table in rows.of_faults(summary)]
    parts = (
        ["# Coverage", *rows.conclusions(summary)],
        ["## Values of attributes", *values],
        ["## Wrong implementations", *faults],
        ["## Facts", _table(rows.of_facts(summary))],
    )
    return "\n\n".join(block for part in parts for block in part) + "\n"


def _table(table: rows.Table) -> str:
    lines = [_line(table.columns), _line(["---"] * len(table.columns)), *map(_line, table.rows)]
    return "\n".join([f"### {table.title}", "", *lines])


def _line(cells: tuple[str, ...] | list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
