"""A panel that slides down a map: it holds the rows that the current RoI reads, and few others.

RoIs are taken in the order of their first rows, so no row that has been left behind is read again. Measured: maps of P2,
whose whole panels have 4 MB, are averaged in 82 % of the time if the panel stays in a core's cache of 2 MB; with 100 RoIs,
in 76 %.
"""

from __future__ import annotations

from ortops.jit import LANES
from ortops.jit.compile import compiled
from ortops.jit.elements import Elements, Words
from ortops.jit.parallel import allocate, call, release
from ortops.jit.scalar import address_of, compute_pointer, int64_pointer, itemsize, maximum, minimum, offset
from ortops.kernels.functions import Pack, SharedTables, Sizes
from ortops.kernels.layout import BINS, CANDIDATES, LOW, PLACE, START, TABLE_WORDS, Form, PlacedRois, Table
from ortops.kernels.schedule import panel_size

MAX_SLIDING_BYTES = 1 << 20
"""The most bytes of a panel that slides, unless a RoI is taller. A quarter as many are as fast."""


@compiled
def panel_lines(placed: PlacedRois, is_whole: bool, like: Elements, form: Form, sizes: Sizes) -> int:
    """The number of lines of a panel of the compute type of the elements at `like`; those of the map if it does not slide.

    The other arguments are as in `schedule.panel_size` and `roi_tables.share_tables`.
    """
    # Candidates have no numbers of rows, but of regions between them.
    if not is_whole or form.kind == CANDIDATES or not sizes.fits:
        return placed.shape.height
    lines = MAX_SLIDING_BYTES // (placed.shape.width * LANES * itemsize(compute_pointer(like, like)))
    for r in range(placed.shape.rois):
        lines = maximum(lines, placed.spans[2 * r])
    return minimum(lines, placed.shape.height)


@compiled
def sliding_size(placed: PlacedRois, is_whole: bool, lines: int, like: Elements) -> int:
    """The number of values of a panel and of the numbers of a RoI's rows in it."""
    shape = placed.shape
    if not is_whole:
        return panel_size(placed, False)
    return lines * shape.width * LANES + (TABLE_WORDS + lines + 2 * shape.bins_y + 2) * 8 // itemsize(
        compute_pointer(like, like)
    )


@compiled
def sort_by_first_row(placed: PlacedRois, shared: SharedTables) -> bool:
    """Sort the RoIs of each image by the first row that they read; whether there was memory for it. A C function."""
    shape, order = placed.shape, shared.groups.order
    memory = allocate(shape.rois + shape.height + 1)
    if address_of(memory) == 0:
        return False
    unsorted = offset(memory, shape.height + 1)
    for n in range(shape.images):
        begin, end = shared.groups.first[n], shared.groups.first[n + 1]
        for row in range(shape.height + 1):
            memory[row] = 0
        for m in range(begin, end):
            unsorted[m] = order[m]
            memory[shared.tables[2 * order[m] * TABLE_WORDS + LOW] + 1] += 1
        for row in range(shape.height):
            memory[row + 1] += memory[row]
        for m in range(begin, end):
            row = shared.tables[2 * unsorted[m] * TABLE_WORDS + LOW]
            order[begin + memory[row]] = unsorted[m]
            memory[row] += 1
    release(memory)
    return True


@compiled
def slide(
    pack: Pack,
    channels: Elements,
    placed: PlacedRois,
    lanes: int,
    lines: int,
    end: int,
    low: int,
    high: int,
    panel: Elements,
) -> int:
    """Pack rows so that the panel of `lines` rows holds low:high; row i is row i % lines of the panel.

    `pack` is the address of the function; `channels` is the first pixel of a panel's first channel. The rows before `end`
    have been packed or left out. The result is the new end.
    """
    shape = placed.shape
    end = maximum(end, low)
    while end < high:
        at = end % lines
        count = minimum(high - end, lines - at)
        source, target = offset(channels, end * shape.width), offset(panel, at * shape.width * LANES)
        plane = shape.height * shape.width * shape.interleaved
        call(pack, (source, plane, lanes, shape.width, count, shape.width, target))
        end += count
    return end


@compiled
def rows_of_panel(rows: Table, low: int, lines: int, copy: Words) -> Table:
    """Make a copy of a table of the rows from `low` on, whose numbers are those in the panel."""
    start, place, wrap = int64_pointer(rows[START]), int64_pointer(rows[PLACE]), low // lines * lines
    numbers = offset(copy, TABLE_WORDS)
    for i in range(TABLE_WORDS):
        copy[i] = rows[i]
    copy[PLACE] = address_of(numbers)
    for i in range(start[rows[BINS]]):
        at = place[i] - wrap
        numbers[i] = at if at < lines else at - lines
    return copy
