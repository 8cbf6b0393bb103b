"""Pooling over RoIs and its gradients: choose the compiled functions of each mode and element type, and call the drivers.

The drivers (`gather`, `scatter`) and what fills tables are compiled once. Drivers get the addresses of the functions that
load and store elements, compiled for each element type, and of the arithmetic, compiled for float and double, and for each
type where it reads single planes.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from ortops.jit.elements import DOUBLE
from ortops.jit.kernel import Array, Kernel
from ortops.jit.runners import Runner
from ortops.jit.source import Function, Unimported
from ortops.kernels import rotated_pool
from ortops.kernels.drivers import NO_FUNCTIONS, Driver, address, elements, kind_of, values_of
from ortops.kernels.layout import CANDIDATES, EXTREMES, LISTS, PIXELS, WEIGHTS, Form, PlacedRois

if TYPE_CHECKING:
    from ortops.kernels import argmax, average, gather, maximum, pixel_bins, roi_tables, rotated, scatter
    from ortops.kernels.functions import AddingToDrois, AddingToDx, Filling, Pooling
else:
    argmax, average, maximum = map(Unimported, ("kernels.argmax", "kernels.average", "kernels.maximum"))
    gather, pixel_bins = Unimported("kernels.gather"), Unimported("kernels.pixel_bins")
    roi_tables, rotated = Unimported("kernels.roi_tables"), Unimported("kernels.rotated")
    scatter = Unimported("kernels.scatter")

_gather, _gather_drois, _scatter = Kernel(gather.gather), Kernel(gather.gather_drois), Kernel(scatter.scatter)

MAX_PIXELS, MAX_MAPS = 1 << 26, 16
"""The most pixels to read and bins to fill, or maps if these have more pixels, in a call of a kernel for several RoIs.

A kernel may pool all RoIs of an image in one task, during which no signal handler runs.
"""


Mode: TypeAlias = Literal["avg", "max", "max_interpolated", "max_pixel", "avg_rotated"]
"""What is pooled: an average, the largest weighted corner, the largest sample, the largest pixel, or an average over rotated
RoIs."""


_POOLING: Mapping[Mode, tuple[int, Pooling]] = {
    "avg": (WEIGHTS, average.average),
    "max": (EXTREMES, maximum.max_corner),
    "max_interpolated": (CANDIDATES, maximum.max_sample),
    "max_pixel": (PIXELS, maximum.max_pixel),
    "avg_rotated": (LISTS, rotated.average),
}
"""The form of the tables, and the function that applies them to panels and to planes."""

_ADDING_TO_DX: Mapping[Mode, tuple[int, AddingToDx]] = {
    "avg": (WEIGHTS, average.add_gradient),
    "max": (CANDIDATES, argmax.add_to_max_corner),
    "max_interpolated": (CANDIDATES, argmax.add_to_max_sample),
    "max_pixel": (PIXELS, pixel_bins.add_to_argmax),
    "avg_rotated": (LISTS, rotated.add_gradient),
}
_ADDING_TO_DROIS: Mapping[Mode, tuple[int, AddingToDrois]] = {
    "avg": (WEIGHTS, average.add_box_gradient),
    "max": (CANDIDATES, argmax.add_drois_of_max_corner),
    "max_interpolated": (CANDIDATES, argmax.add_drois_of_max_sample),
}

_READ_MAPS = ("max", "max_interpolated", "max_pixel")
"""The modes whose dX depends on the maps."""

_FILL: Mapping[int, Filling] = {
    WEIGHTS: roi_tables.fill_with_weights,
    EXTREMES: roi_tables.fill_with_extremes,
    CANDIDATES: roi_tables.fill_with_candidates,
    PIXELS: roi_tables.fill_with_pixels,
}


@functools.cache
def _gather_of(mode: Mode, kind: int) -> Driver:
    return _driver(_gather, *_POOLING[mode], kind, kind)


@functools.cache
def _scatter_of(mode: Mode, kind: int) -> Driver:
    # An average does not read the maps, so that its planes have values of the compute type.
    return _driver(_scatter, *_ADDING_TO_DX[mode], kind, kind if mode in _READ_MAPS else values_of(kind))


@functools.cache
def _gather_drois_of(mode: Mode, kind: int) -> Driver:
    return _driver(_gather_drois, *_ADDING_TO_DROIS[mode], kind, kind, with_grad=True)


def _driver(
    kernel: Kernel, form: int, arithmetic: Function, kind: int, of_planes: int, with_grad: bool = False
) -> Driver:
    """A driver for an element type. With with_grad, tables have derivatives by the RoIs' coordinates."""
    if form == LISTS:
        functions = rotated_pool.functions_for_lists()
    else:
        functions = NO_FUNCTIONS._replace(share=address(roi_tables.share), fill=address(_FILL[form]))
    numbers = DOUBLE if form == CANDIDATES else values_of(kind)
    return Driver(kernel, Form(form, int(with_grad), numbers), functions, arithmetic, kind, of_planes)


