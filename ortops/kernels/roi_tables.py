"""The tables of all RoIs, filled once for all channels: for many RoIs that takes longer than pooling LANES channels."""

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
"""The most bytes of shared tables. If they would be larger, each worker fills its own, for one RoI at a time."""

ROIS_PER_TASK = 16
"""The number of RoIs of a task that fills tables."""


class RoiTables(NamedTuple):
    """The tables along one axis, one for each slot; see `tables.Table` for the fields.

    first [slots] has the first entry of each slot, start is [slots, bins + 1] and inside [slots, bins]. The other arrays
    have the entries of all slots one after the other; near and far are empty unless they are asked for.
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
    """The RoIs grouped by image: those of image n are order[first[n]:first[n + 1]].

    They are in ascending order, or in that of their first rows after `sliding.sort_by_first_row`.
    """

    order: Any
    first: Any


class SharedTables(NamedTuple):
    """The memory that all tasks share.

    failed: a flag that a worker sets if it cannot allocate memory.
    rows, columns: the tables along y and along x.
    is_filled: whether each RoI has a slot, which is filled already; otherwise each worker has a slot, which it fills.
    has_ranges: whether the tables along x have ranges.
    groups: the RoIs by image; filled only if the plan is by image.
    """

    failed: Any
    rows: RoiTables
    columns: RoiTables
    is_filled: bool
    has_ranges: bool
    groups: Groups


@compiled
def share_tables(
    placed: PlacedRois, plan: Plan, context: int, like: Any, per_pixel: int, extras: int, with_grad: bool, fill: Any
) -> Any:
    """Fill the tables of all RoIs, and group the RoIs by image.

    Args:
        placed: the RoIs with their samples.
        plan: the plan of the tasks that will use the tables.
        context: the context of the plan's runner.
        like: a pointer to elements whose compute type is the type of the weights.
        per_pixel: the most entries for each pixel of a bin: 1, or 3 for candidates.
        extras: 0, 1 if a table has near, or 2 if it also has far.
        with_grad: whether to fill in derivatives.
        fill: the function that fills a table.

    Returns:
        The memory to release, a null pointer if there is none left; and the `SharedTables` in it.
    """
    entry_counts, largest = _count_entries(placed, per_pixel)
    slots, is_filled = placed.shape.rois, fits_in_shared_tables(placed, like, per_pixel, extras)
    if not is_filled:
        slots, entry_counts = plan.workers, (plan.workers * largest[0], plan.workers * largest[1])
    size = _size_of_tables(placed, slots, entry_counts, per_pixel, extras, like, is_filled)
    memory = allocate(size // 8)
    _, shared = _lay_out(memory, placed, slots, entry_counts, per_pixel, extras, like, is_filled)
    if address_of(memory) != 0:
        shared.failed[0] = 0
        if plan.is_by_image:
            group_by_image(shared.groups, placed)
        for k in range(2):
            first, at = shared.columns.first if k else shared.rows.first, 0
            for slot in range(slots):
                first[slot] = at
                at += _entries(placed, slot, k, per_pixel) if is_filled else largest[k]
        if is_filled:
            tasks = (placed.shape.rois + ROIS_PER_TASK - 1) // ROIS_PER_TASK
            if not parallel_for(plan.runner, context, tasks, _fill_task, (placed, shared, with_grad, fill)):
                release(memory)
                memory = int64_pointer(0)
    return memory, shared


@compiled
def fits_in_shared_tables(placed: PlacedRois, like: Any, per_pixel: int, extras: int) -> bool:
    """Whether `share_tables` fills all tables once; otherwise each task fills those that it uses."""
    counts, _ = _count_entries(placed, per_pixel)
    return _size_of_tables(placed, placed.shape.rois, counts, per_pixel, extras, like, True) <= MAX_TABLE_BYTES


@compiled
def _size_of_tables(
    placed: PlacedRois, slots: int, entry_counts: Any, per_pixel: int, extras: int, like: Any, is_filled: bool
) -> int:
    # Laid out from address 0 on, the end's address is the size.
    return address_of(_lay_out(int64_pointer(0), placed, slots, entry_counts, per_pixel, extras, like, is_filled)[0])


@compiled
def _count_entries(placed: PlacedRois, per_pixel: int) -> Any:
    """The most entries of all tables together, along y and along x, and of the largest ones."""
    counts, largest = (0, 0), (0, 0)
    for r in range(placed.shape.rois):
        tall, wide = _entries(placed, r, 0, per_pixel), _entries(placed, r, 1, per_pixel)
        counts, largest = (counts[0] + tall, counts[1] + wide), (maximum(largest[0], tall), maximum(largest[1], wide))
    return counts, largest


@compiled
def _entries(placed: PlacedRois, r: int, k: int, per_pixel: int) -> int:
    """The most entries of RoI r's table along an axis.

    Neighbouring bins share at most two pixels. There is one candidate at each pixel, two between pixels, one off each end of
    the map, and two more for each interval between pixels that a bin's border splits.
    """
    bins = placed.shape.bins_x if k else placed.shape.bins_y
    return per_pixel * placed.spans[2 * r + k] + 2 * bins + 2


@compiled
def _lay_out(
    memory: Any,
    placed: PlacedRois,
    slots: int,
    entry_counts: Any,
    per_pixel: int,
    extras: int,
    like: Any,
    is_filled: bool,
) -> Any:
    """Lay out the shared tables in memory; the memory's end and the tables."""
    rows, end = _lay_out_tables(offset(memory, 1), slots, placed.shape.bins_y, entry_counts[0], extras, like)
    columns, end = _lay_out_tables(end, slots, placed.shape.bins_x, entry_counts[1], extras, like)
    first = offset(end, placed.shape.rois)
    groups = Groups(end, first)
    return offset(first, placed.shape.images + 1), SharedTables(
        memory, rows, columns, is_filled, per_pixel == 1, groups
    )


