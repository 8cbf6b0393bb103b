"""Sparse tables of the pixels that the bins of rotated RoIs read, filled once for all channels, in batches of limited size.

The weights of a rotated RoI are not a product of two axes, so each bin has its own list: every pixel that its samples read,
once, with the pixel's weight or with the derivatives of that weight.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ortops.jit.compile import compiled, noinline
from ortops.jit.elements import OUT_OF_MEMORY, Elements, Words
from ortops.jit.parallel import allocate, release, task_of
from ortops.jit.scalar import (
    address_of,
    compute_pointer,
    float64_pointer,
    int64_pointer,
    maximum,
    minimum,
    offset,
    set_value,
)
from ortops.kernels.axis import is_between, is_inside, region
from ortops.kernels.layout import RotatedRois, Shape
from ortops.kernels.roi_tables import MAX_TABLE_BYTES, Groups
from ortops.kernels.rotated_grid import Grid, from_centre, grid_of, lines_within, row_point, samples_within
from ortops.kernels.schedule import Plan, Window, make_window, run_plan, runner_for, should_pack_window, worker_count

DERIVATIVES = 5
"""The number of derivatives of a weight: with respect to the stored cx, cy, w, h and angle."""

BINS_PER_TASK = 16
"""The number of bins of a task that fills tables."""

MAX_EXHAUSTIVE = 16
"""If a bin has more rows or columns of samples, those that cannot be on the map are excluded first, by bisection."""

WORK_OF_SAMPLE = 64
"""The time to add a sample to a table, in pixels read or written. Measured: 10 to 30 ns."""


class Batch(NamedTuple):
    """The RoIs begin:end of an order, with their bins low:high.

    Those are all bins, unless the tables of a single RoI are too large.

    is_first, is_last: whether this is the first or the last batch.
    most_pixels: the most pixels of a RoI's window.
    most_pixels_of_bin: the most pixels that a bin can read.
    entries, samples: upper bounds for all bins together.
    """

    begin: int
    end: int
    low: int
    high: int
    is_first: bool
    is_last: bool
    most_pixels: int
    most_pixels_of_bin: int
    entries: float
    samples: float


class Tables(NamedTuple):
    """The tables of a batch.

    failed: a flag that a worker sets if it cannot allocate memory.
    first: the first entry of each RoI.
    count: the number of entries of each bin.
    pixel: the index of each entry's pixel on the map, or in the RoI's window if that is packed.
    value: the weight or the derivatives of each entry.
    values: the number of values of an entry: 1 or DERIVATIVES.
    """

    failed: Words
    first: Words
    count: Words
    pixel: Words
    value: Elements
    values: int


class Lists(NamedTuple):
    """The tables of one RoI: the entries of the batch's bin b are b*stride + i for i < count[b]."""

    bins: int
    stride: int
    count: Words
    pixel: Words
    value: Elements


@compiled
def typed_lists(lists: Lists, like: Any) -> Any:
    """The lists with a pointer to values of the type of those at `like`, for the code of one type."""
    return Lists(lists.bins, lists.stride, lists.count, lists.pixel, compute_pointer(lists.value, like))


@compiled
def lists_of(rotated: RotatedRois, groups: Groups, batch: Batch, tables: Tables, m: int) -> Lists:
    """The tables of RoI number m of the order."""
    bins, first = batch.high - batch.low, tables.first[m - batch.begin]
    count = offset(tables.count, (m - batch.begin) * bins)
    value = offset(tables.value, first * tables.values)
    return Lists(bins, rotated.max_pixels[groups.order[m]], count, offset(tables.pixel, first), value)


@compiled
def window_of_roi(rotated: RotatedRois, r: int) -> Window:
    """The window of the map that RoI r can read."""
    top, left = rotated.corners[2 * r], rotated.corners[2 * r + 1]
    lines, pixels = rotated.placed.spans[2 * r], rotated.placed.spans[2 * r + 1]
    return make_window((top, top + lines), (left, left + pixels), rotated.placed.shape.width)


@compiled
def _most_samples(rotated: RotatedRois, grid: Grid) -> float:
    """An estimate of the most samples of a RoI that are visited."""
    shape, total = rotated.placed.shape, 1.0
    for axis in (grid.rows, grid.columns):
        count, size = float(axis.bins) * float(axis.samples), abs(axis.size)
        across = 8.0 * (shape.height + shape.width + 4.0) * count
        total *= minimum(count, across / size + MAX_EXHAUSTIVE * axis.bins) if size > 0.0 else count
    return total


