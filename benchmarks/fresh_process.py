"""Print the processor seconds of a process's first calls as JSON: ``python -m benchmarks.fresh_process CASE``.

Before it reads the clock, it imports little besides NumPy, onnxruntime and ortops.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime

import ortops
from benchmarks.workloads import Array, Workload

IMPORTED = time.process_time()

WORKLOAD = Workload("small", (1, 64, 50, 76), 100, 7, 2, 1 / 16, (112, 600))
"""Typical of detectors, but computed within milliseconds."""


def _function(workload: Workload) -> Callable[[], Array]:
    arrays = workload.inputs().values()
    return lambda: ortops.roi_align(*arrays, **workload.attributes)


def _session(workload: Workload) -> Callable[[], Array]:
    import onnx_models

    model, arrays = onnx_models.roi_align(16, **workload.attributes).SerializeToString(), workload.inputs()
    options = onnxruntime.SessionOptions()
    # The time of spinning idle threads would count.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")

    def run() -> Array:
        session = ortops.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return np.asarray(session.run(None, arrays)[0])

    return run


def _with_gradient(workload: Workload) -> Callable[[], Array]:
    forward, dy = _function(workload), workload.gradient()
    x, rois, batch_indices = workload.inputs().values()

    def run() -> Array:
        forward()
        dx, _ = ortops.roi_align_grad(dy, rois, batch_indices, x.shape, outputs=["dx"], **workload.gradient_attributes)
        return np.asarray(dx)

    return run


CASES: Mapping[str, Callable[[Workload], Callable[[], Array]]] = {
    "function": _function,
    "session": _session,
    "function, then dX": _with_gradient,
}
"""Ways to compute averages in float: on NumPy arrays, in a new session each time, and followed by the gradient dX."""


def seconds(case: str) -> dict[str, float]:
    """Return the seconds of the imports, a first call on `WORKLOAD`, and later calls with one RoI and with other bins."""
    workloads = {"first": WORKLOAD, "one RoI": replace(WORKLOAD, rois=1), "other bins": replace(WORKLOAD, bins=14)}
    calls: dict[str, Callable[[], Any]] = {name: CASES[case](changed) for name, changed in workloads.items()}
    taken = {"imports": IMPORTED}
    for name, call in calls.items():
        began = time.process_time()
        call()
        taken[name] = time.process_time() - began
    return taken


if __name__ == "__main__":
    sys.stdout.write(json.dumps(seconds(sys.argv[1])))
