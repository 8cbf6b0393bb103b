# SPDX-License-Identifier: MIT
"""Pool over RoIs, or compute gradients drois, in tasks with disjoint outputs.

A task computes some panels of channels, of one RoI or of all RoIs of an image whose map is packed as a whole.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ortops.compiler.compile import compiled, inline
from ortops.compiler.parallel import allocate, call, release, task_of
from ortops.compiler.scalar import (
    address_of,
    compute_pointer,
    float64_pointer,
    int64_pointer,
    itemsize,
    maximum,
    minimum,
    offset,
    storage_pointer,
)
from ortops.compiler.simd import fence, prefetch_to_read, prefetch_to_write
from ortops.native.elements import LANES, OUT_OF_MEMORY, Doubles, Elements, Words
from ortops.native.kernels.functions import AddToDrois, Driver, Functions, Pool, SharedTables, Sizes
from ortops.native.kernels.layout import CANDIDATES, Form, PlacedRois, Plan, Tables
from ortops.native.kernels.pack import should_stream, stream
from ortops.native.kernels.roi_tables import share_tables, table_sizes, tables_of, work_item
from ortops.native.kernels.schedule import (
    MAX_WORKSPACE_BYTES,
    allocate_workspace,
    estimate_work,
    form_of,
    is_sparse,
    panel_count,
    plan_of_panels,
    plane_of,
    run_plan,
    runner_for,
    should_pack_maps,
)
from ortops.native.kernels.sliding import panel_lines, rows_of_panel, slide, sliding_size

MAX_STAGED_BINS = 1 << 12
"""The most bins to stage before non-temporal stores; more bins would leave the cache first."""


class GatherCall(NamedTuple):
    """The data that all tasks of a call share.

    x: the maps.
    placed, outside: as in `gather`.
    form: what the tables hold.
    sizes: the sizes of the tables.
    functions: the functions that fill tables, load and store x and y, and pool.
    finds_argmax: whether the functions find each bin's argmax; then sparse windows are not packed.
    plan: the split into tasks.
    work: the number of pixels to read or write, in all channels.
    lines: the number of lines in a packed panel.
    lines_size: the number of values in the buffer for lines, which follows the values of a RoI's bins.
    spare_size: the number of values in the spare buffer, which comes next; a packed panel follows.
    workspace_size: the number of values in the whole workspace.
    """

    x: Elements
    placed: PlacedRois
    form: Form
    sizes: Sizes
    functions: Functions
    outside: float
    finds_argmax: bool
    plan: Plan
    work: float
    lines: int
    lines_size: int
    spare_size: int
    workspace_size: int


class PanelRead(NamedTuple):
    """A RoI and a panel of channels that it reads.

    r: the RoI's number.
    following: the number of the next RoI that reads the same panel, or -1.
    panel: the panel's number among the panels of all tasks.
    channel, lanes: the panel's first channel and its number of channels.
    packs: whether the panel is packed.
    source: the map's first pixel, in the packed panel or in the first plane.
    stride: the number of pixels from row to row.
    next_channel: the number of pixels from plane to plane.
    tables: the RoI's tables.
    line: a buffer for lines.
    """

    r: int
    following: int
    panel: int
    channel: int
    lanes: int
    packs: bool
    source: Elements
    stride: int
    next_channel: int
    tables: Tables
    line: Elements


@compiled
def gather(
    x: int, _dy: int, y: int, placed: PlacedRois, driver: Driver, outside: float, runner: int, context: int
) -> int:
    """Fill y [R, C, PH, PW] from x [N, C, H, W]; a `functions.Drive` whose result is 0, OUT_OF_MEMORY or INTERRUPTED.

    `outside` is the value of samples off the map, or of bins without pixels.
    """
    maps, output = Elements(x, driver.kind), Elements(y, driver.kind)
    panels, staging_size = panel_count(placed.shape.channels), staging_size_of(placed, output)
    lines_size = placed.shape.width * LANES
    gathering = _plan(maps, placed, driver, outside, False, panels, lines_size, staging_size, runner)
    plan, functions = gathering.plan, gathering.functions
    status, memory, shared = _share(gathering, runner, context)
    if status == 0:
        task, data = task_of(_pool_task, (gathering, shared, output))
        status = run_plan(plan, context, gathering.work, shared.failed, functions, task, data)
    release(memory)
    return status


@compiled
def gather_drois(
    x: int, dy: int, drois: int, placed: PlacedRois, driver: Driver, _outside: float, runner: int, context: int
) -> int:
    """Add drois to float64 sums [R, 4], which are 0, from x [N, C, H, W] and dy [R, C, PH, PW].

    Sums over channels are float64, since large terms of opposite signs cancel to a small result. The other arguments and the
    result are as in `gather`.
    """
    maps, gradient, sums = Elements(x, driver.kind), Elements(dy, driver.kind), float64_pointer(drois)
    shape, finds_argmax = placed.shape, driver.form == CANDIDATES
    panels, size = panel_count(shape.channels), 4 * shape.rois
    # Room for four sums of a panel's channels, or for its argmax.
    sums_size = (
        (shape.bins_y * shape.bins_x if finds_argmax else 4) * LANES * 8 // itemsize(compute_pointer(maps, maps))
    )
    # For averages each panel has its own sums, which are then added in the order of the panels. For maxima one task adds up
    # all panels, channel by channel.
    most = maximum(minimum(panels, MAX_WORKSPACE_BYTES // (8 * size)), 1)
    most, step = (1, maximum(panels, 1)) if finds_argmax else (most, most)
    lines_size = 3 * shape.width * LANES
    gathering = _plan(maps, placed, driver, 0.0, finds_argmax, most, lines_size, sums_size, runner)
    plan, functions = gathering.plan, gathering.functions
    status, memory, shared = _share(gathering, runner, context)
    memory_of_sums = allocate(most * size)
    parts = float64_pointer(memory_of_sums)
    if status == 0 and address_of(parts) == 0:
        status = OUT_OF_MEMORY
    for panel in range(0, panels, step):
        if status == 0:
            count = minimum(step, panels - panel)
            task, data = task_of(_drois_task, (gathering, shared, gradient, parts, panel, count))
            work = gathering.work * count / panels
            status = run_plan(plan, context, work, shared.failed, functions, task, data)
            for k in range(0 if status else minimum(count, most)):
                for i in range(size):
                    sums[i] += parts[k * size + i]
    release(memory)
    release(memory_of_sums)
    return status


@compiled
def _plan(
    x: Elements,
    placed: PlacedRois,
    driver: Driver,
    outside: float,
    finds_argmax: bool,
    panels: int,
    lines_size: int,
    spare_size: int,
    runner: int,
) -> GatherCall:
    """Plan the tasks of up to `panels` panels."""
    part, bins, form = placed.part, placed.shape.bins_y * placed.shape.bins_x, form_of(driver)
    is_whole, sizes = should_pack_maps(placed) and not finds_argmax, table_sizes(placed, form)
    lines = panel_lines(placed, is_whole, x, form, sizes)
    size = sliding_size(placed, is_whole, lines, x) + bins * LANES + lines_size + spare_size
    work = estimate_work(placed, (part.end - part.begin) * (part.high - part.low))
    value_size = itemsize(compute_pointer(x, x))
    plan = plan_of_panels(placed, is_whole, runner_for(work, runner), panels, size * value_size)
    functions = driver.functions
    return GatherCall(
        x, placed, form, sizes, functions, outside, finds_argmax, plan, work, lines, lines_size, spare_size, size
    )


@compiled
def _share(gathering: GatherCall, runner: int, context: int) -> tuple[int, Words, SharedTables]:
    placed, slides = gathering.placed, gathering.lines < gathering.placed.shape.height
    form, sizes, functions = gathering.form, gathering.sizes, gathering.functions
    return share_tables(placed, gathering.plan, runner, context, form, sizes, functions, slides)


@compiled
def staging_size_of(placed: PlacedRois, y: Elements) -> int:
    """The number of values to stage for the non-temporal stores of a RoI's output; 0 if y is stored directly."""
    shape, bins = placed.shape, placed.part.high - placed.part.low
    streams = bins <= MAX_STAGED_BINS and should_stream(y, shape.rois * shape.channels * bins)
    is_dense = bins == shape.bins_y * shape.bins_x and shape.interleaved == 1
    return bins * LANES if streams and is_dense else 0


