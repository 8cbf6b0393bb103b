"""Gradients dX of maxima over RoIs, in tasks with disjoint outputs.

A task has a band of rows of a panel of channels of an image, or one channel, and adds up all RoIs in their order. The argmax
of a panel's bins are found first; then its gradients are added channel by channel, in the order of bins, as those of one
channel are.
"""

from __future__ import annotations

from typing import Any

from ortops.kernels.axis import axis_of
from ortops.kernels.jit import LANES
from ortops.kernels.jit.compile import compiled
from ortops.kernels.jit.parallel import call, release, task_of
from ortops.kernels.jit.scalar import (
    address_of,
    compute_pointer,
    float64_pointer,
    itemsize,
    maximum,
    minimum,
    offset,
    storage_pointer,
)
from ortops.kernels.jit.simd import fence, prefetch_to_read
from ortops.kernels.layout import OUT_OF_MEMORY, Elements, Form, PlacedRois, Slot, Stages, Storage
from ortops.kernels.pack import STAGED_PIXELS, clear, should_stream, unpack_by_stream
from ortops.kernels.roi_tables import SharedTables, share_tables, table_sizes, tables_of
from ortops.kernels.schedule import (
    MAX_MAP_PIXELS,
    MAX_WINDOW_PIXELS,
    Plan,
    allocate_workspace,
    estimate_work,
    make_window,
    missing,
    missing_planning,
    plan_by_image,
    run_plan,
    runner_for,
)
from ortops.kernels.tables import bins_in_band, some_bins, span_of_candidates

MAX_PANEL_BINS = 1 << 14
"""The most bins of a RoI whose argmax are found in panels: their codes take 2 MiB."""

MAX_SPARSITY = 8.0
"""The most pixels of a RoI's window for each pixel that its samples read, if the window is packed.

Measured with 128 channels and 40 RoIs: with 14 pixels, panels take 71 to 104 % of the time; with 18, 160 %.
"""

MAX_BAND_BYTES = 1 << 20
"""The most bytes of a band of rows, in which dX of a panel is summed up, where RoIs cover the maps.

Measured on P2 with two threads, bands are as fast as whole maps. But their workspaces have a third of the size, so more
threads can have one.
"""


