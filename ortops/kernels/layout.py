"""Constants and tuples that Python shares with compiled code."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ortops.jit import LANES
from ortops.jit.elements import Doubles, Words

NEXT, CEIL, NEAREST, ABOVE, BELOW = 0, 1, 2, 3, 4
"""Interpolation rules. In this order, a sample at c reads the pixels floor(c) and floor(c) + 1; floor(c) and ceil(c); the
nearest pixel, ties upwards; ceil(c); floor(c)."""

AXIS_FIELDS = 10
"""The number of float64s that store an `axis.Axis`: all its fields except bins."""


class Shape(NamedTuple):
    """The dimensions of a feature map [N, C, H, W] and of its output [R, C, PH, PW].

    interleaved: 1, unless each bin reads its own channels. Then each bin counts as a RoI on its own image
        (`axis.place_bins`), and this is the number of images and of RoIs that take turns in memory.
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
    """The part of the RoIs that a driver call computes; all RoIs if their tables fit into memory together.

    begin, end: the RoIs begin:end in the order of `roi_tables.Groups`.
    low, high: their bins low:high: all bins, unless a single RoI's lists are too large.
    entries: the most entries of these bins' lists together; 0 for other forms of tables.
    """

    begin: int
    end: int
    low: int
    high: int
    entries: int


class PlacedRois(NamedTuple):
    """RoIs and the positions of their samples.

    shape: the dimensions of the map and of the output.
    axes: each RoI's samples along y, then x, as `axis.write_axis` stores them [R, 2, AXIS_FIELDS]. A rotated RoI's axes are
        its own height and width.
    spans: the number of pixels that each RoI can read along y, then x [R, 2].
    batch_indices: each RoI's image [R].
    rotations: the cosine and the sine of each rotated RoI's counter-clockwise angle, and -1.0 if stored angles are
        clockwise, else 1.0 [R, 3].
    limits: the first row and the first column that each rotated RoI can read, and the most pixels that one of its bins can
        read [R, 3].
    lists: memory for the lists of one part of the rotated RoIs.
    part: the part to compute.
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

    A task computes a block of channels of one item, an image or a RoI. Worker k runs every `workers`-th task of a chunk.

    runner: the runner's address, or 0 if there is little work.
    is_by_image: whether items are images.
    items, blocks, workers: the number of items, of blocks in each item, and of workers.
    """

    runner: int
    is_by_image: bool
    items: int
    blocks: int
    workers: int


WEIGHTS, EXTREMES, CANDIDATES, PIXELS, LISTS = 0, 1, 2, 3, 4
"""The forms of tables (`tables.py`; for lists, `rotated_tables.py`)."""


Table: TypeAlias = Words
"""A pointer to the words that describe a RoI's table along one axis; `tables.py` has a tuple for each form.

BINS: the number of bins.
START: the address of int64s: bin p has the entries start[p]:start[p + 1]. In lists, each bin's number of entries.
COVERAGE: the address of a float64 for each bin. In lists, the distance from a bin's first entry to the next bin's.
PLACE: the address of an int64 for each entry: a pixel or a region.
FIRST, SECOND, THIRD: the addresses of numbers for each entry.
RANGES: the address of int64s, only in tables along x: the number of pixel ranges that have entries; then, in ascending
    order, each range's first pixel and its end, exclusive.
LOW, HIGH: the first pixel that the table reads, and the end, exclusive.
"""

BINS, START, COVERAGE, PLACE, FIRST, SECOND, THIRD, RANGES, LOW, HIGH = range(10)
TABLE_WORDS = 10


class Form(NamedTuple):
    """What tables hold.

    kind: WEIGHTS, EXTREMES, CANDIDATES, PIXELS or LISTS.
    with_grad: whether they hold derivatives with respect to the RoI's coordinates.
    numbers: the type of weights and derivatives, FLOAT or DOUBLE.
    """

    kind: int
    with_grad: int
    numbers: int


BLOCK_CHANNELS = 4 * LANES
"""The number of channels in one dot product of dY and a pixel, for the drois of rotated RoIs."""


MAX_RANK = 4
"""The most axes of a tensor to resample."""


