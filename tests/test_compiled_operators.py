# SPDX-License-Identifier: MIT
"""Operators of users that numba compiles: in sessions and as functions on arrays."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from conformance.backends.session import options
from ortops.custom.decorator import OperatorError
from processes import outcome, python
from sessions import compiled, session

R = TypeVar("R", np.float32, np.float64)
N = Annotated[NDArray[np.float32], ("n",)]
N64 = Annotated[NDArray[np.float64], ("n",)]
Int = Annotated[NDArray[np.int64], ("n",)]


X = np.array([1, 2], np.float32)


@compiled()
def leaky_bias(
    x: Annotated[NDArray[R], ("n", "m")],
    bias: Annotated[NDArray[R], ("m",)],
    y: Annotated[NDArray[R], ("n", "m")],
    slope: float = 0.1,
) -> None:
    """Add a bias; negative sums times the slope."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            v = x[i, j] + bias[j]
            y[i, j] = v if v > 0 else slope * v


@pytest.mark.parametrize(("kind", "dtype"), [("float", np.float32), ("double", np.float64)])
def test_each_element_type_has_instance(kind: str, dtype: type) -> None:
    graph = f"({kind}[n, m] x, {kind}[m] b) => ({kind}[k, l] y) {{ y = t.f <slope = 0.5> (x, b) }}"
    x: Any = np.array([[-4, 1], [2, -3]], dtype)
    b: Any = np.array([1, 0], dtype)
    (y,) = session(graph, leaky_bias).run(None, {"x": x, "b": b})
    assert y.dtype == dtype
    assert y.tolist() == [[-1.5, 1], [3, -1.5]]
    called = leaky_bias(x, bias=b, slope=0.5)
    assert called.dtype == dtype
    assert called.tolist() == y.tolist()


def test_call_checks_shapes() -> None:
    runner = session("(float[n, m] x, float[m] b) => (float[k, l] y) { y = t.f(x, b) }", leaky_bias)
    with pytest.raises(Exception, match=r"t::f: bias has shape \[2\]: shape\[0\] must be 3 \(m of x\)"):
        runner.run(None, {"x": np.zeros((2, 3), np.float32), "b": np.zeros(2, np.float32)})
    with pytest.raises(Exception, match=r"x has shape \[3\]"):
        leaky_bias(np.zeros(3, np.float32), np.zeros(3, np.float32))
    assert leaky_bias(np.zeros((0, 3), np.float32), np.zeros(3, np.float32)).shape == (0, 3)


def test_call_takes_unaligned_and_strided_arrays() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert leaky_bias(x.T, np.zeros(3, np.float32)).tolist() == x.T.tolist()
    odd = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(3, 4)
    runner = session("(float[n, m] x, float[m] b) => (float[k, l] y) { y = t.f(x, b) }", leaky_bias)
    assert runner.run(None, {"x": odd, "b": np.zeros(4, np.float32)})[0].tolist() == x.tolist()


@compiled("y z")
def several(
    x: N,
    y: Annotated[NDArray[np.float64], ("n", 2)],
    z: Annotated[NDArray[np.bool_], ("count",)],
    weights: list[float],
    steps: list[int],
    count: int,  # noqa: ARG001 - a length
    scale: Annotated[NDArray[np.int8], ()] | None = None,
    mode: Literal["sum", "product"] = "sum",
) -> None:
    """All kinds of attributes, an optional input, two outputs of other types."""
    factor = 1 if scale is None else scale[()]
    for i in range(x.shape[0]):
        if mode == "sum":
            y[i, 0] = x[i] + weights[-1]
        else:
            y[i, 0] = x[i] * weights[-1]
        y[i, 1] = factor * len(weights)
    for i in range(z.shape[0]):
        z[i] = i < len(steps) and steps[i] != 0


def several_session(inputs: str, attributes: str = "") -> Any:
    given = f"weights = [1.0, 2.0, 3.0, 4.0, 0.5], steps = [1, 0], count = 3{attributes}"
    return session(
        f"(float[n] x, int8 s) => (double[a, b] y, bool[c] z) {{ y, z = t.f <{given}> ({inputs}) }}", several
    )


def test_function_gets_attributes_and_optional_inputs() -> None:
    y, z = several_session("x").run(None, {"x": X, "s": np.array(3, np.int8)})
    assert (y.dtype, z.dtype) == (np.float64, np.bool_)
    assert y.tolist() == [[1.5, 5], [2.5, 5]]
    assert z.tolist() == [True, False, False]
    y, _ = several_session("x, s", ', mode = "product"').run(None, {"x": X, "s": np.array(3, np.int8)})
    assert y.tolist() == [[0.5, 15], [1, 15]]
    y, z = several(X, weights=[2.0], steps=[], count=1, scale=np.int8(-2), mode="product")
    assert y.tolist() == [[2, -2], [4, -2]]
    assert z.tolist() == [False]


def test_call_checks_attributes() -> None:
    with pytest.raises(ValueError, match="count = -1: must be >= 0"):
        several(X, weights=[2.0], steps=[], count=-1)
    with pytest.raises(Exception, match="t::f: mode = 'max': must be one of 'sum', 'product'"):
        several_session("x", ', mode = "max"')
    with pytest.raises(ValueError, match="x is missing: f requires it"):
        several(None, weights=[2.0], steps=[], count=1)
    with pytest.raises(TypeError, match="x has type float64: must be float32"):
        several(np.zeros(1), weights=[2.0], steps=[], count=1)


