"""Operators of users that numba compiles: in sessions and as functions on arrays."""

from __future__ import annotations

import multiprocessing
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numba
import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import onnx_models
import ortops
from conformance.backends.session import CPU, options
from ortops.custom.decorator import OperatorError
from processes import python

F = NDArray[np.float32]
R = TypeVar("R", np.float32, np.float64)
N = Annotated[NDArray[np.float32], ("n",)]
N64 = Annotated[NDArray[np.float64], ("n",)]
Int = Annotated[NDArray[np.int64], ("n",)]


def compiled(outputs: str = "y", **settings: Any) -> Callable[[Callable[..., Any]], ortops.CustomOperator]:
    return ortops.operator(domain="t", name="f", compiled=True, outputs=outputs.split(), **settings)


def session(graph: str, *operators: ortops.CustomOperator) -> ortops.InferenceSession:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18, "t" : 1]> g {graph}')
    return ortops.InferenceSession(model.SerializeToString(), options(), [CPU], operators=operators)


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
def test_each_element_type_has_an_instance(kind: str, dtype: type) -> None:
    graph = f"({kind}[n, m] x, {kind}[m] b) => ({kind}[k, l] y) {{ y = t.f <slope = 0.5> (x, b) }}"
    x: Any = np.array([[-4, 1], [2, -3]], dtype)
    b: Any = np.array([1, 0], dtype)
    (y,) = session(graph, leaky_bias).run(None, {"x": x, "b": b})
    assert y.dtype == dtype
    assert y.tolist() == [[-1.5, 1], [3, -1.5]]
    called = leaky_bias(x, bias=b, slope=0.5)
    assert called.dtype == dtype
    assert called.tolist() == y.tolist()


def test_shapes_are_checked_and_outputs_follow() -> None:
    made = session("(float[n, m] x, float[m] b) => (float[k, l] y) { y = t.f(x, b) }", leaky_bias)
    with pytest.raises(Exception, match=r"t::f: bias has shape \[2\]: shape\[0\] must be 3 \(m of x\)"):
        made.run(None, {"x": np.zeros((2, 3), np.float32), "b": np.zeros(2, np.float32)})
    with pytest.raises(Exception, match=r"x has shape \[3\]"):
        leaky_bias(np.zeros(3, np.float32), np.zeros(3, np.float32))
    assert leaky_bias(np.zeros((0, 3), np.float32), np.zeros(3, np.float32)).shape == (0, 3)


def test_unaligned_and_strided_arrays_are_taken() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert leaky_bias(x.T, np.zeros(3, np.float32)).tolist() == x.T.tolist()
    odd = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(3, 4)
    made = session("(float[n, m] x, float[m] b) => (float[k, l] y) { y = t.f(x, b) }", leaky_bias)
    assert made.run(None, {"x": odd, "b": np.zeros(4, np.float32)})[0].tolist() == x.tolist()


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


def several_session(inputs: str, attributes: str = "") -> ortops.InferenceSession:
    given = f"weights = [1.0, 2.0, 3.0, 4.0, 0.5], steps = [1, 0], count = 3{attributes}"
    return session(
        f"(float[n] x, int8 s) => (double[a, b] y, bool[c] z) {{ y, z = t.f <{given}> ({inputs}) }}", several
    )


X = np.array([1, 2], np.float32)


def test_attributes_optional_inputs_and_outputs_of_other_types() -> None:
    y, z = several_session("x").run(None, {"x": X, "s": np.array(3, np.int8)})
    assert (y.dtype, z.dtype) == (np.float64, np.bool_)
    assert y.tolist() == [[1.5, 5], [2.5, 5]]
    assert z.tolist() == [True, False, False]
    y, _ = several_session("x, s", ', mode = "product"').run(None, {"x": X, "s": np.array(3, np.int8)})
    assert y.tolist() == [[0.5, 15], [1, 15]]
    y, z = several(X, weights=[2.0], steps=[], count=1, scale=np.int8(-2), mode="product")
    assert y.tolist() == [[2, -2], [4, -2]]
    assert z.tolist() == [False]


def test_attributes_are_checked() -> None:
    with pytest.raises(ValueError, match="count = -1: must be >= 0"):
        several(X, weights=[2.0], steps=[], count=-1)
    with pytest.raises(Exception, match="t::f: mode = 'max': must be one of 'sum', 'product'"):
        several_session("x", ', mode = "max"')
    with pytest.raises(ValueError, match="x is missing: f requires it"):
        several(None, weights=[2.0], steps=[], count=1)
    with pytest.raises(TypeError, match="x has type float64: must be float32"):
        several(np.zeros(1), weights=[2.0], steps=[], count=1)


