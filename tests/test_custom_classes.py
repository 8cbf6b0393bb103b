# SPDX-License-Identifier: MIT
"""Operators that are classes: one object for each session, made with it and closed with it."""

# mypy: disable-error-code="empty-body, no-any-return"

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

import ortops
from conformance.backends.session import options
from ortops.custom import objects
from processes import python
from sessions import session

F = NDArray[np.float32]
TWICE = "(float[n] x) => (float[n] z) { y = t.Count(x)  z = t.Count <step = 10> (y) }"
WITH_BAD = "(float[n] x) => (float[n] z) { y = t.Count(x)  z = t.Bad(y) }"
FEEDS = {"x": np.zeros(1, np.float32)}


class Log:
    """What happened to the objects of a class, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def operator(self, *, fails: bool = False) -> ortops.CustomOperator:
        """A new operator of a class that counts its calls."""
        log = self.lines

        class Count:
            """Adds the number of calls so far, times a step."""

            def __init__(self) -> None:
                log.append("made")
                if fails:
                    raise FileNotFoundError("no such model")
                self._lock, self._calls = threading.Lock(), 0

            def __call__(self, x: F, *, step: int = 1) -> F:
                with self._lock:
                    self._calls += 1
                    return np.add(x, np.float32(self._calls * step))

            def close(self) -> None:
                log.append(f"closed after {self._calls}")

        return ortops.operator(domain="t")(Count)


def run(runner: Any) -> list[float]:
    found: list[float] = runner.run(None, FEEDS)[0].tolist()
    return found


@pytest.fixture(scope="module", autouse=True)
def small_heap() -> Iterator[None]:
    """Let collections look only at what these tests make: a run of all tests has a large heap."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def no_session_left() -> Any:
    before = {**objects._sessions}  # noqa: SLF001  # a document's operators, and its session, stay registered
    yield
    gc.collect()
    assert objects._sessions == before  # noqa: SLF001


def test_class_has_definition_of_its_call() -> None:
    operator = Log().operator()
    assert [(one.name, one.type) for one in operator.inputs] == [("x", "float")]
    assert [(one.name, one.type) for one in operator.attributes] == [("step", "INT")]
    assert (operator.label, operator.doc) == ("t::Count", "Adds the number of calls so far, times a step.")
    assert operator()(np.ones(1, np.float32)).tolist() == [2]  # it is still the class


def test_session_closes_object_that_its_nodes_share() -> None:
    log = Log()
    runner = session(TWICE, log.operator())
    assert log.lines == ["made"]
    assert [run(runner), run(runner)] == [[1 + 20], [3 + 40]]
    assert log.lines == ["made"]
    del runner
    gc.collect()
    assert log.lines == ["made", "closed after 4"]


def test_session_neither_folds_nor_merges_nodes() -> None:
    log = Log()
    graph = """(float[n] x) => (float[n] y, float[n] z) {
        c = Constant <value = float[1] {0}> ()
        a = t.Count(c)
        b = t.Count(c)
        y = Add(x, a)
        z = Add(x, b)
    }"""
    runner = session(graph, log.operator())
    for i in range(3):
        y, z = runner.run(None, FEEDS)
        assert sorted([y.item(), z.item()]) == [2 * i + 1, 2 * i + 2]


def test_sessions_in_many_threads_share_no_object() -> None:
    log = Log()
    operator = log.operator()

    def work(_: int) -> list[float]:
        runner = session(TWICE, operator)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda _: run(runner), range(4)))
        return run(runner)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(16))) == [[9 + 100]] * 16
    gc.collect()
    assert sorted(log.lines) == ["closed after 10"] * 16 + ["made"] * 16


def test_session_raises_error_of_constructor() -> None:
    log = Log()
    with pytest.raises(Exception, match="t::Count: its constructor: FileNotFoundError: no such model") as caught:
        session(TWICE, log.operator(fails=True))
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    assert log.lines == ["made"]


def test_failed_session_closes_object() -> None:
    log = Log()

    def Bad(x: F, *, n: int) -> F: ...  # noqa: N802 - the operator's name

    operators = log.operator(), ortops.operator(domain="t")(Bad)
    with pytest.raises(Exception, match="t::Bad: n is missing"):
        session(WITH_BAD, *operators)
    gc.collect()
    assert log.lines == ["made", "closed after 0"]
    # A node of the operator itself.
    log.lines.clear()
    with pytest.raises(Exception, match=r"t::Count: step = 1\.5 has type FLOAT: must be INT"):
        session("(float[n] x) => (float[n] z) { z = t.Count <step = 1.5> (x) }", log.operator())
    gc.collect()
    assert log.lines == ["made", "closed after 0"]


def test_traceback_of_error_keeps_no_object_open() -> None:
    closed: list[int] = []

    class Failing:
        def __call__(self, x: F) -> F:
            raise ValueError(len(x))

        def close(self) -> None:
            closed.append(1)

    def cause() -> BaseException | None:
        operator = ortops.operator(domain="t", name="Count")(Failing)
        chosen = options()
        # On a thread of its own the frames of a call have no caller's frame, which would have the session.
        chosen.execution_mode, chosen.inter_op_num_threads = onnxruntime.ExecutionMode.ORT_PARALLEL, 2
        graph = "(float[n] x) => (float[n] z) { a = t.Count(x)  b = t.Count(x)  z = Add(a, b) }"
        runner = session(graph, operator, chosen=chosen)
        with pytest.raises(Exception, match="ValueError: 1") as caught:
            run(runner)
        return caught.value.__cause__

    kept = cause()
    gc.collect()
    assert kept is not None
    assert kept.__traceback__ is not None
    assert closed == [1]


def test_error_of_close_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", lambda report: told.append(report.exc_value))

    class Bad:
        def __call__(self, x: F) -> F:
            return x

        def close(self) -> None:
            raise OSError("cannot close")

    log = Log()
    operators = ortops.operator(domain="t")(Bad), log.operator()
    runner = session(WITH_BAD, *operators)
    del runner
    gc.collect()
    assert [str(error) for error in told] == ["cannot close"]
    assert log.lines == ["made", "closed after 0"]


SCRIPT = """
import threading
import numpy as np, onnx, onnxruntime, ortops
from numpy.typing import NDArray

@ortops.operator(domain="t")
class Count:
    def __init__(self):
        print("made", flush=True)
    def __call__(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        if x[0] == 1:
            inside.set()
            for _ in range(300_000):
                pass
            print("computed", flush=True)
        return x
    def close(self):
        print("closed", flush=True)

inside = threading.Event()
model = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["" : 16, "t" : 1]> g (float[n] x) => (float[n] y) { y = t.Count(x) }')
def made(kind):
    options = onnxruntime.SessionOptions()
    ortops.register(options, operators=[Count])
    return kind(model.SerializeToString(), options)

kept = [made(onnxruntime.InferenceSession), made(ortops.InferenceSession)]
del kept[0]
feeds = {"x": np.ones(1, np.float32)}
threading.Thread(target=lambda: kept[0].run(None, feeds), daemon=True).start()
inside.wait()
"""


def test_interpreter_closes_each_object_once_after_running_calls() -> None:
    assert python(SCRIPT).split() == ["made", "made", "closed", "computed", "closed"]
