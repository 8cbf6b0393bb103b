# SPDX-License-Identifier: MIT
"""The tables of all RoIs, shared by all channels, since filling them can cost more than pooling LANES channels.

`share` and the functions that fill the forms of tables are compiled once, for all operators and types; other functions call
them by address.
"""

from __future__ import annotations

from typing import NamedTuple

from ortops.compiler.compile import compiled, optimize_for_size
from ortops.compiler.parallel import allocate, call, task_of
from ortops.compiler.scalar import address_of, float64_pointer, int64_pointer, maximum, minimum, offset
from ortops.compiler.struct_types import items_at, size_of
from ortops.native.elements import OUT_OF_MEMORY, Elements, Words
from ortops.native.kernels.axis import Axis, axis_of
from ortops.native.kernels.functions import Functions, Groups, SharedTables, Sizes
from ortops.native.kernels.layout import CANDIDATES, EXTREMES, LISTS, Form, PlacedRois, Plan, Table, Tables
from ortops.native.kernels.pixel_bins import fill_pixel_bins
from ortops.native.kernels.schedule import Window, make_window, should_pack_window
from ortops.native.kernels.tables import (
    candidates_in,
    extremes_in,
    fill_candidates,
    fill_extremes,
    fill_ranges,
    fill_weights,
    find_span,
    pixels_in,
    weights_in,
)
from ortops.native.tasks import run_tasks

MAX_TABLE_BYTES = 16 << 20
"""The most bytes of shared tables. Above this, each worker fills its own tables, for one RoI at a time."""

ROIS_PER_TASK = 16
"""The number of RoIs whose tables one task fills."""


@compiled
def table_sizes(placed: PlacedRois, form: Form) -> Sizes:
    """Count the entries of the tables of all RoIs."""
    words, rows, columns, shape = 0, 0, 0, placed.shape
    if form.kind == LISTS:
        return Sizes(0, 0, 0, False)
    for r in range(shape.rois):
        tall, wide = _entries(placed, r, 0, form), _entries(placed, r, 1, form)
        words += _words(shape.bins_y, tall, form) + _words(shape.bins_x, wide, form)
        rows, columns = maximum(rows, tall), maximum(columns, wide)
    return Sizes(words, rows, columns, 8 * words <= MAX_TABLE_BYTES)


@compiled
def _entries(placed: PlacedRois, r: int, k: int, form: Form) -> int:
    """The most entries of RoI r's table along an axis.

    Neighbouring bins share at most two pixels. Candidates are one at each pixel, two between pixels, one off each end of the
    map, and two more for each interval between pixels that a bin's border splits.
    """
    bins = placed.shape.bins_x if k else placed.shape.bins_y
    return (3 if form.kind == CANDIDATES else 1) * placed.spans[2 * r + k] + 2 * bins + 2


@compiled
def _words(bins: int, entries: int, form: Form) -> int:
    """The number of words that a table refers to."""
    arrays = 3 if form.with_grad else (2 if form.kind == EXTREMES else 1)
    return 2 * bins + 1 + 2 * entries + arrays * _number_words(entries, form)


@compiled
def _number_words(entries: int, form: Form) -> int:
    return (entries * (1 << form.numbers) + 7) // 8  # FLOAT and DOUBLE take 4 and 8 bytes


@compiled
def _lay_out(table: Table, bins: int, entries: int, form: Form, memory: Words) -> None:
    """Write a table that refers to `memory`, which has `_words` words."""
    start, words = memory, _number_words(entries, form)
    coverage = offset(start, bins + 1)
    place = offset(coverage, bins)
    ranges = offset(place, entries)
    first = offset(ranges, entries)
    table.bins, table.start, table.coverage, table.place = bins, start, float64_pointer(coverage), place
    table.ranges, table.first = ranges, address_of(first)
    table.second, table.third = address_of(offset(first, words)), address_of(offset(first, 2 * words))


@compiled
def share_tables(
    placed: PlacedRois,
    plan: Plan,
    runner: int,
    context: int,
    form: Form,
    sizes: Sizes,
    functions: Functions,
    sorts: bool,
) -> tuple[int, Words, SharedTables]:
    """Fill the tables of all RoIs, and group the RoIs by image; `sorts` says whether by the first row that they read, too.

    The runner is needed even if the plan has none. `sizes` is the result of `table_sizes`.

    Returns:
        0, OUT_OF_MEMORY or INTERRUPTED; the memory to release; and the tables in it.
    """
    memory = int64_pointer(call(functions.share, (placed, plan, runner, context, form, sizes, functions)))
    shared = shared_in(memory, placed, form, sizes, functions)
    status = OUT_OF_MEMORY if address_of(memory) == 0 else shared.failed[0]
    if status == 0 and sorts and call(functions.sort, (placed, shared)) == 0:
        status = OUT_OF_MEMORY
    return status, memory, shared


@compiled
def shared_in(memory: Words, placed: PlacedRois, form: Form, sizes: Sizes, functions: Functions) -> SharedTables:
    """The tables in `memory`; the words that they refer to follow the first `shared_words` words."""
    first = offset(memory, 1)
    order = offset(first, placed.shape.images + 1)
    tables = items_at(Table, address_of(offset(order, placed.shape.rois)))
    is_filled = form.kind == LISTS or sizes.fits
    return SharedTables(memory, tables, is_filled, Groups(order, first), form, functions.fill)


@compiled
def shared_words(placed: PlacedRois, slots: int) -> int:
    """The number of words that precede the words that tables refer to."""
    return 2 + placed.shape.images + placed.shape.rois + 2 * slots * size_of(Table) // 8