@compiled
def _lay_out_tables(memory: Any, slots: int, bins: int, entries: int, extras: int, like: Any) -> Any:
    start = offset(memory, slots)
    inside = offset(start, slots * (bins + 1))
    pixel = offset(inside, slots * bins)
    ranges = offset(pixel, entries)
    weight = offset(ranges, entries)
    words = (entries * itemsize(compute_pointer(memory, like)) + 7) // 8
    near = offset(weight, words)
    far = offset(near, words if extras > 0 else 0)
    end = offset(far, words if extras > 1 else 0)
    lists = compute_pointer(weight, like), compute_pointer(near, like), compute_pointer(far, like)
    return RoiTables(memory, start, float64_pointer(inside), pixel, lists[0], lists[1], lists[2], ranges), end


@compiled
def group_by_image(groups: Groups, placed: PlacedRois) -> None:
    """Fill the groups: sort the RoIs by image, keeping their order within an image."""
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
    # first[n] is now the end of image n's RoIs: shift by one.
    for k in range(images):
        first[images - k] = first[images - k - 1]
    first[0] = 0


@compiled
def _fill_task(placed: PlacedRois, shared: SharedTables, with_grad: bool, fill: Any, task: int) -> None:
    """Fill the tables of ROIS_PER_TASK RoIs."""
    for r in range(task * ROIS_PER_TASK, minimum((task + 1) * ROIS_PER_TASK, placed.shape.rois)):
        for k in range(2):
            _fill(placed, shared, r, r, k, with_grad, fill)


@compiled
def _fill(placed: PlacedRois, shared: SharedTables, slot: int, r: int, k: int, with_grad: bool, fill: Any) -> None:
    shape, tables = placed.shape, shared.columns if k else shared.rows
    bins, length = (shape.bins_x, shape.width) if k else (shape.bins_y, shape.height)
    table = _slot(tables, slot, bins)
    fill(axis_of(placed.axes, r, k, bins), length, with_grad, tables.first[slot], table)
    if k and shared.has_ranges:
        fill_ranges(table)


@compiled
def _slot(tables: RoiTables, slot: int, bins: int) -> Table:
    start, inside = offset(tables.start, slot * (bins + 1)), offset(tables.inside, slot * bins)
    ranges = offset(tables.ranges, tables.first[slot])
    return Table(bins, start, inside, tables.pixel, tables.weight, tables.near, tables.far, ranges)


@compiled
def tables_of(
    placed: PlacedRois, shared: SharedTables, worker: int, r: int, with_grad: bool, fill: Any
) -> tuple[Table, Table]:
    """The tables of RoI r along y and along x, filled first if each worker has its own."""
    slot = r
    if not shared.is_filled:
        slot = worker
        for k in range(2):
            _fill(placed, shared, slot, r, k, with_grad, fill)
    shape = placed.shape
    return _slot(shared.rows, slot, shape.bins_y), _slot(shared.columns, slot, shape.bins_x)


class WorkItem(NamedTuple):
    """The RoIs of a task: begin:end in the order of `Groups` for an image, or one RoI.

    window: the part of the map to pack.
    packs: whether to pack it.
    """

    image: int
    begin: int
    end: int
    window: Window
    packs: bool


@compiled
def work_item(
    placed: PlacedRois, plan: Plan, shared: SharedTables, worker: int, item: int, with_grad: bool, fill: Any, span: Any
) -> WorkItem:
    """Item number `item` of the plan; `span` returns the pixels that a table reads."""
    shape = placed.shape
    if plan.is_by_image:
        begin, end = shared.groups.first[item], shared.groups.first[item + 1]
        return WorkItem(item, begin, end, Window(0, 0, shape.height, shape.width), begin < end)
    rows, columns = tables_of(placed, shared, worker, item, with_grad, fill)
    window = make_window(span(rows), span(columns), shape.width)
    return WorkItem(placed.batch_indices[item], item, item + 1, window, should_pack_window(window, shape.channels))
