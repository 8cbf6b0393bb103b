# SPDX-License-Identifier: MIT
"""Sums of bilinear samples at each query's points, and their gradients, for a head of multi-scale deformable attention.

A query's points are placed together: the addresses of the four pixels around each, and their weights. A pixel off the map
has the address of zeros. Then each block of channels adds up all samples in registers.

Where queries are many, a head's maps are packed into a panel, in which neighbouring pixels lie side by side; elsewhere they
are read in place. Both compute the same bits, since no sum depends on where its pixels are.

`attend`, `attend_gradient` and `scatter` are C functions, specialised for each element type.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ortops.compiler.compile import compiled, inline
from ortops.compiler.parallel import for_count
from ortops.compiler.scalar import (
    address_of,
    cast_like,
    ceil,
    compute_pointer,
    fma,
    itemsize,
    load,
    local,
    local_words,
    minimum,
    offset,
    storage_pointer,
    store,
)
from ortops.compiler.simd import (
    add,
    horizontal_sum,
    load_lanes,
    multiply,
    prefetch_to_read,
    prefetch_to_write,
    splat,
    store_lanes,
)
from ortops.native.elements import LANES, Doubles, Stored, Values, Words

POINTS = 32
"""The number of points that are placed together."""

MAX_PANELS = 4
"""The number of panels of LANES channels whose sums are in registers together."""

AHEAD = 2
"""How many queries ahead the points and the results are prefetched: those of a head lie far apart, a page for a few queries.

