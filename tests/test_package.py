# SPDX-License-Identifier: MIT
"""The cost of importing and shutting down, and the dependencies of the package."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import onnx_models
import ortops
from conformance.backends.session import options
from processes import outcome, python
from samples import FORWARD
from sessions import ONE, made, session

ONES = np.ones(1, np.float32)


def test_import_loads_neither_compiler_nor_onnxruntime() -> None:
    heavy = "('numba', 'llvmlite', 'onnxruntime', 'onnxruntime_extensions', 'torch', 'hypothesis')"
    code = (
        f"import sys, ortops, onnx_models, ortops.reference; print([name for name in {heavy} if name in sys.modules])"
    )
    assert python(code) == "[]"


def test_public_names_have_docstrings() -> None:
    for name in ortops.__all__:
        assert getattr(ortops, name).__doc__, f"ortops.{name} has no docstring"
    assert set(ortops.__all__) <= set(dir(ortops))


@pytest.mark.skipif(sys.platform != "linux", reason="fork is safe on Linux only")
def test_forked_child_runs_sessions_of_parent_and_its_own() -> None:
    chosen = options()
    chosen.intra_op_num_threads = 1
    twice = made(lambda x: 2 * x, inputs=[ortops.Tensor("x", "float")], outputs=[ortops.Tensor("y", "float")])
    pooling, kept = session(onnx_models.roi_align(16), chosen=chosen), session(ONE, twice, chosen=chosen)

    def results() -> list[float]:
        calls = ((pooling, FORWARD), (kept, {"x": ONES}), (session(ONE, twice, chosen=chosen), {"x": ONES}))
        return [runner.run(None, feeds)[0].flat[0].item() for runner, feeds in calls]

    assert outcome(results) == str(results())


def test_daemon_threads_in_sessions_abort_no_exit() -> None:
    code = """
import threading
import numpy as np, onnxruntime, onnx_models, ortops
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
ortops.register(options)
model = onnx_models.roi_align(16).SerializeToString()
sessions = [kind(model, options) for kind in (ortops.InferenceSession, onnxruntime.InferenceSession)]
rois = np.array([[0, 0, 30, 30]], np.float32)  # a short call, whose thread is often between its node and the GIL
feeds = {"X": np.ones((1, 1, 8, 8), np.float32), "rois": rois, "batch_indices": np.zeros(1, np.int64)}
all_run = threading.Barrier(9)
def forever(session):
    session.run(None, feeds)
    all_run.wait()
    while True:
        session.run(None, feeds)
for session in sessions * 4:
    threading.Thread(target=forever, args=(session,), daemon=True).start()
all_run.wait()
print("done")
"""
    assert python(code) == "done"
