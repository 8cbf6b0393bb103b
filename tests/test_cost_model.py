"""The model of the cost: work is counted as the kernels do it, and a fit finds the costs."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from benchmarks import counts
from benchmarks.cost_model import CACHED_BYTES, LIMITS, TERMS, Measured, Model, Work, amounts, fit
from benchmarks.sweeps import BASE
from benchmarks.workloads import WORKLOADS, Array, Workload
from ortops.kernels.jit import LANES, disk
from ortops.kernels.jit.kernel import Kernel
from ortops.kernels.layout import AXIS_FIELDS, PlacedRois, Shape

PLACE = Kernel("axis", "place_onnx_rois")
FILL, CHOOSE = Kernel("table_kernels", "fill"), Kernel("table_kernels", "choose")

TINY = Workload("tiny", (1, 20, 12, 40), 5, 3, 2, 1 / 2, (4, 40))
COUNTED = [
    TINY,
    replace(TINY, name="few channels", shape=(1, 3, 12, 40)),
    replace(TINY, name="many RoIs", rois=60),
    replace(TINY, name="adaptive", sampling_ratio=0, rois=30),
    replace(TINY, name="bins", bins=9, sampling_ratio=1),
    replace(BASE, name="one RoI", rois=1),
    replace(BASE, name="few RoIs", rois=10),
    replace(BASE, name="base of few channels", shape=(1, 7, 100, 152)),
    replace(BASE, name="unshared tables", rois=10_000),
    BASE,
    *(workload for workload in WORKLOADS if workload.name in ("P2", "P2 adaptive", "mask", "C4", "one")),
]


class Table:
    """A RoI's table along an axis, as the kernel fills it: the pixels of each bin, and the ranges of all."""

    def __init__(self, placed: PlacedRois, r: int, k: int, bins: int, length: int) -> None:
        most = length + 2 * bins + 2
        start, pixel, ranges = (np.zeros(size, np.int64) for size in (bins + 1, most, most))
        inside, weight = np.zeros(bins), np.zeros(most, np.float32)
        assert FILL(placed, r, k, bins, length, start, inside, pixel, weight, ranges) == 0
        self.bins = [pixel[begin:end].tolist() for begin, end in pairwise(start)]
        self.ranges = [(ranges[2 * n + 1], ranges[2 * n + 2]) for n in range(ranges[0])]

    @property
    def entries(self) -> int:
        return sum(map(len, self.bins))


