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
    """The dimensions of a feature map [N, C, H, W] and of its output [R, C, PH, PW]."""

    images: int
    channels: int
    height: int
    width: int
    rois: int
    bins_y: int
    bins_x: int


class PlacedRois(NamedTuple):
    """RoIs and the positions of their samples.

    shape: the dimensions of the map and of the output.
    axes: the samples of each RoI along y, then x, as `axis.write_axis` stores them [R, 2, AXIS_FIELDS].
    spans: the number of pixels that each RoI can read along y, then x [R, 2].
    batch_indices: the image of each RoI [R].
    """

    shape: Shape
    axes: Doubles
    spans: Words
    batch_indices: Words


WEIGHTS, EXTREMES, CANDIDATES, PIXELS = 0, 1, 2, 3
"""The forms of tables (`tables.py`)."""


Table: TypeAlias = Words
"""A pointer to the words that describe the table of a RoI along one axis; `tables.py` has a tuple for each form.

BINS: the number of bins.
START: the address of int64: the entries of bin p are start[p]:start[p + 1].
COVERAGE: that of a float64 for each bin.
PLACE: that of int64, a pixel or a region for each entry.
FIRST, SECOND, THIRD: those of numbers for each entry.
RANGES: that of int64: the number of ranges of pixels that have entries, and for each, in ascending order, its first pixel
    and the one after its last. Only tables along x have them.
LOW, HIGH: the first pixel that the table reads, and the one after the last.
"""

BINS, START, COVERAGE, PLACE, FIRST, SECOND, THIRD, RANGES, LOW, HIGH = range(10)
TABLE_WORDS = 10


class Planning(NamedTuple):
    """The addresses of the functions that all pooling shares.

    share: `roi_tables.share`.
    fill: the function that fills tables of a form.
    sort: `sliding.sort_by_first_row`, or 0 as long as no call needs it.
    run: `jit.tasks.run_in_chunks`, likewise.
    """

    share: int
    fill: int
    sort: int
    run: int


class Form(NamedTuple):
    """What tables hold.

    kind: WEIGHTS, EXTREMES, CANDIDATES or PIXELS.
    with_grad: whether they have derivatives by the RoI's coordinates.
    numbers: a type of numbers, FLOAT or DOUBLE: that of weights and derivatives.
    planning: the functions that fill them.
    """

    kind: int
    with_grad: int
    numbers: int
    planning: Planning


class Storage(NamedTuple):
    """The addresses of the functions of `pack` for an element type, or 0 as long as no call needs them.

    pack, unpack: for panels.
    read, write: for planes.
    """

    pack: int
    unpack: int
    read: int
    write: int


class Stages(NamedTuple):
    """The addresses of the functions of an operator's arithmetic, or 0 as long as no call needs them.

    panel: the one for a panel of LANES channels.
    plane: the one for single planes, the same for other types.
    """

    panel: int
    plane: int


class RotatedRois(NamedTuple):
    """Rotated RoIs and the positions of their samples.

    placed: the samples along each RoI's own axes, height before width; the spans of the map that each RoI can read.
    rotations: the cosine and the sine of each RoI's counter-clockwise angle [R, 2].
    corners: the first row and the first column of each RoI's span [R, 2].
    max_pixels: the most pixels that a bin of each RoI can read [R].
    direction: -1.0 if stored angles are clockwise, else 1.0.
    """

    placed: PlacedRois
    rotations: Doubles
    corners: Words
    max_pixels: Words
    direction: float


BLOCK_CHANNELS = 4 * LANES
"""The channels over which the dot product of dY and a pixel is computed at once for the drois of rotated RoIs."""


class Making(NamedTuple):
    """The addresses of `rotated_tables.make` and of `jit.tasks.run_in_chunks`."""

    make: int
    run: int


class Batch(NamedTuple):
    """Some of the rotated RoIs, with memory for their tables (`rotated_tables.Lists`).

    rotated: all RoIs.
    order, images: the RoIs grouped by image: those of image n are order[images[n]:images[n + 1]].
    begin, end: the batch has the RoIs order[begin:end].
    low, high: their bins low:high, which are all bins unless the tables of a single RoI are too large.
    entries: the most entries of all their bins together.
    failed: a flag that a worker sets if it cannot allocate memory.
    first: the first entry of each RoI.
    counts: the number of entries of each bin.
    pixel: the number of each entry's pixel: its row on the map times the length of a line, plus its column. A line is the
        map's, or the RoI's window's if that is packed.
    value: where numbers begin: the weight or the derivatives of each entry.
    values: the number of values of an entry: 1 weight, or 5 derivatives with respect to the stored cx, cy, w, h and angle.
    numbers: the type of values, FLOAT or DOUBLE.
    """

    rotated: RotatedRois
    order: Words
    images: Words
    begin: int
    end: int
    low: int
    high: int
    entries: int
    failed: Words
    first: Words
    counts: Words
    pixel: Words
    value: Words
    values: int
    numbers: int


class Dims(NamedTuple):
    """The dimensions of a tensor of four axes."""

    a: int
    b: int
    c: int
    d: int


NEEDS_PANELS, NEEDS_PLANES, NEEDS_SORT, NEEDS_CHUNKS = 2, 3, 4, 5
"""What a driver returns, before it does anything, if it needs functions whose addresses are 0."""
