"""Gradients dX of averages and of maxima of whole pixels, in tasks with disjoint outputs.

A task has a band of rows of a panel of channels of an image, or of one channel, and adds up all RoIs in their order.
"""

from __future__ import annotations

from ortops.kernels.jit import LANES
from ortops.kernels.jit.compile import compiled
from ortops.kernels.jit.parallel import call, release, task_of
from ortops.kernels.jit.scalar import (
    address_of,
    compute_pointer,
    itemsize,
    maximum,
    minimum,
    offset,
    storage_pointer,
)
from ortops.kernels.jit.simd import fence, prefetch_to_read
from ortops.kernels.layout import OUT_OF_MEMORY, PIXELS, Elements, Form, PlacedRois, Stages, Storage
from ortops.kernels.pack import STAGED_PIXELS, clear, should_stream, unpack_by_stream
from ortops.kernels.roi_tables import SharedTables, share_tables, table_sizes, tables_of
from ortops.kernels.schedule import (
    MAX_MAP_PIXELS,
    Plan,
    allocate_workspace,
    covered_pixels,
    estimate_work,
    missing,
    missing_planning,
    panel_count,
    plan_by_image,
    run_plan,
    runner_for,
)

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
def scatter(
    x: Elements,
    dy: Elements,
    dx: Elements,
    placed: PlacedRois,
    form: Form,
    storage: Storage,
    scattering: Stages,
    runner: int,
    context: int,
) -> int:
    """Fill dx [N, C, H, W] from dy [R, C, PH, PW] and, for maxima of whole pixels, x.

    The arguments and the result are as in `gather.gather`.
    """
    shape, reads_x = placed.shape, form.kind == PIXELS
    pixels, bins = shape.height * shape.width, shape.bins_y * shape.bins_x
    sizes = table_sizes(placed, form)
    shares = sizes.fits
    packs = shape.channels >= LANES // 2 and (shares or pixels <= MAX_MAP_PIXELS)
    if reads_x:
        # Packs also for few RoIs: it takes no longer than filling dx. Two panels are in use, the map's and the sums'.
        packs = shape.channels >= LANES // 2 and 2 * pixels <= MAX_MAP_PIXELS
    else:
        packs = packs and covered_pixels(placed, 0) >= MIN_COVERED * float(shape.images * pixels)
    # If elements are computed in their own type, sums of planes are made directly in dx.
    size = itemsize(compute_pointer(dx, dx))
    pixel_size, is_direct = LANES if packs else 1, not packs and itemsize(dx) == size
    lines = maximum(minimum(MAX_BAND_BYTES // (shape.width * pixel_size * size), shape.height), 1)
    if reads_x or (packs and not shares):
        lines = shape.height  # each band would pack the map, or fill all tables, again
    bands = (shape.height + lines - 1) // lines
    sums_size = 0 if is_direct else lines * shape.width * pixel_size
    panel_size = pixels * LANES if reads_x and packs else 0
    workspace_size = sums_size + (shape.width + bins + STAGED_PIXELS) * pixel_size + panel_size
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
    args = (x, dy, dx, placed, plan, shared, form, storage, scattering, pixel_size, lines, sums_size, workspace_size)
    task, data = task_of(_scatter_task, args)
    status = run_plan(plan, context, work, shared.failed, form.planning.run, task, data)
    release(memory)
    return status


@compiled
def _scatter_task(
    x: Elements,
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
    panel = offset(gradient, (bins + STAGED_PIXELS) * pixel_size)
    reads_x = form.kind == PIXELS
    streams = should_stream(dx, shape.images * shape.channels * pixels)
    bands = (shape.height + lines - 1) // lines
    for index in range(first + worker, last, plan.workers):
        image, block = index // plan.blocks, index % plan.blocks
        channel, top = block // bands * pixel_size, block % bands * lines
        lanes, bottom = minimum(pixel_size, shape.channels - channel), minimum(top + lines, shape.height)
        at = (image * shape.channels + channel) * pixels
        planes, maps = offset(dx, at), offset(x, at if reads_x else 0)
        begin, end = shared.groups.first[image], shared.groups.first[image + 1]
        low, high = top, bottom
        if pixel_size > 1:
            low, high = _rows_in_band(placed, shared, form, begin, end, top, bottom)
        clear(planes, pixels, lanes, top * shape.width, low * shape.width)
        clear(planes, pixels, lanes, high * shape.width, bottom * shape.width)
        target, size = offset(planes, low * shape.width), (high - low) * shape.width
        sums = buffer if sums_size else compute_pointer(target, dx)
        clear(sums, 0, 1, 0, size * pixel_size)
        if reads_x and pixel_size > 1:
            source, packed = offset(maps, low * shape.width), offset(panel, low * shape.width * LANES)
            call(storage.pack, (source, pixels, lanes, shape.width, high - low, shape.width, packed))
            maps = storage_pointer(panel, x)
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
                (maps, gradient, rows, columns, low, high, line, band, shape.width * pixel_size),
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