@optimize_for_size
def share(
    placed: PlacedRois, plan: Plan, _runner: int, context: int, form: Form, sizes: Sizes, functions: Functions
) -> int:
    """`share_tables` as a C function: returns the memory's address or 0, and sets `failed` to the status."""
    shape, slots, words = placed.shape, placed.shape.rois, sizes.words
    if not sizes.fits:
        slots = plan.workers
        words = slots * (_words(shape.bins_y, sizes.rows, form) + _words(shape.bins_x, sizes.columns, form))
    head = shared_words(placed, slots)
    memory = allocate(head + words)
    if address_of(memory) == 0:
        return 0
    shared = shared_in(memory, placed, form, sizes, functions)
    shared.failed[0] = 0
    group_by_image(shared.groups, placed)
    at = offset(memory, head)
    for slot in range(slots):
        for k in range(2):
            bins, most = (shape.bins_x, sizes.columns) if k else (shape.bins_y, sizes.rows)
            entries = _entries(placed, slot, k, form) if sizes.fits else most
            _lay_out(shared.tables[2 * slot + k], bins, entries, form, at)
            at = offset(at, _words(bins, entries, form))
    if sizes.fits:
        task, data = task_of(_fill_task, (placed, shared))
        if not run_tasks(plan.runner, context, (slots + ROIS_PER_TASK - 1) // ROIS_PER_TASK, task, data):
            shared.failed[0] = OUT_OF_MEMORY
    return address_of(memory)


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
def _fill_task(placed: PlacedRois, shared: SharedTables, _first: int, _last: int, task: int) -> None:
    for r in range(task * ROIS_PER_TASK, minimum((task + 1) * ROIS_PER_TASK, placed.shape.rois)):
        call(shared.fill, (placed, offset(shared.tables, 2 * r), shared.form, r))


@compiled
def fill_with_weights(placed: PlacedRois, tables: list[Table], form: Form, r: int) -> None:
    """Fill the two tables of RoI r; a C function."""
    for k in range(2):
        table, axis, length = _table_to_fill(placed, tables, r, k)
        fill_weights(axis, length, form.with_grad != 0, weights_in(table, Elements(0, form.numbers)))
        _find_pixels(table, k)


@compiled
def fill_with_extremes(placed: PlacedRois, tables: list[Table], form: Form, r: int) -> None:
    """As `fill_with_weights`."""
    for k in range(2):
        table, axis, length = _table_to_fill(placed, tables, r, k)
        fill_extremes(axis, length, extremes_in(table, Elements(0, form.numbers)))
        _find_pixels(table, k)


@compiled
def fill_with_pixels(placed: PlacedRois, tables: list[Table], _form: Form, r: int) -> None:
    """As `fill_with_weights`."""
    for k in range(2):
        table, axis, length = _table_to_fill(placed, tables, r, k)
        fill_pixel_bins(axis, length, pixels_in(table))
        _find_pixels(table, k)


@compiled
def _find_pixels(table: Table, k: int) -> None:
    find_span(table, False)
    if k:
        fill_ranges(table)


@compiled
def fill_with_candidates(placed: PlacedRois, tables: list[Table], form: Form, r: int) -> None:
    """As `fill_with_weights`."""
    for k in range(2):
        table, axis, length = _table_to_fill(placed, tables, r, k)
        fill_candidates(axis, length, form.with_grad != 0, candidates_in(table))
        find_span(table, True)


@compiled
def _table_to_fill(placed: PlacedRois, tables: list[Table], r: int, k: int) -> tuple[Table, Axis, int]:
    """RoI r's table along an axis, the axis, and the map's length along it."""
    bins, length = (placed.shape.bins_x, placed.shape.width) if k else (placed.shape.bins_y, placed.shape.height)
    return tables[k], axis_of(placed.axes, r, k, bins), length


@compiled
def tables_of(placed: PlacedRois, shared: SharedTables, worker: int, r: int) -> Tables:
    """The tables of RoI r along y and along x, filled first if each worker has its own."""
    if not shared.is_filled:
        call(shared.fill, (placed, offset(shared.tables, 2 * worker), shared.form, r))
    return tables_at(shared, r if shared.is_filled else worker)


@compiled
def tables_at(shared: SharedTables, slot: int) -> Tables:
    """The tables of a slot along y and along x."""
    return Tables(shared.tables[2 * slot], shared.tables[2 * slot + 1])


@compiled
def window_of(rows: Table, columns: Table, map_width: int) -> Window:
    """The window of the map that the tables of a RoI read."""
    return make_window((rows.low, rows.high), (columns.low, columns.high), map_width)


class WorkItem(NamedTuple):
    """A task's RoIs, an image's or a single one: begin:end in the order of `Groups`.

    window: the part of the map to pack.
    packs: whether to pack the window.
    """

    image: int
    begin: int
    end: int
    window: Window
    packs: bool


@compiled
def work_item(placed: PlacedRois, plan: Plan, shared: SharedTables, worker: int, item: int) -> WorkItem:
    """Item number `item` of the plan."""
    shape = placed.shape
    if plan.is_by_image:
        begin, end = shared.groups.first[item], shared.groups.first[item + 1]
        return WorkItem(item, begin, end, Window(0, 0, shape.height, shape.width), begin < end)
    begin = placed.part.begin + item
    r = shared.groups.order[begin]
    rows, columns = tables_of(placed, shared, worker, r)
    window = window_of(rows, columns, shape.width)
    return WorkItem(placed.batch_indices[r], begin, begin + 1, window, should_pack_window(window, shape))
