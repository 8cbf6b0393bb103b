"""Measure a call of an operator in Python that does nothing: ``python -m benchmarks.custom_calls``."""

from __future__ import annotations

import statistics
import time

import click
import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnxruntime_extensions import PyCustomOpDef, onnx_op
from rich.console import Console
from rich.table import Table

import ortops

CALLS = {1: 4000, 1_000_000: 40}
"""The number of calls of each operator, by the length of the vector."""

NODES = {"Neg of ONNX Runtime": "Neg", "`ortops.operator`": "bench.Same", "`@onnx_op`": "ai.onnx.contrib.SameToo"}


@ortops.operator(domain="bench", name="Same")
def same(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The input."""
    return x


@onnx_op(op_type="SameToo", inputs=[PyCustomOpDef.dt_float], outputs=[PyCustomOpDef.dt_float])  # type: ignore[untyped-decorator]
def same_too(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The input."""
    return x


def session(node: str) -> onnxruntime.InferenceSession:
    """A session of one node from x, float [n], to y, float [n], on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 16, "ai.onnx.contrib" : 1, "bench" : 1]>
        g (float[n] x) => (float[n] y) {{ y = {node}(x) }}""")
    return ortops.InferenceSession(model.SerializeToString(), options, operators=[same])


def seconds(session: onnxruntime.InferenceSession, x: NDArray[np.float32]) -> float:
    """The time of a call of a session, without what `ortops.InferenceSession` adds."""
    began = time.perf_counter()
    onnxruntime.InferenceSession.run(session, None, {"x": x})
    return time.perf_counter() - began


@click.command()
def main() -> None:
    """Print the time of a call for vectors of two lengths: medians of calls in which the operators take turns."""
    sessions = {title: session(node) for title, node in NODES.items()}
    table = Table("", *(f"{length:,} elements, µs" for length in CALLS))
    cells: dict[str, list[str]] = {title: [] for title in NODES}
    for length, calls in CALLS.items():
        x = np.ones(length, np.float32)
        rounds = [[seconds(one, x) for one in sessions.values()] for _ in range(calls)]
        medians = [statistics.median(times) for times in zip(*rounds, strict=True)]
        for row, median in zip(cells.values(), medians, strict=True):
            row.append(f"{median * 1e6:,.1f} ({median / medians[0]:.1f} x)")
    for title, row in cells.items():
        table.add_row(title, *row)
    Console(width=100).print(table)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.custom_calls")
