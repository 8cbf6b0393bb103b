# SPDX-License-Identifier: MIT
"""Pack LANES channels of a tensor into a panel: interleaved, so that a pixel's values in all channels are one SIMD vector.

Packing reads and writes the whole map once, which pays off if the RoIs together cover enough of it. `pack`, `unpack`, `read`
and `write` are C functions, specialised for each element type; the others are compiled once and call these by address.
"""

from __future__ import annotations

from numba import types

from ortops.compiler.compile import compiled, noinline
from ortops.compiler.parallel import call
from ortops.compiler.scalar import address_of, byte_pointer, cast_like, itemsize, load, minimum, offset, store
from ortops.compiler.simd import stream_cache_line, transpose
from ortops.native.elements import CACHE_LINE, LANES, Elements, Stored, Values
from ortops.native.kernels.functions import Unpack

_memcpy = types.ExternalFunction("memcpy", types.intp(types.intp, types.intp, types.intp))
_memset = types.ExternalFunction("memset", types.intp(types.intp, types.intp, types.intp))

MAX_CACHED_BYTES = 1 << 24
"""Outputs larger than this bypass the cache, since no cache can hold them. Measured: C4 takes 72 % of the time."""

STAGED_PIXELS = 1 << 8
"""The number of pixels of a panel to stage before non-temporal stores."""

MAX_SINGLE_PIXELS = 4
"""Up to this many pixels after the last whole block of LANES are copied one by one, and not as a block.

Measured when packing dY with 49 bins: dX takes 98 % of the time on P4 and 99 % on P2; averages take as long as before.
"""


@compiled
def pack(x: Stored, plane: int, lanes: int, line: int, lines: int, length: int, panel: Values) -> None:
    """Fill the panel [lines, length, LANES] from planes; channels from number `lanes` on are 0.

    `x` points to the first pixel in the first plane. The strides between planes and between lines are in elements.
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


@compiled
def unpack(panel: Values, length: int, y: Stored, plane: int, lanes: int) -> None:
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
def read(x: Stored, count: int, values: Values) -> None:
    """Convert elements to values of the compute type."""
    for i in range(count):
        values[i] = load(x, i)


@compiled
def write(values: Values, count: int, y: Stored) -> None:
    """Round values of the compute type to elements."""
    for i in range(count):
        store(y, i, values[i])


@compiled
def clear(planes: Elements, plane: int, lanes: int, begin: int, end: int) -> None:
    """Set the pixels begin:end of each of the first `lanes` planes to 0."""
    for k in range(lanes):
        if end > begin:
            _memset(address_of(offset(planes, k * plane + begin)), 0, (end - begin) * itemsize(planes))


@noinline
def stream(source: Elements, target: Elements, count: int) -> None:
    """Copy elements by non-temporal stores."""
    size = count * itemsize(target)
    begin = minimum(-address_of(target) % CACHE_LINE, size)
    end = begin + (size - begin) // CACHE_LINE * CACHE_LINE
    values, elements = byte_pointer(source), byte_pointer(target)
    _memcpy(address_of(elements), address_of(values), begin)
    for i in range(begin, end, CACHE_LINE):
        stream_cache_line(offset(values, i), offset(elements, i))
    _memcpy(address_of(elements) + end, address_of(values) + end, size - end)


@compiled
def should_stream(y: Elements, count: int) -> bool:
    """Whether to write an output of `count` elements by non-temporal stores."""
    return count * itemsize(y) > MAX_CACHED_BYTES


@compiled
def unpack_by_stream(
    unpack: Unpack, panel: Elements, length: int, y: Elements, plane: int, lanes: int, staged: Elements
) -> None:
    """Unpack by non-temporal stores, through `staged` [LANES * STAGED_PIXELS]. Call `fence` afterwards.

    `unpack` is the address of the function.
    """
    for start in range(0, length, STAGED_PIXELS):
        count = minimum(STAGED_PIXELS, length - start)
        call(unpack, (offset(panel, start * LANES), count, staged, count, lanes))
        for k in range(lanes):
            stream(offset(staged, k * count), offset(y, k * plane + start), count)
