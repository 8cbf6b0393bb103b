"""Count the work of a call of RoiAlign's average, or of its dX, in float: what the kernels do, from the RoIs alone.

The kernels choose between whole maps, windows of RoIs and single planes (`kernels/schedule.py`, `kernels/gradient.py`), and
so does this module, with their thresholds. Tests compare the choices and the tables with those of the kernels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.cost_model import Work
from benchmarks.workloads import Workload
from ortops.kernels.gradient import MAX_BAND_BYTES, MIN_COVERED
from ortops.kernels.jit import CACHE_LINE, LANES
from ortops.kernels.roi_tables import MAX_TABLE_BYTES
from ortops.kernels.schedule import MAX_MAP_PIXELS, MAX_WINDOW_PIXELS, MIN_PARALLEL_PIXELS, TARGET_TASKS
from ortops.kernels.sliding import MAX_SLIDING_BYTES

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]

ITEM = 4
"""The bytes of an element."""


class Axis(NamedTuple):
    """What RoIs read along an axis.

    marks: whether a bin of a RoI reads a pixel [R, bins, length].
    spans: the number of pixels from the first to the last that a RoI can read [R].
    """

    marks: Marks
    spans: Ints

    @property
    def entries(self) -> Ints:
        """The entries of each RoI's table."""
        return np.asarray(self.marks.sum(axis=(1, 2)))

    @property
    def used(self) -> Marks:
        """Whether any bin of a RoI reads a pixel [R, length]."""
        return np.asarray(self.marks.any(axis=1))

    @property
    def limits(self) -> tuple[Ints, Ints]:
        """The first pixel that each RoI reads, and the one after its last; 0 and 0 if it reads none."""
        used = self.used
        low = used.argmax(axis=1)
        return low, np.where(used.any(axis=1), used.shape[1] - used[:, ::-1].argmax(axis=1), 0)


def axes(workload: Workload) -> tuple[Axis, Axis]:
    """Return what the RoIs of a workload read along y and along x, by ONNX's half_pixel."""
    corners = workload.corners().astype(np.float64) * float(np.float32(workload.spatial_scale))
    height, width = workload.shape[2:]
    rows = _axis(corners[:, 1], corners[:, 3], workload.bins, workload.sampling_ratio, height)
    return rows, _axis(corners[:, 0], corners[:, 2], workload.bins, workload.sampling_ratio, width)


def _axis(start: Floats, end: Floats, bins: int, ratio: int, length: int) -> Axis:
    size, marks, spans = end - start, np.zeros((start.size, bins, length), bool), np.zeros(start.size, np.int64)
    samples = np.full(start.size, ratio) if ratio else np.ceil(size / bins).astype(np.int64)
    for count in np.unique(samples[samples > 0]):
        (some,) = np.nonzero(samples == count)
        steps = np.arange(bins * count).reshape(bins, count) + 0.5
        at = start[some, None, None] - 0.5 + steps * size[some, None, None] / (bins * count)
        first = np.clip(np.floor(at), 0, length - 1).astype(np.int64)
        last = np.where((at >= 0) & (at < length - 1), first + 1, first)
        roi, one_bin, _ = inside = np.nonzero((at >= -1) & (at <= length))
        for pixel in (first, last):
            marks[some[roi], one_bin, pixel[inside]] = True
        is_on_map = (at[:, -1, -1] >= -1) & (at[:, 0, 0] <= length)
        spans[some] = np.where(is_on_map, last[:, -1, -1] - first[:, 0, 0] + 1, 0)
    return Axis(marks, spans)


def work(operation: str, workload: Workload) -> Work | None:
    """Count the work of an operation of `operations.OPERATIONS` in float; None if it is not one that is counted."""
    counted = {"avg": average_work, "dX": dx_work}
    return counted[operation](workload) if operation in counted and workload.shape[0] == 1 else None


