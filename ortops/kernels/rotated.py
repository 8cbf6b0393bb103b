"""Average pooling over rotated RoIs and its gradients, by batches of tables and the tasks that apply them.

A task of the forward operator or of drois has some panels of channels of a RoI, or of an image whose map is packed as a
whole. A task of dX has a panel or a channel of an image, and adds up all RoIs in their order.
"""

from __future__ import annotations

from typing import Any

from ortops.jit import LANES
from ortops.jit.compile import compiled
from ortops.jit.elements import DOUBLE, INTERRUPTED, OUT_OF_MEMORY, Doubles, Elements, Stored, Values
from ortops.jit.parallel import allocate, call, release, task_of
from ortops.jit.python_api import signal_raised
from ortops.jit.scalar import (
    address_of,
    cast_like,
    compute_pointer,
    float64_pointer,
    fma,
    int64_pointer,
    itemsize,
    load,
    maximum,
    minimum,
    offset,
    set_value,
    storage_pointer,
)
from ortops.jit.simd import (
    fence,
    horizontal_sum,
    load_lanes,
    prefetch_to_read,
    prefetch_to_write,
    splat,
    store_lanes,
)
from ortops.kernels.gather import staging_size_of
from ortops.kernels.layout import Making, RotatedRois, Stages, Storage
from ortops.kernels.pack import clear, stream
from ortops.kernels.roi_tables import Groups, group_by_image
from ortops.kernels.rotated_tables import (
    DERIVATIVES,
    Batch,
    Lists,
    Tables,
    lists_of,
    next_batch,
    tables_in,
    typed_lists,
    whole_map,
    window_of_roi,
)
from ortops.kernels.schedule import (
    MAX_WORKSPACE_BYTES,
    Plan,
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

BLOCK_PANELS = 4
"""The panels of a block of drois, over whose channels the dot product of dY and a pixel is computed at once."""


@compiled
def rotated_average(
    x: Elements,
    y: Elements,
    rotated: RotatedRois,
    making: Making,
    storage: Storage,
    stages: Stages,
    runner: int,
    context: int,
) -> int:
    """Fill y [R, C, PH, PW] from x [N, C, H, W]. Returns 0, OUT_OF_MEMORY or INTERRUPTED.

    Args:
        x: the maps.
        y: the output.
        rotated: the RoIs with their samples.
        making: the functions that make tables and run tasks.
        storage: the functions that load and store x and y.
        stages: `average_of_panel` and `average_of_plane`.
        runner: the address of the runner of the tasks.
        context: its context.
    """
    placed, shape = rotated.placed, rotated.placed.shape
    bins, is_whole = shape.bins_y * shape.bins_x, should_pack_maps(placed)
    needed = missing(stages, True, may_use_planes(placed, is_whole))  # planes are unpacked, too
    if needed != 0:
        return needed
    staging_size = staging_size_of(placed, y)
    workspace_size = panel_size(placed, is_whole) + bins * LANES + staging_size
    bytes_of_worker = workspace_size * itemsize(compute_pointer(x, x))
    plan = plan_of_panels(placed, is_whole, runner, panel_count(shape.channels), bytes_of_worker)
    written = shape.images * shape.height * shape.width if is_whole else shape.rois * bins
    memory, groups = _grouped(rotated)
    args = (x, y, rotated, storage, stages, groups, staging_size, workspace_size)
    like = compute_pointer(x, x)
    status = _for_batches(rotated, making, groups, is_whole, 1, like.kind, context, written, plan, _average_task, args)
    release(memory)
    return status


@compiled
def _grouped(rotated: RotatedRois) -> Any:
    """Group the RoIs by image; the memory to release, a null pointer if there is none left, and the groups."""
    shape = rotated.placed.shape
    memory = allocate(shape.rois + shape.images + 1)
    groups = Groups(memory, offset(memory, shape.rois))
    if address_of(memory) != 0:
        group_by_image(groups, rotated.placed)
    return memory, groups


@compiled
def _entry_bytes(values: int, numbers: int) -> int:
    """The size in bytes of a table's entry: a pixel's number and `values` values."""
    return 8 + values * (1 << numbers)


@compiled
def _for_batches(
    rotated: RotatedRois,
    making: Making,
    groups: Groups,
    is_whole: bool,
    values: int,
    numbers: int,
    context: int,
    written: int,
    plan: Plan,
    task: Any,
    args: Any,
) -> int:
    """Make the tables of each batch and run the tasks that apply them.

    Args:
        rotated: the RoIs with their samples.
        making: the functions that make tables and run tasks.
        groups: the order of the RoIs.
        is_whole: as in `make`.
        values: as in `make`.
        numbers: as in `make`.
        context: the context of the plan's runner.
        written: the elements of a channel that a batch's tasks read or write in addition to the tables' pixels.
        plan: the plan of the tasks. If its items are RoIs, they are replaced by those of a batch.
        task: the compiled function of a task; called with args, the plan, the batch, its tables and `run_plan`'s arguments.
        args: the task's first arguments.

    Returns:
        0, OUT_OF_MEMORY or INTERRUPTED.
    """
    shape = rotated.placed.shape
    if address_of(groups.order) == 0:
        return OUT_OF_MEMORY
    made = allocate(1)
    if address_of(made) == 0:
        return OUT_OF_MEMORY
    bins, begin, low, status = shape.bins_y * shape.bins_x, 0, 0, 0
    while begin < shape.rois and status == 0:
        batch = next_batch(rotated, groups.order, begin, low, _entry_bytes(values, numbers))
        args_of_make = (rotated, groups, batch, is_whole, values, numbers, making.run, plan.runner, context)
        status = call(making.make, args_of_make + (made,))  # noqa: RUF005 - numba has no other
        if status == 0:
            tables = tables_in(made[0], batch, values, numbers)
            work = (batch.entries + written) * shape.channels
            items = plan.items if plan.is_by_image else batch.end - batch.begin
            batch_plan = Plan(runner_for(work, plan.runner), plan.is_by_image, items, plan.blocks, plan.workers)
            function, data = task_of(task, args + (batch_plan, batch, tables))  # noqa: RUF005 - numba has no other
            status = run_plan(batch_plan, context, work, tables.failed, making.run, function, data)
        release(int64_pointer(made[0]))
        begin, low = (batch.end, 0) if batch.high == bins else (batch.begin, batch.high)
        if status == 0 and not batch.is_last and signal_raised():
            status = INTERRUPTED
    release(made)
    return status


@compiled
def _average_task(
    x: Elements,
    y: Elements,
    rotated: RotatedRois,
    storage: Storage,
    stages: Stages,
    groups: Groups,
    staging_size: int,
    workspace_size: int,
    plan: Plan,
    batch: Batch,
    tables: Tables,
    first: int,
    last: int,
    worker: int,
) -> None:
    shape = rotated.placed.shape
    memory, sums = allocate_workspace(workspace_size, x)
    if address_of(memory) == 0:
        tables.failed[0] = 1
        return
    pixels, bins, panels = shape.height * shape.width, shape.bins_y * shape.bins_x, panel_count(shape.channels)
    behind_sums = offset(sums, bins * LANES)
    elements, panel = storage_pointer(behind_sums, y), offset(behind_sums, staging_size)
    for index in range(first + worker, last, plan.workers):
        item, block = index // plan.blocks, index % plan.blocks
        image, begin, end, window, packs = _work_item(rotated, groups, plan, batch, item)
        for k in range(panels * block // plan.blocks, panels * (block + 1) // plan.blocks):
            channel = k * LANES
            lanes = minimum(LANES, shape.channels - channel)
            planes = offset(x, (image * shape.channels + channel) * pixels)
            if packs:
                source = offset(planes, window.top * shape.width + window.left)
                call(storage.pack, (source, pixels, lanes, shape.width, window.height, window.width, panel))
            for m in range(begin, end):
                lists = lists_of(rotated, groups, batch, tables, m)
                target = offset(y, (groups.order[m] * shape.channels + channel) * bins + batch.low)
                streams = staging_size > 0 and lists.bins == bins
                if not streams:
                    prefetch_to_write(target, lists.bins * lanes)
                if packs:
                    call(stages.panel, (panel, lists, sums))
                else:
                    for c in range(lanes):
                        call(stages.plane, (offset(planes, c * pixels), lists, offset(sums, c)))
                if streams:
                    call(storage.unpack, (sums, bins, elements, bins, lanes))
                    stream(elements, target, bins * lanes)
                else:
                    call(storage.unpack, (sums, lists.bins, target, bins, lanes))
    if staging_size:
        fence()
    release(memory)


@compiled
def _work_item(rotated: RotatedRois, groups: Groups, plan: Plan, batch: Batch, item: int) -> Any:
    """An item of the plan: the image, the RoIs begin:end in the order, the window to pack, and whether to pack it."""
    shape = rotated.placed.shape
    if plan.is_by_image:
        begin, end = maximum(groups.first[item], batch.begin), minimum(groups.first[item + 1], batch.end)
        return item, begin, end, whole_map(shape), begin < end
    r = groups.order[batch.begin + item]
    window = window_of_roi(rotated, r)
    begin = batch.begin + item
    return rotated.placed.batch_indices[r], begin, begin + 1, window, should_pack_window(window, shape.channels)


@compiled
def average_of_panel(panel: Values, tables: Lists, sums: Values) -> None:
    """Compute the weighted sum of each bin [bins, LANES] over a panel."""
    lists = typed_lists(tables, sums)
    for b in range(lists.bins):
        begin = b * lists.stride
        lanes = splat(sums, 0.0)
        for i in range(begin, begin + lists.count[b]):
            lanes = fma(lists.value[i], load_lanes(panel, lists.pixel[i] * LANES), lanes)
        store_lanes(sums, b * LANES, lanes)


@compiled
def average_of_plane(plane: Stored, tables: Lists, sums: Values) -> None:
    """Compute the weighted sum of each bin over one plane; the sums are LANES values apart."""
    lists = typed_lists(tables, sums)
    for b in range(lists.bins):
        begin, value = b * lists.stride, cast_like(sums, 0.0)
        for i in range(begin, begin + lists.count[b]):
            value = fma(lists.value[i], load(plane, lists.pixel[i]), value)
        sums[b * LANES] = value


@compiled
def rotated_dx(
    dy: Elements,
    dx: Elements,
    rotated: RotatedRois,
    making: Making,
    storage: Storage,
    unrounded_storage: Storage,
    stages: Stages,
    runner: int,
    context: int,
) -> int:
    """Fill dx [N, C, H, W] from dy [R, C, PH, PW] for R > 0. Returns 0, OUT_OF_MEMORY or INTERRUPTED.

    The stages are `add_gradient_of_panel` and `add_gradient_of_plane`, and unrounded_storage has the functions that load and
    store values of the compute type. The other arguments are as in `rotated_average`.
    """
    placed, shape = rotated.placed, rotated.placed.shape
    pixels, bins, packs = shape.height * shape.width, shape.bins_y * shape.bins_x, should_pack_maps(placed)
    pixel_size, size = LANES if packs else 1, itemsize(compute_pointer(dx, dx))
    needed = missing(stages, packs, not packs)
    if needed != 0:
        return needed
    is_direct = itemsize(dx) == size
    # If elements are computed in their own type, sums of a plane are made directly in dx.
    workspace_size = (0 if is_direct and not packs else pixels * pixel_size) + bins * pixel_size
    plan = plan_by_image(placed, runner, (shape.channels + pixel_size - 1) // pixel_size, workspace_size * size)
    memory, groups = _grouped(rotated)
    unrounded, status = int64_pointer(0), OUT_OF_MEMORY
    if address_of(memory) != 0:
        status = 0
        if (
            not is_direct
            and not next_batch(rotated, groups.order, 0, 0, _entry_bytes(1, compute_pointer(dx, dx).kind)).is_last
        ):
            # Sums stay unrounded from one batch to the next.
            unrounded = allocate((shape.images * shape.channels * pixels * size + 7) // 8)
            status = 0 if address_of(unrounded) else OUT_OF_MEMORY
    if status == 0:
        sums = compute_pointer(dx, dx) if is_direct else compute_pointer(unrounded, dx)
        args = (dy, dx, sums, rotated, storage, unrounded_storage, stages, groups, pixel_size, workspace_size)
        written = shape.images * pixels
        status = _for_batches(rotated, making, groups, True, 1, sums.kind, context, written, plan, _dx_task, args)
    release(unrounded)
    release(memory)
    return status


@compiled
def _dx_task(
    dy: Elements,
    dx: Elements,
    unrounded: Elements,
    rotated: RotatedRois,
    storage: Storage,
    unrounded_storage: Storage,
    stages: Stages,
    groups: Groups,
    pixel_size: int,
    workspace_size: int,
    plan: Plan,
    batch: Batch,
    tables: Tables,
    first: int,
    last: int,
    worker: int,
) -> None:
    shape = rotated.placed.shape
    memory, gradient = allocate_workspace(workspace_size, dx)
    if address_of(memory) == 0:
        tables.failed[0] = 1
        return
    pixels, bins = shape.height * shape.width, shape.bins_y * shape.bins_x
    rounds_sums = batch.is_last and itemsize(dx) != itemsize(unrounded)
    for index in range(first + worker, last, plan.workers):
        image, channel = index // plan.blocks, index % plan.blocks * pixel_size
        begin, end = maximum(groups.first[image], batch.begin), minimum(groups.first[image + 1], batch.end)
        if begin >= end and not batch.is_first and not rounds_sums:
            continue
        lanes = minimum(pixel_size, shape.channels - channel)
        at = (image * shape.channels + channel) * pixels
        target, previous, buffer = offset(dx, at), offset(unrounded, at), offset(gradient, bins * pixel_size)
        sums = previous if pixel_size == 1 and address_of(unrounded) != 0 else buffer
        if batch.is_first:
            clear(sums, 0, 1, 0, pixels * pixel_size)
        elif pixel_size > 1:
            call(unrounded_storage.pack, (previous, pixels, lanes, 0, 1, pixels, sums))
        for m in range(begin, end):
            lists = lists_of(rotated, groups, batch, tables, m)
            source = offset(dy, (groups.order[m] * shape.channels + channel) * bins + batch.low)
            if pixel_size == 1:
                call(stages.plane, (source, lists, sums))
            else:
                call(storage.pack, (source, bins, lanes, 0, 1, lists.bins, gradient))
                if m + 1 < end:
                    following = (groups.order[m + 1] * shape.channels + channel) * bins
                    prefetch_to_read(offset(dy, following), lanes * bins)
                call(stages.panel, (gradient, lists, sums))
        if pixel_size > 1 and rounds_sums:
            call(storage.unpack, (sums, pixels, target, pixels, lanes))
        elif pixel_size > 1:
            call(unrounded_storage.unpack, (sums, pixels, previous, pixels, lanes))
        elif rounds_sums:
            call(storage.write, (sums, pixels, target))
    release(memory)


@compiled
def add_gradient_of_panel(gradient: Values, tables: Lists, sums: Values) -> None:
    """Add the gradient of each bin, a panel [bins], to the pixels that the bin reads, in a panel."""
    lists = typed_lists(tables, sums)
    for b in range(lists.bins):
        begin, lanes = b * lists.stride, load_lanes(gradient, b * LANES)
        for i in range(begin, begin + lists.count[b]):
            at = lists.pixel[i] * LANES
            store_lanes(sums, at, fma(lists.value[i], lanes, load_lanes(sums, at)))


@compiled
def add_gradient_of_plane(gradient: Stored, tables: Lists, sums: Values) -> None:
    """`add_gradient_of_panel` for one plane."""
    lists = typed_lists(tables, sums)
    for b in range(lists.bins):
        begin, value = b * lists.stride, load(gradient, b)
        for i in range(begin, begin + lists.count[b]):
            at = lists.pixel[i]
            sums[at] = fma(lists.value[i], value, sums[at])


@compiled
def rotated_drois(
    x: Elements,
    dy: Elements,
    drois: Elements,
    rotated: RotatedRois,
    making: Making,
    storage: Storage,
    add_products: int,
    runner: int,
    context: int,
) -> int:
    """Fill drois [R, 5], of float32 or float64, from x [N, C, H, W] and dy [R, C, PH, PW].

    The dot product of dY and a pixel over a block's channels is computed once, for all derivatives of the pixel's weight;
    the rest is float64. `add_products` is the address of the function; the other arguments are as in `rotated_average`.

    Returns:
        0, OUT_OF_MEMORY or INTERRUPTED.
    """
    placed, shape = rotated.placed, rotated.placed.shape
    bins, blocks = shape.bins_y * shape.bins_x, (panel_count(shape.channels) + BLOCK_PANELS - 1) // BLOCK_PANELS
    size = BLOCK_PANELS * panel_size(placed, True) * itemsize(compute_pointer(x, x))
    # Packs whole maps if two workers can hold them: many pixels of a rotated RoI's window are not read by any bin.
    is_whole = should_pack_maps(placed) and 2 * size <= MAX_WORKSPACE_BYTES
    workspace_size = BLOCK_PANELS * (panel_size(placed, is_whole) + bins * LANES) + LANES
    workers = worker_count(
        runner, (shape.images if is_whole else shape.rois) * blocks, workspace_size * itemsize(compute_pointer(x, x))
    )
    plan = Plan(runner, is_whole, shape.images, blocks, workers)
    # Each block of channels has sums of its own, which are then added in the order of the blocks.
    size = DERIVATIVES * shape.rois * blocks
    memory, groups = _grouped(rotated)
    memory_of_parts = allocate(size)
    parts = float64_pointer(memory_of_parts)
    status = OUT_OF_MEMORY
    if address_of(parts) != 0:
        for i in range(size):
            parts[i] = 0.0
        args = (x, dy, parts, rotated, storage, add_products, groups, workspace_size)
        written = shape.rois * bins
        status = _for_batches(
            rotated, making, groups, is_whole, DERIVATIVES, DOUBLE, context, written, plan, _drois_task, args
        )
    for i in range(0 if status else DERIVATIVES * shape.rois):
        value = 0.0
        for block in range(blocks):
            value += parts[(i // DERIVATIVES * blocks + block) * DERIVATIVES + i % DERIVATIVES]
        set_value(drois, i, value)
    release(memory_of_parts)
    release(memory)
    return status


@compiled
def _drois_task(
    x: Elements,
    dy: Elements,
    parts: Doubles,
    rotated: RotatedRois,
    storage: Storage,
    add_products: int,
    groups: Groups,
    workspace_size: int,
    plan: Plan,
    batch: Batch,
    tables: Tables,
    first: int,
    last: int,
    worker: int,
) -> None:
    shape = rotated.placed.shape
    memory, gradient = allocate_workspace(workspace_size, x)
    if address_of(memory) == 0:
        tables.failed[0] = 1
        return
    pixels, bins = shape.height * shape.width, shape.bins_y * shape.bins_x
    block_of_panels = offset(gradient, (BLOCK_PANELS * bins + 1) * LANES)
    for index in range(first + worker, last, plan.workers):
        item, block = index // plan.blocks, index % plan.blocks
        image, begin, end, window, packs = _work_item(rotated, groups, plan, batch, item)
        channel = block * BLOCK_PANELS * LANES
        channels = minimum(BLOCK_PANELS * LANES, shape.channels - channel)
        planes, size = offset(x, (image * shape.channels + channel) * pixels), window.height * window.width * LANES
        for k in range(0, channels if packs else 0, LANES):
            source = offset(planes, k * pixels + window.top * shape.width + window.left)
            panel = offset(block_of_panels, k // LANES * size)
            lanes = minimum(LANES, channels - k)
            call(storage.pack, (source, pixels, lanes, shape.width, window.height, window.width, panel))
        for m in range(begin, end):
            r, lists = groups.order[m], lists_of(rotated, groups, batch, tables, m)
            source = offset(dy, (r * shape.channels + channel) * bins + batch.low)
            for k in range(0, channels, LANES):
                panel = offset(gradient, k // LANES * lists.bins * LANES)
                lanes = minimum(LANES, channels - k)
                call(storage.pack, (offset(source, k * bins), bins, lanes, 0, 1, lists.bins, panel))
            part = offset(parts, (r * plan.blocks + block) * DERIVATIVES)
            call(add_products, (block_of_panels, size, planes, pixels, packs, gradient, channels, lists, part))
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
    tables: Lists,
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
        tables: the entries.
        sums: the result [DERIVATIVES].
    """
    lists = typed_lists(tables, sums)
    a, b, c, d, e = sums[0], sums[1], sums[2], sums[3], sums[4]
    gathered = offset(gradient, BLOCK_PANELS * lists.bins * LANES)
    for p in range(lists.bins):
        for i in range(p * lists.stride, p * lists.stride + lists.count[p]):
            at, lanes = lists.pixel[i], splat(gradient, 0.0)
            for k in range(panel_count(channels)):
                if packs:
                    pixel = load_lanes(panels, k * size + at * LANES)
                else:
                    for lane in range(LANES):
                        channel = k * LANES + lane
                        gathered[lane] = (
                            load(planes, channel * stride + at) if channel < channels else cast_like(gathered, 0.0)
                        )
                    pixel = load_lanes(gathered, 0)
                lanes = fma(load_lanes(gradient, (k * lists.bins + p) * LANES), pixel, lanes)
            dot, derivatives = horizontal_sum(lanes), offset(lists.value, i * DERIVATIVES)
            a, b, c = a + dot * derivatives[0], b + dot * derivatives[1], c + dot * derivatives[2]
            d, e = d + dot * derivatives[3], e + dot * derivatives[4]
    sums[0], sums[1], sums[2], sums[3], sums[4] = a, b, c, d, e
