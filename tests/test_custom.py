# SPDX-License-Identifier: MIT
"""Operators of users in sessions: definitions, attributes, arguments and results."""

# mypy: disable-error-code="empty-body, no-any-return"

from __future__ import annotations

import importlib
import pickle
from types import GenericAlias
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import ortops
from ortops import from_ort, to_ort
from ortops.engine.c_api import onnxruntime_version
from ortops.spec import ANY_SHAPE, ELEMENT_DTYPES
from samples import open_ranks
from sessions import ONE, made, model_of, session

F = NDArray[np.float32]


A = TypeVar("A", bound=np.generic)


B = TypeVar("B", bound=np.generic)


R = TypeVar("R", np.float32, np.float64)


reads_lists_of_strings = pytest.mark.skipif(
    onnxruntime_version() < (1, 27), reason="ONNX Runtime reads lists of strings from 1.27 on"
)


@made
def same(x: NDArray[A]) -> NDArray[A]:
    """The input."""
    return x


def test_annotations_give_definition() -> None:
    def f(
        x: Annotated[NDArray[R], ("n", 4)],
        b: NDArray[np.int64] | None = None,
        *more: NDArray[np.bool_],
        mode: Literal["mean", "sum"] = "mean",
        names: list[str],
        axes: tuple[int, ...] | None = None,
        scale: float = 0.5,
        table: NDArray[np.float32],
    ) -> tuple[NDArray[R], list[NDArray[np.str_]]]: ...

    operator = made(f)
    assert [(t.name, t.type, t.shape, t.optional, t.variadic) for t in (*operator.inputs, *operator.outputs)] == [
        ("x", "R", ("n", 4), False, False),
        ("b", "int64", ANY_SHAPE, True, False),
        ("more", "bool", ANY_SHAPE, False, True),
        ("y0", "R", ANY_SHAPE, False, False),
        ("y1", "string", ANY_SHAPE, False, True),
    ]
    assert [(a.name, a.type, a.default, a.required, a.choices) for a in operator.attributes] == [
        ("mode", "STRING", "mean", False, ("mean", "sum")),
        ("names", "STRINGS", None, True, ()),
        ("axes", "INTS", None, False, ()),
        ("scale", "FLOAT", 0.5, False, ()),
        ("table", "TENSOR", None, True, ()),
    ]
    assert operator.types == {"R": ("float", "double")}
    assert made(same.call).types["A"] == tuple(ELEMENT_DTYPES)


def test_definition_resolves_aliases_of_type_statements() -> None:
    # NumPy 2.5 makes NDArray in this way.
    generic: Any = type("Generic", (), {"__value__": NDArray[A], "__class_getitem__": classmethod(GenericAlias)})  # type: ignore[valid-type]
    plain: Any = type("Plain", (), {"__value__": generic[np.float64]})

    def f(x: Any, y: Any) -> Any: ...

    f.__annotations__ |= {"x": generic[B], "y": plain, "return": generic[B]}
    operator = made(f)
    assert [tensor.type for tensor in (*operator.inputs, *operator.outputs)] == ["B", "double", "B"]


@pytest.mark.parametrize("kind", sorted(ELEMENT_DTYPES))
def test_operator_passes_arrays_of_every_type(kind: str) -> None:
    runner = free(kind)
    # onnxruntime's Python takes no string of rank 0.
    for shape in ((3,), (2, 0), (1, 2, 1, 1, 2), *([()] if kind != "string" else [])):
        x = np.arange(np.prod(shape, dtype=int)).reshape(shape)
        x = x.astype(str).astype(object) if kind == "string" else x.astype(ELEMENT_DTYPES[kind])
        if kind == "string":
            y = runner.run(None, {"x": x})[0]
        else:
            y = from_ort(runner.run_with_ort_values(None, {"x": to_ort(x)})[0])
        assert (y.dtype, y.shape, y.tolist()) == (x.dtype, shape, x.tolist())