def average_work(workload: Workload) -> Work:
    """Count the work of RoiAlign's average on one image."""
    channels, height, width = _sizes(workload)
    rows, columns = axes(workload)
    panels, bins = _panels(workload), workload.bins**2
    shares = shares_tables(workload, rows, columns)
    if packs_maps(workload, rows, columns):
        tasks, fills, packs = panels, 1 if shares else panels, np.full(workload.rois, True)
        slides = panel_lines(workload, rows, columns) < height
        packed, direct = width * (_rows_of_rois(rows) if slides else height), 0
    else:
        blocks = max(min(panels // 2, -(-TARGET_TASKS // workload.rois)), 1)
        tasks, fills = workload.rois * blocks, 1 if shares else blocks + panels
        widths = np.maximum(_lengths(columns), min(LANES, width))
        packs = (channels >= LANES // 2) & (_lengths(rows) * widths <= MAX_WINDOW_PIXELS)
        # Lines of a window begin and end within cache lines, which are read as a whole.
        read = _lengths(rows) * (widths + CACHE_LINE // ITEM - 1)
        packed, direct = int(read[packs].sum()), int(read[~packs].sum())
    line = np.where(packs, panels * _line_in_panel(columns), channels * _line_in_plane(columns))
    times = np.where(packs, panels, channels)
    return Work(
        entries=fills * int((rows.entries + columns.entries).sum()),
        visits=int(times.sum()),
        operations=int((rows.entries * line + times * workload.bins * columns.entries).sum()),
        map_bytes=ITEM * LANES * panels * packed,
        bin_bytes=ITEM * LANES * panels * bins * int(packs.sum()),
        plane_bytes=ITEM * channels * (direct + bins * int((~packs).sum())),
        tasks=tasks if _uses_threads(workload, rows, columns, workload.rois * bins) else 1,
    )


def dx_work(workload: Workload) -> Work:
    """Count the work of dX of RoiAlign's average on one image."""
    channels, height, width = _sizes(workload)
    rows, columns = axes(workload)
    shares, packs = shares_tables(workload, rows, columns), packs_dx(workload, rows, columns)
    lines = dx_lines(workload, rows, columns)
    line = _line_in_panel(columns) if packs else _line_in_plane(columns)
    low, high = rows.limits
    visits = operations = cleared = 0
    tops = range(0, height, lines)
    for band in tops:
        top, bottom = band, min(band + lines, height)
        if packs and shares:
            top, bottom = max(top, int(low[high > 0].min(initial=height))), min(bottom, int(high.max(initial=0)))
        if bottom <= top:
            continue
        (some,) = np.nonzero((low < bottom) & (high > top) | (bottom - top == height))
        marks = rows.marks[some, :, top:bottom]
        scattered = marks.any(axis=2).sum(axis=1) * (columns.entries + columns.used.sum(axis=1))[some]
        visits += some.size
        operations += int((marks.sum(axis=(1, 2)) * line[some] + scattered).sum())
        cleared += (bottom - top) * width
    operations += cleared if packs else -(-cleared // LANES)
    times, bins = _panels(workload) if packs else channels, workload.bins**2
    return Work(
        entries=(1 if shares else times * len(tops)) * int((rows.entries + columns.entries).sum()),
        visits=times * visits,
        operations=times * operations,
        map_bytes=ITEM * LANES * times * height * width if packs else 0,
        bin_bytes=ITEM * LANES * times * bins * visits if packs else 0,
        plane_bytes=0 if packs else ITEM * channels * (height * width + bins * visits),
        tasks=times * len(tops) if _uses_threads(workload, rows, columns, height * width) else 1,
    )


def packs_maps(workload: Workload, rows: Axis, columns: Axis) -> bool:
    """Whether the average packs the whole map (`schedule.should_pack_maps`)."""
    channels, height, width = _sizes(workload)
    if channels < LANES // 2 or height * width > MAX_MAP_PIXELS or workload.rois <= 1:
        return False
    return _covered(rows, columns, LANES - 1) >= height * width


def panel_lines(workload: Workload, rows: Axis, columns: Axis) -> int:
    """The lines of the average's panel if it packs the whole map (`sliding.panel_lines`)."""
    _, height, width = _sizes(workload)
    if not shares_tables(workload, rows, columns):
        return height
    return min(max(MAX_SLIDING_BYTES // (width * LANES * ITEM), int(rows.spans.max(initial=0))), height)


def packs_dx(workload: Workload, rows: Axis, columns: Axis) -> bool:
    """Whether dX is summed up in panels (`gradient.average_dx`)."""
    channels, height, width = _sizes(workload)
    if channels < LANES // 2 or not (shares_tables(workload, rows, columns) or height * width <= MAX_MAP_PIXELS):
        return False
    return _covered(rows, columns) >= MIN_COVERED * height * width


def dx_lines(workload: Workload, rows: Axis, columns: Axis) -> int:
    """The lines of a band of dX (`gradient.average_dx`)."""
    _, height, width = _sizes(workload)
    packs = packs_dx(workload, rows, columns)
    if packs and not shares_tables(workload, rows, columns):
        return height
    return max(min(MAX_BAND_BYTES // (width * ITEM * (LANES if packs else 1)), height), 1)


def shares_tables(workload: Workload, rows: Axis, columns: Axis) -> bool:
    """Whether the tables of all RoIs are filled once (`roi_tables.fits_in_shared_tables`)."""
    words = 1 + workload.rois + 2  # a flag, and the RoIs by image
    for axis in (rows, columns):
        entries = int(axis.spans.sum()) + workload.rois * (2 * workload.bins + 2)
        words += workload.rois * (2 + 2 * workload.bins) + 2 * entries + (ITEM * entries + 7) // 8
    return 8 * words <= MAX_TABLE_BYTES


def _sizes(workload: Workload) -> tuple[int, int, int]:
    images, channels, height, width = workload.shape
    if images != 1:
        raise ValueError(f"work is counted for one image, not for {images}")
    return channels, height, width


def _panels(workload: Workload) -> int:
    return -(-workload.shape[1] // LANES)


def _covered(rows: Axis, columns: Axis, beside: int = 0) -> int:
    """The pixels that RoIs can read, counted for each of them (`schedule.covered_pixels`)."""
    return int(rows.spans @ np.minimum(columns.spans + beside, columns.marks.shape[2]))


def _uses_threads(workload: Workload, rows: Axis, columns: Axis, written: int) -> bool:
    """Whether there is work enough for threads, if `written` elements of a channel are written (`schedule.runner_for`)."""
    return (_covered(rows, columns) + written) * workload.shape[1] >= MIN_PARALLEL_PIXELS


def _lengths(axis: Axis) -> Ints:
    low, high = axis.limits
    return high - low


def _rows_of_rois(rows: Axis) -> int:
    """The rows that are between the first and the last row of any RoI."""
    numbers, (low, high) = np.arange(rows.marks.shape[2]), rows.limits
    return int(((low[:, None] <= numbers) & (numbers < high[:, None])).any(axis=0).sum())


def _line_in_panel(columns: Axis) -> Ints:
    """The operations on each RoI's part of a line in a panel: one for each pixel that it reads."""
    return np.asarray(columns.used.sum(axis=1))


def _line_in_plane(columns: Axis) -> Ints:
    """The operations on each RoI's part of a line in a plane: one for LANES neighbours, and for each pixel left over."""
    edges = np.diff(columns.used.astype(np.int8), prepend=0, append=0, axis=1)
    roi, begin = np.nonzero(edges > 0)
    lengths = np.nonzero(edges < 0)[1] - begin
    return np.bincount(roi, lengths // LANES + lengths % LANES, len(edges)).astype(np.int64)
