"""Element types of operators of users: any type, type variables, and what a session costs."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

import itertools
from typing import Any, TypeVar

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import ortops
from conformance.backends.session import CPU, options
from gradient_nodes import not_of_old
from ortops.engine.direct import custom_ops
from ortops.spec import ELEMENT_DTYPES

A = TypeVar("A", bound=np.generic)
B = TypeVar("B", bound=np.generic)
C = TypeVar("C", bound=np.generic)
D = TypeVar("D", bound=np.generic)
R = TypeVar("R", np.float32, np.float64)
F = NDArray[np.float32]


def made(function: Any) -> ortops.CustomOperator:
    return ortops.operator(domain="t", name="f")(function)


def session(graph: str, operator: ortops.CustomOperator) -> ortops.InferenceSession:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18, "t" : 1]> g {graph}')
    return ortops.InferenceSession(model.SerializeToString(), options(), [CPU], operators=[operator])


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
        (("bool", "float", "int8", "float"), "t::f: y has type int8: must be bool, that of x"),
        (("bool", "float", "bool", "double"), "t::f: z has type double: must be float, that of n"),
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
