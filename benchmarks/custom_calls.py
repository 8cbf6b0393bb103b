# SPDX-License-Identifier: MIT
"""What a call of an operator of a user costs: ours in Python and compiled, and that of onnxruntime-extensions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from typing import Annotated

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

import ortops
from benchmarks.measure import Call, Cell, interleave
from benchmarks.models import session

NODES = {
    "Neg of ONNX Runtime": "Neg",
    "`ortops.operator`": "bench.Same",
    "compiled": "bench.Negated",
}
ROUNDS = {1: 2000, 1_000_000: 20}
"""The number of rounds by the length of the vector."""


@ortops.operator(domain="bench", name="Same")
def same(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The input."""
    return x


@ortops.operator(domain="bench", name="Negated", compiled=True, outputs=["y"])
def negated(x: Annotated[NDArray[np.float32], ("n",)], y: Annotated[NDArray[np.float32], ("n",)]) -> None:
    """The negated input."""
    for i in range(x.shape[0]):
        y[i] = -x[i]


def measure(rounds: int | None = None) -> Iterator[Cell]:
    """Yield a cell for each of two lengths of a vector of float."""
    nodes = dict(NODES)
    if find_spec("onnxruntime_extensions"):
        from onnxruntime_extensions import PyCustomOpDef, onnx_op

        of_floats = {"inputs": [PyCustomOpDef.dt_float], "outputs": [PyCustomOpDef.dt_float]}
        onnx_op(op_type="SameToo", **of_floats)(same.call)
        nodes["`@onnx_op`"] = "ai.onnx.contrib.SameToo"
    models = {title: onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 16, "ai.onnx.contrib" : 1, "bench" : 1]>
        g (float[n] x) => (float[n] y) {{ y = {node}(x) }}""") for title, node in nodes.items()}  # fmt: skip
    sessions = {
        title: session(partial(ortops.InferenceSession, operators=[same, negated]), model, 1)
        for title, model in models.items()
    }
    for length, usual in ROUNDS.items():
        feeds = {"x": np.ones(length, np.float32)}
        # Without what `ortops.InferenceSession` adds to a call.
        run = onnxruntime.InferenceSession.run
        calls = {title: Call(partial(run, session, None, feeds)) for title, session in sessions.items()}
        yield Cell("custom-calls", "call", f"float[{length}]", 1, interleave(calls, rounds or usual))
