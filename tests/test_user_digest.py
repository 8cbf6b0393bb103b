# SPDX-License-Identifier: MIT
"""The digests of users' functions: another one for each edit that changes the code, none where that cannot be told."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numba
import numpy as np
import pytest
from numba.core import imputils
from numba.core.typing import templates
from numpy.typing import NDArray

import ortops
from ortops.custom.stored_code import Digest
from processes import python

HEAD = """
import collections, ctypes, enum, math, numba, numba.extending as extending, numpy as np
from numba import njit
"""
F = "\ndef f(x, y):\n    y[0] = helper(x[0])"


def digest_of(source: str) -> Digest:
    """The digest of the function `f` of a module."""
    scope: dict[str, Any] = {"__name__": "mine"}
    exec(HEAD + source, scope)  # noqa: S102 - a module of a user
    return Digest(scope["f"])


EDITS: dict[str, tuple[str, str, str]] = {
    "signature": ("@njit('i8(f8)')\ndef helper(v): return v * 1.5" + F, "i8(f8)", "f8(f8)"),
    "locals": (
        "@njit(locals={'t': numba.int32})\ndef helper(v):\n    t = v\n    return t" + F,
        "numba.int32",
        "numba.int64",
    ),
    "fastmath": ("@njit(fastmath=False)\ndef helper(v): return v" + F, "False", "{'nnan', 'ninf'}"),
    "inline": ("@njit(inline='never')\ndef helper(v): return v" + F, "never", "always"),
    "default": ("@njit\ndef helper(v, k=1): return v * k" + F, "=1", "=2"),
    "function of a function": (
        "@njit\ndef inner(v): return v\n@njit\ndef helper(v): return inner(v)" + F,
        "return v\n",
        "return -v\n",
    ),
    "which function a name means": (
        "@njit\ndef a(v): return v\n@njit\ndef b(v): return -v\nc = a\ndef f(x, y): y[0] = a(x[0]) + b(x[0]) + c(x[0])",
        "c = a",
        "c = b",
    ),
    "value that was compiled": ("k = 1\n@njit\ndef helper(v): return k\nhelper(1.0)\nk = 2" + F, "helper(1.0)", ""),
    "array": ("k = np.ones(2)\ndef f(x, y): y[0] = k[0]", "np.ones(2)", "np.zeros(2)"),
    "layout of an array": (
        "k = np.ones((2, 2))\ndef f(x, y): y[0] = k[0, 0]",
        "ones((2, 2))",
        "ones((2, 2), order='F')",
    ),
    "tuple in a tuple": ("k = (1, (2, 3))\ndef f(x, y): y[0] = k[0]", "(1, (2, 3))", "((1, 2), 3)"),
    "function put into NumPy": (
        "@njit\ndef g(v): return v\nvars(np)['g'] = g\ndef f(x, y): y[0] = np.g(x[0])",
        "return v",
        "return -v",
    ),
}


@pytest.fixture(autouse=True)
def numpy_as_it_was() -> Iterator[None]:
    """Take from NumPy what a test puts into it."""
    yield
    vars(np).pop("g", None)


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_changes_the_digest(edit: str) -> None:
    source, old, new = EDITS[edit]
    assert old in source
    before, again, after = digest_of(source), digest_of(source), digest_of(source.replace(old, new, 1))
    assert not before.unknown
    assert not after.unknown
    assert before.value == again.value
    assert before.value != after.value


def test_values_around_a_function_count_with_their_types() -> None:
    source = "def make(k):\n    def f(x, y): y[0] = x[0] * k\n    return f\nf = make(VALUE)"
    values = [
        "1",
        "1.0",
        "0.0",
        "-0.0",
        "True",
        "None",
        "np.float32(1)",
        "np.ones(1)",
        "np.zeros(1)",
        "'1'",
        "(1,)",
        "[1]",
        "()",
    ]
    values += ["np.int8(1)", "np.uint8(1)"]
    assert len({digest_of(source.replace("VALUE", value)).value for value in values} - {""}) == len(values)


UNKNOWN: dict[str, tuple[str, str]] = {
    "vectorize": ("@numba.vectorize\ndef helper(v): return v" + F, "helper is a numba.np.ufunc.dufunc.DUFunc"),
    "ctypes": ("helper = ctypes.CDLL(None).floor" + F, "helper is a ctypes."),
    "enum": ("class E(enum.Enum):\n    A = 1\ndef f(x, y): y[0] = E.A.value", "E is a enum.EnumType"),
    "named tuple": ("k = collections.namedtuple('K', 'a')(1)\ndef f(x, y): y[0] = k.a", "k is a mine.K"),
    "object in a tuple": ("k = (1, object())\ndef f(x, y): y[0] = k[0]", "k is a builtins.object"),
    "passes of one's own": (
        "class C(numba.core.compiler.Compiler): ...\n@njit(pipeline_class=C)\ndef helper(v): return v" + F,
        "the options of a function is a builtins.type",
    ),
    "variable without a value": (
        "def make():\n    def f(x, y): y[0] = k\n    globals()['f'] = f\n    return\n    k = 1\nmake()",
        "k has no value yet",
    ),
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_what_a_digest_cannot_cover_has_none_and_says_why(kind: str) -> None:
    source, why = UNKNOWN[kind]
    digest = digest_of(source)
    assert digest.value == ""
    assert why in digest.unknown


EXTENSIONS = {
    "overload": "def g(v): ...\n@extending.overload(g)\ndef _(v): return lambda v: v",
    "overload of a function of NumPy": "@extending.overload(np.trapezoid)\ndef _(v): return lambda v: v",
    "overload_method": "@extending.overload_method(numba.types.Float, 'g')\ndef _(v): return lambda v: v",
    "overload_attribute": "@extending.overload_attribute(numba.types.Float, 'g')\ndef _(v): return lambda v: 2",
    "register_jitable": "@extending.register_jitable\ndef helper(v): return v",
    "intrinsic": "@extending.intrinsic\ndef helper(c, v): ...",
    "type_callable": "@extending.type_callable(ctypes.sizeof)\ndef _(c): ...",
    "lower_builtin": "@extending.lower_builtin(math.sin, numba.int8)\ndef _(*a): ...",
    "lower_cast": "@extending.lower_cast(numba.int8, numba.int16)\ndef _(*a): ...",
    "template": "class T(numba.core.typing.templates.AttributeTemplate): key = 1\nextending.infer_getattr(T)",
}


def print_extended() -> None:
    """Print why a function has no digest after each extension, in a process where numba has compiled nothing yet."""
    registries = (templates.builtin_registry, imputils.builtin_registry)
    lists = [entries for registry in registries for entries in vars(registry).values() if isinstance(entries, list)]
    sizes = list(map(len, lists))
    for source in EXTENSIONS.values():
        print(digest_of(source + "\ndef f(x, y): y[0] = 1").unknown)
        for entries, size in zip(lists, sizes, strict=True):
            del entries[size:]
    print(bool(digest_of("def f(x, y): y[0] = 1").value))


def test_where_other_code_extends_numba_no_function_has_a_digest() -> None:
    printed = python("import test_user_digest\ntest_user_digest.print_extended()", cwd=Path(__file__).parent)
    assert printed.splitlines() == ["mine extends numba"] * len(EXTENSIONS) + ["True"]


def test_options_that_a_process_or_a_file_gives_numba_change_the_digest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = "def f(x, y): y[0] = 1"
    before = digest_of(source).value
    monkeypatch.setattr(numba.config, "BOUNDSCHECK", 1)
    of_process = digest_of(source).value
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert digest_of(source).value == before
    Path(".numba_config.yaml").write_text("opt: 0\n")
    assert len({before, of_process, digest_of(source).value}) == 3


def test_a_digest_is_the_same_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    code = """
import numba, test_user_digest
numba.njit(lambda v: v)(1)
for source, _, _ in test_user_digest.EDITS.values():
    print(test_user_digest.digest_of(source).value)
