"""Time our operators in sessions, in turn with ONNX Runtime's own or with their bodies, and print medians and ratios."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import click
import onnx
import onnxruntime
from rich.console import Console
from rich.progress import track
from rich.table import Table

import onnx_models
import ortops
from benchmarks.workloads import WORKLOADS, Workload
from ortops.kernels.parallel import available_cpus

WIDTH = 110
"""Columns of the table, in a pipe too."""


@click.command()
@click.option("--threads", default=(1, available_cpus()), multiple=True, type=click.IntRange(1), help="of a session")
@click.option("--rounds", default=15, show_default=True, type=click.IntRange(1), help="calls of each, in turn")
@click.option("--mode", default="avg", show_default=True, type=click.Choice(["avg", "max"]))
@click.option("--peer", default="kernel", show_default=True, type=click.Choice(["kernel", "bodies"]), help="see above")
def main(threads: tuple[int, ...], rounds: int, mode: str, peer: str) -> None:
    """Our operators against a peer: float, the same data and threads, called in turn.

    The peer "kernel" is ONNX Runtime's own RoiAlign-16. "bodies" is a model of RoiAlign with both of its gradients, in a
    stock session, where it runs as standard operators, and in one with our kernels.
    """
    table = Table(
        title=f"RoiAlign {mode}, ms (median of {rounds}); onnxruntime {onnxruntime.__version__}, "
        f"{available_cpus()} CPUs, {platform.machine()}"
    )
    for heading in ("workload", "X", "RoIs", "bins", "ratio", "threads", peer, "ortops", "times faster"):
        table.add_column(heading, justify="left" if heading in ("workload", "X") else "right")
    rows = [(workload, count) for workload in WORKLOADS for count in dict.fromkeys(threads)]
    for workload, count in track(rows, "measuring", console=Console(stderr=True), transient=True):
        theirs, ours = _measure(workload, count, rounds, mode, peer)
        table.add_row(
            workload.name,
            "x".join(map(str, workload.shape)),
            *map(str, (workload.rois, workload.bins, workload.sampling_ratio, count)),
            *(f"{value * 1e3:.2f}" for value in (theirs, ours)),
            f"{theirs / ours:.1f}",
        )
    Console(width=WIDTH).print(table)


def _measure(workload: Workload, threads: int, rounds: int, mode: str, peer: str) -> tuple[float, float]:
    """The median seconds of a call, theirs and ours."""
    attributes, inputs = workload.attributes | {"mode": mode}, workload.inputs()
    if peer == "kernel":
        models = [onnx_models.roi_align(16, standard=standard, **attributes) for standard in (True, False)]
    else:
        models = [onnx_models.joint(portable=True, **attributes)] * 2
        inputs["dY"] = workload.gradient()

    def call(session: Callable[..., Any], model: onnx.ModelProto) -> Callable[[], Any]:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        # Idle threads of one session that spin would take the other's cores.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        made = session(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return lambda: made.run(None, inputs)

    both = (
        call(onnxruntime.InferenceSession, models[0]),
        call(ortops.InferenceSession, models[1]),
    )
    times: tuple[list[float], list[float]] = ([], [])
    for each in both:
        each()
    for _ in range(rounds):
        for run, taken in zip(both, times, strict=True):
            start = time.perf_counter()
            run()
            taken.append(time.perf_counter() - start)
    return median(times[0]), median(times[1])


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
