"""Channels side by side: LANES of them as one map [H, W * LANES], so that a pixel of all of them is one vector.

Packing reads and writes the whole map once, which pays where the RoIs together cover enough of it.
"""

from __future__ import annotations

from numba import njit

from ortops.kernels.element import Array, put, widen

LANES = 16
"""Channels in a panel: one AVX-512 vector of float32."""

MOST_PIXELS = 1 << 18
"""Larger maps are not packed: a panel of float32 would take more than 16 MiB a thread."""


@njit(nogil=True)
def pack(planes: Array, panel: Array) -> None:
    """panel [A, B * LANES] = up to LANES planes [lanes, A, B] side by side, the missing ones as 0."""
    lanes, lines, length = planes.shape
    for a in range(lines):
        for k in range(lanes):
            line = planes[k, a]
            for b in range(length):
                panel[a, b * LANES + k] = widen(line[b])
        for k in range(lanes, LANES):
            for b in range(length):
                panel[a, b * LANES + k] = 0.0


@njit(nogil=True)
def unpack(panel: Array, planes: Array, stride: int) -> None:
    """The inverse of `pack`, rounding each number to the type of the planes: panel [A, B * stride]."""
    lanes, lines, length = planes.shape
    for a in range(lines):
        for k in range(lanes):
            line = planes[k, a]
            for b in range(length):
                put(line, b, panel[a, b * stride + k])
