"""How the work of an operator on RoIs is cut into tasks, and the memory that they work in.

Tasks share no output, and what is computed does not depend on how many there are: so the results are the same bit for bit on
any number of threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ortops.kernels.jit import CACHE_LINE, LANES
from ortops.kernels.jit.compile import inner
from ortops.kernels.jit.parallel import allocate
from ortops.kernels.jit.scalar import address_of, bytes_of, int64s_at, maximum, minimum, numbers_at, offset
from ortops.kernels.layout import Placed
from ortops.kernels.tables import MOST_PIXELS_OF_WINDOW

TASKS = 64
"""Tasks to aim for where RoIs or images are fewer: enough for any session's threads to share them evenly."""

MOST_BYTES = 40 << 20
"""Of what all workers hold at once, however many threads there are."""

MOST_BYTES_OF_TABLES = 16 << 20
"""Larger tables are made by each worker for itself, one RoI at a time."""

MOST_PIXELS = 1 << 18
"""Larger maps are not packed as a whole: a panel of float32 would take more than 16 MiB."""

LEAST_PIXELS = 1 << 19
"""To read or write, of all channels: with fewer, waking another thread takes longer than it saves."""


class Plan(NamedTuple):
    """How the work is cut up.

    A unit is an image, whose map is packed as a whole and serves all of its RoIs, or else one RoI with its window of the map.
    A task is a unit and a block of its panels; worker k does every `workers`-th task from number k on.

    runner: the runner of the tasks, or 0 where there is little work.
    is_whole: whether units are images.
    units, panels, blocks, workers: their numbers.
    """

    runner: int
    is_whole: bool
    units: int
    panels: int
    blocks: int
    workers: int


@inner
def covered_pixels(placed: Placed) -> float:
    """The pixels of the map that the RoIs read, at most; those that several read are counted several times."""
    total = 0.0
    for r in range(placed.shape.rois):
        total += float(placed.spans[2 * r]) * float(placed.spans[2 * r + 1])
    return total


@inner
def packs_maps(placed: Placed) -> bool:
    """Whether to pack channels of whole maps into panels.

    Measured: they win with 256 channels and RoIs that cover the maps, lose with 3 channels and with one RoI. The borders
    between are a choice: half a panel of channels, and RoIs that cover the maps once.
    """
    shape, pixels = placed.shape, placed.shape.height * placed.shape.width
    if shape.channels < LANES // 2 or pixels > MOST_PIXELS or shape.rois <= shape.images:
        return False
    return covered_pixels(placed) >= float(shape.images) * float(pixels)


@inner
def runner_for(placed: Placed, runner: int) -> int:
    """The runner, or 0 for a plain loop where there is little work."""
    shape = placed.shape
    pixels = covered_pixels(placed) + float(shape.rois) * float(shape.bins_y * shape.bins_x)
    return runner if pixels * shape.channels >= LEAST_PIXELS else 0


@inner
def plan_of(placed: Placed, is_whole: bool, runner: int, bytes_each: int) -> Plan:
    """Cut up the work of images, with is_whole, or of RoIs; each worker holds so many bytes."""
    panels = (placed.shape.channels + LANES - 1) // LANES
    units, blocks = placed.shape.images, panels
    if not is_whole:
        # Enough tasks, none of fewer than two panels.
        units = placed.shape.rois
        blocks = maximum(minimum(panels // 2, (TASKS + units - 1) // maximum(units, 1)), 1)
    workers = maximum(minimum(units * blocks, MOST_BYTES // maximum(bytes_each, 1)), 1)
    return Plan(runner, is_whole, units, panels, blocks, workers if runner else 1)


@inner
def pixels_of_panel(placed: Placed, is_whole: bool) -> int:
    """The pixels for which a panel needs room."""
    pixels = placed.shape.height * placed.shape.width
    if is_whole:
        return pixels
    return minimum(pixels, MOST_PIXELS_OF_WINDOW) if placed.shape.channels >= LANES // 2 else 0


@inner
def work_space(count: int, like: Any, width: int) -> Any:
    """Memory of a worker for `count` numbers, of the type in which elements at `like` are computed, and for runs of a line.

    The memory to release, null where there is none left; the numbers, at a line of the cache; and the runs.
    """
    words = (count * bytes_of(numbers_at(like, like)) + 7) // 8
    memory = allocate(words + width + 2 + CACHE_LINE // 8)
    address = (address_of(memory) + CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE
    numbers = int64s_at(address)
    return memory, numbers_at(numbers, like), offset(numbers, words)


class Groups(NamedTuple):
    """The RoIs of each image: those of image n are order[first[n]:first[n + 1]], ascending."""

    order: Any
    first: Any


@inner
def carve_groups(memory: Any, placed: Placed) -> Any:
    """Groups in memory, and the memory behind them."""
    first = offset(memory, placed.shape.rois)
    return Groups(memory, first), offset(first, placed.shape.images + 1)


@inner
def fill_groups(groups: Groups, placed: Placed) -> None:
    """Sort the RoIs by image."""
    first, images = groups.first, placed.shape.images
    for n in range(images + 1):
        first[n] = 0
    for r in range(placed.shape.rois):
        first[placed.images[r] + 1] += 1
    for n in range(images):
        first[n + 1] += first[n]
    # Taken from the end, and first moves to where each group begins.
    for k in range(placed.shape.rois):
        r = placed.shape.rois - 1 - k
        image = placed.images[r] + 1
        first[image] -= 1
        groups.order[first[image]] = r
    for n in range(images):
        first[n] = first[n + 1]
    first[images] = placed.shape.rois
