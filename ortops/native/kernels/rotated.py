# SPDX-License-Identifier: MIT
"""Average pooling over rotated RoIs from lists of pixels: functions that `gather` and `scatter` apply, and a drois driver.

This driver is separate because it computes dot products over several panels of channels.
"""

from __future__ import annotations

from ortops.compiler.compile import compiled
from ortops.compiler.parallel import call, release, task_of
from ortops.compiler.scalar import (
    address_of,
    cast_like,
    compute_pointer,
    float64_pointer,
    fma,
    itemsize,
    load,
    minimum,
    offset,
    store,
)
from ortops.compiler.simd import horizontal_sum, load_lanes, splat
from ortops.native.elements import LANES, Doubles, Elements, Source, Stored, Sums, Values
from ortops.native.kernels.functions import AddProducts, Driver, Functions, SharedTables
from ortops.native.kernels.layout import BLOCK_CHANNELS, PlacedRois, Plan, Table, Tables
from ortops.native.kernels.pack import pack
from ortops.native.kernels.roi_tables import share_tables, table_sizes, tables_at, work_item
from ortops.native.kernels.rotated_tables import lists_in
from ortops.native.kernels.schedule import (
    MAX_WORKSPACE_BYTES,
    allocate_workspace,
    estimate_work,
    form_of,
    panel_count,
    panel_size,
    run_plan,
    runner_for,
    should_pack_maps,
    worker_count,
)

BLOCK_PANELS = BLOCK_CHANNELS // LANES


@compiled
def average(source: Source, _stride: int, tables: Tables, _outside: float, _line: Sums, sums: Sums) -> None:
    """Compute the weighted sum of each bin over a panel or a plane, from the lists of a table."""
    lists = lists_in(tables.rows, sums)
    for b in range(lists.bins):
        begin, total = b * lists.stride, cast_like(sums, 0.0)
        for i in range(begin, begin + lists.counts[b]):
            total = fma(lists.value[i], load(source, lists.pixel[i]), total)
        store(sums, b, total)


@compiled
def add_gradient(
    _x: Source, gradient: Sums, tables: Tables, _top: int, _bottom: int, _line: Sums, dx: Sums, _stride: int
) -> None:
    """Add the gradient of each bin to the pixels that the bin reads, in a panel or a plane."""
    lists = lists_in(tables.rows, dx)
    for b in range(lists.bins):
        begin, values = b * lists.stride, load(gradient, b)
        for i in range(begin, begin + lists.counts[b]):
            at = lists.pixel[i]
            store(dx, at, fma(lists.value[i], values, load(dx, at)))


@compiled
def rotated_drois(
    x: int, dy: int, drois: int, placed: PlacedRois, driver: Driver, _outside: float, runner: int, context: int
) -> int:
    """Add drois for each block of BLOCK_CHANNELS channels to float64 sums [blocks, R, 5], from x and dy [R, C, PH, PW].

    The dot product of dY and a pixel over a block's channels is computed once, for all derivatives of the pixel's weight.
    All else is float64. The function for planes is `add_products`. The other arguments and the result are as in
    `gather.gather`.
    """
    maps, gradient, sums = Elements(x, driver.kind), Elements(dy, driver.kind), float64_pointer(drois)
    form, functions = form_of(driver), driver.functions
    shape, part = placed.shape, placed.part
    rois, bins = part.end - part.begin, part.high - part.low
    value_size, blocks = itemsize(compute_pointer(maps, maps)), (shape.channels + BLOCK_CHANNELS - 1) // BLOCK_CHANNELS
    # Packs whole maps if two workers can hold them: bins read only some pixels of a rotated RoI's window.
    fits = 2 * BLOCK_PANELS * panel_size(placed, True) * value_size <= MAX_WORKSPACE_BYTES
    is_whole = should_pack_maps(placed) and fits
    size = BLOCK_PANELS * (panel_size(placed, is_whole) + bins * LANES) + LANES
    items, work = shape.images if is_whole else rois, estimate_work(placed, rois * bins)
    of_work = runner_for(work, runner)
    plan = Plan(of_work, is_whole, items, blocks, worker_count(of_work, items * blocks, size * value_size))
    status, memory, shared = share_tables(
        placed, plan, runner, context, form, table_sizes(placed, form), functions, False
    )
    if status == 0:
        task, data = task_of(_drois_task, (maps, gradient, sums, placed, functions, plan, shared, size))
        status = run_plan(plan, context, work, shared.failed, functions, task, data)
    release(memory)
    return status


