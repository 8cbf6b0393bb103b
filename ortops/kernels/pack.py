"""Pack LANES channels of a tensor into a panel: interleaved, so that a pixel of all channels is one SIMD vector.

Packing reads and writes the whole map once, which pays off if the RoIs together cover enough of it.
"""

from __future__ import annotations

from typing import Any

from ortops.kernels.jit import CACHE_LINE, LANES
from ortops.kernels.jit.compile import compiled, noinline
from ortops.kernels.jit.scalar import address_of, cast_like, itemsize, load, minimum, offset, store
from ortops.kernels.jit.simd import prefetch_to_read, stream_cache_line, transpose


@noinline
def pack(x: Any, plane: int, lanes: int, line: int, lines: int, length: int, panel: Any) -> None:
    """Fill the panel [lines, length, LANES] from planes; channels from number `lanes` on are 0.

    Args:
        x: a pointer to the panel's first pixel in the first plane.
        plane: the stride between planes in elements.
        lanes: the number of planes, up to LANES.
        line: the stride between lines in elements.
        lines: the number of lines of the panel.
        length: the number of pixels of a line.
        panel: the result.
    """
    for a in range(lines):
        source, target = offset(x, a * line), offset(panel, a * length * LANES)
        if length < LANES:
            for b in range(length):
                for k in range(LANES):
                    target[b * LANES + k] = load(source, k * plane + b) if k < lanes else cast_like(panel, 0.0)
        for start in range(0, length if length >= LANES else 0, LANES):
            b = minimum(start, length - LANES)  # the last block overlaps the one before
            transpose(offset(source, b), plane, lanes, offset(target, b * LANES), LANES, LANES)


@noinline
def unpack(panel: Any, pixel_size: int, length: int, y: Any, plane: int, lanes: int) -> None:
    """Store one line of a panel, of pixels `pixel_size` apart, into the first `lanes` planes of y, rounded to its type."""
    if length < LANES:
        for b in range(length):
            for k in range(lanes):
                store(y, k * plane + b, panel[b * pixel_size + k])
    for start in range(0, length if length >= LANES else 0, LANES):
        b = minimum(start, length - LANES)
        transpose(offset(panel, b * pixel_size), pixel_size, LANES, offset(y, b), plane, lanes)


@compiled
def prefetch_window(x: Any, plane: int, lanes: int, line: int, lines: int, length: int) -> None:
    """Prefetch what `pack` reads with the same arguments."""
    for k in range(lanes):
        for a in range(lines):
            prefetch_to_read(offset(x, k * plane + a * line), length)


@noinline
def stream(source: Any, target: Any, count: int) -> None:
    """Copy elements by non-temporal stores."""
    begin = minimum(-address_of(target) % CACHE_LINE // itemsize(target), count)
    step = CACHE_LINE // itemsize(target)
    end = begin + (count - begin) // step * step
    for i in range(begin):
        target[i] = source[i]
    for i in range(begin, end, step):
        stream_cache_line(offset(source, i), offset(target, i))
    for i in range(end, count):
        target[i] = source[i]
