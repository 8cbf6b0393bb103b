"""The report on coverage: tables on a terminal or in Markdown, or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from conformance.case import Case, scenario_of
from conformance.coverage.measure import Catch
from conformance.coverage.values import Line, by_operator, ranges
from conformance.mutants import MUTANTS, Category

if TYPE_CHECKING:
    from rich.console import Console


class Table(NamedTuple):
    """A table with its title, the names of its columns, and its rows."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


@dataclass(frozen=True)
class Summary:
    """The coverage of the cases. `catches` has one entry for every fault, in any order."""

    cases: tuple[Case, ...]
    catches: Iterable[Catch]

    @cached_property
    def found(self) -> list[Catch]:
        """The catches in the order of the faults."""
        order = {fault: number for number, fault in enumerate(MUTANTS)}
        return sorted(self.catches, key=lambda catch: order[catch.fault])

    @cached_property
    def needed(self) -> dict[str, list[str]]:
        """The scenarios that are the first to catch a fault, each with the names of these faults."""
        scenarios: dict[str, list[str]] = {}
        for catch in self.found:
            if catch.first is not None:
                scenarios.setdefault(scenario_of(catch.first), []).append(catch.fault.name)
        return scenarios

    @property
    def is_sound(self) -> bool:
        """Whether every fault is caught."""
        return all(catch.first for catch in self.found)

    def tables(self) -> list[Table]:
        """A table of values for each operator, one for each family of faults, and one of scenarios."""
        values = [_of_values(name, lines) for name, lines in by_operator(self.cases).items()]
        rows = [
            (function, ", ".join(f"{name} {least:g} to {most:g}" for name, (least, most) in own.items()))
            for function in dict.fromkeys(case.definition.function for case in self.cases)
            if (own := ranges(function, self.cases))
        ]
        values.append(Table("least and largest values", ("", "of cases that expect values"), rows))
        return [*values, *(self._of_faults(family) for family in Category), self._of_scenarios()]

    def _of_faults(self, family: Category) -> Table:
        catches = [catch for catch in self.found if catch.fault.category is family]
        onnx = {True: "catch it", False: "do not", None: ""}
        rows = [(c.fault.name, c.fault.description, c.first or "none", onnx[c.by_onnx]) for c in catches]
        columns = ("wrong implementation", "what is wrong", "first case", "ONNX's vectors")
        return Table(f"{family.value}: {_counts(catches)}", columns, rows)

    def _of_scenarios(self) -> Table:
        scenarios: dict[str, set[str]] = {}
        for case in self.cases:
            scenarios.setdefault(case.group, set()).add(scenario_of(case.id))
        rows = [(name, str(len(own)), str(len(own & set(self.needed)))) for name, own in scenarios.items()]
        title = "scenarios, and those that are the first to catch a wrong implementation"
        return Table(title, ("family", "scenarios", "first"), rows)

    def conclusions(self) -> list[str]:
        """The last lines of the report: the faults that are not caught, and the totals."""
        lines = [f"not caught: {c.fault.name}: {c.fault.description}" for c in self.found if c.first is None]
        scenarios = f"{len({scenario_of(case.id) for case in self.cases})} scenarios, {len(self.needed)} needed"
        return [*lines, f"{len(self.cases)} cases, {scenarios}; wrong implementations: {_counts(self.found)}"]

    def json(self) -> str:
        """All measurements as JSON."""
        values = by_operator(self.cases)
        return json.dumps(
            {
                "cases": len(self.cases),
                "values": {
                    name: [{**asdict(line), "is_gap": line.is_gap} for line in lines] for name, lines in values.items()
                },
                "faults": [
                    {
                        "name": catch.fault.name,
                        "family": catch.fault.category.value,
                        "description": catch.fault.description,
                        "first": catch.first,
                        "caught_by": list(catch.ids),
                        "caught_by_onnx": catch.by_onnx,
                    }
                    for catch in self.found
                ],
                "needed": self.needed,
            },
            indent=1,
        )

    def markdown(self) -> str:
        """The tables in Markdown, after the totals."""
        return "\n\n".join(["# Coverage", *self.conclusions(), *map(_in_markdown, self.tables())]) + "\n"

    def write(self, console: Console) -> None:
        """Print the report. The last line has the totals."""
        import rich.box  # of the extra conformance
        import rich.markup
        import rich.table

        for table in self.tables():
            shown = rich.table.Table(title=rich.markup.escape(table.title), box=rich.box.SIMPLE, title_justify="left")
            for column in table.columns:
                shown.add_column(column, overflow="fold")
            for row in table.rows:
                shown.add_row(*map(rich.markup.escape, row))
            console.print(shown)
        for line in self.conclusions():
            console.print(rich.markup.escape(line), soft_wrap=True, highlight=False)


def _counts(catches: Sequence[Catch]) -> str:
    of_onnx = [catch.by_onnx for catch in catches if catch.by_onnx is not None]
    by_onnx = f"ONNX's own vectors catch {sum(of_onnx)} of the {len(of_onnx)} of RoiAlign"
    return f"{sum(catch.first is not None for catch in catches)} of {len(catches)} caught; {by_onnx}"


def _of_values(name: str, lines: Sequence[Line]) -> Table:
    rows = []
    for thing in dict.fromkeys(line.thing for line in lines):
        own = [line for line in lines if line.thing == thing]
        used = [f"{line.value}: {line.answered}" for line in own if line.answered]
        refused = [f"{line.value}: {line.refused}" for line in own if line.refused]
        rows.append((thing, ", ".join(used), ", ".join(refused), ", ".join(line.value for line in own if line.is_gap)))
    return Table(name, ("", "cases", "refusals", "legal, never used"), rows)


def _in_markdown(table: Table) -> str:
    lines = [table.columns, ("---",) * len(table.columns), *table.rows]
    shown = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |" for cells in lines]
    return "\n".join([f"### {table.title}", "", *shown])