@compiled
def _pool_task(gathering: GatherCall, shared: SharedTables, y: Elements, first: int, last: int, worker: int) -> None:
    panels = panel_count(gathering.placed.shape.channels)
    _read_maps(gathering, shared, 0, panels, _pool, y, first, last, worker)


@inline
def _pool(gathering: GatherCall, at: PanelRead, values: Elements, spare: Elements, y: Elements) -> None:
    """Compute and store the bins of a RoI.

    Inlined: a call would pass some sixty words. Measured: averages on P4 would take 20 % longer.
    """
    shape, part, functions = gathering.placed.shape, gathering.placed.part, gathering.functions
    pool_panel: Pool = functions.panel
    pool_plane: Pool = functions.plane
    outside, bins, count = gathering.outside, shape.bins_y * shape.bins_x, part.high - part.low
    target, next_channel = offset(y, plane_of(shape, at.r, at.channel) * bins + part.low), bins * shape.interleaved
    if not at.packs:
        for c in range(at.lanes):
            plane = offset(at.source, c * at.next_channel)
            call(pool_plane, (plane, at.stride, at.tables, outside, at.line, values))
            call(functions.write, (values, count, offset(target, c * next_channel)))
        return
    if not gathering.spare_size:
        prefetch_to_write(target, count * at.lanes)
    call(pool_panel, (at.source, at.stride, at.tables, outside, at.line, values))
    if gathering.spare_size:
        elements = storage_pointer(spare, y)
        call(functions.unpack, (values, bins, elements, bins, at.lanes))
        stream(elements, target, bins * at.lanes)
    else:
        call(functions.unpack, (values, count, target, next_channel, at.lanes))


