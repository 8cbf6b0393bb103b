"""Forward pooling over RoIs, by average or maximum, in tasks with disjoint outputs.

A task has some panels of channels of a RoI, or of an image whose map is packed as a whole.
"""

from __future__ import annotations

from typing import Any

from ortops.kernels.average import average
from ortops.kernels.jit import LANES
from ortops.kernels.jit.compile import compiled
from ortops.kernels.jit.parallel import release
from ortops.kernels.jit.scalar import (
    address_of,
    compute_pointer,
    int64_pointer,
    itemsize,
    minimum,
    offset,
    storage_pointer,
    store,
)
from ortops.kernels.jit.simd import fence, prefetch_to_write
from ortops.kernels.layout import OUT_OF_MEMORY, PlacedRois
from ortops.kernels.maximum import max_sample, max_weighted_corner
from ortops.kernels.pack import pack, prefetch_window, should_stream, stream, unpack
from ortops.kernels.pixel_bins import fill_pixel_bins, max_pixel
from ortops.kernels.roi_tables import SharedTables, share_tables, tables_of, work_item
from ortops.kernels.schedule import (
    Plan,
    allocate_workspace,
    estimate_work,
    group_buffer_size,
    group_size,
    panel_count,
    plan_of_panels,
    run_plan,
    runner_for,
    should_pack_maps,
    strides_of,
)
from ortops.kernels.sliding import panel_lines, rows_of_panel, slide, sliding_size, sort_by_first_row
from ortops.kernels.tables import fill_candidates, fill_extremes, fill_weights, span_of, span_of_candidates

MAX_STAGED_BINS = 1 << 12
"""The most bins to stage before non-temporal stores; more of them would leave the cache first."""


@compiled
def pool_average(x: Any, y: Any, placed: PlacedRois, runner: int, context: int, outside: float) -> int:
    """Fill y [R, C, PH, PW] with averages of x [N, C, H, W]; `outside` is the value of samples off the map.

    Returns:
        0, OUT_OF_MEMORY or INTERRUPTED.
    """
    return _pool(x, y, placed, runner, context, x, 1, 0, fill_weights, span_of, average, outside)


@compiled
def pool_max_corner(x: Any, y: Any, placed: PlacedRois, runner: int, context: int, outside: float) -> int:
    """Fill y as `pool_average`, with the maximum weighted corner of each bin; `outside` is not used."""
    return _pool(x, y, placed, runner, context, x, 1, 1, fill_extremes, span_of, max_weighted_corner, outside)


@compiled
def pool_max_sample(x: Any, y: Any, placed: PlacedRois, runner: int, context: int, outside: float) -> int:
    """Fill y as `pool_average`, with the maximum interpolated sample of each bin."""
    doubles = placed.axes
    return _pool(x, y, placed, runner, context, doubles, 3, 0, fill_candidates, span_of_candidates, max_sample, outside)


@compiled
def pool_max_pixel(x: Any, y: Any, placed: PlacedRois, runner: int, context: int, outside: float) -> int:
    """Fill y as `pool_average`, with the maximum pixel of each bin; `outside` is the value of bins without pixels."""
    return _pool(x, y, placed, runner, context, x, 1, 0, fill_pixel_bins, span_of, max_pixel, outside)


@compiled
def _pool(
    x: Any,
    y: Any,
    placed: PlacedRois,
    runner: int,
    context: int,
    like: Any,
    per_pixel: int,
    extras: int,
    fill: Any,
    span: Any,
    apply: Any,
    outside: float,
) -> int:
    """Pool with tables that `fill` fills and `apply` applies; `span` returns the pixels that a table reads.

    `like`, `per_pixel`, `extras` and `fill` are as in `roi_tables.share_tables`.
    """
    shape, is_whole = placed.shape, should_pack_maps(placed)
    bins = shape.bins_y * shape.bins_x
    staging_size = staging_size_of(placed, y)
    lines = panel_lines(placed, is_whole, like, per_pixel, extras)
    buffers_size = group_buffer_size(shape.channels_last, bins) + group_buffer_size(shape.channels_last, shape.width)
    workspace_size = sliding_size(placed, is_whole, lines, x) + buffers_size + staging_size
    work = estimate_work(placed, shape.rois * bins)
    runner = runner_for(work, runner)
    plan = plan_of_panels(
        placed, is_whole, runner, panel_count(shape.channels), workspace_size * itemsize(compute_pointer(x, x))
    )
    memory, shared = share_tables(placed, plan, context, like, per_pixel, extras, False, fill)
    if address_of(memory) == 0:
        return OUT_OF_MEMORY
    status = OUT_OF_MEMORY
    if lines == shape.height or sort_by_first_row(placed, shared, fill, span):
        args = (x, y, placed, plan, shared, fill, span, apply, outside, lines, staging_size, workspace_size)
        status = run_plan(plan, context, work, shared.failed, _pool_task, args)
    release(memory)
    return status


