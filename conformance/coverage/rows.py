"""The three tables as rows of text, which the terminal and Markdown both have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from conformance.coverage.measure import Catch
from conformance.coverage.summary import Summary, has_vectors
from conformance.coverage.values import Line


class Table(NamedTuple):
    """A table: its title, the names of its columns, and its rows."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def of_values(name: str, lines: Sequence[Line]) -> Table:
    """The values of an operator's cases: a row for each attribute, and for types and sizes."""
    rows = []
    for thing in dict.fromkeys(line.thing for line in lines):
        own = [line for line in lines if line.thing == thing]
        used = [f"{line.value}: {line.answered}" for line in own if line.answered]
        refused = [f"{line.value}: {line.refused}" for line in own if line.refused]
        gaps = [line.value for line in own if line.is_gap]
        rows.append((thing, ", ".join(used), ", ".join(refused), ", ".join(gaps)))
    return Table(name, ("", "cases", "refusals", "legal, never used"), rows)


def of_faults(summary: Summary) -> list[Table]:
    """The wrong implementations of each family."""
    columns = ("wrong implementation", "what is wrong", "cases", "first case", "ONNX's vectors")
    return [
        Table(f"{family.value}: {_counts(summary, catches)}", columns, [_of_fault(summary, catch) for catch in catches])
        for family, catches in summary.by_family.items()
    ]


def _of_fault(summary: Summary, catch: Catch) -> tuple[str, ...]:
    onnx = "catch it" if catch.fault in summary.caught_by_onnx else "do not" if has_vectors(catch.fault) else ""
    first = catch.ids[0] if catch.ids else "none"
    return catch.fault.name, catch.fault.description, str(len(catch.ids)), first, onnx


def _counts(summary: Summary, catches: Sequence[Catch]) -> str:
    caught = sum(bool(catch.ids) for catch in catches)
    of_onnx = [catch.fault for catch in catches if has_vectors(catch.fault)]
    by_onnx = sum(fault in summary.caught_by_onnx for fault in of_onnx)
    return f"{caught} of {len(catches)} caught; ONNX's own vectors catch {by_onnx} of the {len(of_onnx)} of RoiAlign"


def of_facts(summary: Summary) -> Table:
    """How many facts there are for each reason."""
    counts = Counter(reason.words if reason else "none" for reason in summary.account.reasons.values())
    rows = [(str(count), words) for words, count in counts.most_common()]
    return Table("facts that catch nothing new", ("facts", "reason"), rows)


def conclusions(summary: Summary) -> list[str]:
    """The last lines, of which the reader with no time reads one."""
    lines = [f"not caught: {fault.name}: {fault.description}" for fault in summary.uncaught]
    lines += [f"catches nothing new, and no reason covers it: {fact}" for fact in summary.account.unexplained]
    lines += [f"covers no fact: {reason.words}" for reason in summary.account.unused]
    facts = f"{len(summary.facts)} facts, {len(summary.needed)} needed"
    return [*lines, f"{len(summary.cases)} cases, {facts}; wrong implementations: {_counts(summary, summary.catches)}"]
