# SPDX-License-Identifier: MIT
"""Gradients dX, in tasks with disjoint outputs.

A task computes a band of an image's rows, in a panel of channels or in one channel, and adds up all RoIs in their order.
"""

from __future__ import annotations

from typing import NamedTuple

from ortops.compiler.compile import compiled
from ortops.compiler.parallel import call, release, task_of
from ortops.compiler.scalar import address_of, compute_pointer, itemsize, maximum, minimum, offset, storage_pointer
from ortops.compiler.simd import fence, prefetch_to_read
from ortops.native.elements import LANES, Elements
from ortops.native.kernels.functions import AddToDx, Driver, Functions, SharedTables
from ortops.native.kernels.layout import CANDIDATES, LISTS, WEIGHTS, Form, PlacedRois, Plan
from ortops.native.kernels.pack import STAGED_PIXELS, clear, should_stream, unpack_by_stream
from ortops.native.kernels.roi_tables import share_tables, table_sizes, tables_of
from ortops.native.kernels.schedule import (
    MAX_MAP_PIXELS,
    Window,
    allocate_workspace,
    covered_pixels,
    estimate_work,
    form_of,
    make_window,
    panel_count,
    plan_by_image,
    plane_of,
    run_plan,
    runner_for,
    uses_panels,
)
from ortops.native.kernels.tables import span_of_bins

MAX_BAND_BYTES = 1 << 20
"""The most bytes of a band of rows, the part of dX that a task sums up: a band stays in a core's cache.

Measured on P2, whose panels have 4 MB, with a cache of 2 MB: together with non-temporal stores, bands reduce the time to
81 %, and with 100 RoIs to 72 %.
"""

MIN_COVERED = 0.2
"""The fraction of the maps that RoIs must cover before dX is summed in panels. Without RoIs, clearing and storing a panel
costs twice as much as clearing and storing its planes. Measured with 256 channels on P2: if RoIs cover 0.26, panels take
78 % of the time; if they cover 0.61, 39 %; with 8 channels 123 % and 92 %.
"""


class Scattering(NamedTuple):
    """The data that all tasks of a call share.

    x, dy, dx, placed: as in `scatter`.
    functions: the functions that fill tables, load and store dy and dx, and add up.
    shared: the tables.
    lanes_per_pixel: LANES if dX is summed in panels, 1 if it is summed in planes.
    lines: the number of rows in a band.
    sums_size: the number of values in the buffer for a band; 0 if dx itself holds the sums.
    """

    x: Elements
    dy: Elements
    dx: Elements
    placed: PlacedRois
    functions: Functions
    shared: SharedTables
    lanes_per_pixel: int
    lines: int
    sums_size: int


