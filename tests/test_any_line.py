"""An exception at any line of this library's Python code, as a signal handler may raise it."""

from __future__ import annotations

from processes import python

EVERY_LINE = """
import sys
import numpy as np, onnxruntime, onnx_models, ortops

class Interrupt(Exception):
    pass

def interrupted_at(n, call):
    "Whether a call has an n-th line or entry of a function, where it is interrupted; and its result or exception."
    count = 0
    def trace(frame, event, _):
        nonlocal count
        if not str(frame.f_globals.get("__name__")).startswith("ortops."):
            return None
        count += event in ("call", "line")
        if count == n:
            raise Interrupt
        return trace
    sys.settrace(trace)
    try:
        result = call()
    except Exception as error:
        result = error
    finally:
        sys.settrace(None)
    return count >= n, result

def options():
    made = onnxruntime.SessionOptions()
    made.log_severity_level, made.intra_op_num_threads = 4, 1
    return made

model = onnx_models.roi_align(16, output_height=2, output_width=2).SerializeToString()
rois = np.array([[1, 1, 3, 3]], np.float32)
feeds = {"X": np.ones((1, 1, 5, 5), np.float32), "rois": rois, "batch_indices": np.zeros(1, np.int64)}
shared = options()
ortops.register(shared)
ours, plain = ortops.InferenceSession(model, shared), onnxruntime.InferenceSession(model, shared)
calls = {
    "run": lambda: ours.run(None, feeds),
    "run plain": lambda: plain.run(None, feeds),
    "make": lambda: ortops.InferenceSession(model, options()),
    "make plain": lambda: onnxruntime.InferenceSession(model, shared),
    "call": lambda: ortops.roi_align(*feeds.values(), output_height=2, output_width=2),
}
for name, call in calls.items():
    call()
    found = set()
    for n in range(1, 10_000, 7 if "make" in name else 1):  # a session takes 3 ms
        reached, result = interrupted_at(n, call)
        if not reached:
            break
        is_error = isinstance(result, Exception)
        words = "interrupted by Interrupt" in str(result)
        found.add("interrupted" if words else type(result).__name__ if is_error else "an answer")
    assert 30 < n < 9_000, (name, n)
    print(name, *sorted(found))
for session in (ours, plain, calls["make"](), calls["make plain"]()):
    assert (session.run(None, feeds)[0] == 1).all()
"""


def test_an_exception_at_any_line_is_raised_and_the_process_goes_on_and_ends() -> None:
    assert python(EVERY_LINE).splitlines() == [
        "run Interrupt",
        "run plain interrupted",
        "make Interrupt",
        # ONNX Runtime ignores the status of shape inference.
        "make plain an answer interrupted",
        "call Interrupt",
    ]


SESSIONS_AT_THE_END = """
import sys
import onnx_models, ortops
class Holder: pass
sys.holder = Holder()  # which ends after all modules of Python's
sys.holder.session = ortops.InferenceSession(onnx_models.roi_align(16).SerializeToString())
sys.holder.holder = sys.holder
print("made")
"""


def test_a_session_may_outlive_the_modules() -> None:
    assert python(SESSIONS_AT_THE_END) == "made"
