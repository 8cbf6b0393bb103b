"""Average pooling over rotated RoIs and its gradients: make the tables of a batch and run the tasks that apply them.

A task of the forward operator or of drois has some panels of channels of a RoI, or of an image whose map is packed as a
whole. A task of dX has a panel or a channel of an image, and adds up all RoIs in their order.

The drivers of other RoIs (`gather`, `scatter`) do not serve here: a table has a list of pixels for each bin in place of two
axes, the tables come in batches, and drois are made of dot products over several panels.
"""

from __future__ import annotations

from typing import Any

from ortops.jit import LANES
from ortops.jit.compile import compiled
from ortops.jit.elements import Doubles, Elements, Source, Stored, Sums, Values
from ortops.jit.parallel import call, release, task_of
from ortops.jit.scalar import (
    address_of,
    cast_like,
    compute_pointer,
    float64_pointer,
    fma,
    itemsize,
    load,
    maximum,
    minimum,
    offset,
    storage_pointer,
    store,
)
from ortops.jit.simd import fence, horizontal_sum, load_lanes, prefetch_to_read, prefetch_to_write, splat
from ortops.kernels.gather import staging_size_of
from ortops.kernels.layout import BLOCK_CHANNELS, Batch, Making, Stages, Storage
from ortops.kernels.pack import clear, pack, stream
from ortops.kernels.roi_tables import WorkItem
from ortops.kernels.rotated_tables import Lists, lists_of, window_of_roi
from ortops.kernels.schedule import (
    MAX_WORKSPACE_BYTES,
    Plan,
    Window,
    allocate_workspace,
    may_use_planes,
    missing,
    panel_count,
    panel_size,
    plan_by_image,
    plan_of_panels,
    run_plan,
    runner_for,
    should_pack_maps,
    should_pack_window,
    worker_count,
)

BLOCK_PANELS = BLOCK_CHANNELS // LANES


