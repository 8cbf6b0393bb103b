"""The tables of all RoIs, filled once for all channels: for many RoIs that takes longer than pooling LANES channels.

`share` and `fill` are compiled once, for all operators and types; the others call them by their addresses.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ortops.kernels.axis import axis_of
from ortops.kernels.jit.compile import compiled
from ortops.kernels.jit.parallel import allocate, call, parallel_for, release
from ortops.kernels.jit.scalar import address_of, float64_pointer, int64_pointer, maximum, minimum, offset
from ortops.kernels.layout import CANDIDATES, EXTREMES, PIXELS, WEIGHTS, Doubles, Elements, Form, PlacedRois, Words
from ortops.kernels.pixel_bins import fill_pixel_bins
from ortops.kernels.schedule import Plan, Window, make_window, should_pack_window
from ortops.kernels.tables import (
    Table,
    fill_candidates,
    fill_extremes,
    fill_ranges,
    fill_weights,
    span_of,
    span_of_candidates,
)

MAX_TABLE_BYTES = 16 << 20
"""The most bytes of shared tables. If they would be larger, each worker fills its own, for one RoI at a time."""

ROIS_PER_TASK = 16
"""The number of RoIs of a task that fills tables."""


class RoiTables(NamedTuple):
    """The tables along one axis, one for each slot; see `tables.Table` for the fields.

    first [slots] has the first entry of each slot, start is [slots, bins + 1] and inside [slots, bins]. The other arrays
    have the entries of all slots one after the other; near and far are empty unless the form has them.
    """

    first: Words
    start: Words
    inside: Doubles
    pixel: Words
    weight: Elements
    near: Elements
    far: Elements
    ranges: Words


class Groups(NamedTuple):
    """The RoIs grouped by image: those of image n are order[first[n]:first[n + 1]].

    They are in ascending order, or in that of their first rows after `sliding.sort_by_first_row`.
    """

    order: Words
    first: Words


class SharedTables(NamedTuple):
    """The memory that all tasks share.

    failed: a flag that a worker sets if it cannot allocate memory.
    rows, columns: the tables along y and along x.
    is_filled: whether each RoI has a slot, which is filled already; otherwise each worker has a slot, which it fills.
    groups: the RoIs by image; filled only if the plan is by image.
    """

    failed: Words
    rows: RoiTables
    columns: RoiTables
    is_filled: bool
    groups: Groups


@compiled
def share_tables(placed: PlacedRois, plan: Plan, context: int, form: Form) -> Any:
    """Fill the tables of all RoIs, and group the RoIs by image.

    Args:
        placed: the RoIs with their samples.
        plan: the plan of the tasks that will use the tables.
        context: the context of the plan's runner.
        form: what the tables hold.

    Returns:
        The memory to release, a null pointer if there is none left; and the `SharedTables` in it.
    """
    memory = int64_pointer(call(form.planning.share, (placed, plan, context, form)))
    return memory, _tables_in(memory, placed, plan, form)[1]


@compiled
def share(placed: PlacedRois, plan: Plan, context: int, form: Form) -> int:
    """`share_tables` as a C function; the result is the address of the memory or 0."""
    size = address_of(_tables_in(int64_pointer(0), placed, plan, form)[0])  # the end of what is laid out from 0 on
    memory = allocate(size // 8)
    _, shared = _tables_in(memory, placed, plan, form)
    if address_of(memory) != 0:
        shared.failed[0] = 0
        if plan.is_by_image:
            group_by_image(shared.groups, placed)
        _, largest = _count_entries(placed, form)
        slots = placed.shape.rois if shared.is_filled else plan.workers
        for k in range(2):
            first, at = shared.columns.first if k else shared.rows.first, 0
            for slot in range(slots):
                first[slot] = at
                at += _entries(placed, slot, k, form) if shared.is_filled else largest[k]
        if shared.is_filled:
            tasks = (placed.shape.rois + ROIS_PER_TASK - 1) // ROIS_PER_TASK
            if not parallel_for(plan.runner, context, tasks, _fill_task, (placed, shared, form)):
                release(memory)
                memory = int64_pointer(0)
    return address_of(memory)


@compiled
def fits_in_shared_tables(placed: PlacedRois, form: Form) -> bool:
    """Whether `share_tables` fills all tables once; otherwise each task fills those that it uses."""
    counts, _ = _count_entries(placed, form)
    end, _ = _lay_out(int64_pointer(0), placed, placed.shape.rois, counts, form, True)
    return address_of(end) <= MAX_TABLE_BYTES


@compiled
def _tables_in(memory: Any, placed: PlacedRois, plan: Plan, form: Form) -> Any:
    """The end of the memory and the tables in it."""
    counts, largest = _count_entries(placed, form)
    slots, is_filled = placed.shape.rois, fits_in_shared_tables(placed, form)
    if not is_filled:
        slots, counts = plan.workers, (plan.workers * largest[0], plan.workers * largest[1])
    return _lay_out(memory, placed, slots, counts, form, is_filled)


@compiled
def _count_entries(placed: PlacedRois, form: Form) -> Any:
    """The most entries of all tables together, along y and along x, and of the largest ones."""
    counts, largest = (0, 0), (0, 0)
    for r in range(placed.shape.rois):
        tall, wide = _entries(placed, r, 0, form), _entries(placed, r, 1, form)
        counts, largest = (counts[0] + tall, counts[1] + wide), (maximum(largest[0], tall), maximum(largest[1], wide))
    return counts, largest


@compiled
def _entries(placed: PlacedRois, r: int, k: int, form: Form) -> int:
    """The most entries of RoI r's table along an axis.

    Neighbouring bins share at most two pixels. There is one candidate at each pixel, two between pixels, one off each end of
    the map, and two more for each interval between pixels that a bin's border splits.
    """
    bins = placed.shape.bins_x if k else placed.shape.bins_y
    return (3 if form.kind == CANDIDATES else 1) * placed.spans[2 * r + k] + 2 * bins + 2


@compiled
def _lay_out(memory: Any, placed: PlacedRois, slots: int, counts: Any, form: Form, is_filled: bool) -> Any:
    """Lay out the shared tables in memory; the memory's end and the tables."""
    rows, end = _lay_out_tables(offset(memory, 1), slots, placed.shape.bins_y, counts[0], form)
    columns, end = _lay_out_tables(end, slots, placed.shape.bins_x, counts[1], form)
    first = offset(end, placed.shape.rois)
    shared = SharedTables(memory, rows, columns, is_filled, Groups(end, first))
    return offset(first, placed.shape.images + 1), shared