def free(kind: str) -> Any:
    """A session from x to y, of a type and any shape."""
    return session(open_ranks(model_of(f"({kind}[n] x) => ({kind}[n] y) {{ z = t.f(x) y = t.f(z) }}")), same)


def test_operator_passes_strings_with_any_bytes() -> None:
    found: list[str] = []

    def f(x: NDArray[np.str_]) -> tuple[NDArray[np.str_], NDArray[np.int64]]:
        found.extend(x)
        return x, np.array([len(text) for text in x])

    texts = [b"a\0b", b"\xff\xfe", b"", "ä€".encode(), b"\0"]
    model = model_of("() => (string[n] y, int64[n] same) { z, of = t.f(x)  y, same = t.f(z) }")
    model.graph.initializer.append(onnx.TensorProto(name="x", dims=[5], data_type=8, string_data=texts))
    assert session(model, made(f)).run(["same"], {})[0].tolist() == [3, 2, 0, 2, 1]
    assert {text.encode(errors="surrogateescape") for text in found} == set(texts)


@pytest.mark.parametrize("given", ["", "axes", "table", "all"])
def test_function_gets_attributes_as_annotated(given: str) -> None:
    seen: list[Any] = []

    def f(
        x: F, axes: list[int] = [4], sizes: tuple[float, ...] = (0.1,), n: int | None = None, *, table: F | None = None
    ) -> F:  # fmt: skip
        seen.append((axes, sizes, n, None if table is None else table.tolist()))
        axes.append(7)
        return x

    table = onnx.numpy_helper.from_array(np.ones((2, 1), np.float32))
    wrote: dict[str, list[tuple[str, Any]]] = {"axes": [("axes", [])], "table": [("table", table)]}
    wrote["all"] = [("axes", [-1, 2]), ("sizes", list(range(9))), ("n", 3), ("table", table)]
    types = {"axes": onnx.AttributeProto.INTS, "sizes": onnx.AttributeProto.FLOATS}
    attributes = [
        onnx.helper.make_attribute(name, value, attr_type=types.get(name)) for name, value in wrote.get(given, ())
    ]
    runner = session(model_of(ONE, *attributes), made(f))
    for _ in range(2):  # the list is a new one in each call
        runner.run(None, {"x": np.ones(1, np.float32)})
    expected = {
        "": ([4], pytest.approx((0.1,)), None, None),
        "axes": ([], pytest.approx((0.1,)), None, None),
        "table": ([4], pytest.approx((0.1,)), None, [[1], [1]]),
        "all": ([-1, 2], (0, 1, 2, 3, 4, 5, 6, 7, 8), 3, [[1], [1]]),
    }[given]
    assert [(axes[:-1], *rest) for axes, *rest in seen] == [expected] * 2


@reads_lists_of_strings
def test_function_and_shapes_get_same_strings() -> None:
    seen: list[Any] = []

    def shapes(x: Any, words: Any, word: str) -> Any:
        seen.append((words, word))
        return (None,)

    def f(x: F, words: list[str] = [], word: str = "") -> F:
        seen.append((tuple(words), word))
        return x

    for words, word in (([b"\xff", b"", b"a\xfe"], b"\xff\0b\0"), ([b""], b""), ([b"", b""], b"\0")):
        attributes = [onnx.helper.make_attribute("words", words), onnx.helper.make_attribute("word", word)]
        session(model_of(ONE, *attributes), made(f, shapes=shapes)).run(None, {"x": np.ones(1, np.float32)})
        texts = tuple(text.decode(errors="surrogateescape") for text in (*words, word))
        assert set(seen) == {(texts[:-1], texts[-1])}
        assert len(seen) > 2
        seen.clear()
    session(ONE, made(f, shapes=shapes)).run(None, {"x": np.ones(1, np.float32)})
    assert set(seen) == {((), "")}
    cut = [onnx.helper.make_attribute("words", ["c", "a\0b"])]
    with pytest.raises(Exception, match=r"t::f: words\[1\] = b'a\\x00b': a string in a list must have no zero byte"):
        session(model_of(ONE, *cut), made(f))


