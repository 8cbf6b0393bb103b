"""How the work of an operator on RoIs is cut into tasks, and the memory that they work in.

Tasks share no output, and what is computed does not depend on how many there are: so the results are the same bit for bit on
any number of threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ortops.kernels.jit import CACHE_LINE, LANES
from ortops.kernels.jit.chunks import run_in_chunks
from ortops.kernels.jit.compile import compiled
from ortops.kernels.jit.parallel import allocate
from ortops.kernels.jit.scalar import address_of, compute_pointer, int64_pointer, itemsize, maximum, minimum
from ortops.kernels.layout import OUT_OF_MEMORY, PlacedRois

TARGET_TASKS = 64
"""Tasks to aim for where RoIs or images are fewer: enough for any session's threads to share them evenly."""

MAX_WORKSPACE_BYTES = 40 << 20
"""Of what all workers hold at once, however many threads there are."""

MAX_MAP_PIXELS = 1 << 18
"""Larger maps are not packed as a whole: a panel of float32 would take more than 16 MiB."""

MAX_WINDOW_PIXELS = 1 << 14
"""The window of a RoI is packed if it has at most as many pixels: a larger one would leave the cache of a core."""

MIN_PARALLEL_PIXELS = 1 << 19
"""To read or write, of all channels: with fewer, waking another thread takes longer than it saves."""

MAX_CHUNK_PIXELS = float(1 << 28)
"""To read or write, of all channels, before signal handlers run: on one thread, that takes 40 ms to 1 s."""


class Plan(NamedTuple):
    """How the work is cut up.

    A task is a unit, an image or a RoI, and a block of channels; worker k does every `workers`-th task of a round.

    runner: the runner of the tasks, or 0 where there is little work.
    is_by_image: whether units are images.
    units, blocks, workers: their numbers.
    """

    runner: int
    is_by_image: bool
    items: int
    blocks: int
    workers: int


@compiled
def covered_pixels(placed: PlacedRois) -> float:
    """The pixels of the map that the RoIs read, at most; those that several read are counted several times."""
    total = 0.0
    for r in range(placed.shape.rois):
        total += float(placed.spans[2 * r]) * float(placed.spans[2 * r + 1])
    return total


@compiled
def should_pack_maps(placed: PlacedRois) -> bool:
    """Whether to pack channels of whole maps into panels.

    Measured: they win with 256 channels and RoIs that cover the maps, lose with 3 channels and with one RoI. The borders
    between are a choice: half a panel of channels, and RoIs that cover the maps once.
    """
    shape, pixels = placed.shape, placed.shape.height * placed.shape.width
    if shape.channels < LANES // 2 or pixels > MAX_MAP_PIXELS or shape.rois <= shape.images:
        return False
    return covered_pixels(placed) >= float(shape.images) * float(pixels)


@compiled
def estimate_work(placed: PlacedRois, written: int) -> float:
    """The pixels to read or write, of all channels, where so many elements of a channel are written."""
    return (covered_pixels(placed) + float(written)) * placed.shape.channels


@compiled
def runner_for(work: float, runner: int) -> int:
    """The runner, or 0 for a plain loop where there is little work."""
    return runner if work >= MIN_PARALLEL_PIXELS else 0


@compiled
def plan_by_image(placed: PlacedRois, runner: int, blocks: int, worker_bytes: int) -> Plan:
    """Cut up the work of images, each in so many blocks; each worker holds so many bytes."""
    images = placed.shape.images
    return Plan(runner, True, images, blocks, worker_count(runner, images * blocks, worker_bytes))


@compiled
def plan_by_roi(placed: PlacedRois, runner: int, panels: int, worker_bytes: int) -> Plan:
    """Cut up the work of RoIs: into enough tasks, none of fewer than two panels."""
    rois = placed.shape.rois
    blocks = maximum(minimum(panels // 2, (TARGET_TASKS + rois - 1) // maximum(rois, 1)), 1)
    return Plan(runner, False, rois, blocks, worker_count(runner, rois * blocks, worker_bytes))


@compiled
def plan_of_panels(placed: PlacedRois, is_whole: bool, runner: int, panels: int, worker_bytes: int) -> Plan:
    """Cut up the work of images whose maps are packed as a whole, or else of RoIs."""
    if is_whole:
        return plan_by_image(placed, runner, panels, worker_bytes)
    return plan_by_roi(placed, runner, panels, worker_bytes)


@compiled
def worker_count(runner: int, tasks: int, worker_bytes: int) -> int:
    """Into how many workers to deal the tasks, so that they hold no more than MOST_BYTES."""
    most = minimum(TARGET_TASKS, MAX_WORKSPACE_BYTES // maximum(worker_bytes, 1))
    return maximum(minimum(tasks, most), 1) if runner else 1


@compiled
def run_plan(plan: Plan, context: int, work: float, failed: Any, task: Any, args: Any) -> int:
    """Run the tasks of a plan (`jit.chunks`).

    Args:
        plan: what to run.
        context: of the plan's runner.
        work: the pixels to read or write, of all channels.
        failed: a flag that a worker without memory sets.
        task: what a worker does.
        args: its first arguments.

    Returns:
        OUT_OF_MEMORY, INTERRUPTED or 0.
    """
    chunks = 1 + int(work / MAX_CHUNK_PIXELS)
    status = run_in_chunks(plan.runner, context, plan.workers, plan.items * plan.blocks, chunks, task, args)
    return OUT_OF_MEMORY if failed[0] != 0 else status


@compiled
def panel_count(channels: int) -> int:
    """How many panels the channels make."""
    return (channels + LANES - 1) // LANES


@compiled
def panel_size(placed: PlacedRois, is_whole: bool) -> int:
    """The numbers for which a panel needs room."""
    pixels = placed.shape.height * placed.shape.width
    if not is_whole:
        pixels = minimum(pixels, MAX_WINDOW_PIXELS) if placed.shape.channels >= LANES // 2 else 0
    return pixels * LANES


@compiled
def allocate_workspace(count: int, like: Any) -> Any:
    """Memory of a worker for `count` numbers, of the type in which elements at `like` are computed.

    The memory to release, null where there is none left; and the numbers, at a line of the cache.
    """
    words = (count * itemsize(compute_pointer(like, like)) + 7) // 8
    memory = allocate(words + CACHE_LINE // 8)
    address = (address_of(memory) + CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE
    return memory, compute_pointer(int64_pointer(address), like)


class Window(NamedTuple):
    """A part of the map."""

    top: int
    left: int
    height: int
    width: int


@compiled
def make_window(rows: tuple[int, int], columns: tuple[int, int], map_width: int) -> Window:
    """The part that the two spans [low, high) cover, no narrower than LANES pixels where the map is not."""
    width = maximum(columns[1] - columns[0], minimum(LANES, map_width))
    return Window(rows[0], minimum(columns[0], map_width - width), rows[1] - rows[0], width)


@compiled
def should_pack_window(window: Window, channels: int) -> bool:
    """Whether to pack a window for itself: it fits into a core's cache, and the lanes are at least half full."""
    return channels >= LANES // 2 and window.height * window.width <= MAX_WINDOW_PIXELS