@compiled
def staging_size_of(placed: PlacedRois, y: Any) -> int:
    """The number of values to stage for non-temporal stores of a RoI's output; 0 if y is stored directly."""
    shape, bins = placed.shape, placed.shape.bins_y * placed.shape.bins_x
    streams = bins <= MAX_STAGED_BINS and should_stream(y, shape.rois * shape.channels * bins)
    return bins * LANES if streams else 0


@compiled
def _pool_task(
    x: Any,
    y: Any,
    placed: PlacedRois,
    plan: Plan,
    shared: SharedTables,
    fill: Any,
    span: Any,
    apply: Any,
    outside: float,
    lines: int,
    staging_size: int,
    workspace_size: int,
    first: int,
    last: int,
    worker: int,
) -> None:
    shape = placed.shape
    memory, sums = allocate_workspace(workspace_size, x)
    if address_of(memory) == 0:
        shared.failed[0] = 1
        return
    pixels, bins, panels = shape.height * shape.width, shape.bins_y * shape.bins_x, panel_count(shape.channels)
    whole_line = offset(sums, group_buffer_size(shape.channels_last, bins))
    behind_line = offset(whole_line, group_buffer_size(shape.channels_last, shape.width))
    elements, panel = storage_pointer(behind_line, y), offset(behind_line, staging_size)
    numbers = int64_pointer(offset(panel, lines * shape.width * LANES))
    plane, step = strides_of(shape)
    for index in range(first + worker, last, plan.workers):
        item, block = index // plan.blocks, index % plan.blocks
        image, begin, end, window, packs = work_item(placed, plan, shared, worker, item, False, fill, span)
        corner = window.top * shape.width + window.left
        # Tables number the pixels on the whole map, also if only a window of it is packed.
        packed = offset(panel, -(window.top * window.width + window.left) * LANES)
        group = group_size(shape.channels_last, window.width, bins)
        stop = minimum(panels * (block + 1) // plan.blocks * LANES, shape.channels)
        for channel in range(panels * block // plan.blocks * LANES, stop, group):
            channels = minimum(group, stop - channel)
            source = offset(x, image * shape.channels * pixels + channel * plane)
            end_row = 0
            if packs and lines == shape.height:
                pack(offset(source, corner), plane, channels, shape.width, window.height, window.width, panel)
                if not plan.is_by_image:
                    ahead = offset(source, LANES * plane + corner)
                    following = minimum(LANES, shape.channels - channel - LANES)
                    prefetch_window(ahead, plane, following, shape.width, window.height, window.width)
            # The channels that are pooled side by side; the others are pooled one by one.
            together = LANES if packs else channels // LANES * LANES if shape.channels_last else 0
            line = offset(whole_line, -window.left * together)
            for m in range(begin, end):
                r = shared.groups.order[m] if plan.is_by_image else m
                rows, columns = tables_of(placed, shared, worker, r, False, fill)
                target = offset(y, (r * shape.channels + channel) * bins)
                if packs and lines < shape.height:
                    low, high = span(rows)
                    end_row = slide(source, placed, channels, lines, end_row, low, high, panel)
                    rows = rows_of_panel(rows, low, lines, numbers)
                if staging_size == 0:
                    prefetch_to_write(target, bins * minimum(channels, together))
                if packs:
                    apply(packed, window.width * LANES, LANES, LANES, rows, columns, outside, line, sums)
                elif together:
                    apply(source, shape.width * step, step, together, rows, columns, outside, line, sums)
                for k in range(0, together, LANES):
                    lanes, planes = minimum(channels - k, LANES), offset(target, k * bins)
                    if staging_size:
                        unpack(offset(sums, k), together, bins, elements, bins, lanes)
                        stream(elements, planes, bins * lanes)
                    else:
                        unpack(offset(sums, k), together, bins, planes, bins, lanes)
                for c in range(together, channels):
                    one = offset(source, c * plane)
                    apply(one, shape.width * step, step, 1, rows, columns, outside, whole_line, sums)
                    for b in range(bins):
                        store(target, c * bins + b, sums[b])
    if staging_size:
        fence()
    release(memory)