class Dims(NamedTuple):
    """The dimensions of a tensor of four axes."""

    a: int
    b: int
    c: int
    d: int


DRIVE, IN_PARTS, PART_WORK, PART_MAPS, ROUND, OF_SUMS, ROLE, KIND, FORM = range(9)
"""Word indices in a driver's record, which holds the functions for a mode and an element type (`entries`).

DRIVE: the driver's function (`functions.Drive`).
IN_PARTS: the function, of the same type, that calls the driver for parts of the RoIs.
PART_WORK: the most work of a part: pixels to read plus bins to fill; for lists, their bytes.
PART_MAPS: the most work of a part in maps, if maps have more pixels than PART_WORK.
ROUND: `sums.round_sums`, in a driver that computes drois.
OF_SUMS: the record of the driver that adds up a 16-bit type's dX in parts, or 0.
ROLE: TO_Y, TO_DX or TO_DROIS.
KIND: the element type to load and store.
FORM: the fields of `Form`.
"""

FUNCTIONS = FORM + 3
"""The index of the first field of `functions.Functions`; the others follow."""

TO_Y, TO_DX, TO_DROIS = range(3)
"""The output that a driver fills."""

PLACE_ROIS, PLACE_BINS, REFUSE = range(2, 5)
"""Word indices in an entry's record, after the words that callers know (`calls.layout`).

PLACE_ROIS: places the samples of RoIs (`functions.PlaceRois`).
PLACE_BINS: `axis.place_bins`.
REFUSE: writes the text of an error (`refusals`).
"""

MAP, MAP_DIMS, BOXES, OF_IMAGES, OUTPUT, TO_MAP, TO_BOXES = range(5, 12)
"""Further words in an entry for RoIs. Each holds a word index in the call, or 0 if the operator lacks the tensor.

MAP, BOXES, OF_IMAGES: the tensors X, rois and batch_indices.
MAP_DIMS: the four dimensions of X.
OUTPUT: the tensor Y, or dY of a gradient.
TO_MAP, TO_BOXES: the outputs dX and drois of a gradient.
"""

COLUMNS, INTERLEAVES, OUTSIDE, CAN_BE_NEAREST, PARAMETERS = range(12, 17)
"""Further words.

COLUMNS: the number of a RoI's coordinates.
INTERLEAVES: whether each bin reads its own channels.
OUTSIDE: the index of the node's word that gives samples off the map their value, or 0.
CAN_BE_NEAREST: the number of the parameter that holds an interpolation rule, or -1.
PARAMETERS: MAX_PARAMETERS pairs for the parameters of PLACE_ROIS. A pair holds the index of a node's word and the address of
    a table that translates the word, or 0 to take the word as it is; or it holds 0 and a constant.
"""

MAX_PARAMETERS = 8
X_NAME, BOXES_NAME, OF_IMAGES_NAME, OUTPUT_NAME = range(
    PARAMETERS + 2 * MAX_PARAMETERS, PARAMETERS + 2 * MAX_PARAMETERS + 4
)
"""Further words: the names that errors give the tensors."""

NO_BINS, NO_PIXELS, BAD_ROI = range(3)
"""Why `refusals.refuse_rois` refuses a call."""

SOURCE, TARGET, TRANSPOSED, OF_MODE, LINEAR, OF_ROUNDING, RULES, OF_AXES = range(5, 13)
"""Word indices in the entry of DmlResample or its gradient.

SOURCE, TARGET: the word indices, in the call, of the tensors to read and to fill.
TRANSPOSED: whether the entry computes the gradient.
OF_MODE, LINEAR: the index of the node's word for interpolation_mode, and its value for linear interpolation.
OF_ROUNDING, RULES: the index of the node's word for rounding_direction, and the address of each value's interpolation rule.
OF_AXES: a pair each for scales, input offsets and output offsets: the index of the node's word that counts the values, and
    the default as a float64.
"""

COPY_LINES, SUM_LINES, RUN_LINES, STOP_LINES = range(4)
"""Word indices in a driver's record for DmlResample: `resample.copy_lines` and `resample.sum_lines` for an element type,
`jit.tasks.run_in_chunks`, and the function that says whether to stop. KIND is as in other records."""