@compiled
def rotated_average(
    x: Elements,
    y: Elements,
    batch: Batch,
    making: Making,
    storage: Storage,
    stages: Stages,
    runner: int,
    context: int,
) -> int:
    """Fill a batch's part of y [R, C, PH, PW] from x [N, C, H, W].

    `batch` has memory for the tables, and `making` the functions that make them and run tasks. The other arguments and the
    result are as in `gather.gather`.
    """
    placed, shape = batch.rotated.placed, batch.rotated.placed.shape
    bins, is_whole = shape.bins_y * shape.bins_x, should_pack_maps(placed)
    needed = missing(stages, shape.channels >= LANES // 2, may_use_planes(placed, is_whole))
    if needed != 0:
        return needed
    staging_size = staging_size_of(placed, y)
    workspace_size = panel_size(placed, is_whole) + bins * LANES + staging_size
    bytes_of_worker = workspace_size * itemsize(compute_pointer(x, x))
    plan = plan_of_panels(placed, is_whole, runner, panel_count(shape.channels), bytes_of_worker)
    return _run(batch, making, context, plan, _average_task, (x, y, storage, stages, staging_size, workspace_size))


@compiled
def _run(batch: Batch, making: Making, context: int, plan: Plan, task: Any, args: Any) -> int:
    """Make the tables of a batch and run the tasks that apply them.

    Args:
        batch: the batch.
        making: the functions that make tables and run tasks.
        context: the context of the plan's runner.
        plan: the plan of the tasks. If its items are RoIs, they are replaced by those of the batch.
        task: the compiled function of a task; called with args, the batch, its plan and `run_plan`'s arguments.
        args: the task's first arguments.

    Returns:
        0, OUT_OF_MEMORY or INTERRUPTED.
    """
    status: int = call(making.make, (batch, plan, making.run, context))
    if status == 0:
        shape = batch.rotated.placed.shape
        maps = shape.images * shape.height * shape.width if plan.is_by_image else 0
        work = (float(batch.entries) + shape.rois * shape.bins_y * shape.bins_x + maps) * shape.channels
        items = plan.items if plan.is_by_image else batch.end - batch.begin
        batch_plan = Plan(runner_for(work, plan.runner), plan.is_by_image, items, plan.blocks, plan.workers)
        function, data = task_of(task, args + (batch, batch_plan))  # noqa: RUF005 - numba has no other
        status = run_plan(batch_plan, context, work, batch.failed, making.run, function, data)
    return status


@compiled
def _work_item(batch: Batch, plan: Plan, item: int) -> WorkItem:
    """Item number `item` of the plan."""
    placed, begin = batch.rotated.placed, batch.begin + item
    shape = placed.shape
    if plan.is_by_image:
        begin, end = maximum(batch.images[item], batch.begin), minimum(batch.images[item + 1], batch.end)
        return WorkItem(item, begin, end, Window(0, 0, shape.height, shape.width), begin < end)
    r = batch.order[begin]
    window = window_of_roi(batch.rotated, r)
    return WorkItem(placed.batch_indices[r], begin, begin + 1, window, should_pack_window(window, shape.channels))


@compiled
def _average_task(
    x: Elements,
    y: Elements,
    storage: Storage,
    stages: Stages,
    staging_size: int,
    workspace_size: int,
    batch: Batch,
    plan: Plan,
    first: int,
    last: int,
    worker: int,
) -> None:
    shape = batch.rotated.placed.shape
    memory, sums = allocate_workspace(workspace_size, x)
    if address_of(memory) == 0:
        batch.failed[0] = 1
        return
    pixels, bins, panels = shape.height * shape.width, shape.bins_y * shape.bins_x, panel_count(shape.channels)
    behind_sums = offset(sums, bins * LANES)
    elements, panel = storage_pointer(behind_sums, y), offset(behind_sums, staging_size)
    for index in range(first + worker, last, plan.workers):
        block = index % plan.blocks
        image, begin, end, window, packs = _work_item(batch, plan, index // plan.blocks)
        # Tables number the pixels on the whole map, also if only a window of it is packed.
        packed = offset(panel, -(window.top * window.width + window.left) * LANES)
        for k in range(panels * block // plan.blocks, panels * (block + 1) // plan.blocks):
            channel = k * LANES
            lanes = minimum(LANES, shape.channels - channel)
            planes = offset(x, (image * shape.channels + channel) * pixels)
            if packs:
                source = offset(planes, window.top * shape.width + window.left)
                call(storage.pack, (source, pixels, lanes, shape.width, window.height, window.width, panel))
            for m in range(begin, end):
                lists = lists_of(batch, m)
                target = offset(y, (batch.order[m] * shape.channels + channel) * bins + batch.low)
                if not packs:
                    for c in range(lanes):
                        call(stages.plane, (offset(planes, c * pixels), lists, sums))
                        call(storage.write, (sums, lists.bins, offset(target, c * bins)))
                elif staging_size > 0 and lists.bins == bins:
                    call(stages.panel, (packed, lists, sums))
                    call(storage.unpack, (sums, bins, elements, bins, lanes))
                    stream(elements, target, bins * lanes)
                else:
                    prefetch_to_write(target, lists.bins * lanes)
                    call(stages.panel, (packed, lists, sums))
                    call(storage.unpack, (sums, lists.bins, target, bins, lanes))
    if staging_size:
        fence()
    release(memory)


@compiled
def average(source: Source, lists: Lists, sums: Sums) -> None:
    """Compute the weighted sum of each bin over a panel or a plane."""
    for b in range(lists.bins):
        begin, total = b * lists.stride, cast_like(sums, 0.0)
        for i in range(begin, begin + lists.counts[b]):
            total = fma(lists.value[i], load(source, lists.pixel[i]), total)
        store(sums, b, total)


@compiled
def rotated_dx(
    dy: Elements,
    dx: Elements,
    batch: Batch,
    making: Making,
    storage: Storage,
    stages: Stages,
    runner: int,
    context: int,
) -> int:
    """Fill dx [N, C, H, W] from dy [R, C, PH, PW]; all batches but the first add to dx.

    If there are several batches, dx has values of the compute type. The stages are `add_gradient`; the other arguments and
    the result are as in `rotated_average`.
    """
    placed, shape = batch.rotated.placed, batch.rotated.placed.shape
    pixels, bins, packs = shape.height * shape.width, shape.bins_y * shape.bins_x, should_pack_maps(placed)
    needed = missing(stages, packs, not packs)
    if needed != 0:
        return needed
    lanes_per_pixel, size = LANES if packs else 1, itemsize(compute_pointer(dx, dx))
    # If elements are computed in their own type, sums of a plane are made directly in dx.
    sums_size = pixels * lanes_per_pixel if packs or itemsize(dx) != size else 0
    workspace_size = sums_size + (bins * LANES if packs else 0)
    blocks = (shape.channels + lanes_per_pixel - 1) // lanes_per_pixel
    plan = plan_by_image(placed, runner, blocks, workspace_size * size)
    args = dy, dx, storage, stages, lanes_per_pixel, sums_size, workspace_size
    return _run(batch, making, context, plan, _dx_task, args)


@compiled
def _dx_task(
    dy: Elements,
    dx: Elements,
    storage: Storage,
    stages: Stages,
    lanes_per_pixel: int,
    sums_size: int,
    workspace_size: int,
    batch: Batch,
    plan: Plan,
    first: int,
    last: int,
    worker: int,
) -> None:
    shape, is_first = batch.rotated.placed.shape, batch.begin == 0 and batch.low == 0
    memory, gradient = allocate_workspace(workspace_size, dx)
    if address_of(memory) == 0:
        batch.failed[0] = 1
        return
    pixels, bins = shape.height * shape.width, shape.bins_y * shape.bins_x
    own_sums = offset(gradient, workspace_size - sums_size)
    for index in range(first + worker, last, plan.workers):
        channel = index % plan.blocks * lanes_per_pixel
        image, begin, end, _, has_rois = _work_item(batch, plan, index // plan.blocks)
        if not has_rois and not is_first:
            continue
        lanes = minimum(lanes_per_pixel, shape.channels - channel)
        target = offset(dx, (image * shape.channels + channel) * pixels)
        sums = own_sums if sums_size else compute_pointer(target, dx)
        if is_first:
            clear(sums, 0, 1, 0, pixels * lanes_per_pixel)
        elif sums_size:
            call(storage.pack, (target, pixels, lanes, 0, 1, pixels, sums))
        for m in range(begin, end):
            lists = lists_of(batch, m)
            source = offset(dy, (batch.order[m] * shape.channels + channel) * bins + batch.low)
            if lanes_per_pixel == 1:
                call(stages.plane, (source, lists, sums))
            else:
                call(storage.pack, (source, bins, lanes, 0, 1, lists.bins, gradient))
                if m + 1 < end:
                    following = (batch.order[m + 1] * shape.channels + channel) * bins
                    prefetch_to_read(offset(dy, following), lanes * bins)
                call(stages.panel, (gradient, lists, sums))
        if lanes_per_pixel > 1:
            call(storage.unpack, (sums, pixels, target, pixels, lanes))
        elif sums_size:
            call(storage.write, (sums, pixels, target))
    release(memory)


@compiled
def add_gradient(gradient: Source, lists: Lists, sums: Sums) -> None:
    """Add the gradient of each bin to the pixels that the bin reads, in a panel or a plane."""
    for b in range(lists.bins):
        begin, values = b * lists.stride, load(gradient, b)
        for i in range(begin, begin + lists.counts[b]):
            at = lists.pixel[i]
            store(sums, at, fma(lists.value[i], values, load(sums, at)))


@compiled
def rotated_drois(
    x: Elements,
    dy: Elements,
    parts: Doubles,
    batch: Batch,
    making: Making,
    storage: Storage,
    add_products: int,
    runner: int,
    context: int,
) -> int:
    """Add a batch's drois for each block of BLOCK_CHANNELS channels to parts [blocks, R, 5], from x and dy [R, C, PH, PW].

    The dot product of dY and a pixel over a block's channels is computed once, for all derivatives of the pixel's weight;
    the rest is float64. `add_products` is the address of the function; the other arguments and the result are as in
    `rotated_average`.
    """
    placed, shape = batch.rotated.placed, batch.rotated.placed.shape
    bins, blocks = shape.bins_y * shape.bins_x, (shape.channels + BLOCK_CHANNELS - 1) // BLOCK_CHANNELS
    value_size = itemsize(compute_pointer(x, x))
    # Packs whole maps if two workers can hold them: many pixels of a rotated RoI's window are not read by any bin.
    fits = 2 * BLOCK_PANELS * panel_size(placed, True) * value_size <= MAX_WORKSPACE_BYTES
    is_whole = should_pack_maps(placed) and fits
    workspace_size = BLOCK_PANELS * (panel_size(placed, is_whole) + bins * LANES) + LANES
    items = shape.images if is_whole else shape.rois
    plan = Plan(runner, is_whole, items, blocks, worker_count(runner, items * blocks, workspace_size * value_size))
    return _run(batch, making, context, plan, _drois_task, (x, dy, parts, storage, add_products, workspace_size))


@compiled
def _drois_task(
    x: Elements,
    dy: Elements,
    parts: Doubles,
    storage: Storage,
    add_products: int,
    workspace_size: int,
    batch: Batch,
    plan: Plan,
    first: int,
    last: int,
    worker: int,
) -> None:
    shape = batch.rotated.placed.shape
    memory, gradient = allocate_workspace(workspace_size, x)
    if address_of(memory) == 0:
        batch.failed[0] = 1
        return
    pixels, bins = shape.height * shape.width, shape.bins_y * shape.bins_x
    block_of_panels = offset(gradient, (BLOCK_PANELS * bins + 1) * LANES)
    for index in range(first + worker, last, plan.workers):
        block = index % plan.blocks
        image, begin, end, window, packs = _work_item(batch, plan, index // plan.blocks)
        channel = block * BLOCK_CHANNELS
        channels = minimum(BLOCK_CHANNELS, shape.channels - channel)
        planes, size = offset(x, (image * shape.channels + channel) * pixels), window.height * window.width * LANES
        for k in range(0, channels if packs else 0, LANES):
            source = offset(planes, k * pixels + window.top * shape.width + window.left)
            panel, lanes = offset(block_of_panels, k // LANES * size), minimum(LANES, channels - k)
            call(storage.pack, (source, pixels, lanes, shape.width, window.height, window.width, panel))
        packed = offset(block_of_panels, -(window.top * window.width + window.left) * LANES)
        for m in range(begin, end):
            r, lists = batch.order[m], lists_of(batch, m)
            source = offset(dy, (r * shape.channels + channel) * bins + batch.low)
            for k in range(0, channels, LANES):
                panel, lanes = offset(gradient, k * lists.bins), minimum(LANES, channels - k)
                call(storage.pack, (offset(source, k * bins), bins, lanes, 0, 1, lists.bins, panel))
            part = offset(parts, (block * shape.rois + r) * batch.values)
            call(add_products, (packed, size, planes, pixels, packs, gradient, channels, lists, part))
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
    lists: Lists,
    sums: Doubles,
) -> None:
    """Add the products of each bin's gradient, the pixels that it reads and the derivatives of their weights.

    Args:
        panels: the packed pixels, in panels `size` values apart.
        size: see `panels`.
        planes: the pixels if they are not packed, in planes `stride` elements apart.
        stride: see `planes`.
        packs: whether the pixels are packed.
        gradient: the gradient of each bin, in panels, followed by a buffer of LANES values.
        channels: the number of channels.
        lists: the entries.
        sums: the result [5].
    """
    a, b, c, d, e = sums[0], sums[1], sums[2], sums[3], sums[4]
    gathered, values = offset(gradient, BLOCK_PANELS * lists.bins * LANES), float64_pointer(lists.value)
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
            dot, derivatives = horizontal_sum(products), offset(values, i * 5)
            a, b, c = a + dot * derivatives[0], b + dot * derivatives[1], c + dot * derivatives[2]
            d, e = d + dot * derivatives[3], e + dot * derivatives[4]
    sums[0], sums[1], sums[2], sums[3], sums[4] = a, b, c, d, e
