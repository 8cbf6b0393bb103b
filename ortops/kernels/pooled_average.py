"""Averages over RoIs whose samples are placed already, cut into tasks that share no output.

A task is a RoI and a block of channels, or an image and a panel of channels. A worker does every so many-th task, so that
only so many panels exist. Whatever thread it is on, the result is the same, bit for bit. Arguments: x [N, C, H, W]; axes
[R, 2, NUMBERS], y before x; images [R], the image of each RoI; y [R, C, PH, PW].
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ortops.kernels.average import FAST, average
from ortops.kernels.average_panel import average_panel
from ortops.kernels.compile import INNER, cached
from ortops.kernels.element import Array, accumulator, round_at
from ortops.kernels.fetch import fetch_to_write, fetch_window
from ortops.kernels.lanes import LANES
from ortops.kernels.panels import MOST_PIXELS_OF_ROI, pack, room, unpack
from ortops.kernels.parallel import Runner, parallel_for
from ortops.kernels.roi_tables import RoiTables, both_weights, roi_weights, weights_of_roi
from ortops.kernels.tasks import (
    block_of,
    blocks_and_runner,
    is_packed,
    panels_of,
    panels_pay,
    window_of,
    workers_of,
)
from ortops.kernels.weights import move_weights, span_of_weights


def average_rois(x: Array, axes: Array, images: Array, y: Array, outside: float, runner: Runner) -> bool:
    """Fill y; outside is the value of samples off the map. Whether there was no memory left to work in."""
    number = accumulator(x)
    _, channels, height, width = x.shape
    if panels_pay(axes, x.shape):
        tables = roi_weights(axes, (y.shape[2], y.shape[3]), (height, width), number, False, runner)
        panels = panels_of(channels)
        workers = workers_of(len(x) * panels, height * width * LANES * number.itemsize)
        return _panels(*runner, workers, panels, x, axes, images, y, outside, *tables, number)
    blocks, runner = blocks_and_runner(axes, x.shape, runner)
    workers = workers_of(len(axes) * blocks, MOST_PIXELS_OF_ROI * LANES * number.itemsize)
    return _rois(*runner, workers, blocks, x, axes, images, y, outside, number)


@njit(**INNER, fastmath=FAST)
def _rois_task(
    workers: int,
    blocks: int,
    x: Array,
    axes: Array,
    images: Array,
    y: Array,
    outside: float,
    dtype: Any,
    worker: int,
) -> None:
    _, channels, height, width = x.shape
    bins, runs = y.shape[2] * y.shape[3], np.empty((width // 2 + 1, 2), np.int64)
    flat_x, flat_y = x.reshape(x.size), y.reshape(y.size)
    panel, panel_line, panel_sums = room(0, dtype), room(width, dtype), room(bins, dtype)
    line, sums = panel_line[:width], panel_sums[:bins].reshape(y.shape[2], y.shape[3])
    for index in range(worker, len(axes) * blocks, workers):
        r, block = index // blocks, index % blocks
        low, high = block_of(channels, blocks, block)
        rows, columns = both_weights(axes[r], y, x, dtype, False)
        window = window_of(span_of_weights(rows), span_of_weights(columns), width)
        if is_packed(window, high - low):
            move_weights(rows, window.top)
            move_weights(columns, window.left)
            if panel.size < window.height * window.width * LANES:
                panel = room(window.height * window.width, dtype)
            for c in range(low, high, LANES):
                lanes = min(LANES, high - c)
                at = ((images[r] * channels + c) * height + window.top) * width + window.left
                pack(flat_x, at, height * width, lanes, width, window.height, window.width, panel)
                following = min(LANES, high - c - LANES)
                fetch_window(
                    flat_x, at + LANES * height * width, height * width, following, width, window.height, window.width
                )
                to = (r * channels + c) * bins
                fetch_to_write(flat_y, to, bins * lanes)
                average_panel(panel, window.width, rows, columns, outside, runs, panel_line, panel_sums)
                unpack(panel_sums, bins, flat_y, to, bins, lanes)
        else:
            for c in range(low, high):
                average(x[images[r], c], rows, columns, outside, line, sums)
                round_at(sums, flat_y, (r * channels + c) * bins)


@cached
def _rois(
    runner: int,
    context: int,
    workers: int,
    blocks: int,
    x: Array,
    axes: Array,
    images: Array,
    y: Array,
    outside: float,
    dtype: Any,
) -> bool:
    args = (workers, blocks, x, axes, images, y, outside, dtype)
    return parallel_for(runner, context, workers, _rois_task, args)


@njit(**INNER, fastmath=FAST)
def _panels_task(
    workers: int,
    panels: int,
    x: Array,
    axes: Array,
    images: Array,
    y: Array,
    outside: float,
    every_row: RoiTables,
    every_column: RoiTables,
    dtype: Any,
    worker: int,
) -> None:
    _, channels, height, width = x.shape
    pixels, bins, runs = height * width, y.shape[2] * y.shape[3], np.empty((width // 2 + 1, 2), np.int64)
    flat_x, flat_y = x.reshape(x.size), y.reshape(y.size)
    panel, line, sums = room(pixels, dtype), room(width, dtype), room(bins, dtype)
    for index in range(worker, len(x) * panels, workers):
        image, channel = index // panels, index % panels * LANES
        lanes = min(LANES, channels - channel)
        pack(flat_x, (image * channels + channel) * pixels, pixels, lanes, 0, 1, pixels, panel)
        for r in range(len(axes)):
            if images[r] == image:
                rows = weights_of_roi(every_row, r, axes[r, 0], y.shape[2], height, dtype, False)
                columns = weights_of_roi(every_column, r, axes[r, 1], y.shape[3], width, dtype, False)
                at = (r * channels + channel) * bins
                fetch_to_write(flat_y, at, bins * lanes)
                average_panel(panel, width, rows, columns, outside, runs, line, sums)
                unpack(sums, bins, flat_y, at, bins, lanes)


@cached
def _panels(
    runner: int,
    context: int,
    workers: int,
    panels: int,
    x: Array,
    axes: Array,
    images: Array,
    y: Array,
    outside: float,
    rows: RoiTables,
    columns: RoiTables,
    dtype: Any,
) -> bool:
    args = (workers, panels, x, axes, images, y, outside, rows, columns, dtype)
    return parallel_for(runner, context, workers, _panels_task, args)
