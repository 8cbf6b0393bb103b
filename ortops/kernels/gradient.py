"""The gradients of averages and maxima over RoIs, cut into tasks that share no output.

A task of the dX of an average is an image and a panel of channels, or an image, a channel and a band of lines; of a
maximum, an image and a channel; always over all RoIs in their order. A task of drois is a RoI, or an image whose map is
packed as a whole, and some panels of channels.
"""

from __future__ import annotations

from typing import Any

from ortops.kernels.average import add_box_gradient, add_gradient
from ortops.kernels.jit import LANES
from ortops.kernels.jit.compile import inner
from ortops.kernels.jit.lanes import prefetch_to_read
from ortops.kernels.jit.parallel import allocate, release
from ortops.kernels.jit.scalar import (
    address_of,
    bytes_of,
    doubles_at,
    load,
    maximum,
    minimum,
    numbers_at,
    offset,
    store,
)
from ortops.kernels.layout import OUT_OF_MEMORY, Placed
from ortops.kernels.maximum import add_maximum_gradient
from ortops.kernels.pack import pack, unpack
from ortops.kernels.roi_tables import Shared, share, tables_of, unit_of
from ortops.kernels.schedule import (
    MOST_BYTES,
    Plan,
    packs_maps,
    panels_of,
    plan_by_image,
    plan_by_roi,
    plan_of_panels,
    room_of_panel,
    run_plan,
    runner_for,
    work_of,
    work_space,
)
from ortops.kernels.tables import fill_candidates, fill_weights, span_of

MOST_PIXELS_OF_BAND = 1 << 17
"""Of a plane that is not packed dX is summed up in bands of as many pixels, which stay in the cache of a core."""


