# SPDX-License-Identifier: MIT
"""Compiled operators of users whose lengths a function of shapes gives, or the data."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

import ortops
from conformance.backends.session import CPU, options
from ortops.custom.decorator import OperatorError
from sessions import compiled, model_of, session

F = NDArray[np.float32]
I64 = NDArray[np.int64]
N = Annotated[F, ("n",)]
K = Annotated[F, ("k",)]


def _of_windows(x: Any, size: Any, mode: Any) -> Any:
    rest = x[0] - size
    if mode == "full":
        rest = x[0] + size
    return rest + 1, size


@compiled(shapes=_of_windows)
def windows(
    x: N,
    y: Annotated[F, ("count", "size")],
    scale: Annotated[F, ()] | None = None,
    size: int = 2,
    mode: Literal["valid", "full"] = "valid",
) -> None:
    """Windows of a vector."""
    for i in range(y.shape[0]):
        for j in range(size):
            at = i + j if mode == "valid" else i + j - size
            y[i, j] = x[at] if 0 <= at < x.shape[0] else 0
            if scale is not None:
                y[i, j] *= scale[()]


GRAPH = "(float[n] x, float s) => (float[a, b] y) {{ y = t.f <size = {}{}> ({}) }}"


def test_shapes_are_computed_from_shapes_and_attributes() -> None:
    x, s = np.arange(1, 5, dtype=np.float32), np.float32(10)
    expected = np.lib.stride_tricks.sliding_window_view(x, 3)
    feeds = {"x": x, "s": np.array(s)}
    assert session(GRAPH.format(3, "", "x"), windows).run(None, feeds)[0].tolist() == expected.tolist()
    assert session(GRAPH.format(3, "", "x, s"), windows).run(None, feeds)[0].tolist() == (10 * expected).tolist()
    assert windows(x, size=3).tolist() == expected.tolist()
    padded = np.pad(x, (1, 1))
    (y,) = session(GRAPH.format(1, ', mode = "full"', "x"), windows).run(None, feeds)
    assert y.ravel().tolist() == padded.tolist() == windows(x, size=1, mode="full").ravel().tolist()


def test_models_know_these_shapes() -> None:
    graph = "(float[{}] x) => (int64[2] shape) {{ y = t.f <size = 3> (x) shape = Shape(y) }}"
    for length in ("7", "n"):
        assert session(graph.format(length), windows).run(None, {"x": np.zeros(7, np.float32)})[0].tolist() == [5, 3]


def _raises(x: Any, how: Any) -> Any:
    if how == 1:
        raise ValueError("x is odd")
    return (x[0] // how,) if how else (-1,)


@compiled(shapes=_raises)
def halved(x: N, y: K, how: int) -> None:  # noqa: ARG001 - for the shapes
    """As many as are left."""
    for i in range(y.shape[0]):
        y[i] = x[i]


@compiled(shapes=lambda x: (x[0] + 1,))
def contradicted(x: N, y: N) -> None:
    """Of another length than its annotation says."""
    y[0] = x[0]


@compiled("y z", shapes=lambda x: ((x[0], 2), (x[0] + 1,)))
def of_two_lengths(x: N, y: Annotated[F, ("k", 2)], z: K) -> None:
    """Two outputs that share an axis."""
    y[0, 0] = z[0] = x[0]


@pytest.mark.parametrize(
    ("operator", "attributes", "says"),
    [
        (halved, {"how": 1}, "shapes: ValueError: x is odd"),
        (halved, {"how": 0}, r"shapes returned -1 for y.shape\[0\]: must be >= 0"),
        (contradicted, {}, r"shapes returned 3 for y.shape\[0\]: must be 2"),
        (of_two_lengths, {}, r"shapes returned 3 for z.shape\[0\]: must be 2"),
    ],
)
def test_what_a_function_of_shapes_does_wrong_is_told(
    operator: ortops.CustomOperator, attributes: dict[str, int], says: str
) -> None:
    given = f"<how = {attributes['how']}>" if attributes else ""
    outputs = "y, z" if len(operator.outputs) == 2 else "y"
    kind = "float[a, b]" if len(operator.outputs) == 2 else "float[a]"
    runner = session(f"(float[n] x) => ({kind} y) {{ {outputs} = t.f {given} (x) }}", operator)
    x = np.ones(2, np.float32)
    with pytest.raises(Exception, match=f"t::f: {says}"):
        runner.run(None, {"x": x})
    with pytest.raises(ValueError, match=says):
        operator(x, **attributes)


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        (lambda x: (x[0], 1), r"must return a tuple of 1 int"),
        (lambda x: ((x[0], 1),), r"must return a tuple of 1 int"),
        (lambda x: x[0], r"must return a tuple of 1 int"),
        (lambda x: (x[0] * 0.5,), r"must return a tuple of 1 int"),
        (lambda x: (x[0],) if x[0] else None, "must return a tuple of 1 int"),
        (lambda x: (len(str(x)), missing), "cannot be compiled"),  # type: ignore[name-defined]  # noqa: F821
    ],
)
def test_functions_of_shapes_that_return_something_else_are_refused(shapes: Any, says: str) -> None:
    def same(x: N, y: K) -> None:
        y[0] = x[0]

    with pytest.raises(OperatorError, match=says):
        compiled(shapes=shapes)(same)(np.ones(1, np.float32))


@compiled("best index", shapes=lambda x: ((2, x[0]), (x[0],)))
def positive(x: N, best: Annotated[F, (2, "k")] | None, index: Annotated[NDArray[np.int8], ("k",)] | None) -> int:
    """The positive elements and twice of them, and their indices."""
    count = 0
    for i in range(x.shape[0]):
        if x[i] > 0:
            best[0, count], best[1, count], index[count] = x[i], 2 * x[i], i  # type: ignore[index]
            count += 1
    return count


CASES = [[3, -1, 0, 5], [], [-1, np.nan], [np.nan, np.inf], [1, 2, 3]]


def expected_of(x: Any) -> tuple[Any, Any]:
    with np.errstate(invalid="ignore"):
        index = np.flatnonzero(x > 0)
    return np.stack([x[index], 2 * x[index]]), index


@pytest.mark.parametrize("content", CASES)
def test_outputs_have_the_lengths_that_the_function_returns(content: list[float]) -> None:
    x = np.array(content, np.float32)
    runner = session("(float[n] x) => (float[a, b] y, int8[c] z) { y, z = t.f(x) }", positive)
    for best, index in (runner.run(None, {"x": x}), positive(x)):
        np.testing.assert_array_equal(best, expected_of(x)[0])
        assert index.tolist() == expected_of(x)[1].tolist()
        assert (best.dtype, index.dtype) == (np.float32, np.int8)


@pytest.mark.parametrize("number", [0, 1])
def test_a_node_may_leave_outputs_out(number: int) -> None:
    x = np.array([3, -1, 5], np.float32)
    kind = ("float[a, b]", "int8[c]")[number]
    model = model_of(f"(float[n] x) => ({kind} y) {{ y = t.f(x) }}")
    model.graph.node[0].output[:] = ["", "y"][1 - number :]
    (y,) = session(model, positive).run(None, {"x": x})
    assert y.tolist() == expected_of(x)[number].tolist()


@compiled("y z")
def both(x: N, y: N | None, z: N) -> None:
    """Two outputs, of which a node needs one."""
    for i in range(x.shape[0]):
        y[i], z[i] = x[i], y[i] + x[i]  # type: ignore[index]


def test_a_node_may_leave_outputs_of_known_lengths_out() -> None:
    model = model_of("(float[n] x) => (float[m] z) { z = t.f(x) }")
    model.graph.node[0].output[:] = ["", "z"]
    for n in (0, 3):
        assert session(model, both).run(None, {"x": np.ones(n, np.float32)})[0].shape == (n,)


@compiled(shapes=lambda x: (x[0], x[1], 2))
def box(x: Annotated[I64, ("n", "m")], y: Annotated[I64, ("height", "width", 2)]) -> tuple[int, int]:
    """The indices of the smallest block at the corner that has all elements above 0."""
    height, width = 0, 0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j, 0], y[i, j, 1] = i, j
            if x[i, j] > 0:
                height, width = i + 1, max(width, j + 1)
    return height, width


@pytest.mark.parametrize("last", [(0, 0), (2, 1), (1, 3), (3, 4)])
def test_two_axes_may_have_lengths_of_their_own(last: tuple[int, int]) -> None:
    x = np.zeros((4, 5), np.int64)
    x[last] = 1
    expected = np.moveaxis(np.indices((last[0] + 1, last[1] + 1)), 0, 2).tolist()
    runner = session("(int64[n, m] x) => (int64[a, b, c] y) { y = t.f(x) }", box)
    assert runner.run(None, {"x": x})[0].tolist() == expected
    assert box(x).tolist() == expected
    assert runner.run(None, {"x": 0 * x})[0].shape == (0, 0, 2)


@compiled(shapes=lambda most: (most,))
def returning(x: Annotated[I64, ("n",)], y: Annotated[I64, ("k",)], most: int = 3) -> int:
    """As many elements as the first input says."""
    if x[0] == 7:
        raise ValueError("seven")
    y[:] = most
    return x[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("value", [4, -1, 2**62, -(2**63)])
def test_lengths_that_there_is_no_room_for_are_errors(value: int) -> None:
    runner = session("(int64[n] x) => (int64[a] y) { y = t.f(x) }", returning)
    x = np.array([value])
    with pytest.raises(Exception, match=rf"t::f: f returned {value} for k of y: must be in \[0, 3\]"):
        runner.run(None, {"x": x})
    with pytest.raises(ValueError, match=rf"f returned {value} for k of y: must be in \[0, 3\]"):
        returning(x)
    assert runner.run(None, {"x": np.array([3])})[0].tolist() == returning(np.array([3])).tolist() == [3, 3, 3]


@pytest.mark.parametrize("most", [2**60, 2**61, 2**63 - 1])
def test_room_that_no_process_has_is_an_error(most: int) -> None:
    runner = session(f"(int64[n] x) => (int64[a] y) {{ y = t.f <most = {most}> (x) }}", returning)
    with pytest.raises(Exception, match="t::f: out of memory in t::f"):
        runner.run(None, {"x": np.array([0])})
    with pytest.raises((MemoryError, ValueError)):
        returning(np.array([0]), most=most)


def test_exceptions_before_a_length_is_returned_are_told() -> None:
    runner = session("(int64[n] x) => (int64[a] y) { y = t.f(x) }", returning)
    calls: tuple[Any, ...] = (lambda x: runner.run(None, {"x": x}), returning)
    for call in calls:
        with pytest.raises(Exception, match="seven"):
            call(np.array([7]))
        with pytest.raises(Exception, match="index is out of bounds"):
            call(np.zeros(0, np.int64))


def _one(x: N, y: K) -> int: ...  # type: ignore[empty-body]
def _two(x: N, y: K) -> tuple[int, int]: ...  # type: ignore[empty-body]
def _none(x: N, y: N) -> int: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("function", "settings", "says"),
    [
        (_one, {}, "no input or attribute gives the axis 'k' of y: shapes must be given"),
        (_two, {"shapes": lambda x: x}, "returns 2 int: must return one for each axis .*, which are k"),
        (_none, {"shapes": lambda x: x}, "returns 1 int: must return one for each axis .*, which are none"),
        (_one, {"shapes": lambda x: x, "parallel": "k"}, "must not be given where the data decides"),
    ],
)
def test_definitions_of_lengths_are_checked(function: Any, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        compiled(**settings)(function)


def test_functions_must_return_what_they_are_annotated_by() -> None:
    def nothing(x: N, y: K) -> int:  # type: ignore[return]
        y[0] = x[0]

    def floats(x: N, y: K) -> int:
        y[0] = x[0]
        return x[0]  # type: ignore[no-any-return]

    for function in (nothing, floats):
        with pytest.raises(OperatorError, match="must return an int"):
            compiled(shapes=lambda x: (x[0],))(function)(np.ones(1, np.float32))


def test_libraries_have_shapes_and_lengths_too(tmp_path: Path) -> None:
    operators: Any = [replace(windows, name="Windows"), replace(positive, name="Positive"), returning]
    file = str(tmp_path / "lib.so")
    ortops.build_library(file, operators=operators)
    chosen = options()
    chosen.register_custom_ops_library(file)

    def run(graph: str, **feeds: Any) -> list[Any]:
        runner = onnxruntime.InferenceSession(model_of(graph).SerializeToString(), chosen, [CPU])
        return [y.tolist() for y in runner.run(None, feeds)]

    x, s = np.array([3, -1, 5, 2], np.float32), np.array(10, np.float32)
    for attributes, inputs in (("size = 3", "x"), ('size = 1, mode = "full"', "x"), ("size = 3", "x, s")):
        graph = f"(float[4] x, float s) => (float[a, b] y) {{ y = t.f <{attributes}> ({inputs}) }}"
        (expected,) = session(graph, windows).run(None, {"x": x, "s": s})
        assert run(graph.replace("t.f", "t.Windows"), x=x, s=s) == [expected.tolist()]
    best, index = (array.tolist() for array in expected_of(x))
    assert run("(float[4] x) => (float[a, b] y, int8[c] z) { y, z = t.Positive(x) }", x=x) == [best, index]
    assert run("(float[4] x) => (int64[2] s) { y = t.Positive(x) s = Shape(y) }", x=x) == [[2, 3]]
    assert run("(float[4] x) => (int64[2] s) { y = t.Windows(x) s = Shape(y) }", x=x) == [[3, 2]]
    with pytest.raises(Exception, match=r"t::f: f returned 4 for k of y: must be in \[0, 3\]"):
        run("(int64[n] x) => (int64[a] y) { y = t.f(x) }", x=np.array([4]))


def test_threads_share_a_session() -> None:
    runner = session("(float[n] x) => (float[a, b] y, int8[c] z) { y, z = t.f(x) }", positive)

    def run(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal(100).astype(np.float32)
        expected = [array.tolist() for array in expected_of(x)]
        for _ in range(50):
            for results in (runner.run(None, {"x": x}), positive(x)):
                assert [array.tolist() for array in results] == expected

    with ThreadPoolExecutor(16) as threads:
        assert len(list(threads.map(run, range(16)))) == 16
