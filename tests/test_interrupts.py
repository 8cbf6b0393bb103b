# SPDX-License-Identifier: MIT
"""Signals while ONNX Runtime computes and makes sessions, each program in a process of its own.

`python tests/test_interrupts.py ours|unconverted PROGRAM...` prints the counts of each program's outcomes, and the monotonic
time of their end, as JSON.
"""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import statistics
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import onnx_models
import ortops
from conformance.case import Array
from ortops.spec import DOMAIN
from processes import python

RIGHT, WRONG = "right", "wrong"
RAISED = "raised"
"""The call raised the exception of the signal's handler, or RecursionError in the program that tests recursion."""
LOST = "lost"
"""A handler raised, but the call did not."""

FEEDS: dict[str, Array] = {
    "X": np.random.default_rng(0).uniform(-1, 1, (1, 4, 8, 8)).astype(np.float32),
    "rois": np.array([[0, 0, 8, 8]], np.float32),
    "batch_indices": np.zeros(1, np.int64),
}
SIZE: dict[str, Any] = {"output_height": 8, "output_width": 8}
SECONDS, FIRST = 0.3, 0.2
"""Of a storm of signals; about those of its first attempt, which loads compiled code."""
Outcomes = Counter[str]


class AlarmError(Exception):
    """An alarm that `except Exception` catches, like the error of a time limit."""


class Alarm(BaseException):
    """An alarm that `except Exception` does not catch, like KeyboardInterrupt."""


def with_nodes_of_onnx(model: bytes) -> bytes:
    """The model with ONNX's RoiAlign in place of ours."""
    proto = onnx.ModelProto.FromString(model)
    for node in proto.graph.node:
        if node.domain == DOMAIN:
            node.op_type, node.domain = "RoiAlign", ""
    return bytes(proto.SerializeToString())


