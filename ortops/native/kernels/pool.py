# SPDX-License-Identifier: MIT
"""The entries of the operators on RoIs: one function for all poolings, and one for all their gradients.

An entry checks the data, places the RoIs' samples and calls drivers. An entry says what is special to an operator; a
driver says what is special to a mode and an element type (`library.drivers`).
"""

from __future__ import annotations

from ortops.compiler.compile import compiled, noinline, optimize_for_size
from ortops.compiler.parallel import allocate, release
from ortops.compiler.parallel import call as invoke
from ortops.compiler.scalar import address_of, float64_pointer, int64_pointer, number_at, offset, uint32_pointer
from ortops.compiler.struct_types import struct_at
from ortops.native.elements import Doubles, Elements, Words
from ortops.native.kernels.functions import Drive, Driver
from ortops.native.kernels.layout import (
    AXIS_FIELDS,
    BAD_ROI,
    BLOCK_CHANNELS,
    LISTS,
    MAX_PARAMETERS,
    NEAREST,
    NO_BINS,
    NO_PIXELS,
    Part,
    PlacedRois,
    Shape,
)
from ortops.native.kernels.pack import clear
from ortops.native.kernels.types import RoiEntry
from ortops.native.types import INVALID, NONE, OK, OUT_OF_MEMORY, Call, Node, Tensor

_ROI_WORDS = 2 * AXIS_FIELDS + 2 + 1
"""The number of words for a RoI in `PlacedRois`, without rotation."""

_ROTATED_WORDS = 3 + 3
"""The number of further words for a rotated RoI."""

_UINT32 = 12
"""The number of uint32 in ONNX's TensorProto."""


@optimize_for_size
def pool(node: Node, call: Call) -> int:
    """Fill Y [R, C, PH, PW]."""
    entry, outside = _entry_of(node), 0.0
    if entry.outside != NONE:
        outside = node.attributes[entry.outside].values.floats[0]
    status, memory, placed = _place(node, call)
    y = call.tensors[entry.output]
    if status == OK and _count(y) > 0:
        x = call.tensors[entry.x]
        status = _drive(call, node.driver, placed, x.address, 0, y.address, outside)
    release(memory)
    return status


@optimize_for_size
def pool_gradient(node: Node, call: Call) -> int:
    """Fill dX [N, C, H, W], drois [R, 4] or [R, 5], or both."""
    entry = _entry_of(node)
    status, memory, placed = _place(node, call)
    x, dy, dx = call.tensors[entry.x], call.tensors[entry.output], call.tensors[entry.dx]
    if status == OK and dx.type != 0 and _count(dx) > 0:
        maps = x.address if x.type != 0 else dx.address  # averages do not read the maps
        status = _drive(call, node.driver, placed, maps, dy.address, dx.address, 0.0)
    if status == OK and entry.drois != NONE:
        status = _fill_drois(node, call, placed, memory)
    release(memory)
    return status


@compiled
def _entry_of(node: Node) -> RoiEntry:
    return struct_at(RoiEntry, address_of(node.entry))


@compiled
def _fill_drois(node: Node, call: Call, placed: PlacedRois, parameters: Words) -> int:
    """Fill drois, unless the node leaves them out."""
    entry, driver, shape = _entry_of(node), node.driver_of_rois, placed.shape
    drois, columns = call.tensors[entry.drois], entry.columns
    if drois.type == 0 or shape.rois == 0:
        return OK
    if entry.nearest != NONE and parameters[entry.nearest] == NEAREST:
        # The nearest pixel does not change with the region, so the derivative is 0, even if the pixel is NaN.
        clear(Elements(drois.address, node.driver.kind), 0, 1, 0, _count(drois))
        return OK
    # Each block of a rotated RoI's channels has its own sums, and so has each bin that counts as a RoI. They are added in
    # order.
    blocks = (shape.channels + BLOCK_CHANNELS - 1) // BLOCK_CHANNELS if driver.form == LISTS else 1
    size = shape.rois * columns
    memory = allocate(blocks * size)
    if address_of(memory) == 0:
        return OUT_OF_MEMORY
    for i in range(blocks * size):
        memory[i] = 0
    x, dy, turns = call.tensors[entry.x], call.tensors[entry.output], shape.interleaved
    status = _drive(call, driver, placed, x.address, dy.address, address_of(memory), 0.0)
    if status == OK:
        sums, next_term = float64_pointer(memory), size if turns == 1 else columns
        args = sums, shape.rois // turns, columns, blocks * turns, columns * turns, next_term, drois.address
        invoke(driver.round_sums, args)
    release(memory)
    return status


@compiled
def _count(tensor: Tensor) -> int:
    count = 1
    for i in range(tensor.rank):
        count *= tensor.dims[i]
    return count


