"""Averages over RoIs whose samples are placed already, and their gradients, cut into tasks that share no output.

A task of the forward operator and of drois is a RoI and a block of channels, or an image and a panel of channels; of dX
always the latter, over all RoIs in their order. A worker does every so many-th task, so that only so many panels exist.
Whatever thread it is on, the result is the same, bit for bit. Arguments: x [N, C, H, W]; axes [R, 2, NUMBERS], y before x;
images [R], the image of each RoI; y [R, C, PH, PW].
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ortops.kernels.average import FAST, FAST_SUM, add_average_box_gradient, add_average_gradient, average
from ortops.kernels.average_panel import add_average_panel_box_gradient, add_average_panel_gradient, average_panel
from ortops.kernels.compile import INNER, cached
from ortops.kernels.element import Array, accumulator, round_at, round_sums, sums_for
from ortops.kernels.fetch import fetch_to_read, fetch_to_write, fetch_window
from ortops.kernels.lanes import LANES
from ortops.kernels.panels import MOST_PIXELS, MOST_PIXELS_OF_ROI, pack, room, unpack
from ortops.kernels.parallel import Runner, parallel_for
from ortops.kernels.roi_tables import RoiTables, roi_weights, weights_of_roi
from ortops.kernels.sampling import axis_of
from ortops.kernels.tasks import (
    block_of,
    blocks_and_runner,
    is_packed,
    panels_of,
    panels_pay,
    window_of,
    workers_of,
)
from ortops.kernels.weights import Weights, move_weights, span_of_weights, weights_of


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


def average_rois_dx(dy: Array, axes: Array, images: Array, dx: Array, runner: Runner) -> bool:
    """Fill dx. Whether there was no memory left to work in."""
    number = accumulator(dx)
    _, channels, height, width = dx.shape
    tables = roi_weights(axes, (dy.shape[2], dy.shape[3]), (height, width), number, False, runner)
    if panels_pay(axes, dx.shape):
        panels = panels_of(channels)
        workers = workers_of(len(dx) * panels, height * width * LANES * number.itemsize)
        return _panels_dx(*runner, workers, panels, dy, axes, images, dx, *tables, number)
    # 16-bit sums are float32 until a band of lines is done; others are dx itself.
    band, lines = (height, 0) if dx.dtype == number else (max(MOST_PIXELS // width, 1),) * 2
    workers = workers_of(len(dx) * channels, (lines + 1) * width * number.itemsize)
    return _planes_dx(*runner, workers, band, dy, axes, images, dx, *tables, number)


def average_rois_drois(x: Array, dy: Array, axes: Array, images: Array, drois: Array, runner: Runner) -> bool:
    """Fill drois [R, 4]. Whether there was no memory left to work in."""
    number = accumulator(x)
    _, channels, height, width = x.shape
    # In float64: the two ends of a box pull in opposite directions and what is left is small.
    if panels_pay(axes, x.shape):
        tables = roi_weights(axes, (dy.shape[2], dy.shape[3]), (height, width), number, True, runner)
        panels = panels_of(channels)
        workers = workers_of(len(x) * panels, height * width * LANES * number.itemsize + drois.size * 8)
        parts = np.zeros((workers, *drois.shape))
        failed = _panels_drois(*runner, workers, panels, dy, axes, images, x, parts, *tables, number)
    else:
        blocks, runner = blocks_and_runner(axes, x.shape, runner)
        workers = workers_of(len(axes) * blocks, MOST_PIXELS_OF_ROI * LANES * number.itemsize)
        parts = np.zeros((blocks, *drois.shape))
        failed = _rois_drois(*runner, workers, blocks, dy, axes, images, x, parts, number)
    drois[...] = parts.sum(axis=0)
    return failed


@njit(**INNER)
def _tables(pair: Array, y: Array, x: Array, dtype: Any, slopes: bool) -> tuple[Weights, Weights]:
    """The rows' and the columns' of one RoI."""
    rows = weights_of(axis_of(pair[0], y.shape[2]), x.shape[2], dtype, slopes)
    return rows, weights_of(axis_of(pair[1], y.shape[3]), x.shape[3], dtype, slopes)


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
        rows, columns = _tables(axes[r], y, x, dtype, False)
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


@njit(**INNER, fastmath=FAST)
def _planes_dx_task(
    workers: int,
    band: int,
    dy: Array,
    axes: Array,
    images: Array,
    dx: Array,
    every_row: RoiTables,
    every_column: RoiTables,
    dtype: Any,
    worker: int,
) -> None:
    _, channels, height, width = dx.shape
    line = np.empty(width, dtype)
    for index in range(worker, len(dx) * channels, workers):
        image, c = index // channels, index % channels
        for top in range(0, height, band):
            own = dx[image, c, top : top + band]
            sums = sums_for(own)
            for r in range(len(axes)):
                if images[r] == image:
                    rows = weights_of_roi(every_row, r, axes[r, 0], dy.shape[2], height, dtype, False)
                    columns = weights_of_roi(every_column, r, axes[r, 1], dy.shape[3], width, dtype, False)
                    add_average_gradient(dy[r, c], rows, columns, top, line, sums)
            round_sums(sums, own)


@cached
def _planes_dx(
    runner: int,
    context: int,
    workers: int,
    band: int,
    dy: Array,
    axes: Array,
    images: Array,
    dx: Array,
    rows: RoiTables,
    columns: RoiTables,
    dtype: Any,
) -> bool:
    args = (workers, band, dy, axes, images, dx, rows, columns, dtype)
    return parallel_for(runner, context, workers, _planes_dx_task, args)


@njit(**INNER, fastmath=FAST)
def _panels_dx_task(
    workers: int,
    panels: int,
    dy: Array,
    axes: Array,
    images: Array,
    dx: Array,
    every_row: RoiTables,
    every_column: RoiTables,
    dtype: Any,
    worker: int,
) -> None:
    _, channels, height, width = dx.shape
    pixels, bins, runs = height * width, dy.shape[2] * dy.shape[3], np.empty((width // 2 + 1, 2), np.int64)
    flat_dx, flat_dy = dx.reshape(dx.size), dy.reshape(dy.size)
    panel, line, gradient = room(pixels, dtype), room(width, dtype), room(bins, dtype)
    for index in range(worker, len(dx) * panels, workers):
        image, channel = index // panels, index % panels * LANES
        lanes = min(LANES, channels - channel)
        panel[:] = 0.0
        for r in range(len(axes)):
            if images[r] == image:
                rows = weights_of_roi(every_row, r, axes[r, 0], dy.shape[2], height, dtype, False)
                columns = weights_of_roi(every_column, r, axes[r, 1], dy.shape[3], width, dtype, False)
                at = (r * channels + channel) * bins
                pack(flat_dy, at, bins, lanes, 0, 1, bins, gradient)
                if r + 1 < len(axes):
                    fetch_to_read(flat_dy, at + channels * bins, lanes * bins)
                add_average_panel_gradient(gradient, rows, columns, width, runs, line, panel)
        unpack(panel, pixels, flat_dx, (image * channels + channel) * pixels, pixels, lanes)


@cached
def _panels_dx(
    runner: int,
    context: int,
    workers: int,
    panels: int,
    dy: Array,
    axes: Array,
    images: Array,
    dx: Array,
    rows: RoiTables,
    columns: RoiTables,
    dtype: Any,
) -> bool:
    args = (workers, panels, dy, axes, images, dx, rows, columns, dtype)
    return parallel_for(runner, context, workers, _panels_dx_task, args)


@njit(**INNER, fastmath=FAST_SUM)
def _rois_drois_task(
    workers: int,
    blocks: int,
    dy: Array,
    axes: Array,
    images: Array,
    x: Array,
    parts: Array,
    dtype: Any,
    worker: int,
) -> None:
    _, channels, height, width = x.shape
    bins, runs = dy.shape[2] * dy.shape[3], np.empty((width // 2 + 1, 2), np.int64)
    flat_x, flat_dy = x.reshape(x.size), dy.reshape(dy.size)
    panel, gradient = room(0, dtype), room(bins, dtype)
    line, spread = room(width, dtype), room(width, dtype)
    drois = np.empty(4 * LANES, np.float64)
    for index in range(worker, len(axes) * blocks, workers):
        r, block = index // blocks, index % blocks
        low, high = block_of(channels, blocks, block)
        rows, columns = _tables(axes[r], dy, x, dtype, True)
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
                pack(flat_dy, (r * channels + c) * bins, bins, lanes, 0, 1, bins, gradient)
                drois[:] = 0.0
                add_average_panel_box_gradient(panel, window.width, gradient, rows, columns, runs, line, spread, drois)
                _add_lanes(drois, parts[block, r])
        else:
            for c in range(low, high):
                add_average_box_gradient(x[images[r], c], dy[r, c], rows, columns, line, spread, parts[block, r])


@njit(**INNER)
def _add_lanes(drois: Array, sums: Array) -> None:
    """Add the panel drois [4] to the sums over channels."""
    for k in range(4):
        for lane in range(LANES):
            sums[k] += drois[k * LANES + lane]


@cached
def _rois_drois(
    runner: int,
    context: int,
    workers: int,
    blocks: int,
    dy: Array,
    axes: Array,
    images: Array,
    x: Array,
    parts: Array,
    dtype: Any,
) -> bool:
    args = (workers, blocks, dy, axes, images, x, parts, dtype)
    return parallel_for(runner, context, workers, _rois_drois_task, args)


@njit(**INNER, fastmath=FAST)
def _panels_drois_task(
    workers: int,
    panels: int,
    dy: Array,
    axes: Array,
    images: Array,
    x: Array,
    parts: Array,
    every_row: RoiTables,
    every_column: RoiTables,
    dtype: Any,
    worker: int,
) -> None:
    _, channels, height, width = x.shape
    pixels, bins, runs = height * width, dy.shape[2] * dy.shape[3], np.empty((width // 2 + 1, 2), np.int64)
    flat_x, flat_dy = x.reshape(x.size), dy.reshape(dy.size)
    panel, gradient = room(pixels, dtype), room(bins, dtype)
    line, spread, drois = room(width, dtype), room(width, dtype), np.empty(4 * LANES, np.float64)
    for index in range(worker, len(x) * panels, workers):
        image, channel = index // panels, index % panels * LANES
        lanes = min(LANES, channels - channel)
        pack(flat_x, (image * channels + channel) * pixels, pixels, lanes, 0, 1, pixels, panel)
        for r in range(len(axes)):
            if images[r] == image:
                rows = weights_of_roi(every_row, r, axes[r, 0], dy.shape[2], height, dtype, True)
                columns = weights_of_roi(every_column, r, axes[r, 1], dy.shape[3], width, dtype, True)
                at = (r * channels + channel) * bins
                pack(flat_dy, at, bins, lanes, 0, 1, bins, gradient)
                if r + 1 < len(axes):
                    fetch_to_read(flat_dy, at + channels * bins, lanes * bins)
                drois[:] = 0.0
                add_average_panel_box_gradient(panel, width, gradient, rows, columns, runs, line, spread, drois)
                _add_lanes(drois, parts[worker, r])


@cached
def _panels_drois(
    runner: int,
    context: int,
    workers: int,
    panels: int,
    dy: Array,
    axes: Array,
    images: Array,
    x: Array,
    parts: Array,
    rows: RoiTables,
    columns: RoiTables,
    dtype: Any,
) -> bool:
    args = (workers, panels, dy, axes, images, x, parts, rows, columns, dtype)
    return parallel_for(runner, context, workers, _panels_drois_task, args)
