# SPDX-License-Identifier: MIT
"""The entries of MSDeformAttn and of its gradient: check the levels, and split the work by head and by queries.

A task packs a head's maps if all queries together read each pixel often enough (`attention_points`); of dvalue it fills a
head. Otherwise a task computes some queries with all heads.
"""

from __future__ import annotations

from ortops.compiler.compile import compiled, noinline, optimize_for_size
from ortops.compiler.parallel import allocate, release, task_of
from ortops.compiler.parallel import call as invoke
from ortops.compiler.scalar import (
    address_of,
    compute_pointer,
    float64_pointer,
    int64_pointer,
    itemsize,
    local,
    offset,
    set_value,
)
from ortops.compiler.struct_types import struct_at
from ortops.compiler.text import text
from ortops.native.elements import LANES, Elements, Words
from ortops.native.kernels.attention_points import Attention, Maps, Tensors, Work, padded
from ortops.native.kernels.functions import Attend, AttentionDriver
from ortops.native.kernels.pack import clear
from ortops.native.kernels.schedule import allocate_workspace, runner_for, worker_count
from ortops.native.node.messages import write_int, write_list, write_text
from ortops.native.types import INVALID, OK, OUT_OF_MEMORY, Call, Node

BLOCK = 32
"""The queries of a task that reads maps in place."""

MIN_READS = 2.0
"""The fewest samples for each pixel of a head's maps to pack them: packing reads and writes each pixel once."""

MAX_PANEL_VALUES = 1 << 22
"""The largest panel of maps that could be read in place."""

MAX_SAMPLES = float(1 << 28)
"""The most samples, in all channels, before signal handlers run: on one thread this takes 0.1 to 1 s."""


@compiled
def _driver_of(node: Node) -> AttentionDriver:
    return struct_at(AttentionDriver, address_of(node.driver))


@noinline
def _read_levels(call: Call, row: int, levels: Words) -> int:
    """Copy the height, the width and the first pixel of each level [L, 3], and check the copies.

    Args:
        row: the number of the tensor value.
        levels: the copies; null if memory has run out.
    """
    if address_of(levels) == 0:
        return OUT_OF_MEMORY
    value, shapes, starts = call.tensors[row], call.tensors[row + 1], call.tensors[row + 2]
    pixels, covered, end, count = value.dims[1], 0, 0, shapes.dims[0]
    lengths, first = int64_pointer(shapes.address), int64_pointer(starts.address)
    for i in range(count):
        height, width = lengths[2 * i], lengths[2 * i + 1]
        start = first[i] if starts.type != 0 else end
        levels[3 * i], levels[3 * i + 1], levels[3 * i + 2] = height, width, start
        if height < 1 or width < 1:
            _write_level(call, i, levels)
            write_text(call, text(": must be >= 1"))
            return INVALID
        is_within = 0 <= start <= pixels and height <= (pixels - start) // width
        # Panels of levels that overlap have no more pixels than value: their memory is bounded.
        if not is_within or height * width > pixels - covered:
            _write_level(call, i, levels)
            if starts.type != 0:
                write_text(call, text(" and level_start_index["))
                write_int(call, i)
                write_text(call, text("] = "))
                write_int(call, start)
            _write_rule(call, pixels)
            return INVALID
        covered, end = covered + height * width, start + height * width
    if starts.type == 0 and end != pixels:
        write_text(call, text("spatial_shapes has "))
        write_int(call, end)
        write_text(call, text(" pixels"))
        _write_rule(call, pixels)
        return INVALID
    return OK


@compiled
def _write_level(call: Call, i: int, levels: Words) -> None:
    write_text(call, text("spatial_shapes["))
    write_int(call, i)
    write_text(call, text("] = "))
    write_list(call, offset(levels, 3 * i), 2, False)


@compiled
def _write_rule(call: Call, pixels: int) -> None:
    write_text(call, text(": must lie in the "))
    write_int(call, pixels)
    write_text(
        call, text(" pixels of value, and fill them if there is no level_start_index; all levels have at most as many")
    )


@optimize_for_size
def attention(node: Node, call: Call) -> int:
    """Fill Y; an entry."""
    driver, levels = _driver_of(node), allocate(3 * call.tensors[1].dims[0])
    status = _read_levels(call, 0, levels)
    if status == OK:
        tensors = _tensors_of(call, 0, driver.kind, call.tensors[5].address)
        status = _run(call, driver, driver.attend, tensors, _shape_of(call, 0), levels, False)
    release(levels)
    return status


@optimize_for_size
def attention_gradient(node: Node, call: Call) -> int:
    """Fill dvalue, dlocations and dweights, or some of them; an entry."""
    shape, driver, levels = _shape_of(call, 1), _driver_of(node), allocate(3 * call.tensors[2].dims[0])
    status = _read_levels(call, 1, levels)
    tensors = _tensors_of(call, 1, driver.kind, call.tensors[0].address)
    if status == OK and call.tensors[7].type + call.tensors[8].type != 0:
        status = _run(call, driver, driver.attend_gradient, tensors, shape, levels, False)
    if status == OK and call.tensors[6].type != 0:
        _, locations, weights, dy, dlocations, dweights = tensors
        dvalue = Elements(call.tensors[6].address, driver.kind)
        tensors = Tensors(dvalue, locations, weights, dy, dlocations, dweights)
        status = _run(call, driver, driver.scatter, tensors, shape, levels, True)
    release(levels)
    return status


