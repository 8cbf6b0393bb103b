"""Forward pooling over RoIs, by average or maximum, in tasks with disjoint outputs.

A task has some panels of channels of a RoI, or of an image whose map is packed as a whole.
"""

from __future__ import annotations

from ortops.kernels.jit import LANES
from ortops.kernels.jit.compile import compiled
from ortops.kernels.jit.parallel import call, release, task_of
from ortops.kernels.jit.scalar import (
    address_of,
    compute_pointer,
    int64_pointer,
    itemsize,
    maximum,
    minimum,
    offset,
    storage_pointer,
)
from ortops.kernels.jit.simd import fence, prefetch_to_write
from ortops.kernels.layout import OUT_OF_MEMORY, Elements, Form, PlacedRois, Stages, Storage
from ortops.kernels.pack import prefetch_window, should_stream, stream
from ortops.kernels.roi_tables import SharedTables, share_tables, table_sizes, tables_of, work_item
from ortops.kernels.schedule import (
    Plan,
    allocate_workspace,
    estimate_work,
    may_use_planes,
    missing,
    missing_planning,
    panel_count,
    plan_of_panels,
    run_plan,
    runner_for,
    should_pack_maps,
)
from ortops.kernels.sliding import panel_lines, rows_of_panel, slide, sliding_size

MAX_STAGED_BINS = 1 << 12
"""The most bins to stage before non-temporal stores; more of them would leave the cache first."""


@compiled
def pool(
    x: Elements,
    y: Elements,
    placed: PlacedRois,
    form: Form,
    storage: Storage,
    pooling: Stages,
    outside: float,
    runner: int,
    context: int,
) -> int:
    """Fill y [R, C, PH, PW] from x [N, C, H, W].

    Args:
        x: the maps.
        y: the output.
        placed: the RoIs with their samples.
        form: what the tables of the pooling functions hold.
        storage: the functions that load and store x and y.
        pooling: the functions that pool.
        outside: the value of samples off the map, or of bins without pixels.
        runner: the address of the runner of the tasks.
        context: its context.

    Returns:
        0, OUT_OF_MEMORY, INTERRUPTED or a status of `schedule.missing`.
    """
    shape, is_whole = placed.shape, should_pack_maps(placed)
    bins = shape.bins_y * shape.bins_x
    staging_size = staging_size_of(placed, y)
    sizes = table_sizes(placed, form)
    lines = panel_lines(placed, is_whole, x, form, sizes.fits)
    workspace_size = sliding_size(placed, is_whole, lines, x) + (bins + shape.width) * LANES + staging_size
    work = estimate_work(placed, shape.rois * bins)
    slides = lines < shape.height
    planes = may_use_planes(placed, is_whole)
    needed = maximum(
        missing(pooling, shape.channels >= LANES // 2, planes), missing_planning(form.planning, slides, work)
    )
    if needed != 0:
        return needed
    runner = runner_for(work, runner)
    plan = plan_of_panels(
        placed, is_whole, runner, panel_count(shape.channels), workspace_size * itemsize(compute_pointer(x, x))
    )
    memory, shared = share_tables(placed, plan, context, form, sizes)
    if address_of(memory) == 0:
        return OUT_OF_MEMORY
    status = OUT_OF_MEMORY
    if not slides or call(form.planning.sort, (placed, shared)) != 0:
        args = (x, y, placed, plan, shared, form, storage, pooling, outside, lines, staging_size, workspace_size)
        task, data = task_of(_pool_task, args)
        status = run_plan(plan, context, work, shared.failed, form.planning.run, task, data)
    release(memory)
    return status


@compiled
def staging_size_of(placed: PlacedRois, y: Elements) -> int:
    """The number of values to stage for non-temporal stores of a RoI's output; 0 if y is stored directly."""
    shape, bins = placed.shape, placed.shape.bins_y * placed.shape.bins_x
    streams = bins <= MAX_STAGED_BINS and should_stream(y, shape.rois * shape.channels * bins)
    return bins * LANES if streams else 0


@compiled
def _pool_task(
    x: Elements,
    y: Elements,
    placed: PlacedRois,
    plan: Plan,
    shared: SharedTables,
    form: Form,
    storage: Storage,
    pooling: Stages,
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
    whole_line = offset(sums, bins * LANES)
    behind_line = offset(whole_line, shape.width * LANES)
    elements, panel = storage_pointer(behind_line, y), offset(behind_line, staging_size)
    numbers = int64_pointer(offset(panel, lines * shape.width * LANES))
    for index in range(first + worker, last, plan.workers):
        item, block = index // plan.blocks, index % plan.blocks
        image, begin, end, window, packs = work_item(placed, plan, shared, form, worker, item)
        corner = window.top * shape.width + window.left
        # Tables number the pixels on the whole map, also if only a window of it is packed.
        packed = offset(panel, -(window.top * window.width + window.left) * LANES)
        line = offset(whole_line, -window.left * LANES) if packs else whole_line
        for k in range(panels * block // plan.blocks, panels * (block + 1) // plan.blocks):
            channel = k * LANES
            lanes = minimum(LANES, shape.channels - channel)
            channels = offset(x, (image * shape.channels + channel) * pixels)
            end_row = 0
            if packs and lines == shape.height:
                source = offset(channels, corner)
                call(storage.pack, (source, pixels, lanes, shape.width, window.height, window.width, panel))
                if not plan.is_by_image:
                    following = minimum(LANES, shape.channels - channel - LANES)
                    source = offset(source, LANES * pixels)
                    prefetch_window(source, pixels, following, shape.width, window.height, window.width)
            for m in range(begin, end):
                r = shared.groups.order[m] if plan.is_by_image else m
                rows, columns = tables_of(placed, shared, form, worker, r)
                target = offset(y, (r * shape.channels + channel) * bins)
                if packs and lines < shape.height:
                    low, high = rows.span[0], rows.span[1]
                    end_row = slide(storage.pack, channels, placed, lanes, lines, end_row, low, high, panel)
                    rows = rows_of_panel(rows, low, lines, numbers)
                if packs:
                    if not staging_size:
                        prefetch_to_write(target, bins * lanes)
                    call(pooling.panel, (packed, window.width * LANES, rows, columns, outside, line, sums))
                    if staging_size:
                        call(storage.unpack, (sums, bins, elements, bins, lanes))
                        stream(elements, target, bins * lanes)
                    else:
                        call(storage.unpack, (sums, bins, target, bins, lanes))
                else:
                    for c in range(lanes):
                        source = offset(channels, c * pixels)
                        call(pooling.plane, (source, shape.width, rows, columns, outside, line, sums))
                        call(storage.write, (sums, bins, offset(target, c * bins)))
    if staging_size:
        fence()
    release(memory)
