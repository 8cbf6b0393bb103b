"""What was measured as tables of text, for whoever prints them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.first_call import NAME, FirstCall
from benchmarks.measure import FLOOR, OURS, Cell

LEGEND = (
    "Milliseconds, medians of calls in turn; in brackets, how many times longer than ours.",
    f"{FLOOR}: ours as a multiple of copying its inputs and writing its outputs, once, with as many threads.",
    "It can be less than 1: RoIs may leave much of a map unread.",
    "forward, float: ours as a multiple of our forward operator, and of the same in float.",
    "in-model: the node of RoiAlign by ONNX Runtime's profile, in a model whose convolutions make X. FPN: its levels' sum.",
    "loops: the samples of a RoI, then its channels one by one, as loops that numba compiles.",
    "Of torchvision, mmcv and torch, dX is autograd's backward pass alone, through the public API.",
    "-: the peer cannot do it. wrong: it computes something else. *: it is known to differ, as said below.",
)
"""What the figures mean."""

FIRST_CALL_LEGEND = (
    f"{NAME}: processor seconds in a fresh process, medians. imports: of numpy, onnxruntime and ortops, nothing else.",
    "nothing cached, cached: imports and a first call, without compiled code on disk and with that of such a process.",
    "one RoI, other bins: calls after the first one, in the process that found nothing cached.",
)
"""What those of first calls mean."""

REFERENCES = (FLOOR, "forward", "float")


@dataclass(frozen=True)
class Table:
    """Rows of text under headings."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def are_text(self) -> list[bool]:
        """Of each column, whether it has words and no numbers."""
        return [heading in ("workload", "X", "Y", "case", "network") for heading in self.headings]


def tables(cells: Sequence[Cell], peers: Sequence[str]) -> list[Table]:
    """A table for each operation and element type."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.operation, cell.element_type), []).append(cell)
    return [_table(f"{operation}, {kind}", group, peers) for (operation, kind), group in groups.items()]


def first_call_table(first_calls: Sequence[FirstCall]) -> Table:
    """A row for each case."""
    columns = list(first_calls[0].times)
    rows = [[one.case, *(f"{one.median(column):.2f}" for column in columns)] for one in first_calls]
    return Table(f"{NAME}, float", ["case", *columns], rows)


def notes(cells: Sequence[Cell]) -> list[str]:
    """What is to be said of peers whose numbers are others."""
    known = {
        f"* {peer}: {difference.expected_difference}": None
        for cell in cells
        for peer, difference in cell.differences.items()
        if difference.is_known
    }
    return [*known, *(message for cell in cells for message in cell.refused)]


def _table(title: str, cells: Sequence[Cell], peers: Sequence[str]) -> Table:
    references = [name for name in REFERENCES if name in cells[0].times]
    able = [peer for peer in peers if any(peer in cell.differences for cell in cells)]
    headings = [
        "workload",
        *cells[0].workload.facts,
        "threads",
        OURS,
        *(f"/ {name}" for name in references),
        *able,
    ]
    return Table(title, headings, [_row(cell, references, able) for cell in cells])


def _row(cell: Cell, references: Sequence[str], peers: Sequence[str]) -> list[str]:
    return [
        cell.workload.name,
        *cell.workload.facts.values(),
        str(cell.threads),
        _milliseconds(cell, OURS),
        *(_multiple(cell.ratio(OURS, name)) for name in references),
        *(_peer(cell, peer) for peer in peers),
    ]


def _peer(cell: Cell, peer: str) -> str:
    difference = cell.differences.get(peer)
    if difference is None:
        return "-"
    if difference.is_refused:
        return "wrong"
    mark = "*" if difference.is_known else ""
    return f"{_milliseconds(cell, peer)} ({_multiple(cell.ratio(peer, OURS))}){mark}"


def _milliseconds(cell: Cell, name: str) -> str:
    return f"{cell.median(name) * 1e3:.2f}"


def _multiple(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio >= 1 else f"{ratio:.2f}"
