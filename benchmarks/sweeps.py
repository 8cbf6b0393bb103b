"""How the time of RoiAlign grows: `python -m benchmarks.sweeps` varies one size at a time and prints a table of each."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

from benchmarks import models, report
from benchmarks.bench import measure
from benchmarks.workloads import OPERATIONS, Problem, Workload

BASE = Workload("base", (1, 256, 100, 152), 100, 7, 2, 1 / 8, (32, 448))


def sweeps() -> Iterator[tuple[Workload, int]]:
    """Yield each workload with its number of threads.

    There are fewer channels than a panel has, for which planes are taken one by one, and more threads than most machines
    have cores. A sampling ratio of 0 chooses the samples by the size of the RoI. The RoIs of a larger map are larger, as in
    a picture of more pixels, so that they cover the same share of it.
    """
    images, _, height, width = BASE.shape
    for count in (1 << power for power in range(12)):
        yield replace(BASE, name=f"channels {count}", shape=(images, count, height, width)), 1
    for count in (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000):
        yield replace(BASE, name=f"RoIs {count}", rois=count), 1
    for count in (1, 2, 4, 7, 14, 28, 56):
        yield replace(BASE, name=f"bins {count}", bins=count), 1
    for count in (1, 2, 3, 4, 6, 8, 0):
        yield replace(BASE, name=f"sampling ratio {count}", sampling_ratio=count), 1
    for length in (25, 50, 100, 200, 400):
        shape, scale = (images, BASE.shape[1], length, width * length // height), BASE.spatial_scale * length / height
        yield replace(BASE, name=f"height of the map {length}", shape=shape, spatial_scale=scale), 1
    for count in (1, 2, 3, 4, 6, 8, 12, 16):
        yield replace(BASE, name="threads"), count


def main() -> None:
    """Measure and print."""
    peers, operations = (
        {"onnxruntime": models.onnxruntime_own},
        (one for one in OPERATIONS if one.name in ("avg", "dX")),
    )
    for operation in operations:
        problems = ((Problem(operation, workload, "float"), threads) for workload, threads in sweeps())
        cells = [measure(problem, threads, models.ours, peers) for problem, threads in problems]
        sys.stdout.write("\n\n".join(report.tables(cells)) + "\n\n")


if __name__ == "__main__":
    main()