@compiled
def _drois_task(
    x: Elements,
    dy: Elements,
    sums: Doubles,
    placed: PlacedRois,
    functions: Functions,
    plan: Plan,
    shared: SharedTables,
    workspace_size: int,
    first: int,
    last: int,
    worker: int,
) -> None:
    products: AddProducts = functions.plane
    shape, part = placed.shape, placed.part
    memory, gradient = allocate_workspace(workspace_size, x)
    if address_of(memory) == 0:
        shared.failed[0] = 1
        return
    pixels, bins, count = shape.height * shape.width, shape.bins_y * shape.bins_x, part.high - part.low
    block_of_panels = offset(gradient, (BLOCK_PANELS * count + 1) * LANES)
    for index in range(first + worker, last, plan.workers):
        block = index % plan.blocks
        image, begin, end, window, packs = work_item(placed, plan, shared, worker, index // plan.blocks)
        channel = block * BLOCK_CHANNELS
        channels = minimum(BLOCK_CHANNELS, shape.channels - channel)
        planes, size = offset(x, (image * shape.channels + channel) * pixels), window.height * window.width * LANES
        for k in range(0, channels if packs else 0, LANES):
            source = offset(planes, k * pixels + window.top * shape.width + window.left)
            panel, lanes = offset(block_of_panels, k // LANES * size), minimum(LANES, channels - k)
            call(functions.pack, (source, pixels, lanes, shape.width, window.height, window.width, panel))
        packed = offset(block_of_panels, -(window.top * window.width + window.left) * LANES)
        for m in range(begin, end):
            r = shared.groups.order[m]
            source = offset(dy, (r * shape.channels + channel) * bins + part.low)
            for k in range(0, channels, LANES):
                panel, lanes = offset(gradient, k * count), minimum(LANES, channels - k)
                call(functions.pack, (offset(source, k * bins), bins, lanes, 0, 1, count, panel))
            table, _ = tables_at(shared, r)
            of_roi = offset(sums, (block * shape.rois + r) * 5)
            call(products, (packed, size, planes, pixels, packs, gradient, channels, table, of_roi))
    release(memory)


@compiled
def add_products(
    panels: Values,
    size: int,
    planes: Stored,
    stride: int,
    packs: bool,
    gradient: Values,
    channels: int,
    table: Table,
    sums: Doubles,
) -> None:
    """Add, for each bin, the products of its gradient, the pixels that it reads and the derivatives of their weights.

    The pixels are in panels `size` values apart if they are packed, else in planes `stride` elements apart. The gradient of
    each bin is in panels, followed by a buffer of LANES values. The result is sums [5].
    """
    lists = lists_in(table, sums)
    a, b, c, d, e = sums[0], sums[1], sums[2], sums[3], sums[4]
    gathered = offset(gradient, BLOCK_PANELS * lists.bins * LANES)
    for p in range(lists.bins):
        for i in range(p * lists.stride, p * lists.stride + lists.counts[p]):
            at, products = lists.pixel[i], splat(gradient, 0.0)
            for k in range(panel_count(channels)):
                pixel = offset(panels, k * size + at * LANES)
                if not packs:
                    source, lanes = offset(planes, k * LANES * stride + at), minimum(LANES, channels - k * LANES)
                    pack(source, stride, lanes, 0, 1, 1, gathered)
                    pixel = gathered
                products = fma(load_lanes(gradient, (k * lists.bins + p) * LANES), load_lanes(pixel, 0), products)
            dot, derivatives = horizontal_sum(products), offset(lists.value, i * 5)
            a, b, c = a + dot * derivatives[0], b + dot * derivatives[1], c + dot * derivatives[2]
            d, e = d + dot * derivatives[3], e + dot * derivatives[4]
    sums[0], sums[1], sums[2], sums[3], sums[4] = a, b, c, d, e