def test_function_cannot_change_default_tensor() -> None:
    table = np.ones(1, np.float32)

    def f(x: F, *, table: F = table) -> F:
        with pytest.raises(ValueError, match="read-only"):
            table *= 2
        return x * table

    operator = made(f)
    table *= 5  # the operator has a copy
    for _ in range(2):
        runner = session(ONE, operator)
        assert [runner.run(None, {"x": np.ones(1, np.float32)})[0].item() for _ in range(2)] == [1, 1]


@pytest.mark.parametrize(
    ("attribute", "says"),
    [
        ([], "axes is missing: t::f requires it"),
        ([onnx.helper.make_attribute("axes", 1)], "axes = 1 has type INT: must be INTS"),
        (
            [onnx.helper.make_attribute("axes", onnx.numpy_helper.from_array(np.ones(1)))],
            "axes has a type that cannot be read",
        ),
    ],
)
def test_session_refuses_wrong_attribute(attribute: Any, says: str) -> None:
    def f(x: F, axes: list[int]) -> F: ...

    with pytest.raises(Exception, match=says):
        session(model_of(ONE, *attribute), made(f))


def test_nodes_leave_out_and_repeat_tensors() -> None:
    def f(x: F, b: F | None = None) -> tuple[F, F | None]:
        return (x, None) if b is None else (x + b, b)

    def g(*parts: NDArray[A], axis: int = 0) -> tuple[NDArray[np.int64], list[NDArray[A]]]:
        return np.array(len(parts)), [part[::-1] for part in parts]

    graph = """(float[n] x, string[n] s) => (float[n] y, float[n] z, float[n] b, float[m] p, string[m] q, int64 count) {
        y = t.f(x)
        z, b = t.f(x, y)
        count, unused, p, r = t.g(x, z, x)
        one, q = t.g(s)
    }"""
    operators = made(f), ortops.operator(domain="t")(g)
    y, z, b, p, q, count = session(graph, *operators).run(
        None, {"x": np.array([1, 2], np.float32), "s": np.array(["a", "b"], object)}
    )
    assert [array.tolist() for array in (y, z, b, p, q, count)] == [[1, 2], [2, 4], [1, 2], [4, 2], ["b", "a"], 3]
    with pytest.raises(Exception, match=r"t::f: it returned None for y1, which the node has"):
        session("(float[n] x) => (float[n] y, float[n] z) { y, z = t.f(x) }", operators[0]).run(
            None, {"x": np.ones(1, np.float32)}
        )


def test_operator_without_inputs_computes() -> None:
    def f(n: int, size: list[int] = [2]) -> NDArray[np.int64]:
        return np.full(size, n)

    assert session("() => (int64[n] y) { y = t.f <n = 3> () }", made(f)).run(None, {})[0].tolist() == [3, 3]


@pytest.mark.parametrize(
    "result",
    [lambda x: x[::-2], lambda x: np.ones((2, 3), np.float32).T, lambda x: np.broadcast_to(x[1], (4, 5)), lambda x: x[0],
     lambda x: np.empty((0, 4), np.float32), lambda x: np.ones((1,) * 30, np.float32), lambda x: np.ma.array(x)]  # noqa: PLW0108,
)  # fmt: skip
def test_function_returns_arrays_of_any_layout(result: Any) -> None:
    x = np.arange(3, dtype=np.float32)
    operator = made(result, inputs=[ortops.Tensor("x", "float")], outputs=[ortops.Tensor("y", "float")])
    y = session(ONE, operator).run(None, {"x": x})[0]
    np.testing.assert_array_equal(y, np.asarray(result(x)))
    assert y.shape == np.shape(result(x))