Measured with 17,821 queries: without it, a layer takes 150 % of the time.
"""

PIXELS_AHEAD = 8
"""How many pixels ahead dvalue is prefetched."""


class Attention(NamedTuple):
    """The dimensions of a call.

    levels: the number of levels.
    points: the number of a query's points for a head, on all levels together.
    """

    images: int
    pixels: int
    heads: int
    channels: int
    queries: int
    levels: int
    points: int


class Work(NamedTuple):
    """The queries begin:end of an image, for a head; and where its maps are.

    is_packed: whether the workspace has a panel of the head's maps.
    """

    image: int
    head: int
    begin: int
    end: int
    is_packed: bool


class Tensors(NamedTuple):
    """The tensors of a call, of one element type. Of those that a function does not use, some addresses are 0.

    value: value, or dvalue if the function fills it.
    y: Y or dY.
    """

    value: Stored
    locations: Stored
    weights: Stored
    y: Stored
    dlocations: Stored
    dweights: Stored


class Maps(NamedTuple):
    """For each of a query's points, its level's width and height, the first pixel, and the pixels between two rows."""

    width: Doubles
    height: Doubles
    first: Doubles
    pitch: Doubles


class Pixels(NamedTuple):
    """Where the maps of a head are: the address of the first pixel, the bytes between two pixels, and zeros."""

    base: int
    stride: int
    zeros: int


class Corners(NamedTuple):
    """The four pixels around each of POINTS points, row by row: their addresses and their weights.

    fx, fy: the weights of the second column and of the second row.
    on_map: whether the point is on the map.
    """

    a: Words
    b: Words
    c: Words
    d: Words
    of_a: Any
    of_b: Any
    of_c: Any
    of_d: Any
    fx: Any
    fy: Any
    on_map: Words


class Block(NamedTuple):
    """What is added up in registers: the first `points` points that are placed, in the channels from `channel` on.

    is_first: whether these are a query's first points.
    is_last: whether they are its last ones, and the sums are its result.
    """

    points: int
    channel: int
    is_first: bool
    is_last: bool


@compiled
def attend(tensors: Tensors, shape: Attention, maps: Maps, levels: Words, work: Work, workspace: Values) -> None:
    """Fill a head's channels of Y for some queries.

    Args:
        tensors: the call's tensors.
        shape: the dimensions.
        maps: where each point's level is; in the panel if there is one.
        levels: the height, the width and the first pixel of each level [L, 3].
        work: what to compute.
        workspace: zeros for two pixels, and a row of sums; each padded to a panel's channels. Then the panel.
    """
    value, locations, weights, y, _, _ = tensors
    size, is_whole, packed = padded(shape.channels), shape.channels % LANES == 0, work.is_packed
    sums, panel, corners = offset(workspace, 2 * size), offset(workspace, 3 * size), _corners(weights)
    if packed:
        _pack(value, shape, levels, work, panel)
    pixels = _pixels(value, shape, work, workspace)
    for q in range(work.begin, work.end):
        row = (work.image * shape.queries + q) * shape.heads + work.head
        target = offset(y, row * shape.channels)
        prefetch_to_write(offset(target, AHEAD * shape.heads * shape.channels), shape.channels + LANES)
        _prefetch_points(locations, weights, shape, row)
        for first in range(0, shape.points, POINTS):
            count, at = minimum(shape.points - first, POINTS), row * shape.points + first
            of_points = offset(weights, at)
            scales = _are_finite(of_points, count)
            _place(offset(locations, 2 * at), of_points, scales, count, maps, first, pixels, packed, corners)
            for c in range(0, size, LANES * MAX_PANELS):
                panels = minimum((size - c) // LANES, MAX_PANELS)
                block = Block(count, c, first == 0, first + POINTS >= shape.points and is_whole)
                args = corners, block, target, sums
                if not scales and packed:
                    _add_exactly(panel, of_points, panels, *args)
                elif not scales:
                    _add_exactly(value, of_points, panels, *args)
                elif packed:
                    for_count(_add_samples, panels, MAX_PANELS, (panel, size, *args))
                else:
                    for_count(_add_samples, panels, MAX_PANELS, (value, 0, *args))
        for c in range(0 if is_whole else shape.channels):
            store(target, c, sums[c])


@inline
def _prefetch_points(locations: Any, weights: Any, shape: Attention, row: int) -> None:
    at = (row + AHEAD * shape.heads) * shape.points
    prefetch_to_read(offset(locations, 2 * at), 2 * shape.points + LANES)
    prefetch_to_read(offset(weights, at), shape.points + LANES)


@inline
def _pixels(value: Any, shape: Attention, work: Work, workspace: Any) -> Pixels:
    """Where the maps of a head are."""
    size = padded(shape.channels)
    panel, zeros = offset(workspace, 3 * size), address_of(workspace)
    if work.is_packed:
        return Pixels(address_of(panel), size * itemsize(panel), zeros)
    head = (work.image * shape.pixels * shape.heads + work.head) * shape.channels
    return Pixels(address_of(offset(value, head)), shape.heads * shape.channels * itemsize(value), zeros)


@compiled
def padded(channels: int) -> int:
    """The channels of a panel."""
    return (channels + LANES - 1) // LANES * LANES


@inline
def _corners(like: Any) -> Any:
    """Memory for corners on the stack."""
    places = local_words(POINTS), local_words(POINTS), local_words(POINTS), local_words(POINTS)
    of_a, of_b = compute_pointer(local_words(POINTS), like), compute_pointer(local_words(POINTS), like)
    of_c, of_d = compute_pointer(local_words(POINTS), like), compute_pointer(local_words(POINTS), like)
    fx, fy = compute_pointer(local_words(POINTS), like), compute_pointer(local_words(POINTS), like)
    return Corners(*places, of_a, of_b, of_c, of_d, fx, fy, local_words(POINTS))


@inline
def _are_finite(weights: Any, count: int) -> bool:
    are_finite = True
    for i in range(count):
        weight = load(weights, i)
        are_finite &= weight - weight == 0.0
    return are_finite


@inline
def _place(
    locations: Any,
    weights: Any,
    scales: bool,
    count: int,
    maps: Maps,
    first: int,
    pixels: Pixels,
    packed: bool,
    corners: Any,
) -> None:
    """Place points in the maps. The weights of their pixels are multiplied by the points' own if `scales`.

    A packed map has zeros around it; there, the second column's addresses, which follow from the first's, are set unless
    `scales`.
    """
    base, stride, zeros = pixels
    for i in range(count):
        width, height = maps.width[first + i], maps.height[first + i]
        x, y = float(load(locations, 2 * i)) * width - 0.5, float(load(locations, 2 * i + 1)) * height - 0.5
        is_on_map = (x >= -1.0) & (x < width) & (y >= -1.0) & (y < height)
        x, y = x if is_on_map else 0.0, y if is_on_map else 0.0
        left, top = -ceil(-x), -ceil(-y)
        fx, fy = cast_like(corners.of_a, x - left), cast_like(corners.of_a, y - top)
        corners.fx[i], corners.fy[i], corners.on_map[i] = fx, fy, int(is_on_map)
        at = base + int((maps.first[first + i] + top * maps.pitch[first + i] + left) * stride)
        line = int(maps.pitch[first + i] * stride)
        if packed:
            corners.a[i], corners.c[i] = at if is_on_map else zeros, at + line if is_on_map else zeros
            if not scales:
                corners.b[i], corners.d[i] = corners.a[i] + stride, corners.c[i] + stride
        else:
            is_left, is_right = (left >= 0.0) & is_on_map, (left + 1.0 < width) & is_on_map
            is_above, is_below = top >= 0.0, top + 1.0 < height
            corners.a[i] = at if is_above & is_left else zeros
            corners.b[i] = at + stride if is_above & is_right else zeros
            corners.c[i] = at + line if is_below & is_left else zeros
            corners.d[i] = at + line + stride if is_below & is_right else zeros
        weight, one = load(weights, i), cast_like(corners.of_a, 1.0)
        weight = weight if scales else one
        above, below = (one - fy) * weight, fy * weight
        corners.of_a[i], corners.of_b[i] = above * (one - fx), above * fx
        corners.of_c[i], corners.of_d[i] = below * (one - fx), below * fx


@inline
def _add_samples(panels: int, like: Any, size: int, corners: Any, block: Block, target: Any, sums: Any) -> None:
    """Add the weighted samples of points to the sums of `panels` panels of channels, from a channel on.

    Args:
        size: the distance from a pixel to the next in a packed map, or 0.
    """
    above, below = local(splat(sums, 0.0)), local(splat(sums, 0.0))
    for k in range(panels):
        above[k] = splat(sums, 0.0) if block.is_first else load_lanes(sums, block.channel + k * LANES)
        below[k] = splat(sums, 0.0)
    for i in range(block.points):
        a, c = storage_pointer(corners.a[i], like), storage_pointer(corners.c[i], like)
        b = offset(a, size) if size else storage_pointer(corners.b[i], like)
        d = offset(c, size) if size else storage_pointer(corners.d[i], like)
        of_a, of_b, of_c, of_d = corners.of_a[i], corners.of_b[i], corners.of_c[i], corners.of_d[i]
        for k in range(panels):
            at = block.channel + k * LANES
            above[k] = fma(of_b, load_lanes(b, at), fma(of_a, load_lanes(a, at), above[k]))
            below[k] = fma(of_d, load_lanes(d, at), fma(of_c, load_lanes(c, at), below[k]))
    for k in range(panels):
        if block.is_last:
            store_lanes(target, block.channel + k * LANES, add(above[k], below[k]))
        else:
            store_lanes(sums, block.channel + k * LANES, add(above[k], below[k]))


@compiled
def _add_exactly(like: Any, weights: Any, panels: int, corners: Any, block: Block, target: Any, sums: Any) -> None:
    """As `_add_samples`, but multiply each sample by its point's weight, which may be infinite, and not its pixels."""
    for at in range(block.channel, block.channel + panels * LANES, LANES):
        total = splat(sums, 0.0) if block.is_first else load_lanes(sums, at)
        for i in range(block.points):
            a, b, c, d = _pixels_of(corners, i, like, at)
            above = fma(corners.of_b[i], b, multiply(corners.of_a[i], a))
            below = fma(corners.of_d[i], d, multiply(corners.of_c[i], c))
            total = fma(load(weights, i), add(above, below), total)
        if block.is_last:
            store_lanes(target, at, total)
        else:
            store_lanes(sums, at, total)


