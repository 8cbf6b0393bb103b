"""The average over samples as two thin matrix products, Y = A_y X A_x^T, and its gradients.

The lines of the map that a bin needs are combined first, elementwise; then each output is a short sum over one combined line.
Both work on a panel, where a pixel is LANES numbers of as many channels, and on one plane, where it is one number: `unit` is
the numbers of a pixel. Every sum is made in the same order by the same instructions, so a channel gives the same bits in
either form.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ortops.kernels.jit import LANES
from ortops.kernels.jit.compile import inner, outlined
from ortops.kernels.jit.lanes import add_doubles, load_lanes, prefetch_to_read, prefetch_to_write, splat, store_lanes
from ortops.kernels.jit.parallel import allocate, parallel_for, release
from ortops.kernels.jit.scalar import (
    address_of,
    bytes_of,
    fma,
    int64s_at,
    load,
    maximum,
    minimum,
    number,
    numbers_at,
    offset,
    store,
)
from ortops.kernels.layout import OUT_OF_MEMORY, Placed
from ortops.kernels.pack import pack, prefetch_window, unpack
from ortops.kernels.schedule import (
    MOST_BYTES_OF_TABLES,
    Groups,
    Plan,
    carve_groups,
    fill_groups,
    packs_maps,
    pixels_of_panel,
    plan_of,
    runner_for,
    work_space,
)
from ortops.kernels.tables import (
    RoiTables,
    Weights,
    Window,
    carve_tables,
    is_packed,
    room_of_weights,
    runs_of,
    span_of,
    weights_of,
    window_of,
)


class _Work(NamedTuple):
    """What all tasks of an average share: tables, groups, and the flag that a worker found no memory."""

    rows: RoiTables
    columns: RoiTables
    is_shared: bool
    groups: Groups
    failed: Any


BLOCK = 16
"""RoIs of a task that fills tables."""


@inner
def pool_average(x: Any, y: Any, placed: Placed, runner: int, context: int, outside: float) -> int:
    """Fill y [R, C, PH, PW] from x [N, C, H, W]; outside is the value of samples off the map. OUT_OF_MEMORY or 0."""
    shape, is_whole = placed.shape, packs_maps(placed)
    panel = pixels_of_panel(placed, is_whole) * LANES
    room = panel + (shape.bins_y * shape.bins_x + shape.width) * LANES
    plan = plan_of(placed, is_whole, runner_for(placed, runner), room * bytes_of(numbers_at(x, x)))
    memory, work = _prepare(placed, plan, context, x, 0)
    if address_of(memory) == 0:
        return OUT_OF_MEMORY
    args = (x, y, placed, plan, work, outside, panel, room)
    done = parallel_for(plan.runner, context, plan.workers, _average_task, args)
    failed = work.failed[0] != 0 or not done
    release(memory)
    return OUT_OF_MEMORY if failed else 0


@inner
def _prepare(placed: Placed, plan: Plan, context: int, like: Any, slopes: int) -> Any:
    """Make the tables of all RoIs and group them by image; the memory to release, null where there is none left."""
    rooms, most = (0, 0), (0, 0)
    for r in range(placed.shape.rois):
        tall, wide = room_of_weights(placed, r, 0), room_of_weights(placed, r, 1)
        rooms = rooms[0] + tall, rooms[1] + wide
        most = maximum(most[0], tall), maximum(most[1], wide)
    slots, is_shared = placed.shape.rois, True
    memory = int64s_at(0)
    _, end = _carve(memory, placed, slots, rooms, slopes, like, is_shared)
    if address_of(end) > MOST_BYTES_OF_TABLES:
        slots, is_shared, rooms = plan.workers, False, (plan.workers * most[0], plan.workers * most[1])
        _, end = _carve(memory, placed, slots, rooms, slopes, like, is_shared)
    memory = allocate(address_of(end) // 8)
    work, _ = _carve(memory, placed, slots, rooms, slopes, like, is_shared)
    if address_of(memory) != 0:
        work.failed[0] = 0
        if plan.is_whole:
            fill_groups(work.groups, placed)
        for k in range(2):
            first, at = work.columns.first if k else work.rows.first, 0
            for slot in range(slots):
                first[slot] = at
                at += room_of_weights(placed, slot, k) if is_shared else most[k]
        if is_shared:
            tasks = (placed.shape.rois + BLOCK - 1) // BLOCK
            parallel_for(plan.runner, context, tasks, _fill_task, (placed, work.rows, work.columns, slopes != 0))
    return memory, work


@inner
def _carve(memory: Any, placed: Placed, slots: int, rooms: Any, slopes: int, like: Any, is_shared: bool) -> Any:
    rows, end = carve_tables(offset(memory, 1), slots, placed.shape.bins_y, rooms[0], slopes, like)
    columns, end = carve_tables(end, slots, placed.shape.bins_x, rooms[1], slopes, like)
    groups, end = carve_groups(end, placed)
    return _Work(rows, columns, is_shared, groups, memory), end


@inner
def _fill_task(placed: Placed, rows: RoiTables, columns: RoiTables, has_slopes: bool, task: int) -> None:
    """Fill the tables of BLOCK RoIs."""
    for r in range(task * BLOCK, minimum((task + 1) * BLOCK, placed.shape.rois)):
        for k in range(2):
            weights_of(columns if k else rows, r, False, placed, r, k, has_slopes)


@inner
def _weights(work: _Work, worker: int, placed: Placed, r: int, k: int, has_slopes: bool) -> Weights:
    tables = work.columns if k else work.rows
    return weights_of(tables, r if work.is_shared else worker, work.is_shared, placed, r, k, has_slopes)


@inner
def _average_task(
    x: Any, y: Any, placed: Placed, plan: Plan, work: _Work, outside: float, room_of_panel: int, room: int, worker: int
) -> None:
    shape = placed.shape
    memory, panel, runs = work_space(room, x, shape.width)
    if address_of(memory) == 0:
        work.failed[0] = 1
        return
    pixels, bins = shape.height * shape.width, shape.bins_y * shape.bins_x
    sums = offset(panel, room_of_panel)
    whole_line = offset(sums, bins * LANES)
    for index in range(worker, plan.units * plan.blocks, plan.workers):
        unit, block = index // plan.blocks, index % plan.blocks
        if plan.is_whole:
            image, begin, end = unit, work.groups.first[unit], work.groups.first[unit + 1]
            window, packs = Window(0, 0, shape.height, shape.width), begin < end
        else:
            image, begin, end = placed.images[unit], unit, unit + 1
            rows = _weights(work, worker, placed, unit, 0, False)
            columns = _weights(work, worker, placed, unit, 1, False)
            window = window_of(span_of(rows), span_of(columns), shape.width)
            packs = is_packed(window, shape.channels)
        corner = window.top * shape.width + window.left
        # The pixels of the map are numbered as in the map, also where a part of it is packed.
        packed = offset(panel, -(window.top * window.width + window.left) * LANES)
        line = offset(whole_line, -window.left * LANES) if packs else whole_line
        for k in range(plan.panels * block // plan.blocks, plan.panels * (block + 1) // plan.blocks):
            channel = k * LANES
            lanes = minimum(LANES, shape.channels - channel)
            planes = offset(x, (image * shape.channels + channel) * pixels)
            if packs:
                source = offset(planes, corner)
                pack(source, pixels, lanes, shape.width, window.height, window.width, panel)
                if not plan.is_whole:
                    following = minimum(LANES, shape.channels - channel - LANES)
                    source = offset(source, LANES * pixels)
                    prefetch_window(source, pixels, following, shape.width, window.height, window.width)
            for m in range(begin, end):
                r = work.groups.order[m] if plan.is_whole else m
                rows = _weights(work, worker, placed, r, 0, False)
                columns = _weights(work, worker, placed, r, 1, False)
                target, count = offset(y, (r * shape.channels + channel) * bins), runs_of(columns, runs)
                if packs:
                    prefetch_to_write(target, bins * lanes)
                    _average(packed, window.width * LANES, LANES, rows, columns, outside, runs, count, line, sums)
                    unpack(sums, bins, target, bins, lanes)
                else:
                    for c in range(lanes):
                        source = offset(planes, c * pixels)
                        _average(source, shape.width, 1, rows, columns, outside, runs, count, line, sums)
                        for b in range(bins):
                            store(target, c * bins + b, sums[b])
    release(memory)


@outlined
def _average(
    source: Any,
    stride: int,
    unit: int,
    rows: Weights,
    columns: Weights,
    outside: float,
    runs: Any,
    count: int,
    line: Any,
    sums: Any,
) -> None:
    """Y = A_y X A_x^T into sums [PH, PW]; the lines of X are `stride` numbers apart, a pixel is `unit` numbers."""
    for p in range(rows.bins):
        _combine(source, stride, unit, rows, p, runs, count, line)
        for q in range(columns.bins):
            begin, end = columns.start[q], columns.start[q + 1]
            off_map = 1.0 - rows.inside[p] * columns.inside[q] if outside != 0.0 else 0.0
            share = off_map * outside if off_map > 0.0 else 0.0
            at = p * columns.bins + q
            if unit == 1:
                total = number(sums, 0.0)
                for i in range(begin, end):
                    total = fma(columns.weight[i], line[columns.pixel[i]], total)
                sums[at] = total if share == 0.0 else total + number(sums, share)
            else:
                lanes = splat(sums, 0.0)
                for i in range(begin, end):
                    lanes = fma(columns.weight[i], load_lanes(line, columns.pixel[i] * LANES), lanes)
                if share != 0.0:
                    lanes = fma(1.0, lanes, splat(sums, share))
                store_lanes(sums, at * LANES, lanes)


@inner
def _combine(source: Any, stride: int, unit: int, rows: Weights, p: int, runs: Any, count: int, line: Any) -> None:
    """Row p of A_y X in the runs of a line. Four lines of X are taken at once: the sums stay in registers."""
    start, end = rows.start[p], rows.start[p + 1]
    if start == end:
        clear(runs, count, unit, line)
    for i in range(start, end, 4):
        left, (a, b, c, d), (at_a, at_b, at_c, at_d) = _four(rows, i, end, source, stride)
        for n in range(count):
            low, high = runs[2 * n] * unit, runs[2 * n + 1] * unit
            rest = high - (high - low) % LANES
            for j in range(low, rest, LANES):
                lanes = splat(line, 0.0) if i == start else load_lanes(line, j)
                lanes = fma(a, load_lanes(at_a, j), lanes)
                if left > 1:
                    lanes = fma(b, load_lanes(at_b, j), lanes)
                if left > 2:
                    lanes = fma(c, load_lanes(at_c, j), lanes)
                if left > 3:
                    lanes = fma(d, load_lanes(at_d, j), lanes)
                store_lanes(line, j, lanes)
            for j in range(rest, high):
                total = number(line, 0.0) if i == start else line[j]
                total = fma(a, load(at_a, j), total)
                if left > 1:
                    total = fma(b, load(at_b, j), total)
                if left > 2:
                    total = fma(c, load(at_c, j), total)
                if left > 3:
                    total = fma(d, load(at_d, j), total)
                line[j] = total


@inner
def _four(rows: Weights, i: int, end: int, source: Any, stride: int) -> Any:
    """How many of row weight i and the three after it there are before `end`, what they are, and where their lines are."""
    b, c, d = minimum(i + 1, end - 1), minimum(i + 2, end - 1), minimum(i + 3, end - 1)
    weight, pixel = rows.weight, rows.pixel
    return (
        end - i,
        (weight[i], weight[b], weight[c], weight[d]),
        (
            offset(source, pixel[i] * stride),
            offset(source, pixel[b] * stride),
            offset(source, pixel[c] * stride),
            offset(source, pixel[d] * stride),
        ),
    )


@inner
def clear(runs: Any, count: int, unit: int, line: Any) -> None:
    """Zeros in the runs of a line."""
    for n in range(count):
        for j in range(runs[2 * n] * unit, runs[2 * n + 1] * unit):
            store(line, j, 0.0)
