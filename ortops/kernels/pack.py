"""Pack LANES channels of a tensor into a panel: interleaved, so that a pixel of all channels is one SIMD vector.

Packing reads and writes the whole map once, which pays off if the RoIs together cover enough of it.
"""

from __future__ import annotations

from typing import Any

from ortops.kernels.jit import CACHE_LINE, LANES
from ortops.kernels.jit.compile import compiled, noinline
from ortops.kernels.jit.scalar import address_of, cast_like, itemsize, load, minimum, offset, store
from ortops.kernels.jit.simd import prefetch_to_read, stream_cache_line, transpose

MAX_CACHED_BYTES = 1 << 24
"""Larger outputs are written by non-temporal stores, as no cache can hold them. Measured: C4 takes 72 % of the time."""

STAGED_PIXELS = 1 << 8
"""The number of pixels of a panel to stage before non-temporal stores."""

MAX_SINGLE_PIXELS = 4
"""The most pixels behind the last whole block of LANES to pack or unpack one by one, and not as a block.

Measured: with 49 bins, packing dY so, dX takes 98 % of the time on P4 and 99 % on P2; averages take as long as before.
"""


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
        rest = length % LANES
        for b in range(0, length - rest, LANES):
            transpose(offset(source, b), plane, lanes, offset(target, b * LANES), LANES, LANES)
        if rest > MAX_SINGLE_PIXELS and length >= LANES:
            b = length - LANES  # the last block overlaps the one before
            transpose(offset(source, b), plane, lanes, offset(target, b * LANES), LANES, LANES)
        else:
            for b in range(length - rest, length):
                for k in range(LANES):
                    target[b * LANES + k] = load(source, k * plane + b) if k < lanes else cast_like(panel, 0.0)


@noinline
def unpack(panel: Any, length: int, y: Any, plane: int, lanes: int) -> None:
    """Store one line of a panel into the first `lanes` planes of y, rounded to y's element type."""
    rest = length % LANES
    for start in range(0, length - rest, LANES):
        transpose(offset(panel, start * LANES), LANES, LANES, offset(y, start), plane, lanes)
    if rest > MAX_SINGLE_PIXELS and length >= LANES:
        b = length - LANES  # the last block overlaps the one before
        transpose(offset(panel, b * LANES), LANES, LANES, offset(y, b), plane, lanes)
    else:
        for b in range(length - rest, length):
            for k in range(lanes):
                store(y, k * plane + b, panel[b * LANES + k])


@compiled
def clear(planes: Any, plane: int, lanes: int, begin: int, end: int) -> None:
    """Set the pixels begin:end of each of the first `lanes` planes to 0."""
    for k in range(lanes):
        for j in range(k * plane + begin, k * plane + end):
            store(planes, j, 0.0)


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


@compiled
def should_stream(y: Any, count: int) -> bool:
    """Whether to write an output of `count` elements by non-temporal stores."""
    return count * itemsize(y) > MAX_CACHED_BYTES


@compiled
def unpack_by_stream(panel: Any, length: int, y: Any, plane: int, lanes: int, staged: Any) -> None:
    """Unpack by non-temporal stores, through `staged` [LANES * STAGED_PIXELS]. Call `fence` afterwards."""
    for start in range(0, length, STAGED_PIXELS):
        count = minimum(STAGED_PIXELS, length - start)
        unpack(offset(panel, start * LANES), count, staged, count, lanes)
        for k in range(lanes):
            stream(offset(staged, k * count), offset(y, k * plane + start), count)
