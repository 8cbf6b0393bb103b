"""The tables of all RoIs, filled once for all channels: for many RoIs that takes longer than pooling LANES channels.

`share` and the functions that fill tables of a form are compiled once, for all operators and types; the others call them by
their addresses.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ortops.kernels.axis import axis_of
from ortops.kernels.jit.chunks import run_tasks
from ortops.kernels.jit.compile import compiled
from ortops.kernels.jit.parallel import allocate, call, release, task_of
from ortops.kernels.jit.scalar import address_of, float64_pointer, int64_pointer, maximum, minimum, offset
from ortops.kernels.layout import CANDIDATES, EXTREMES, Doubles, Elements, Form, PlacedRois, Slot, Words
from ortops.kernels.pixel_bins import fill_pixel_bins
from ortops.kernels.schedule import Plan, Window, make_window, should_pack_window
from ortops.kernels.tables import (
    candidates_in,
    extremes_in,
    fill_candidates,
    fill_extremes,
    fill_ranges,
    fill_weights,
    pixels_in,
    span_of_candidates,
    span_of_pixels,
    weights_in,
)

MAX_TABLE_BYTES = 16 << 20
"""The most bytes of shared tables. If they would be larger, each worker fills its own, for one RoI at a time."""

ROIS_PER_TASK = 16
"""The number of RoIs of a task that fills tables."""


class RoiTables(NamedTuple):
    """The tables along one axis, one for each slot; see `layout.Slot` for the fields.

    begin [slots] has the first entry of each slot, span is [slots, 2], start [slots, bins + 1] and inside [slots, bins]. The
    other arrays have the entries of all slots one after the other; second and third are empty unless the form has them.
    """

    begin: Words
    span: Words
    start: Words
    inside: Doubles
    place: Words
    first: Elements
    second: Elements
    third: Elements
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


class Sizes(NamedTuple):
    """The entries of the tables of all RoIs.

    rows, columns: the most entries of all tables together, along y and along x.
    most_rows, most_columns: those of the largest tables.
    fits: whether `share_tables` fills all tables once; otherwise each task fills those that it uses.
    """

    rows: int
    columns: int
    most_rows: int
    most_columns: int
    fits: bool


@compiled
def table_sizes(placed: PlacedRois, form: Form) -> Sizes:
    """Count the entries of the tables of all RoIs."""
    rows, columns, most_rows, most_columns = 0, 0, 0, 0
    for r in range(placed.shape.rois):
        tall, wide = _entries(placed, r, 0, form), _entries(placed, r, 1, form)
        rows, columns = rows + tall, columns + wide
        most_rows, most_columns = maximum(most_rows, tall), maximum(most_columns, wide)
    end, _ = _lay_out(int64_pointer(0), placed, placed.shape.rois, rows, columns, form, True)
    return Sizes(rows, columns, most_rows, most_columns, address_of(end) <= MAX_TABLE_BYTES)


@compiled
def _entries(placed: PlacedRois, r: int, k: int, form: Form) -> int:
    """The most entries of RoI r's table along an axis.

    Neighbouring bins share at most two pixels. There is one candidate at each pixel, two between pixels, one off each end of
    the map, and two more for each interval between pixels that a bin's border splits.
    """
    bins = placed.shape.bins_x if k else placed.shape.bins_y
    return (3 if form.kind == CANDIDATES else 1) * placed.spans[2 * r + k] + 2 * bins + 2


@compiled
def share_tables(placed: PlacedRois, plan: Plan, context: int, form: Form, sizes: Sizes) -> Any:
    """Fill the tables of all RoIs, and group the RoIs by image.

    Args:
        placed: the RoIs with their samples.
        plan: the plan of the tasks that will use the tables.
        context: the context of the plan's runner.
        form: what the tables hold.
        sizes: the result of `table_sizes`.

    Returns:
        The memory to release, a null pointer if there is none left; and the `SharedTables` in it.
    """
    memory = int64_pointer(call(form.planning.share, (placed, plan, context, form, sizes)))
    return memory, _tables_in(memory, placed, plan, form, sizes)[1]


@compiled
def share(placed: PlacedRois, plan: Plan, context: int, form: Form, sizes: Sizes) -> int:
    """`share_tables` as a C function; the result is the address of the memory or 0."""
    # The end of what is laid out from 0 on.
    size = address_of(_tables_in(int64_pointer(0), placed, plan, form, sizes)[0])
    memory = allocate(size // 8)
    _, shared = _tables_in(memory, placed, plan, form, sizes)
    if address_of(memory) != 0:
        shared.failed[0] = 0
        if plan.is_by_image:
            group_by_image(shared.groups, placed)
        for k in range(2):
            begin, at = shared.columns.begin if k else shared.rows.begin, 0
            for slot in range(placed.shape.rois if sizes.fits else plan.workers):
                begin[slot] = at
                most = sizes.most_columns if k else sizes.most_rows
                at += _entries(placed, slot, k, form) if sizes.fits else most
        if sizes.fits:
            tasks = (placed.shape.rois + ROIS_PER_TASK - 1) // ROIS_PER_TASK
            task, data = task_of(_fill_task, (placed, shared, form))
            if not run_tasks(plan.runner, context, tasks, task, data):
                release(memory)
                memory = int64_pointer(0)
    return address_of(memory)


@compiled
def _tables_in(memory: Any, placed: PlacedRois, plan: Plan, form: Form, sizes: Sizes) -> Any:
    """The end of the memory and the tables in it."""
    slots, rows, columns = placed.shape.rois, sizes.rows, sizes.columns
    if not sizes.fits:
        slots, rows, columns = plan.workers, plan.workers * sizes.most_rows, plan.workers * sizes.most_columns
    return _lay_out(memory, placed, slots, rows, columns, form, sizes.fits)


@compiled
def _lay_out(
    memory: Any, placed: PlacedRois, slots: int, most_rows: int, most_columns: int, form: Form, is_filled: bool
) -> Any:
    """Lay out the shared tables in memory; the memory's end and the tables."""
    rows, end = _lay_out_tables(offset(memory, 1), slots, placed.shape.bins_y, most_rows, form)
    columns, end = _lay_out_tables(end, slots, placed.shape.bins_x, most_columns, form)
    first = offset(end, placed.shape.rois)
    shared = SharedTables(memory, rows, columns, is_filled, Groups(end, first))
    return offset(first, placed.shape.images + 1), shared


