"""Panels: LANES planes of a tensor side by side as one flat array, so that a pixel of all of them is one value.

Packing reads and writes the whole map once, which pays where the RoIs together cover enough of it.
"""

from __future__ import annotations

from typing import Any

from ortops.kernels.jit import CACHE_LINE, LANES
from ortops.kernels.jit.compile import compiled, noinline
from ortops.kernels.jit.scalar import address_of, cast_like, itemsize, load, minimum, offset, store
from ortops.kernels.jit.simd import prefetch_to_read, stream_cache_line, transpose


@noinline
def pack(x: Any, plane: int, lanes: int, line: int, lines: int, length: int, panel: Any) -> None:
    """Fill the panel [lines, length] from planes; those from number `lanes` on are taken for 0.

    Args:
        x: the element at the panel's first pixel in the first plane.
        plane: elements from one plane to the next.
        lanes: how many planes there are, up to LANES.
        line: elements from one line to the next.
        lines: lines of the panel.
        length: pixels of a line.
        panel: what is filled.
    """
    for a in range(lines):
        source, target = offset(x, a * line), offset(panel, a * length * LANES)
        if length < LANES:
            for b in range(length):
                for k in range(LANES):
                    target[b * LANES + k] = load(source, k * plane + b) if k < lanes else cast_like(panel, 0.0)
        for start in range(0, length if length >= LANES else 0, LANES):
            b = minimum(start, length - LANES)  # the last square overlaps the one before
            transpose(offset(source, b), plane, lanes, offset(target, b * LANES), LANES, LANES)


@noinline
def unpack(panel: Any, length: int, y: Any, plane: int, lanes: int) -> None:
    """The reverse, for one line: round the numbers of the first `lanes` planes into y."""
    if length < LANES:
        for b in range(length):
            for k in range(lanes):
                store(y, k * plane + b, panel[b * LANES + k])
    for start in range(0, length if length >= LANES else 0, LANES):
        b = minimum(start, length - LANES)
        transpose(offset(panel, b * LANES), LANES, LANES, offset(y, b), plane, lanes)


@compiled
def prefetch_window(x: Any, plane: int, lanes: int, line: int, lines: int, length: int) -> None:
    """Ask for what `pack` would read with the same arguments."""
    for k in range(lanes):
        for a in range(lines):
            prefetch_to_read(offset(x, k * plane + a * line), length)


@noinline
def stream(source: Any, target: Any, count: int) -> None:
    """Copy elements to memory, past the cache."""
    begin = minimum(-address_of(target) % CACHE_LINE // itemsize(target), count)
    step = CACHE_LINE // itemsize(target)
    end = begin + (count - begin) // step * step
    for i in range(begin):
        target[i] = source[i]
    for i in range(begin, end, step):
        stream_cache_line(offset(source, i), offset(target, i))
    for i in range(end, count):
        target[i] = source[i]