def make(model: bytes) -> Any:
    """Create a session, with ONNX's own nodes in place of ours if the program is told so."""
    model = with_nodes_of_onnx(model) if sys.argv[1] == "unconverted" else model
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ortops.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def chain(nodes: int) -> bytes:
    """A model with `nodes` RoiAligns in a chain, each followed by an Add, for `FEEDS`."""
    node = "ai.onnx.contrib.RoiAlign_16 <output_height = 8, output_width = 8>"
    rest = [f"Y{i} = {node} (Z{i}, rois, batch_indices) Z{i + 1} = Add(Y{i}, Y{i})" for i in range(1, nodes)]
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21, "ai.onnx.contrib" : 1]>
        g (float[1, 4, 8, 8] X, float[1, 4] rois, int64[1] batch_indices) => (float[1, 4, 8, 8] Z{nodes}) {{
            Y0 = {node} (X, rois, batch_indices) Z1 = Add(Y0, Y0) {" ".join(rest)}
        }}""")
    return bytes(model.SerializeToString())


def chain_answer(nodes: int) -> Array:
    """The output of `chain` for `FEEDS`."""
    z = FEEDS["X"]
    for _ in range(nodes):
        y = ortops.roi_align(z, FEEDS["rois"], FEEDS["batch_indices"], **SIZE)
        z = y + y
    return z


def of_answer(answer: Any, expected: Array) -> str:
    """The outcome of a run that returned its only output."""
    # Not np.array_equal, which returns False for any exception inside it, also one from a signal handler.
    if answer.shape == expected.shape and answer.tobytes() == expected.tobytes():
        return RIGHT
    return WRONG


def of_error(error: BaseException, awaited: type[BaseException]) -> str:
    """The outcome of a call that raised an error."""
    if isinstance(error, awaited):
        return RAISED
    return f"other: {type(error).__name__}: {str(error)[-160:]}"


def caught(call: Callable[[], str], awaited: type[BaseException]) -> str:
    """The outcome of a call, whatever it raises."""
    try:
        return call()
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is judged
        return of_error(error, awaited)


def storm_run() -> Outcomes:
    """Alarms while a session of many small nodes runs, and a run after them."""
    session, expected = make(chain(20)), chain_answer(20)
    rng = random.Random(1)  # noqa: S311 - no secret
    awaited = rng.choice((AlarmError, Alarm))
    durations, raised = deque([FIRST], 20), 0

    def handler(_: int, __: FrameType | None) -> None:
        nonlocal raised
        raised += 1
        raise awaited

    def run() -> str:
        return of_answer(session.run(None, FEEDS)[0], expected)

    def interrupted() -> str:
        try:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 1.5 * statistics.median(durations)))
            return run()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    signal.signal(signal.SIGALRM, handler)
    outcomes, end = Outcomes(), time.monotonic() + SECONDS
    while time.monotonic() < end:
        before, begun = raised, time.perf_counter()
        outcome = caught(interrupted, awaited)
        if outcome == RIGHT:
            durations.append(time.perf_counter() - begun)
        outcomes[LOST if outcome == RIGHT and raised > before else outcome] += 1
    return outcomes + Outcomes([run()])


def in_a_kernel() -> Outcomes:
    """One Ctrl-C while a node computes for a large part of a second."""
    session = make(onnx_models.roi_align(16).SerializeToString())
    rng = np.random.default_rng(0)
    corners = rng.uniform(0, 150, (4_000, 2))
    feeds = {
        "X": rng.standard_normal((1, 256, 200, 304), np.float32),
        "rois": np.concatenate([corners, corners + rng.uniform(20, 150, corners.shape)], axis=1).astype(np.float32),
        "batch_indices": np.zeros(len(corners), np.int64),
    }
    begun = time.monotonic()
    (expected,) = session.run(None, feeds)
    took = time.monotonic() - begun
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.4 * took, os.kill, (os.getpid(), signal.SIGINT)).start()

    def run() -> str:
        outcome = of_answer(session.run(None, feeds)[0], expected)
        time.sleep(0.2)  # by now it has arrived, or never will
        return LOST if outcome == RIGHT else outcome

    interrupted = caught(run, KeyboardInterrupt)
    return Outcomes([interrupted, of_answer(session.run(None, feeds)[0], expected)])


def nested() -> Outcomes:
    """Alarms whose handler runs the session that is already running."""
    session, expected = make(chain(3)), chain_answer(3)
    rng, outcomes = random.Random(1), Outcomes()  # noqa: S311 - no secret

    def run() -> None:
        outcomes[caught(lambda: of_answer(session.run(None, FEEDS)[0], expected), KeyboardInterrupt)] += 1

    def handler(_: int, __: FrameType | None) -> None:
        run()
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 1e-3))

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 1e-3)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        run()
    # Ignored, not reset: a handler that is running would set the timer again.
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    return outcomes


def recursion() -> Outcomes:
    """Sessions run and are created at every call depth near the recursion limit."""
    model, expected = chain(1), chain_answer(1)
    session = make(model)
    calls = (
        lambda: of_answer(session.run(None, FEEDS)[0], expected),
        lambda: of_answer(make(model).run(None, FEEDS)[0], expected),
    )
    limit, usual = 400, sys.getrecursionlimit()
    sys.setrecursionlimit(limit)

    def at_depth(depth: int, call: Callable[[], str]) -> str:
        return at_depth(depth - 1, call) if depth else call()

    outcomes = Outcomes(
        caught(functools.partial(at_depth, depth, call), RecursionError)
        for call in calls
        for depth in range(limit - 150, limit)
    )
    sys.setrecursionlimit(usual)
    return outcomes


def interrupted_at(n: int, call: Callable[[], object]) -> tuple[bool, object]:
    """Whether a call has an n-th line or entry of a function, where it is interrupted; and its result or exception."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if not str(frame.f_globals.get("__name__")).startswith("ortops."):
            return None
        count += event in ("call", "line")
        if count == n:
            raise AlarmError
        return trace

    sys.settrace(trace)
    try:
        result: object = call()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is judged
        result = error
    finally:
        sys.settrace(None)
    return count >= n, result


