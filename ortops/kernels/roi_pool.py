"""Pooling over RoIs and its gradients: choose the compiled functions of each mode and element type, and call the drivers.

The drivers (`gather`, `scatter`, `maximum_gradient`) and what fills tables are compiled once. Drivers
get the addresses of the functions that load and store elements, compiled for each element type, and of the arithmetic,
compiled for float and double, and for each type where it reads single planes.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ortops.kernels.jit.kernel import Array, Kernel
from ortops.kernels.jit.runners import Runner
from ortops.kernels.layout import (
    CANDIDATES,
    DOUBLE,
    EXTREMES,
    PIXELS,
    WEIGHTS,
    Form,
    PlacedRois,
    Planning,
)
from ortops.kernels.stages import Functions, Stage, address, by_source, elements, kind_of, values_of

_gather, _scatter = Kernel("gather", "gather"), Kernel("scatter", "scatter")
_maximum_dx = Kernel("maximum_gradient", "maximum_dx")

MAX_PIXELS, MAX_MAPS = 1 << 26, 16
"""The most pixels to read and bins to fill, or maps if these have more pixels, in a call of a kernel for several RoIs.

A kernel may pool all RoIs of an image in one task, during which no signal handler runs.
"""


class _Mode(NamedTuple):
    """A way to pool: the form of its tables, and the module and the name of its arithmetic."""

    form: int
    module: str
    name: str


_MODES = {
    "avg": _Mode(WEIGHTS, "average", "average"),
    "max": _Mode(EXTREMES, "maximum", "max_corner"),
    "max_interpolated": _Mode(CANDIDATES, "maximum", "max_sample"),
    "max_pixel": _Mode(PIXELS, "maximum", "max_pixel"),
}


def pool(x: Array, placed: PlacedRois, y: Array, mode: str, runner: Runner, outside: float = 0.0) -> None:
    """Fill y [R, C, PH, PW] from x [N, C, H, W].

    Args:
        x: the feature maps.
        placed: the RoIs with their samples.
        y: the output.
        mode: "avg", "max" (of weighted corners), "max_interpolated" or "max_pixel".
        runner: the runner of the tasks (`jit.runners`).
        outside: the value of samples off the map, and of bins without pixels.

    Raises:
        MemoryError: the workspace cannot be allocated.
    """
    if y.size:
        functions = _pooling(mode, kind_of(x))
        for part, placed_part in _parts(placed):
            output = elements(y[part])
            functions.call(_gather, elements(x), output, output, placed_part, after=(outside, *runner))


def pool_gradient(
    dy: Array, placed: PlacedRois, x: Array | None, dx: Array | None, drois: Array | None, mode: str, runner: Runner
) -> None:
    """Fill dx [N, C, H, W] and drois [R, 4], unless they are None, from dy [R, C, PH, PW] and x.

    The dx of "avg" does not need x. The mode "max_pixel" has no drois.

    Raises:
        MemoryError: the workspace cannot be allocated.
    """
    parts = _parts(placed)
    if dx is not None and dx.size:
        _add_up_dx(dy, parts, x, dx, mode, runner)
    if x is not None and drois is not None and drois.size:
        functions = _of_drois(mode, kind_of(dy))
        with rounded_once(drois) as sums:
            for part, placed_part in parts:
                arrays = elements(x), elements(dy[part]), elements(sums[part])
                functions.call(_gather, *arrays, placed_part, after=(float(mode == "max"), *runner))


def _add_up_dx(dy: Array, parts: list[_Part], x: Array | None, dx: Array, mode: str, runner: Runner) -> None:
    """Fill dx as `pool_gradient`. The sums of several parts are added in float32 at least, and rounded once."""
    total = dx
    if len(parts) > 1 and dx.dtype.itemsize < 4:
        dy, x = dy.astype(np.float32), x if x is None or mode == "avg" else x.astype(np.float32)
        total = np.empty(dx.shape, np.float32)
    functions = _of_dx(mode, kind_of(dy))
    kernel, after = (_scatter, runner) if mode in ("avg", "max_pixel") else (_maximum_dx, (mode == "max", *runner))
    maps = elements(dx if x is None or mode == "avg" else x)  # averages do not read them
    sums = total
    for part, placed in parts:
        functions.call(kernel, maps, elements(dy[part]), elements(sums), placed, after=after)
        if sums is not total:
            total += sums
        elif len(parts) > 1:
            sums = np.empty_like(total)
    if total is not dx:
        with np.errstate(over="ignore"):
            dx[...] = total


_Part = tuple[slice, PlacedRois]


def _parts(placed: PlacedRois) -> list[_Part]:
    """Slices of the RoIs, each for a call of a kernel, so that Python runs signal handlers in between."""
    images, _, height, width, rois, bins_y, bins_x = placed.shape
    bins = bins_y * bins_x
    if rois * (height * width + bins) <= MAX_PIXELS:  # a shortcut for most calls, which take tens of microseconds
        return [(slice(None), placed)]
    most = max(MAX_PIXELS, MAX_MAPS * images * height * width)
    work = (placed.spans.prod(1) + bins).cumsum()
    parts: list[_Part] = []
    begin, done = 0, 0
    while begin < rois:
        end = max(int(np.searchsorted(work, done + most, "right")), begin + 1)
        part = slice(begin, end)
        shape = placed.shape._replace(rois=end - begin)
        parts.append((part, PlacedRois(shape, placed.axes[part], placed.spans[part], placed.batch_indices[part])))
        begin, done = end, int(work[end - 1])
    return parts


@functools.cache
def _pooling(mode: str, kind: int) -> Functions:
    of = _MODES[mode]
    return Functions(_form(of.form, False, kind), *by_source(of.module, f"{of.name}_of", kind), kind)


@functools.cache
def _of_dx(mode: str, kind: int) -> Functions:
    if mode == "avg":
        return Functions(_form(WEIGHTS, False, kind), *by_source("average", "add_gradient_to", values_of(kind)), kind)
    if mode == "max_pixel":
        return Functions(_form(PIXELS, False, kind), *by_source("pixel_bins", "add_to_argmax_of", kind), kind)
    find, add = Stage("argmax", "argmax_of_panel", values_of(kind)), Stage("argmax", "add_to_dx", kind)
    return Functions(_form(CANDIDATES, False, kind), find, add, kind)


@functools.cache
def _of_drois(mode: str, kind: int) -> Functions:
    if mode == "avg":
        return Functions(_form(WEIGHTS, True, kind), *by_source("average", "add_box_gradient_of", kind), kind)
    return Functions(_form(CANDIDATES, True, kind), *by_source("argmax", "add_drois_of", kind), kind)


def _form(kind: int, with_grad: bool, element: int) -> Form:
    planning = Planning(address("roi_tables", "share"), address("roi_tables", _FILL[kind]), 0, 0)
    return Form(kind, int(with_grad), DOUBLE if kind == CANDIDATES else values_of(element), planning)


_FILL = {
    WEIGHTS: "fill_with_weights",
    EXTREMES: "fill_with_extremes",
    CANDIDATES: "fill_with_candidates",
    PIXELS: "fill_with_pixels",
}


@contextlib.contextmanager
def rounded_once(drois: Array) -> Iterator[Array]:
    """Yield an array for a kernel to fill, and copy it to drois: float64 for the 16-bit types, else drois itself.

    A kernel would round its float64 sums to float32 first and then to 16 bits.
    """
    sums = drois if drois.dtype.itemsize >= 4 else np.empty(drois.shape)
    yield sums
    if sums is not drois:
        with np.errstate(over="ignore"):
            drois[...] = sums
