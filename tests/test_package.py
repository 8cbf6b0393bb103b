"""The cost of importing and shutting down, and the dependencies of the package."""

from __future__ import annotations

import sys

import pytest

import ortops
from processes import python


def test_importing_loads_neither_a_compiler_nor_onnxruntime() -> None:
    heavy = "('numba', 'llvmlite', 'onnxruntime', 'onnxruntime_extensions', 'torch', 'hypothesis')"
    code = (
        f"import sys, ortops, onnx_models, ortops.reference; print([name for name in {heavy} if name in sys.modules])"
    )
    assert python(code) == "[]"


def test_every_public_name_is_there_and_has_a_docstring() -> None:
    for name in ortops.__all__:
        assert getattr(ortops, name).__doc__, f"ortops.{name} has no docstring"
    assert set(ortops.__all__) <= set(dir(ortops))


def test_a_forked_child_can_run_the_session_of_its_parent() -> None:
    code = """
import multiprocessing, warnings
import numpy as np, onnx, onnxruntime, onnx_models, ortops
from numpy.typing import NDArray
warnings.simplefilter("ignore")
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = ortops.InferenceSession(onnx_models.roi_align(16).SerializeToString(), options)
@ortops.operator(domain="t")
def Twice(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return 2 * x
def of_user():
    text = '<ir_version: 8, opset_import: ["" : 16, "t" : 1]> g (float[n] x) => (float[n] y) { y = t.Twice(x) }'
    return ortops.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), options, operators=[Twice])
kept = of_user()
rois = np.array([[0, 0, 3, 3]], np.float32)
feeds = {"X": np.ones((1, 1, 4, 4), np.float32), "rois": rois, "batch_indices": np.zeros(1, np.int64)}
def child(queue):
    found = [one.run(None, {"x": np.ones(1, np.float32)})[0].item() for one in (kept, of_user())]
    queue.put([session.run(None, feeds)[0].item(), *found])
if __name__ == "__main__":
    assert session.run(None, feeds)[0].item() == 1
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    print(queue.get(timeout=60))
    process.join()
"""
    if sys.platform != "linux":
        pytest.skip("fork is safe on Linux only")
    assert python(code) == "[1.0, 2.0, 2.0]"


def test_daemon_threads_inside_sessions_do_not_abort_the_interpreters_exit() -> None:
    code = """
import threading
import numpy as np, onnxruntime, onnx_models, ortops
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
ortops.register(options)
model = onnx_models.roi_align(16).SerializeToString()
sessions = [kind(model, options) for kind in (ortops.InferenceSession, onnxruntime.InferenceSession)]
rois = np.tile(np.array([[0, 0, 30, 30]], np.float32), (100, 1))
feeds = {"X": np.ones((1, 8, 50, 50), np.float32), "rois": rois, "batch_indices": np.zeros(100, np.int64)}
all_run = threading.Barrier(5)
def forever(session):
    session.run(None, feeds)
    all_run.wait()
    while True:
        session.run(None, feeds)
for session in sessions * 2:
    threading.Thread(target=forever, args=(session,), daemon=True).start()
all_run.wait()
print("done")
"""
    assert python(code) == "done"