@compiled()
def failing(x: Int, y: Int, how: int) -> None:
    """Raise in several ways."""
    if how == 1:
        raise ValueError('x must be "better", größer')
    if how == 2:
        y[0] = 1 // x[0]
    if how == 3:
        y[x[0]] = 7
    if how == 4:
        raise KeyError
    if how == 5:
        y[0] = np.empty(x[0], np.float64).sum()
    if how == 6:
        raise ValueError("the first is", x[0])
    y[:] = x if how < 7 else x[1:]


ERRORS = [
    (1, 0, ValueError, 'x must be "better", größer'),
    (2, 0, ZeroDivisionError, "division by zero"),
    (3, 5, IndexError, "index is out of bounds"),
    (3, -9, IndexError, "index is out of bounds"),
    (4, 0, KeyError, ""),
    (5, 2**59, MemoryError, "Allocation failed"),
    (5, -1, ValueError, "negative dimensions not allowed"),
    (6, 0, ValueError, "the first is, ..."),
    (7, 0, ValueError, ""),  # what is said of the shapes, releases of numba decide
]


@pytest.mark.parametrize(("how", "first", "error", "message"), ERRORS)
def test_exceptions_become_statuses(how: int, first: int, error: type[Exception], message: str) -> None:
    x = np.array([first, 1, 1], np.int64)
    made = session(f"(int64[n] x) => (int64[m] y) {{ y = t.f <how = {how}> (x) }}", failing)
    with pytest.raises(Exception, match=f"t::f: {error.__name__}") as found:
        made.run(None, {"x": x})
    assert message in str(found.value)
    with pytest.raises(error) as raised:
        failing(x, how)
    assert message in str(raised.value)
    assert failing(x, 0).tolist() == x.tolist()


@compiled()
def unbounded(x: Int, y: Int) -> None:
    """Index from the end, which is within bounds."""
    y[0], y[-1] = x[-1], x[0]


def test_negative_indices_count_from_the_end() -> None:
    assert unbounded(np.array([1, 2])).tolist() == [2, 1]