@compiled
def _lay_out_tables(memory: Any, slots: int, bins: int, entries: int, form: Form) -> Any:
    start = offset(memory, slots)
    inside = offset(start, slots * (bins + 1))
    pixel = offset(inside, slots * bins)
    ranges = offset(pixel, entries)
    weight = offset(ranges, entries)
    # FLOAT and DOUBLE take 4 and 8 bytes.
    words = (entries * (1 << form.numbers) + 7) // 8
    near = offset(weight, words)
    far = offset(near, words if form.with_grad or form.kind == EXTREMES else 0)
    end = offset(far, words if form.with_grad else 0)
    lists = _numbers(weight, form), _numbers(near, form), _numbers(far, form)
    return RoiTables(memory, start, float64_pointer(inside), pixel, lists[0], lists[1], lists[2], ranges), end


@compiled
def _numbers(pointer: Any, form: Form) -> Elements:
    return Elements(address_of(pointer), form.numbers)


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
def _fill_task(placed: PlacedRois, shared: SharedTables, form: Form, task: int) -> None:
    """Fill the tables of ROIS_PER_TASK RoIs."""
    for r in range(task * ROIS_PER_TASK, minimum((task + 1) * ROIS_PER_TASK, placed.shape.rois)):
        call(form.planning.fill, (placed, shared, form, r, r))


@compiled
def fill(placed: PlacedRois, shared: SharedTables, form: Form, slot: int, r: int) -> int:
    """Fill the tables of RoI r in a slot; also a C function."""
    shape = placed.shape
    for k in range(2):
        tables = shared.columns if k else shared.rows
        bins, length = (shape.bins_x, shape.width) if k else (shape.bins_y, shape.height)
        table, axis, first = _slot(tables, slot, bins), axis_of(placed.axes, r, k, bins), tables.first[slot]
        if form.kind == WEIGHTS:
            fill_weights(axis, length, form.with_grad, first, table)
        elif form.kind == EXTREMES:
            fill_extremes(axis, length, first, table)
        elif form.kind == PIXELS:
            fill_pixel_bins(axis, length, first, table)
        else:
            fill_candidates(axis, length, form.with_grad, first, table)
        if k and form.kind != CANDIDATES:
            fill_ranges(table)
    return 0


@compiled
def _slot(tables: RoiTables, slot: int, bins: int) -> Table:
    start, inside = offset(tables.start, slot * (bins + 1)), offset(tables.inside, slot * bins)
    ranges = offset(tables.ranges, tables.first[slot])
    return Table(bins, start, inside, tables.pixel, tables.weight, tables.near, tables.far, ranges)


@compiled
def tables_of(placed: PlacedRois, shared: SharedTables, form: Form, worker: int, r: int) -> tuple[Table, Table]:
    """The tables of RoI r along y and along x, filled first if each worker has its own."""
    slot = r
    if not shared.is_filled:
        slot = worker
        call(form.planning.fill, (placed, shared, form, slot, r))
    shape = placed.shape
    return _slot(shared.rows, slot, shape.bins_y), _slot(shared.columns, slot, shape.bins_x)


@compiled
def span(form: Form, table: Table) -> tuple[int, int]:
    """The span [low, high) of the pixels that a table reads."""
    return span_of_candidates(table) if form.kind == CANDIDATES else span_of(table)


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
def work_item(placed: PlacedRois, plan: Plan, shared: SharedTables, form: Form, worker: int, item: int) -> WorkItem:
    """Item number `item` of the plan."""
    shape = placed.shape
    if plan.is_by_image:
        begin, end = shared.groups.first[item], shared.groups.first[item + 1]
        return WorkItem(item, begin, end, Window(0, 0, shape.height, shape.width), begin < end)
    rows, columns = tables_of(placed, shared, form, worker, item)
    window = make_window(span(form, rows), span(form, columns), shape.width)
    return WorkItem(placed.batch_indices[item], item, item + 1, window, should_pack_window(window, shape.channels))
