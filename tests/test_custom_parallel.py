"""Exceptions of operators on threads of ONNX Runtime's own (ORT_PARALLEL): each call raises its own."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import ortops
from conformance.backends.session import CPU, options

F = NDArray[np.float32]
PARALLEL, SEQUENTIAL = onnxruntime.ExecutionMode.ORT_PARALLEL, onnxruntime.ExecutionMode.ORT_SEQUENTIAL
TWO = "(float[n] x) => (float[n] y) { a = t.f(x)  b = t.f(x)  y = Add(a, b) }"


def session(function: Any, kind: Any = ortops.InferenceSession, mode: Any = PARALLEL) -> Any:
    operator = ortops.operator(domain="t", name="f")(function)
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18, "t" : 1]> g {TWO}')
    chosen = options()
    chosen.execution_mode, chosen.inter_op_num_threads = mode, 2
    ortops.register(chosen, operators=[operator])
    return kind(model.SerializeToString(), chosen, [CPU])


def x(value: float = 1) -> dict[str, F]:
    return {"x": np.full(1, value, np.float32)}


@pytest.mark.parametrize("raised", [KeyboardInterrupt("k"), SystemExit(3), RecursionError("deep"), ValueError("v")])
def test_exceptions_leave_as_they_do_from_a_sequential_session(raised: BaseException) -> None:
    threads: set[int] = set()

    def f(_: F) -> F:
        threads.add(threading.get_ident())
        raise raised

    runner = session(f)
    for _ in range(2):
        with pytest.raises(BaseException) as caught:  # noqa: PT011 - the point of the test
            runner.run(None, x())
        is_error = isinstance(raised, ValueError)
        assert (caught.value.__cause__ if is_error else caught.value) is raised
        if is_error:
            assert re.search(r"t::f: ValueError: v$", str(caught.value))
    assert threads - {threading.get_ident()}, "no thread of ONNX Runtime's own has called the function"
    assert runner._operator_errors._kept == {}  # noqa: SLF001 - nothing is kept for ever


@pytest.mark.parametrize("mode", [PARALLEL, SEQUENTIAL])
def test_errors_of_the_same_text_have_the_cause_of_their_own_call(mode: Any) -> None:
    def f(x: F) -> F:
        error = ValueError("the same")
        error.value = int(x[0])  # type: ignore[attr-defined]
        raise error

    runner = session(f, mode=mode)

    def run(i: int) -> Any:
        with pytest.raises(Exception, match=r"the same$") as caught:
            runner.run(None, x(i))
        return caught.value.__cause__.value  # type: ignore[union-attr]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(run, range(100))) == list(range(100))


def test_a_session_inside_a_function_keeps_its_errors_apart() -> None:
    def g(x: F) -> F:
        raise ValueError(int(x[0]))

    inner = session(g)

    def f(x: F) -> F:
        return np.asarray(inner.run(None, {"x": x})[0])

    with pytest.raises(Exception, match="t::f: Fail") as caught:
        session(f).run(None, x(7))
    assert isinstance(caught.value.__cause__, Exception)
    assert repr(caught.value.__cause__.__cause__) == "ValueError(7)"


def test_a_session_of_onnxruntimes_own_class_shows_no_numbers() -> None:
    def f(x: F) -> F:
        raise SystemExit(1) if x[0] else ValueError("v")

    runner = session(f, onnxruntime.InferenceSession)
    for value, says in ((1, "t::f: interrupted by SystemExit"), (0, "t::f: ValueError: v")):
        with pytest.raises(Exception, match=rf"{says}$"):
            runner.run(None, x(value))


def test_a_call_that_reports_to_a_function_shows_no_numbers() -> None:
    def f(x: F) -> F:
        raise SystemExit(len(x))

    told: list[str] = []
    done = threading.Event()

    def report(_: Any, __: Any, error: str) -> None:
        told.append(error)
        done.set()

    runner = session(f)
    runner.run_async(None, x(), report, None)
    assert done.wait(60)
    assert told[0].endswith("t::f: interrupted by SystemExit")
