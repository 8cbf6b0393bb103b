# SPDX-License-Identifier: MIT
"""Exceptions of users' operators: each call raises its own, also on threads of ONNX Runtime's own (ORT_PARALLEL)."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from conformance.backends.session import options
from sessions import ONE, made, session, stock_session

F = NDArray[np.float32]
PARALLEL, SEQUENTIAL = onnxruntime.ExecutionMode.ORT_PARALLEL, onnxruntime.ExecutionMode.ORT_SEQUENTIAL
TWO = "(float[n] x) => (float[n] y) { a = t.f(x)  b = t.f(x)  y = Add(a, b) }"


def two_nodes(function: Any, kind: Any = session, mode: Any = PARALLEL) -> Any:
    """A session of two nodes that may run at the same time."""
    chosen = options()
    chosen.execution_mode, chosen.inter_op_num_threads = mode, 2
    return kind(TWO, made(function), chosen=chosen)


def x(value: float = 1) -> dict[str, F]:
    return {"x": np.full(1, value, np.float32)}


class Mute(Exception):  # noqa: N818 - an exception of a user
    def __str__(self) -> str:
        raise LookupError("no text")


@pytest.mark.parametrize(
    ("raised", "says", "leaves"),
    [
        (ZeroDivisionError("by zero"), "t::f: ZeroDivisionError: by zero", None),
        (Exception(), "t::f: Exception", None),
        (ValueError("a\udc80"), r"t::f: ValueError: a\?", None),
        (MemoryError("much"), "t::f: MemoryError: much", None),
        (KeyboardInterrupt(), "t::f: interrupted by KeyboardInterrupt", KeyboardInterrupt),
        (SystemExit(3), "t::f: interrupted by SystemExit", SystemExit),
        (RecursionError("deep"), "t::f: interrupted by RecursionError", RecursionError),
        (Mute(), "t::f: interrupted by LookupError", LookupError),
    ],
)
def test_session_raises_exception_of_function(raised: BaseException, says: str, leaves: Any) -> None:
    def f(x: F) -> F:
        raise raised

    operator = made(f)
    feeds = x()
    with pytest.raises(Exception, match=says):
        stock_session(ONE, operator).run(None, feeds)
    with pytest.raises(leaves or Exception, match=None if leaves else says) as caught:
        session(ONE, operator).run(None, feeds)
    assert (caught.value if leaves not in (None, LookupError) else caught.value.__cause__) in (raised, None)


def test_later_call_drops_exception_of_stock_session() -> None:
    def f(v: F) -> F:
        raise KeyboardInterrupt if v[0] else ValueError("answer")

    operator = made(f)
    plain = stock_session(ONE, operator)
    without_users = session("(float[n] x, float[m] y) => (float[n] z) { z = Add(x, y) }")
    for runner, feeds, says in (
        (session(ONE, operator), x(0), "ValueError: answer"),
        (without_users, {"x": np.ones(2, np.float32), "y": np.ones(3, np.float32)}, "Add node"),
    ):
        with pytest.raises(Exception, match="interrupted by KeyboardInterrupt"):
            plain.run(None, x())
        with pytest.raises(Exception, match=says):
            runner.run(None, feeds)


def test_interrupt_leaves_operator_with_long_name() -> None:
    name = "f" * 1000

    def f(x: F) -> F:
        raise KeyboardInterrupt

    runner = session(ONE.replace("t.f", f"t.{name}"), made(f, name=name))
    with pytest.raises(KeyboardInterrupt):
        runner.run(None, x())


@pytest.mark.parametrize("raised", [KeyboardInterrupt("k"), SystemExit(3), RecursionError("deep"), ValueError("v")])
def test_parallel_session_raises_as_sequential_session(raised: BaseException) -> None:
    threads: set[int] = set()

    def f(_: F) -> F:
        threads.add(threading.get_ident())
        raise raised

    runner = two_nodes(f)
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
def test_errors_of_same_text_have_cause_of_their_call(mode: Any) -> None:
    def f(x: F) -> F:
        error = ValueError("the same")
        error.value = int(x[0])  # type: ignore[attr-defined]
        raise error

    runner = two_nodes(f, mode=mode)

    def run(i: int) -> Any:
        with pytest.raises(Exception, match=r"the same$") as caught:
            runner.run(None, x(i))
        return caught.value.__cause__.value  # type: ignore[union-attr]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(run, range(100))) == list(range(100))


def test_session_inside_function_keeps_its_errors() -> None:
    def g(x: F) -> F:
        raise ValueError(int(x[0]))

    inner = two_nodes(g)

    def f(x: F) -> F:
        return np.asarray(inner.run(None, {"x": x})[0])

    with pytest.raises(Exception, match="t::f: Fail") as caught:
        two_nodes(f).run(None, x(7))
    assert isinstance(caught.value.__cause__, Exception)
    assert repr(caught.value.__cause__.__cause__) == "ValueError(7)"


def test_stock_session_shows_no_numbers_of_errors() -> None:
    def f(x: F) -> F:
        raise SystemExit(1) if x[0] else ValueError("v")

    runner = two_nodes(f, stock_session)
    for value, says in ((1, "t::f: interrupted by SystemExit"), (0, "t::f: ValueError: v")):
        with pytest.raises(Exception, match=rf"{says}$"):
            runner.run(None, x(value))


def test_run_async_shows_no_numbers_of_errors() -> None:
    def f(x: F) -> F:
        raise SystemExit(len(x))

    told: list[str] = []
    done = threading.Event()

    def report(_: Any, __: Any, error: str) -> None:
        told.append(error)
        done.set()

    runner = two_nodes(f)
    runner.run_async(None, x(), report, None)
    assert done.wait(60)
    assert told[0].endswith("t::f: interrupted by SystemExit")