def _ok(x: F) -> F: ...


def _two(x: F) -> tuple[F, F]: ...


def _shaped(x: Annotated[F, ("n",)]) -> Annotated[F, ("n", 2)]: ...


def _texts(x: F) -> NDArray[np.str_]: ...


def _list(x: F) -> list[F]: ...


_TWO = "(float[n] x) => (float[m] y) { y, z = t.f(x) }"


@pytest.mark.parametrize(
    ("like", "result", "says", "graph"),
    [
        (_ok, np.ones(1), "float64 for y: must return float32", ONE),
        (_ok, np.ones(1, ">f4"), ">f4 for y: must return float32", ONE),
        (_ok, [1.0], "a list for y: must return an array", ONE),
        (_ok, 1.0, "a float for y: must return an array", ONE),
        (_shaped, np.ones((3, 3), np.float32), r"shape \[3, 3\] for y: must return \[3, 2\]", ONE),
        (_two, np.ones(1, np.float32), "a ndarray: must return a tuple of 2, y0, y1", _TWO),
        (_texts, np.array(["a", 1], object), "int in y: must return strings", ONE.replace("float[m]", "string[m]")),
        (_texts, np.ones(2), "float64 in y: must return strings", ONE.replace("float[m]", "string[m]")),
        (_list, [np.ones(1, np.float32)] * 3, "3 arrays for y: must return a list of 2, as the node has", _TWO),
        (_list, np.ones(2, np.float32), "a ndarray for y: must return a list of 2", _TWO),
    ],
)
def test_error_names_operator_and_output_of_wrong_result(like: Any, result: Any, says: str, graph: str) -> None:
    definition = made(like)
    function = made(lambda x: result, inputs=definition.inputs, outputs=definition.outputs)
    runner = session(graph, function)
    with pytest.raises(Exception, match=f"t::f: it returned {says}"):
        runner.run(None, {"x": np.ones(3, np.float32)})


def test_operator_refuses_input_of_wrong_shape_or_rank() -> None:
    runner = session(ONE.replace("[n]", "[]").replace("[m]", "[]"), made(_shaped))
    with pytest.raises(Exception, match=r"t::f: x has shape \[\]: must have rank 1, \[n\]"):
        runner.run(None, {"x": np.ones((), np.float32)})
    with pytest.raises(Exception, match="t::f: an input has 17 axes or more: must have at most 16"):
        free("float").run(None, {"x": np.ones((1,) * 17, np.float32)})


def test_function_may_keep_and_change_inputs() -> None:
    kept: list[F] = []

    def f(x: F) -> F:
        kept.append(x)
        x += 1
        return x

    runner = session("(float[n] x) => (float[n] y, float[n] z) { y = t.f(x) z = Neg(x) }", made(f))
    for i in range(3):
        x = np.full(1000, i, np.float32)
        y, z = runner.run(None, {"x": x})
        assert (y == i + 1).all() and (z == -i).all() and (x == i).all()  # noqa: PT018
    assert [array[0] for array in kept] == [1, 2, 3]


def test_operator_behaves_as_its_function() -> None:
    operator = importlib.import_module("examples.operators.word_pieces").word_pieces
    assert operator.__name__ == "word_pieces"
    assert "The token ids" in operator.__doc__
    assert repr(operator) == "<ortops.operator examples::WordPieces>"
    assert pickle.loads(pickle.dumps(operator)) is operator  # noqa: S301 - our own bytes


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("word_pieces", "[1 2 3 4 5 0] [3 3]\n"),
        ("standardize", "[[-1.0703125, -0.52978515625], [0.0, 1.599609375]]\n[[-1.0, 10.0], [-1.0, 10.0]]\n"),
    ],
)
def test_example_prints_its_output(name: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    importlib.import_module(f"examples.operators.{name}").main()
    assert capsys.readouterr().out == printed
