"""Average pooling over rotated RoIs and its gradients, in batches of RoIs: call the drivers of `rotated`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from ortops.jit.elements import DOUBLE
from ortops.jit.kernel import Array, Kernel
from ortops.jit.runners import Runner
from ortops.jit.source import Function, Unimported
from ortops.kernels.layout import BLOCK_CHANNELS, Batch, Making, RotatedRois
from ortops.kernels.stages import (
    CHUNKS,
    Functions,
    address,
    check_status,
    elements,
    for_both,
    kind_of,
    storage,
    values_of,
)

if TYPE_CHECKING:
    from ortops.kernels import rotated, rotated_tables
else:
    rotated, rotated_tables = Unimported("kernels.rotated"), Unimported("kernels.rotated_tables")

_average, _dx, _drois = Kernel(rotated.rotated_average), Kernel(rotated.rotated_dx), Kernel(rotated.rotated_drois)

MAX_BATCH_BYTES = 16 << 20
"""The most bytes of a batch's tables, which all panels of channels share, unless a single bin takes more."""


def _making() -> Making:
    return Making(address(rotated_tables.make), address(CHUNKS))


@functools.cache
def _functions(function: Function, kind: int) -> Functions:
    return Functions(_making(), *for_both(function, kind), kind)


def pool(x: Array, placed: RotatedRois, y: Array, runner: Runner) -> None:
    """Fill y [R, C, PH, PW] from x [N, C, H, W].

    Raises:
        MemoryError: a workspace or tables cannot be allocated.
    """
    if y.size:
        functions = _functions(rotated.average, kind_of(x))
        for batch in _batches(placed, 1, values_of(kind_of(x))):
            functions.call(_average, elements(x), elements(y), batch, after=runner)


def pool_gradient(
    dy: Array, placed: RotatedRois, x: Array | None, dx: Array | None, drois: Array | None, runner: Runner
) -> None:
    """Fill dx [N, C, H, W] and drois [R, 5], unless they are None, from dy [R, C, PH, PW] and, for drois, x.

    Raises:
        MemoryError: a workspace or tables cannot be allocated.
    """
    if dx is not None and dx.size:
        _add_up_dx(dy, placed, dx, runner)
    if x is not None and drois is not None and drois.size:
        # Each block of channels has sums of its own, which are then added in the order of the blocks.
        parts = np.zeros((-(-x.shape[1] // BLOCK_CHANNELS), *drois.shape))
        storing, add = storage(kind_of(dy)), address(rotated.add_products, kind_of(dy))
        for batch in _batches(placed, drois.shape[1], DOUBLE):
            arrays = elements(x), elements(dy), parts
            check_status(_drois(*arrays, batch, _making(), storing, add, *runner))
        with np.errstate(over="ignore"):
            drois[...] = sum(parts, np.zeros(drois.shape))


def _add_up_dx(dy: Array, placed: RotatedRois, dx: Array, runner: Runner) -> None:
    """Fill dx. The sums of several batches are added in float32 at least, and rounded once."""
    batches, total = _batches(placed, 1, values_of(kind_of(dy))), dx
    if not batches:
        dx[...] = 0
    if len(batches) > 1 and dx.dtype.itemsize < 4:
        dy, total = dy.astype(np.float32), np.empty(dx.shape, np.float32)
    functions = _functions(rotated.add_gradient, kind_of(dy))
    for batch in batches:
        functions.call(_dx, elements(dy), elements(total), batch, after=runner)
    if total is not dx:
        with np.errstate(over="ignore"):
            dx[...] = total


def _batches(placed: RotatedRois, values: int, numbers: int) -> list[Batch]:
    """Split the RoIs into batches, whose tables take the same memory in turn. Python runs signal handlers in between."""
    arrays: Any = placed  # type checkers take them for pointers
    shape, indices = placed.placed.shape, arrays.placed.batch_indices
    order, bins = np.argsort(indices, kind="stable"), shape.bins_y * shape.bins_x
    images = np.searchsorted(indices[order], np.arange(shape.images + 1))
    pixels = arrays.max_pixels[order]
    bytes_of_bin = pixels * float(8 + (values << numbers)) + 8.0  # FLOAT and DOUBLE take 4 and 8 bytes
    bytes_until = (bytes_of_bin * bins).cumsum()
    ranges: list[tuple[int, int, int, int]] = []
    begin, done = 0, 0.0
    while begin < shape.rois:
        end, step = int(np.searchsorted(bytes_until, done + MAX_BATCH_BYTES, "right")), bins
        if end == begin:
            end, step = begin + 1, max(int(MAX_BATCH_BYTES / bytes_of_bin[begin]), 1)
        ranges += [(begin, end, low, min(low + step, bins)) for low in range(0, bins, step)]
        begin, done = end, float(bytes_until[end - 1])
    entries = [int(pixels[begin:end].sum()) * (high - low) for begin, end, low, high in ranges]
    bins = max(((end - begin) * (high - low) for begin, end, low, high in ranges), default=0)
    room = max(entries, default=0)
    sizes = 1, shape.rois, bins, room, (room * (values << numbers) + 7) // 8
    memory = np.empty(sum(sizes), np.int64)
    failed, first, count, pixel, value = np.split(memory, np.cumsum(sizes)[:-1])
    failed[0] = 0
    return [
        Batch(placed, order, images, *part, most, failed, first, count, pixel, value, values, numbers)
        for part, most in zip(ranges, entries, strict=True)
    ]
