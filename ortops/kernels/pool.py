"""The entries of the operators on RoIs: one function for all poolings, and one for all their gradients.

An entry checks the data, places the RoIs' samples and calls drivers. An entry's record says what is special to an operator;
a driver's record says what is special to a mode and an element type (`layout`, `entries`).
"""

from __future__ import annotations

from typing import Any

from ortops.calls.layout import (
    ADDRESS,
    CONTEXT,
    DIMS,
    DIMS_COUNT,
    DRIVER,
    DRIVER_OF_ROIS,
    ENTRY,
    INVALID,
    OK,
    OUT_OF_MEMORY,
    RUNNER,
    TYPE,
)
from ortops.jit.compile import compiled, noinline, small
from ortops.jit.elements import Doubles, Elements, Words
from ortops.jit.parallel import allocate, release
from ortops.jit.parallel import call as invoke
from ortops.jit.scalar import address_of, float64_pointer, int64_pointer, number_at, offset, uint32_pointer
from ortops.kernels.functions import Drive, PlaceBins, PlaceRois, Refuse, RoundSums
from ortops.kernels.layout import (
    AXIS_FIELDS,
    BAD_ROI,
    BLOCK_CHANNELS,
    BOXES,
    CAN_BE_NEAREST,
    COLUMNS,
    DRIVE,
    FORM,
    IN_PARTS,
    INTERLEAVES,
    KIND,
    LISTS,
    MAP,
    MAP_DIMS,
    MAX_PARAMETERS,
    NEAREST,
    NO_BINS,
    NO_PIXELS,
    OF_IMAGES,
    OUTPUT,
    OUTSIDE,
    PARAMETERS,
    PART_WORK,
    PLACE_BINS,
    PLACE_ROIS,
    REFUSE,
    ROUND,
    TO_BOXES,
    TO_MAP,
    Part,
    PlacedRois,
    Shape,
)
from ortops.kernels.pack import clear

_ROI_WORDS = 2 * AXIS_FIELDS + 2 + 1
"""The number of words for a RoI in `PlacedRois`, without rotation."""

_ROTATED_WORDS = 3 + 3
"""The number of further words for a rotated RoI."""

_UINT32 = 12
"""The number of uint32 in ONNX's TensorProto."""


@small
def pool(node: Words, call: Words) -> int:
    """Fill Y [R, C, PH, PW]."""
    entry = int64_pointer(node[ENTRY])
    y, outside = offset(call, entry[OUTPUT]), 0.0
    if entry[OUTSIDE] != 0:
        outside = float64_pointer(node)[entry[OUTSIDE]]
    status, memory, placed = _place(node, call)
    if status == OK and _count(y) > 0:
        x = offset(call, entry[MAP])
        status = _drive(call, int64_pointer(node[DRIVER]), placed, x[ADDRESS], 0, y[ADDRESS], outside)
    release(memory)
    return status


@small
def pool_gradient(node: Words, call: Words) -> int:
    """Fill dX [N, C, H, W], drois [R, 4] or [R, 5], or both."""
    entry = int64_pointer(node[ENTRY])
    status, memory, placed = _place(node, call)
    x, dy, dx = offset(call, entry[MAP]), offset(call, entry[OUTPUT]), offset(call, entry[TO_MAP])
    if status == OK and dx[TYPE] != 0 and _count(dx) > 0:
        maps = x[ADDRESS] if x[TYPE] != 0 else dx[ADDRESS]  # averages do not read the maps
        status = _drive(call, int64_pointer(node[DRIVER]), placed, maps, dy[ADDRESS], dx[ADDRESS], 0.0)
    if status == OK and entry[TO_BOXES] != 0:
        status = _fill_drois(node, call, placed, memory)
    release(memory)
    return status


@compiled
def _fill_drois(node: Words, call: Words, placed: PlacedRois, parameters: Words) -> int:
    """Fill drois, unless the node leaves them out."""
    entry = int64_pointer(node[ENTRY])
    drois, shape, columns = offset(call, entry[TO_BOXES]), placed.shape, entry[COLUMNS]
    if drois[TYPE] == 0 or shape.rois == 0:
        return OK
    nearest = entry[CAN_BE_NEAREST]
    if nearest >= 0 and parameters[nearest] == NEAREST:
        # The nearest pixel does not change with the region, so the derivative is 0, even if the pixel is NaN.
        clear(Elements(drois[ADDRESS], int64_pointer(node[DRIVER])[KIND]), 0, 1, 0, _count(drois))
        return OK
    driver = int64_pointer(node[DRIVER_OF_ROIS])
    # Each block of a rotated RoI's channels has its own sums, and so has each bin that counts as a RoI. They are added in
    # order.
    blocks = (shape.channels + BLOCK_CHANNELS - 1) // BLOCK_CHANNELS if driver[FORM] == LISTS else 1
    size = shape.rois * columns
    memory = allocate(blocks * size)
    if address_of(memory) == 0:
        return OUT_OF_MEMORY
    for i in range(blocks * size):
        memory[i] = 0
    x, dy, turns = offset(call, entry[MAP]), offset(call, entry[OUTPUT]), shape.interleaved
    status = _drive(call, driver, placed, x[ADDRESS], dy[ADDRESS], address_of(memory), 0.0)
    if status == OK:
        round_sums: RoundSums = driver[ROUND]
        sums, next_term = float64_pointer(memory), size if turns == 1 else columns
        args = sums, shape.rois // turns, columns, blocks * turns, columns * turns, next_term, drois[ADDRESS]
        invoke(round_sums, args)
    release(memory)
    return status