"""
    assert python(code).split() == [digest_of(source).value for source, _, _ in EDITS.values()]


SHARED = """
@njit
def helper(v): return v * 1.5
def f(x, y): y[0] = helper(x[0])
def g(x, y): y[0] = -helper(x[0])
"""


def test_what_is_compiled_for_one_function_changes_no_digest_of_another() -> None:
    scope: dict[str, Any] = {"__name__": "mine"}
    exec(HEAD + SHARED, scope)  # noqa: S102
    before, of_compiled = Digest(scope["g"]), Digest(scope["f"])
    scope["helper"](1.0)
    of_compiled.note_compiled()
    assert Digest(scope["g"]).value == before.value
    scope["helper"](1)
    assert Digest(scope["g"]).value != before.value


N = Annotated[NDArray[np.float64], ("n",)]

OTHER = "from numba import njit\n@njit\ndef inner(v): return v * 2.0\n"
HELPERS = """
import numba.extending, numpy as np, other
from test_user_digest import N
@numba.njit(cache=True)
def helper(v): return other.inner(v)
def stub(v): ...
def f(x: N, y: N) -> None: y[0] = helper(x[0])
def g(x: N, y: N) -> None: y[0] = stub(x[0])
"""
OVERLOAD = "\n@numba.extending.overload(stub)\ndef _(v): return lambda v: v * 2.0"


def print_edited() -> None:
    """Print what operators of two modules in this folder give for 1.0, each time one of the modules is edited."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)

    def show(name: str, other: str, helpers: str) -> None:
        for module, text in (("other", other), ("helpers", helpers)):
            Path(f"{module}.py").write_text(text)
            os.utime(f"{module}.py", (1, 1))  # as far as numba's own cache can tell, nothing was edited
            sys.modules.pop(module, None)
        function = getattr(importlib.import_module("helpers"), name)
        print(ortops.operator(domain="t", compiled=True, outputs=["y"])(function)(np.ones(1)).item())

    sys.path.insert(0, "")
    for factor in ("2.0", "3.0", "2.0"):
        show("f", OTHER.replace("2.0", factor), HELPERS)
    for factor in ("2.0", "3.0"):
        show("g", OTHER, HELPERS + OVERLOAD.replace("2.0", factor))


@pytest.mark.slow
def test_edits_of_functions_and_overloads_in_any_module_are_never_stale(tmp_path: Path) -> None:
    folder = str(Path(__file__).parent)
    printed = python(
        "import test_user_digest\ntest_user_digest.print_edited()",
        cwd=tmp_path,
        NUMBA_CACHE_DIR=str(tmp_path / "cache"),
        PYTHONPATH=folder,
        PYTHONDONTWRITEBYTECODE="1",
    )
    why = "t::g is compiled in each process: helpers extends numba"
    assert printed.splitlines() == ["2.0", "3.0", "2.0", why, "2.0", why, "3.0"]
