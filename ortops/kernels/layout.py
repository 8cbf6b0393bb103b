"""Constants and tuples that Python shares with compiled code."""

from __future__ import annotations

from typing import Any, NamedTuple

NEXT, CEIL, NEAREST, ABOVE, BELOW = 0, 1, 2, 3, 4
"""Interpolation rules, by the pixels that a sample at c reads: floor(c) and floor(c) + 1; floor(c) and ceil(c); the nearest,
ties upwards; ceil(c); floor(c)."""

AXIS_FIELDS = 9
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
    axes: Any
    spans: Any
    batch_indices: Any


class RotatedRois(NamedTuple):
    """Rotated RoIs and the positions of their samples.

    placed: the samples along each RoI's own axes, height before width; the spans of the map that each RoI can read.
    rotations: the cosine and the sine of each RoI's counter-clockwise angle [R, 2].
    corners: the first row and the first column of each RoI's span [R, 2].
    max_pixels: the most pixels that a bin of each RoI can read [R].
    direction: -1.0 if stored angles are clockwise, else 1.0.
    """

    placed: PlacedRois
    rotations: Any
    corners: Any
    max_pixels: Any
    direction: float


class Dims(NamedTuple):
    """The dimensions of a tensor of four axes."""

    a: int
    b: int
    c: int
    d: int


OUT_OF_MEMORY, INTERRUPTED = 1, -(2**62)
"""What a kernel returns if memory ran out, or if a signal handler raised; otherwise it returns 0."""

NAME, INPUTS, OUTPUTS, CREATE, INFER, API, PROCESS, TEXT, TENSORS = range(26, 35)
"""Indices of 8-byte words that follow OrtCustomOp in an operator's table (`ortops.engine.c_api`).

NAME, TEXT: addresses of C strings, the operator's name and the prefix of messages about exceptions. INPUTS, OUTPUTS: their
numbers. CREATE, INFER: addresses of Python functions, or 0. API: the address of OrtApi. PROCESS: the address of the words
ACTIVE and ENDING. From TENSORS on: the element type of each input, then of each output, and whether it is optional.
"""

ACTIVE, ENDING = range(2)
"""Indices of words for the whole process: the number of callbacks that run, and the thread that finalizes Python, or 0."""

FAIL = 1
"""OrtErrorCode's ORT_FAIL."""
