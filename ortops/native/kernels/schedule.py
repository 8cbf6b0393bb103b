# SPDX-License-Identifier: MIT
"""Split the work of an operator on RoIs into tasks, and allocate their workspaces.

Tasks have disjoint outputs, and the arithmetic does not depend on their number, so results are bit-identical on any number
of threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ortops.compiler.compile import compiled
from ortops.compiler.parallel import allocate, call
from ortops.compiler.scalar import address_of, compute_pointer, int64_pointer, itemsize, maximum, minimum
from ortops.native.elements import CACHE_LINE, LANES, OUT_OF_MEMORY, Words
from ortops.native.kernels.axis import axis_of
from ortops.native.kernels.functions import Driver, Functions
from ortops.native.kernels.layout import Form, PlacedRois, Plan, Shape

TARGET_TASKS = 64
"""The number of tasks to aim for if there are fewer RoIs or images: enough to give threads even shares."""

MAX_WORKSPACE_BYTES = 40 << 20
"""The most bytes of all workers' workspaces together, however many threads run."""

MAX_MAP_PIXELS = 1 << 18
"""The largest map to pack as a whole, in pixels: its panel takes 16 MiB as float32."""

MAX_WINDOW_PIXELS = 1 << 14
"""The largest window of a RoI to pack, in pixels: a larger window would not fit in a core's cache."""

MAX_SPARSITY = 8.0
"""The most pixels that a RoI's window may have for each pixel that samples read, if it is packed to find the argmax.

Measured with 128 channels and 40 RoIs: with 14 pixels, panels take 71 to 104 % of the time; with 18, 160 %.
"""

MIN_CHANNELS_OF_BINS = 2
"""The fewest channels for panels if bins count as RoIs: a call for one plane of a bin has few pixels.

Measured with 7 x 7 bins and 300 RoIs on 50 x 68 pixels: with 2 channels, panels take 80 to 100 % of the time; with 7, 50 to
80 %.
"""

MIN_PARALLEL_PIXELS = 1 << 19
"""The fewest pixels to read or write, in all channels, to use threads: for fewer, waking one costs more than it saves."""

MAX_CHUNK_PIXELS = float(1 << 28)
"""The most pixels to read or write, in all channels, before signal handlers run: on one thread this takes 40 ms to 1 s."""


@compiled
def covered_pixels(placed: PlacedRois, margin: int) -> float:
    """The most pixels that the RoIs read, added up over RoIs, if a RoI reads `margin` more pixels in each row."""
    total = 0.0
    for r in range(placed.shape.rois):
        total += float(placed.spans[2 * r]) * float(minimum(placed.spans[2 * r + 1] + margin, placed.shape.width))
    return total


