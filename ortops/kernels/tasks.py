"""How the work of an operator on RoIs is cut up, and how much of the map a task takes."""

from __future__ import annotations

from typing import NamedTuple

from numba import njit

from ortops.kernels.compile import INNER, cached
from ortops.kernels.element import Array
from ortops.kernels.lanes import LANES
from ortops.kernels.panels import MOST_PIXELS, MOST_PIXELS_OF_ROI
from ortops.kernels.parallel import Runner

TASKS = 64
"""Tasks to aim for where RoIs or images are fewer: enough for any session's threads to share them evenly."""

MOST_BYTES = 40 << 20
"""Of what all workers hold at once, however many threads there are."""


def blocks_of(channels: int, others: int) -> int:
    """Into how many blocks to cut the channels, so that there are enough tasks, none of less than two panels."""
    return max(min(channels // (2 * LANES), -(-TASKS // max(others, 1))), 1)


def panels_of(channels: int) -> int:
    """How many panels the channels make."""
    return -(-channels // LANES)


def workers_of(tasks: int, bytes_each: int) -> int:
    """Into how many workers to deal the tasks, so that they hold no more than `MOST_BYTES`."""
    return max(min(tasks, MOST_BYTES // max(bytes_each, 1)), 1)


LEAST_PIXELS = 1 << 19
"""To read or write, of all channels: with fewer, waking another thread takes longer than it saves."""


def panels_pay(axes: Array, x_shape: tuple[int, ...]) -> bool:
    """Whether to pack channels of whole maps into panels.

    Measured: they win with 256 channels and RoIs that cover the maps, lose with 3 channels and with one RoI. The borders
    between are a choice: half a panel of channels, and RoIs that cover the maps once.
    """
    images, channels, height, width = x_shape
    if channels < LANES // 2 or height * width > MOST_PIXELS or len(axes) <= images:
        return False
    return _covered(axes, height, width) >= images * height * width


def blocks_and_runner(axes: Array, x_shape: tuple[int, ...], runner: Runner) -> tuple[int, Runner]:
    """Into how many blocks to cut the channels of each RoI, and what runs them: a plain loop where they are little work."""
    _, channels, height, width = x_shape
    if _covered(axes, height, width) * channels < LEAST_PIXELS:
        return 1, (0, 0)
    return blocks_of(channels, len(axes)), runner


@cached
def _covered(axes: Array, height: int, width: int) -> float:
    """About how many pixels of the map the RoIs have, those that several have counted several times."""
    total = 0.0
    for r in range(len(axes)):
        total += min(abs(axes[r, 0, 1]) + 2.0, float(height)) * min(abs(axes[r, 1, 1]) + 2.0, float(width))
    return total


class Window(NamedTuple):
    """A part of the map."""

    top: int
    left: int
    height: int
    width: int


@njit(**INNER)
def window_of(rows: tuple[int, int], columns: tuple[int, int], map_width: int) -> Window:
    """The part that the two spans [low, high) cover, no narrower than LANES pixels where the map is not."""
    width = max(columns[1] - columns[0], min(LANES, map_width))
    return Window(rows[0], min(columns[0], map_width - width), rows[1] - rows[0], width)


@njit(**INNER)
def is_packed(window: Window, channels: int) -> bool:
    """Whether to pack a window for itself: it fits into a core's cache, and the lanes are at least half full."""
    return channels >= LANES // 2 and window.height * window.width <= MOST_PIXELS_OF_ROI


@njit(**INNER)
def block_of(channels: int, blocks: int, block: int) -> tuple[int, int]:
    """The channels [low, high) of a block."""
    return channels * block // blocks, channels * (block + 1) // blocks
