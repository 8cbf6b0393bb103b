# SPDX-License-Identifier: MIT
"""Types and shapes of users' operators: type variables, inputs of any type, and functions of shapes."""

# mypy: disable-error-code="empty-body, no-any-return"

from __future__ import annotations

import itertools
import re
from typing import Annotated, Any, TypeVar

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import onnx_models
import ortops
from gradient_checks import IS_OLD, not_of_old
from onnx_models.tools.schema import schemas_of
from ortops.custom.kernel import custom_ops
from ortops.spec import ELEMENT_DTYPES
from sessions import ONE, made, model_of, session, stock_session

F = NDArray[np.float32]


A = TypeVar("A", bound=np.generic)


B = TypeVar("B", bound=np.generic)


C = TypeVar("C", bound=np.generic)


D = TypeVar("D", bound=np.generic)


R = TypeVar("R", np.float32, np.float64)
of_float: Any = {"inputs": [ortops.Tensor("x", "float")], "outputs": [ortops.Tensor("y", "float")]}


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


def test_inputs_of_any_type_need_one_kernel() -> None:
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


def test_type_variable_has_one_type_in_a_node() -> None:
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


def test_outputs_take_types_of_inputs() -> None:
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


def test_definition_refuses_too_many_combinations_of_types() -> None:
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
def test_session_infers_types_of_outputs() -> None:
    def f(x: NDArray[np.generic], y: NDArray[A]) -> NDArray[A]: ...

    model = model_of("(bool[n] x, double[n] y) => (double[k] r) { s = t.f(x, y)  r = Neg(s) }")
    assert session(model, made(f)).get_outputs()[0].type == "tensor(double)"


@pytest.mark.usefixtures("own_schemas")
def test_sessions_and_onnx_infer_shapes() -> None:
    def shapes(x: Any, axes: Any, name: str) -> Any:
        return (*x[1:], len(axes)) if name == "long" * 200 else None

    def f(x: NDArray[R], axes: list[int], name: str = "") -> NDArray[R]: ...

    def g(x: Annotated[NDArray[R], ("n", "m")]) -> tuple[Annotated[NDArray[np.int8], ("m", "k")], NDArray[R]]: ...

    operators = made(f, shapes=shapes), ortops.operator(domain="t")(g)
    model = model_of("""(double[a, 3] x) => (double[p, q] y, int8[r, s] z) {
        y = t.f <axes = [5, 6], name = "%s"> (x)
        z, w = t.g(x)
    }""" % ("long" * 200))  # fmt: skip
    if not IS_OLD:
        runner = session(model, *operators)
        assert [output.shape for output in runner.get_outputs()] == [[3, 2], [3, "s"]]
    onnx_models.register_schemas(operators)
    model.graph.ClearField("output")
    kinds = {value.name: value.type.tensor_type for value in onnx.shape_inference.infer_shapes(model).graph.value_info}
    assert [length.dim_value for length in kinds["y"].shape.dim] == [3, 2]
    assert [length.dim_value for length in kinds["z"].shape.dim] == [3, 0]
    assert (kinds["z"].elem_type, kinds["w"].elem_type) == (onnx.TensorProto.INT8, onnx.TensorProto.DOUBLE)
    assert not kinds["w"].HasField("shape")


@pytest.mark.parametrize(
    "graph", [ONE.replace("[n]", "[3]"), ONE, "(float[n] x) => (float[m] y) { z = t.f(x)  y = t.f(z) }"]
)
@pytest.mark.parametrize("kind", [session, stock_session])
def test_session_refuses_shapes_of_wrong_form(graph: str, kind: Any) -> None:
    for wrong, says in (
        (lambda x: 3, "3"),
        (lambda x: (-1,), r"\(-1,\)"),
        (lambda x: [1.5], r"\[1.5\]"),
        (lambda x: ("n", x), r"\('n', "),
        (_soon, "<coro"),
    ):
        with pytest.raises(Exception, match=f"t::f: shapes: it returned {says}.*: must return a tuple of lengths"):
            kind(graph, made(lambda x: x, **of_float, shapes=wrong))


async def _async(x: F) -> F: ...


def _soon(x: Any) -> Any:
    """A function that returns a coroutine, which nothing tells before a call."""
    result = _async(x)
    result.close()
    return result


def test_calls_raise_exceptions_of_shapes() -> None:
    def shapes(x: Any) -> Any:
        if x != (3,):
            raise LookupError("three")
        return x

    runner = session(ONE, made(lambda x: x, **of_float, shapes=shapes))
    assert runner.run(None, {"x": np.ones(3, np.float32)})[0].shape == (3,)
    with pytest.raises(Exception, match="t::f: shapes: LookupError: three"):
        runner.run(None, {"x": np.ones(2, np.float32)})


def test_shapes_may_fail_for_unknown_lengths() -> None:
    def f(x: F) -> F:
        return np.concatenate([x, x])

    x = np.arange(3, dtype=np.float32)
    assert session(ONE, made(f, shapes=lambda x: (2 * x[0],))).run(None, {"x": x})[0].shape == (6,)
    squared = made(f, shapes=lambda x: (x[0] ** 2,) if isinstance(x[0], int) else (None,))
    with pytest.raises(Exception, match=r"it returned shape \[6\] for y: must return \[9\]"):
        session(ONE, squared).run(None, {"x": x})


@pytest.mark.parametrize("lengths", [(None, "k"), (None, None), ("k", 7)])
def test_unknown_length_leaves_axis_open(lengths: Any) -> None:
    @ortops.operator(domain="t", shapes=lambda x: (x[0], lengths[0], 3, lengths[1]))
    def f(x: F) -> F:
        return np.ones((x.shape[0], 2, 3, 7), np.float32)

    model = model_of(
        "(float[4, 8] x) => (float y, float[4, 2, m, 7] z) { a = t.f(x) y = Relu(a) b = t.f(x) z = Relu(b) }"
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    runner = session(model, f)
    y, z = (output.shape for output in runner.get_outputs())
    names = [length for length, given in zip((y[1], y[3]), lengths, strict=True) if given is None]
    assert len(set(names)) == len(names)
    assert [None if length in names else length for length in y] == [4, lengths[0], 3, lengths[1]]
    assert z == [4, 2, 3, 7]
    assert [array.shape for array in runner.run(None, {"x": np.ones((4, 8), np.float32)})] == [(4, 2, 3, 7)] * 2
    with schemas_of([f]):
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.output[0].type.tensor_type.shape.dim
    named = [d.dim_value or re.sub("unk__.*", "", d.dim_param) or None for d in inferred]
    assert named == [4, lengths[0], 3, lengths[1]]