@compiled
def _lay_out_tables(memory: Any, slots: int, bins: int, entries: int, form: Form) -> Any:
    span = offset(memory, slots)
    start = offset(span, 2 * slots)
    inside = offset(start, slots * (bins + 1))
    place = offset(inside, slots * bins)
    ranges = offset(place, entries)
    first = offset(ranges, entries)
    # FLOAT and DOUBLE take 4 and 8 bytes.
    words = (entries * (1 << form.numbers) + 7) // 8
    second = offset(first, words)
    third = offset(second, words if form.with_grad or form.kind == EXTREMES else 0)
    end = offset(third, words if form.with_grad else 0)
    numbers = form.numbers
    a, b, c = Elements(address_of(first), numbers), Elements(address_of(second), numbers), address_of(third)
    return RoiTables(memory, span, start, float64_pointer(inside), place, a, b, Elements(c, numbers), ranges), end


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
def _fill_task(placed: PlacedRois, shared: SharedTables, form: Form, _first: int, _last: int, task: int) -> None:
    """Fill the tables of ROIS_PER_TASK RoIs."""
    for r in range(task * ROIS_PER_TASK, minimum((task + 1) * ROIS_PER_TASK, placed.shape.rois)):
        call(form.planning.fill, (placed, shared, form, r, r))


@compiled
def fill_with_weights(placed: PlacedRois, shared: SharedTables, form: Form, at: int, r: int) -> None:
    """Fill the tables of RoI r in slot number `at`; a C function."""
    for k in range(2):
        slot, axis, length, begin = _slot_to_fill(placed, shared, at, r, k)
        fill_weights(axis, length, form.with_grad != 0, begin, weights_in(slot, slot.first))
        _finish(slot, k)


@compiled
def fill_with_extremes(placed: PlacedRois, shared: SharedTables, _form: Form, at: int, r: int) -> None:
    """As `fill_with_weights`."""
    for k in range(2):
        slot, axis, length, begin = _slot_to_fill(placed, shared, at, r, k)
        fill_extremes(axis, length, begin, extremes_in(slot, slot.first))
        _finish(slot, k)


@compiled
def fill_with_pixels(placed: PlacedRois, shared: SharedTables, _form: Form, at: int, r: int) -> None:
    """As `fill_with_weights`."""
    for k in range(2):
        slot, axis, length, begin = _slot_to_fill(placed, shared, at, r, k)
        fill_pixel_bins(axis, length, begin, pixels_in(slot))
        _finish(slot, k)


@compiled
def fill_with_candidates(placed: PlacedRois, shared: SharedTables, form: Form, at: int, r: int) -> None:
    """As `fill_with_weights`."""
    for k in range(2):
        slot, axis, length, begin = _slot_to_fill(placed, shared, at, r, k)
        fill_candidates(axis, length, form.with_grad != 0, begin, candidates_in(slot))
        slot.span[0], slot.span[1] = span_of_candidates(slot)


@compiled
def _slot_to_fill(placed: PlacedRois, shared: SharedTables, at: int, r: int, k: int) -> Any:
    """A slot along an axis, the axis of RoI r, the length of the map along it, and the slot's first entry."""
    shape, tables = placed.shape, shared.columns if k else shared.rows
    bins, length = (shape.bins_x, shape.width) if k else (shape.bins_y, shape.height)
    return _slot(tables, at, bins), axis_of(placed.axes, r, k, bins), length, tables.begin[at]


@compiled
def _finish(slot: Slot, k: int) -> None:
    """Set the span and, along x, the ranges of a table of pixels."""
    slot.span[0], slot.span[1] = span_of_pixels(slot)
    if k:
        fill_ranges(slot)


@compiled
def _slot(tables: RoiTables, at: int, bins: int) -> Slot:
    start, inside = offset(tables.start, at * (bins + 1)), offset(tables.inside, at * bins)
    ranges, span = offset(tables.ranges, tables.begin[at]), offset(tables.span, 2 * at)
    return Slot(bins, start, inside, tables.place, tables.first, tables.second, tables.third, ranges, span)


@compiled
def tables_of(placed: PlacedRois, shared: SharedTables, form: Form, worker: int, r: int) -> tuple[Slot, Slot]:
    """The tables of RoI r along y and along x, filled first if each worker has its own."""
    at = r
    if not shared.is_filled:
        at = worker
        call(form.planning.fill, (placed, shared, form, at, r))
    shape = placed.shape
    return _slot(shared.rows, at, shape.bins_y), _slot(shared.columns, at, shape.bins_x)


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
    window = make_window((rows.span[0], rows.span[1]), (columns.span[0], columns.span[1]), shape.width)
    return WorkItem(placed.batch_indices[item], item, item + 1, window, should_pack_window(window, shape.channels))