@compiled
def _drois_task(
    gathering: GatherCall,
    shared: SharedTables,
    dy: Elements,
    parts: Doubles,
    first_panel: int,
    panels: int,
    first: int,
    last: int,
    worker: int,
) -> None:
    _read_maps(gathering, shared, first_panel, panels, _add_to_drois, (dy, parts), first, last, worker)


@inline
def _add_to_drois(
    gathering: GatherCall, at: PanelRead, values: Elements, spare: Elements, arrays: tuple[Elements, Doubles]
) -> None:
    """Add up the gradient of a RoI over the channels of a panel."""
    shape, functions, (dy, parts) = gathering.placed.shape, gathering.functions, arrays
    add_panel: AddToDrois = functions.panel
    add_plane: AddToDrois = functions.plane
    bins, of_channels = shape.bins_y * shape.bins_x, float64_pointer(spare)
    source, next_channel = offset(dy, plane_of(shape, at.r, at.channel) * bins), bins * shape.interleaved
    part = offset(parts, ((0 if gathering.finds_argmax else at.panel) * shape.rois + at.r) * 4)
    if at.panel == 0 or not gathering.finds_argmax:
        part[0], part[1], part[2], part[3] = 0.0, 0.0, 0.0, 0.0
    if at.packs:
        call(functions.pack, (source, next_channel, at.lanes, 0, 1, bins, values))
        if at.following >= 0:
            following = plane_of(shape, at.following, at.channel) * bins
            prefetch_to_read(offset(dy, following), at.lanes * bins)
        args = at.source, at.stride, values, at.tables, at.line, of_channels, part
        call(add_panel, args)
    else:
        for c in range(at.lanes):
            call(functions.read, (offset(source, c * next_channel), bins, values))
            plane = offset(at.source, c * at.next_channel)
            call(add_plane, (plane, at.stride, values, at.tables, at.line, of_channels, part))


@compiled
def _read_maps(
    gathering: GatherCall,
    shared: SharedTables,
    first_panel: int,
    panels: int,
    apply: Any,
    arrays: Any,
    first: int,
    last: int,
    worker: int,
) -> None:
    """Run a task: call apply(gathering, reading, values, spare, arrays) for each RoI and each panel that it reads.

    `values` is the buffer for a RoI's bins, and `spare` the buffer after the lines. The worker takes its part of the indices
    first:last.
    """
    placed, plan, functions, lines = gathering.placed, gathering.plan, gathering.functions, gathering.lines
    memory, values = allocate_workspace(gathering.workspace_size, gathering.x)
    if address_of(memory) == 0:
        shared.failed[0] = 1
        return
    shape = placed.shape
    pixels = shape.height * shape.width
    next_channel = pixels * shape.interleaved
    whole_line = offset(values, shape.bins_y * shape.bins_x * LANES)
    spare = offset(whole_line, gathering.lines_size)
    panel = offset(spare, gathering.spare_size)
    numbers = int64_pointer(offset(panel, lines * shape.width * LANES))
    for index in range(first + worker, last, plan.workers):
        block = index % plan.blocks
        image, begin, end, window, packs = work_item(placed, plan, shared, worker, index // plan.blocks)
        if gathering.finds_argmax:
            packs = packs and not is_sparse(placed, shared.groups.order[begin])
        # Tables number the pixels of the whole map, even if only a window is packed.
        packed = offset(panel, -(window.top * window.width + window.left) * LANES)
        line = offset(whole_line, -window.left * LANES) if packs else whole_line
        stride = window.width if packs else shape.width
        for k in range(panels * block // plan.blocks, panels * (block + 1) // plan.blocks):
            channel, end_row = (first_panel + k) * LANES, 0
            lanes = minimum(LANES, shape.channels - channel)
            planes = offset(gathering.x, plane_of(shape, image, channel) * pixels)
            if packs and lines == shape.height:
                source = offset(planes, window.top * shape.width + window.left)
                call(functions.pack, (source, next_channel, lanes, shape.width, window.height, window.width, panel))
            source = packed if packs else planes
            for m in range(begin, end):
                r = shared.groups.order[m]
                following = shared.groups.order[m + 1] if m + 1 < end else -1
                rows, columns = tables_of(placed, shared, worker, r)
                if packs and lines < shape.height:
                    low, high = rows.low, rows.high
                    end_row = slide(functions.pack, planes, placed, lanes, lines, end_row, low, high, panel)
                    rows = rows_of_panel(rows, low, lines, numbers)
                reading = PanelRead(
                    r, following, k, channel, lanes, packs, source, stride, next_channel, Tables(rows, columns), line
                )
                apply(gathering, reading, values, spare, arrays)
    fence()
    release(memory)
