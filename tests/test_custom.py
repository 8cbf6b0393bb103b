"""Operators of users in sessions: definitions, types, results, errors, lives, threads and processes."""

# mypy: disable-error-code="empty-body, no-any-return"

from __future__ import annotations

import gc
import importlib
import itertools
import multiprocessing
import pickle
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from types import GenericAlias
from typing import Annotated, Any, Literal, TypeVar

import ml_dtypes
import numba
import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import onnx_models
import ortops
from conformance.backends.session import CPU, options
from gradient_nodes import IS_OLD, not_of_old
from onnx_models.tools.attributes import CUSTOM
from onnx_models.tools.schema import schemas_of
from ortops.custom.kernel import custom_ops
from ortops.engine.c_api import onnxruntime_version
from ortops.spec import ANY_SHAPE, ELEMENT_DTYPES

F = NDArray[np.float32]
A = TypeVar("A", bound=np.generic)
B = TypeVar("B", bound=np.generic)
C = TypeVar("C", bound=np.generic)
D = TypeVar("D", bound=np.generic)
R = TypeVar("R", np.float32, np.float64)

reads_lists_of_strings = pytest.mark.skipif(
    onnxruntime_version() < (1, 27), reason="ONNX Runtime reads lists of strings from 1.27 on"
)
ONE = "(float[n] x) => (float[m] y) { y = t.f(x) }"


def made(function: Callable[..., Any], **settings: Any) -> ortops.CustomOperator:
    return ortops.operator(domain="t", name="f", **settings)(function)


def parsed(graph: str, *attributes: onnx.AttributeProto) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18, "t" : 1]> g {graph}')
    model.graph.node[0].attribute.extend(attributes)
    return model


def session(graph: str, *operators: ortops.CustomOperator, attributes: Any = ()) -> ortops.InferenceSession:
    model = parsed(graph, *attributes).SerializeToString()
    return ortops.InferenceSession(model, options(), [CPU], operators=operators)


def answer(function: Callable[..., Any], x: Any = None, graph: str = ONE, **settings: Any) -> Any:
    x = np.arange(3, dtype=np.float32) if x is None else x
    return session(graph, made(function, **settings)).run(None, {"x": x})[0]


@made
def same(x: NDArray[A]) -> NDArray[A]:
    """The input."""
    return x


def test_annotations_give_the_definition() -> None:
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

    one = made(f)
    assert [(t.name, t.type, t.shape, t.optional, t.variadic) for t in (*one.inputs, *one.outputs)] == [
        ("x", "R", ("n", 4), False, False),
        ("b", "int64", ANY_SHAPE, True, False),
        ("more", "bool", ANY_SHAPE, False, True),
        ("y0", "R", ANY_SHAPE, False, False),
        ("y1", "string", ANY_SHAPE, False, True),
    ]
    assert [(a.name, a.type, a.default, a.required, a.choices) for a in one.attributes] == [
        ("mode", "STRING", "mean", False, ("mean", "sum")),
        ("names", "STRINGS", None, True, ()),
        ("axes", "INTS", None, False, ()),
        ("scale", "FLOAT", 0.5, False, ()),
        ("table", "TENSOR", None, True, ()),
    ]
    assert one.types == {"R": ("float", "double")}
    assert made(same.call).types["A"] == tuple(ELEMENT_DTYPES)


def test_an_alias_of_a_type_statement_is_its_value() -> None:
    # NumPy 2.5 makes NDArray in this way.
    generic: Any = type("Generic", (), {"__value__": NDArray[A], "__class_getitem__": classmethod(GenericAlias)})  # type: ignore[valid-type]
    plain: Any = type("Plain", (), {"__value__": generic[np.float64]})

    def f(x: Any, y: Any) -> Any: ...

    f.__annotations__ |= {"x": generic[B], "y": plain, "return": generic[B]}
    operator = made(f)
    assert [tensor.type for tensor in (*operator.inputs, *operator.outputs)] == ["B", "double", "B"]


def _no_hint(x): ...  # type: ignore[no-untyped-def]
def _no_result(x: F): ...  # type: ignore[no-untyped-def]
def _bool(x: F, flag: bool = True) -> F: ...
def _keywords(x: F, **rest: int) -> F: ...
def _complex(x: NDArray[np.complex64]) -> F: ...
def _default(x: F = np.zeros(1, np.float32)) -> F: ...  # noqa: B008
def _any_result(x: F) -> NDArray[np.integer]: ...
def _unread(x: F) -> NDArray[R]: ...
def _first_is_variadic(x: F) -> tuple[list[F], F]: ...
def _ok(x: F) -> F: ...
def _unknown(x: Missing) -> F: ...  # type: ignore[name-defined]  # noqa: F821


async def _async(x: F) -> F: ...


async def _async_generator(x: F) -> Any:
    yield x


def _generator(x: F) -> Any:
    yield x


class _AsyncObject:
    async def __call__(self, x: F) -> F: ...


def _complex_result(x: F) -> NDArray[np.complex128]: ...