@pytest.fixture(autouse=True)
def _kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the kernels of this folder compiled by each process: the cache does not know when their source changes."""
    monkeypatch.setitem(sys.modules, "ortops.kernels.table_kernels", importlib.import_module("table_kernels"))
    find, save = disk.find, disk.save
    ours = ("table_kernels.fill", "table_kernels.choose")
    monkeypatch.setattr(disk, "find", lambda name, *types: None if name in ours else find(name, *types))
    monkeypatch.setattr(disk, "save", lambda name, *code: None if name in ours else save(name, *code))


def place(workload: Workload) -> PlacedRois:
    shape = Shape(*workload.shape, workload.rois, workload.bins, workload.bins)
    axes, spans = np.empty((workload.rois, 2, AXIS_FIELDS)), np.empty((workload.rois, 2), np.int64)
    placed = PlacedRois(shape, axes, spans, np.zeros(workload.rois, np.int64))
    scale = float(np.float32(workload.spatial_scale))
    assert PLACE(workload.corners().astype(np.float64), placed, scale, True, workload.sampling_ratio) == -1
    return placed


def choices(workload: Workload) -> list[int]:
    found = np.zeros(4, np.int64)
    assert CHOOSE(place(workload), np.zeros(1, np.float32), found) == 0
    return [int(one) for one in found]


@pytest.mark.parametrize("workload", COUNTED, ids=lambda w: w.name)
def test_choices_are_those_of_the_kernels(workload: Workload) -> None:
    rows, columns = counts.axes(workload)
    packs, shares, lines, covered = choices(workload)
    assert counts.packs_maps(workload, rows, columns) == packs
    assert counts.shares_tables(workload, rows, columns) == shares
    assert counts.panel_lines(workload, rows, columns) == lines
    assert int(rows.spans @ columns.spans) == covered


def test_the_workloads_have_both_answers_of_each_choice() -> None:
    found = [choices(workload) for workload in COUNTED]
    assert {packs for packs, *_ in found} == {shares for _, shares, *_ in found} == {0, 1}
    heights = [workload.shape[2] for workload in COUNTED]
    assert {lines < height for (_, _, lines, _), height in zip(found, heights, strict=True)} == {True, False}


@pytest.mark.parametrize("workload", [one for one in COUNTED if one.rois <= 100], ids=lambda w: w.name)
def test_tables_are_those_of_the_kernels(workload: Workload) -> None:
    placed, lengths = place(workload), workload.shape[2:]
    for k, axis in enumerate(counts.axes(workload)):
        tables = [Table(placed, r, k, workload.bins, lengths[k]) for r in range(workload.rois)]
        marked = [[np.flatnonzero(one).tolist() for one in roi] for roi in axis.marks]
        assert marked == [table.bins for table in tables]
        assert axis.entries.tolist() == [table.entries for table in tables]
        assert axis.spans.tolist() == placed.spans[:, k].tolist()
        low, high = axis.limits
        assert [(a, b) for a, b in zip(low, high, strict=True) if b] == [
            (table.ranges[0][0], table.ranges[-1][1]) for table in tables if table.ranges
        ]


@pytest.mark.parametrize("workload", [one for one in COUNTED if one.rois <= 100], ids=lambda w: w.name)
def test_operations_of_the_average_are_those_of_its_loops(workload: Workload) -> None:
    """They are counted as `kernels/average.py` has them: one by one."""
    placed, (channels, height, width) = place(workload), workload.shape[1:]
    work = counts.average_work(workload)
    operations = visits = 0
    for r in range(workload.rois):
        rows, columns = (Table(placed, r, k, workload.bins, length) for k, length in enumerate((height, width)))
        packs = channels >= LANES // 2
        in_a_line = sum(
            high - low if packs else (high - low) // LANES + (high - low) % LANES for low, high in columns.ranges
        )
        for bin_of_rows in rows.bins:
            times = -(-channels // LANES) if packs else channels
            operations += times * (len(bin_of_rows) * in_a_line + columns.entries)
        visits += times
    assert (work.operations, work.visits) == (operations, visits)


def test_bytes_are_those_of_maps_and_bins() -> None:
    whole = counts.average_work(BASE)
    assert (whole.map_bytes, whole.bin_bytes, whole.plane_bytes) == (4 * 256 * 100 * 152, 4 * 100 * 256 * 49, 0)
    dx = counts.dx_work(BASE)
    assert (dx.map_bytes, dx.bin_bytes, dx.plane_bytes) == (whole.map_bytes, whole.bin_bytes, 0)
    # The last panel is packed as a whole.
    assert counts.average_work(replace(BASE, shape=(1, 250, 100, 152))).map_bytes == whole.map_bytes
    planes = counts.average_work(replace(BASE, shape=(1, 4, 100, 152)))
    assert planes.map_bytes == planes.bin_bytes == 0 < planes.plane_bytes
    one = counts.average_work(replace(BASE, rois=1))
    assert 0 < one.map_bytes < whole.map_bytes / 10
    assert counts.dx_work(replace(BASE, rois=1)).plane_bytes >= whole.map_bytes


def test_tasks_and_fills_are_those_of_the_plans() -> None:
    assert counts.average_work(BASE).tasks == counts.dx_work(BASE).tasks == 16
    assert counts.average_work(replace(BASE, rois=1)).tasks == 1
    assert counts.average_work(replace(BASE, rois=10)).tasks == 70
    entries = [counts.average_work(replace(BASE, rois=n)).entries / n for n in (1000, 10_000)]
    assert entries[1] > 15 * entries[0]
    in_bands, in_one = (counts.dx_work(replace(BASE, shape=(1, 256, height, 152))) for height in (200, 100))
    assert in_bands.tasks == 2 * in_one.tasks


def test_dx_without_bands_has_the_operations_of_the_average_and_those_that_clear() -> None:
    rows, columns = counts.axes(TINY)
    assert counts.dx_lines(TINY, rows, columns) == TINY.shape[2]
    cleared = TINY.bins * int(columns.used.sum()) + 40 * int(np.ptp(np.flatnonzero(rows.used.any(axis=0))) + 1)
    assert counts.dx_work(TINY).operations == counts.average_work(TINY).operations + 2 * cleared


def test_work_is_counted_of_averages_on_one_image() -> None:
    assert counts.work("avg", TINY) == counts.average_work(TINY)
    assert counts.work("dX", TINY) == counts.dx_work(TINY)
    assert counts.work("max", TINY) is None
    two = replace(TINY, shape=(2, 20, 12, 40))
    assert counts.work("avg", two) is None
    with pytest.raises(ValueError, match="one image"):
        counts.average_work(two)


COSTS = (5e-5, 2e-8, 8e-8, 5e-10, 6e-11, 1e-10, 3e-11, 2e-11, 3e-11, 1e-5)


def synthetic(noise: float = 0.0, cores: int = 4) -> list[Measured]:
    """Measurements of random work that cost `COSTS`."""
    rng = np.random.default_rng(0)
    found = []
    for n in range(80):
        sizes = (10.0 ** rng.uniform((2, 1, 4, 4, 4, 4), (6, 5, 8, 8, 8, 8))).astype(int).tolist()
        work, threads = Work(*sizes, *rng.integers(1, 40, 1).tolist()), int(rng.choice([1, 2, 3, 8]))
        seconds = float(amounts(work, threads, cores) @ COSTS) * (1 + noise * (-1) ** n)
        found.append(Measured(work, threads, seconds))
    return found


def test_a_fit_of_what_the_model_made_returns_its_costs() -> None:
    model = fit(synthetic(), cores=4)
    np.testing.assert_allclose(model.costs, COSTS, rtol=1e-6)
    assert model.largest_error < 1e-9


def test_errors_are_relative_and_those_of_the_measurements() -> None:
    measured = synthetic(noise=0.05)
    model = fit(measured, cores=4)
    assert 0.02 < model.median_error < 0.06
    assert model.median_error < model.largest_error < 0.2
    for one, error in zip(measured, model.errors, strict=True):
        np.testing.assert_allclose(model.seconds(one.work, one.threads), one.seconds * (1 + error))


def test_no_cost_is_negative_also_where_that_would_fit_better() -> None:
    measured = [replace(one, seconds=1e-3) for one in synthetic()]
    model = fit(measured, cores=4)
    assert min(model.costs) >= 0
    assert model.costs[0] > 0


def test_a_fit_must_have_more_measurements_than_terms() -> None:
    with pytest.raises(ValueError, match="must have 20 measurements, not 19"):
        fit(synthetic()[:19], cores=4)


def test_threads_share_tasks_and_memory() -> None:
    work, zeros = Work(10, 20, 30, 40, 50, 60, tasks=16), [0] * 2
    assert amounts(work, 1, 16).tolist() == [1, 10, 20, 30, 40, 50, 60, 0, *zeros]
    # Of 16 tasks, the slowest of 12 threads has two.
    assert amounts(work, 12, 16).tolist() == [
        1,
        *(amount / 8 for amount in (10, 20, 30, 40, 50, 60)),
        0,
        150 * 7 / 8,
        11,
    ]
    # More threads than cores take turns, and more threads than tasks are not used.
    assert amounts(work, 12, 2)[1] == 5
    assert amounts(work, 40, 64)[[1, -1]].tolist() == [10 / 16, 15]
    large = replace(work, map_bytes=CACHED_BYTES + 7)
    assert amounts(large, 1, 1)[7] == 7 + 50 + 60
    assert Model(COSTS, 2).seconds(work, 16, cores=16) < Model(COSTS, 2).seconds(work, 16)


@pytest.mark.parametrize(("term", "limit"), [(n, term.limit) for n, term in enumerate(TERMS)])
def test_the_largest_part_limits_a_call(term: int, limit: str) -> None:
    work = Work(10**6, 10**6, 10**6, 10**8, 10**8, 10**8, tasks=16)
    costs = tuple(1.0 if n == term else 1e-12 for n in range(len(TERMS)))
    assert limit in LIMITS
    assert Model(costs, 2).limit(work, 2) == limit


def test_corners_are_the_rois_of_the_inputs() -> None:
    for workload in (TINY, BASE):
        corners: Array = workload.corners()
        np.testing.assert_array_equal(corners, workload.inputs()["rois"])
