"""Numbers on which Python and compiled code agree."""

from __future__ import annotations

from typing import Any, NamedTuple

NEXT, CEIL, NEAREST, ABOVE, BELOW = 0, 1, 2, 3, 4
"""Which pixels a sample at c reads: floor(c) and the next; floor(c) and ceil(c); the nearest, ties upwards; the one at or
above c; the one at or below c."""

NUMBERS = 9
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


class Placed(NamedTuple):
    """RoIs whose samples are placed.

    shape: of the map and the output.
    axes: the samples of each RoI, along y before x [R, 2, NUMBERS].
    spans: the number of pixels that each RoI can read along y and along x [R, 2].
    images: the image of each RoI [R].
    """

    shape: Shape
    axes: Any
    spans: Any
    images: Any


class Lengths(NamedTuple):
    """The lengths of a tensor of four axes."""

    a: int
    b: int
    c: int
    d: int


OUT_OF_MEMORY = 1
"""What a kernel returns where there was no memory left to work in; otherwise 0."""
