# SPDX-License-Identifier: MIT
"""Lists of the pixels that rotated RoIs' bins read, shared by all channels and filled for a part of the RoIs at a time.

A rotated RoI's weights are not a product of two axes. So each bin has its own list, which has every pixel that the bin's
samples read once, with the pixel's weight or the derivatives of that weight.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ortops.compiler.compile import compiled, noinline
from ortops.compiler.parallel import allocate, release, task_of
from ortops.compiler.scalar import address_of, compute_pointer, float64_pointer, maximum, minimum, offset, set_value
from ortops.native.elements import Elements, Words
from ortops.native.kernels.axis import is_between, is_inside, region
from ortops.native.kernels.functions import Functions, SharedTables, Sizes
from ortops.native.kernels.layout import Form, PlacedRois, Plan, Shape, Table
from ortops.native.kernels.roi_tables import group_by_image, shared_in, shared_words, tables_at, window_of
from ortops.native.kernels.rotated_grid import Grid, from_centre, grid_of, lines_within, row_point, samples_within
from ortops.native.kernels.schedule import Window, run_plan, runner_for, should_pack_window, worker_count

BINS_PER_TASK = 16
"""The number of bins whose lists one task fills."""

MAX_EXHAUSTIVE = 16
"""If a bin has more rows or columns of samples, bisection first excludes those that cannot be on the map."""

WORK_OF_SAMPLE = 64
"""The time to add a sample to a list, in pixels read or written. Measured: 10 to 30 ns."""


class Lists(NamedTuple):
    """A RoI's lists: bin b has the entries b*stride + i for i < counts[b].

    pixel: the number of an entry's pixel: its row on the map times the width, plus its column. The width is the map's, or
        the RoI's window's if the window is packed.
    value: the pixel's weight, or its 5 derivatives with respect to the stored cx, cy, w, h and angle.
    """

    bins: int
    stride: int
    counts: Words
    pixel: Words
    value: Elements


@compiled
def lists_in(table: Table, like: Any) -> Any:
    """A table as lists; `like` gives the type of their values."""
    return Lists(table.bins, table.stride, table.start, table.place, compute_pointer(table.first, like))


@compiled
def _values_of(form: Form) -> int:
    """The number of values in an entry."""
    return 5 if form.with_grad else 1


@compiled
def share(
    placed: PlacedRois, plan: Plan, runner: int, context: int, form: Form, sizes: Sizes, functions: Functions
) -> int:
    """`roi_tables.share` for the lists of a part of the RoIs."""
    part, values = placed.part, _values_of(form)
    rois, bins, samples, most_pixels, most_of_bin = part.end - part.begin, part.high - part.low, 0.0, 0, 0
    head = shared_words(placed, placed.shape.rois)
    memory = allocate(head + rois * bins)
    if address_of(memory) == 0:
        return 0
    shared = shared_in(memory, placed, form, sizes, functions)
    shared.failed[0] = 0
    group_by_image(shared.groups, placed)
    for n in range(placed.shape.images + 1):
        shared.groups.first[n] = minimum(maximum(shared.groups.first[n], part.begin), part.end)
    counts = offset(memory, head)
    pixel = placed.lists
    value = Elements(address_of(offset(pixel, part.entries)), form.numbers)
    for m in range(part.begin, part.end):
        r = shared.groups.order[m]
        limits, spans = offset(placed.limits, 3 * r), offset(placed.spans, 2 * r)
        rows, columns = tables_at(shared, r)
        rows.bins, rows.stride, rows.start, rows.place, rows.first = bins, limits[2], counts, pixel, address_of(value)
        rows.low, rows.high = limits[0], limits[0] + spans[0]
        columns.low, columns.high = limits[1], limits[1] + spans[1]
        window, entries = window_of(rows, columns, placed.shape.width), limits[2] * bins
        samples += _most_samples(placed, r) if entries > 0 else 0.0
        most_pixels, most_of_bin = maximum(most_pixels, window.height * window.width), maximum(most_of_bin, limits[2])
        counts, pixel, value = offset(counts, bins), offset(pixel, entries), offset(value, entries * values)
    work = samples * bins / (placed.shape.bins_y * placed.shape.bins_x) * WORK_OF_SAMPLE
    blocks, words = (bins + BINS_PER_TASK - 1) // BINS_PER_TASK, most_pixels + values * most_of_bin
    runner = runner_for(work, runner)
    of_bins = Plan(runner, False, rois, blocks, worker_count(runner, rois * blocks, 8 * words))
    task, data = task_of(_fill_task, (placed, shared, form, plan.is_by_image, of_bins, most_pixels, words))
    shared.failed[0] = run_plan(of_bins, context, work, shared.failed, functions, task, data)
    return address_of(memory)


@compiled
def _most_samples(placed: PlacedRois, r: int) -> float:
    """An estimate of the most samples that a RoI's lists visit."""
    shape, grid, total = placed.shape, grid_of(placed, r), 1.0
    for axis in (grid.rows, grid.columns):
        count, size = float(axis.bins) * float(axis.samples), abs(axis.size)
        across = 8.0 * (shape.height + shape.width + 4.0) * count
        total *= minimum(count, across / size + MAX_EXHAUSTIVE * axis.bins) if size > 0.0 else count
    return total


