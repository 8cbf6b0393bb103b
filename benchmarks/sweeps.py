"""The sweeps: RoiAlign with one size varied at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.workloads import Workload

BASE = Workload("base", (1, 256, 100, 152), 100, 7, 2, 1 / 8, (32, 448))

CHANNELS = tuple(1 << power for power in range(12))
ROIS = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)
BINS = (1, 2, 4, 7, 14, 28, 56)
SAMPLES = (1, 2, 3, 4, 6, 8, 0)
HEIGHTS = (25, 50, 100, 200, 400)
THREADS = (1, 2, 3, 4, 6, 8, 12, 16)


@dataclass(frozen=True)
class Point:
    """A value of the varied size and its workload; `threads` is None unless it is varied."""

    value: int
    workload: Workload
    threads: int | None = None


@dataclass(frozen=True)
class Sweep:
    """The name of the varied size, and its points."""

    name: str
    points: tuple[Point, ...]


def sweeps() -> tuple[Sweep, ...]:
    """Return all sweeps.

    There are fewer channels than a panel has, for which planes are taken one by one, and more threads than most machines
    have cores. A sampling ratio of 0 chooses the samples by the size of the RoI. The RoIs of a larger map are larger, as in
    a picture of more pixels, so that they cover the same share of it.
    """
    varied: dict[str, list[Point]] = {
        "channels": [Point(c, replace(BASE, shape=(1, c, *BASE.shape[2:]))) for c in CHANNELS],
        "RoIs": [Point(n, replace(BASE, rois=n)) for n in ROIS],
        "bins": [Point(n, replace(BASE, bins=n)) for n in BINS],
        "sampling ratio": [Point(g, replace(BASE, sampling_ratio=g)) for g in SAMPLES],
        "height of the map": [Point(height, _map(height)) for height in HEIGHTS],
        "threads": [Point(n, BASE, n) for n in THREADS],
    }
    return tuple(Sweep(name, tuple(_named(name, point) for point in points)) for name, points in varied.items())


def _named(name: str, point: Point) -> Point:
    return replace(point, workload=replace(point.workload, name=f"{name} {point.value}"))


def _map(height: int) -> Workload:
    images, channels, base_height, base_width = BASE.shape
    shape = (images, channels, height, base_width * height // base_height)
    return replace(BASE, shape=shape, spatial_scale=BASE.spatial_scale * height / base_height)


NAMES = tuple(sweep.name for sweep in sweeps())