@compiled
def next_batch(rotated: RotatedRois, order: Any, begin: int, low: int, entry_bytes: int) -> Batch:
    """The batch from bin `low` of RoI number `begin` of the order on; an entry of its tables has `entry_bytes` bytes."""
    shape = rotated.placed.shape
    bins = shape.bins_y * shape.bins_x
    end, high = begin, bins
    total, entries, samples, most_pixels, most_pixels_of_bin = 0.0, 0.0, 0.0, 0, 0
    while end < shape.rois and (low == 0 or end == begin):
        r = order[end]
        max_pixels, window = rotated.max_pixels[r], window_of_roi(rotated, r)
        bytes_per_bin = float(max_pixels) * entry_bytes + 8.0
        if total + bytes_per_bin * (bins - low) > MAX_TABLE_BYTES:
            if end > begin:
                break
            high = minimum(bins, low + maximum(int(MAX_TABLE_BYTES / bytes_per_bin), 1))
        end += 1
        total += bytes_per_bin * (high - low)
        entries += float(max_pixels) * (high - low)
        samples += _most_samples(rotated, grid_of(rotated, r)) * (high - low) / bins if max_pixels > 0 else 0.0
        most_pixels = maximum(most_pixels, window.height * window.width)
        most_pixels_of_bin = maximum(most_pixels_of_bin, max_pixels)
        if high < bins:
            break
    is_first, is_last = begin == 0 and low == 0, end == shape.rois and high == bins
    return Batch(begin, end, low, high, is_first, is_last, most_pixels, most_pixels_of_bin, entries, samples)


