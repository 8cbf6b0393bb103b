"""Pool over RoIs, or compute gradients drois, in tasks with disjoint outputs.

A task has some panels of channels of a RoI, or of an image whose map is packed as a whole.
"""

from __future__ import annotations

from ortops.jit import LANES
from ortops.jit.compile import compiled
from ortops.jit.elements import OUT_OF_MEMORY, Doubles, Elements
from ortops.jit.parallel import allocate, call, release, task_of
from ortops.jit.scalar import (
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
from ortops.jit.simd import fence, prefetch_to_read, prefetch_to_write
from ortops.kernels.layout import CANDIDATES, HIGH, LOW, Form, PlacedRois, Stages, Storage
from ortops.kernels.pack import prefetch_window, should_stream, stream
from ortops.kernels.roi_tables import SharedTables, share_tables, table_sizes, tables_of, work_item
from ortops.kernels.schedule import (
    MAX_WORKSPACE_BYTES,
    Plan,
    allocate_workspace,
    estimate_work,
    is_sparse,
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
def gather(
    x: Elements,
    y: Elements,
    drois: Elements,
    placed: PlacedRois,
    form: Form,
    storage: Storage,
    stages: Stages,
    outside: float,
    runner: int,
    context: int,
) -> int:
    """Fill y [R, C, PH, PW] from x [N, C, H, W]; or, if form.with_grad, fill drois [R, 4] from x and dY.

    Sums of drois over channels are float64, since large terms of opposite signs cancel to a small result.

    Args:
        x: the maps.
        y: the output, or dY.
        drois: the gradient, of float32 or float64; not used without form.with_grad.
        placed: the RoIs with their samples.
        form: what the tables of the stages hold.
        storage: the functions that load and store x and y.
        stages: the functions that pool, or that add up a RoI's gradient.
        outside: the value of samples off the map, or of bins without pixels.
        runner: the address of the runner of the tasks.
        context: its context.

    Returns:
        0, OUT_OF_MEMORY, INTERRUPTED or a status of `schedule.missing`.
    """
    shape, has_grad = placed.shape, form.with_grad != 0
    finds_argmax = has_grad and form.kind == CANDIDATES
    is_whole = should_pack_maps(placed) and not finds_argmax
    bins, panels = shape.bins_y * shape.bins_x, panel_count(shape.channels)
    sizes = table_sizes(placed, form)
    lines = panel_lines(placed, is_whole, x, form, sizes.fits)
    staging_size = 0 if has_grad else staging_size_of(placed, y)
    buffers_size = (bins + (3 if has_grad else 1) * shape.width) * LANES + staging_size
    scratch_size = scratch_size_of(placed, form, x)
    workspace_size = sliding_size(placed, is_whole, lines, x) + buffers_size + scratch_size
    work = estimate_work(placed, shape.rois * bins)
    slides = lines < shape.height
    needed = missing(stages, shape.channels >= LANES // 2, finds_argmax or may_use_planes(placed, is_whole))
    needed = maximum(needed, missing_planning(form.planning, slides, work))
    if needed != 0:
        return needed
    runner = runner_for(work, runner)
    # Each panel of an average has sums of drois of its own, which are then added in the order of the panels. A maximum adds
    # one channel after the other, all panels in one task.
    size = 4 * shape.rois if has_grad else 0
    most = maximum(minimum(panels, MAX_WORKSPACE_BYTES // (8 * size)), 1) if has_grad else panels
    most, step = (1, maximum(panels, 1)) if finds_argmax else (most, most)
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
    for panel in range(0, panels, step):
        if status == 0:
            count = minimum(step, panels - panel)
            args = (
                x, y, parts, placed, plan, shared, form, storage, stages, outside, panel, count, lines, staging_size,
                workspace_size,
            )  # fmt: skip
            task, data = task_of(_gather_task, args)
            status = run_plan(plan, context, work * count / panels, shared.failed, form.planning.run, task, data)
            for k in range(0 if status else minimum(count, most)):
                for i in range(size):
                    sums[i] += parts[k * size + i]
    for i in range(0 if status else size):
        set_value(drois, i, sums[i])
    release(memory)
    release(memory_of_sums)
    return status


@compiled
def staging_size_of(placed: PlacedRois, y: Elements) -> int:
    """The number of values to stage for non-temporal stores of a RoI's output; 0 if y is stored directly."""
    shape, bins = placed.shape, placed.shape.bins_y * placed.shape.bins_x
    streams = bins <= MAX_STAGED_BINS and should_stream(y, shape.rois * shape.channels * bins)
    return bins * LANES if streams else 0


@compiled
def scratch_size_of(placed: PlacedRois, form: Form, x: Elements) -> int:
    """The number of values of x's compute type that have room for four sums of a panel's channels, or for its argmax."""
    if form.with_grad == 0:
        return 0
    sums = placed.shape.bins_y * placed.shape.bins_x if form.kind == CANDIDATES else 4
    return sums * LANES * 8 // itemsize(compute_pointer(x, x))


@compiled
def _gather_task(
    x: Elements,
    y: Elements,
    parts: Doubles,
    placed: PlacedRois,
    plan: Plan,
    shared: SharedTables,
    form: Form,
    storage: Storage,
    stages: Stages,
    outside: float,
    first_panel: int,
    panels: int,
    lines: int,
    staging_size: int,
    workspace_size: int,
    first: int,
    last: int,
    worker: int,
) -> None:
    shape, has_grad = placed.shape, form.with_grad != 0
    finds_argmax = has_grad and form.kind == CANDIDATES
    memory, values = allocate_workspace(workspace_size, x)
    if address_of(memory) == 0:
        shared.failed[0] = 1
        return
    pixels, bins = shape.height * shape.width, shape.bins_y * shape.bins_x
    # `values` are those of a RoI's bins: of y, or of dY.
    whole_line = offset(values, bins * LANES)
    behind_line = offset(whole_line, (3 if has_grad else 1) * shape.width * LANES)
    elements, of_channels = storage_pointer(behind_line, y), float64_pointer(behind_line)
    panel = offset(behind_line, staging_size + scratch_size_of(placed, form, x))
    numbers = int64_pointer(offset(panel, lines * shape.width * LANES))
    for index in range(first + worker, last, plan.workers):
        item, block = index // plan.blocks, index % plan.blocks
        image, begin, end, window, packs = work_item(placed, plan, shared, form, worker, item)
        packs = packs and not (finds_argmax and is_sparse(placed, item))
        corner = window.top * shape.width + window.left
        # Tables number the pixels on the whole map, also if only a window of it is packed.
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
                if not plan.is_by_image:
                    following = minimum(LANES, shape.channels - channel - LANES)
                    source = offset(source, LANES * pixels)
                    prefetch_window(source, pixels, following, shape.width, window.height, window.width)
            for m in range(begin, end):
                r = shared.groups.order[m] if plan.is_by_image else m
                rows, columns = tables_of(placed, shared, form, worker, r)
                of_roi = offset(y, (r * shape.channels + channel) * bins)
                part = offset(parts, ((0 if finds_argmax else k) * shape.rois + r) * 4)
                if packs and lines < shape.height:
                    low, high = rows[LOW], rows[HIGH]
                    end_row = slide(storage.pack, channels, placed, lanes, lines, end_row, low, high, panel)
                    rows = rows_of_panel(rows, low, lines, numbers)
                if has_grad and (k == 0 or not finds_argmax):
                    part[0], part[1], part[2], part[3] = 0.0, 0.0, 0.0, 0.0
                if packs and has_grad:
                    call(storage.pack, (of_roi, bins, lanes, 0, 1, bins, values))
                    if plan.is_by_image and m + 1 < end:
                        following = (shared.groups.order[m + 1] * shape.channels + channel) * bins
                        prefetch_to_read(offset(y, following), lanes * bins)
                    args = packed, window.width, values, rows, columns, outside, line, of_channels, part
                    call(stages.panel, args)
                elif packs:
                    if not staging_size:
                        prefetch_to_write(of_roi, bins * lanes)
                    call(stages.panel, (packed, window.width, rows, columns, outside, line, values))
                    if staging_size:
                        call(storage.unpack, (values, bins, elements, bins, lanes))
                        stream(elements, of_roi, bins * lanes)
                    else:
                        call(storage.unpack, (values, bins, of_roi, bins, lanes))
                else:
                    for c in range(lanes):
                        plane, of_channel = offset(channels, c * pixels), offset(of_roi, c * bins)
                        if has_grad:
                            call(storage.read, (of_channel, bins, values))
                            call(
                                stages.plane,
                                (plane, shape.width, values, rows, columns, outside, line, of_channels, part),
                            )
                        else:
                            call(stages.plane, (plane, shape.width, rows, columns, outside, line, values))
                            call(storage.write, (values, bins, of_channel))
    if staging_size:
        fence()
    release(memory)