@compiled
def uses_panels(shape: Shape) -> bool:
    """Whether there are enough channels for panels. The limit of half a panel is a choice, not measured."""
    return shape.channels >= (LANES // 2 if shape.interleaved == 1 else MIN_CHANNELS_OF_BINS)


@compiled
def should_pack_maps(placed: PlacedRois) -> bool:
    """Whether to pack whole maps into panels.

    Reading a window's row also reads up to a cache line next to it, so these pixels count as covered. Measured with 256
    channels: whole maps take 65 to 95 % of the time if RoIs cover the maps once, 120 to 160 % if they cover three quarters
    or less. With 3 channels or one RoI, whole maps are slower, too.
    """
    shape, pixels = placed.shape, placed.shape.height * placed.shape.width
    if not uses_panels(shape) or pixels > MAX_MAP_PIXELS or shape.rois <= shape.images:
        return False
    return covered_pixels(placed, LANES - 1) >= float(shape.images) * float(pixels)


@compiled
def is_sparse(placed: PlacedRois, r: int) -> bool:
    """Whether a RoI's samples read few of its window's pixels."""
    rows, columns = float(placed.spans[2 * r]), float(placed.spans[2 * r + 1])
    y, x = axis_of(placed.axes, r, 0, placed.shape.bins_y), axis_of(placed.axes, r, 1, placed.shape.bins_x)
    read = minimum(2.0 * y.bins * y.samples, rows) * minimum(2.0 * x.bins * x.samples, columns)
    return rows * columns > MAX_SPARSITY * read


@compiled
def estimate_work(placed: PlacedRois, written: int) -> float:
    """The number of pixels to read or write, in all channels, if a channel has `written` elements to write."""
    entries = placed.part.entries
    return ((float(entries) if entries else covered_pixels(placed, 0)) + float(written)) * placed.shape.channels


@compiled
def runner_for(work: float, runner: int) -> int:
    """The runner, or 0 for a serial loop if there is little work."""
    return runner if work >= MIN_PARALLEL_PIXELS else 0


@compiled
def plan_by_image(placed: PlacedRois, runner: int, blocks: int, worker_bytes: int) -> Plan:
    """Split each image into `blocks` blocks; a worker's workspace has `worker_bytes` bytes."""
    images = placed.shape.images
    return Plan(runner, True, images, blocks, worker_count(runner, images * blocks, worker_bytes))


@compiled
def plan_of_panels(placed: PlacedRois, is_whole: bool, runner: int, panels: int, worker_bytes: int) -> Plan:
    """Split the work by image if maps are packed as a whole; else each RoI into blocks of at least two panels.

    An image's RoIs are not split further, into more tasks than threads. Measured on P2 with two or four tasks for each
    panel: the time is 105 or 115 %, since tasks pack the same rows. With one panel for each of two threads, beside two
    threads that spin on two processors, it stays the same (12.1 ms; with more tasks 12.3 and 12.1; on one thread 16.4): a
    displaced thread holds a task, however small.
    """
    if is_whole:
        return plan_by_image(placed, runner, panels, worker_bytes)
    rois = placed.part.end - placed.part.begin
    blocks = maximum(minimum(panels // 2, (TARGET_TASKS + rois - 1) // maximum(rois, 1)), 1)
    return Plan(runner, False, rois, blocks, worker_count(runner, rois * blocks, worker_bytes))


@compiled
def worker_count(runner: int, tasks: int, worker_bytes: int) -> int:
    """The number of workers for the tasks; their workspaces together have at most MAX_WORKSPACE_BYTES."""
    most = minimum(TARGET_TASKS, MAX_WORKSPACE_BYTES // maximum(worker_bytes, 1))
    return maximum(minimum(tasks, most), 1) if runner else 1


@compiled
def run_plan(plan: Plan, context: int, work: float, failed: Words, functions: Functions, task: int, data: Any) -> int:
    """Run the tasks of a plan; 0, OUT_OF_MEMORY or INTERRUPTED.

    `work` is the number of pixels to read or write, in all channels. A worker sets `failed` if it cannot allocate memory.
    """
    count, chunks = plan.items * plan.blocks, 1 + int(work / MAX_CHUNK_PIXELS)
    status = call(functions.run, (plan.runner, context, functions.stop, plan.workers, count, chunks, task, data))
    return OUT_OF_MEMORY if failed[0] != 0 else status


@compiled
def form_of(driver: Driver) -> Form:
    """The form of the tables that a driver reads."""
    return Form(driver.form, driver.with_grad, driver.numbers)


@compiled
def plane_of(shape: Shape, number: int, channel: int) -> int:
    """The index of an image's channel among the maps' planes, or of a RoI's channel among the output's planes.

    The next channel follows shape.interleaved planes later.
    """
    turns = shape.interleaved
    return (number // turns * shape.channels + channel) * turns + number % turns


@compiled
def panel_count(channels: int) -> int:
    """The number of panels of LANES channels."""
    return (channels + LANES - 1) // LANES


@compiled
def panel_size(placed: PlacedRois, is_whole: bool) -> int:
    """The number of values in a panel, which holds the whole map or the largest window; 0 if nothing is packed."""
    pixels = placed.shape.height * placed.shape.width
    if not is_whole:
        pixels = minimum(pixels, MAX_WINDOW_PIXELS) if uses_panels(placed.shape) else 0
    return pixels * LANES


@compiled
def allocate_workspace(count: int, like: Any) -> Any:
    """Allocate a worker's memory for `count` values of the compute type; `like` points to elements, which determine it.

    Returns:
        The memory to release, or a null pointer if allocation failed; and a pointer to the values, aligned to a cache line.
    """
    words = (count * itemsize(compute_pointer(like, like)) + 7) // 8
    memory = allocate(words + CACHE_LINE // 8)
    address = (address_of(memory) + CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE
    return memory, compute_pointer(int64_pointer(address), like)


class Window(NamedTuple):
    """A rectangle of the map, in pixels."""

    top: int
    left: int
    height: int
    width: int


@compiled
def make_window(rows: tuple[int, int], columns: tuple[int, int], map_width: int) -> Window:
    """The window that two spans [low, high) enclose, at least LANES pixels wide unless the map is narrower."""
    width = maximum(columns[1] - columns[0], minimum(LANES, map_width))
    return Window(rows[0], minimum(columns[0], map_width - width), rows[1] - rows[0], width)


@compiled
def should_pack_window(window: Window, shape: Shape) -> bool:
    """Whether to pack a RoI's window: it fits into a core's cache, and there are enough channels."""
    return uses_panels(shape) and window.height * window.width <= MAX_WINDOW_PIXELS