@compiled
def _count(tensor: Words) -> int:
    """The number of elements of a tensor."""
    count = 1
    for i in range(tensor[DIMS_COUNT]):
        count *= tensor[DIMS + i]
    return count


@noinline
def _drive(call: Words, driver: Any, placed: PlacedRois, x: int, dy: int, out: int, outside: float) -> int:
    """Call a driver, in parts if there is much to do, so that signal handlers run in between."""
    shape = placed.shape
    work = shape.rois * (shape.height * shape.width + shape.bins_y * shape.bins_x)
    drive: Drive = driver[DRIVE if driver[FORM] != LISTS and work <= driver[PART_WORK] else IN_PARTS]
    return invoke(drive, (x, dy, out, placed, driver, outside, call[RUNNER], call[CONTEXT]))


@compiled
def _place(node: Words, call: Words) -> tuple[int, Words, PlacedRois]:
    """Place the samples of all RoIs, from copies, since another thread may write to the caller's tensors at any time.

    Returns:
        A status; memory to release, which begins with the parameters of the entry's function; and the placed RoIs.
    """
    entry = int64_pointer(node[ENTRY])
    lengths, boxes, bins = (
        offset(call, entry[MAP_DIMS]),
        offset(call, entry[BOXES]),
        offset(call, entry[OUTPUT] + DIMS + 2),
    )
    count, columns, channels = boxes[DIMS + boxes[DIMS_COUNT] - 2], entry[COLUMNS], lengths[1]
    # Without channels the number of bins is unlimited, so they get no memory.
    turns = bins[0] * bins[1] if entry[INTERLEAVES] != 0 and channels > 0 else 0
    memory = allocate(MAX_PARAMETERS + count * (columns + _ROTATED_WORDS + _ROI_WORDS * (1 + turns)))
    copies = float64_pointer(offset(memory, MAX_PARAMETERS))
    rotated = offset(memory, MAX_PARAMETERS + count * columns)
    words = offset(rotated, count * _ROTATED_WORDS)
    placed = _lay_out(words, rotated, Shape(lengths[0], channels, lengths[2], lengths[3], count, bins[0], bins[1], 1))
    if address_of(memory) == 0:
        return OUT_OF_MEMORY, memory, placed
    if bins[0] == 0 or bins[1] == 0:  # only in gradients: attributes are checked already
        return _refuse(call, entry, NO_BINS, 0, copies, 0), memory, placed
    if count > 0 and (lengths[2] == 0 or lengths[3] == 0):
        return _refuse(call, entry, NO_PIXELS, 0, copies, 0), memory, placed
    place_rois: PlaceRois = entry[PLACE_ROIS]
    place_bins: PlaceBins = entry[PLACE_BINS]
    _copy(node, call, entry, copies, placed)
    _read_parameters(node, entry, memory)
    invalid = invoke(place_rois, (copies, placed, memory))
    if invalid >= 0:
        roi = offset(copies, columns * invalid)
        return _refuse(call, entry, BAD_ROI, invalid, roi, placed.batch_indices[invalid]), memory, placed
    if turns == 0:
        return OK, memory, placed
    shape = Shape(lengths[0] * turns, channels // turns, lengths[2], lengths[3], count * turns, 1, 1, turns)
    of_bins = _lay_out(offset(words, count * _ROI_WORDS), rotated, shape)
    invoke(place_bins, (placed, of_bins))
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
def _copy(node: Words, call: Words, entry: Words, boxes: Doubles, placed: PlacedRois) -> None:
    """Copy the RoIs, as float64, and their batch indices."""
    source = Elements(offset(call, entry[BOXES])[ADDRESS], int64_pointer(node[DRIVER])[KIND])
    for i in range(placed.shape.rois * entry[COLUMNS]):
        boxes[i] = number_at(source, i)
    if entry[OF_IMAGES] != 0:
        tensor = offset(call, entry[OF_IMAGES])
        of_32_bits, of_64_bits = uint32_pointer(tensor[ADDRESS]), int64_pointer(tensor[ADDRESS])
        for r in range(placed.shape.rois):
            placed.batch_indices[r] = of_32_bits[r] if tensor[TYPE] == _UINT32 else of_64_bits[r]


@compiled
def _read_parameters(node: Words, entry: Words, parameters: Words) -> None:
    """Fill the parameters of the function that places RoIs."""
    for i in range(MAX_PARAMETERS):
        at, value = entry[PARAMETERS + 2 * i], entry[PARAMETERS + 2 * i + 1]
        if at != 0:
            value = node[at] if value == 0 else int64_pointer(value)[node[at]]
        parameters[i] = value


@noinline
def _refuse(call: Words, entry: Any, rule: int, number: int, roi: Doubles, image: int) -> int:
    """Write an error's text."""
    refuse: Refuse = entry[REFUSE]
    invoke(refuse, (call, entry, rule, number, roi, image))
    return INVALID