@inline
def _pixels_of(corners: Any, i: int, like: Any, at: int) -> Any:
    """The channels from number `at` on of the pixels around a point."""
    a, b = storage_pointer(corners.a[i], like), storage_pointer(corners.b[i], like)
    c, d = storage_pointer(corners.c[i], like), storage_pointer(corners.d[i], like)
    return load_lanes(a, at), load_lanes(b, at), load_lanes(c, at), load_lanes(d, at)


@compiled
def attend_gradient(
    tensors: Tensors, shape: Attention, maps: Maps, levels: Words, work: Work, workspace: Values
) -> None:
    """Fill dlocations and dweights of a head for some queries; each unless its address is 0.

    The other arguments are as in `attend`. The workspace's row of sums holds dY.
    """
    value, locations, weights, dy, dlocations, dweights = tensors
    size, packed = padded(shape.channels), work.is_packed
    gradient, panel, corners = offset(workspace, 2 * size), offset(workspace, 3 * size), _corners(weights)
    if packed:
        _pack(value, shape, levels, work, panel)
    pixels = _pixels(value, shape, work, workspace)
    for q in range(work.begin, work.end):
        row = (work.image * shape.queries + q) * shape.heads + work.head
        prefetch_to_read(offset(dy, (row + AHEAD * shape.heads) * shape.channels), shape.channels + LANES)
        _prefetch_points(locations, weights, shape, row)
        _copy(offset(dy, row * shape.channels), shape.channels, gradient)
        for first in range(0, shape.points, POINTS):
            count, at = minimum(shape.points - first, POINTS), row * shape.points + first
            _place(offset(locations, 2 * at), offset(weights, at), False, count, maps, first, pixels, packed, corners)
            for i in range(count):
                if packed:
                    sample, along_x, along_y = _products(corners, i, panel, gradient, size)
                else:
                    sample, along_x, along_y = _products(corners, i, value, gradient, size)
                if address_of(dweights) != 0:
                    store(dweights, at + i, cast_like(gradient, sample))
                if address_of(dlocations) != 0:
                    is_on_map, weight = corners.on_map[i] != 0, float(load(weights, at + i))
                    x, y = maps.width[first + i] * weight * along_x, maps.height[first + i] * weight * along_y
                    store(dlocations, 2 * (at + i), cast_like(gradient, x if is_on_map else 0.0))
                    store(dlocations, 2 * (at + i) + 1, cast_like(gradient, y if is_on_map else 0.0))


