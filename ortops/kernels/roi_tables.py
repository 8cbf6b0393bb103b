"""The tables of all RoIs, made once for all channels: of many RoIs they take longer than the sums of LANES channels."""

from __future__ import annotations

from typing import Any, NamedTuple

from ortops.kernels.axis import axis_of
from ortops.kernels.jit.compile import inner
from ortops.kernels.jit.parallel import allocate, parallel_for, release
from ortops.kernels.jit.scalar import address_of, bytes_of, doubles_at, int64s_at, maximum, minimum, numbers_at, offset
from ortops.kernels.layout import Placed
from ortops.kernels.schedule import Plan, Window, is_packed, window_of
from ortops.kernels.tables import Table, fill_runs

MOST_BYTES = 16 << 20
"""Larger tables are made by each worker for itself, one RoI at a time."""

BLOCK = 16
"""RoIs of a task that fills tables."""


class RoiTables(NamedTuple):
    """The tables along one axis, one for each slot.

    first [slots] is where the entries of a slot begin. start [slots, bins + 1], inside [slots, bins]; the rest are lists of
    the entries of all slots, where near and far are empty if they are not wanted; runs are no more than the entries.
    """

    first: Any
    start: Any
    inside: Any
    pixel: Any
    weight: Any
    near: Any
    far: Any
    runs: Any


class Groups(NamedTuple):
    """The RoIs of each image: those of image n are order[first[n]:first[n + 1]], ascending."""

    order: Any
    first: Any


class Shared(NamedTuple):
    """What all tasks share.

    failed: a flag for a worker that finds no memory.
    rows, columns: the tables along y and along x.
    is_filled: whether each RoI has a slot of its own, which is filled; else each worker has one, and fills it.
    has_runs: whether tables along x have runs.
    groups: filled where units of the plan are images.
    """

    failed: Any
    rows: RoiTables
    columns: RoiTables
    is_filled: bool
    has_runs: bool
    groups: Groups


