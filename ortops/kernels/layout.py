"""Constants and tuples that Python shares with compiled code."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ortops.jit import LANES
from ortops.jit.elements import Doubles, Words

NEXT, CEIL, NEAREST, ABOVE, BELOW = 0, 1, 2, 3, 4
"""Interpolation rules, by the pixels that a sample at c reads: floor(c) and floor(c) + 1; floor(c) and ceil(c); the nearest,
ties upwards; ceil(c); floor(c)."""

AXIS_FIELDS = 10
"""The number of float64s that store an `axis.Axis`: all of its fields except bins."""


class Shape(NamedTuple):
    """The dimensions of a feature map [N, C, H, W] and of its output [R, C, PH, PW].

    interleaved: the number of images whose channels take turns in memory, and of RoIs whose outputs do, if each bin reads
        channels of its own: there is then an image for each bin, and each bin is a RoI (`axis.place_bins`); else 1.
    """

    images: int
    channels: int
    height: int
    width: int
    rois: int
    bins_y: int
    bins_x: int
    interleaved: int = 1


class Part(NamedTuple):
    """What a call of a driver computes, of RoIs whose tables do not all fit; else everything.

    begin, end: the RoIs begin:end in the order of `roi_tables.Groups`.
    low, high: their bins low:high, which are all bins unless the lists of a single RoI are too large.
    entries: the most entries of the lists of all these bins together; 0 for tables of other forms.
    """

    begin: int
    end: int
    low: int
    high: int
    entries: int


class PlacedRois(NamedTuple):
    """RoIs and the positions of their samples.

    shape: the dimensions of the map and of the output.
    axes: the samples of each RoI along y, then x, as `axis.write_axis` stores them [R, 2, AXIS_FIELDS]; of a rotated RoI,
        along its own height and width.
    spans: the number of pixels that each RoI can read along y, then x [R, 2].
    batch_indices: the image of each RoI [R].
    rotations: the cosine and the sine of each rotated RoI's counter-clockwise angle, and -1.0 if stored angles are
        clockwise, else 1.0 [R, 3].
    limits: the first row and the first column that each rotated RoI can read, and the most pixels that one of its bins can
        read [R, 3].
    lists: memory for the lists of a part of the rotated RoIs.
    part: what to compute.
    """

    shape: Shape
    axes: Doubles
    spans: Words
    batch_indices: Words
    rotations: Doubles
    limits: Words
    lists: Words
    part: Part


class Plan(NamedTuple):
    """The split of the work into tasks.

    A task is a block of channels of an item, which is an image or a RoI. Worker k runs every `workers`-th task of a chunk.

    runner: the runner's address, or 0 if there is little work.
    is_by_image: whether items are images.
    items, blocks, workers: the number of items, of blocks for each item, and of workers.
    """

    runner: int
    is_by_image: bool
    items: int
    blocks: int
    workers: int


WEIGHTS, EXTREMES, CANDIDATES, PIXELS, LISTS = 0, 1, 2, 3, 4
"""The forms of tables (`tables.py`; lists are those of `rotated_tables.py`)."""


Table: TypeAlias = Words
"""A pointer to the words that describe the table of a RoI along one axis; `tables.py` has a tuple for each form.

BINS: the number of bins.
START: the address of int64: the entries of bin p are start[p]:start[p + 1]. Of lists, the number of entries of each bin.
COVERAGE: that of a float64 for each bin. Of lists, the distance from the first entry of a bin to that of the next one.
PLACE: that of int64, a pixel or a region for each entry.
FIRST, SECOND, THIRD: those of numbers for each entry.
RANGES: that of int64: the number of ranges of pixels that have entries, and for each, in ascending order, its first pixel
    and the one after its last. Only tables along x have them.
LOW, HIGH: the first pixel that the table reads, and the one after the last.
"""

BINS, START, COVERAGE, PLACE, FIRST, SECOND, THIRD, RANGES, LOW, HIGH = range(10)
TABLE_WORDS = 10


class Form(NamedTuple):
    """What tables hold.

    kind: WEIGHTS, EXTREMES, CANDIDATES, PIXELS or LISTS.
    with_grad: whether they have derivatives by the RoI's coordinates.
    numbers: a type of numbers, FLOAT or DOUBLE: that of weights and derivatives.
    """

    kind: int
    with_grad: int
    numbers: int


BLOCK_CHANNELS = 4 * LANES
"""The channels over which the dot product of dY and a pixel is computed at once for the drois of rotated RoIs."""


MAX_RANK = 4
"""The most axes of a tensor to resample."""


class Dims(NamedTuple):
    """The dimensions of a tensor of four axes."""

    a: int
    b: int
    c: int
    d: int


DRIVE, IN_PARTS, PART_WORK, PART_MAPS, ROUND, OF_SUMS, ROLE, KIND, FORM = range(9)
"""Indices of the words of a driver's record, which has the functions of a mode and an element type (`entries`).

