"""The measurements as tables of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.first_call import NAME, FirstCall
from benchmarks.measure import FLOOR, OURS, Cell
from benchmarks.operations import IN_MODEL, WITH_CONVERSIONS

SECOND_CALLS = "Calls are made in turn, each twice in a row, and the second one is timed."
SINGLE_CALLS = f"Calls are made in turn, and every one is timed, right after one of something else; {FLOOR} in a loop."
"""The legends of how calls are timed."""

LEGEND = (
    "Milliseconds, medians of calls in turn; in brackets, multiples of our time.",
    f"{FLOOR}: our time as a multiple of copying the inputs and writing the outputs once, with the same threads.",
    "It can be less than 1, since RoIs may leave much of a map unread.",
    "forward, float: our time as a multiple of our forward operator's, and of the same operator's in float.",
    f"{IN_MODEL.name}: RoiAlign in the runtime's profile of a model that computes X by convolution. FPN: the sum of levels.",
    f"{WITH_CONVERSIONS.name}: RoiAlign and what the runtime converts for it: in onnxruntime, for our operator, too, the",
    "layout of X; in openvino, the layout of Y and the type of batch_indices. Other models may need more or less of this.",
    "openvino: a compiled model that computes in float32; its calls copy neither inputs nor outputs.",
    "loops: plain loops over the samples of a RoI and then its channels, compiled by numba.",
    "For torchvision and torch, dX is only autograd's backward pass, through the public API.",
    "-: not supported. wrong: it computes different values. *: a known difference, explained below.",
)
"""The legend of the tables."""

FIRST_CALL_LEGEND = (
    f"{NAME}: processor seconds in a fresh process, medians. imports: only numpy, onnxruntime and ortops.",
    "nothing cached, cached: imports and a first call, without and with compiled code on disk.",
    "one RoI, other bins: later calls in the process with nothing cached.",
)
"""The legend of the table of first calls."""

REFERENCES = (FLOOR, "forward", "float")


@dataclass(frozen=True)
class Table:
    """A title, headings and rows of text."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]

    @property
    def are_text(self) -> list[bool]:
        """Whether each column has words instead of numbers."""
        return [heading in ("workload", "X", "Y", "case", "network") for heading in self.headings]


def tables(cells: Sequence[Cell], peers: Sequence[str]) -> list[Table]:
    """Return a table for each operation and element type."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.operation, cell.element_type), []).append(cell)
    return [_table(f"{operation}, {kind}", group, peers) for (operation, kind), group in groups.items()]


def first_call_table(first_calls: Sequence[FirstCall]) -> Table:
    """Return a table with a row for each case."""
    columns = list(first_calls[0].times)
    rows = [[one.case, *(f"{one.median(column):.2f}" for column in columns)] for one in first_calls]
    return Table(f"{NAME}, float", ["case", *columns], rows)


def notes(cells: Sequence[Cell]) -> list[str]:
    """Return the notes on peers with known differences or different values."""
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