@inner
def share(
    placed: Placed, plan: Plan, context: int, like: Any, each: int, extra: int, has_slopes: bool, fill: Any
) -> Any:
    """Make the tables of all RoIs, and group them by image.

    Args:
        placed: the RoIs.
        plan: of the work to come.
        context: of the plan's runner.
        like: a pointer to elements that are computed in the type of the weights.
        each: entries for each pixel of a bin: 1, or 3 for candidates.
        extra: how many of near and far a table has.
        has_slopes: whether derivatives are wanted.
        fill: what fills a table.

    Returns:
        The memory to release, null where there is none left, and what is shared.
    """
    rooms, most = (0, 0), (0, 0)
    for r in range(placed.shape.rois):
        tall, wide = _entries(placed, r, 0, each), _entries(placed, r, 1, each)
        rooms = rooms[0] + tall, rooms[1] + wide
        most = maximum(most[0], tall), maximum(most[1], wide)
    slots, is_filled = placed.shape.rois, True
    # The end of what begins at address 0 is its length.
    memory = int64s_at(0)
    end = _carve(memory, placed, slots, rooms, each, extra, like, is_filled)[0]
    if address_of(end) > MOST_BYTES:
        slots, is_filled, rooms = plan.workers, False, (plan.workers * most[0], plan.workers * most[1])
        end = _carve(memory, placed, slots, rooms, each, extra, like, is_filled)[0]
    memory = allocate(address_of(end) // 8)
    _, shared = _carve(memory, placed, slots, rooms, each, extra, like, is_filled)
    if address_of(memory) != 0:
        shared.failed[0] = 0
        if plan.is_by_image:
            group_by_image(shared.groups, placed)
        for k in range(2):
            first, at = shared.columns.first if k else shared.rows.first, 0
            for slot in range(slots):
                first[slot] = at
                at += _entries(placed, slot, k, each) if is_filled else most[k]
        if is_filled:
            tasks = (placed.shape.rois + BLOCK - 1) // BLOCK
            if not parallel_for(plan.runner, context, tasks, _fill_task, (placed, shared, has_slopes, fill)):
                release(memory)
                memory = int64s_at(0)
    return memory, shared


@inner
def _entries(placed: Placed, r: int, k: int, each: int) -> int:
    """The most entries of the table of RoI r along an axis.

    Neighbouring bins share at most two pixels. Of candidates there are one at each pixel, two between pixels, one off each
    end of the map, and two more for each cell that a new bin cuts in two.
    """
    bins = placed.shape.bins_x if k else placed.shape.bins_y
    return each * placed.spans[2 * r + k] + 2 * bins + 2


@inner
def _carve(
    memory: Any, placed: Placed, slots: int, rooms: Any, each: int, extra: int, like: Any, is_filled: bool
) -> Any:
    """What is shared, laid out in memory; and the memory behind it."""
    rows, end = _carve_tables(offset(memory, 1), slots, placed.shape.bins_y, rooms[0], extra, like)
    columns, end = _carve_tables(end, slots, placed.shape.bins_x, rooms[1], extra, like)
    first = offset(end, placed.shape.rois)
    groups = Groups(end, first)
    return offset(first, placed.shape.images + 1), Shared(memory, rows, columns, is_filled, each == 1, groups)


@inner
def _carve_tables(memory: Any, slots: int, bins: int, entries: int, extra: int, like: Any) -> Any:
    start = offset(memory, slots)
    inside = offset(start, slots * (bins + 1))
    pixel = offset(inside, slots * bins)
    runs = offset(pixel, entries)
    weight = offset(runs, entries)
    words = (entries * bytes_of(numbers_at(memory, like)) + 7) // 8
    near = offset(weight, words)
    far = offset(near, words if extra > 0 else 0)
    end = offset(far, words if extra > 1 else 0)
    lists = numbers_at(weight, like), numbers_at(near, like), numbers_at(far, like)
    return RoiTables(memory, start, doubles_at(inside), pixel, lists[0], lists[1], lists[2], runs), end


@inner
def group_by_image(groups: Groups, placed: Placed) -> None:
    """Sort the RoIs by image."""
    first, images = groups.first, placed.shape.images
    for n in range(images + 1):
        first[n] = 0
    for r in range(placed.shape.rois):
        first[placed.images[r]] += 1
    at = 0
    for n in range(images + 1):
        count = first[n]
        first[n] = at
        at += count
    for r in range(placed.shape.rois):
        groups.order[first[placed.images[r]]] = r
        first[placed.images[r]] += 1
    # Each is where its RoIs end by now, and where those of the next one begin.
    for k in range(images):
        first[images - k] = first[images - k - 1]
    first[0] = 0


@inner
def _fill_task(placed: Placed, shared: Shared, has_slopes: bool, fill: Any, task: int) -> None:
    """Fill the tables of BLOCK RoIs."""
    for r in range(task * BLOCK, minimum((task + 1) * BLOCK, placed.shape.rois)):
        for k in range(2):
            _fill(placed, shared, r, r, k, has_slopes, fill)


@inner
def _fill(placed: Placed, shared: Shared, slot: int, r: int, k: int, has_slopes: bool, fill: Any) -> None:
    shape, tables = placed.shape, shared.columns if k else shared.rows
    bins, length = (shape.bins_x, shape.width) if k else (shape.bins_y, shape.height)
    table = _slot(tables, slot, bins)
    fill(axis_of(placed.axes, r, k, bins), length, has_slopes, tables.first[slot], table)
    if k and shared.has_runs:
        fill_runs(table)


@inner
def _slot(tables: RoiTables, slot: int, bins: int) -> Table:
    start, inside = offset(tables.start, slot * (bins + 1)), offset(tables.inside, slot * bins)
    runs = offset(tables.runs, tables.first[slot])
    return Table(bins, start, inside, tables.pixel, tables.weight, tables.near, tables.far, runs)


@inner
def tables_of(placed: Placed, shared: Shared, worker: int, r: int, has_slopes: bool, fill: Any) -> tuple[Table, Table]:
    """The tables of RoI r along y and along x; those of a worker are filled first."""
    slot = r
    if not shared.is_filled:
        slot = worker
        for k in range(2):
            _fill(placed, shared, slot, r, k, has_slopes, fill)
    shape = placed.shape
    return _slot(shared.rows, slot, shape.bins_y), _slot(shared.columns, slot, shape.bins_x)


class Unit(NamedTuple):
    """What a task works on: the RoIs begin:end of an image, in the order of its group, or one RoI.

    window: the part of the map that is packed. packs: whether it is.
    """

    image: int
    begin: int
    end: int
    window: Window
    packs: bool


@inner
def unit_of(
    placed: Placed, plan: Plan, shared: Shared, worker: int, unit: int, has_slopes: bool, fill: Any, span: Any
) -> Unit:
    """A unit of the plan; `span` tells which pixels a table reads."""
    shape = placed.shape
    if plan.is_by_image:
        begin, end = shared.groups.first[unit], shared.groups.first[unit + 1]
        return Unit(unit, begin, end, Window(0, 0, shape.height, shape.width), begin < end)
    rows, columns = tables_of(placed, shared, worker, unit, has_slopes, fill)
    window = window_of(span(rows), span(columns), shape.width)
    return Unit(placed.images[unit], unit, unit + 1, window, is_packed(window, shape.channels))
