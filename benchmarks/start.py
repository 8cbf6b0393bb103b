"""Measure how long a user waits for the compiler and the suite: ``python -m benchmarks.start``, which `make start` runs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
CALL = """
import numpy as np, ortops
x, rois = np.ones((1, 64, 50, 76), np.float32), np.tile(np.float32([[200, 100, 600, 400]]), (100, 1))
y = ortops.roi_align(x, rois, [0] * 100, output_height=7, output_width=7, sampling_ratio=2, spatial_scale=1 / 16)
"""
FIRST_CALL = ("-c", CALL)
WITH_GRADIENT = (
    "-c",
    f"""{CALL}
ortops.roi_align_grad(y, rois, [0] * 100, x.shape, outputs=["dx"], sampling_ratio=2, spatial_scale=1 / 16)
""",
)
WARMUP = ("-m", "ortops", "warmup")
SUITE = ("-m", "conformance", "--backend", "ortops", "--strict", "all")


def run(arguments: Sequence[str], cache: str, **variables: str) -> tuple[str, str, str]:
    """Run Python with a folder for compiled code; the seconds of the processor and of the clock, and the most megabytes."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache, **variables}
    began = time.perf_counter()
    process = subprocess.Popen(  # noqa: S603 - our own modules
        [sys.executable, *arguments], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise click.ClickException(f"{' '.join(arguments)} ends with status {process.returncode}")
    # Of the process and all that it has waited for; the memory is that of the largest of them.
    return f"{usage.ru_utime + usage.ru_stime:.1f}", f"{seconds:.1f}", f"{usage.ru_maxrss / 1024:.0f}"


@click.command()
@click.option("--suite/--no-suite", default=True, help="Run the whole conformance suite, too.")
def main(suite: bool) -> None:
    """Measure the start on an idle machine, nothing cached: first calls, all kernels, a wheel, and the suite."""
    table = Table("", "processor, s", "clock, s", "memory, MB", title="How long the start takes")
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as other:
        table.add_row("first average in float, compiled", *run(FIRST_CALL, cache))
        table.add_row("the same in the next process", *run(FIRST_CALL, cache))
        table.add_row("then dX, compiled", *run(WITH_GRADIENT, cache))
        table.add_row("all kernels in all types", *run(WARMUP, other))
        folder = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", cache, str(ROOT))
        table.add_row("a wheel", *run(folder, other))
        table.add_row("a wheel with bitcode", *run(folder, other, ORTOPS_BUILD_COMPILED="1"))
        if suite:
            table.add_row("the suite, all kernels cached", *run(SUITE, other))
    Console(width=100).print(table)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.start")
