"""Gradients of averages over RoIs, in tasks with disjoint outputs.

A task of dX has a panel of channels of an image, or a band of rows of one channel, and adds up all RoIs in their order. A
task of drois has some panels of channels of a RoI, or of an image whose map is packed as a whole.
"""

from __future__ import annotations

from typing import Any

from ortops.kernels.jit import LANES
from ortops.kernels.jit.compile import compiled
from ortops.kernels.jit.parallel import allocate, call, release, task_of
from ortops.kernels.jit.scalar import (
    address_of,
    compute_pointer,
    float64_pointer,
    int64_pointer,
    itemsize,
    maximum,
    minimum,
    offset,
    set_value,
    storage_pointer,
)
from ortops.kernels.jit.simd import fence, prefetch_to_read
from ortops.kernels.layout import OUT_OF_MEMORY, Elements, Form, PlacedRois, Stages, Storage
from ortops.kernels.pack import STAGED_PIXELS, clear, should_stream, unpack_by_stream
from ortops.kernels.roi_tables import SharedTables, share_tables, table_sizes, tables_of, work_item
from ortops.kernels.schedule import (
    MAX_MAP_PIXELS,
    MAX_WORKSPACE_BYTES,
    Plan,
    allocate_workspace,
    covered_pixels,
    estimate_work,
    may_use_planes,
    missing,
    missing_planning,
    panel_count,
    plan_by_image,
    plan_of_panels,
    run_plan,
    runner_for,
    should_pack_maps,
)
from ortops.kernels.sliding import panel_lines, rows_of_panel, slide, sliding_size

MAX_BAND_BYTES = 1 << 20
"""The most bytes of a band of rows, in which dX of a panel or a plane is summed up: a band stays in a core's cache.

Measured on P2, whose panels have 4 MB, with a cache of 2 MB: together with non-temporal stores, bands reduce the time to
81 %, and with 100 RoIs to 72 %.
"""

MIN_COVERED = 0.2
"""The least share of the maps that RoIs cover for dX to be summed up in panels. Without RoIs a panel costs twice as much to
clear and to store as its planes. Measured with 256 channels on P2: with a share of 0.26, panels take 78 % of the time; with
0.61, 39 %; with 8 channels 123 % and 92 %.
"""


