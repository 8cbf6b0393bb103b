"""Numbers on which Python and compiled code agree."""

from __future__ import annotations

from typing import Any, NamedTuple

NEXT, CEIL, NEAREST, ABOVE, BELOW = 0, 1, 2, 3, 4
"""Which pixels a sample at c reads: floor(c) and the next; floor(c) and ceil(c); the nearest, ties upwards; the one at or
above c; the one at or below c."""

AXIS_FIELDS = 9
"""Numbers that place the samples of a RoI on one axis: an `axis.Axis` without its bins."""


class Shape(NamedTuple):
    """The lengths of a feature map [N, C, H, W] and of its output [R, C, PH, PW]."""

    images: int
    channels: int
    height: int
    width: int
    rois: int
    bins_y: int
    bins_x: int


class PlacedRois(NamedTuple):
    """RoIs whose samples are placed.

    shape: of the map and the output.
    axes: the samples of each RoI, along y before x [R, 2, NUMBERS].
    spans: the number of pixels that each RoI can read along y and along x [R, 2].
    images: the image of each RoI [R].
    """

    shape: Shape
    axes: Any
    spans: Any
    batch_indices: Any


class RotatedRois(NamedTuple):
    """Rotated RoIs whose samples are placed.

    placed: the samples along each RoI's own axes, those of its height before those of its width; the span of the map that
        each can read.
    turns: the cosine and the sine of each RoI's angle, counter-clockwise [R, 2].
    corners: the first line and the first pixel of a line of those spans [R, 2].
    rooms: the most pixels that a bin of each RoI can read [R].
    direction: -1.0 where stored angles are clockwise, else 1.0.
    """

    placed: PlacedRois
    rotations: Any
    corners: Any
    max_pixels: Any
    direction: float


class Lengths(NamedTuple):
    """The lengths of a tensor of four axes."""

    a: int
    b: int
    c: int
    d: int


OUT_OF_MEMORY, INTERRUPTED = 1, -(2**62)
"""What a kernel returns where there was no memory left to work in, or a signal handler raised; otherwise 0."""

NAME, INPUTS, OUTPUTS, CREATE, INFER, API, PROCESS, TEXT, TENSORS = range(26, 35)
"""Words of the table of an operator (`ortops.engine.c_api`), behind those of OrtCustomOp.

NAME, TEXT: addresses of C strings, the name and the beginning of messages about exceptions. INPUTS, OUTPUTS: their numbers.
CREATE, INFER: Python functions, or 0. API: the address of OrtApi. PROCESS: that of the words ACTIVE and ENDING. From TENSORS
on: of each input, then of each output, the element type and whether it is optional.
"""

ACTIVE, ENDING = range(2)
"""Words of the process: the callbacks that are under way, and the thread that ends the interpreter, or 0."""

FAIL = 1
"""An OrtErrorCode."""
