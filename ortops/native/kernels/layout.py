# SPDX-License-Identifier: MIT
"""Constants and tuples that Python shares with compiled code."""

from __future__ import annotations

from typing import NamedTuple

from ortops.native.elements import LANES, Doubles, Words
from ortops.native.structs import Struct

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


class Table(Struct):
    """A RoI's table along one axis; `tables.py` has a tuple for each form."""

    bins: int
    start: Words  # bin p has the entries start[p]:start[p + 1]; in lists, each bin's number of entries
    stride: int  # in lists: the distance from a bin's first entry to the next bin's
    coverage: Doubles  # a number for each bin
    place: Words  # a pixel or a region for each entry
    first: int  # the addresses of numbers for each entry, whose type the form decides
    second: int
    third: int
    ranges: Words  # along x: the number of pixel ranges that have entries; of each, its first pixel and its end
    low: int  # the first pixel that the table reads
    high: int  # the end, exclusive


class Tables(NamedTuple):
    """A RoI's tables along y and along x."""

    rows: Table
    columns: Table


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


class Dims(NamedTuple):
    """The dimensions of a tensor of four axes."""

    a: int
    b: int
    c: int
    d: int


TO_Y, TO_DX, TO_DROIS = range(3)
"""The output that a driver fills."""

MAX_PARAMETERS = 8
"""The most parameters of a function that places RoIs."""

NO_BINS, NO_PIXELS, BAD_ROI = range(3)
"""Why a call of an operator on RoIs is an error (`error_texts.write_rois_error`)."""