@compiled
def scatter(
    x: int, dy: int, dx: int, placed: PlacedRois, driver: Driver, _outside: float, runner: int, context: int
) -> int:
    """Fill dx [N, C, H, W] from dy [R, C, PH, PW] and, for maxima, x. Every part of the RoIs after the first adds to dx.

    If there are several parts, dx has the compute type. The arguments and the result are as in `gather.gather`.
    """
    kind, form, functions = driver.kind, form_of(driver), driver.functions
    maps, gradient, total = Elements(x, kind), Elements(dy, kind), Elements(dx, kind)
    shape, reads_x = placed.shape, reads_maps(form)
    pixels, bins = shape.height * shape.width, shape.bins_y * shape.bins_x
    sizes = table_sizes(placed, form)
    # If the map is packed, too, two panels are in use.
    fits = 2 * pixels <= MAX_MAP_PIXELS if reads_x else sizes.fits or pixels <= MAX_MAP_PIXELS
    # The map is packed even for few RoIs: packing takes no longer than filling dx.
    is_covered = reads_x or covered_pixels(placed, 0) >= MIN_COVERED * float(shape.images * pixels)
    packs = uses_panels(shape) and fits and is_covered
    # If the element type is the compute type, planes are summed directly in dx.
    size = itemsize(compute_pointer(total, total))
    lanes_per_pixel, is_direct = LANES if packs else 1, not packs and itemsize(total) == size
    lines = maximum(minimum(MAX_BAND_BYTES // (shape.width * lanes_per_pixel * size), shape.height), 1)
    if not sizes.fits or (reads_x and not packs):
        lines = shape.height  # otherwise each band would fill all tables, or find all argmax, again
    bands = (shape.height + lines - 1) // lines
    sums_size = 0 if is_direct else lines * shape.width * lanes_per_pixel
    line_size = maximum(shape.width, 2 * shape.bins_x)  # room for a float64 for each bin in a row
    workspace_size = sums_size + (line_size + bins + STAGED_PIXELS) * lanes_per_pixel
    work = estimate_work(placed, shape.images * pixels)
    blocks = (panel_count(shape.channels) if packs else shape.channels) * bands
    plan = plan_by_image(placed, runner_for(work, runner), blocks, workspace_size * size)
    status, memory, shared = share_tables(placed, plan, runner, context, form, sizes, functions, False)
    if status != 0:
        release(memory)
        return status
    scattering = Scattering(maps, gradient, total, placed, functions, shared, lanes_per_pixel, lines, sums_size)
    if reads_x and packs:
        workspace_size += _most_rows(scattering) * shape.width * LANES
        plan = plan_by_image(placed, plan.runner, blocks, workspace_size * size)
    task, data = task_of(_scatter_task, (scattering, plan, workspace_size))
    status = run_plan(plan, context, work, shared.failed, functions, task, data)
    release(memory)
    return status


@compiled
def reads_maps(form: Form) -> bool:
    """Whether dX depends on the maps."""
    return form.kind != WEIGHTS and form.kind != LISTS


@compiled
def _scatter_task(scattering: Scattering, plan: Plan, workspace_size: int, first: int, last: int, worker: int) -> None:
    x, dx, placed, functions = scattering.x, scattering.dx, scattering.placed, scattering.functions
    shared, lines, lanes_per_pixel = scattering.shared, scattering.lines, scattering.lanes_per_pixel
    shape, form, sums_size = placed.shape, scattering.shared.form, scattering.sums_size
    add_gradient: AddToDx = functions.panel if lanes_per_pixel > 1 else functions.plane
    memory, buffer = allocate_workspace(workspace_size, dx)
    if address_of(memory) == 0:
        shared.failed[0] = 1
        return
    pixels, bins = shape.height * shape.width, shape.bins_y * shape.bins_x
    part, count = placed.part, placed.part.high - placed.part.low
    next_channel, next_gradient = pixels * shape.interleaved, bins * shape.interleaved
    adds = part.begin > 0 or part.low > 0
    line, reads_x = buffer, reads_maps(form)
    own_sums = offset(line, maximum(shape.width, 2 * shape.bins_x) * lanes_per_pixel)
    gradient = offset(own_sums, sums_size)
    staged = storage_pointer(offset(gradient, bins * lanes_per_pixel), dx)
    panel = offset(gradient, (bins + STAGED_PIXELS) * lanes_per_pixel)
    streams = should_stream(dx, shape.images * shape.channels * pixels)
    bands = (shape.height + lines - 1) // lines
    for index in range(first + worker, last, plan.workers):
        image, block = index // plan.blocks, index % plan.blocks
        channel, top = block // bands * lanes_per_pixel, block % bands * lines
        lanes, bottom = minimum(lanes_per_pixel, shape.channels - channel), minimum(top + lines, shape.height)
        at = plane_of(shape, image, channel) * pixels
        planes, maps = offset(dx, at), offset(x, at if reads_x else 0)
        begin, end = shared.groups.first[image], shared.groups.first[image + 1]
        low, height, left, width = top, bottom - top, 0, shape.width
        if lanes_per_pixel > 1:
            low, left, height, width = _window_of_band(scattering, begin, end, top, bottom)
        high, is_narrow = low + height, width < shape.width
        if not adds:
            clear(planes, next_channel, lanes, top * shape.width, (high if is_narrow else low) * shape.width)
            clear(planes, next_channel, lanes, high * shape.width, bottom * shape.width)
        # The window's pixels are `runs` runs of `size` pixels; each run begins one row of the map after the run before.
        runs, size = (height, width) if is_narrow else (1, height * width)
        target = offset(planes, low * shape.width + left)
        sums = offset(own_sums, left * lanes_per_pixel) if sums_size else compute_pointer(target, dx)
        row = shape.width * lanes_per_pixel
        for a in range(runs):
            if not adds:
                clear(sums, 0, 1, a * row, a * row + size * lanes_per_pixel)
            elif lanes_per_pixel > 1:
                there = offset(target, a * shape.width)
                call(functions.pack, (there, next_channel, lanes, 0, 1, size, offset(sums, a * row)))
        if reads_x and lanes_per_pixel > 1:
            begin_row, end_row = _rows_of_bins(scattering, begin, end, low, high)
            source, packed = offset(maps, begin_row * shape.width + left), offset(panel, left * LANES)
            for a in range(end_row - begin_row):
                args = offset(source, a * shape.width), next_channel, lanes, 0, 1, width, offset(packed, a * row)
                call(functions.pack, args)
            maps = storage_pointer(offset(panel, -begin_row * shape.width * LANES), x)
        m = _next_in_band(scattering, worker, begin, end, low, high)
        while m < end:
            r, m = shared.groups.order[m], _next_in_band(scattering, worker, m + 1, end, low, high)
            source = offset(scattering.dy, plane_of(shape, r, channel) * bins + part.low)
            if lanes_per_pixel == 1:
                call(functions.read, (source, count, gradient))
            else:
                call(functions.pack, (source, next_gradient, lanes, 0, 1, count, gradient))
                if m < end:
                    following = plane_of(shape, shared.groups.order[m], channel) * bins
                    prefetch_to_read(offset(scattering.dy, following), lanes * bins)
            tables = tables_of(placed, shared, worker, r)
            band = offset(sums, -low * row - left * lanes_per_pixel)
            call(add_gradient, (maps, gradient, tables, low, high, line, band, shape.width))
        for a in range(runs if sums_size else 0):
            source, there = offset(sums, a * row), offset(target, a * shape.width)
            if lanes_per_pixel == 1:
                call(functions.write, (source, size, there))
            elif streams and not is_narrow:
                unpack_by_stream(functions.unpack, source, size, there, next_channel, lanes, staged)
            else:
                call(functions.unpack, (source, size, there, next_channel, lanes))
    fence()
    release(memory)


@compiled
def _window_of_band(scattering: Scattering, begin: int, end: int, top: int, bottom: int) -> Window:
    """The window that the RoIs begin:end read in the rows top:bottom; whole rows, unless the RoIs read less than half.

    The window has all rows if the tables are not filled: filling tables would take longer than clearing unused rows.
    """
    placed, shared, width = scattering.placed, scattering.shared, scattering.placed.shape.width
    if begin < end and not shared.is_filled:
        return Window(top, 0, bottom - top, width)
    first, last, left, right = bottom, top, width, 0
    for m in range(begin, end):
        rows, columns = tables_of(placed, shared, 0, shared.groups.order[m])
        low, high = rows.low, rows.high
        if low < bottom and top < high:
            first, last = minimum(first, maximum(low, top)), maximum(last, minimum(high, bottom))
            left, right = minimum(left, columns.low), maximum(right, columns.high)
        if first == top and last == bottom and 2 * (right - left) > width:
            break
    if first >= last:
        return Window(top, 0, 0, width)
    window = make_window((first, last), (left, maximum(right, left)), width)
    return window if 2 * window.width <= width else Window(first, 0, last - first, width)


@compiled
def _rows_of_bins(scattering: Scattering, begin: int, end: int, top: int, bottom: int) -> tuple[int, int]:
    """The span [low, high) of rows that bins of the RoIs begin:end read; only bins that read a row in top:bottom count."""
    placed, shared, form = scattering.placed, scattering.shared, scattering.shared.form
    if begin < end and not shared.is_filled:
        return 0, placed.shape.height
    low, high = bottom, top
    for m in range(begin, end):
        rows, _ = tables_of(placed, shared, 0, shared.groups.order[m])
        if rows.low < bottom and top < rows.high:
            first, last = span_of_bins(rows, form.kind == CANDIDATES, top, bottom)
            if first < last:
                low, high = minimum(low, first), maximum(high, last)
    return (low, high) if low < high else (top, top)


@compiled
def _most_rows(scattering: Scattering) -> int:
    """The most rows to pack for a band."""
    shape, lines, groups, most = scattering.placed.shape, scattering.lines, scattering.shared.groups, 0
    for n in range(shape.images):
        begin, end = groups.first[n], groups.first[n + 1]
        for top in range(0, shape.height, lines):
            low, high = _rows_of_bins(scattering, begin, end, top, minimum(top + lines, shape.height))
            most = maximum(most, high - low)
    return most


@compiled
def _next_in_band(scattering: Scattering, worker: int, begin: int, end: int, top: int, bottom: int) -> int:
    """The first of the RoIs begin:end, in the order of their groups, that reads a row of top:bottom; else `end`."""
    placed, shared = scattering.placed, scattering.shared
    if bottom - top == placed.shape.height:
        return begin
    for m in range(begin, end):
        rows, _ = tables_of(placed, shared, worker, shared.groups.order[m])
        low, high = rows.low, rows.high
        if low < bottom and top < high:
            return m
    return end
