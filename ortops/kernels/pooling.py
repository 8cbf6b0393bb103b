"""Pooling a map over RoIs whose samples are placed already, and its gradients, cut into tasks that share no output.

A task of the forward operator is a RoI and a block of channels, or an image and a panel of channels; of dX an image and a
block or panel, over all RoIs in their order; of drois a RoI. Whatever thread runs a task, its result is the same, bit for
bit. Arguments: x [N, C, H, W]; axes [R, 2, NUMBERS], y before x; images [R], the image of each RoI; y [R, C, PH, PW].
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ortops.kernels.average import FAST, FAST_SUM, add_average_box_gradient, add_average_gradient, average
from ortops.kernels.compile import cached
from ortops.kernels.element import Array, accumulator, round_sums, sums_for, words
from ortops.kernels.maximum import add_maximum_gradient, maximum
from ortops.kernels.panels import LANES, MOST_PIXELS, MOST_PIXELS_OF_ROI, pack, unpack
from ortops.kernels.parallel import Runner, parallel_for
from ortops.kernels.sampling import axis_of
from ortops.kernels.tables import (
    Candidates,
    Weights,
    candidates_of,
    move_candidates,
    move_weights,
    span_of_candidates,
    span_of_weights,
    weights_of,
)

TASKS = 64
"""Tasks to aim for where RoIs or images are fewer: enough for any session's threads to share them evenly."""