@compiled
def make(
    rotated: RotatedRois,
    groups: Groups,
    batch: Batch,
    is_whole: bool,
    values: int,
    numbers: int,
    run: int,
    runner: int,
    context: int,
    made: Words,
) -> int:
    """Make the tables of a batch; a C function.

    Args:
        rotated: the RoIs with their samples.
        groups: the order of the RoIs.
        batch: the batch.
        is_whole: whether pixels are numbered on the whole map, even if a RoI's window could be packed.
        values: 1 for weights, or DERIVATIVES.
        numbers: the type of the values, FLOAT or DOUBLE.
        run: the address of `jit.tasks.run_in_chunks`.
        runner: the runner of the tasks.
        context: the runner's context.
        made: the result: the address of the memory to release, 0 if there is none left. `tables_in` has the tables in it.

    Returns:
        0, OUT_OF_MEMORY or INTERRUPTED.
    """
    rois, bins = batch.end - batch.begin, batch.high - batch.low
    entries = int(batch.entries)
    memory = allocate(1 + rois + rois * bins + entries + (entries * values * (1 << numbers) + 7) // 8)
    made[0] = address_of(memory)
    tables = tables_in(made[0], batch, values, numbers)
    first = tables.first
    if address_of(memory) == 0:
        return OUT_OF_MEMORY
    memory[0] = 0
    at = 0
    for k in range(rois):
        first[k] = at
        at += rotated.max_pixels[groups.order[batch.begin + k]] * bins
    work = batch.samples * WORK_OF_SAMPLE
    runner = runner_for(work, runner)
    blocks = (bins + BINS_PER_TASK - 1) // BINS_PER_TASK
    words = batch.most_pixels + values * batch.most_pixels_of_bin
    plan = Plan(runner, False, rois, blocks, worker_count(runner, rois * blocks, 8 * words))
    args = (rotated, groups, batch, tables, is_whole, plan, words)
    task, data = task_of(_fill_task, args)
    status: int = run_plan(plan, context, work, memory, run, task, data)
    return status


@compiled
def tables_in(address: int, batch: Batch, values: int, numbers: int) -> Tables:
    """The tables of a batch in the memory that `make` has allocated."""
    memory, rois = int64_pointer(address), batch.end - batch.begin
    first = offset(memory, 1)
    count = offset(first, rois)
    pixel = offset(count, rois * (batch.high - batch.low))
    value = Elements(address_of(offset(pixel, int(batch.entries))), numbers)
    return Tables(memory, first, count, pixel, value, values)


@compiled
def _fill_task(
    rotated: RotatedRois,
    groups: Groups,
    batch: Batch,
    tables: Tables,
    is_whole: bool,
    plan: Plan,
    words: int,
    first: int,
    last: int,
    worker: int,
) -> None:
    memory = allocate(words)
    if address_of(memory) == 0:
        tables.failed[0] = 1
        return
    shape, values = rotated.placed.shape, tables.values
    found, sums = memory, float64_pointer(offset(memory, batch.most_pixels))
    for index in range(first + worker, last, plan.workers):
        m, block = batch.begin + index // plan.blocks, index % plan.blocks
        r, lists, grid = groups.order[m], lists_of(rotated, groups, batch, tables, m), grid_of(rotated, groups.order[m])
        window = window_of_roi(rotated, r)
        # If a window is packed, its pixels are numbered within the window.
        target = window if not is_whole and should_pack_window(window, shape.channels) else whole_map(shape)
        sample_weight = 1.0 / (maximum(float(grid.rows.samples), 1.0) * maximum(float(grid.columns.samples), 1.0))
        for b in range(block * BINS_PER_TASK, minimum((block + 1) * BINS_PER_TASK, lists.bins)):
            count, begin = 0, b * lists.stride
            if lists.stride > 0:
                for i in range(lists.stride * values):
                    sums[i] = 0.0
                pixel = offset(lists.pixel, begin)
                count = _fill(grid, shape, batch.low + b, window, target, found, values, pixel, sums)
            lists.count[b] = count
            for i in range(count * values):
                set_value(lists.value, begin * values + i, sums[i] * sample_weight)
    release(memory)


@compiled
def whole_map(shape: Shape) -> Window:
    """The window that is the whole map."""
    return Window(0, 0, shape.height, shape.width)


@noinline
def _fill(
    grid: Grid, shape: Shape, b: int, window: Window, target: Window, found: Any, values: int, pixel: Any, sums: Any
) -> int:
    """List the pixels that bin b reads and add up their values over its samples; the number of pixels.

    Args:
        grid: the samples.
        shape: the dimensions of the map and the output.
        b: the bin.
        window: the part of the map that the RoI can read.
        target: the window in which pixels are numbered.
        found: for each pixel of the window, its index in the list if it is there, else any number, so that the array need
            not be cleared (Briggs and Torczon, "An efficient representation for sparse sets", 1993).
        values: as in `make`.
        pixel: the list to fill.
        sums: `values` sums for each pixel of the list, initially 0.
    """
    rows, columns, count = grid.rows, grid.columns, 0
    p, q = b // columns.bins, b % columns.bins
    top, bottom = p * rows.samples, (p + 1) * rows.samples
    if rows.samples > MAX_EXHAUSTIVE:
        top, bottom = lines_within(grid, top, bottom, shape.height, shape.width)
    for line in range(top, bottom):
        down = from_centre(rows, line)
        line_x, line_y = row_point(grid, line)
        left, right = q * columns.samples, (q + 1) * columns.samples
        if columns.samples > MAX_EXHAUSTIVE:
            far = shape.width - 1 + columns.margin
            left, right = samples_within(columns, left, right, line_x, grid.cos, -columns.margin, far)
            far = shape.height - 1 + rows.margin
            left, right = samples_within(columns, left, right, line_y, -grid.sin, -rows.margin, far)
        for k in range(left, right):
            across = from_centre(columns, k)
            u = columns.size * across
            x, y = line_x + u * grid.cos, line_y - u * grid.sin
            where_x, where_y = region(columns, x, shape.width), region(rows, y, shape.height)
            if not (is_inside(where_x, shape.width) and is_inside(where_y, shape.height)):
                continue
            wide, tall = 1 if is_between(where_x) else 0, 1 if is_between(where_y) else 0
            at_x, at_y = where_x // 2, where_y // 2
            part_x, part_y = x - at_x if wide else 0.0, y - at_y if tall else 0.0
            for below in range(1 + tall):
                weight_y, sign_y = part_y if below else 1.0 - part_y, tall if below else -tall
                index = (at_y + below - window.top) * window.width + at_x - window.left
                number = (at_y + below - target.top) * target.width + at_x - target.left
                for beside in range(1 + wide):
                    weight_x = part_x if beside else 1.0 - part_x
                    # Without a branch, which would be mispredicted. Measured: half the time.
                    candidate = found[index + beside]
                    is_in_list = (candidate >= 0) & (candidate < count)
                    is_listed = is_in_list & (pixel[candidate if is_in_list else 0] == number + beside)
                    i = candidate if is_listed else count
                    count += 0 if is_listed else 1
                    found[index + beside], pixel[i] = i, number + beside
                    if values == DERIVATIVES:
                        d_x, d_y = (wide if beside else -wide) * weight_y, sign_y * weight_x
                        _add_derivatives(grid, across, down, d_x, d_y, offset(sums, i * DERIVATIVES))
                    else:
                        sums[i] += weight_x * weight_y
    return count


@compiled
def _add_derivatives(grid: Grid, across: float, down: float, d_x: float, d_y: float, sums: Any) -> None:
    """Add the derivatives with respect to cx, cy, w, h and angle, from those with respect to x and y on the map."""
    rows, columns = grid.rows, grid.columns
    d_u, d_v = d_x * grid.cos - d_y * grid.sin, d_x * grid.sin + d_y * grid.cos
    sums[0] += columns.scale * d_x
    sums[1] += rows.scale * d_y
    sums[2] += 0.0 if columns.is_fixed else columns.scale * across * d_u
    sums[3] += 0.0 if rows.is_fixed else rows.scale * down * d_v
    sums[4] += grid.direction * (rows.size * down * d_u - columns.size * across * d_v)
