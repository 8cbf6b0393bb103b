# SPDX-License-Identifier: MIT
"""Processes that are forked while another thread does what cannot be cut off: compile, make a session, import numba."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from numba.core.compiler_lock import global_compiler_lock

from ortops import forks
from ortops.exceptions import run_shielded
from ortops.forks import unforked
from processes import outcome, python

if sys.platform != "linux":
    pytest.skip("fork is safe on Linux only", allow_module_level=True)


@contextlib.contextmanager
def thread(work: Callable[[Callable[[], None]], object]) -> Iterator[None]:
    """Run `work` on another thread, and go on once it calls its argument."""
    begun = threading.Event()
    started = threading.Thread(target=work, args=(begun.set,))
    started.start()
    assert begun.wait(20)
    yield
    started.join()


def slow(begin: Callable[[], None]) -> None:
    begin()
    time.sleep(0.2)
    ended.append(True)


ended: list[bool] = []


def with_lock(lock: Callable[[], Any]) -> Callable[[Callable[[], None]], None]:
    def work(begin: Callable[[], None]) -> None:
        with lock():
            slow(begin)

    return work


@pytest.mark.parametrize(
    ("work", "child"),
    [
        (with_lock(unforked), lambda: run_shielded(lambda: [*ended])),
        (lambda begin: run_shielded(lambda: slow(begin)), lambda: run_shielded(lambda: [*ended])),
        (with_lock(lambda: global_compiler_lock), global_compiler_lock(lambda: [*ended])),
    ],
    ids=["a context", "a function that must run to its end", "numba"],
)
def test_a_fork_waits_until_other_threads_are_done(work: Any, child: Callable[[], object]) -> None:
    ended.clear()
    with thread(work):
        assert outcome(child) == "[True]"


def test_a_fork_waits_for_the_imports_of_other_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_slowly.py").write_text("import test_forks\ntest_forks.slow(test_forks.begin)\nvalue = 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(forks, "_PACKAGES", ("imported_slowly",))

    def work(begin: Callable[[], None]) -> None:
        monkeypatch.setattr("test_forks.begin", begin, raising=False)
        importlib.import_module("imported_slowly")

    with thread(work):
        assert outcome(lambda: importlib.import_module("imported_slowly").value) == "2"


def test_a_child_of_a_fork_that_could_not_wait_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "MAX_WAIT_SECONDS", 0.05)
    with thread(with_lock(unforked)):
        answer = outcome(lambda: run_shielded(lambda: 1))
    assert answer.startswith("RuntimeError: this process was forked while another thread compiled")


def test_a_thread_may_fork_where_others_may_not() -> None:
    assert run_shielded(lambda: outcome(lambda: run_shielded(lambda: 1))) == "1"


FIRST_CALLS = """
import sys, threading, time
from typing import Annotated
import numpy as np, onnx_models, ortops
from numpy.typing import NDArray
from processes import outcome

N = Annotated[NDArray[np.float32], ("n",)]
kind, delay = sys.argv[1], float(sys.argv[2])
x, rois, images = np.ones((1, 1, 4, 4), np.float32), np.array([[0, 0, 3, 3]], np.float32), np.zeros(1, np.int64)

@ortops.operator(domain="t", compiled=True, outputs=["y"])
def Scaled(x: N, y: N) -> None:
    y[:] = x * delay

def kernel():
    return ortops.roi_align(x, rois, images, output_height=1, output_width=1)

def users():
    return Scaled(np.ones(1, np.float32))

def session():
    runner = ortops.InferenceSession(onnx_models.roi_align(16).SerializeToString())
    return runner.run(None, {"X": x, "rois": rois, "batch_indices": images})[0]

call = {"kernel": kernel, "users": users, "session": session}[kind]
started = threading.Thread(target=call)
started.start()
time.sleep(delay)
print(outcome(lambda: call().size))
"""


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0, 0.01, 0.05, 0.1])
@pytest.mark.parametrize("kind", ["kernel", "users", "session"])
def test_a_child_forked_during_a_first_call_computes(kind: str, delay: float, tmp_path: Path) -> None:
    (tmp_path / "first.py").write_text(FIRST_CALLS)
    assert python(tmp_path / "first.py", kind, str(delay), PYTHONPATH=str(Path(__file__).parent)) == "1"