def pool(x: Array, axes: Array, images: Array, y: Array, mode: str, runner: Runner, outside: float = 0.0) -> None:
    """Fill y; mode is avg, max (of weighted corners) or max_interpolated; outside is the value of samples off the map.

    Raises:
        MemoryError: there is none left to work in.
    """
    if y.size == 0:
        return
    arrays = (words(x), axes, images, words(y))
    blocks, panels = _blocks(len(axes), y.shape[1]), -(-y.shape[1] // LANES)
    in_panels, number = _panels_pay(axes, x.shape), accumulator(x)
    if mode == "avg" and in_panels:
        failed = _average_panels(*runner, panels, *arrays, outside, number)
    elif mode == "avg":
        failed = _average(*runner, blocks, *arrays, outside, number)
    elif in_panels:
        failed = _maximum_panels(*runner, panels, *arrays, outside, mode == "max", number)
    else:
        failed = _maximum(*runner, blocks, *arrays, outside, mode == "max", number)
    if failed:
        raise MemoryError("out of memory for the work space of a RoI")


def pool_gradient(
    dy: Array, axes: Array, images: Array, x: Array, dx: Array | None, drois: Array | None, mode: str, runner: Runner
) -> None:
    """Fill dx [N, C, H, W] and drois [R, 4] where not None; x may be None for the dx of an average.

    Raises:
        MemoryError: there is none left to work in.
    """
    arrays = (words(dy), axes, images)
    failed = False
    if dx is not None and dx.size:
        blocks = _blocks(len(dx), dx.shape[1])
        if mode != "avg":
            failed |= _maximum_dx(*runner, blocks, *arrays, words(x), words(dx), mode == "max")
        elif _panels_pay(axes, dx.shape):
            failed |= _average_panels_dx(*runner, -(-dx.shape[1] // LANES), *arrays, words(dx), accumulator(dx))
        else:
            failed |= _average_dx(*runner, blocks, *arrays, words(dx), accumulator(dx))
    if drois is not None and drois.size:
        # In float64: the two ends of a box pull in opposite directions and what is left is small.
        if mode != "avg":
            parts = np.zeros((1, *drois.shape))
            failed |= _maximum_drois(*runner, *arrays, words(x), parts, mode == "max")
        elif _panels_pay(axes, x.shape):
            parts = np.zeros((-(-x.shape[1] // LANES), *drois.shape))
            failed |= _average_panels_drois(*runner, len(parts), *arrays, words(x), parts, accumulator(x))
        else:
            parts = np.zeros((_blocks(len(axes), x.shape[1]), *drois.shape))
            failed |= _average_drois(*runner, len(parts), *arrays, words(x), parts, accumulator(x))
        drois[...] = parts.sum(axis=0)
    if failed:
        raise MemoryError("out of memory for the work space of a RoI")


def _blocks(others: int, channels: int) -> int:
    """Into how many blocks to cut the channels, so that there are enough tasks, none of less than two panels."""
    return max(min(channels // (2 * LANES), -(-TASKS // max(others, 1))), 1)


def _panels_pay(axes: Array, x_shape: tuple[int, ...]) -> bool:
    """Whether to pack channels of whole maps into panels.

    Measured: they win with 256 channels and RoIs that cover the maps, lose with 3 channels and with one RoI. The borders
    between are a choice: half a panel of channels, and RoIs that cover the maps once.
    """
    images, channels, height, width = x_shape
    if channels < LANES // 2 or height * width > MOST_PIXELS or len(axes) <= images:
        return False
    covered = np.minimum(np.abs(axes[:, :, 1]) + 2.0, [float(height), float(width)]).prod(axis=1).sum()
    return bool(covered >= images * height * width)


@njit(nogil=True)
def _weights(pair: Array, y: Array, height: int, width: int, dtype: Any, slopes: bool) -> tuple[Weights, Weights]:
    rows = weights_of(axis_of(pair[0], y.shape[2]), height, dtype, slopes)
    return rows, weights_of(axis_of(pair[1], y.shape[3]), width, dtype, slopes)


@njit(nogil=True)
def _candidates(pair: Array, y: Array, height: int, width: int) -> tuple[Candidates, Candidates]:
    return candidates_of(axis_of(pair[0], y.shape[2]), height), candidates_of(axis_of(pair[1], y.shape[3]), width)


@njit(nogil=True)
def _block(channels: int, blocks: int, block: int) -> tuple[int, int]:
    return channels * block // blocks, channels * (block + 1) // blocks


@njit(nogil=True, fastmath=FAST)
def _average_task(
    blocks: int, x: Array, axes: Array, images: Array, y: Array, outside: float, dtype: Any, index: int
) -> None:
    r, block = index // blocks, index % blocks
    image = x[images[r]]
    rows, columns = _weights(axes[r], y, x.shape[2], x.shape[3], dtype, False)
    low, high = _block(x.shape[1], blocks, block)
    (top, bottom), (left, right) = span_of_weights(rows), span_of_weights(columns)
    height, width = bottom - top, right - left
    if high - low >= LANES // 2 and height * width <= MOST_PIXELS_OF_ROI:
        move_weights(rows, top)
        move_weights(columns, left)
        panel, line = np.empty((height, width * LANES), dtype), np.empty(width * LANES, dtype)
        sums = np.empty((y.shape[2], y.shape[3] * LANES), dtype)
        for c in range(low, high, LANES):
            end = min(c + LANES, high)
            pack(image[c:end], top, left, panel)
            average(panel, rows, columns, outside, LANES, line, sums)
            unpack(sums, y[r, c:end], LANES)
    else:
        line, sums = np.empty(x.shape[3], dtype), np.empty((y.shape[2], y.shape[3]), dtype)
        for c in range(low, high):
            average(image[c], rows, columns, outside, 1, line, sums)
            unpack(sums, y[r, c : c + 1], 1)


@cached
def _average(
    runner: int, context: int, blocks: int, x: Array, axes: Array, images: Array, y: Array, outside: float, dtype: Any
) -> bool:
    args = (blocks, x, axes, images, y, outside, dtype)
    return parallel_for(runner, context, len(y) * blocks, _average_task, args)


@njit(nogil=True, fastmath=FAST)
def _average_panels_task(
    panels: int, x: Array, axes: Array, images: Array, y: Array, outside: float, dtype: Any, index: int
) -> None:
    image, channel = index // panels, index % panels * LANES
    end = min(channel + LANES, x.shape[1])
    height, width = x.shape[2], x.shape[3]
    panel, line = np.empty((height, width * LANES), dtype), np.empty(width * LANES, dtype)
    sums = np.empty((y.shape[2], y.shape[3] * LANES), dtype)
    pack(x[image, channel:end], 0, 0, panel)
    for r in range(len(axes)):
        if images[r] == image:
            rows, columns = _weights(axes[r], y, height, width, dtype, False)
            average(panel, rows, columns, outside, LANES, line, sums)
            unpack(sums, y[r, channel:end], LANES)


@cached
def _average_panels(
    runner: int, context: int, panels: int, x: Array, axes: Array, images: Array, y: Array, outside: float, dtype: Any
) -> bool:
    args = (panels, x, axes, images, y, outside, dtype)
    return parallel_for(runner, context, len(x) * panels, _average_panels_task, args)


@njit(nogil=True)
def _maximum_task(
    blocks: int, x: Array, axes: Array, images: Array, y: Array, outside: float, products: bool, dtype: Any, index: int
) -> None:
    r, block = index // blocks, index % blocks
    image = x[images[r]]
    rows, columns = _candidates(axes[r], y, x.shape[2], x.shape[3])
    low, high = _block(x.shape[1], blocks, block)
    (top, bottom), (left, right) = span_of_candidates(rows), span_of_candidates(columns)
    height, width = bottom - top, right - left
    if high - low >= LANES // 2 and height * width <= MOST_PIXELS_OF_ROI:
        move_candidates(rows, top)
        move_candidates(columns, left)
        panel, best = np.empty((height, width * LANES), dtype), np.empty((y.shape[2], y.shape[3] * LANES), dtype)
        for c in range(low, high, LANES):
            end = min(c + LANES, high)
            pack(image[c:end], top, left, panel)
            maximum(panel, rows, columns, products, outside, LANES, best)
            unpack(best, y[r, c:end], LANES)
    else:
        best = np.empty((y.shape[2], y.shape[3]), dtype)
        for c in range(low, high):
            maximum(image[c], rows, columns, products, outside, 1, best)
            unpack(best, y[r, c : c + 1], 1)


@cached
def _maximum(
    runner: int,
    context: int,
    blocks: int,
    x: Array,
    axes: Array,
    images: Array,
    y: Array,
    outside: float,
    products: bool,
    dtype: Any,
) -> bool:
    args = (blocks, x, axes, images, y, outside, products, dtype)
    return parallel_for(runner, context, len(y) * blocks, _maximum_task, args)


@njit(nogil=True)
def _maximum_panels_task(
    panels: int, x: Array, axes: Array, images: Array, y: Array, outside: float, products: bool, dtype: Any, index: int
) -> None:
    image, channel = index // panels, index % panels * LANES
    end = min(channel + LANES, x.shape[1])
    height, width = x.shape[2], x.shape[3]
    panel, best = np.empty((height, width * LANES), dtype), np.empty((y.shape[2], y.shape[3] * LANES), dtype)
    pack(x[image, channel:end], 0, 0, panel)
    for r in range(len(axes)):
        if images[r] == image:
            rows, columns = _candidates(axes[r], y, height, width)
            maximum(panel, rows, columns, products, outside, LANES, best)
            unpack(best, y[r, channel:end], LANES)


@cached
def _maximum_panels(
    runner: int,
    context: int,
    panels: int,
    x: Array,
    axes: Array,
    images: Array,
    y: Array,
    outside: float,
    products: bool,
    dtype: Any,
) -> bool:
    args = (panels, x, axes, images, y, outside, products, dtype)
    return parallel_for(runner, context, len(x) * panels, _maximum_panels_task, args)


@njit(nogil=True, fastmath=FAST)
def _average_dx_task(blocks: int, dy: Array, axes: Array, images: Array, dx: Array, dtype: Any, index: int) -> None:
    image, block = index // blocks, index % blocks
    low, high = _block(dx.shape[1], blocks, block)
    own = dx[image, low:high]
    sums, line = sums_for(own), np.empty(dx.shape[3], dtype)
    for r in range(len(axes)):
        if images[r] == image:
            rows, columns = _weights(axes[r], dy, dx.shape[2], dx.shape[3], dtype, False)
            for c in range(low, high):
                add_average_gradient(dy[r, c], rows, columns, 1, line, sums[c - low])
    round_sums(sums, own)


@cached
def _average_dx(
    runner: int, context: int, blocks: int, dy: Array, axes: Array, images: Array, dx: Array, dtype: Any
) -> bool:
    args = (blocks, dy, axes, images, dx, dtype)
    return parallel_for(runner, context, len(dx) * blocks, _average_dx_task, args)


@njit(nogil=True, fastmath=FAST)
def _average_panels_dx_task(
    panels: int, dy: Array, axes: Array, images: Array, dx: Array, dtype: Any, index: int
) -> None:
    image, channel = index // panels, index % panels * LANES
    end = min(channel + LANES, dx.shape[1])
    height, width = dx.shape[2], dx.shape[3]
    panel, line = np.zeros((height, width * LANES), dtype), np.empty(width * LANES, dtype)
    gradient = np.empty((dy.shape[2], dy.shape[3] * LANES), dtype)
    for r in range(len(axes)):
        if images[r] == image:
            rows, columns = _weights(axes[r], dy, height, width, dtype, False)
            pack(dy[r, channel:end], 0, 0, gradient)
            add_average_gradient(gradient, rows, columns, LANES, line, panel)
    unpack(panel, dx[image, channel:end], LANES)


@cached
def _average_panels_dx(
    runner: int, context: int, panels: int, dy: Array, axes: Array, images: Array, dx: Array, dtype: Any
) -> bool:
    args = (panels, dy, axes, images, dx, dtype)
    return parallel_for(runner, context, len(dx) * panels, _average_panels_dx_task, args)


@njit(nogil=True)
def _maximum_dx_task(
    blocks: int, dy: Array, axes: Array, images: Array, x: Array, dx: Array, products: bool, index: int
) -> None:
    image, block = index // blocks, index % blocks
    low, high = _block(dx.shape[1], blocks, block)
    own = dx[image, low:high]
    sums, unwanted = sums_for(own), np.empty(0, np.float64)
    for r in range(len(axes)):
        if images[r] == image:
            rows, columns = _candidates(axes[r], dy, dx.shape[2], dx.shape[3])
            for c in range(low, high):
                add_maximum_gradient(x[image, c], dy[r, c], rows, columns, products, sums[c - low], unwanted)
    round_sums(sums, own)


@cached
def _maximum_dx(
    runner: int, context: int, blocks: int, dy: Array, axes: Array, images: Array, x: Array, dx: Array, products: bool
) -> bool:
    args = (blocks, dy, axes, images, x, dx, products)
    return parallel_for(runner, context, len(dx) * blocks, _maximum_dx_task, args)


@njit(nogil=True, fastmath=FAST_SUM)
def _average_drois_task(
    blocks: int, dy: Array, axes: Array, images: Array, x: Array, parts: Array, dtype: Any, index: int
) -> None:
    r, block = index // blocks, index % blocks
    image = x[images[r]]
    rows, columns = _weights(axes[r], dy, x.shape[2], x.shape[3], dtype, True)
    low, high = _block(x.shape[1], blocks, block)
    (top, bottom), (left, right) = span_of_weights(rows), span_of_weights(columns)
    height, width = bottom - top, right - left
    if high - low >= LANES // 2 and height * width <= MOST_PIXELS_OF_ROI:
        move_weights(rows, top)
        move_weights(columns, left)
        panel, work = np.empty((height, width * LANES), dtype), np.empty((4, width * LANES), dtype)
        gradient = np.empty((dy.shape[2], dy.shape[3] * LANES), dtype)
        for c in range(low, high, LANES):
            end = min(c + LANES, high)
            pack(image[c:end], top, left, panel)
            pack(dy[r, c:end], 0, 0, gradient)
            add_average_box_gradient(panel, gradient, rows, columns, LANES, work, parts[block, r])
    else:
        work = np.empty((4, x.shape[3]), dtype)
        for c in range(low, high):
            add_average_box_gradient(image[c], dy[r, c], rows, columns, 1, work, parts[block, r])


@cached
def _average_drois(
    runner: int, context: int, blocks: int, dy: Array, axes: Array, images: Array, x: Array, parts: Array, dtype: Any
) -> bool:
    args = (blocks, dy, axes, images, x, parts, dtype)
    return parallel_for(runner, context, len(axes) * blocks, _average_drois_task, args)


@njit(nogil=True, fastmath=FAST_SUM)
def _average_panels_drois_task(
    panels: int, dy: Array, axes: Array, images: Array, x: Array, parts: Array, dtype: Any, index: int
) -> None:
    image, channel = index // panels, index % panels * LANES
    end = min(channel + LANES, x.shape[1])
    height, width = x.shape[2], x.shape[3]
    panel, work = np.empty((height, width * LANES), dtype), np.empty((4, width * LANES), dtype)
    gradient = np.empty((dy.shape[2], dy.shape[3] * LANES), dtype)
    pack(x[image, channel:end], 0, 0, panel)
    for r in range(len(axes)):
        if images[r] == image:
            rows, columns = _weights(axes[r], dy, height, width, dtype, True)
            pack(dy[r, channel:end], 0, 0, gradient)
            add_average_box_gradient(panel, gradient, rows, columns, LANES, work, parts[index % panels, r])


@cached
def _average_panels_drois(
    runner: int, context: int, panels: int, dy: Array, axes: Array, images: Array, x: Array, parts: Array, dtype: Any
) -> bool:
    args = (panels, dy, axes, images, x, parts, dtype)
    return parallel_for(runner, context, len(x) * panels, _average_panels_drois_task, args)


@njit(nogil=True)
def _maximum_drois_task(dy: Array, axes: Array, images: Array, x: Array, parts: Array, products: bool, r: int) -> None:
    image = x[images[r]]
    rows, columns = _candidates(axes[r], dy, x.shape[2], x.shape[3])
    unwanted = np.empty((0, 0), np.float64)
    for c in range(x.shape[1]):
        add_maximum_gradient(image[c], dy[r, c], rows, columns, products, unwanted, parts[0, r])


@cached
def _maximum_drois(
    runner: int, context: int, dy: Array, axes: Array, images: Array, x: Array, parts: Array, products: bool
) -> bool:
    return parallel_for(runner, context, len(axes), _maximum_drois_task, (dy, axes, images, x, parts, products))
