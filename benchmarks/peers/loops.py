"""Rotated RoIs by plain loops, compiled by numba: the pixels and weights of each sample first, then channel by channel.

The CPU kernels of mmcv and detectron2 work in the same way. Threads share the RoIs; for dX, the channels.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import ceil, cos, sin
from typing import Any

import numpy as np
from numba import njit

from benchmarks.bench import Call
from benchmarks.workloads import Array, Problem, Rotated

_TYPES = ("float", "double")

_compiled: Callable[[Any], Any] = njit(nogil=True)


def prepare(problem: Problem, threads: int) -> Call | None:
    """Return a call for Y or dX of rotated RoIs."""
    workload, arrays, outputs = problem.workload, problem.arrays, problem.operation.outputs
    if not isinstance(workload, Rotated) or problem.element_type not in _TYPES or outputs == ("drois",):
        return None
    rois, batch_indices = arrays["rois"].astype(np.float64), arrays["batch_indices"]
    loops, given, parts = (_forward, arrays["X"], workload.rois)
    shape = (workload.rois, workload.shape[1], workload.bins, workload.bins)
    if outputs == ("dX",):
        loops, given, parts, shape = _backward, arrays["dY"], workload.shape[1], workload.shape
    result = np.empty(shape, given.dtype)

    def part(k: int) -> None:
        first, last = parts * k // threads, parts * (k + 1) // threads
        loops(given, rois, batch_indices, workload.spatial_scale, workload.sampling_ratio, result, first, last)

    def run() -> Array:
        if threads == 1:
            part(0)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(part, range(threads)))
        return result

    return Call(run, lambda answer: [answer])


@_compiled
def _samples(roi: Any, scale: float, ratio: int, bins: int, height: int, width: int, like: Any) -> Any:
    """Return the pixels and weights of all samples [bins*bins, samples, 4], with weights of 0 off the map."""
    tall, wide = roi[3] * scale, roi[2] * scale
    rows = ratio if ratio > 0 else ceil(tall / bins)
    columns = ratio if ratio > 0 else ceil(wide / bins)
    c, s = cos(roi[4]), sin(roi[4])
    pixels = np.zeros((bins * bins, rows * columns, 4), np.int64)
    weights = np.zeros((bins * bins, rows * columns, 4), like.dtype)
    for i in range(bins * rows):
        v = tall * ((i + 0.5) / (bins * rows) - 0.5)
        for j in range(bins * columns):
            u = wide * ((j + 0.5) / (bins * columns) - 0.5)
            x, y = roi[0] * scale - 0.5 + u * c + v * s, roi[1] * scale - 0.5 + v * c - u * s
            if x < -1 or x > width or y < -1 or y > height:
                continue
            x, y = min(max(x, 0.0), width - 1.0), min(max(y, 0.0), height - 1.0)
            left, top = int(x), int(y)
            right, bottom = min(left + 1, width - 1), min(top + 1, height - 1)
            at, n = i // rows * bins + j // columns, i % rows * columns + j % columns
            pixel, weight = pixels[at, n], weights[at, n]
            pixel[0], pixel[1] = top * width + left, top * width + right
            pixel[2], pixel[3] = bottom * width + left, bottom * width + right
            weight[0], weight[1] = (1 - y + top) * (1 - x + left), (1 - y + top) * (x - left)
            weight[2], weight[3] = (y - top) * (1 - x + left), (y - top) * (x - left)
    return pixels, weights


@_compiled
def _forward(x: Any, rois: Any, batch_indices: Any, scale: float, ratio: int, y: Any, first: int, last: int) -> None:
    """Compute Y of the RoIs first:last."""
    channels, height, width = x.shape[1:]
    planes = x.reshape(-1, channels, height * width)
    for r in range(first, last):
        pixels, weights = _samples(rois[r], scale, ratio, y.shape[3], height, width, x)
        bins, count, _ = pixels.shape
        for channel in range(channels):
            plane, target = planes[batch_indices[r], channel], y[r, channel].reshape(-1)
            for b in range(bins):
                total = x.dtype.type(0)
                for n in range(count):
                    pixel, weight = pixels[b, n], weights[b, n]
                    total += weight[0] * plane[pixel[0]] + weight[1] * plane[pixel[1]]
                    total += weight[2] * plane[pixel[2]] + weight[3] * plane[pixel[3]]
                target[b] = total / max(count, 1)


@_compiled
def _backward(dy: Any, rois: Any, batch_indices: Any, scale: float, ratio: int, dx: Any, first: int, last: int) -> None:
    """Compute the channels first:last of dX."""
    _, channels, height, width = dx.shape
    planes = dx.reshape(-1, channels, height * width)
    planes[:, first:last] = 0
    for r in range(len(rois)):
        pixels, weights = _samples(rois[r], scale, ratio, dy.shape[3], height, width, dx)
        bins, count, _ = pixels.shape
        for channel in range(first, last):
            plane, source = planes[batch_indices[r], channel], dy[r, channel].reshape(-1)
            for b in range(bins):
                g = dy.dtype.type(source[b] / max(count, 1))
                for n in range(count):
                    pixel, weight = pixels[b, n], weights[b, n]
                    for k in range(4):
                        plane[pixel[k]] += g * weight[k]