@inline
def _products(corners: Any, i: int, like: Any, gradient: Any, size: int) -> Any:
    """The products of dY with a point's sample and with the slopes along x and y, each added up over the channels."""
    samples, along_x, along_y = splat(gradient, 0.0), splat(gradient, 0.0), splat(gradient, 0.0)
    of_a, of_b, of_c, of_d = corners.of_a[i], corners.of_b[i], corners.of_c[i], corners.of_d[i]
    fx, fy, one = corners.fx[i], corners.fy[i], cast_like(gradient, 1.0)
    for at in range(0, size, LANES):
        a, b, c, d = _pixels_of(corners, i, like, at)
        g = load_lanes(gradient, at)
        above, below = fma(of_b, b, multiply(of_a, a)), fma(of_d, d, multiply(of_c, c))
        samples = fma(g, add(above, below), samples)
        right_above, right_below = fma(-one, a, b), fma(-one, c, d)
        along_x = fma(g, fma(fy, right_below, multiply(one - fy, right_above)), along_x)
        left_down, right_down = fma(-one, a, c), fma(-one, b, d)
        along_y = fma(g, fma(fx, right_down, multiply(one - fx, left_down)), along_y)
    return horizontal_sum(samples), horizontal_sum(along_x), horizontal_sum(along_y)