@compiled
def _fill_task(
    placed: PlacedRois,
    shared: SharedTables,
    form: Form,
    is_whole: bool,
    plan: Plan,
    most_pixels: int,
    words: int,
    first: int,
    last: int,
    worker: int,
) -> None:
    memory = allocate(words)
    if address_of(memory) == 0:
        shared.failed[0] = 1
        return
    shape, values, indices = placed.shape, _values_of(form), memory
    sums = float64_pointer(offset(memory, most_pixels))
    for index in range(first + worker, last, plan.workers):
        r, block = shared.groups.order[placed.part.begin + index // plan.blocks], index % plan.blocks
        rows, columns = tables_at(shared, r)
        grid, lists, window = (
            grid_of(placed, r),
            lists_in(rows, Elements(0, form.numbers)),
            window_of(rows, columns, shape.width),
        )
        # A packed window has shorter lines than the map.
        packs = not is_whole and should_pack_window(window, shape)
        width = window.width if packs else shape.width
        sample_weight = 1.0 / (maximum(float(grid.rows.samples), 1.0) * maximum(float(grid.columns.samples), 1.0))
        for b in range(block * BINS_PER_TASK, minimum((block + 1) * BINS_PER_TASK, lists.bins)):
            count, begin = 0, b * lists.stride
            if lists.stride > 0:
                for i in range(lists.stride * values):
                    sums[i] = 0.0
                pixel = offset(lists.pixel, begin)
                count = _fill(grid, shape, placed.part.low + b, window, width, indices, values, pixel, sums)
            lists.counts[b] = count
            for i in range(count * values):
                set_value(lists.value, begin * values + i, sums[i] * sample_weight)
    release(memory)


@noinline
def _fill(
    grid: Grid, shape: Shape, b: int, window: Window, width: int, indices: Any, values: int, pixel: Any, sums: Any
) -> int:
    """List the pixels that bin b reads, add up their values over its samples, and return the number of pixels.

    A pixel's number is its row times `width`, plus its column. `indices` has each window pixel's index in the list, or any
    number if the list lacks the pixel, so that the array need not be cleared (Briggs and Torczon, "An efficient
    representation for sparse sets", 1993). Each pixel of the list has `values` sums, initially 0.
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
            left, right = samples_within(columns, left, right, line_x, grid.cos, columns.least, far)
            far = shape.height - 1 + rows.margin
            left, right = samples_within(columns, left, right, line_y, -grid.sin, rows.least, far)
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
                number = (at_y + below) * width + at_x
                for beside in range(1 + wide):
                    weight_x = part_x if beside else 1.0 - part_x
                    # No branch: the processor would mispredict it. Measured: half the time.
                    candidate = indices[index + beside]
                    is_in_list = (candidate >= 0) & (candidate < count)
                    is_listed = is_in_list & (pixel[candidate if is_in_list else 0] == number + beside)
                    i = candidate if is_listed else count
                    count += 0 if is_listed else 1
                    indices[index + beside], pixel[i] = i, number + beside
                    if values > 1:
                        d_x, d_y = (wide if beside else -wide) * weight_y, sign_y * weight_x
                        _add_derivatives(grid, across, down, d_x, d_y, offset(sums, i * values))
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
