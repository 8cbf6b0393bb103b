"""The forward operators: averages and maxima over RoIs, cut into tasks that share no output.

A task is a RoI, or an image whose map is packed as a whole, and some panels of channels.
"""

from __future__ import annotations

from typing import Any

from ortops.kernels.average import average
from ortops.kernels.jit import LANES
from ortops.kernels.jit.compile import inner
from ortops.kernels.jit.lanes import fence, prefetch_to_write
from ortops.kernels.jit.parallel import release
from ortops.kernels.jit.scalar import address_of, bytes_of, elements_at, minimum, numbers_at, offset, store
from ortops.kernels.layout import OUT_OF_MEMORY, Placed
from ortops.kernels.maximum import largest_corner, largest_sample
from ortops.kernels.pack import pack, prefetch_window, stream, unpack
from ortops.kernels.pixels import fill_pixels, largest_pixel
from ortops.kernels.roi_tables import Shared, share, tables_of, unit_of
from ortops.kernels.schedule import (
    Plan,
    packs_maps,
    panels_of,
    plan_of_panels,
    room_of_panel,
    run_plan,
    runner_for,
    work_of,
    work_space,
)
from ortops.kernels.tables import fill_candidates, fill_extremes, fill_weights, span_of, span_of_candidates

MOST_BYTES_IN_CACHE = 1 << 24
"""A larger output is written past the cache, where nobody would find it anyway: measured, C4 takes 72 % of the time."""

MOST_BINS_TO_ROUND = 1 << 12
"""More bins would leave the cache before they are written past it."""


@inner
def pool_average(x: Any, y: Any, placed: Placed, runner: int, context: int, outside: float) -> int:
    """Fill y [R, C, PH, PW] with averages of x [N, C, H, W]; outside is the value of samples off the map.

    Returns:
        OUT_OF_MEMORY, INTERRUPTED or 0.
    """
    return _pool(x, y, placed, runner, context, x, 1, 0, fill_weights, span_of, average, outside)


@inner
def pool_corners(x: Any, y: Any, placed: Placed, runner: int, context: int, outside: float) -> int:
    """As `pool_average`, but the largest weighted corners; outside is not used."""
    return _pool(x, y, placed, runner, context, x, 1, 1, fill_extremes, span_of, largest_corner, outside)


@inner
def pool_samples(x: Any, y: Any, placed: Placed, runner: int, context: int, outside: float) -> int:
    """As `pool_average`, but the largest interpolated samples."""
    doubles = placed.axes
    return _pool(
        x, y, placed, runner, context, doubles, 3, 0, fill_candidates, span_of_candidates, largest_sample, outside
    )


@inner
def pool_pixels(x: Any, y: Any, placed: Placed, runner: int, context: int, outside: float) -> int:
    """As `pool_average`, but the largest pixels; outside is the value of bins without pixels."""
    return _pool(x, y, placed, runner, context, x, 1, 0, fill_pixels, span_of, largest_pixel, outside)


@inner
def _pool(
    x: Any,
    y: Any,
    placed: Placed,
    runner: int,
    context: int,
    like: Any,
    each: int,
    extra: int,
    fill: Any,
    span: Any,
    apply: Any,
    outside: float,
) -> int:
    """Pool by tables that `fill` fills (`roi_tables.share`), of which `span` tells the pixels, and that `apply` applies."""
    shape, is_whole = placed.shape, packs_maps(placed)
    bins = shape.bins_y * shape.bins_x
    rounded = rounded_numbers(placed, y)
    room = room_of_panel(placed, is_whole) + (bins + shape.width) * LANES + rounded
    work = work_of(placed, shape.rois * bins)
    runner = runner_for(work, runner)
    plan = plan_of_panels(placed, is_whole, runner, panels_of(shape.channels), room * bytes_of(numbers_at(x, x)))
    memory, shared = share(placed, plan, context, like, each, extra, False, fill)
    if address_of(memory) == 0:
        return OUT_OF_MEMORY
    args = (x, y, placed, plan, shared, fill, span, apply, outside, rounded, room)
    status = run_plan(plan, context, work, shared.failed, _pool_task, args)
    release(memory)
    return status


@inner
def rounded_numbers(placed: Placed, y: Any) -> int:
    """The numbers of a RoI that are rounded before they are written past the cache; 0 if y is not written past it."""
    shape, bins = placed.shape, placed.shape.bins_y * placed.shape.bins_x
    is_large = shape.rois * shape.channels * bins * bytes_of(y) > MOST_BYTES_IN_CACHE
    return bins * LANES if is_large and bins <= MOST_BINS_TO_ROUND else 0


@inner
def _pool_task(
    x: Any,
    y: Any,
    placed: Placed,
    plan: Plan,
    shared: Shared,
    fill: Any,
    span: Any,
    apply: Any,
    outside: float,
    rounded: int,
    room: int,
    first: int,
    last: int,
    worker: int,
) -> None:
    shape = placed.shape
    memory, sums = work_space(room, x)
    if address_of(memory) == 0:
        shared.failed[0] = 1
        return
    pixels, bins, panels = shape.height * shape.width, shape.bins_y * shape.bins_x, panels_of(shape.channels)
    whole_line = offset(sums, bins * LANES)
    behind_line = offset(whole_line, shape.width * LANES)
    elements, panel = elements_at(behind_line, y), offset(behind_line, rounded)
    for index in range(first + worker, last, plan.workers):
        unit, block = index // plan.blocks, index % plan.blocks
        image, begin, end, window, packs = unit_of(placed, plan, shared, worker, unit, False, fill, span)
        corner = window.top * shape.width + window.left
        # Pixels have their numbers on the map, also where a part of it is packed.
        packed = offset(panel, -(window.top * window.width + window.left) * LANES)
        line = offset(whole_line, -window.left * LANES) if packs else whole_line
        for k in range(panels * block // plan.blocks, panels * (block + 1) // plan.blocks):
            channel = k * LANES
            lanes = minimum(LANES, shape.channels - channel)
            planes = offset(x, (image * shape.channels + channel) * pixels)
            if packs:
                source = offset(planes, corner)
                pack(source, pixels, lanes, shape.width, window.height, window.width, panel)
                if not plan.is_by_image:
                    following = minimum(LANES, shape.channels - channel - LANES)
                    source = offset(source, LANES * pixels)
                    prefetch_window(source, pixels, following, shape.width, window.height, window.width)
            for m in range(begin, end):
                r = shared.groups.order[m] if plan.is_by_image else m
                rows, columns = tables_of(placed, shared, worker, r, False, fill)
                target = offset(y, (r * shape.channels + channel) * bins)
                if packs:
                    if rounded:
                        apply(packed, window.width * LANES, LANES, rows, columns, outside, line, sums)
                        unpack(sums, bins, elements, bins, lanes)
                        stream(elements, target, bins * lanes)
                    else:
                        prefetch_to_write(target, bins * lanes)
                        apply(packed, window.width * LANES, LANES, rows, columns, outside, line, sums)
                        unpack(sums, bins, target, bins, lanes)
                else:
                    for c in range(lanes):
                        apply(offset(planes, c * pixels), shape.width, 1, rows, columns, outside, line, sums)
                        for b in range(bins):
                            store(target, c * bins + b, sums[b])
    if rounded:
        fence()
    release(memory)