@pytest.mark.parametrize(
    ("function", "settings", "says"),
    [
        (_async, {}, "t::f is async: must be a function that returns its result"),
        (_AsyncObject(), {}, "t::f is async: must"),
        (_async_generator, {}, "t::f is an asynchronous generator: must"),
        (_ok, {"shapes": _async}, "t::f: shapes is async: must"),
        (_ok, {"shapes": _generator}, "t::f: shapes is a generator: must"),
        (_ok, {"shapes": lambda x, y: x}, "t::f: shapes must take x by name: missing a required argument: 'y'"),
        (_ok, {"shapes": lambda: ()}, "t::f: shapes must take x by name: got an unexpected keyword argument 'x'"),
        (_no_hint, {}, r"t::f: parameter x has the annotation None: must be an input, "),
        (_no_result, {}, r"its result has the annotation None: must be "),
        (_bool, {}, "parameter flag has the annotation <class 'bool'>"),
        (_keywords, {}, "parameter rest takes any keyword"),
        (_complex, {}, r"^t::f: parameter x is an array of complex64: must be of float16 or bfloat16 or float or "),
        (_complex_result, {}, r"^t::f: its result is an array of complex128: must be of float16 or "),
        (_default, {}, "an input must have no default, or None"),
        (_any_result, {}, r"its result's annotation, .*, leaves the element type open: must be of a single type"),
        (_unread, {}, "no input has the type R: must have one"),
        (_first_is_variadic, {}, "y0 is variadic: only the last output can be"),
        (_unknown, {}, "its function's annotations cannot be read: name 'Missing' is not defined"),
        (_ok, {"domain": "a:b"}, "domain = 'a:b': must be a name of your own"),
        (_ok, {"domain": "ai.onnx"}, "domain = 'ai.onnx': .* must be '' for nodes without a domain"),
        *(
            (_ok, {"domain": "", "name": name}, f"ONNX has an operator {name}")
            for name in ("Relu", "Upsample", "RoiAlign")
        ),
        (_ok, {"name": "a b"}, "name = 'a b': must be a Python identifier"),
        (_ok, {"inputs": [ortops.Tensor("x", "float")]}, "outputs must be given where inputs are"),
        (_ok, {"outputs": [ortops.Tensor("y", "U")]}, "y has type 'U', which is not one of"),
        (_ok, {"body": onnx.FunctionProto(name="g")}, "body is of ::g: must be of t::f"),
        (
            _first_is_variadic,
            {"shapes": len, "outputs": [ortops.Tensor("y", "float", variadic=True)]},
            "shapes: must not",
        ),
        (3, {}, "3: must be a function, or a class"),
    ],
)
def test_a_wrong_definition_is_refused(function: Any, settings: Any, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        ortops.operator(**{"domain": "t", "name": "f", **settings})(function)


@pytest.mark.parametrize("kind", sorted(set(ELEMENT_DTYPES) - {"bfloat16"}))
def test_every_type_goes_through_with_any_number_of_elements(kind: str) -> None:
    runner = session(f"({kind}[...] x) => ({kind}[...] y) {{ z = t.f(x) y = t.f(z) }}".replace("[...]", "[]"), same)
    for shape in ((), (3,), (2, 0), (1, 2, 1, 1, 2)):
        x = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(ELEMENT_DTYPES[kind])
        x = x.astype(str).astype(object) if kind == "string" else x
        if kind != "string" or x.ndim:  # onnxruntime's Python takes no string of rank 0
            y = runner.run(None, {"x": x})[0] if x.ndim == 0 else _free(kind).run(None, {"x": x})[0]
            assert (y.dtype, y.shape, y.tolist()) == (x.dtype, shape, x.tolist())


def _free(kind: str) -> ortops.InferenceSession:
    """A session from x to y, of a type and any shape."""
    model = parsed(f"({kind}[n] x) => ({kind}[n] y) {{ z = t.f(x) y = t.f(z) }}")
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.ClearField("shape")
    return ortops.InferenceSession(model.SerializeToString(), options(), [CPU], operators=[same])


def test_bfloat16_goes_through() -> None:
    x = np.arange(4).astype(ml_dtypes.bfloat16)
    value = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(x.view(np.uint16), onnx.TensorProto.BFLOAT16)

    def f(x: NDArray[ml_dtypes.bfloat16]) -> F:
        assert x.dtype == ml_dtypes.bfloat16
        return x.astype(np.float32)

    runner = session("(bfloat16[n] x) => (float[n] y) { y = t.f(x) }", made(f))
    assert runner.run_with_ort_values(None, {"x": value})[0].numpy().tolist() == [0, 1, 2, 3]


def test_bytes_that_are_no_text_and_zero_bytes_survive() -> None:
    found: list[str] = []

    def f(x: NDArray[np.str_]) -> tuple[NDArray[np.str_], NDArray[np.int64]]:
        found.extend(x)
        return x, np.array([len(text) for text in x])

    texts = [b"a\0b", b"\xff\xfe", b"", "ä€".encode(), b"\0"]
    model = parsed("() => (string[n] y, int64[n] same) { z, of = t.f(x)  y, same = t.f(z) }")
    model.graph.initializer.append(onnx.TensorProto(name="x", dims=[5], data_type=8, string_data=texts))
    runner = ortops.InferenceSession(model.SerializeToString(), options(), [CPU], operators=[made(f)])
    assert runner.run(["same"], {})[0].tolist() == [3, 2, 0, 2, 1]
    assert {text.encode(errors="surrogateescape") for text in found} == set(texts)


@pytest.mark.parametrize("given", ["", "axes", "table", "all"])
def test_attributes_arrive_as_the_annotation_says(given: str) -> None:
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
    runner = session(ONE, made(f), attributes=attributes)
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
def test_function_and_shapes_see_the_same_strings() -> None:
    seen: list[Any] = []

    def shapes(x: Any, words: Any, word: str) -> Any:
        seen.append((words, word))
        return (None,)

    def f(x: F, words: list[str] = [], word: str = "") -> F:
        seen.append((tuple(words), word))
        return x

    for words, word in (([b"\xff", b"", b"a\xfe"], b"\xff\0b\0"), ([b""], b""), ([b"", b""], b"\0")):
        attributes = [onnx.helper.make_attribute("words", words), onnx.helper.make_attribute("word", word)]
        session(ONE, made(f, shapes=shapes), attributes=attributes).run(None, {"x": np.ones(1, np.float32)})
        texts = tuple(text.decode(errors="surrogateescape") for text in (*words, word))
        assert set(seen) == {(texts[:-1], texts[-1])}
        assert len(seen) > 2
        seen.clear()
    session(ONE, made(f, shapes=shapes)).run(None, {"x": np.ones(1, np.float32)})
    assert set(seen) == {((), "")}
    cut = [onnx.helper.make_attribute("words", ["c", "a\0b"])]
    with pytest.raises(Exception, match=r"t::f: words\[1\] = b'a\\x00b': a string in a list must have no zero byte"):
        session(ONE, made(f), attributes=cut)


def test_a_tensor_that_is_a_default_cannot_be_changed() -> None:
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
def test_a_wrong_attribute_is_refused(attribute: Any, says: str) -> None:
    def f(x: F, axes: list[int]) -> F: ...

    with pytest.raises(Exception, match=says):
        session(ONE, made(f), attributes=attribute)


def test_optional_and_variadic_tensors() -> None:
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
    assert [one.tolist() for one in (y, z, b, p, q, count)] == [[1, 2], [2, 4], [1, 2], [4, 2], ["b", "a"], 3]
    with pytest.raises(Exception, match=r"t::f: it returned None for y1, which the node has"):
        session("(float[n] x) => (float[n] y, float[n] z) { y, z = t.f(x) }", operators[0]).run(
            None, {"x": np.ones(1, np.float32)}
        )


def test_an_operator_may_have_no_input() -> None:
    def f(n: int, size: list[int] = [2]) -> NDArray[np.int64]:
        return np.full(size, n)

    assert session("() => (int64[n] y) { y = t.f <n = 3> () }", made(f)).run(None, {})[0].tolist() == [3, 3]


@pytest.mark.parametrize(
    "result",
    [lambda x: x[::-2], lambda x: np.ones((2, 3), np.float32).T, lambda x: np.broadcast_to(x[1], (4, 5)), lambda x: x[0],
     lambda x: np.empty((0, 4), np.float32), lambda x: np.ones((1,) * 30, np.float32), lambda x: np.ma.array(x)]  # noqa: PLW0108,
)  # fmt: skip
def test_a_result_may_have_any_layout(result: Any) -> None:
    x = np.arange(3, dtype=np.float32)
    y = answer(result, x, inputs=[ortops.Tensor("x", "float")], outputs=[ortops.Tensor("y", "float")])
    np.testing.assert_array_equal(y, np.asarray(result(x)))
    assert y.shape == np.shape(result(x))


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
def test_a_wrong_result_is_an_error_that_names_operator_and_output(
    like: Any, result: Any, says: str, graph: str
) -> None:
    definition = made(like)
    function = made(lambda x: result, inputs=definition.inputs, outputs=definition.outputs)
    runner = session(graph, function)
    with pytest.raises(Exception, match=f"t::f: it returned {says}"):
        runner.run(None, {"x": np.ones(3, np.float32)})


def test_an_input_of_a_wrong_shape_or_of_too_many_axes_is_refused() -> None:
    runner = session(ONE.replace("[n]", "[]").replace("[m]", "[]"), made(_shaped))
    with pytest.raises(Exception, match=r"t::f: x has shape \[\]: must have rank 1, \[n\]"):
        runner.run(None, {"x": np.ones((), np.float32)})
    with pytest.raises(Exception, match="t::f: an input has 17 axes or more: must have at most 16"):
        _free("float").run(None, {"x": np.ones((1,) * 17, np.float32)})


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
def test_an_exception_is_an_error_of_the_session(raised: BaseException, says: str, leaves: Any) -> None:
    def f(x: F) -> F:
        raise raised

    operator = made(f)
    chosen = options()
    ortops.register(chosen, operators=[operator])
    plain = onnxruntime.InferenceSession(parsed(ONE).SerializeToString(), chosen, [CPU])
    feeds = {"x": np.ones(1, np.float32)}
    with pytest.raises(Exception, match=says):
        plain.run(None, feeds)
    with pytest.raises(leaves or Exception, match=None if leaves else says) as caught:
        session(ONE, operator).run(None, feeds)
    assert (caught.value if leaves not in (None, LookupError) else caught.value.__cause__) in (raised, None)


def test_a_later_call_raises_no_exception_that_onnxruntimes_own_class_left_on_the_thread() -> None:
    def f(x: F) -> F:
        raise KeyboardInterrupt if x[0] else ValueError("answer")

    chosen = options()
    ortops.register(chosen, operators=[made(f)])
    model = parsed(ONE).SerializeToString()
    plain = onnxruntime.InferenceSession(model, chosen, [CPU])
    without_users = session("(float[n] x, float[m] y) => (float[n] z) { z = Add(x, y) }")
    for runner, feeds, says in (
        (ortops.InferenceSession(model, chosen, [CPU]), {"x": np.zeros(1, np.float32)}, "ValueError: answer"),
        (without_users, {"x": np.ones(2, np.float32), "y": np.ones(3, np.float32)}, "Add node"),
    ):
        with pytest.raises(Exception, match="interrupted by KeyboardInterrupt"):
            plain.run(None, {"x": np.ones(1, np.float32)})
        with pytest.raises(Exception, match=says):
            runner.run(None, feeds)


def test_an_operator_with_a_name_of_any_length_can_be_interrupted() -> None:
    name = "f" * 1000

    def f(x: F) -> F:
        raise KeyboardInterrupt

    runner = session(ONE.replace("t.f", f"t.{name}"), ortops.operator(domain="t", name=name)(f))
    with pytest.raises(KeyboardInterrupt):
        runner.run(None, {"x": np.ones(1, np.float32)})


def test_inputs_are_copies_that_can_be_kept_and_changed() -> None:
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


def test_shapes_are_inferred_in_sessions_and_by_onnx(users: None) -> None:
    def shapes(x: Any, axes: Any, name: str) -> Any:
        return (*x[1:], len(axes)) if name == "long" * 200 else None

    def f(x: NDArray[R], axes: list[int], name: str = "") -> NDArray[R]: ...

    def g(x: Annotated[NDArray[R], ("n", "m")]) -> tuple[Annotated[NDArray[np.int8], ("m", "k")], NDArray[R]]: ...

    operators = made(f, shapes=shapes), ortops.operator(domain="t")(g)
    model = parsed("""(double[a, 3] x) => (double[p, q] y, int8[r, s] z) {
        y = t.f <axes = [5, 6], name = "%s"> (x)
        z, w = t.g(x)
    }""" % ("long" * 200))  # fmt: skip
    if not IS_OLD:
        runner = ortops.InferenceSession(model.SerializeToString(), options(), [CPU], operators=operators)
        assert [one.shape for one in runner.get_outputs()] == [[3, 2], [3, "s"]]
    onnx_models.register_schemas(operators)
    model.graph.ClearField("output")
    kinds = {one.name: one.type.tensor_type for one in onnx.shape_inference.infer_shapes(model).graph.value_info}
    assert [length.dim_value for length in kinds["y"].shape.dim] == [3, 2]
    assert [length.dim_value for length in kinds["z"].shape.dim] == [3, 0]
    assert (kinds["z"].elem_type, kinds["w"].elem_type) == (onnx.TensorProto.INT8, onnx.TensorProto.DOUBLE)
    assert not kinds["w"].HasField("shape")


@pytest.mark.parametrize(
    "graph", [ONE.replace("[n]", "[3]"), ONE, "(float[n] x) => (float[m] y) { z = t.f(x)  y = t.f(z) }"]
)
@pytest.mark.parametrize("kind", [ortops.InferenceSession, onnxruntime.InferenceSession])
def test_shapes_of_a_wrong_form_are_an_error_of_the_session(graph: str, kind: Any) -> None:
    for wrong, says in (
        (lambda x: 3, "3"),
        (lambda x: (-1,), r"\(-1,\)"),
        (lambda x: [1.5], r"\[1.5\]"),
        (lambda x: ("n", x), r"\('n', "),
        (_soon, "<coro"),
    ):
        chosen = options()
        ortops.register(chosen, operators=[made(_ok, shapes=wrong)])
        with pytest.raises(Exception, match=f"t::f: shapes: it returned {says}.*: must return a tuple of lengths"):
            kind(parsed(graph).SerializeToString(), chosen, [CPU])


def _soon(x: Any) -> Any:
    """A function that returns a coroutine, which nothing tells before a call."""
    result = _async(x)
    result.close()
    return result


def test_what_shapes_raises_is_for_calls_to_raise() -> None:
    def shapes(x: Any) -> Any:
        if x != (3,):
            raise LookupError("three")
        return x

    runner = session(ONE, made(lambda x: x, shapes=shapes, inputs=same.inputs, outputs=same.outputs, types=same.types))
    assert runner.run(None, {"x": np.ones(3, np.float32)})[0].shape == (3,)
    with pytest.raises(Exception, match="t::f: shapes: LookupError: three"):
        runner.run(None, {"x": np.ones(2, np.float32)})


def test_a_function_of_shapes_need_not_know_unknown_lengths() -> None:
    def f(x: F) -> F:
        return np.concatenate([x, x])

    y = answer(f, shapes=lambda x: (2 * x[0],), graph=ONE.replace("[n]", "[]").replace("float[] x", "float[n] x"))
    assert y.shape == (6,)
    with pytest.raises(Exception, match=r"it returned shape \[6\] for y: must return \[9\]"):
        answer(f, shapes=lambda x: (x[0] ** 2,) if isinstance(x[0], int) else (None,))


@pytest.mark.parametrize("lengths", [(None, "k"), (None, None), ("k", 7)])
def test_a_length_of_shapes_that_is_unknown_leaves_the_axis_open(lengths: Any) -> None:
    @ortops.operator(domain="t", shapes=lambda x: (x[0], lengths[0], 3, lengths[1]))
    def f(x: F) -> F:
        return np.ones((x.shape[0], 2, 3, 7), np.float32)

    model = parsed(
        "(float[4, 8] x) => (float y, float[4, 2, m, 7] z) { a = t.f(x) y = Relu(a) b = t.f(x) z = Relu(b) }"
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    runner = ortops.InferenceSession(model.SerializeToString(), options(), [CPU], operators=[f])
    y, z = (output.shape for output in runner.get_outputs())
    names = [length for length, given in zip((y[1], y[3]), lengths, strict=True) if given is None]
    assert len(set(names)) == len(names)
    assert [None if length in names else length for length in y] == [4, lengths[0], 3, lengths[1]]
    assert z == [4, 2, 3, 7]
    assert [array.shape for array in runner.run(None, {"x": np.ones((4, 8), np.float32)})] == [(4, 2, 3, 7)] * 2
    with schemas_of([f]):
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.output[0].type.tensor_type.shape.dim
    assert [d.dim_value or re.sub("unk__.*", "", d.dim_param) or None for d in inferred] == [
        4,
        lengths[0],
        3,
        lengths[1],
    ]


def test_an_operator_of_a_name_is_registered_once() -> None:
    chosen = options()
    ortops.register(chosen, operators=[same, same])
    ortops.register(chosen, operators=[same])
    for twice in (ortops.register, lambda o, operators: ortops.InferenceSession(b"", o, operators=operators)):
        with pytest.raises(ValueError, match="operators has t::f twice: names must be unique"):
            twice(chosen, operators=[same, made(same.call)])
    with pytest.raises(TypeError, match=r"operators has <built-in function len>: must be made by ortops.operator"):
        ortops.register(chosen, operators=[len])  # type: ignore[list-item]
    ortops.register(chosen, operators=[ortops.operator(domain="t", name="g")(_ok)])  # the same domain, later
    graph = "(float[n] x) => (float[n] y) { y = t.f(x) z = t.g(x) }"
    assert ortops.InferenceSession(parsed(graph).SerializeToString(), chosen, [CPU])


def test_sessions_have_operators_of_their_own() -> None:
    def twice(x: F) -> F:
        return 2 * x

    first, second = session(ONE, same), session(ONE, made(twice))
    x = np.ones(1, np.float32)
    assert [one.run(None, {"x": x})[0][0] for one in (first, second, first)] == [1, 2, 1]
    with pytest.raises(Exception, match=r"t:f.* is not a registered function/op"):
        session(ONE)


def times(factor: int) -> ortops.CustomOperator:
    return made(lambda x: x * np.float32(factor), inputs=[ortops.Tensor("x", "float")], outputs=[Y])


Y = ortops.Tensor("y", "float")


def test_sessions_of_the_same_options_have_operators_of_their_own() -> None:
    chosen, x = options(), {"x": np.ones(1, np.float32)}

    def make(*operators: ortops.CustomOperator, kind: Any = ortops.InferenceSession) -> Any:
        more = {"operators": operators} if operators else {}
        return kind(parsed(ONE).SerializeToString(), chosen, [CPU], **more)

    first, second = make(times(2)), make(times(3))
    second.set_providers([CPU])
    for kind in (ortops.InferenceSession, onnxruntime.InferenceSession):
        with pytest.raises(Exception, match=r"t:f.* is not a registered function/op|No Op registered for f"):
            make(kind=kind)
    for factor in (4, 5):  # the later one takes the place of the earlier
        ortops.register(chosen, operators=[times(factor)])
        for kind in (ortops.InferenceSession, onnxruntime.InferenceSession):
            assert make(kind=kind).run(None, x)[0] == factor
    assert make(times(6)).run(None, x)[0] == 6
    assert [one.run(None, x)[0][0] for one in (first, second, make())] == [2, 3, 5]


@pytest.mark.parametrize("wrong", [None, print, 3])
def test_what_are_no_operators_is_refused(wrong: Any) -> None:
    calls: list[Callable[..., Any]] = [
        lambda operators: ortops.register(options(), operators=operators),
        lambda operators: ortops.InferenceSession(b"", operators=operators),
        onnx_models.register_schemas,
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"^operators = .*: must be operators made by ortops\.operator, in a list$"):
            call(wrong)


def test_an_operator_can_be_given_without_a_list() -> None:
    chosen, model = options(), parsed(ONE).SerializeToString()
    ortops.register(chosen, operators=same)
    for runner in (
        onnxruntime.InferenceSession(model, chosen, [CPU]),
        ortops.InferenceSession(model, options(), [CPU], operators=same),
    ):
        assert runner.run(None, {"x": np.ones(1, np.float32)})[0] == 1
    loss = parsed("(float[n] x) => (float y) { z = t.f(x) y = ReduceSum <keepdims = 0> (z) }")
    differentiable = made(same.call, inputs=[ortops.Tensor("x", "float")], outputs=[Y], gradient="t::fGrad")
    with pytest.raises(ValueError, match="t::fGrad"):  # so it knows the operator
        onnx_models.gradient(loss, "y", ["x"], operators=differentiable)  # type: ignore[arg-type]


@pytest.mark.parametrize("standard", [None, False])
@pytest.mark.parametrize(
    ("node", "says"),
    [
        ("t.f <a = 1> (x)", r"node '' \(f\).*: t::f has no attribute a$"),
        ("ai.onnx.contrib.RoiAlign_10 <size = 1, half = 1> (x)", "RoiAlign_10 has no attribute half, size$"),
    ],
)
@pytest.mark.parametrize(
    "graph",
    [
        "(float[n] x) => (float[m] y) {{ y = {} }}",
        """(float[n] x, bool c) => (float[m] y) {{
            y = If (c) <then_branch = a () => (p) {{ p = {} }}, else_branch = b () => (q) {{ q = Identity(x) }}> }}""",
        """(float[n] x) => (float[m] y) {{ y = own.g(x) }}
            <domain: "own", opset_import: ["" : 18, "t" : 1, "ai.onnx.contrib" : 1]> g (x) => (z) {{ z = {} }}""",
    ],
)
def test_a_session_refuses_attributes_that_an_operator_lacks(graph: str, node: str, says: str, standard: Any) -> None:
    imports = '["" : 18, "t" : 1, "own" : 1, "ai.onnx.contrib" : 1]'
    model = onnx.parser.parse_model(f"<ir_version: 8, opset_import: {imports}> g {graph.format(node)}")
    with pytest.raises(TypeError, match=says):
        ortops.InferenceSession(model.SerializeToString(), options(), [CPU], operators=[same], standard=standard)


def test_a_function_of_the_model_may_have_attributes_that_an_operator_of_its_name_lacks() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18, "t" : 1]> g (float[n] x) => (float[n] y) { y = t.f <a = 2.0> (x) }
        <domain: "t", opset_import: ["" : 18]> f <a> (x) => (y) {
            k = Constant <value_float: float = @a> ()
            y = Mul(x, k)
        }"""
    model = onnx.parser.parse_model(text).SerializeToString()
    runner = ortops.InferenceSession(model, options(), [CPU], operators=[same])
    assert runner.run(None, {"x": np.ones(1, np.float32)})[0] in (1, 2)  # as ONNX Runtime chooses


@pytest.mark.parametrize(
    ("node", "operators", "says"),
    [
        ("t.Swish(x)", (), r"t:Swish.* If t::Swish is an operator made by .*, pass it .*, operators=\[Swish\]\.$"),
        ("t.swish(x)", ("Other", "Swish"), r"Did you mean t::Swish, which the session has\?$"),
        ("u.Swish(x)", ("Other", "Swish"), r"Did you mean t::Swish, which the session has\?$"),
        ("t.MySwish(x)", ("Other", "Swish"), r"Did you mean t::Swish, which the session has\?$"),
        ("t.Swihs(x)", ("Other", "Swish"), r"Did you mean t::Swish, which the session has\?$"),
        ("t.Swarm(x)", ("Other", "Swish"), r"pass it to the session, operators=\[Swarm\]; it has t::Other, t::Swish\.$"),
        ("t.swish(x, x)", ("Other", "Swish"), r"pass it to the session, operators=\[swish\]; it has t::Other, t::Swish\.$"),
        ("t.swish(i)", ("Other", "Swish"), r"pass it to the session, operators=\[swish\]; it has t::Other, t::Swish\.$"),
        ("ai.onnx.contrib.RoiAlign16(x, x, i)", (), r"Did you mean ai.onnx.contrib::RoiAlign_16, which the session has\?$"),
        ("mmcv.MMCVRiRoIAlignRotated(x, x)", (), r"ortops has no mmcv::MMCVRiRoIAlignRotated: write it with"),
        ("t.SwishGrad(x)", ("Swish",), r"Grad computes the gradient of t::Swish: .*, operators=\[Swish, SwishGrad\]\.$"),
        ("mmcv.NMS(x)", (), r"ortops has no mmcv::NMS: write it with .*\(domain='mmcv'\), .*, operators=\[NMS\]\.$"),
        ("ai.onnx.contrib.Nothing(x)", (), r"has (no )?Nothing\. .* needs another domain, .*append"),
        ("com.microsoft.Nothing(x)", (), "com.microsoft:Nothing.* is not a registered function/op$"),
        ("Nothing(x)", (), r"ONNX has no Nothing: write it with ortops.operator\(domain=''\), .*operators=\[Nothing\]\.$"),
        ("Upsample(x)", (), "No Op registered for Upsample.*|Op registered for Upsample is deprecated.*$"),
    ],
)  # fmt: skip
def test_a_missing_operator_is_named_with_the_remedy(node: str, operators: Any, says: str) -> None:
    imports = '["" : 18, "t" : 1, "u" : 1, "mmcv" : 1, "ai.onnx.contrib" : 1, "com.microsoft" : 1]'
    text = f"<ir_version: 8, opset_import: {imports}> g (float[n] x, int64[n] i) => (float[m] y) {{ y = {node} }}"
    given = [ortops.operator(domain="t", name=name)(_ok) for name in operators]
    with pytest.raises(Exception, match=says):
        ortops.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), options(), [CPU], operators=given)


def test_an_operator_lives_as_long_as_options_and_sessions() -> None:
    def begin() -> tuple[Any, weakref.ref[Any]]:
        def f(x: F) -> F:
            return x + 1

        operator, chosen = made(f), options()
        ortops.register(chosen, operators=[operator])
        runner = onnxruntime.InferenceSession(parsed(ONE).SerializeToString(), chosen, [CPU])
        return runner._sess, weakref.ref(operator)  # noqa: SLF001 - the session in C++, without its options

    def clean() -> None:
        ortops.register(options())  # forgets the options that are gone
        gc.collect()

    raw, operator = begin()
    clean()
    assert operator() is not None
    assert raw.run(["y"], {"x": np.ones(1, np.float32)}, None)[0] == 2
    del raw
    clean()
    assert operator() is None


@numba.njit(nogil=True)  # type: ignore[untyped-decorator]
def _spin(x: F) -> F:
    k = int(x[2])
    for _ in range(2_000_000_000):
        if x[0] != 0:  # another thread, which needs the lock, has changed it
            break
        x[k] += 1  # which may be x[0], so that it is read each time
    return x.copy()


def test_a_function_of_numba_runs_without_the_lock() -> None:
    given, is_given = list[F](), threading.Event()

    def f(x: F) -> F:
        _spin(np.ones(3, np.float32))  # compiles
        given.append(x)
        is_given.set()
        return _spin(x)

    def end() -> None:
        is_given.wait()
        while given[0][1] == 0:  # until the loop runs
            pass
        given[0][0] = 5

    ending = threading.Thread(target=end)
    ending.start()
    assert answer(f, np.array([0, 0, 1], np.float32))[0] == 5
    ending.join()
    assert answer(_spin, np.full(3, 2, np.float32)).tolist() == [2, 2, 2]  # and as an operator itself


def run_in_a_process() -> Any:
    """Also in one that is spawned."""
    return session(ONE, same).run(None, {"x": np.ones(1, np.float32)})[0].tolist()


def test_spawned_children_run_operators_and_are_sent_them() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert [run_in_a_process(), pool.apply(run_in_a_process), pool.apply(same, ([1.0],))] == [[1.0]] * 3


def test_it_is_still_the_function() -> None:
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
def test_an_example_prints_what_it_should(name: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    importlib.import_module(f"examples.operators.{name}").main()
    assert capsys.readouterr().out == printed


@pytest.fixture
def users() -> Iterator[None]:
    """Forgets the operators that a test registers with onnx."""
    before = dict(CUSTOM)
    yield
    for domain, name in set(CUSTOM) - set(before):
        del CUSTOM[domain, name]
        onnx.defs.deregister_schema(name, 1, domain)


def _cube(x: NDArray[R], power: int = 3) -> NDArray[R]:
    return x**power


def _cube_grad(dy: NDArray[R], x: NDArray[R], power: int = 3) -> NDArray[R]:
    return dy * power * x ** (power - 1)


_BODY = """<opset_import: ["" : 18], domain: "t"> f <power> (x) => (y) {
    n = Constant <value_int: int = @power> ()
    y = Pow(x, n)
}"""


@pytest.mark.parametrize("way", ["gradient", "body"])
def test_a_gradient_is_that_of_the_operator_or_of_its_body(users: None, way: str) -> None:
    gradient = ortops.operator(domain="t.grad", name="g")(_cube_grad)
    body = onnx.parser.parse_function(_BODY)
    settings: Any = {"gradient": gradient} if way == "gradient" else {"body": body}
    operators = made(_cube, shapes=lambda x, power: x, **settings), gradient
    onnx_models.register_schemas(operators)
    onnx_models.register_schemas(operators)
    with pytest.raises(RuntimeError, match="another operator of this name is registered already"):
        onnx_models.register_schemas([made(_cube)])
    model = parsed("(double[n] x) => (double loss) { y = t.f(x) loss = ReduceSum <keepdims = 0> (y) }")
    onnx.checker.check_model(model, full_check=True, check_custom_domain=True)
    made_model = onnx_models.gradient(model, "loss", ["x"])
    runner = ortops.InferenceSession(made_model.SerializeToString(), options(), [CPU], operators=operators)
    x = np.array([1.0, 2.0])
    np.testing.assert_allclose(runner.run(["x_grad"], {"x": x})[0], 3 * x**2)
    assert any(node.domain == "t.grad" for node in made_model.graph.node) == (way == "gradient")
    if way == "body":
        portable = onnx_models.portable.attach(onnx_models.portable.attach(model))
        assert [function.name for function in portable.functions] == ["f"]
        assert session_of(portable).run(None, {"x": x})[0] == 9


def test_operators_can_be_given_to_one_call() -> None:
    gradient = ortops.operator(domain="t.grad", name="g")(_cube_grad)
    body = onnx.parser.parse_function(_BODY)
    cube = made(_cube, shapes=lambda x, power: x, gradient=gradient, body=body)
    operators = iter([cube, gradient])
    model = parsed("(double[n, 2] x, double[2, 1] w) => (double[n, 1] z) { y = t.f(x) z = MatMul(y, w) }")
    unknown = r"does not find it\. It knows nothing of node of 'y' \(f\) of the domain t: .* \(--operators\), or"
    with pytest.raises(
        ValueError,
        match=r"'y' \(f\) has no gradient rule \(domain t\): .* must be among operators= \(--operators\), or",
    ):
        onnx_models.vjp(model, ["z"], ["x"])
    stacked = parsed("(double[n, 2] x, double[1, 2, 1] w) => (double[1, n, 1] z) { y = t.f(x) z = MatMul(y, w) }")
    with pytest.raises(ValueError, match=f"the rank of 'y' must be known, .* {unknown}"):
        onnx_models.vjp(stacked, ["z"], ["w"])
    with pytest.raises(ValueError, match=f"outputs has 'y': its type must be known, .* {unknown}"):
        onnx_models.vjp(model, ["y"], ["x"])
    with pytest.raises(ValueError, match=f"output = 'y': its type must be known, .* {unknown}"):
        onnx_models.with_loss(model, "mean_squared_error", "y")
    weighted = onnx_models.with_loss(model, "mean_squared_error", "z", operators=[cube])
    made_model = onnx_models.gradient(weighted, "loss", ["x"], operators=operators)
    assert "t.grad" in {node.domain for node in made_model.graph.node}
    again = made(_cube, shapes=lambda x, power: x, body=body)  # as after the cell of a notebook has run again
    for made_by in (onnx_models.vjp, onnx_models.jvp, onnx_models.jacobian):
        assert len(made_by(model, ["z"], ["x"], operators=[again]).graph.output) == 2
    assert len(onnx_models.hessian(weighted, "loss", ["x"], operators=[again]).graph.output) == 4
    portable = onnx_models.portable.attach(model, operators=[cube])
    feeds = {"x": np.array([[1.0, 2.0]]), "w": np.ones((2, 1))}
    assert session_of(portable).run(None, feeds)[0] == 9
    assert not onnx.defs.has("f", 1, "t")
    assert ("t", "f") not in CUSTOM
    with pytest.raises(
        TypeError, match=r"operators has <function _cube .*: must be an operator made by ortops.operator"
    ):
        onnx_models.gradient(weighted, "loss", ["x"], operators=[_cube])  # type: ignore[list-item]


def session_of(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(model.SerializeToString(), options(), [CPU])


@pytest.mark.parametrize(
    ("gradient", "function", "says"),
    [
        (
            "t::none",
            None,
            r"has the gradient t::none: must be among operators= \(--operators\), or be given to onnx_mo",
        ),
        ("g", lambda dz, x: x, "the input dz of its gradient t::g must be one of x, y, dy"),
        (None, None, r"has no gradient rule \(domain t\): ortops.operator can give its operator a gradient or a body"),
    ],
)
def test_a_missing_gradient_is_named(users: None, gradient: Any, function: Any, says: str) -> None:
    operators = [made(_ok, gradient=gradient, shapes=lambda x: x)]
    if function is not None:
        names = function.__code__.co_varnames
        inputs = [ortops.Tensor(name, "float") for name in names]
        operators.append(
            ortops.operator(domain="t", name="g", inputs=inputs, outputs=[ortops.Tensor("dx", "float")])(function)
        )
    onnx_models.register_schemas(operators)
    model = parsed("(float[n] x) => (float loss) { y = t.f(x) loss = ReduceSum <keepdims = 0> (y) }")
    with pytest.raises(ValueError, match=says):
        onnx_models.gradient(model, "loss", ["x"])


@made
def kinds_of(
    a: NDArray[np.generic],
    b: NDArray[np.generic],
    c: NDArray[np.generic] | None = None,
    d: NDArray[np.generic] | None = None,
    e: NDArray[np.generic] | None = None,
    *f: NDArray[np.generic],
) -> NDArray[np.str_]:
    """The element type of each input."""
    return np.array([str(x if x is None else x.dtype) for x in (a, b, c, d, e, *f)], object)


def test_inputs_of_any_type_cost_one_kernel_and_arrive_as_they_are() -> None:
    assert len(list(custom_ops(kinds_of, kinds_of.bind))) == 1
    names = [kind for kind in ELEMENT_DTYPES if kind != "bfloat16"]
    for i in range(0, len(names), 4):
        kinds = [*names[i:], *names][:4]
        inputs = ", ".join(f"{kind}[n] x{k}" for k, kind in enumerate(kinds))
        runner = session(f"({inputs}) => (string[m] y) {{ y = t.f(x0, x1, , x2, , x3, x3) }}", kinds_of)
        dtypes = [str(ELEMENT_DTYPES[kind]) for kind in kinds]
        feeds: dict[str, Any] = {f"x{k}": np.array(["t"], object).astype(dtype) for k, dtype in enumerate(dtypes)
                                 if dtype == "object"}  # fmt: skip
        feeds |= {f"x{k}": np.ones(1, dtype) for k, dtype in enumerate(dtypes) if dtype != "object"}
        a, b, d, f = dtypes
        assert runner.run(None, feeds)[0].tolist() == [a, b, "None", d, "None", f, f]


def test_a_variable_of_several_inputs_has_one_type() -> None:
    def f(x: NDArray[A], n: NDArray[R] | None = None, y: NDArray[A] | None = None, *z: NDArray[R]) -> F: ...

    operator = made(f)
    graph = "({}[k] x, {}[k] n, {}[k] y, {}[k] z) => (float[m] r) {{ r = t.f(x, {}, {}, z, z) }}"
    assert session(graph.format("bool", "float", "bool", "float", "n", "y"), operator)
    assert session(graph.format("bool", "int8", "int8", "double", "", ""), operator)
    for types, says in (
        (("bool", "float", "int8", "float"), "t::f: y has type int8: must be bool, the type of x"),
        (("bool", "float", "bool", "double"), "t::f: z has type double: must be float, the type of n"),
        (("bool", "int64", "bool", "int64"), "t::f: n has type int64: must be float or double"),
    ):
        with pytest.raises(Exception, match=says):
            session(graph.format(*types, "n", "y"), operator)


def test_variables_of_outputs_have_the_types_of_their_inputs() -> None:
    def f(x: NDArray[A], y: NDArray[B], s: NDArray[np.generic], z: NDArray[A]) -> tuple[NDArray[B], NDArray[A]]:
        assert s.dtype == x.dtype
        return y, np.add(x, z)

    operator = made(f)
    assert len(list(custom_ops(operator, operator.bind))) == len(ELEMENT_DTYPES) ** 2
    graph = "({}[k] x, {}[k] y, {}[k] z) => ({}[k] p, {}[k] q) {{ p, q = t.f(x, y, x, z) }}"
    for x, y in itertools.product(("double", "uint8"), ("int16", "double")):
        feeds = {"x": np.ones(2, ELEMENT_DTYPES[x]), "y": np.zeros(3, ELEMENT_DTYPES[y])}
        p, q = session(graph.format(x, y, x, y, x), operator).run(None, {**feeds, "z": feeds["x"]})
        assert (p.dtype, q.dtype, q.tolist()) == (feeds["y"].dtype, feeds["x"].dtype, [2, 2])
    with pytest.raises(Exception, match=r"no kernel def matches node inputs for Op: f"):
        session(graph.format("double", "int8", "float", "int8", "double"), operator)


def test_too_many_combinations_are_an_error_that_tells_their_number() -> None:
    def three(a: NDArray[A], b: NDArray[B], c: NDArray[C]) -> tuple[NDArray[A], NDArray[B], NDArray[C]]: ...
    def four(
        a: NDArray[A], b: NDArray[B], c: NDArray[C], d: NDArray[D]
    ) -> tuple[NDArray[A], NDArray[B], NDArray[C], NDArray[D]]: ...

    assert made(three)
    with pytest.raises(
        ValueError,
        match=r"t::f: its outputs have 38,416 combinations of element types \(A, B, C, D\): must have at most 4,096",
    ):
        made(four)


@not_of_old
def test_types_of_outputs_are_inferred_beside_inputs_of_any_type() -> None:
    def f(x: NDArray[np.generic], y: NDArray[A]) -> NDArray[A]: ...

    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18, "t" : 1]>
        g (bool[n] x, double[n] y) => (double[k] r) { s = t.f(x, y)  r = Neg(s) }""")
    runner = ortops.InferenceSession(model.SerializeToString(), options(), [CPU], operators=[made(f)])
    assert runner.get_outputs()[0].type == "tensor(double)"
