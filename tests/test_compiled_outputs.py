# SPDX-License-Identifier: MIT
"""Outputs that compiled operators leave as they are: refused where the code shows it, else zeros."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import ortops
from conformance.backends.session import CPU, options

V = Annotated[NDArray[np.float32], ("n",)]
K = Annotated[NDArray[np.float32], ("k",)]
S = Annotated[NDArray[np.float32], ()]


def operator_of(body: str, folder: Path, result: str = "None", shape: str = "V") -> ortops.CustomOperator:
    """A compiled operator of statements, from a file as users write it."""
    lines = "\n    ".join(body.split("\n"))
    source = f"def f(x: V, y: {shape}) -> {result}:\n    {lines}\n"
    file = folder / "function.py"
    file.write_text(source)
    scope: dict[str, Any] = {"V": V, "S": S, "K": K, "np": np}
    exec(compile(source, str(file), "exec", dont_inherit=True), scope)  # noqa: S102 - rows of the tables below
    settings: Any = {"shapes": lambda x: x} if result == "int" else {}
    return ortops.operator(domain="t", compiled=True, outputs=["y"], **settings)(scope["f"])


REBINDING = [
    "y = x * 2",
    "z, *y = x",
    "for y in x:\n    pass",
    "with x as y:\n    pass",
    "if (y := x)[0]:\n    pass",
    "z = [(y := v) for v in x]",
    "del y",
    "from math import pi as y",
    "try:\n    pass\nexcept ValueError as y:\n    pass",
    "match x:\n    case float() as y:\n        pass",
    "class y:\n    pass",
    "def g():\n    nonlocal y\n    y = x",
    "y = y + 1",
    "y[:] = x\ny = x",
]


@pytest.mark.parametrize("body", REBINDING)
def test_giving_the_output_s_name_to_something_else_is_refused(body: str, tmp_path: Path) -> None:
    says = r"t::f: line \d+ of .*function.py rebinds the output's name 'y': must write into .* y\[:\] = "
    with pytest.raises(ValueError, match=says) as error:
        operator_of(body, tmp_path)
    line = int(str(error.value).split("line ")[1].split()[0])
    assert "y" in (tmp_path / "function.py").read_text().split("\n")[line - 1]


@pytest.mark.parametrize(("result", "shape"), [("None", "V"), ("int", "K")])
def test_an_output_that_nothing_uses_is_refused(result: str, shape: str, tmp_path: Path) -> None:
    says = (
        "t::f: its function, which begins in line 1 of .*function.py, never writes to the output 'y': must write into"
    )
    with pytest.raises(ValueError, match=says):
        operator_of("z = x[0]\nreturn 1", tmp_path, result, shape)


def test_the_remedy_for_a_number_has_no_slice(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"as y\[\(\)\] = \.\.\. does"):
        operator_of("y = x[0]", tmp_path, shape="S")


WRITING = [
    "y += x",
    "z, y[0] = x, 1",
    "for y[0] in x:\n    pass",
    "(v := y)[:] = 1",
    "np.add(x, x, out=y)",
    "def g():\n    y[0] = 1\ng()",
    "y[0] = len([y for y in x])",  # which has a variable of its own
    "y[0] = (lambda y: y)(x[0])",
]


@pytest.mark.parametrize("body", WRITING)
def test_whatever_may_write_to_an_output_is_allowed(body: str, tmp_path: Path) -> None:
    operator_of(body, tmp_path)


@ortops.operator(domain="t", compiled=True, outputs=["y", "z"])
def some(x: V, y: V, z: Annotated[NDArray[np.int8], ("n", 3)] | None) -> None:
    """Write nothing if the first input is negative."""
    if x[0] >= 0:
        y += 1
        z[-1, 1] += 2  # type: ignore[index]


@ortops.operator(domain="t", compiled=True, outputs=["y"], parallel="n")
def parted(x: V, y: V) -> None:
    """Write to the last element of each part."""
    y[-1] += x.size


@ortops.operator(domain="t", compiled=True, outputs=["y"])
def number(x: V, y: S) -> None:
    """Write nothing if the first input is not negative."""
    if x[0] < 0:
        y[()] = 1


@ortops.operator(domain="t", compiled=True, outputs=["y"], shapes=lambda x: x)
def counted(x: V, y: K) -> int:
    """Return a length, and write to every other element."""
    for i in range(0, x.size, 2):
        y[i] += 1
    return x.size - 1


@ortops.operator(domain="t", compiled=True, outputs=["y"])
def whole(x: V, y: V) -> None:
    """Assign to all elements before they are read."""
    n = y.shape[0]
    y[:] = x[:n]
    y[0] += 1


@ortops.operator(domain="t", compiled=True, outputs=["y"], parallel="n")
def each(x: V, y: V) -> None:
    """Assign to each element, of each part; zeros have no inverse."""
    n = len(x)
    for i in range(n):
        y[i] = 1 / x[i]


OPERATORS: Any = [some, parted, number, counted, whole, each]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library of the operators."""
    file = str(tmp_path_factory.mktemp("library") / "outputs.so")
    ortops.build_library(file, operators=OPERATORS)
    return file


N = 6000


@pytest.mark.parametrize("way", ["session", "library", "arrays"])
def test_what_an_operator_does_not_write_is_zero(way: str, request: pytest.FixtureRequest) -> None:
    graph = """(float[n] x) => (float[n] a, int8[n, m] b, float[n] c, int8[n, m] d, float[n] e, float f, float[k] g,
                                float[n] h, float[n] i) {
        p = Exp(x) q = Mul(p, p) r = Sqrt(q) s = Neg(r) t = Neg(s)
        a, b = t.some(s) c, d = t.some(t) e = t.parted(s) f = t.number(t) g = t.counted(s) h = t.whole(s) i = t.each(x)
    }"""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18, "t" : 1]> g {graph}').SerializeToString()
    x, own = np.ones(N, np.float32), options()
    if way == "session":
        session = ortops.InferenceSession(model, own, [CPU], operators=OPERATORS)
    elif way == "library":
        own.register_custom_ops_library(request.getfixturevalue("library"))
        session = onnxruntime.InferenceSession(model, own, [CPU])
    for _ in range(3):
        if way == "arrays":
            results: Any = (*some(-x), *some(x), parted(x), number(x), counted(x), whole(-np.exp(x)), each(x))
        else:
            results = session.run(None, {"x": x})
        a, b, c, d, counts, f, g, h, i = (array.copy() for array in results)
        for array in results:
            array[...] = -1  # which the next call may find in its memory
        del results
        assert not a.any()
        assert not b.any()
        assert (c == 1).all()
        assert np.argwhere(d).tolist() == [[N - 1, 1]]
        assert np.flatnonzero(counts).tolist() == (np.cumsum(counts[counts > 0]) - 1).tolist()
        assert np.count_nonzero(counts) > 1
        assert f == 0
        assert g.tolist() == [1, 0] * (N // 2 - 1) + [1]
        np.testing.assert_allclose(h, [1 - math.e] + [-math.e] * (N - 1), rtol=1e-6)
        assert (i == 1).all()
    x[N // 2] = 0  # in one of the parts, so that another may be whole
    with pytest.raises(Exception, match="division by zero"):
        each(x) if way == "arrays" else session.run(None, {"x": x})
