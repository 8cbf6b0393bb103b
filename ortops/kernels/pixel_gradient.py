"""The gradient of MaxRoiPool, in tasks with disjoint outputs.

A task has a panel of channels of an image, or one channel, and adds up all RoIs in their order.
"""

from __future__ import annotations

from ortops.kernels.argmax import is_new_max
from ortops.kernels.jit import LANES
from ortops.kernels.jit.compile import compiled
from ortops.kernels.jit.parallel import call, release, task_of
from ortops.kernels.jit.scalar import address_of, compute_pointer, itemsize, load, maximum, minimum, offset
from ortops.kernels.jit.simd import load_lanes, select_new_max, splat, store_lanes
from ortops.kernels.layout import OUT_OF_MEMORY, Elements, Form, PlacedRois, Slot, Stages, Storage, Stored, Values
from ortops.kernels.pack import clear
from ortops.kernels.roi_tables import SharedTables, share_tables, table_sizes, tables_of
from ortops.kernels.schedule import (
    MAX_MAP_PIXELS,
    Plan,
    allocate_workspace,
    estimate_work,
    missing,
    missing_planning,
    plan_by_image,
    run_plan,
    runner_for,
)
from ortops.kernels.tables import pixels_in


@compiled
def max_pixel_dx(
    x: Elements,
    dy: Elements,
    dx: Elements,
    placed: PlacedRois,
    form: Form,
    storage: Storage,
    stages: Stages,
    runner: int,
    context: int,
) -> int:
    """Fill dx [N, C, H, W] from x and dy [R, C, PH, PW].

    The arguments and the result are as in `forward.pool`.
    """
    shape = placed.shape
    pixels = shape.height * shape.width
    # Packs also for few RoIs: it takes no longer than filling dx. Two panels are in use, the map's and the sums'.
    pixel_size = LANES if shape.channels >= LANES // 2 and 2 * pixels <= MAX_MAP_PIXELS else 1
    # If elements are computed in their own type, sums of a plane are made directly in dx. Those of a panel are not, which
    # is 1.25 times as fast (measured).
    is_direct = pixel_size == 1 and itemsize(dx) == itemsize(compute_pointer(dx, dx))
    sums_size = 0 if is_direct else pixels * pixel_size
    workspace_size = sums_size + (sums_size + (shape.bins_y * shape.bins_x + 1) * LANES if pixel_size > 1 else 0)
    work = estimate_work(placed, shape.images * pixels)
    needed = maximum(missing(stages, pixel_size > 1, pixel_size == 1), missing_planning(form.planning, False, work))
    if needed != 0:
        return needed
    runner = runner_for(work, runner)
    blocks = (shape.channels + pixel_size - 1) // pixel_size
    plan = plan_by_image(placed, runner, blocks, workspace_size * itemsize(compute_pointer(dx, dx)))
    memory, shared = share_tables(placed, plan, context, form, table_sizes(placed, form))
    if address_of(memory) == 0:
        return OUT_OF_MEMORY
    args = (x, dy, dx, placed, plan, shared, form, storage, stages, pixel_size, sums_size, workspace_size)
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
    stages: Stages,
    pixel_size: int,
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
    panel = offset(buffer, sums_size)
    argmax = offset(panel, sums_size)
    gradient = offset(argmax, LANES)
    for index in range(first + worker, last, plan.workers):
        image, channel = index // plan.blocks, index % plan.blocks * pixel_size
        lanes = minimum(pixel_size, shape.channels - channel)
        planes = (image * shape.channels + channel) * pixels
        target = offset(dx, planes)
        sums = buffer if sums_size else compute_pointer(target, dx)
        begin, end = shared.groups.first[image], shared.groups.first[image + 1]
        clear(sums, 0, 1, 0, pixels * pixel_size)
        if pixel_size > 1 and begin < end:
            call(storage.pack, (offset(x, planes), pixels, lanes, shape.width, shape.height, shape.width, panel))
        for m in range(begin, end):
            r = shared.groups.order[m]
            rows, columns = tables_of(placed, shared, form, worker, r)
            source = offset(dy, (r * shape.channels + channel) * bins)
            if pixel_size > 1:
                call(storage.pack, (source, bins, lanes, 0, 1, bins, gradient))
                call(stages.panel, (panel, gradient, shape.width, rows, columns, argmax, sums))
            else:
                call(stages.plane, (offset(x, planes), source, shape.width, rows, columns, sums))
        if pixel_size > 1:
            call(storage.unpack, (sums, pixels, target, pixels, lanes))
        elif sums_size:
            call(storage.write, (sums, pixels, target))
    release(memory)


@compiled
def add_to_argmax_of_plane(
    plane: Stored, dy: Stored, width: int, row_pixels: Slot, column_pixels: Slot, dx: Values
) -> None:
    """Add the gradient dy [PH, PW] of one channel to the argmax of each bin in dx [H, W]; of equals, to the first."""
    rows, columns = pixels_in(row_pixels), pixels_in(column_pixels)
    for p in range(rows.bins):
        for q in range(columns.bins):
            best, best_at = load(plane, 0), -1
            for i in range(rows.start[p], rows.start[p + 1]):
                for j in range(columns.start[q], columns.start[q + 1]):
                    at = rows.pixel[i] * width + columns.pixel[j]
                    value = load(plane, at)
                    if best_at < 0 or is_new_max(value, best):
                        best, best_at = value, at
            if best_at >= 0:
                dx[best_at] += load(dy, p * columns.bins + q)


@compiled
def add_to_argmax_of_panel(
    panel: Values, dy: Values, width: int, row_pixels: Slot, column_pixels: Slot, argmax: Values, dx: Values
) -> None:
    """`add_to_argmax_of_plane` for a panel; dy and dx are panels, too.

    The argmax of each lane is kept as a float32, which is exact: it is below MAX_MAP_PIXELS*LANES = 2**22.
    """
    rows, columns = pixels_in(row_pixels), pixels_in(column_pixels)
    for p in range(rows.bins):
        for q in range(columns.bins):
            top, left = rows.start[p], columns.start[q]
            bottom, right = rows.start[p + 1], columns.start[q + 1]
            if top == bottom or left == right:
                continue
            at = (rows.pixel[top] * width + columns.pixel[left]) * LANES
            best, argmax_lanes = load_lanes(panel, at), splat(panel, float(at))
            for i in range(top, bottom):
                for j in range(left, right):
                    at = (rows.pixel[i] * width + columns.pixel[j]) * LANES
                    values = load_lanes(panel, at)
                    argmax_lanes = select_new_max(values, best, splat(panel, float(at)), argmax_lanes)
                    best = select_new_max(values, best, values, best)
            store_lanes(argmax, 0, argmax_lanes)
            gradient = offset(dy, (p * columns.bins + q) * LANES)
            for k in range(LANES):
                dx[int(argmax[k]) + k] += gradient[k]
