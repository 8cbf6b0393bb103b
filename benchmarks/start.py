"""Measure how long a user waits for the compiler and the suite: ``python -m benchmarks.start``, which `make start` runs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from benchmarks.report import Grid, show

ROOT = Path(__file__).parents[1]
CALL = """
import numpy as np, ortops
x, rois = np.ones((1, 64, 50, 76), np.float32), np.tile(np.float32([[200, 100, 600, 400]]), (100, 1))
ortops.roi_align(x, rois, [0] * 100, output_height=7, output_width=7, sampling_ratio=2, spatial_scale=1 / 16)
"""
SUITE = ("-m", "conformance", "--backend", "ortops", "--strict", "all")
LIBRARY = ("-m", "ortops.build", "--out", os.devnull)


def run(cache: str, *arguments: str) -> tuple[str, ...]:
    """Run Python with a folder for compiled code; return seconds of processor time, elapsed seconds and peak megabytes."""
    environment, began = {**os.environ, "NUMBA_CACHE_DIR": cache}, time.perf_counter()
    command = [sys.executable, *arguments]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)  # noqa: S603 - our modules
    _, status, usage = os.wait4(process.pid, 0)
    seconds, process.returncode = time.perf_counter() - began, os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise click.ClickException(f"{' '.join(arguments)} ends with status {process.returncode}")
    # For the process and all children that it waited for; the memory is that of the largest one.
    return f"{usage.ru_utime + usage.ru_stime:.1f}", f"{seconds:.1f}", f"{usage.ru_maxrss / 1024:.0f}"


@click.command()
@click.option("--suite/--no-suite", default=True, help="Also run the whole conformance suite.")
def main(suite: bool) -> None:
    """Measure the start with an empty cache: the library, a first call, and the suite. Use an idle machine."""
    with tempfile.TemporaryDirectory() as cache:
        rows = [
            ("the library", *run(cache, *LIBRARY)),
            ("the library, all functions cached", *run(cache, *LIBRARY)),
            ("a first average in float", *run(cache, "-c", CALL)),
        ]
        rows += [("the suite", *run(cache, *SUITE))] if suite else []
    show(Grid(("operation", "processor, s", "clock, s", "memory, MB"), rows))


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.start")