@compiled
def scatter(tensors: Tensors, shape: Attention, maps: Maps, _levels: Words, work: Work, workspace: Values) -> None:
    """Fill a head's channels of dvalue of an image, from all queries in their order.

    The workspace's zeros take what points add to pixels off the map. Its panel has the S pixels of dvalue.
    """
    dvalue, locations, weights, dy, _, _ = tensors
    size, corners = padded(shape.channels), _corners(weights)
    gradient, panel = offset(workspace, 2 * size), offset(workspace, 3 * size)
    _clear(workspace, 2 * size)
    _clear(panel, shape.pixels * size)
    pixels = Pixels(address_of(panel), size * itemsize(panel), address_of(workspace))
    for q in range(work.begin, work.end):
        row = (work.image * shape.queries + q) * shape.heads + work.head
        prefetch_to_read(offset(dy, (row + AHEAD * shape.heads) * shape.channels), shape.channels + LANES)
        _prefetch_points(locations, weights, shape, row)
        _copy(offset(dy, row * shape.channels), shape.channels, gradient)
        for first in range(0, shape.points, POINTS):
            count, at = minimum(shape.points - first, POINTS), row * shape.points + first
            _place(offset(locations, 2 * at), offset(weights, at), True, count, maps, first, pixels, False, corners)
            for i in range(count):
                for c in range(0 if corners.on_map[i] == 0 else size // LANES):
                    g = load_lanes(gradient, c * LANES)
                    _add_to(corners.a[i], corners.of_a[i], g, c * LANES, panel)
                    _add_to(corners.b[i], corners.of_b[i], g, c * LANES, panel)
                    _add_to(corners.c[i], corners.of_c[i], g, c * LANES, panel)
                    _add_to(corners.d[i], corners.of_d[i], g, c * LANES, panel)
    stride, whole = shape.heads * shape.channels, shape.channels // LANES * LANES
    target = offset(dvalue, (work.image * shape.pixels * shape.heads + work.head) * shape.channels)
    for s in range(shape.pixels):
        prefetch_to_write(offset(target, (s + PIXELS_AHEAD) * stride), shape.channels + LANES)
        for c in range(0, whole, LANES):
            store_lanes(offset(target, s * stride), c, load_lanes(panel, s * size + c))
        for c in range(whole, shape.channels):
            store(target, s * stride + c, panel[s * size + c])


@inline
def _add_to(pixel: int, weight: Any, gradient: Any, at: int, like: Any) -> None:
    values = storage_pointer(pixel, like)
    store_lanes(values, at, fma(weight, gradient, load_lanes(values, at)))


@compiled
def _pack(value: Any, shape: Attention, levels: Words, work: Work, panel: Any) -> None:
    """Pack a head's maps, each with zeros around it; channels after the last are 0."""
    size, stride = padded(shape.channels), shape.heads * shape.channels
    source = offset(value, (work.image * shape.pixels * shape.heads + work.head) * shape.channels)
    for i in range(shape.levels):
        height, width, start = levels[3 * i], levels[3 * i + 1], levels[3 * i + 2]
        _clear(panel, (width + 2) * size)
        for row in range(height):
            panel = offset(panel, (width + 1) * size)
            for x in range(width):
                _copy(offset(source, (start + row * width + x) * stride), shape.channels, offset(panel, (x + 1) * size))
            _clear(offset(panel, (width + 1) * size), size)
        panel = offset(panel, (width + 1) * size)
        _clear(panel, (width + 2) * size)
        panel = offset(panel, (width + 2) * size)


@inline
def _clear(values: Any, count: int) -> None:
    for c in range(count):
        values[c] = cast_like(values, 0.0)


@inline
def _copy(pixel: Any, channels: int, values: Any) -> None:
    whole = channels // LANES * LANES
    for c in range(0, whole, LANES):
        store_lanes(values, c, load_lanes(pixel, c))
    for c in range(whole, padded(channels)):
        values[c] = load(pixel, c) if c < channels else cast_like(values, 0.0)