@compiled
def _tensors_of(call: Call, row: int, kind: int, y: int) -> Tensors:
    """The tensors of a call.

    Args:
        row: the number of the tensor value, 1 in a gradient.
        kind: their element type.
        y: the address of Y or dY.
    """
    value, locations, weights = call.tensors[row], call.tensors[row + 3], call.tensors[row + 4]
    dlocations = call.tensors[7].address if row == 1 and call.tensors[7].type != 0 else 0
    dweights = call.tensors[8].address if row == 1 and call.tensors[8].type != 0 else 0
    inputs = Elements(value.address, kind), Elements(locations.address, kind), Elements(weights.address, kind)
    return Tensors(*inputs, Elements(y, kind), Elements(dlocations, kind), Elements(dweights, kind))


@compiled
def _shape_of(call: Call, row: int) -> Attention:
    value, locations = call.tensors[row].dims, call.tensors[row + 3].dims
    levels, points = locations[3], locations[4]
    return Attention(value[0], value[1], value[2], value[3], locations[1], levels, levels * points)


@compiled
def _fill_maps(memory: Words, shape: Attention, levels: Words, is_packed: bool) -> Maps:
    """Fill the memory [4, points] with what `Maps` has."""
    points, start = shape.points, 0
    width, height = float64_pointer(memory), float64_pointer(offset(memory, points))
    maps = Maps(width, height, offset(height, points), offset(height, 2 * points))
    for i in range(shape.levels):
        of_height, of_width, first = levels[3 * i], levels[3 * i + 1], levels[3 * i + 2]
        for k in range(points // shape.levels * i, points // shape.levels * (i + 1)):
            maps.width[k], maps.height[k] = float(of_width), float(of_height)
            maps.first[k] = float(start + of_width + 2 if is_packed else first)
            maps.pitch[k] = float(of_width + 1 if is_packed else of_width)
        start += (of_height + 2) * (of_width + 1) + 1
    return maps


@compiled
def _panel_pixels(shape: Attention, levels: Words) -> float:
    """The pixels of a head's maps with zeros around each."""
    total = 0.0
    for i in range(shape.levels):
        total += (levels[3 * i] + 2.0) * (levels[3 * i + 1] + 1.0) + 1.0
    return total


@noinline
def _run(
    call: Call,
    driver: AttentionDriver,
    function: Attend,
    tensors: Tensors,
    shape: Attention,
    levels: Words,
    scatters: bool,
) -> int:
    """Run a function of the driver on all heads of all images.

    Args:
        scatters: whether the function adds to the pixels of a head, in a panel.
    """
    value, y, failed, size = tensors.value, tensors.y, local(0), padded(shape.channels)
    heads, reads, is_forward = (
        shape.images * shape.heads,
        float(shape.queries) * shape.points,
        function == driver.attend,
    )
    if shape.points == 0 or heads * shape.queries == 0 or (shape.channels == 0 and (is_forward or scatters)):
        if scatters:
            clear(value, 0, 1, 0, heads * shape.pixels * shape.channels)
        elif is_forward:
            clear(y, 0, 1, 0, heads * shape.queries * shape.channels)
        return OK
    of_panel = _panel_pixels(shape, levels) * size
    packs = shape.channels % LANES != 0 or (reads > MIN_READS * shape.pixels and of_panel <= MAX_PANEL_VALUES)
    packs = packs and not scatters
    panel, work = int(of_panel) if packs else shape.pixels * size if scatters else 0, reads * heads * size
    memory = allocate(4 * shape.points)
    if address_of(memory) == 0:
        return OUT_OF_MEMORY
    maps = _fill_maps(memory, shape, levels, packs)
    runner, by_head = runner_for(work, call.runner), packs or scatters
    parts = 1 if scatters else 1 + int(reads * size / MAX_SAMPLES) if packs else (shape.queries + BLOCK - 1) // BLOCK
    tasks = parts * (heads if by_head else shape.images)
    workers = worker_count(runner, tasks, (3 * size + panel) * itemsize(compute_pointer(value, value)))
    failed[0] = 0
    args = function, tensors, shape, maps, levels, by_head, packs, parts, workers, 3 * size + panel, failed
    task, data = task_of(_task, args)
    chunks = 1 + int(work / MAX_SAMPLES)
    status = invoke(driver.run, (runner, call.context, driver.stop, workers, tasks, chunks, task, data))
    release(memory)
    return OUT_OF_MEMORY if failed[0] != 0 else status


@compiled
def _task(
    function: Attend,
    tensors: Tensors,
    shape: Attention,
    maps: Maps,
    levels: Words,
    by_head: bool,
    packs: bool,
    parts: int,
    workers: int,
    count: int,
    failed: Words,
    first: int,
    last: int,
    worker: int,
) -> None:
    memory, workspace = allocate_workspace(count, tensors.value)
    if address_of(memory) == 0:
        failed[0] = 1
        return
    for c in range(2 * padded(shape.channels)):
        set_value(workspace, c, 0.0)
    value, locations, weights, y, dlocations, dweights = tensors
    for index in range(first + worker, last, workers):
        part, number = index % parts, index // parts
        image, head = (number // shape.heads, number % shape.heads) if by_head else (number, 0)
        begin, end = shape.queries * part // parts, shape.queries * (part + 1) // parts
        for k in range(head, head + 1 if by_head else shape.heads):
            work = Work(image, k, begin, end, packs)
            args = value, locations, weights, y, dlocations, dweights, shape, maps, levels, work, workspace
            invoke(function, args)
    release(memory)
