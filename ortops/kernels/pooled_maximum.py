"""Maxima over RoIs whose samples are placed already, and their gradients, cut into tasks as in `pooled_average.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ortops.kernels.candidates import Candidates, candidates_of, move_candidates, span_of_candidates
from ortops.kernels.compile import INNER, cached
from ortops.kernels.element import Array, accumulator, round_at, round_sums, sums_for
from ortops.kernels.fetch import fetch_to_write
from ortops.kernels.lanes import LANES
from ortops.kernels.maximum import add_maximum_gradient, largest_product, largest_sample
from ortops.kernels.maximum_panel import largest_product_panel, largest_sample_panel
from ortops.kernels.panels import MOST_PIXELS_OF_ROI, pack, room, unpack
from ortops.kernels.parallel import Runner, parallel_for
from ortops.kernels.roi_tables import RoiTables, extremes_of_roi, roi_extremes
from ortops.kernels.sampling import NUMBERS, axis_of
from ortops.kernels.tasks import (
    MOST_BYTES,
    block_of,
    blocks_and_runner,
    blocks_of,
    is_packed,
    panels_of,
    panels_pay,
    window_of,
    workers_of,
)
from ortops.kernels.weights import extremes_of, move_weights, span_of_weights


def maximum_rois(
    x: Array, axes: Array, images: Array, y: Array, outside: float, products: bool, runner: Runner
) -> bool:
    """Fill y: with products the largest weighted corners, else the largest samples, of which one off the map is `outside`.

    Whether there was no memory left to work in.
    """
    number = accumulator(x)
    _, channels, height, width = x.shape
    if panels_pay(axes, x.shape):
        chosen = axes if products else axes[:0]
        tables = roi_extremes(chosen, (y.shape[2], y.shape[3]), (height, width), number, runner)
        panels = panels_of(channels)
        workers = workers_of(len(x) * panels, height * width * LANES * number.itemsize)
        return _panels(*runner, workers, panels, x, axes, images, y, outside, products, *tables, number)
    blocks, runner = blocks_and_runner(axes, x.shape, runner)
    workers = workers_of(len(axes) * blocks, MOST_PIXELS_OF_ROI * LANES * number.itemsize)
    return _rois(*runner, workers, blocks, x, axes, images, y, outside, products, number)


def maximum_rois_dx(x: Array, dy: Array, axes: Array, images: Array, dx: Array, products: bool, runner: Runner) -> bool:
    """Fill dx. Whether there was no memory left to work in."""
    number = accumulator(dx)
    _, channels, height, width = dx.shape
    plane = height * width * number.itemsize if dx.dtype != number else 0
    blocks = max(blocks_of(channels, len(dx)), min(channels, plane * channels // MOST_BYTES + 1))
    workers = workers_of(len(dx) * blocks, plane * -(-channels // blocks))
    return _dx(*runner, workers, blocks, dy, axes, images, x, dx, products)


def maximum_rois_drois(
    x: Array, dy: Array, axes: Array, images: Array, drois: Array, products: bool, runner: Runner
) -> bool:
    """Fill drois [R, 4]. Whether there was no memory left to work in."""
    parts = np.zeros(drois.shape)
    failed = _drois(*runner, dy, axes, images, x, parts, products)
    drois[...] = parts
    return failed


@njit(**INNER)
def _candidates(pair: Array, y: Array, x: Array) -> tuple[Candidates, Candidates]:
    rows = candidates_of(axis_of(pair[0], y.shape[2]), x.shape[2])
    return rows, candidates_of(axis_of(pair[1], y.shape[3]), x.shape[3])


@njit(**INNER)
def _rois_task(
    workers: int,
    blocks: int,
    x: Array,
    axes: Array,
    images: Array,
    y: Array,
    outside: float,
    products: bool,
    dtype: Any,
    worker: int,
) -> None:
    _, channels, height, width = x.shape
    bins, runs = y.shape[2] * y.shape[3], np.empty((width // 2 + 1, 2), np.int64)
    flat_x, flat_y = x.reshape(x.size), y.reshape(y.size)
    panel, panel_line, panel_best = room(0, dtype), room(width, dtype), room(bins, dtype)
    line, best = panel_line[:width], panel_best[:bins].reshape(y.shape[2], y.shape[3])
    no_samples = np.zeros((2, NUMBERS))
    for index in range(worker, len(axes) * blocks, workers):
        r, block = index // blocks, index % blocks
        low, high = block_of(channels, blocks, block)
        of_products, of_samples = (axes[r], no_samples) if products else (no_samples, axes[r])
        rows, columns = _candidates(of_samples, y, x)
        tall = extremes_of(axis_of(of_products[0], y.shape[2]), height, dtype)
        wide = extremes_of(axis_of(of_products[1], y.shape[3]), width, dtype)
        if products:
            window = window_of(span_of_weights(tall), span_of_weights(wide), width)
        else:
            window = window_of(span_of_candidates(rows), span_of_candidates(columns), width)
        if is_packed(window, high - low):
            move_candidates(rows, window.top)
            move_candidates(columns, window.left)
            move_weights(tall, window.top)
            move_weights(wide, window.left)
            if panel.size < window.height * window.width * LANES:
                panel = room(window.height * window.width, dtype)
            for c in range(low, high, LANES):
                lanes = min(LANES, high - c)
                at = ((images[r] * channels + c) * height + window.top) * width + window.left
                pack(flat_x, at, height * width, lanes, width, window.height, window.width, panel)
                if products:
                    largest_product_panel(panel, window.width, tall, wide, runs, panel_line, panel_best)
                else:
                    largest_sample_panel(panel, window.width, rows, columns, outside, panel_best)
                unpack(panel_best, bins, flat_y, (r * channels + c) * bins, bins, lanes)
        else:
            for c in range(low, high):
                if products:
                    largest_product(x[images[r], c], tall, wide, line, best)
                else:
                    largest_sample(x[images[r], c], rows, columns, outside, best)
                round_at(best, flat_y, (r * channels + c) * bins)


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
    products: bool,
    dtype: Any,
) -> bool:
    args = (workers, blocks, x, axes, images, y, outside, products, dtype)
    return parallel_for(runner, context, workers, _rois_task, args)


@njit(**INNER)
def _panels_task(
    workers: int,
    panels: int,
    x: Array,
    axes: Array,
    images: Array,
    y: Array,
    outside: float,
    products: bool,
    every_row: RoiTables,
    every_column: RoiTables,
    dtype: Any,
    worker: int,
) -> None:
    _, channels, height, width = x.shape
    pixels, bins, runs = height * width, y.shape[2] * y.shape[3], np.empty((width // 2 + 1, 2), np.int64)
    flat_x, flat_y = x.reshape(x.size), y.reshape(y.size)
    panel, line, best = room(pixels, dtype), room(width, dtype), room(bins, dtype)
    for index in range(worker, len(x) * panels, workers):
        image, channel = index // panels, index % panels * LANES
        lanes = min(LANES, channels - channel)
        pack(flat_x, (image * channels + channel) * pixels, pixels, lanes, 0, 1, pixels, panel)
        for r in range(len(axes)):
            if images[r] != image:
                continue
            at = (r * channels + channel) * bins
            fetch_to_write(flat_y, at, bins * lanes)
            if products:
                tall = extremes_of_roi(every_row, r, axes[r, 0], y.shape[2], height, dtype)
                wide = extremes_of_roi(every_column, r, axes[r, 1], y.shape[3], width, dtype)
                largest_product_panel(panel, width, tall, wide, runs, line, best)
            else:
                rows, columns = _candidates(axes[r], y, x)
                largest_sample_panel(panel, width, rows, columns, outside, best)
            unpack(best, bins, flat_y, at, bins, lanes)


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
    products: bool,
    rows: RoiTables,
    columns: RoiTables,
    dtype: Any,
) -> bool:
    args = (workers, panels, x, axes, images, y, outside, products, rows, columns, dtype)
    return parallel_for(runner, context, workers, _panels_task, args)


@njit(**INNER)
def _dx_task(
    workers: int,
    blocks: int,
    dy: Array,
    axes: Array,
    images: Array,
    x: Array,
    dx: Array,
    products: bool,
    worker: int,
) -> None:
    _, channels, height, width = dx.shape
    unwanted = np.empty(0, np.float64)
    for index in range(worker, len(dx) * blocks, workers):
        image, block = index // blocks, index % blocks
        low, high = block_of(channels, blocks, block)
        own = dx[image, low:high].reshape((high - low) * height, width)
        sums = sums_for(own)
        for r in range(len(axes)):
            if images[r] == image:
                rows, columns = _candidates(axes[r], dy, dx)
                for c in range(low, high):
                    plane = sums[(c - low) * height : (c - low + 1) * height]
                    add_maximum_gradient(x[image, c], dy[r, c], rows, columns, products, plane, unwanted)
        round_sums(sums, own)


@cached
def _dx(
    runner: int,
    context: int,
    workers: int,
    blocks: int,
    dy: Array,
    axes: Array,
    images: Array,
    x: Array,
    dx: Array,
    products: bool,
) -> bool:
    args = (workers, blocks, dy, axes, images, x, dx, products)
    return parallel_for(runner, context, workers, _dx_task, args)


@njit(**INNER)
def _drois_task(dy: Array, axes: Array, images: Array, x: Array, parts: Array, products: bool, r: int) -> None:
    rows, columns = _candidates(axes[r], dy, x)
    unwanted = np.empty((0, 0), np.float64)
    for c in range(x.shape[1]):
        add_maximum_gradient(x[images[r], c], dy[r, c], rows, columns, products, unwanted, parts[r])


@cached
def _drois(
    runner: int, context: int, dy: Array, axes: Array, images: Array, x: Array, parts: Array, products: bool
) -> bool:
    return parallel_for(runner, context, len(axes), _drois_task, (dy, axes, images, x, parts, products))
