"""Rotated RoIs in parts whose lists have room, and the driver of their drois."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ortops.jit.elements import DOUBLE
from ortops.jit.kernel import Array, Kernel
from ortops.jit.runners import Runner
from ortops.jit.source import Unimported
from ortops.kernels.drivers import NO_FUNCTIONS, address, check_status, elements, kind_of
from ortops.kernels.functions import Functions
from ortops.kernels.layout import BLOCK_CHANNELS, LISTS, Form, Part, PlacedRois

if TYPE_CHECKING:
    from ortops.jit import tasks
    from ortops.kernels import pack, rotated, rotated_tables
    from ortops.kernels.functions import AddProducts
else:
    tasks, pack = Unimported("jit.tasks"), Unimported("kernels.pack")
    rotated, rotated_tables = Unimported("kernels.rotated"), Unimported("kernels.rotated_tables")

_drois = Kernel(rotated.rotated_drois)

MAX_LIST_BYTES = 16 << 20
"""The most bytes of the lists of a part, which all panels of channels share, unless a single bin takes more."""


def add_up_drois(dy: Array, placed: PlacedRois, x: Array, drois: Array, runner: Runner) -> None:
    """Fill drois [R, 5] from dy [R, C, PH, PW] and x."""
    # Each block of channels has sums of its own, which are then added in the order of the blocks.
    sums = np.zeros((-(-x.shape[1] // BLOCK_CHANNELS), *drois.shape))
    form, kind = Form(LISTS, 1, DOUBLE), kind_of(dy)
    products: AddProducts = address(rotated.add_products, kind)
    after = form, functions_for_lists()._replace(pack=address(pack.pack, kind), plane=products), *runner
    for part in parts_of(placed, drois.shape[1], DOUBLE):
        check_status(_drois(elements(x), elements(dy), sums, part, *after))
    with np.errstate(over="ignore"):
        drois[...] = sum(sums, np.zeros(drois.shape))


def functions_for_lists() -> Functions:
    """The functions that fill lists."""
    return NO_FUNCTIONS._replace(share=address(rotated_tables.share), run=address(tasks.run_in_chunks))


def parts_of(placed: PlacedRois, values: int, numbers: int) -> list[PlacedRois]:
    """Parts of the RoIs, whose lists have `values` values of a type for each entry."""
    arrays: Any = placed  # type checkers take them for pointers
    order, bins = np.argsort(arrays.batch_indices, kind="stable"), placed.part.high
    pixels = arrays.limits[order, 2]
    bytes_of_bin = pixels * float(8 + (values << numbers)) + 8.0  # FLOAT and DOUBLE take 4 and 8 bytes
    bytes_until = (bytes_of_bin * bins).cumsum()
    parts: list[Part] = []
    begin, done = 0, 0.0
    while begin < len(order):
        end, step = int(np.searchsorted(bytes_until, done + MAX_LIST_BYTES, "right")), bins
        if end == begin:
            end, step = begin + 1, max(int(MAX_LIST_BYTES / bytes_of_bin[begin]), 1)
        of_bin = int(pixels[begin:end].sum())
        for low in range(0, bins, step):
            high = min(low + step, bins)
            parts.append(Part(begin, end, low, high, of_bin * (high - low)))
        begin, done = end, float(bytes_until[end - 1])
    words = max((part.entries for part in parts), default=0) * (8 + (values << numbers)) // 8 + 1
    # NumPy asks for large pages. Measured: without them, drois with 64 channels take 114 % of the time.
    memory = np.empty(words, np.int64)
    return [placed._replace(part=part, lists=memory) for part in parts] or [placed]
