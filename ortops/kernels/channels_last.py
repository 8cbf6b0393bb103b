"""Forward pooling over RoIs of maps whose channels are last, [N, H, W, C].

The channels of a pixel lie side by side, as they do in a panel, so a map is read where it lies, unless RoIs cover it so many
times that panels in a core's cache are faster. A task has some channels of a RoI.
"""

from __future__ import annotations

from typing import Any

from ortops.kernels.average import average
from ortops.kernels.forward import pool, staging_size_of
from ortops.kernels.jit import LANES
from ortops.kernels.jit.compile import compiled
from ortops.kernels.jit.parallel import release
from ortops.kernels.jit.scalar import (
    address_of,
    compute_pointer,
    itemsize,
    maximum,
    minimum,
    offset,
    storage_pointer,
    store,
)
from ortops.kernels.jit.simd import fence, prefetch_to_write
from ortops.kernels.layout import OUT_OF_MEMORY, PlacedRois
from ortops.kernels.maximum import max_sample, max_weighted_corner
from ortops.kernels.pack import stream, unpack
from ortops.kernels.pixel_bins import fill_pixel_bins, max_pixel
from ortops.kernels.roi_tables import SharedTables, share_tables, tables_of
from ortops.kernels.schedule import (
    Plan,
    allocate_workspace,
    covered_pixels,
    estimate_work,
    panel_count,
    plan_by_roi,
    run_plan,
    runner_for,
    should_pack_maps,
)
from ortops.kernels.tables import fill_candidates, fill_extremes, fill_weights, span_of, span_of_candidates

MAX_GROUP_VALUES = 1 << 16
"""The most values of a group of channels in a buffer, unless LANES channels have more.

Measured on masks of 256 channels: with 1 << 13, where only 32 of them are read at a time, it takes 1.5 times as long.
"""

MIN_COVERED = 20.0
"""How many times RoIs cover the maps at least for whole maps to be packed.

Measured: packing takes 81 % of the time on P4, which RoIs cover 28 times, 69 % on C4 (33 times), and 130 % on P2 (11 times).
"""


@compiled
def pool_average(x: Any, y: Any, placed: PlacedRois, runner: int, context: int, outside: float) -> int:
    """Fill y [R, C, PH, PW] with averages of x [N, H, W, C]; `outside` is the value of samples off the map.

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
    """Pool with the arguments of `forward.pool`."""
    shape, bins = placed.shape, placed.shape.bins_y * placed.shape.bins_x
    covered = covered_pixels(placed, 0)
    if should_pack_maps(placed) and covered >= MIN_COVERED * shape.images * shape.height * shape.width:
        step = shape.channels
        return pool(x, y, placed, runner, context, step, like, per_pixel, extras, fill, span, apply, outside)
    staging_size = staging_size_of(placed, y)
    workspace_size = _buffer_size(bins) + _buffer_size(shape.width) + staging_size
    work = estimate_work(placed, shape.rois * bins)
    runner = runner_for(work, runner)
    plan = plan_by_roi(placed, runner, panel_count(shape.channels), workspace_size * itemsize(compute_pointer(x, x)))
    memory, shared = share_tables(placed, plan, context, like, per_pixel, extras, False, fill)
    if address_of(memory) == 0:
        return OUT_OF_MEMORY
    args = (x, y, placed, plan, shared, fill, span, apply, outside, staging_size, workspace_size)
    status = run_plan(plan, context, work, shared.failed, _pool_task, args)
    release(memory)
    return status


@compiled
def _buffer_size(pixels: int) -> int:
    """The number of values of a buffer for a group's pixels or bins."""
    return maximum(pixels * LANES, MAX_GROUP_VALUES)


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
    staging_size: int,
    workspace_size: int,
    first: int,
    last: int,
    worker: int,
) -> None:
    shape, step = placed.shape, placed.shape.channels
    memory, sums = allocate_workspace(workspace_size, x)
    if address_of(memory) == 0:
        shared.failed[0] = 1
        return
    bins, panels, stride = shape.bins_y * shape.bins_x, panel_count(shape.channels), shape.width * step
    line = offset(sums, _buffer_size(bins))
    elements = storage_pointer(offset(line, _buffer_size(shape.width)), y)
    for index in range(first + worker, last, plan.workers):
        r, block = index // plan.blocks, index % plan.blocks
        rows, columns = tables_of(placed, shared, worker, r, False, fill)
        left, right = span(columns)
        group = maximum(MAX_GROUP_VALUES // maximum(right - left, bins) // LANES, 1) * LANES
        end = minimum(panels * (block + 1) // plan.blocks * LANES, shape.channels)
        for channel in range(panels * block // plan.blocks * LANES, end, group):
            channels = minimum(group, end - channel)
            source = offset(x, placed.batch_indices[r] * shape.height * stride + channel)
            target = offset(y, (r * step + channel) * bins)
            # Whole panels of channels are pooled together, the others one by one.
            together = channels // LANES * LANES
            if staging_size == 0:
                prefetch_to_write(target, bins * channels)
            if together:
                apply(source, stride, step, together, rows, columns, outside, offset(line, -left * together), sums)
            for k in range(0, together, LANES):
                planes = offset(target, k * bins)
                if staging_size:
                    unpack(offset(sums, k), together, bins, elements, bins, LANES)
                    stream(elements, planes, bins * LANES)
                else:
                    unpack(offset(sums, k), together, bins, planes, bins, LANES)
            for c in range(together, channels):
                apply(offset(source, c), stride, step, 1, rows, columns, outside, line, sums)
                for b in range(bins):
                    store(target, c * bins + b, sums[b])
    if staging_size:
        fence()
    release(memory)
