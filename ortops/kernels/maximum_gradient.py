"""Gradients of maxima over RoIs, in tasks with disjoint outputs.

A task of dX has a channel of an image, and adds up all RoIs in their order. A task of drois has a RoI.
"""

from __future__ import annotations

from typing import Any

from ortops.kernels.argmax import add_maximum_gradient
from ortops.kernels.jit.compile import compiled
from ortops.kernels.jit.parallel import allocate, release
from ortops.kernels.jit.scalar import address_of, compute_pointer, float64_pointer, itemsize, offset, store
from ortops.kernels.layout import OUT_OF_MEMORY, PlacedRois
from ortops.kernels.roi_tables import SharedTables, share_tables, tables_of
from ortops.kernels.schedule import (
    Plan,
    allocate_workspace,
    estimate_work,
    plan_by_image,
    plan_by_roi,
    run_plan,
    runner_for,
)
from ortops.kernels.tables import fill_candidates


@compiled
def maximum_dx(x: Any, dy: Any, dx: Any, placed: PlacedRois, takes_corners: int, runner: int, context: int) -> int:
    """Fill dx [N, C, H, W] of a maximum from x and dy [R, C, PH, PW]. Returns 0, OUT_OF_MEMORY or INTERRUPTED."""
    shape = placed.shape
    pixels = shape.height * shape.width
    work = estimate_work(placed, shape.images * pixels)
    runner = runner_for(work, runner)
    workspace_size = 0 if itemsize(dx) == itemsize(compute_pointer(dx, dx)) else pixels
    plan = plan_by_image(placed, runner, shape.channels, workspace_size * itemsize(compute_pointer(dx, dx)))
    memory, shared = share_tables(placed, plan, context, placed.axes, 3, 0, False, fill_candidates)
    if address_of(memory) == 0:
        return OUT_OF_MEMORY
    args = (x, dy, dx, placed, plan, shared, takes_corners != 0, workspace_size)
    status = run_plan(plan, context, work, shared.failed, _maximum_dx_task, args)
    release(memory)
    return status


@compiled
def _maximum_dx_task(
    x: Any,
    dy: Any,
    dx: Any,
    placed: PlacedRois,
    plan: Plan,
    shared: SharedTables,
    takes_corners: bool,
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
    pixels, bins, unused = shape.height * shape.width, shape.bins_y * shape.bins_x, placed.axes
    for index in range(first + worker, last, plan.workers):
        image, channel = index // plan.blocks, index % plan.blocks
        target = offset(dx, index * pixels)
        sums = buffer if workspace_size else compute_pointer(target, dx)
        for j in range(pixels):
            sums[j] = 0.0
        for m in range(shared.groups.first[image], shared.groups.first[image + 1]):
            r = shared.groups.order[m]
            rows, columns = tables_of(placed, shared, worker, r, False, fill_candidates)
            gradient = offset(dy, (r * shape.channels + channel) * bins)
            plane = offset(x, index * pixels)
            add_maximum_gradient(plane, gradient, shape.width, rows, columns, takes_corners, sums, unused, True)
        for j in range(workspace_size):
            store(target, j, sums[j])
    release(memory)


@compiled
def maximum_drois(
    x: Any, dy: Any, drois: Any, placed: PlacedRois, takes_corners: int, runner: int, context: int
) -> int:
    """Fill drois [R, 4] of a maximum, of float32 or float64, from x [N, C, H, W] and dy [R, C, PH, PW].

    Returns:
        0, OUT_OF_MEMORY or INTERRUPTED.
    """
    shape = placed.shape
    work = estimate_work(placed, shape.rois * shape.bins_y * shape.bins_x)
    runner = runner_for(work, runner)
    plan = plan_by_roi(placed, runner, 1, 0)
    memory, shared = share_tables(placed, plan, context, placed.axes, 3, 2, True, fill_candidates)
    sums = allocate(4 * shape.rois)
    status = OUT_OF_MEMORY
    if address_of(memory) != 0 and address_of(sums) != 0:
        args = (x, dy, float64_pointer(sums), placed, plan, shared, takes_corners != 0)
        status = run_plan(plan, context, work, shared.failed, _maximum_drois_task, args)
    for i in range(0 if status else 4 * shape.rois):
        store(drois, i, float64_pointer(sums)[i])
    release(memory)
    release(sums)
    return status


@compiled
def _maximum_drois_task(
    x: Any,
    dy: Any,
    drois: Any,
    placed: PlacedRois,
    plan: Plan,
    shared: SharedTables,
    takes_corners: bool,
    first: int,
    last: int,
    worker: int,
) -> None:
    shape = placed.shape
    pixels, bins = shape.height * shape.width, shape.bins_y * shape.bins_x
    for r in range(first + worker, last, plan.workers):
        rows, columns = tables_of(placed, shared, worker, r, True, fill_candidates)
        roi_drois = offset(drois, 4 * r)
        roi_drois[0], roi_drois[1], roi_drois[2], roi_drois[3] = 0.0, 0.0, 0.0, 0.0
        for c in range(shape.channels):
            plane = offset(x, (placed.batch_indices[r] * shape.channels + c) * pixels)
            gradient = offset(dy, (r * shape.channels + c) * bins)
            unused = compute_pointer(roi_drois, x)
            add_maximum_gradient(plane, gradient, shape.width, rows, columns, takes_corners, unused, roi_drois, False)