@compiled
def maximum_dx(
    x: Elements,
    dy: Elements,
    dx: Elements,
    placed: PlacedRois,
    form: Form,
    storage: Storage,
    argmax: Stages,
    takes_corners: int,
    runner: int,
    context: int,
) -> int:
    """Fill dx [N, C, H, W] of a maximum from x and dy [R, C, PH, PW].

    The arguments and the result are as in `gather.gather`.
    """
    shape = placed.shape
    pixels = shape.height * shape.width
    size = itemsize(compute_pointer(dx, dx))
    is_direct = itemsize(dx) == size
    sizes = table_sizes(placed, form)
    fits = sizes.fits
    # Without tables of all RoIs there are no bands, and the sums take as much as the panel.
    is_whole, packs_windows = _choose_panels(placed, MAX_MAP_PIXELS if fits else MAX_MAP_PIXELS // 2)
    pixel_size = LANES if is_whole or (packs_windows and (is_direct or pixels <= MAX_MAP_PIXELS)) else 1
    lines = shape.height
    if is_whole and fits:
        lines = maximum(minimum(MAX_BAND_BYTES // (shape.width * LANES * size), lines), 1)
    bands = (shape.height + lines - 1) // lines
    # If elements are computed in their own type, sums of planes are made directly in dx. Those of whole maps are not: the
    # interleaved pixels of a bin's lanes share cache lines. Measured on P2: 80 % of the time.
    sums_size = 0 if is_direct and not is_whole else lines * shape.width * pixel_size
    others_size = codes_size(placed, pixel_size, dx) + sums_size + (STAGED_PIXELS * LANES if is_whole else 0)
    panel_size = _panel_size(placed, is_whole) if pixel_size > 1 else 0
    work = estimate_work(placed, shape.images * pixels)
    needed = maximum(missing(argmax, pixel_size > 1, True), missing_planning(form.planning, False, work))
    if needed != 0:
        return needed
    runner = runner_for(work, runner)
    blocks = (shape.channels + pixel_size - 1) // pixel_size * bands
    plan = plan_by_image(placed, runner, blocks, (others_size + panel_size) * size)
    memory, shared = share_tables(placed, plan, context, form, sizes)
    if address_of(memory) == 0:
        return OUT_OF_MEMORY
    if bands > 1:
        panel_size = _most_rows_read(placed, shared, form, lines) * shape.width * LANES
        plan = plan_by_image(placed, runner, blocks, (others_size + panel_size) * size)
    workspace_size = others_size + panel_size
    args = (
        x, dy, dx, placed, plan, shared, form, storage, argmax, takes_corners != 0, pixel_size, is_whole, lines, sums_size,
        workspace_size,
    )  # fmt: skip
    task, data = task_of(_dx_task, args)
    status = run_plan(plan, context, work, shared.failed, form.planning.run, task, data)
    release(memory)
    return status


@compiled
def _dx_task(
    x: Elements,
    dy: Elements,
    dx: Elements,
    placed: PlacedRois,
    plan: Plan,
    shared: SharedTables,
    form: Form,
    storage: Storage,
    argmax: Stages,
    takes_corners: bool,
    pixel_size: int,
    is_whole: bool,
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
    width, pixels, bins = shape.width, shape.height * shape.width, shape.bins_y * shape.bins_x
    codes, buffer = float64_pointer(buffer), offset(buffer, codes_size(placed, pixel_size, dx))
    staged = storage_pointer(offset(buffer, sums_size), dx)
    panel = offset(buffer, sums_size + (STAGED_PIXELS * LANES if is_whole else 0))
    streams = should_stream(dx, shape.images * shape.channels * pixels)
    bands = (shape.height + lines - 1) // lines
    for index in range(first + worker, last, plan.workers):
        image, block = index // plan.blocks, index % plan.blocks
        channel, top = block // bands * pixel_size, block % bands * lines
        lanes, bottom = minimum(pixel_size, shape.channels - channel), minimum(top + lines, shape.height)
        planes = offset(x, (image * shape.channels + channel) * pixels)
        target = offset(dx, (image * shape.channels + channel) * pixels)
        begin, end = shared.groups.first[image], shared.groups.first[image + 1]
        low, high = top, bottom
        if sums_size:
            low, high = _rows_read(placed, shared, form, begin, end, top, bottom)
            clear(target, pixels, lanes, top * width, maximum(low, top) * width)
            clear(target, pixels, lanes, minimum(high, bottom) * width, bottom * width)
            top, bottom = maximum(low, top), minimum(high, bottom)
        size, target = (bottom - top) * width, offset(target, top * width)
        sums = buffer if sums_size else compute_pointer(target, dx)
        # The strides between channels and between pixels of the sums.
        stride, pixel = (1, LANES) if is_whole else (size, 1)
        clear(sums, 0, 1, 0, size * pixel_size if is_whole else size * lanes)
        if is_whole:
            call(storage.pack, (offset(planes, low * width), pixels, lanes, width, high - low, width, panel))
        for m in range(begin, end):
            r = shared.groups.order[m]
            rows, columns = tables_of(placed, shared, form, worker, r)
            first_bin = 0
            if bands > 1:
                first_bin, end_bin = bins_in_band(rows, top, bottom)
                rows = some_bins(rows, first_bin, end_bin)
            gradient = offset(dy, (r * shape.channels + channel) * bins + first_bin * columns.bins)
            has_codes = is_whole
            if is_whole and rows.bins:
                # Measured on P2: 90 % of the time.
                prefetch_to_read(gradient, lanes * bins - first_bin * columns.bins)
                packed = offset(panel, -low * width * LANES)
                call(argmax.panel, (packed, width * LANES, rows, columns, takes_corners, codes))
            elif pixel_size > 1 and not is_whole:
                args = (planes, placed, r, lanes, rows, columns, takes_corners, panel, codes)
                has_codes = _pack_argmax(storage, argmax, *args)
            band = offset(sums, -top * width * pixel)
            call(
                argmax.plane,
                (
                    planes, pixels, lanes, gradient, bins, width, rows, columns, takes_corners, codes, has_codes, top,
                    bottom, band, stride, pixel,
                ),
            )  # fmt: skip
        if is_whole and streams:
            unpack_by_stream(storage.unpack, sums, size, target, pixels, lanes, staged)
        elif is_whole:
            call(storage.unpack, (sums, size, target, pixels, lanes))
        elif sums_size:
            for c in range(lanes):
                call(storage.write, (offset(sums, c * size), size, offset(target, c * pixels)))
    fence()
    release(memory)


@compiled
def _rows_read(
    placed: PlacedRois, shared: SharedTables, form: Form, begin: int, end: int, top: int, bottom: int
) -> tuple[int, int]:
    """The span [low, high) of the rows that bins of the RoIs begin:end read, of those bins that read a row of top:bottom.

    The rows themselves if the tables are not filled: filling them would take longer than clearing rows.
    """
    if begin < end and not shared.is_filled:
        return top, bottom
    first, last = bottom, top
    for m in range(begin, end):
        rows, _ = tables_of(placed, shared, form, 0, shared.groups.order[m])
        first_bin, end_bin = bins_in_band(rows, top, bottom)
        if first_bin < end_bin:
            low, high = span_of_candidates(some_bins(rows, first_bin, end_bin))
            first, last = minimum(first, low), maximum(last, high)
    return (first, last) if first < last else (top, top)


@compiled
def _most_rows_read(placed: PlacedRois, shared: SharedTables, form: Form, lines: int) -> int:
    """The most rows that `_rows_read` returns for bands of `lines` rows."""
    shape, most = placed.shape, 0
    for n in range(shape.images):
        begin, end = shared.groups.first[n], shared.groups.first[n + 1]
        for top in range(0, shape.height, lines):
            low, high = _rows_read(placed, shared, form, begin, end, top, minimum(top + lines, shape.height))
            most = maximum(most, high - low)
    return most


@compiled
def can_use_panels(placed: PlacedRois) -> bool:
    """Whether argmax can be found in panels, with at least half of the lanes used."""
    shape = placed.shape
    return shape.channels >= LANES // 2 and shape.bins_y * shape.bins_x <= MAX_PANEL_BINS


@compiled
def _pixels_to_read(placed: PlacedRois, r: int) -> float:
    """The most pixels that the samples of a RoI read."""
    y, x = axis_of(placed.axes, r, 0, placed.shape.bins_y), axis_of(placed.axes, r, 1, placed.shape.bins_x)
    rows = minimum(2.0 * y.bins * y.samples, float(placed.spans[2 * r]))
    return rows * minimum(2.0 * x.bins * x.samples, float(placed.spans[2 * r + 1]))


@compiled
def is_sparse(placed: PlacedRois, r: int) -> bool:
    """Whether the samples of a RoI read few pixels of its window."""
    window = float(placed.spans[2 * r]) * float(placed.spans[2 * r + 1])
    return window > MAX_SPARSITY * _pixels_to_read(placed, r)


@compiled
def _choose_panels(placed: PlacedRois, max_pixels: int) -> tuple[bool, bool]:
    """Whether to pack whole maps for dX, or otherwise windows.

    Whole maps have at most `max_pixels` pixels, each read once on average; half of the windows are not sparse.
    """
    shape, total, dense = placed.shape, 0.0, 0
    for r in range(shape.rois):
        total += _pixels_to_read(placed, r)
        dense += 0 if is_sparse(placed, r) else 1
    pixels, can = float(shape.height) * float(shape.width), can_use_panels(placed)
    is_whole = can and pixels <= max_pixels and total >= shape.images * pixels
    return is_whole, can and not is_whole and 2 * dense >= shape.rois


@compiled
def _panel_size(placed: PlacedRois, is_whole: bool) -> int:
    """The number of values of a panel of a whole map or of the largest window."""
    pixels = placed.shape.height * placed.shape.width
    return (pixels if is_whole else minimum(pixels, MAX_WINDOW_PIXELS)) * LANES


@compiled
def codes_size(placed: PlacedRois, pixel_size: int, like: Elements) -> int:
    """The number of values of the compute type of the elements at `like` that have room for the codes of a RoI."""
    bins = placed.shape.bins_y * placed.shape.bins_x
    return bins * LANES * 8 // itemsize(compute_pointer(like, like)) if pixel_size > 1 else 0


@compiled
def _pack_argmax(
    storage: Storage,
    argmax: Stages,
    planes: Elements,
    placed: PlacedRois,
    r: int,
    lanes: int,
    rows: Slot,
    columns: Slot,
    takes_corners: bool,
    panel: Elements,
    codes: Any,
) -> bool:
    """Pack the window of RoI r and store its argmax, unless finding them channel by channel is faster."""
    shape = placed.shape
    if is_sparse(placed, r):
        return False
    window = make_window((rows.span[0], rows.span[1]), (columns.span[0], columns.span[1]), shape.width)
    if window.height * window.width > MAX_WINDOW_PIXELS:
        return False
    source, plane = offset(planes, window.top * shape.width + window.left), shape.height * shape.width
    call(storage.pack, (source, plane, lanes, shape.width, window.height, window.width, panel))
    packed = offset(panel, -(window.top * window.width + window.left) * LANES)
    call(argmax.panel, (packed, window.width * LANES, rows, columns, takes_corners, codes))
    return True
