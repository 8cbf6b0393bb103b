"""Gradients of pooling over RoIs, by average or maximum, in tasks with disjoint outputs.

A task of an average's dX has a panel of channels of an image, or a band of rows of one channel; a task of a maximum's dX
has one channel. Each adds up all RoIs in their order. A task of drois has some panels of channels of a RoI, or of an image
whose map is packed as a whole.
"""

from __future__ import annotations

from typing import Any

from ortops.kernels.average import add_box_gradient, add_gradient
from ortops.kernels.jit import LANES
from ortops.kernels.jit.compile import compiled
from ortops.kernels.jit.parallel import allocate, release
from ortops.kernels.jit.scalar import (
    address_of,
    compute_pointer,
    float64_pointer,
    itemsize,
    load,
    maximum,
    minimum,
    offset,
    store,
)
from ortops.kernels.jit.simd import prefetch_to_read
from ortops.kernels.layout import OUT_OF_MEMORY, PlacedRois
from ortops.kernels.maximum import add_maximum_gradient
from ortops.kernels.pack import pack, unpack
from ortops.kernels.roi_tables import SharedTables, share_tables, tables_of, work_item
from ortops.kernels.schedule import (
    MAX_WORKSPACE_BYTES,
    Plan,
    allocate_workspace,
    estimate_work,
    panel_count,
    panel_size,
    plan_by_image,
    plan_by_roi,
    plan_of_panels,
    run_plan,
    runner_for,
    should_pack_maps,
    strides_of,
)
from ortops.kernels.tables import fill_candidates, fill_weights, span_of

MAX_BAND_PIXELS = 1 << 17
"""The most pixels of a band, in which dX of a plane that is not packed is summed up: a band stays in a core's cache."""


