"""Channels side by side: LANES of them as one map [H, W * LANES], so that a pixel of all of them is one vector.

Packing reads and writes the whole map once, which pays where the RoIs together cover enough of it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ortops.kernels.element import Array, put, widen

LANES = 16
"""Channels in a panel: one AVX-512 vector of float32."""

MOST_PIXELS = 1 << 18
"""Larger maps are not packed: a panel of float32 would take more than 16 MiB a thread."""

MOST_PIXELS_OF_ROI = 1 << 14
"""Larger RoIs are not packed for themselves: their panel would leave the cache of a core."""


@njit(nogil=True)
def pack(planes: Array, top: int, left: int, panel: Array) -> None:
    """Put the part of up to LANES planes from (top, left) on side by side into panel [A, B * LANES], missing ones as 0."""
    length = panel.shape[1] // LANES
    for a in range(len(panel)):
        for k in range(len(planes)):
            line = planes[k, top + a]
            for b in range(length):
                panel[a, np.uintp(b * LANES + k)] = widen(line[np.uintp(left + b)])
        for k in range(len(planes), LANES):
            for b in range(length):
                panel[a, np.uintp(b * LANES + k)] = 0.0


@njit(nogil=True)
def unpack(panel: Array, planes: Array, stride: int) -> None:
    """Round each number of panel [A, B * stride] into the planes [lanes, A, B] that it holds side by side."""
    lanes, lines, length = planes.shape
    for a in range(lines):
        for k in range(lanes):
            line = planes[k, a]
            for b in range(length):
                put(line, np.uintp(b), panel[a, np.uintp(b * stride + k)])