@inner
def average_dx(dy: Any, dx: Any, placed: Placed, runner: int, context: int) -> int:
    """Fill dx [N, C, H, W] from dy [R, C, PH, PW]. OUT_OF_MEMORY, INTERRUPTED or 0."""
    shape, packs = placed.shape, packs_maps(placed)
    pixels, bins = shape.height * shape.width, shape.bins_y * shape.bins_x
    # Sums of an element's own type are made where they belong.
    unit, is_direct = LANES if packs else 1, not packs and bytes_of(dx) == bytes_of(numbers_at(dx, dx))
    lines = shape.height if packs else maximum(minimum(MOST_PIXELS_OF_BAND // shape.width, shape.height), 1)
    bands = (shape.height + lines - 1) // lines
    numbers = 0 if is_direct else lines * shape.width * unit
    room = numbers + (shape.width + bins) * unit
    work = work_of(placed, shape.images * pixels)
    runner = runner_for(work, runner)
    blocks = panels_of(shape.channels) if packs else shape.channels * bands
    plan = plan_by_image(placed, runner, blocks, room * bytes_of(numbers_at(dx, dx)))
    memory, shared = share(placed, plan, context, dx, 1, 0, False, fill_weights)
    if address_of(memory) == 0:
        return OUT_OF_MEMORY
    args = (dy, dx, placed, plan, shared, unit, lines, numbers, room)
    status = run_plan(plan, context, work, shared.failed, _dx_task, args)
    release(memory)
    return status


@inner
def _dx_task(
    dy: Any,
    dx: Any,
    placed: Placed,
    plan: Plan,
    shared: Shared,
    unit: int,
    lines: int,
    numbers: int,
    room: int,
    first: int,
    last: int,
    worker: int,
) -> None:
    shape = placed.shape
    memory, own = work_space(room, dx)
    if address_of(memory) == 0:
        shared.failed[0] = 1
        return
    pixels, bins = shape.height * shape.width, shape.bins_y * shape.bins_x
    line = offset(own, numbers)
    gradient = offset(line, shape.width * unit)
    bands = (shape.height + lines - 1) // lines
    for index in range(first + worker, last, plan.workers):
        image, block = index // plan.blocks, index % plan.blocks
        channel, top = block // bands * unit, block % bands * lines
        lanes, bottom = minimum(unit, shape.channels - channel), minimum(top + lines, shape.height)
        target = offset(dx, (image * shape.channels + channel) * pixels + top * shape.width)
        size, sums = (bottom - top) * shape.width, own if numbers else numbers_at(target, dx)
        begin, end = shared.groups.first[image], shared.groups.first[image + 1]
        for j in range(size * unit if begin < end else 0):
            sums[j] = 0.0
        for m in range(begin, end):
            r = shared.groups.order[m]
            rows, columns = tables_of(placed, shared, worker, r, False, fill_weights)
            source = offset(dy, (r * shape.channels + channel) * bins)
            if unit == 1:
                for b in range(bins):
                    gradient[b] = load(source, b)
            else:
                pack(source, bins, lanes, 0, 1, bins, gradient)
                if m + 1 < end:
                    following = (shared.groups.order[m + 1] * shape.channels + channel) * bins
                    prefetch_to_read(offset(dy, following), lanes * bins)
            band = offset(sums, -top * shape.width * unit)
            add_gradient(gradient, unit, rows, columns, top, bottom, line, band, shape.width * unit)
        if begin == end:
            for j in range(size * lanes):
                store(target, j, 0.0)
        elif numbers and unit == 1:
            for j in range(size):
                store(target, j, sums[j])
        elif numbers:
            unpack(sums, pixels, target, pixels, lanes)
    release(memory)


@inner
def average_drois(x: Any, dy: Any, drois: Any, placed: Placed, runner: int, context: int) -> int:
    """Fill drois [R, 4], of float32 or float64, from x [N, C, H, W] and dy [R, C, PH, PW].

    Sums over channels are float64: the two ends of a box pull in opposite directions and what is left is small.

    Returns:
        OUT_OF_MEMORY, INTERRUPTED or 0.
    """
    shape, is_whole = placed.shape, packs_maps(placed)
    bins, panels = shape.bins_y * shape.bins_x, panels_of(shape.channels)
    room = room_of_panel(placed, is_whole) + (bins + 3 * shape.width) * LANES
    work = work_of(placed, shape.rois * bins)
    runner = runner_for(work, runner)
    # Each panel of a round has sums of its own, which are then added in the order of the panels.
    size = 4 * shape.rois
    most = maximum(minimum(panels, MOST_BYTES // (8 * size)), 1)
    memory_of_sums = allocate((most + 1) * size)
    sums = doubles_at(memory_of_sums)
    parts = offset(sums, size)
    plan = plan_of_panels(placed, is_whole, runner, most, room * bytes_of(numbers_at(x, x)))
    memory, shared = share(placed, plan, context, x, 1, 2, True, fill_weights)
    status = OUT_OF_MEMORY if address_of(memory) == 0 or address_of(sums) == 0 else 0
    for i in range(0 if status else size):
        sums[i] = 0.0
    for panel in range(0, panels, most):
        if status == 0:
            count = minimum(most, panels - panel)
            args = (x, dy, parts, placed, plan, shared, panel, count, room)
            status = run_plan(plan, context, work * count / panels, shared.failed, _drois_task, args)
            for k in range(0 if status else count):
                for i in range(size):
                    sums[i] += parts[k * size + i]
    for i in range(0 if status else size):
        store(drois, i, sums[i])
    release(memory)
    release(memory_of_sums)
    return status


@inner
def _drois_task(
    x: Any,
    dy: Any,
    parts: Any,
    placed: Placed,
    plan: Plan,
    shared: Shared,
    first_panel: int,
    panels: int,
    room: int,
    first: int,
    last: int,
    worker: int,
) -> None:
    shape = placed.shape
    memory, gradient = work_space(room + 8 * LANES, x)
    if address_of(memory) == 0:
        shared.failed[0] = 1
        return
    pixels, bins = shape.height * shape.width, shape.bins_y * shape.bins_x
    own, length = doubles_at(offset(gradient, room)), shape.width * LANES
    whole_line = offset(gradient, bins * LANES)
    panel = offset(whole_line, 3 * length)
    for index in range(first + worker, last, plan.workers):
        unit, block = index // plan.blocks, index % plan.blocks
        image, begin, end, window, packs = unit_of(placed, plan, shared, worker, unit, True, fill_weights, span_of)
        corner = window.top * shape.width + window.left
        packed = offset(panel, -(window.top * window.width + window.left) * LANES)
        line = offset(whole_line, -window.left * LANES) if packs else whole_line
        for k in range(panels * block // plan.blocks, panels * (block + 1) // plan.blocks):
            channel = (first_panel + k) * LANES
            lanes = minimum(LANES, shape.channels - channel)
            planes = offset(x, (image * shape.channels + channel) * pixels)
            if packs:
                pack(offset(planes, corner), pixels, lanes, shape.width, window.height, window.width, panel)
            for m in range(begin, end):
                r = shared.groups.order[m] if plan.is_by_image else m
                rows, columns = tables_of(placed, shared, worker, r, True, fill_weights)
                source = offset(dy, (r * shape.channels + channel) * bins)
                part = offset(parts, (k * shape.rois + r) * 4)
                part[0], part[1], part[2], part[3] = 0.0, 0.0, 0.0, 0.0
                if packs:
                    pack(source, bins, lanes, 0, 1, bins, gradient)
                    if plan.is_by_image and m + 1 < end:
                        following = (shared.groups.order[m + 1] * shape.channels + channel) * bins
                        prefetch_to_read(offset(dy, following), lanes * bins)
                    _add_lanes(packed, window.width * LANES, LANES, gradient, rows, columns, line, length, own, part)
                else:
                    for c in range(lanes):
                        for b in range(bins):
                            gradient[b] = load(source, c * bins + b)
                        plane = offset(planes, c * pixels)
                        _add_lanes(plane, shape.width, 1, gradient, rows, columns, line, length, own, part)
    release(memory)


@inner
def _add_lanes(
    source: Any,
    stride: int,
    unit: int,
    gradient: Any,
    rows: Any,
    columns: Any,
    line: Any,
    length: int,
    own: Any,
    part: Any,
) -> None:
    """Add the derivatives of the channels of a pixel, one after the other, to those of their panel."""
    for i in range(4 * unit):
        own[i] = 0.0
    add_box_gradient(source, stride, unit, gradient, rows, columns, line, length, own)
    for k in range(4):
        for lane in range(unit):
            part[k] += own[k * unit + lane]


@inner
def maximum_dx(x: Any, dy: Any, dx: Any, placed: Placed, takes_corners: int, runner: int, context: int) -> int:
    """Fill dx [N, C, H, W] from x and dy [R, C, PH, PW]. OUT_OF_MEMORY, INTERRUPTED or 0."""
    shape = placed.shape
    pixels = shape.height * shape.width
    work = work_of(placed, shape.images * pixels)
    runner = runner_for(work, runner)
    room = 0 if bytes_of(dx) == bytes_of(numbers_at(dx, dx)) else pixels
    plan = plan_by_image(placed, runner, shape.channels, room * bytes_of(numbers_at(dx, dx)))
    memory, shared = share(placed, plan, context, placed.axes, 3, 0, False, fill_candidates)
    if address_of(memory) == 0:
        return OUT_OF_MEMORY
    args = (x, dy, dx, placed, plan, shared, takes_corners != 0, room)
    status = run_plan(plan, context, work, shared.failed, _maximum_dx_task, args)
    release(memory)
    return status


@inner
def _maximum_dx_task(
    x: Any,
    dy: Any,
    dx: Any,
    placed: Placed,
    plan: Plan,
    shared: Shared,
    takes_corners: bool,
    room: int,
    first: int,
    last: int,
    worker: int,
) -> None:
    shape = placed.shape
    memory, own = work_space(room, dx)
    if address_of(memory) == 0:
        shared.failed[0] = 1
        return
    pixels, bins, unwanted = shape.height * shape.width, shape.bins_y * shape.bins_x, placed.axes
    for index in range(first + worker, last, plan.workers):
        image, channel = index // plan.blocks, index % plan.blocks
        target = offset(dx, index * pixels)
        sums = own if room else numbers_at(target, dx)
        for j in range(pixels):
            sums[j] = 0.0
        for m in range(shared.groups.first[image], shared.groups.first[image + 1]):
            r = shared.groups.order[m]
            rows, columns = tables_of(placed, shared, worker, r, False, fill_candidates)
            gradient = offset(dy, (r * shape.channels + channel) * bins)
            plane = offset(x, index * pixels)
            add_maximum_gradient(plane, gradient, shape.width, rows, columns, takes_corners, sums, unwanted, True)
        for j in range(room):
            store(target, j, sums[j])
    release(memory)


@inner
def maximum_drois(x: Any, dy: Any, drois: Any, placed: Placed, takes_corners: int, runner: int, context: int) -> int:
    """Fill drois [R, 4], of float32 or float64, from x [N, C, H, W] and dy [R, C, PH, PW].

    Returns:
        OUT_OF_MEMORY, INTERRUPTED or 0.
    """
    shape = placed.shape
    work = work_of(placed, shape.rois * shape.bins_y * shape.bins_x)
    runner = runner_for(work, runner)
    plan = plan_by_roi(placed, runner, 1, 0)
    memory, shared = share(placed, plan, context, placed.axes, 3, 2, True, fill_candidates)
    sums = allocate(4 * shape.rois)
    status = OUT_OF_MEMORY
    if address_of(memory) != 0 and address_of(sums) != 0:
        args = (x, dy, doubles_at(sums), placed, plan, shared, takes_corners != 0)
        status = run_plan(plan, context, work, shared.failed, _maximum_drois_task, args)
    for i in range(0 if status else 4 * shape.rois):
        store(drois, i, doubles_at(sums)[i])
    release(memory)
    release(sums)
    return status


@inner
def _maximum_drois_task(
    x: Any,
    dy: Any,
    drois: Any,
    placed: Placed,
    plan: Plan,
    shared: Shared,
    takes_corners: bool,
    first: int,
    last: int,
    worker: int,
) -> None:
    shape = placed.shape
    pixels, bins = shape.height * shape.width, shape.bins_y * shape.bins_x
    for r in range(first + worker, last, plan.workers):
        rows, columns = tables_of(placed, shared, worker, r, True, fill_candidates)
        own = offset(drois, 4 * r)
        own[0], own[1], own[2], own[3] = 0.0, 0.0, 0.0, 0.0
        for c in range(shape.channels):
            plane = offset(x, (placed.images[r] * shape.channels + c) * pixels)
            gradient = offset(dy, (r * shape.channels + c) * bins)
            unwanted = numbers_at(own, x)
            add_maximum_gradient(plane, gradient, shape.width, rows, columns, takes_corners, unwanted, own, False)
