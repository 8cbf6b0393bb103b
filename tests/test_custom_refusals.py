# SPDX-License-Identifier: MIT
"""Definitions of operators that `ortops.operator` refuses, each with the text of its error."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import ortops
from sessions import made

F = NDArray[np.float32]
N = Annotated[F, ("n",)]
R = TypeVar("R", np.float32, np.float64)
M0, M1, M2, M3 = (Annotated[F, tuple(f"a{5 * i + k}" for k in range(5))] for i in range(4))

OK = "def f(x: F) -> F: ..."
COMPILED: dict[str, Any] = {"compiled": True, "outputs": ["y"]}

ROWS: list[tuple[str, dict[str, Any], str]] = [
    (
        "def f(x: F) -> F: ...",
        {"gradient": print},
        "t::f: gradient = <built-in function print>: must be made by ortops.op",
    ),
    (
        "def f(x: F) -> F: ...",
        {"name": "Add"},
        "t::Add: must have another name, or 2 inputs: ONNX Runtime takes it for",
    ),
    ("def f(x: F, y: F, z: F | None = None) -> F: ...", {"name": "Where"}, "must have another name, or 3 inputs"),
    ("async def f(x: F) -> F: ...", {}, "t::f is async: must be a function that returns its result"),
    ("class f:\n    async def __call__(self, x: F) -> F: ...", {}, "t::f is async: must be a function that returns"),
    ("async def f(x: F) -> Any: yield x", {}, "t::f is an asynchronous generator: must"),
    ("class f: ...", {}, "t::f: the class f has no __call__: must have one that computes"),
    (
        "class f:\n    def __init__(self, path: str): ...\n    def __call__(self, x: F) -> F: ...",
        {},
        "t::f: the class f must be made without arguments: missing a required argument: 'path'",
    ),
    ("f = 3", {}, "3: must be a function, or a class"),
    # Shapes.
    (OK, {"shapes": "async def shapes(x): ..."}, "t::f: shapes is async: must"),
    (OK, {"shapes": "def shapes(x): yield x"}, "t::f: shapes is a generator: must"),
    (OK, {"shapes": "def shapes(x, y): ..."}, "t::f: shapes must take x by name: missing a required argument: 'y'"),
    (OK, {"shapes": lambda: ()}, "t::f: shapes must take x by name: got an unexpected keyword argument 'x'"),
    # Parameters and results.
    ("def f(x): ...", {}, "t::f: parameter x has no annotation: must be an input, "),
    ("def f(x: F): ...", {}, "its result has no annotation: must be "),
    ("def f(x: F, flag: bool = True) -> F: ...", {}, "parameter flag has the annotation <class 'bool'>"),
    ("def f(x: F, **rest: int) -> F: ...", {}, "parameter rest takes any keyword"),
    (
        "def f(x: NDArray[np.complex64]) -> F: ...",
        {},
        "^t::f: parameter x is an array of complex64: must be of float16 or bfloat16 or float or ",
    ),
    (
        "def f(x: F) -> NDArray[np.complex128]: ...",
        {},
        "^t::f: its result is an array of complex128: must be of float16 or ",
    ),
    ("def f(x: F = np.zeros(1, np.float32)) -> F: ...", {}, "an input must have no default, or None"),
    (
        "def f(x: F) -> NDArray[np.integer]: ...",
        {},
        "its result's annotation, .*, leaves the element type open: must be of a single type",
    ),
    ("def f(x: F) -> NDArray[R]: ...", {}, "no input has the type R: must have one"),
    ("def f(x: F) -> tuple[list[F], F]: ...", {}, "y0 is variadic: only the last output can be"),
    ("def f(x: Missing) -> F: ...", {}, "its function's annotations cannot be read: name 'Missing' is not defined"),
    # Settings.
    (OK, {"domain": "a:b"}, "domain = 'a:b': must be a name of your own"),
    (OK, {"domain": "ai.onnx"}, "domain = 'ai.onnx': .* must be '' for nodes without a domain"),
    *((OK, {"domain": "", "name": name}, f"ONNX has an operator {name}") for name in ("Relu", "Upsample", "RoiAlign")),
    (OK, {"name": "a b"}, "name = 'a b': must be a Python identifier"),
    (OK, {"inputs": [ortops.Tensor("x", "float")]}, "outputs must be given where inputs are"),
    (OK, {"outputs": [ortops.Tensor("y", "U")]}, "y has type 'U', which is not one of"),
    (OK, {"body": onnx.FunctionProto(name="g")}, "body is of ::g: must be of t::f"),
    (OK, {"shapes": len, "outputs": [ortops.Tensor("y", "float", variadic=True)]}, "shapes: must not"),
    (OK, {"parallel": "n"}, "parallel = 'n': must not be given to an operator that is not compiled"),
    # Compiled operators.
    *(
        (f"def f({parameters}) -> {result}: ...", COMPILED, says)
        for parameters, result, says in (
            ("x: F, y: N", "None", "t::f: x must be annotated by its shape"),
            ('x: Annotated[NDArray[np.str_], ("n",)], y: N', "None", "x may be string: numba has no arrays of this"),
            ('x: Annotated[NDArray[np.float16], ("n",)], y: N', "None", "x may be float16"),
            ("y: N, *x: N", "None", "x is variadic"),
            ('x: N, y: Annotated[F, ("k",)]', "None", "no input or attribute gives the axis 'k' of y"),
            ("x: N, y: N, name: str", "None", "name: the attributes of a compiled operator must be"),
            ("x: N, y: N, axis: int | None = None", "None", "axis: the attributes of a compiled operator must be"),
            ("x: N, y: N", "N", "its result is .*must be None, .* or int"),
            ("x: N, y: N", "tuple[int, float]", "its result is .*must be None, .* or int"),
            ("x: N", "None", "the output 'y' is no array"),
            (
                "x: N, y: N | None = None",
                "None",
                "t::f: the output 'y' has the default None: must have none, since each",
            ),
            (
                "x: M0, u: M1, v: M2, w: M3, y: N",
                "None",
                "t::f: w is where the operator's axes have 20 names: a compiled operator must have at most 16",
            ),
        )
    ),
    ("class f:\n    def __call__(self, x: N, y: N) -> None: ...", COMPILED, "must be a Python function"),
    *(
        ("def f(x: N, y: N) -> None: ...", {**COMPILED, **settings}, says)
        for settings, says in (
            ({"outputs": None}, "outputs = None: must be the names"),
            ({"outputs": "y"}, "outputs = 'y': must be the names"),
            ({"compiled": {"cache": True}}, r"compiled has \['cache'\]: must be of"),
            ({"inputs": []}, "inputs must not be given"),
            ({"shapes": print}, "must be a Python function to be compiled"),
            ({"shapes": lambda z: z}, "shapes takes z: must take inputs and attr"),
            ({"outputs": ["y", "y"]}, "must not repeat a name"),
            ({"parallel": "m"}, "parallel = 'm': must be the first axis of all outputs"),
        )
    ),
]


def defined(source: str, name: str) -> Any:
    """What a source defines under a name."""
    names = dict(globals())
    exec(source, names)  # noqa: S102 - a row of this file
    return names[name]


@pytest.mark.parametrize(("source", "settings", "says"), ROWS)
def test_operator_refuses_definition(source: str, settings: dict[str, Any], says: str) -> None:
    if isinstance(settings.get("shapes"), str):
        settings = {**settings, "shapes": defined(settings["shapes"], "shapes")}
    with pytest.raises((TypeError, ValueError), match=says):
        made(defined(source, "f"), **settings)