def pool(x: Array, placed: PlacedRois, y: Array, mode: Mode, runner: Runner, outside: float = 0.0) -> None:
    """Fill y [R, C, PH, PW] from x [N, C, H, W].

    Args:
        x: the feature maps.
        placed: the RoIs with their samples.
        y: the output.
        mode: what is pooled.
        runner: the runner of the tasks (`jit.runners`).
        outside: the value of samples off the map, and of bins without pixels.

    Raises:
        MemoryError: the workspace cannot be allocated.
    """
    if y.size:
        driver = _gather_of(mode, kind_of(x))
        for part, placed_part in _parts(placed, mode, kind_of(x)):
            driver(elements(x), elements(y[part]), placed_part, after=(outside, *runner))


def pool_gradient(
    dy: Array, placed: PlacedRois, x: Array | None, dx: Array | None, drois: Array | None, mode: Mode, runner: Runner
) -> None:
    """Fill dx [N, C, H, W] and drois [R, 4] or [R, 5], unless they are None, from dy [R, C, PH, PW] and x.

    The dx of averages does not need x. The mode "max_pixel" has no drois.

    Raises:
        MemoryError: the workspace cannot be allocated.
    """
    if dx is not None and dx.size:
        _add_up_dx(dy, placed, x if mode in _READ_MAPS else None, dx, mode, runner)
    if x is None or drois is None or not drois.size:
        return
    if mode == "avg_rotated":
        rotated_pool.add_up_drois(dy, placed, x, drois, runner)
    else:
        driver = _gather_drois_of(mode, kind_of(dy))
        with _rounded_once(drois, placed.shape.interleaved) as sums:
            for part, placed_part in _parts(placed, mode, kind_of(dy)):
                arrays = elements(x), elements(dy[part]), elements(sums[part])
                driver(*arrays, placed_part, after=runner)


def _add_up_dx(dy: Array, placed: PlacedRois, x: Array | None, dx: Array, mode: Mode, runner: Runner) -> None:
    """Fill dx as `pool_gradient`. The sums of several parts are added in float32 at least, and rounded once."""
    parts, total = _parts(placed, mode, kind_of(dy)), dx
    if len(parts) > 1 and dx.dtype.itemsize < 4:
        dy, x = dy.astype(np.float32), None if x is None else x.astype(np.float32)
        total = np.empty(dx.shape, np.float32)
    driver = _scatter_of(mode, kind_of(dy))
    maps = elements(dx if x is None else x)  # averages do not read them
    sums = total
    for part, placed_part in parts:
        driver(maps, elements(dy[part]), elements(sums), placed_part, after=runner)
        if sums is not total:
            total += sums
        elif len(parts) > 1 and mode != "avg_rotated":  # whose parts add to the sums themselves
            sums = np.empty_like(total)
    if total is not dx:
        with np.errstate(over="ignore"):
            dx[...] = total


_Part = tuple[slice, PlacedRois]


def _parts(placed: PlacedRois, mode: Mode, kind: int) -> list[_Part]:
    """Slices of the RoIs, each for a call of a kernel, so that Python runs signal handlers in between."""
    if mode == "avg_rotated":
        return [(slice(None), part) for part in rotated_pool.parts_of(placed, 1, values_of(kind))]
    images, _, height, width, rois, bins_y, bins_x, turns = placed.shape
    bins = bins_y * bins_x
    if rois * (height * width + bins) <= MAX_PIXELS:  # a shortcut for most calls, which take tens of microseconds
        return [(slice(None), placed)]
    most = max(MAX_PIXELS, MAX_MAPS * images * height * width)
    arrays: Any = placed  # type checkers take them for pointers
    # If bins are RoIs, rows of the output have `turns` of them, which stay together.
    work = (arrays.spans.prod(1) + bins).reshape(-1, turns).sum(1).cumsum()
    parts: list[_Part] = []
    begin, done = 0, 0
    while begin < len(work):
        end = max(int(np.searchsorted(work, done + most, "right")), begin + 1)
        part, count = slice(begin * turns, end * turns), (end - begin) * turns
        fields = {name: getattr(placed, name)[part] for name in ("axes", "spans", "batch_indices")}
        shape, whole = placed.shape._replace(rois=count), placed.part._replace(end=count)
        parts.append((slice(begin, end), placed._replace(shape=shape, part=whole, **fields)))
        begin, done = end, int(work[end - 1])
    return parts


@contextlib.contextmanager
def _rounded_once(drois: Array, bins: int) -> Iterator[Array]:
    """Yield an array for a kernel to fill, and copy it to drois: float64 for the 16-bit types, else drois itself.

    A kernel would round its float64 sums to float32 first and then to 16 bits. If there are several bins that are RoIs, the
    array has a row for each of them, which are then added.
    """
    if bins == 1 and drois.dtype.itemsize >= 4:
        yield drois
        return
    sums = np.empty((len(drois), bins, drois.shape[1]))
    yield sums
    with np.errstate(over="ignore", invalid="ignore"):
        drois[...] = sums[:, 0] if bins == 1 else sums.sum(1)