@compiled
def average_dx(
    dy: Elements,
    dx: Elements,
    placed: PlacedRois,
    form: Form,
    storage: Storage,
    scattering: Stages,
    runner: int,
    context: int,
) -> int:
    """Fill dx [N, C, H, W] of an average from dy [R, C, PH, PW].

    The arguments and the result are as in `forward.pool`.
    """
    shape = placed.shape
    pixels, bins = shape.height * shape.width, shape.bins_y * shape.bins_x
    sizes = table_sizes(placed, form)
    shares = sizes.fits
    packs = shape.channels >= LANES // 2 and (shares or pixels <= MAX_MAP_PIXELS)
    packs = packs and covered_pixels(placed, 0) >= MIN_COVERED * float(shape.images * pixels)
    # If elements are computed in their own type, sums are made directly in dx.
    size = itemsize(compute_pointer(dx, dx))
    pixel_size, is_direct = LANES if packs else 1, not packs and itemsize(dx) == size
    lines = maximum(minimum(MAX_BAND_BYTES // (shape.width * pixel_size * size), shape.height), 1)
    if packs and not shares:
        lines = shape.height  # each band would fill all tables again
    bands = (shape.height + lines - 1) // lines
    sums_size = 0 if is_direct else lines * shape.width * pixel_size
    workspace_size = sums_size + (shape.width + bins + STAGED_PIXELS) * pixel_size
    work = estimate_work(placed, shape.images * pixels)
    needed = maximum(missing(scattering, packs, not packs), missing_planning(form.planning, False, work))
    if needed != 0:
        return needed
    runner = runner_for(work, runner)
    blocks = (panel_count(shape.channels) if packs else shape.channels) * bands
    plan = plan_by_image(placed, runner, blocks, workspace_size * size)
    memory, shared = share_tables(placed, plan, context, form, sizes)
    if address_of(memory) == 0:
        return OUT_OF_MEMORY
    args = (dy, dx, placed, plan, shared, form, storage, scattering, pixel_size, lines, sums_size, workspace_size)
    task, data = task_of(_dx_task, args)
    status = run_plan(plan, context, work, shared.failed, form.planning.run, task, data)
    release(memory)
    return status


@compiled
def _dx_task(
    dy: Elements,
    dx: Elements,
    placed: PlacedRois,
    plan: Plan,
    shared: SharedTables,
    form: Form,
    storage: Storage,
    scattering: Stages,
    pixel_size: int,
    lines: int,
    sums_size: int,
    workspace_size: int,
    first: int,
    last: int,
    worker: int,
) -> None:
    shape = placed.shape
    memory, buffer = allocate_workspace(workspace_size, dx)
    if address_of(memory) == 0:
        shared.failed[0] = 1
        return
    pixels, bins = shape.height * shape.width, shape.bins_y * shape.bins_x
    line = offset(buffer, sums_size)
    gradient = offset(line, shape.width * pixel_size)
    staged = storage_pointer(offset(gradient, bins * pixel_size), dx)
    streams = should_stream(dx, shape.images * shape.channels * pixels)
    bands = (shape.height + lines - 1) // lines
    for index in range(first + worker, last, plan.workers):
        image, block = index // plan.blocks, index % plan.blocks
        channel, top = block // bands * pixel_size, block % bands * lines
        lanes, bottom = minimum(pixel_size, shape.channels - channel), minimum(top + lines, shape.height)
        planes = offset(dx, (image * shape.channels + channel) * pixels)
        begin, end = shared.groups.first[image], shared.groups.first[image + 1]
        low, high = top, bottom
        if pixel_size > 1:
            low, high = _rows_in_band(placed, shared, form, begin, end, top, bottom)
        clear(planes, pixels, lanes, top * shape.width, low * shape.width)
        clear(planes, pixels, lanes, high * shape.width, bottom * shape.width)
        target, size = offset(planes, low * shape.width), (high - low) * shape.width
        sums = buffer if sums_size else compute_pointer(target, dx)
        clear(sums, 0, 1, 0, size * pixel_size)
        m = _next_in_band(placed, shared, form, worker, begin, end, low, high)
        while m < end:
            r, m = shared.groups.order[m], _next_in_band(placed, shared, form, worker, m + 1, end, low, high)
            source = offset(dy, (r * shape.channels + channel) * bins)
            if pixel_size == 1:
                call(storage.read, (source, bins, gradient))
            else:
                call(storage.pack, (source, bins, lanes, 0, 1, bins, gradient))
                if m < end:
                    following = (shared.groups.order[m] * shape.channels + channel) * bins
                    prefetch_to_read(offset(dy, following), lanes * bins)
            rows, columns = tables_of(placed, shared, form, worker, r)
            band = offset(sums, -low * shape.width * pixel_size)
            call(
                scattering.panel if pixel_size > 1 else scattering.plane,
                (gradient, rows, columns, low, high, line, band, shape.width * pixel_size),
            )
        if sums_size and pixel_size == 1:
            call(storage.write, (sums, size, target))
        elif sums_size and streams:
            unpack_by_stream(storage.unpack, sums, size, target, pixels, lanes, staged)
        elif sums_size:
            call(storage.unpack, (sums, size, target, pixels, lanes))
    fence()
    release(memory)


@compiled
def _rows_in_band(
    placed: PlacedRois, shared: SharedTables, form: Form, begin: int, end: int, top: int, bottom: int
) -> tuple[int, int]:
    """The first of the rows top:bottom that the RoIs begin:end read, and the one after the last.

    All rows if the tables are not filled: filling them would take longer than clearing rows and adding nothing to them.
    """
    if begin < end and not shared.is_filled:
        return top, bottom
    first, last = bottom, top
    for m in range(begin, end):
        rows, _ = tables_of(placed, shared, form, 0, shared.groups.order[m])
        low, high = rows.span[0], rows.span[1]
        if low < high:
            first, last = minimum(first, maximum(low, top)), maximum(last, minimum(high, bottom))
        if first == top and last == bottom:
            break
    return (first, last) if first < last else (top, top)


@compiled
def _next_in_band(
    placed: PlacedRois, shared: SharedTables, form: Form, worker: int, begin: int, end: int, top: int, bottom: int
) -> int:
    """The first of the RoIs begin:end, in the order of their groups, that reads a row of top:bottom; else `end`."""
    if bottom - top == placed.shape.height:
        return begin
    for m in range(begin, end):
        rows, _ = tables_of(placed, shared, form, worker, shared.groups.order[m])
        low, high = rows.span[0], rows.span[1]
        if low < bottom and top < high:
            return m
    return end


@compiled
def average_drois(
    x: Elements,
    dy: Elements,
    drois: Elements,
    placed: PlacedRois,
    form: Form,
    storage: Storage,
    boxes: Stages,
    runner: int,
    context: int,
) -> int:
    """Fill drois [R, 4] of an average, of float32 or float64, from x [N, C, H, W] and dy [R, C, PH, PW].

    Sums over channels are float64, since large terms of opposite signs cancel to a small result.

    Returns:
        As `forward.pool`.
    """
    shape, is_whole = placed.shape, should_pack_maps(placed)
    bins, panels = shape.bins_y * shape.bins_x, panel_count(shape.channels)
    sizes = table_sizes(placed, form)
    lines = panel_lines(placed, is_whole, x, form, sizes.fits)
    workspace_size = sliding_size(placed, is_whole, lines, x) + (bins + 3 * shape.width) * LANES
    work = estimate_work(placed, shape.rois * bins)
    planes, slides = may_use_planes(placed, is_whole), lines < shape.height
    needed = maximum(
        missing(boxes, shape.channels >= LANES // 2, planes), missing_planning(form.planning, slides, work)
    )
    if needed != 0:
        return needed
    runner = runner_for(work, runner)
    # Each panel has sums of its own, which are then added in the order of the panels.
    size = 4 * shape.rois
    most = maximum(minimum(panels, MAX_WORKSPACE_BYTES // (8 * size)), 1)
    memory_of_sums = allocate((most + 1) * size)
    sums = float64_pointer(memory_of_sums)
    parts = offset(sums, size)
    plan = plan_of_panels(placed, is_whole, runner, most, workspace_size * itemsize(compute_pointer(x, x)))
    memory, shared = share_tables(placed, plan, context, form, sizes)
    status = OUT_OF_MEMORY if address_of(memory) == 0 or address_of(sums) == 0 else 0
    if status == 0 and slides and call(form.planning.sort, (placed, shared)) == 0:
        status = OUT_OF_MEMORY
    for i in range(0 if status else size):
        sums[i] = 0.0
    for panel in range(0, panels, most):
        if status == 0:
            count = minimum(most, panels - panel)
            args = (x, dy, parts, placed, plan, shared, form, storage, boxes, panel, count, lines, workspace_size)
            task, data = task_of(_drois_task, args)
            status = run_plan(plan, context, work * count / panels, shared.failed, form.planning.run, task, data)
            for k in range(0 if status else count):
                for i in range(size):
                    sums[i] += parts[k * size + i]
    for i in range(0 if status else size):
        set_value(drois, i, sums[i])
    release(memory)
    release(memory_of_sums)
    return status


@compiled
def _drois_task(
    x: Elements,
    dy: Elements,
    parts: Any,
    placed: PlacedRois,
    plan: Plan,
    shared: SharedTables,
    form: Form,
    storage: Storage,
    boxes: Stages,
    first_panel: int,
    panels: int,
    lines: int,
    workspace_size: int,
    first: int,
    last: int,
    worker: int,
) -> None:
    shape = placed.shape
    memory, gradient = allocate_workspace(workspace_size + 8 * LANES, x)
    if address_of(memory) == 0:
        shared.failed[0] = 1
        return
    pixels, bins = shape.height * shape.width, shape.bins_y * shape.bins_x
    of_channels, length = float64_pointer(offset(gradient, workspace_size)), shape.width * LANES
    whole_line = offset(gradient, bins * LANES)
    panel = offset(whole_line, 3 * length)
    numbers = int64_pointer(offset(panel, lines * length))
    for index in range(first + worker, last, plan.workers):
        item, block = index // plan.blocks, index % plan.blocks
        image, begin, end, window, packs = work_item(placed, plan, shared, form, worker, item)
        corner = window.top * shape.width + window.left
        packed = offset(panel, -(window.top * window.width + window.left) * LANES)
        line = offset(whole_line, -window.left * LANES) if packs else whole_line
        for k in range(panels * block // plan.blocks, panels * (block + 1) // plan.blocks):
            channel = (first_panel + k) * LANES
            lanes = minimum(LANES, shape.channels - channel)
            channels = offset(x, (image * shape.channels + channel) * pixels)
            end_row = 0
            if packs and lines == shape.height:
                source = offset(channels, corner)
                call(storage.pack, (source, pixels, lanes, shape.width, window.height, window.width, panel))
            for m in range(begin, end):
                r = shared.groups.order[m] if plan.is_by_image else m
                rows, columns = tables_of(placed, shared, form, worker, r)
                source = offset(dy, (r * shape.channels + channel) * bins)
                part = offset(parts, (k * shape.rois + r) * 4)
                part[0], part[1], part[2], part[3] = 0.0, 0.0, 0.0, 0.0
                if packs and lines < shape.height:
                    low, high = rows.span[0], rows.span[1]
                    end_row = slide(storage.pack, channels, placed, lanes, lines, end_row, low, high, panel)
                    rows = rows_of_panel(rows, low, lines, numbers)
                if packs:
                    call(storage.pack, (source, bins, lanes, 0, 1, bins, gradient))
                    if plan.is_by_image and m + 1 < end:
                        following = (shared.groups.order[m + 1] * shape.channels + channel) * bins
                        prefetch_to_read(offset(dy, following), lanes * bins)
                    stride = window.width * LANES
                    call(
                        boxes.panel,
                        (packed, stride, gradient, rows, columns, line, length, of_channels, part),
                    )
                else:
                    for c in range(lanes):
                        call(storage.read, (offset(source, c * bins), bins, gradient))
                        plane = offset(channels, c * pixels)
                        call(
                            boxes.plane,
                            (plane, shape.width, gradient, rows, columns, line, length, of_channels, part),
                        )
    release(memory)
