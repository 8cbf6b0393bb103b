"""Pooling over RoIs and its gradients: choose the compiled functions of each mode and element type, and call the drivers.

The drivers (`gather`, `scatter`, `maximum_gradient`) and what fills tables are compiled once. Drivers
get the addresses of the functions that load and store elements, compiled for each element type, and of the arithmetic,
compiled for float and double, and for each type where it reads single planes.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from ortops.kernels.jit.kernel import Array, Kernel
from ortops.kernels.jit.runners import Runner
from ortops.kernels.jit.source import Unimported
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
from ortops.kernels.stages import Functions, address, elements, kind_of, pair, values_of

if TYPE_CHECKING:
    from ortops.kernels import argmax, average, gather, maximum, maximum_gradient, pixel_bins, roi_tables, scatter
else:
    argmax, average, maximum = map(Unimported, ("kernels.argmax", "kernels.average", "kernels.maximum"))
    gather, maximum_gradient = Unimported("kernels.gather"), Unimported("kernels.maximum_gradient")
    pixel_bins, roi_tables = Unimported("kernels.pixel_bins"), Unimported("kernels.roi_tables")
    scatter = Unimported("kernels.scatter")

_gather, _scatter = Kernel(gather.gather), Kernel(scatter.scatter)
_maximum_dx = Kernel(maximum_gradient.maximum_dx)

MAX_PIXELS, MAX_MAPS = 1 << 26, 16
"""The most pixels to read and bins to fill, or maps if these have more pixels, in a call of a kernel for several RoIs.

A kernel may pool all RoIs of an image in one task, during which no signal handler runs.
"""


Mode: TypeAlias = Literal["avg", "max", "max_interpolated", "max_pixel"]
"""What is pooled: an average, the largest weighted corner, the largest sample, or the largest pixel."""


class _Arithmetic(NamedTuple):
    """The form of the tables, and the functions that apply them to panels and to planes."""

    form: int
    panel: Any
    plane: Any


_Y: Mapping[Mode, _Arithmetic] = {
    "avg": _Arithmetic(WEIGHTS, average.average_of_panel, average.average_of_plane),
    "max": _Arithmetic(EXTREMES, maximum.max_corner_of_panel, maximum.max_corner_of_plane),
    "max_interpolated": _Arithmetic(CANDIDATES, maximum.max_sample_of_panel, maximum.max_sample_of_plane),
    "max_pixel": _Arithmetic(PIXELS, maximum.max_pixel_of_panel, maximum.max_pixel_of_plane),
}
_DX: Mapping[Mode, _Arithmetic] = {
    "avg": _Arithmetic(WEIGHTS, average.add_gradient_to_panel, average.add_gradient_to_plane),
    "max": _Arithmetic(CANDIDATES, argmax.argmax_of_panel, argmax.add_to_dx),
    "max_interpolated": _Arithmetic(CANDIDATES, argmax.argmax_of_panel, argmax.add_to_dx),
    "max_pixel": _Arithmetic(PIXELS, pixel_bins.add_to_argmax_of_panel, pixel_bins.add_to_argmax_of_plane),
}
_DROIS: Mapping[Mode, _Arithmetic] = {
    "avg": _Arithmetic(WEIGHTS, average.add_box_gradient_of_panel, average.add_box_gradient_of_plane),
    "max": _Arithmetic(CANDIDATES, argmax.add_drois_of_panel, argmax.add_drois_of_plane),
    "max_interpolated": _Arithmetic(CANDIDATES, argmax.add_drois_of_panel, argmax.add_drois_of_plane),
}

_FILL = {
    WEIGHTS: roi_tables.fill_with_weights,
    EXTREMES: roi_tables.fill_with_extremes,
    CANDIDATES: roi_tables.fill_with_candidates,
    PIXELS: roi_tables.fill_with_pixels,
}


@functools.cache
def _functions(arithmetic: _Arithmetic, kind: int, with_grad: bool = False) -> Functions:
    """The functions of a driver for an element type. With with_grad, tables have derivatives by the RoIs' coordinates."""
    form, panel, plane = arithmetic
    planning = Planning(address(roi_tables.share), address(_FILL[form]), 0, 0)
    numbers = DOUBLE if form == CANDIDATES else values_of(kind)
    # dX of an average does not read the maps, so that its planes have values of the compute type.
    of = values_of(kind) if arithmetic is _DX["avg"] else kind
    return Functions(Form(form, int(with_grad), numbers, planning), *pair(panel, plane, of), kind)


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
        functions = _functions(_Y[mode], kind_of(x))
        for part, placed_part in _parts(placed):
            output = elements(y[part])
            functions.call(_gather, elements(x), output, output, placed_part, after=(outside, *runner))


def pool_gradient(
    dy: Array, placed: PlacedRois, x: Array | None, dx: Array | None, drois: Array | None, mode: Mode, runner: Runner
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
        functions = _functions(_DROIS[mode], kind_of(dy), with_grad=True)
        with rounded_once(drois) as sums:
            for part, placed_part in parts:
                arrays = elements(x), elements(dy[part]), elements(sums[part])
                functions.call(_gather, *arrays, placed_part, after=(float(mode == "max"), *runner))


def _add_up_dx(dy: Array, parts: list[_Part], x: Array | None, dx: Array, mode: Mode, runner: Runner) -> None:
    """Fill dx as `pool_gradient`. The sums of several parts are added in float32 at least, and rounded once."""
    total = dx
    if len(parts) > 1 and dx.dtype.itemsize < 4:
        dy, x = dy.astype(np.float32), x if x is None or mode == "avg" else x.astype(np.float32)
        total = np.empty(dx.shape, np.float32)
    functions = _functions(_DX[mode], kind_of(dy))
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
