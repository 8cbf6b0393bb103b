# SPDX-License-Identifier: MIT
"""Call a driver for parts of the RoIs, so that a part's lists fit into memory and a part takes at most a second or so.

A driver may pool all RoIs of an image in one task, during which no signal handler runs. Handlers run between parts.
"""

from __future__ import annotations

from ortops.compiler.compile import compiled
from ortops.compiler.parallel import allocate, call, release
from ortops.compiler.scalar import address_of, itemsize, maximum, minimum, offset, set_value, value_at
from ortops.native.elements import FLOAT, INTERRUPTED, OUT_OF_MEMORY, Elements
from ortops.native.kernels.functions import Drive, Driver, Groups
from ortops.native.kernels.layout import AXIS_FIELDS, LISTS, TO_DX, TO_Y, WEIGHTS, Part, PlacedRois, Shape
from ortops.native.kernels.roi_tables import group_by_image

_SUMS_BYTES = 4 * 8
"""The bytes of a RoI's drois as float64; rotated RoIs have another driver for parts."""


@compiled
def drive_in_parts(
    x: int, dy: int, out: int, placed: PlacedRois, driver: Driver, outside: float, runner: int, context: int
) -> int:
    """Call a driver for parts of RoIs that have tables; a `functions.Drive`.

    Each part of dX is computed separately and then added.
    """
    shape, kind, role = placed.shape, driver.kind, driver.role
    most = maximum(driver.part_work, driver.part_maps * shape.images * shape.height * shape.width)
    end = _end_of_part(placed, 0, most)
    row_bytes = shape.channels * shape.bins_y * shape.bins_x * itemsize(Elements(0, kind))
    if end == shape.rois or driver.add_up != 0:
        drive: Drive = driver.drive if end == shape.rois else driver.add_up
        return call(drive, (x, dy, out, placed, driver, outside, runner, context))
    size, stop = shape.images * shape.channels * shape.height * shape.width, driver.functions.stop
    begin, status = 0, 0
    memory = allocate(size * itemsize(Elements(0, kind)) // 8 + 1 if role == TO_DX else 0)
    total, sums = Elements(out, kind), Elements(address_of(memory), kind)
    if address_of(memory) == 0:
        return OUT_OF_MEMORY
    while begin < shape.rois and status == 0:
        end = _end_of_part(placed, begin, most)
        to = out + begin * (row_bytes if role == TO_Y else _SUMS_BYTES)
        if role == TO_DX:
            to = out if begin == 0 else sums.address
        if begin > 0 and call(stop, ()) != 0:
            status = INTERRUPTED
        else:
            part = _part(placed, begin, end)
            of_part = dy if role == TO_Y else dy + begin * row_bytes
            status = call(driver.drive, (x, of_part, to, part, driver, outside, runner, context))
        for i in range(size if role == TO_DX and begin > 0 and status == 0 else 0):
            set_value(total, i, value_at(total, i) + value_at(sums, i))
        begin = end
    release(memory)
    return status


@compiled
def _end_of_part(placed: PlacedRois, begin: int, most: int) -> int:
    """The end of the part that starts at RoI `begin`. If bins count as RoIs, a part has all bins of a RoI."""
    shape, end, total = placed.shape, begin, 0
    while end < shape.rois:
        for r in range(end, end + shape.interleaved):
            total += placed.spans[2 * r] * placed.spans[2 * r + 1] + shape.bins_y * shape.bins_x
        if total > most and end > begin:
            break
        end += shape.interleaved
    return end


@compiled
def _part(placed: PlacedRois, begin: int, end: int) -> PlacedRois:
    s, count = placed.shape, end - begin
    shape = Shape(s.images, s.channels, s.height, s.width, count, s.bins_y, s.bins_x, s.interleaved)
    axes, spans = offset(placed.axes, 2 * AXIS_FIELDS * begin), offset(placed.spans, 2 * begin)
    of, whole = offset(placed.batch_indices, begin), Part(0, count, 0, placed.part.high, 0)
    return PlacedRois(shape, axes, spans, of, placed.rotations, placed.limits, placed.lists, whole)


@compiled
def drive_with_lists(
    x: int, dy: int, out: int, placed: PlacedRois, driver: Driver, outside: float, runner: int, context: int
) -> int:
    """Call a driver for parts of rotated RoIs whose lists fit, and add up the parts' sums; a `functions.Drive`."""
    rois = placed.shape.rois
    memory = allocate(rois + placed.shape.images + 1)
    if address_of(memory) == 0:
        return OUT_OF_MEMORY
    groups, entry_bytes = Groups(memory, offset(memory, rois)), 8 + ((5 if driver.with_grad else 1) << driver.numbers)
    group_by_image(groups, placed)
    entries, count, part = 0, 0, Part(0, 0, 0, placed.part.high, 0)
    while part.end < rois or part.high < placed.part.high:
        part = _next_part(placed, groups, part, entry_bytes, driver.part_work)
        entries, count = maximum(entries, part.entries), count + 1
    if count > 1 and driver.add_up != 0:
        release(memory)
        return call(driver.add_up, (x, dy, out, placed, driver, outside, runner, context))
    lists, status, part = allocate(entries * entry_bytes // 8 + 1), 0, Part(0, 0, 0, placed.part.high, 0)
    if address_of(lists) == 0:
        status = OUT_OF_MEMORY
    for number in range(maximum(count, 1)):
        if status == 0 and number > 0 and call(driver.functions.stop, ()) != 0:
            status = INTERRUPTED
        if status == 0:
            if count > 0:
                part = _next_part(placed, groups, part, entry_bytes, driver.part_work)
            p = placed
            placed_part = PlacedRois(p.shape, p.axes, p.spans, p.batch_indices, p.rotations, p.limits, lists, part)
            status = call(driver.drive, (x, dy, out, placed_part, driver, outside, runner, context))
    release(lists)
    release(memory)
    return status


@compiled
def _next_part(placed: PlacedRois, groups: Groups, last: Part, entry_bytes: int, most_bytes: int) -> Part:
    """The part after `last`: as many RoIs as fit, or some bins of one RoI."""
    bins = placed.part.high
    begin, low = (last.begin, last.high) if last.high < bins else (last.end, 0)
    end, pixels, total = begin, 0, 0.0
    while end < placed.shape.rois:
        of_bin = placed.limits[3 * groups.order[end] + 2]
        bytes_of_bin = float(of_bin) * entry_bytes + 8.0
        if total + bytes_of_bin * bins > most_bytes:
            if end == begin:
                high = minimum(low + maximum(int(most_bytes / bytes_of_bin), 1), bins)
                return Part(begin, end + 1, low, high, of_bin * (high - low))
            break
        total, pixels, end = total + bytes_of_bin * bins, pixels + of_bin, end + 1
    return Part(begin, end, 0, bins, pixels * bins)


@compiled
def add_up_in_float(
    x: int, dy: int, dx: int, placed: PlacedRois, driver: Driver, outside: float, runner: int, context: int
) -> int:
    """Fill a 16-bit type's dx from several parts, added up as float32 and rounded once; a `functions.Drive`."""
    of_sums, functions, shape = driver.of_sums, driver.functions, placed.shape
    size, count = shape.images * shape.channels * shape.height * shape.width, shape.bins_y * shape.bins_x
    count *= shape.rois * shape.channels
    reads_x = driver.form != WEIGHTS and driver.form != LISTS
    memory = allocate((count + (2 * size if reads_x else size) + 1) // 2)
    if address_of(memory) == 0:
        return OUT_OF_MEMORY
    total = Elements(address_of(memory), FLOAT)
    maps = offset(total, size if reads_x else 0)
    gradient = offset(maps, size)
    if reads_x:
        call(functions.read, (Elements(x, driver.kind), size, maps))
    call(functions.read, (Elements(dy, driver.kind), count, gradient))
    to = address_of(total)
    args = address_of(maps), address_of(gradient), to, placed, of_sums, outside, runner, context
    status = call(of_sums.in_parts, args)
    if status == 0:
        call(functions.write, (total, size, Elements(dx, driver.kind)))
    release(memory)
    return status