def every_line() -> dict[str, list[str]]:
    """What comes of an exception at each line of a run, of a function's call, and at some lines of making a session."""
    model, expected = chain(1), chain_answer(1)
    shared = onnxruntime.SessionOptions()
    shared.log_severity_level, shared.intra_op_num_threads = 4, 1
    ortops.register(shared)
    ours, plain = make(model), onnxruntime.InferenceSession(model, shared)
    calls: dict[str, Callable[[], Any]] = {
        "run": lambda: ours.run(None, FEEDS),
        "run plain": lambda: plain.run(None, FEEDS),
        "make": lambda: make(model),
        "make unconverted": lambda: ortops.InferenceSession(with_nodes_of_onnx(model), shared),
        "make plain": lambda: onnxruntime.InferenceSession(model, shared),
        "call": lambda: ortops.roi_align(*FEEDS.values(), **SIZE),
    }
    outcomes = {}
    for name, call in calls.items():
        call()
        kinds = set()
        for n in range(1, 10_000, 7 if "make" in name else 1):  # a session takes 3 ms
            reached, result = interrupted_at(n, call)
            if not reached:
                break
            words = "interrupted by AlarmError" in str(result)
            kind = type(result).__name__ if isinstance(result, Exception) else "an answer"
            kinds.add("interrupted" if words else kind)
        assert n == 1 if name.endswith("plain") else 3 < n < 9_000, (name, n)
        outcomes[name] = sorted(kinds)
    for session in (ours, plain, calls["make"](), calls["make unconverted"](), calls["make plain"]()):
        assert of_answer(session.run(None, FEEDS)[0], expected) == RIGHT
    return outcomes


MAX_EXIT_SECONDS = 30.0
"""From the end of a program to the end of its process."""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no alarms")
@pytest.mark.parametrize(
    ("nodes", "programs"),
    [
        ("ours", ("storm_run", "in_a_kernel", "nested", "recursion")),
        ("unconverted", ("storm_run", "recursion")),
    ],
    ids=["ours", "unconverted"],
)
def test_call_answers_right_or_raises_exception_of_handler(nodes: str, programs: tuple[str, ...]) -> None:
    printed = json.loads(python(Path(__file__), nodes, *programs).splitlines()[-1])
    assert time.monotonic() - printed["end"] < MAX_EXIT_SECONDS
    assert {name: ended for name, ended in printed["outcomes"].items() if not set(ended) <= {RIGHT, RAISED}} == {}
    assert [name for name, ended in printed["outcomes"].items() if not ended.get(RIGHT)] == []


def test_exception_at_any_line_is_raised() -> None:
    """An exception at any line of this library's Python code, as a signal handler may raise it."""
    assert json.loads(python(Path(__file__), "ours", "every_line"))["outcomes"]["every_line"] == {
        "run": ["AlarmError"],
        "run plain": [],  # there is no such line
        "make": ["AlarmError"],
        "make unconverted": ["AlarmError"],
        # ONNX Runtime ignores the status of shape inference.
        "make plain": [],
        "call": ["AlarmError"],
    }


SESSIONS_AT_THE_END = """
import sys
import onnx_models, ortops
class Holder: pass
sys.holder = Holder()  # which ends after all modules of Python's
sys.holder.session = ortops.InferenceSession(onnx_models.roi_align(16).SerializeToString())
sys.holder.holder = sys.holder
print("made")
"""


def test_session_outlives_modules() -> None:
    assert python(SESSIONS_AT_THE_END) == "made"


if __name__ == "__main__":
    outcomes = {name: globals()[name]() for name in sys.argv[2:]}
    print(json.dumps({"outcomes": outcomes, "end": time.monotonic()}))