@noinline
def _drive(call: Call, driver: Driver, placed: PlacedRois, x: int, dy: int, out: int, outside: float) -> int:
    """Call a driver, in parts if there is much to do, so that signal handlers run in between."""
    shape = placed.shape
    work = shape.rois * (shape.height * shape.width + shape.bins_y * shape.bins_x)
    drive: Drive = driver.drive if driver.form != LISTS and work <= driver.part_work else driver.in_parts
    return invoke(drive, (x, dy, out, placed, driver, outside, call.runner, call.context))


@compiled
def _place(node: Node, call: Call) -> tuple[int, Words, PlacedRois]:
    """Place the samples of all RoIs, from copies, since another thread may write to the caller's tensors at any time.

    Returns:
        A status; memory to release, which begins with the parameters of the entry's function; and the placed RoIs.
    """
    entry = _entry_of(node)
    boxes, bins = call.tensors[entry.rois], offset(call.tensors[entry.output].dims, 2)
    lengths = call.lengths if entry.has_lengths else call.tensors[entry.x].dims
    count, columns, channels = boxes.dims[boxes.rank - 2], entry.columns, lengths[1]
    # Without channels the number of bins is unlimited, so they get no memory.
    turns = bins[0] * bins[1] if entry.interleaves != 0 and channels > 0 else 0
    memory = allocate(MAX_PARAMETERS + count * (columns + _ROTATED_WORDS + _ROI_WORDS * (1 + turns)))
    copies = float64_pointer(offset(memory, MAX_PARAMETERS))
    rotated = offset(memory, MAX_PARAMETERS + count * columns)
    words = offset(rotated, count * _ROTATED_WORDS)
    placed = _lay_out(words, rotated, Shape(lengths[0], channels, lengths[2], lengths[3], count, bins[0], bins[1], 1))
    if address_of(memory) == 0:
        return OUT_OF_MEMORY, memory, placed
    if bins[0] == 0 or bins[1] == 0:  # only in gradients: attributes are checked already
        return _write_error(call, entry, NO_BINS, 0, copies, 0), memory, placed
    if count > 0 and (lengths[2] == 0 or lengths[3] == 0):
        return _write_error(call, entry, NO_PIXELS, 0, copies, 0), memory, placed
    _copy(node, call, entry, copies, placed)
    _read_parameters(node, entry, memory)
    invalid = invoke(entry.place_rois, (copies, placed, memory))
    if invalid >= 0:
        roi = offset(copies, columns * invalid)
        return _write_error(call, entry, BAD_ROI, invalid, roi, placed.batch_indices[invalid]), memory, placed
    if turns == 0:
        return OK, memory, placed
    shape = Shape(lengths[0] * turns, channels // turns, lengths[2], lengths[3], count * turns, 1, 1, turns)
    of_bins = _lay_out(offset(words, count * _ROI_WORDS), rotated, shape)
    invoke(entry.place_bins, (placed, of_bins))
    return OK, memory, of_bins


@compiled
def _lay_out(memory: Words, rotated: Words, shape: Shape) -> PlacedRois:
    """Lay out RoIs in memory: _ROI_WORDS for each RoI, and _ROTATED_WORDS for each RoI that may be rotated."""
    count = shape.rois
    axes = float64_pointer(memory)
    spans = offset(memory, 2 * AXIS_FIELDS * count)
    of_images = offset(spans, 2 * count)
    rotations, limits = float64_pointer(rotated), offset(rotated, 3 * count // shape.interleaved)
    whole = Part(0, count, 0, shape.bins_y * shape.bins_x, 0)
    return PlacedRois(shape, axes, spans, of_images, rotations, limits, memory, whole)


@compiled
def _copy(node: Node, call: Call, entry: RoiEntry, boxes: Doubles, placed: PlacedRois) -> None:
    """Copy the RoIs, as float64, and their batch indices."""
    source = Elements(call.tensors[entry.rois].address, node.driver.kind)
    for i in range(placed.shape.rois * entry.columns):
        boxes[i] = number_at(source, i)
    if entry.batch_indices != NONE:
        images = call.tensors[entry.batch_indices]
        of_32_bits, of_64_bits = uint32_pointer(images.address), int64_pointer(images.address)
        for r in range(placed.shape.rois):
            placed.batch_indices[r] = of_32_bits[r] if images.type == _UINT32 else of_64_bits[r]


@compiled
def _read_parameters(node: Node, entry: RoiEntry, parameters: Words) -> None:
    for i in range(MAX_PARAMETERS):
        parameter = entry.parameters[i]
        if parameter.attribute == NONE:
            parameters[i] = parameter.constant
        else:
            value = node.attributes[parameter.attribute].values.ints[0]
            parameters[i] = value if parameter.meanings is None else parameter.meanings[value]


@noinline
def _write_error(call: Call, entry: RoiEntry, rule: int, number: int, roi: Doubles, image: int) -> int:
    invoke(entry.write_error, (call, entry, rule, number, roi, image))
    return INVALID