@compiled()
def median(x: Annotated[NDArray[np.float64], ("n", "m")], y: Annotated[NDArray[np.float64], ("n",)]) -> None:
    """Arrays within, slices, reductions and lists."""
    kept = np.empty((x.shape[0], x.shape[1]), np.float64)
    kept[:] = x + 1.0
    ends = []
    for i in range(x.shape[0]):
        row = np.sort(kept[i, ::-1])
        ends.append(row[row.shape[0] // 2] - kept[i].mean() + kept[i].sum())
    for i in range(len(ends)):
        y[i] = ends[i]


def test_arrays_within_work() -> None:
    x = np.random.default_rng(0).normal(size=(40, 5))
    made = session("(double[n, m] x) => (double[k] y) { y = t.f(x) }", median)
    expected = np.median(x + 1, 1) - (x + 1).mean(1) + (x + 1).sum(1)
    np.testing.assert_allclose(made.run(None, {"x": x})[0], expected, rtol=1e-12)


WITH_LITTLE_MEMORY = """
import resource
from pathlib import Path
import numpy as np
from test_compiled_operators import large

large(np.zeros(1), count=2)
pages = int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**29, -1))
print([float(large(np.zeros(1), count=2**23)[0]) for _ in range(50)][-1])
"""


@compiled()
def large(x: N64, y: N64, count: int) -> None:
    """An array and a list of so many numbers, slices and a set of them."""
    kept, items = np.empty(count), [x[0]]
    kept[-1] = 2.0
    for i in range(count // 4):
        items.append(kept[-1] + i)  # noqa: PERF401 - the list grows
    y[0] = kept[count // 2 :][-1] + len(items) + len({1, count})


@pytest.mark.skipif(sys.platform != "linux", reason="others do not limit memory")
def test_memory_of_arrays_within_is_released() -> None:
    assert python(WITH_LITTLE_MEMORY, cwd=Path(__file__).parent) == str(2.0 + 2**21 + 1 + 2)


@numba.njit  # type: ignore[untyped-decorator]
def _inverse(v: int, kept: Any) -> int:
    held = kept + 1
    if v == 0:
        raise ValueError("v must not be 0", held.size)
    return int(held.size // v)


@compiled()
def holding(x: Int, y: Int, how: int) -> None:
    """End in several ways while there are arrays, lists and dictionaries of a megabyte."""
    kept, items, arrays = np.ones(125_000), [x.astype(np.float64)], {0: np.zeros(1)}
    for i in range(20_000):
        items.append(kept[i:])
        arrays[i] = kept
    if how == 1:
        y[0] = items[-1][x[0]]
    if how == 2:
        y[0] = len(items) // x[0]
    if how == 3:
        y[0] = _inverse(x[0], arrays[1])
    if how == 4:
        raise KeyError(len(arrays))
    if how == 5:
        try:
            y[0] = _inverse(x[0], arrays[1])
        except Exception:  # noqa: BLE001 - numba knows no other
            y[0] = -1
    if how == 6:
        y[0] = np.empty(1 << 59).size
    y[:] = kept[: x.size]


@compiled()
def behind_try(x: Int, y: Int) -> None:
    """Raise behind a `try` block, by a path around it."""
    if x[0] == 1:
        try:
            y[0] = _inverse(x[1], x)
        except Exception:  # noqa: BLE001 - numba knows no other
            y[0] = -1
    y[1] = _inverse(x[1], x)


def test_an_exception_behind_a_try_block_is_raised_on_a_path_around_it() -> None:
    for first in (0, 1):
        assert behind_try(np.array([first, 2])).tolist()[1] == 1
        with pytest.raises(ValueError, match="v must not be 0"):
            behind_try(np.array([first, 0]))


@compiled(parallel="n")
def holding_in_parts(x: Int, y: Int) -> None:
    """End in each part while there is an array."""
    kept = np.ones(125_000)
    y[:] = kept[x[0]]


AFTER_FAILURES = """
import resource
from pathlib import Path
import numpy as np
from test_compiled_operators import holding, holding_in_parts, session

graph = "(int64[n] x) => (int64[m] y) { y = t.f"
ways = [(f"{graph} <how = {how}> (x) }}", holding, how) for how in range(7)] + [(f"{graph}(x) }}", holding_in_parts, 1)]
sessions = [(session(graph, one), how) for graph, one, how in ways]
x, parts = np.zeros(2, np.int64), np.full(20_000, 10**9)
for one in (lambda: holding(x, how=0), lambda: holding_in_parts(x)):
    one()
pages = int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**27, -1))

def outcomes(call):
    found = set()
    for _ in range(200):
        try:
            found.add(str(call().tolist()))
        except Exception as error:
            found.add(str(error).rpartition("t::f: ")[2] or repr(error))
    print(*found, sep=" or ")

for made, how in sessions:
    given = {"x": parts if made is sessions[-1][0] else x + 10**9 * (how == 1)}
    outcomes(lambda: made.run(None, given)[0])
outcomes(lambda: holding(x, how=3))
outcomes(lambda: holding_in_parts(parts))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="others do not limit memory")
def test_memory_of_calls_that_fail_is_released() -> None:
    assert python(AFTER_FAILURES, cwd=Path(__file__).parent).splitlines() == [
        "[1, 1]",
        "IndexError: index is out of bounds",
        "ZeroDivisionError: integer division by zero",
        "ValueError: v must not be 0, ...",
        "KeyError: ...",
        "[1, 1]",
        "MemoryError: Allocation failed (probably too large).",
        "IndexError: index is out of bounds",
        "v must not be 0, ...",
        "index is out of bounds",
    ]


def _unknown_name(x: N, y: N) -> None:
    y[0] = missing(x)  # type: ignore[name-defined]  # noqa: F821


def _writes_input(x: N, y: N) -> None:
    x[0], y[0] = y[0], x[0]


def _imports(x: N, y: N) -> None:
    import json

    y[0] = json.loads(str(x[0]))


def _returns(x: N, y: N):  # type: ignore[no-untyped-def]
    y[0] = x[0]
    return x


def _fails_in_numba(x: N, y: N) -> None:
    y |= x  # type: ignore[misc]


@numba.njit  # type: ignore[untyped-decorator]
def _factorial(v: int) -> int:
    return 1 if v == 0 else v * _factorial(v - 1)


def _calls_itself(x: N, y: N) -> None:
    y[0] = x[0] + _factorial(5)


def _prints(x: N, y: N) -> None:
    print(x[0], y[0])


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (_unknown_name, r"NameError: name 'missing' is not defined|line \d+"),
        (_writes_input, "Cannot modify readonly array.*line"),
        (_calls_itself, "a function that calls itself.* must get arguments of the same types in each call"),
        (_prints, "needs the interpreter"),
        (_fails_in_numba, r"_fails_in_numba cannot be compiled: "),
        (_imports, "cannot be compiled: Use of unsupported opcode"),
        (_returns, "must fill its outputs and return nothing"),
    ],
)
def test_what_numba_cannot_compile_is_told(function: Callable[..., Any], says: str) -> None:
    one = compiled()(function)
    with pytest.raises(Exception, match="t::f") as found:
        session("(float[n] x) => (float[m] y) { y = t.f(x) }", one)
    assert function.__name__ in str(found.value)
    with pytest.raises(OperatorError, match=f"(?s)^t::f: .*(?:{says})"):
        one(np.zeros(1, np.float32))


def _any_rank(x: F, y: N) -> None: ...
def _string(x: Annotated[NDArray[np.str_], ("n",)], y: N) -> None: ...
def _half(x: Annotated[NDArray[np.float16], ("n",)], y: N) -> None: ...
def _variadic(y: N, *x: N) -> None: ...
def _axis(x: N, y: Annotated[F, ("k",)]) -> None: ...
def _text(x: N, y: N, name: str) -> None: ...
def _none(x: N, y: N, axis: int | None = None) -> None: ...
def _result(x: N, y: N) -> N: ...  # type: ignore[empty-body]
def _mixed(x: N, y: N) -> tuple[int, float]: ...  # type: ignore[empty-body]
def _no_output(x: N) -> None: ...
def _default(x: N, y: N | None = None) -> None: ...
def _ok(x: N, y: N) -> None: ...


_Many = [Annotated[F, tuple(f"a{5 * i + k}" for k in range(5))] for i in range(4)]


def _names(x: _Many[0], u: _Many[1], v: _Many[2], w: _Many[3], y: N) -> None: ...  # type: ignore[valid-type]


class _Class:
    def __call__(self, x: N, y: N) -> None: ...


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (_any_rank, "t::f: x must be annotated by its shape"),
        (_string, "x may be string: numba has no arrays of this type"),
        (_half, "x may be float16"),
        (_variadic, "x is variadic"),
        (_axis, "no input or attribute gives the axis 'k' of y"),
        (_text, "name: the attributes of a compiled operator must be"),
        (_none, "axis: the attributes of a compiled operator must be"),
        (_result, "its result is .*must be None, .* or int"),
        (_mixed, "its result is .*must be None, .* or int"),
        (_no_output, "the output 'y' is no array"),
        (_default, "t::f: the output 'y' has the default None: must have none, since each call gets it"),
        (_names, "t::f: w is where the operator's axes have 20 names: a compiled operator must have at most 16"),
        (_Class, "must be a Python function"),
    ],
)
def test_definitions_that_cannot_be_compiled_are_refused(function: Callable[..., Any], says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        compiled()(function)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"compiled": True}, "outputs = None: must be the names"),
        ({"compiled": True, "outputs": "y"}, "outputs = 'y': must be the names"),
        ({"compiled": {"cache": True}, "outputs": ["y"]}, "compiled has \\['cache'\\]: must be of"),
        ({"compiled": True, "outputs": ["y"], "inputs": []}, "inputs must not be given"),
        ({"compiled": True, "outputs": ["y"], "shapes": print}, "must be a Python function to be compiled"),
        ({"compiled": True, "outputs": ["y"], "shapes": lambda z: z}, "shapes takes z: must take inputs and attr"),
        ({"compiled": True, "outputs": ["y", "y"]}, "must not repeat a name"),
        (
            {"compiled": True, "outputs": ["y"], "parallel": "m"},
            "parallel = 'm': must be the first axis of all outputs",
        ),
        ({"parallel": "n"}, "parallel = 'n': must not be given to an operator that is not compiled"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        ortops.operator(domain="t", name="f", **settings)(_ok)


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
def test_parts_of_a_call_depend_on_shapes_alone(threads: int) -> None:
    x, scale = np.random.default_rng(0).random((200, 127)), np.arange(127.0)
    own = options()
    own.intra_op_num_threads = threads
    graph = "(double[n, m] x, double[m] s) => (double[k] y, int64[l, o] r) { y, r = t.f(x, s) }"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18, "t" : 1]> g {graph}')
    made = ortops.InferenceSession(model.SerializeToString(), own, [CPU], operators=[parted])
    y, rows = made.run(None, {"x": x, "s": scale})
    np.testing.assert_allclose(y, x @ scale, rtol=1e-12)
    assert rows.ravel().tolist() == [17] * 17 * 8 + [16] * 16 * 4  # 200 * 129 elements: 12 parts
    assert y.tolist() == parted(x, scale)[0].tolist()
    y, rows = made.run(None, {"x": x[:5], "s": scale})
    assert rows.ravel().tolist() == [5] * 5
    assert made.run(None, {"x": x[:0], "s": scale})[0].shape == (0,)
    x[150, 0], x[60, 0] = -2, -1
    with pytest.raises(Exception, match="t::f: ValueError: negative"):
        made.run(None, {"x": x, "s": scale})


OUTER = 2.0


@numba.njit  # type: ignore[untyped-decorator]
def _times_outer(v: Any) -> Any:
    return v * OUTER


@pytest.mark.parametrize("in_helper", [False, True])
def test_all_instances_have_the_same_globals(in_helper: bool, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_two_sessions_have_operators_of_one_name() -> None:
    graph = "(float[n] x) => (float[m] y) { y = t.f(x) }"

    @compiled()
    def twice(x: N, y: N) -> None:
        y[:] = 2 * x

    @compiled()
    def thrice(x: N, y: N) -> None:
        y[:] = 3 * x

    first, second = session(graph, twice), session(graph, thrice)
    assert first.run(None, {"x": X})[0].tolist() == [2, 4]
    assert second.run(None, {"x": X})[0].tolist() == [3, 6]
    assert first.run(None, {"x": X})[0].tolist() == [2, 4]


@compiled()
def waiting(x: Int, y: Int) -> None:
    """Wait until another thread writes to the input, or for some seconds: 1 if one did."""
    for k in range(2_000_000_000):
        y[0] = -1 - k  # which may be the input's memory, so that the compiler loads the input again
        if x[0] != 0:
            y[0] = 1
            return


def test_calls_do_not_hold_the_interpreter() -> None:
    x, y = np.zeros(1, np.int64), np.zeros(1, np.int64)
    made = session("(int64[n] x) => (int64[m] y) { y = t.f(x) }", waiting)
    binding = made.io_binding()
    binding.bind_input("x", "cpu", 0, np.int64, [1], x.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.int64, [1], y.ctypes.data)
    thread = threading.Thread(target=made.run_with_iobinding, args=(binding,))
    thread.start()
    while y[0] == 0:
        pass
    x[0] = 1
    thread.join()
    assert y.tolist() == [1]


def _in_child(connection: Any) -> None:
    connection.send(leaky_bias(np.ones((1, 2), np.float32), np.zeros(2, np.float32)).tolist())


def test_calls_work_after_a_fork() -> None:
    leaky_bias(np.ones((1, 2), np.float32), np.zeros(2, np.float32))
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_in_child, args=(theirs,))
    child.start()
    theirs.close()
    assert ours.recv() == [[1, 1]]
    child.join()


Doubles = Annotated[NDArray[np.float64], ("n",)]


@ortops.operator(domain="t", name="f_grad", compiled=True, outputs=["dx"])
def square_grad(x: Doubles, dy: Doubles, dx: Doubles) -> None:
    """The gradient of `square`."""
    for i in range(x.shape[0]):
        dx[i] = 2 * x[i] * dy[i]


@compiled(gradient=square_grad)
def square(x: Doubles, y: Doubles) -> None:
    """The square."""
    for i in range(x.shape[0]):
        y[i] = x[i] * x[i]


def test_gradients_are_taken_by_name() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 18, "t" : 1]>
        g (double[n] x) => (double[] loss) { y = t.f(x) loss = ReduceSum <keepdims = 0> (y) }""")
    made = onnx_models.gradient(model, "loss", ["x"], operators=[square, square_grad])
    own = ortops.InferenceSession(made.SerializeToString(), options(), [CPU], operators=[square, square_grad])
    (gradient,) = own.run(["x_grad"], {"x": np.array([1.0, -3.0])})
    assert gradient.tolist() == [2, -6]


def test_later_processes_need_no_numba() -> None:
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


def test_a_module_calls_its_operator_while_it_is_imported(tmp_path: Path) -> None:
    (tmp_path / "called_at_import.py").write_text(CALLED_AT_IMPORT)
    assert python("import called_at_import as m; print(m.result)", PYTHONPATH=str(tmp_path)) == "[2.0, 4.0]"