@compiled("y rows", parallel="n")
def parted(
    x: Annotated[NDArray[np.float64], ("n", "m")],
    scale: Annotated[NDArray[np.float64], ("m",)],
    y: Annotated[NDArray[np.float64], ("n",)],
    rows: Annotated[NDArray[np.int64], ("n", 1)],
) -> None:
    """A sum of each row, and the number of rows in the part."""
    for i in range(x.shape[0]):
        if x[i, 0] < 0:
            if x[i, 0] < -1:
                raise ValueError("too small")
            raise ValueError("negative")
        y[i] = (x[i] * scale).sum()
        rows[i, 0] = x.shape[0]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_parts_of_call_depend_on_shapes_alone(threads: int) -> None:
    x, scale = np.random.default_rng(0).random((200, 127)), np.arange(127.0)
    own = options()
    own.intra_op_num_threads = threads
    graph = "(double[n, m] x, double[m] s) => (double[k] y, int64[l, o] r) { y, r = t.f(x, s) }"
    runner = session(graph, parted, chosen=own)
    y, rows = runner.run(None, {"x": x, "s": scale})
    np.testing.assert_allclose(y, x @ scale, rtol=1e-12)
    assert rows.ravel().tolist() == [17] * 17 * 8 + [16] * 16 * 4  # 200 * 129 elements: 12 parts
    assert y.tolist() == parted(x, scale)[0].tolist()
    y, rows = runner.run(None, {"x": x[:5], "s": scale})
    assert rows.ravel().tolist() == [5] * 5
    assert runner.run(None, {"x": x[:0], "s": scale})[0].shape == (0,)
    x[150, 0], x[60, 0] = -2, -1
    with pytest.raises(Exception, match="t::f: ValueError: negative"):
        runner.run(None, {"x": x, "s": scale})


OUTER = 2.0


@numba.njit  # type: ignore[untyped-decorator]
def _times_outer(v: Any) -> Any:
    return v * OUTER


@pytest.mark.parametrize("in_helper", [False, True])
def test_instances_have_same_globals(in_helper: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(x: Annotated[NDArray[R], ("n",)], y: Annotated[NDArray[R], ("n",)]) -> None:
        for i in range(x.size):
            y[i] = _times_outer(x[i]) if in_helper else x[i] * OUTER

    operator = compiled()(scaled)
    assert operator(X).tolist() == [2, 4]
    monkeypatch.setattr(f"{__name__}.OUTER", 3.0)
    assert operator(X).tolist() == [2, 4]
    with pytest.raises(OperatorError, match=r"t::f: OUTER, which .* uses, has changed since it was compiled in"):
        operator(X.astype(np.float64))
    monkeypatch.setattr(f"{__name__}.OUTER", float("2.0"))
    assert operator(X.astype(np.float64)).tolist() == [2, 4]


@compiled()
def waiting(x: Int, y: Int) -> None:
    """Wait until another thread writes to the input, or for some seconds: 1 if one did."""
    for k in range(2_000_000_000):
        y[0] = -1 - k  # which may be the input's memory, so that the compiler loads the input again
        if x[0] != 0:
            y[0] = 1
            return


def test_call_releases_interpreter_lock() -> None:
    x, y = np.zeros(1, np.int64), np.zeros(1, np.int64)
    runner = session("(int64[n] x) => (int64[m] y) { y = t.f(x) }", waiting)
    binding = runner.io_binding()
    binding.bind_input("x", "cpu", 0, np.int64, [1], x.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.int64, [1], y.ctypes.data)
    thread = threading.Thread(target=runner.run_with_iobinding, args=(binding,))
    thread.start()
    while y[0] == 0:
        pass
    x[0] = 1
    thread.join()
    assert y.tolist() == [1]


@pytest.mark.skipif(sys.platform != "linux", reason="fork is safe on Linux only")
def test_forked_child_calls_operator() -> None:
    arguments = np.ones((1, 2), np.float32), np.zeros(2, np.float32)
    assert leaky_bias(*arguments).tolist() == [[1, 1]]
    assert outcome(lambda: leaky_bias(*arguments).tolist()) == "[[1.0, 1.0]]"


def test_later_process_needs_no_numba() -> None:
    code = """
from typing import Annotated
import numpy as np
from numpy.typing import NDArray
import ortops

@ortops.operator(domain="t", compiled=True, outputs=["y"])
def Increased(x: Annotated[NDArray[np.float32], ("n",)], y: Annotated[NDArray[np.float32], ("n",)], by: int = 1) -> None:
    if by < 0:
        raise ValueError("by is negative")
    kept = np.empty(x.shape[0])  # whose references are counted
    kept[:] = x + by
    y[:] = kept

print(Increased(np.zeros(2, np.float32), by=3).tolist(), end=" ")
try:
    Increased(np.zeros(2, np.float32), by=-1)
except ValueError as error:
    print(error)
"""
    python(code)
    assert python(f"import sys\nsys.modules['numba'] = None{code}") == "[3.0, 3.0] by is negative"


CALLED_AT_IMPORT = """
from typing import Annotated
import numpy as np
from numba import njit
from numpy.typing import NDArray
import ortops

R = Annotated[NDArray[np.float32], ("n",)]

@njit
def twice(v):
    return 2 * v

@ortops.operator(domain="t", compiled=True, outputs=["y"])
def double(x: R, y: R) -> None:
    for i in range(len(x)):
        y[i] = twice(x[i])

result = double(np.float32([1, 2])).tolist()
"""


def test_module_calls_its_operator_during_import(tmp_path: Path) -> None:
    (tmp_path / "called_at_import.py").write_text(CALLED_AT_IMPORT)
    assert python("import called_at_import as m; print(m.result)", PYTHONPATH=str(tmp_path)) == "[2.0, 4.0]"