@compiled
def average_dx(dy: Any, dx: Any, placed: PlacedRois, runner: int, context: int) -> int:
    """Fill dx [N, C, H, W] of an average from dy [R, C, PH, PW]. Returns 0, OUT_OF_MEMORY or INTERRUPTED."""
    shape, packs = placed.shape, should_pack_maps(placed)
    pixels, bins = shape.height * shape.width, shape.bins_y * shape.bins_x
    # If elements are computed in their own type, sums are made directly in dx.
    pixel_size, is_direct = LANES if packs else 1, not packs and itemsize(dx) == itemsize(compute_pointer(dx, dx))
    lines = shape.height if packs else maximum(minimum(MAX_BAND_PIXELS // shape.width, shape.height), 1)
    bands = (shape.height + lines - 1) // lines
    sums_size = 0 if is_direct else lines * shape.width * pixel_size
    workspace_size = sums_size + (shape.width + bins) * pixel_size
    work = estimate_work(placed, shape.images * pixels)
    runner = runner_for(work, runner)
    blocks = panel_count(shape.channels) if packs else shape.channels * bands
    plan = plan_by_image(placed, runner, blocks, workspace_size * itemsize(compute_pointer(dx, dx)))
    memory, shared = share_tables(placed, plan, context, dx, 1, 0, False, fill_weights)
    if address_of(memory) == 0:
        return OUT_OF_MEMORY
    args = (dy, dx, placed, plan, shared, pixel_size, lines, sums_size, workspace_size)
    status = run_plan(plan, context, work, shared.failed, _dx_task, args)
    release(memory)
    return status


@compiled
def _dx_task(
    dy: Any,
    dx: Any,
    placed: PlacedRois,
    plan: Plan,
    shared: SharedTables,
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
    bands = (shape.height + lines - 1) // lines
    for index in range(first + worker, last, plan.workers):
        image, block = index // plan.blocks, index % plan.blocks
        channel, top = block // bands * pixel_size, block % bands * lines
        lanes, bottom = minimum(pixel_size, shape.channels - channel), minimum(top + lines, shape.height)
        target = offset(dx, (image * shape.channels + channel) * pixels + top * shape.width)
        size, sums = (bottom - top) * shape.width, buffer if sums_size else compute_pointer(target, dx)
        begin, end = shared.groups.first[image], shared.groups.first[image + 1]
        for j in range(size * pixel_size if begin < end else 0):
            sums[j] = 0.0
        for m in range(begin, end):
            r = shared.groups.order[m]
            rows, columns = tables_of(placed, shared, worker, r, False, fill_weights)
            source = offset(dy, (r * shape.channels + channel) * bins)
            if pixel_size == 1:
                for b in range(bins):
                    gradient[b] = load(source, b)
            else:
                pack(source, bins, lanes, 0, 1, bins, gradient)
                if m + 1 < end:
                    following = (shared.groups.order[m + 1] * shape.channels + channel) * bins
                    prefetch_to_read(offset(dy, following), lanes * bins)
            band = offset(sums, -top * shape.width * pixel_size)
            add_gradient(gradient, pixel_size, rows, columns, top, bottom, line, band, shape.width * pixel_size)
        if begin == end:
            for j in range(size * lanes):
                store(target, j, 0.0)
        elif sums_size and pixel_size == 1:
            for j in range(size):
                store(target, j, sums[j])
        elif sums_size:
            unpack(sums, LANES, pixels, target, pixels, lanes)
    release(memory)


@compiled
def average_drois(x: Any, dy: Any, drois: Any, placed: PlacedRois, runner: int, context: int) -> int:
    """Fill drois [R, 4] of an average, of float32 or float64, from x [N, C, H, W] and dy [R, C, PH, PW].

    Sums over channels are float64, since large terms of opposite signs cancel to a small result.

    Returns:
        0, OUT_OF_MEMORY or INTERRUPTED.
    """
    shape, is_whole = placed.shape, should_pack_maps(placed)
    bins, panels = shape.bins_y * shape.bins_x, panel_count(shape.channels)
    workspace_size = panel_size(placed, is_whole) + (bins + 3 * shape.width) * LANES
    work = estimate_work(placed, shape.rois * bins)
    runner = runner_for(work, runner)
    # Each panel has sums of its own, which are then added in the order of the panels.
    size = 4 * shape.rois
    most = maximum(minimum(panels, MAX_WORKSPACE_BYTES // (8 * size)), 1)
    memory_of_sums = allocate((most + 1) * size)
    sums = float64_pointer(memory_of_sums)
    parts = offset(sums, size)
    plan = plan_of_panels(placed, is_whole, runner, most, workspace_size * itemsize(compute_pointer(x, x)))
    memory, shared = share_tables(placed, plan, context, x, 1, 2, True, fill_weights)
    status = OUT_OF_MEMORY if address_of(memory) == 0 or address_of(sums) == 0 else 0
    for i in range(0 if status else size):
        sums[i] = 0.0
    for panel in range(0, panels, most):
        if status == 0:
            count = minimum(most, panels - panel)
            args = (x, dy, parts, placed, plan, shared, panel, count, workspace_size)
            status = run_plan(plan, context, work * count / panels, shared.failed, _drois_task, args)
            for k in range(0 if status else count):
                for i in range(size):
                    sums[i] += parts[k * size + i]
    for i in range(0 if status else size):
        store(drois, i, sums[i])
    release(memory)
    release(memory_of_sums)
    return status


@compiled
def _drois_task(
    x: Any,
    dy: Any,
    parts: Any,
    placed: PlacedRois,
    plan: Plan,
    shared: SharedTables,
    first_panel: int,
    panels: int,
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
    channel_drois, length = float64_pointer(offset(gradient, workspace_size)), shape.width * LANES
    whole_line = offset(gradient, bins * LANES)
    panel = offset(whole_line, 3 * length)
    plane, step = strides_of(shape)
    for index in range(first + worker, last, plan.workers):
        item, block = index // plan.blocks, index % plan.blocks
        image, begin, end, window, packs = work_item(placed, plan, shared, worker, item, True, fill_weights, span_of)
        corner = window.top * shape.width + window.left
        packed = offset(panel, -(window.top * window.width + window.left) * LANES)
        line = offset(whole_line, -window.left * LANES) if packs else whole_line
        for k in range(panels * block // plan.blocks, panels * (block + 1) // plan.blocks):
            channel = (first_panel + k) * LANES
            lanes = minimum(LANES, shape.channels - channel)
            planes = offset(x, image * shape.channels * pixels + channel * plane)
            is_panel = packs or (shape.channels_last and lanes == LANES)
            if packs:
                pack(offset(planes, corner), plane, lanes, shape.width, window.height, window.width, panel)
            for m in range(begin, end):
                r = shared.groups.order[m] if plan.is_by_image else m
                rows, columns = tables_of(placed, shared, worker, r, True, fill_weights)
                source = offset(dy, (r * shape.channels + channel) * bins)
                part = offset(parts, (k * shape.rois + r) * 4)
                part[0], part[1], part[2], part[3] = 0.0, 0.0, 0.0, 0.0
                args = (gradient, rows, columns, line, length, channel_drois, part)
                if is_panel:
                    pack(source, bins, lanes, 0, 1, bins, gradient)
                    if plan.is_by_image and m + 1 < end:
                        following = (shared.groups.order[m + 1] * shape.channels + channel) * bins
                        prefetch_to_read(offset(dy, following), lanes * bins)
                if packs:
                    _add_channels(packed, window.width * LANES, LANES, LANES, *args)
                elif is_panel:
                    _add_channels(planes, shape.width * step, step, LANES, *args)
                for c in range(0 if is_panel else lanes):
                    for b in range(bins):
                        gradient[b] = load(source, c * bins + b)
                    _add_channels(offset(planes, c * plane), shape.width * step, step, 1, *args)
    release(memory)


@compiled
def _add_channels(
    source: Any,
    stride: int,
    step: int,
    pixel_size: int,
    gradient: Any,
    rows: Any,
    columns: Any,
    line: Any,
    length: int,
    channel_drois: Any,
    part: Any,
) -> None:
    """Compute the derivatives for each channel, and add them one after the other to `part` [4]."""
    for i in range(4 * pixel_size):
        channel_drois[i] = 0.0
    add_box_gradient(source, stride, step, pixel_size, gradient, rows, columns, line, length, channel_drois)
    for k in range(4):
        for lane in range(pixel_size):
            part[k] += channel_drois[k * pixel_size + lane]


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
