"""The tables of all RoIs, made once for all channels: of many RoIs they take longer than the sums of LANES channels."""

from __future__ import annotations

from typing import Any, NamedTuple

from ortops.kernels.axis import axis_of
from ortops.kernels.jit.compile import compiled
from ortops.kernels.jit.parallel import allocate, parallel_for, release
from ortops.kernels.jit.scalar import (
    address_of,
    compute_pointer,
    float64_pointer,
    int64_pointer,
    itemsize,
    maximum,
    minimum,
    offset,
)
from ortops.kernels.layout import PlacedRois
from ortops.kernels.schedule import Plan, Window, make_window, should_pack_window
from ortops.kernels.tables import Table, fill_ranges

MAX_TABLE_BYTES = 16 << 20
"""Larger tables are made by each worker for itself, one RoI at a time."""

ROIS_PER_TASK = 16
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
    ranges: Any


class Groups(NamedTuple):
    """The RoIs of each image: those of image n are order[first[n]:first[n + 1]], ascending."""

    order: Any
    first: Any


class SharedTables(NamedTuple):
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
    has_ranges: bool
    groups: Groups


@compiled
def make_shared_tables(
    placed: PlacedRois,
    plan: Plan,
    context: int,
    like: Any,
    entries_per_pixel: int,
    extra_lists: int,
    has_derivatives: bool,
    fill: Any,
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
    entry_counts, largest = (0, 0), (0, 0)
    for r in range(placed.shape.rois):
        tall, wide = _entries(placed, r, 0, entries_per_pixel), _entries(placed, r, 1, entries_per_pixel)
        entry_counts = entry_counts[0] + tall, entry_counts[1] + wide
        largest = maximum(largest[0], tall), maximum(largest[1], wide)
    slots, is_filled = placed.shape.rois, True
    # The end of what begins at address 0 is its length.
    memory = int64_pointer(0)
    end = _lay_out(memory, placed, slots, entry_counts, entries_per_pixel, extra_lists, like, is_filled)[0]
    if address_of(end) > MAX_TABLE_BYTES:
        slots, is_filled, entry_counts = plan.workers, False, (plan.workers * largest[0], plan.workers * largest[1])
        end = _lay_out(memory, placed, slots, entry_counts, entries_per_pixel, extra_lists, like, is_filled)[0]
    memory = allocate(address_of(end) // 8)
    _, shared = _lay_out(memory, placed, slots, entry_counts, entries_per_pixel, extra_lists, like, is_filled)
    if address_of(memory) != 0:
        shared.failed[0] = 0
        if plan.is_by_image:
            group_by_image(shared.groups, placed)
        for k in range(2):
            first, at = shared.columns.first if k else shared.rows.first, 0
            for slot in range(slots):
                first[slot] = at
                at += _entries(placed, slot, k, entries_per_pixel) if is_filled else largest[k]
        if is_filled:
            tasks = (placed.shape.rois + ROIS_PER_TASK - 1) // ROIS_PER_TASK
            if not parallel_for(plan.runner, context, tasks, _fill_task, (placed, shared, has_derivatives, fill)):
                release(memory)
                memory = int64_pointer(0)
    return memory, shared


@compiled
def _entries(placed: PlacedRois, r: int, k: int, entries_per_pixel: int) -> int:
    """The most entries of the table of RoI r along an axis.

    Neighbouring bins share at most two pixels. Of candidates there are one at each pixel, two between pixels, one off each
    end of the map, and two more for each cell that a new bin cuts in two.
    """
    bins = placed.shape.bins_x if k else placed.shape.bins_y
    return entries_per_pixel * placed.spans[2 * r + k] + 2 * bins + 2


@compiled
def _lay_out(
    memory: Any,
    placed: PlacedRois,
    slots: int,
    entry_counts: Any,
    entries_per_pixel: int,
    extra_lists: int,
    like: Any,
    is_filled: bool,
) -> Any:
    """What is shared, laid out in memory; and the memory behind it."""
    rows, end = _lay_out_tables(offset(memory, 1), slots, placed.shape.bins_y, entry_counts[0], extra_lists, like)
    columns, end = _lay_out_tables(end, slots, placed.shape.bins_x, entry_counts[1], extra_lists, like)
    first = offset(end, placed.shape.rois)
    groups = Groups(end, first)
    return offset(first, placed.shape.images + 1), SharedTables(
        memory, rows, columns, is_filled, entries_per_pixel == 1, groups
    )


@compiled
def _lay_out_tables(memory: Any, slots: int, bins: int, entries: int, extra_lists: int, like: Any) -> Any:
    start = offset(memory, slots)
    inside = offset(start, slots * (bins + 1))
    pixel = offset(inside, slots * bins)
    ranges = offset(pixel, entries)
    weight = offset(ranges, entries)
    words = (entries * itemsize(compute_pointer(memory, like)) + 7) // 8
    near = offset(weight, words)
    far = offset(near, words if extra_lists > 0 else 0)
    end = offset(far, words if extra_lists > 1 else 0)
    lists = compute_pointer(weight, like), compute_pointer(near, like), compute_pointer(far, like)
    return RoiTables(memory, start, float64_pointer(inside), pixel, lists[0], lists[1], lists[2], ranges), end


@compiled
def group_by_image(groups: Groups, placed: PlacedRois) -> None:
    """Sort the RoIs by image."""
    first, images = groups.first, placed.shape.images
    for n in range(images + 1):
        first[n] = 0
    for r in range(placed.shape.rois):
        first[placed.batch_indices[r]] += 1
    at = 0
    for n in range(images + 1):
        count = first[n]
        first[n] = at
        at += count
    for r in range(placed.shape.rois):
        groups.order[first[placed.batch_indices[r]]] = r
        first[placed.batch_indices[r]] += 1
    # Each is where its RoIs end by now, and where those of the next one begin.
    for k in range(images):
        first[images - k] = first[images - k - 1]
    first[0] = 0


@compiled
def _fill_task(placed: PlacedRois, shared: SharedTables, has_derivatives: bool, fill: Any, task: int) -> None:
    """Fill the tables of BLOCK RoIs."""
    for r in range(task * ROIS_PER_TASK, minimum((task + 1) * ROIS_PER_TASK, placed.shape.rois)):
        for k in range(2):
            _fill(placed, shared, r, r, k, has_derivatives, fill)


@compiled
def _fill(
    placed: PlacedRois, shared: SharedTables, slot: int, r: int, k: int, has_derivatives: bool, fill: Any
) -> None:
    shape, tables = placed.shape, shared.columns if k else shared.rows
    bins, length = (shape.bins_x, shape.width) if k else (shape.bins_y, shape.height)
    table = _slot(tables, slot, bins)
    fill(axis_of(placed.axes, r, k, bins), length, has_derivatives, tables.first[slot], table)
    if k and shared.has_ranges:
        fill_ranges(table)


@compiled
def _slot(tables: RoiTables, slot: int, bins: int) -> Table:
    start, inside = offset(tables.start, slot * (bins + 1)), offset(tables.inside, slot * bins)
    ranges = offset(tables.ranges, tables.first[slot])
    return Table(bins, start, inside, tables.pixel, tables.weight, tables.near, tables.far, ranges)


@compiled
def tables_of(
    placed: PlacedRois, shared: SharedTables, worker: int, r: int, has_derivatives: bool, fill: Any
) -> tuple[Table, Table]:
    """The tables of RoI r along y and along x; those of a worker are filled first."""
    slot = r
    if not shared.is_filled:
        slot = worker
        for k in range(2):
            _fill(placed, shared, slot, r, k, has_derivatives, fill)
    shape = placed.shape
    return _slot(shared.rows, slot, shape.bins_y), _slot(shared.columns, slot, shape.bins_x)


class WorkItem(NamedTuple):
    """What a task works on: the RoIs begin:end of an image, in the order of its group, or one RoI.

    window: the part of the map that is packed. packs: whether it is.
    """

    image: int
    begin: int
    end: int
    window: Window
    packs: bool


@compiled
def work_item(
    placed: PlacedRois,
    plan: Plan,
    shared: SharedTables,
    worker: int,
    item: int,
    has_derivatives: bool,
    fill: Any,
    span: Any,
) -> WorkItem:
    """A unit of the plan; `span` tells which pixels a table reads."""
    shape = placed.shape
    if plan.is_by_image:
        begin, end = shared.groups.first[item], shared.groups.first[item + 1]
        return WorkItem(item, begin, end, Window(0, 0, shape.height, shape.width), begin < end)
    rows, columns = tables_of(placed, shared, worker, item, has_derivatives, fill)
    window = make_window(span(rows), span(columns), shape.width)
    return WorkItem(placed.batch_indices[item], item, item + 1, window, should_pack_window(window, shape.channels))
