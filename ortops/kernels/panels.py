"""Channels side by side: LANES planes of a tensor as one flat array of pixels, so that a pixel of all of them is one value.

Packing reads and writes the whole map once, which pays where the RoIs together cover enough of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ortops.kernels.compile import INNER
from ortops.kernels.element import Array, put, widen
from ortops.kernels.lanes import LANES, transpose

MOST_PIXELS = 1 << 18
"""Larger maps are not packed: a panel of float32 would take more than 16 MiB."""

MOST_PIXELS_OF_ROI = 1 << 14
"""Larger RoIs are not packed for themselves: their panel would leave the cache of a core."""


@njit(**INNER)
def room(pixels: int, dtype: Any) -> Array:
    """A panel of `pixels`, not cleared; a group of lanes does not lie across two lines of the cache."""
    numbers = np.empty((pixels + 1) * LANES, dtype)
    skipped = -(numbers.ctypes.data // numbers.itemsize) % LANES
    return numbers[skipped : skipped + pixels * LANES]


@njit(**INNER)
def pack(x: Array, at: int, plane: int, lanes: int, line: int, lines: int, length: int, panel: Array) -> None:
    """Fill the panel [lines, length] from the flat array x; the planes from number `lanes` on as 0.

    Args:
        x: what is packed.
        at: its element at the panel's first pixel, in the first plane.
        plane: elements from one plane to the next.
        lanes: how many planes there are, up to LANES.
        line: elements from one line to the next.
        lines: lines of the panel.
        length: pixels of a line.
        panel: what is filled.
    """
    for a in range(lines):
        first, to = at + a * line, a * length * LANES
        if length < LANES:
            for b in range(length):
                for k in range(LANES):
                    panel[np.uintp(to + b * LANES + k)] = widen(x[first + k * plane + b]) if k < lanes else 0.0
        for start in range(0, length if length >= LANES else 0, LANES):
            b = min(start, length - LANES)  # the last square overlaps the one before
            transpose(x, first + b, plane, lanes, panel, to + b * LANES, LANES, LANES)


@njit(**INNER)
def unpack(panel: Array, length: int, y: Array, at: int, plane: int, lanes: int) -> None:
    """The reverse, for one line: round the numbers of the first `lanes` planes into the flat array y."""
    if length < LANES:
        for b in range(length):
            for k in range(lanes):
                put(y, np.uintp(at + k * plane + b), panel[np.uintp(b * LANES + k)])
    for start in range(0, length if length >= LANES else 0, LANES):
        b = min(start, length - LANES)
        transpose(panel, b * LANES, LANES, LANES, y, at + b, plane, lanes)