DRIVE: the driver's function (`functions.Drive`).
IN_PARTS: the function, of the same type, that calls it for parts of the RoIs.
PART_WORK: the most work of a part: pixels to read and bins to fill; for lists, their bytes.
PART_MAPS: if maps have more pixels than PART_WORK, the most work of a part in maps.
ROUND: `sums.round_sums`, for a driver of drois.
OF_SUMS: the record of the driver that adds up dX of 16-bit types in parts, or 0.
ROLE: TO_Y, TO_DX or TO_DROIS.
KIND: the element type to load and store.
FORM: the fields of `Form`.
"""

FUNCTIONS = FORM + 3
"""The index of the first of `functions.Functions`, which follow."""

SHARE, FILL, SORT, RUN, STOP, PACK, UNPACK, READ, WRITE, PANEL, PLANE = range(11)
"""The numbers of the fields of `functions.Functions`."""

FOR_PANELS, FOR_PLANES = 1 << PACK | 1 << UNPACK | 1 << PANEL, 1 << READ | 1 << WRITE | 1 << PLANE
FOR_TABLES, FOR_CHUNKS = 1 << SHARE | 1 << FILL, 1 << RUN | 1 << STOP
FOR_LISTS = 1 << SHARE | FOR_CHUNKS
"""Sets of functions, a bit for each number, that calls of drivers need."""

TO_Y, TO_DX, TO_DROIS = range(3)
"""What a driver fills."""

PLACE_ROIS, PLACE_BINS, REFUSE = range(2, 5)
"""Indices of the words of an entry's record after those that its callers know (`calls.layout`).

PLACE_ROIS: places the samples of RoIs (`functions.PlaceRois`).
PLACE_BINS: `axis.place_bins`.
REFUSE: writes the text of an error (`refusals`).
"""

MAP, MAP_DIMS, BOXES, OF_IMAGES, OUTPUT, TO_MAP, TO_BOXES = range(5, 12)
"""Further words of an operator on RoIs: indices of words of the call, 0 for what the operator does not have.

MAP, BOXES, OF_IMAGES: the tensors X, rois and batch_indices.
MAP_DIMS: the four dimensions of X.
OUTPUT: the tensor Y, or dY of a gradient.
TO_MAP, TO_BOXES: the outputs dX and drois of a gradient.
"""

COLUMNS, INTERLEAVES, OUTSIDE, CAN_BE_NEAREST, PARAMETERS = range(12, 17)
"""Further words.

COLUMNS: the number of coordinates of a RoI.
INTERLEAVES: whether each bin reads channels of its own.
OUTSIDE: the index of the node's word for the value of samples off the map, or 0.
CAN_BE_NEAREST: the number of the parameter that is an interpolation rule, or -1.
PARAMETERS: MAX_PARAMETERS pairs for the parameters of PLACE_ROIS: the index of a word of the node, and the address of what
    stands for its values, or 0; or 0 and a constant.
"""

MAX_PARAMETERS = 8
X_NAME, BOXES_NAME, OF_IMAGES_NAME, OUTPUT_NAME = range(
    PARAMETERS + 2 * MAX_PARAMETERS, PARAMETERS + 2 * MAX_PARAMETERS + 4
)
"""Further words: the names of tensors in errors."""

NO_BINS, NO_PIXELS, BAD_ROI = range(3)
"""Why `refusals.refuse_rois` refuses a call."""

SOURCE, TARGET, TRANSPOSED, OF_MODE, LINEAR, OF_ROUNDING, RULES, OF_AXES = range(5, 13)
"""Words of the entry of DmlResample or its gradient.

SOURCE, TARGET: the indices of words of the call: the tensors that are read and filled.
TRANSPOSED: whether it is the gradient.
OF_MODE, LINEAR: the index of the node's word for interpolation_mode, and its value for linear interpolation.
OF_ROUNDING, RULES: that of the word for rounding_direction, and the address of the interpolation rule for each value.
OF_AXES: pairs for the scales, the input offsets and the output offsets: the index of the node's word for their number, and
    the float64 that stands for absent ones.
"""

COPY_LINES, SUM_LINES, RUN_LINES, STOP_LINES = range(4)
"""Words of a driver's record of DmlResample: `resample.copy_lines`, `resample.sum_lines` for an element type,
`jit.tasks.run_in_chunks` and what says whether to stop. The word KIND is as in other records."""
