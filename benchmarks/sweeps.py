"""The sweeps of the plot: RoiAlign with one size varied at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.workloads import Workload

BASE = Workload("base", (1, 256, 100, 152), 100, 7, 2, 1 / 8, (32, 448))


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


def sweeps(most_threads: int) -> tuple[Sweep, ...]:
    """Return all sweeps; threads are doubled up to `most_threads`."""
    threads = sorted({most_threads, *(1 << power for power in range(most_threads.bit_length()))})
    return (
        Sweep("RoIs", tuple(Point(n, _base(rois=n)) for n in (1, 10, 100, 1000))),
        Sweep("channels", tuple(Point(c, _base(shape=(1, c, 100, 152))) for c in (16, 64, 256, 1024))),
        Sweep("sampling ratio", tuple(Point(g, _base(sampling_ratio=g)) for g in (1, 2, 4, 8))),
        # With a fixed number of samples the size matters little; with ONNX's default it determines that number.
        Sweep(
            "RoI size (pixels of the map, samples by size)",
            tuple(Point(s, _base(sampling_ratio=0, sizes=(8 * s, 8 * s))) for s in (4, 16, 64)),
        ),
        Sweep("threads", tuple(Point(n, BASE, n) for n in threads)),
    )


def _base(**changes: object) -> Workload:
    name = ", ".join(f"{field} {value}" for field, value in changes.items())
    return replace(BASE, name=f"base, {name}", **changes)  # type: ignore[arg-type]
