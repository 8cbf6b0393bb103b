"""MaxRoiPool's bins, which consist of whole pixels: find their pixels, the maximum, and its gradient.

A RoI's ends are rounded to whole pixels, so integers give its bins, once for all channels. The maximum and its gradient work
on a panel of LANES interleaved channels and on one plane: `pixel_size` is the number of values per pixel, LANES or 1.

A task of the gradient has a panel of channels of an image, or one channel, and adds up all RoIs in their order.
"""

from __future__ import annotations

from typing import Any

from ortops.kernels.argmax import is_new_max
from ortops.kernels.axis import Axis, write_axis
from ortops.kernels.jit import LANES
from ortops.kernels.jit.compile import compiled, noinline
from ortops.kernels.jit.parallel import release
from ortops.kernels.jit.scalar import (
    address_of,
    compute_pointer,
    itemsize,
    load,
    maximum,
    minimum,
    offset,
    store,
)
from ortops.kernels.jit.simd import load_lanes, select_new_max, splat, store_lanes
from ortops.kernels.layout import NEAREST, OUT_OF_MEMORY, PlacedRois
from ortops.kernels.maximum import max_entries
from ortops.kernels.pack import pack, unpack
from ortops.kernels.roi_tables import SharedTables, share_tables, tables_of
from ortops.kernels.schedule import (
    MAX_MAP_PIXELS,
    Plan,
    allocate_workspace,
    estimate_work,
    plan_by_image,
    run_plan,
    runner_for,
)
from ortops.kernels.tables import Table


@compiled
def _rounded(value: float, largest: int) -> int:
    """Round to the nearest integer, ties away from 0, and clip to [-largest, largest]."""
    size = minimum(abs(value), float(largest))
    whole = int(size)
    # Not int(size + 0.5), which is 1 for the largest float64 below 0.5.
    whole += 1 if size - whole >= 0.5 else 0
    return whole if value > 0.0 else -whole


@compiled
def place_whole_rois(rois: Any, placed: PlacedRois, scale: float, largest: int) -> int:
    """Store the ends and the batch indices of all RoIs [R, 5], each batch_id, x1, y1, x2, y2.

    Scaled and rounded ends are clipped to [-largest, largest].

    Returns:
        The number of the first RoI that is not finite or has an invalid batch_id; -1 if there is none.
    """
    shape = placed.shape
    for r in range(shape.rois):
        roi = offset(rois, 5 * r)
        for k in range(5):
            value = float(load(roi, k))
            if value - value != 0.0:
                return r
        image = float(load(roi, 0))
        if not (0.0 <= image < shape.images) or image != int(image):
            return r
        placed.batch_indices[r] = int(image)
        for k in range(2):
            # Axes are y, x; RoIs have x first.
            start = _rounded(float(load(roi, 2 - k)) * scale, largest)
            end = _rounded(float(load(roi, 4 - k)) * scale, largest)
            bins, length = (shape.bins_x, shape.width) if k else (shape.bins_y, shape.height)
            size = maximum(end - start + 1, 1)
            span = maximum(minimum(start + size, length) - maximum(start, 0), 0)
            # There are no samples; `fill_pixel_bins` reads only origin and size.
            write_axis(placed, r, k, Axis(float(start), float(size), bins, 0, 0.0, 1.0, 0.0, True, NEAREST, 0.0))
            placed.spans[2 * r + k] = span
    return -1


@noinline
def fill_pixel_bins(axis: Axis, length: int, _with_grad: bool, first: int, table: Table) -> None:
    """Fill a table from entry `first` on with the pixels of each bin that lie on the map; there are no weights.

    Uses integers alone: bin p begins at pixel `low`, where low + rest/bins = start + p*size/bins.
    """
    bins, size = axis.bins, int(axis.size)
    low, rest, at = int(axis.origin), 0, first
    table.start[0] = first
    for p in range(bins):
        following, left = low + size // bins, rest + size % bins
        if left >= bins:
            following, left = following + 1, left - bins
        end = following + 1 if left else following
        for pixel in range(maximum(low, 0), minimum(end, length)):
            table.pixel[at] = pixel
            at += 1
        table.start[p + 1] = at
        low, rest = following, left


@noinline
def max_pixel(
    source: Any,
    stride: int,
    pixel_size: int,
    rows: Table,
    columns: Table,
    empty: float,
    line: Any,
    best: Any,
) -> None:
    """Compute the maximum pixel of each bin in best [PH, PW], along rows, then columns; `empty` for an empty bin."""
    max_entries(False, source, stride, pixel_size, rows, columns, empty, line, best)


@compiled
def max_pixel_dx(x: Any, dy: Any, dx: Any, placed: PlacedRois, runner: int, context: int) -> int:
    """Fill dx [N, C, H, W] from x and dy [R, C, PH, PW]. Returns 0, OUT_OF_MEMORY or INTERRUPTED."""
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
    runner = runner_for(work, runner)
    blocks = (shape.channels + pixel_size - 1) // pixel_size
    plan = plan_by_image(placed, runner, blocks, workspace_size * itemsize(compute_pointer(dx, dx)))
    memory, shared = share_tables(placed, plan, context, dx, 1, 0, False, fill_pixel_bins)
    if address_of(memory) == 0:
        return OUT_OF_MEMORY
    status = run_plan(
        plan,
        context,
        work,
        shared.failed,
        _dx_task,
        (x, dy, dx, placed, plan, shared, pixel_size, sums_size, workspace_size),
    )
    release(memory)
    return status


@compiled
def _dx_task(
    x: Any,
    dy: Any,
    dx: Any,
    placed: PlacedRois,
    plan: Plan,
    shared: SharedTables,
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
        for j in range(pixels * pixel_size):
            sums[j] = 0.0
        if pixel_size > 1 and begin < end:
            pack(offset(x, planes), pixels, lanes, shape.width, shape.height, shape.width, panel)
        for m in range(begin, end):
            r = shared.groups.order[m]
            rows, columns = tables_of(placed, shared, worker, r, False, fill_pixel_bins)
            source = offset(dy, (r * shape.channels + channel) * bins)
            if pixel_size > 1:
                pack(source, bins, lanes, 0, 1, bins, gradient)
                _add_to_argmax_panel(panel, gradient, shape.width, rows, columns, argmax, sums)
            else:
                _add_to_argmax(offset(x, planes), source, shape.width, rows, columns, sums)
        if pixel_size > 1:
            unpack(sums, pixels, target, pixels, lanes)
        else:
            for j in range(sums_size):
                store(target, j, sums[j])
    release(memory)


@compiled
def _add_to_argmax(plane: Any, dy: Any, width: int, rows: Table, columns: Table, dx: Any) -> None:
    """Add the gradient dy [PH, PW] of one channel to the argmax of each bin in dx [H, W]; of equals, to the first."""
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


@noinline
def _add_to_argmax_panel(panel: Any, dy: Any, width: int, rows: Table, columns: Table, argmax: Any, dx: Any) -> None:
    """`_add_to_argmax` for a panel; dy and dx are panels, too.

    The argmax of each lane is kept as a float32, which is exact: it is below MAX_MAP_PIXELS*LANES = 2**22.
    """
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
