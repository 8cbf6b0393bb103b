# SPDX-License-Identifier: MIT
"""What kernels need of numba's private parts (docs/design.md): without it they compile slowly, or not as asked."""

from __future__ import annotations

from typing import Any

import pytest
from numba import types

from ortops.compiler.compile import bitcode, compiled, inline, noinline
from ortops.compiler.machine_code import Source
from ortops.native.kernels import roi_tables


@compiled
def add(a: int, b: int) -> int:
    """Called with constants and variables."""
    return a + b


@noinline
def apart(a: int) -> int:
    """Stays a call."""
    return a + 1


@inline
def within(a: int) -> int:
    """Becomes part of its caller."""
    return a + 1


@compiled
def caller(a: int) -> int:
    """Calls all of them."""
    total: int = add(a, 1) + add(2, a) + add(3, 4) + apart(a) + within(a)
    return total


@pytest.fixture(scope="module", autouse=True)
def _compile() -> None:
    dispatcher(caller).compile((types.intp,))


def dispatcher(function: Any) -> Any:
    """What numba makes of a function, which type checkers take for the function itself."""
    return function


def module(function: Any) -> str:
    (overload,) = function.overloads.values()
    return str(overload.library._final_module)  # noqa: SLF001


def test_numba_compiles_a_function_once_for_constants_and_variables() -> None:
    assert list(dispatcher(add).overloads) == [(types.intp, types.intp)]


def test_numba_leaves_functions_to_be_optimised_with_their_kernel() -> None:
    assert " alloca " in module(caller)
    assert module(caller).count("define ") == 1


@pytest.mark.parametrize(("dispatcher", "attribute"), [(add, None), (apart, "noinline"), (within, "alwaysinline")])
def test_llvm_is_told_what_to_inline(dispatcher: Any, attribute: str | None) -> None:
    found = {word for word in ("noinline", "alwaysinline") if word in module(dispatcher)}
    assert found == ({attribute} if attribute else set())


def test_functions_have_no_wrappers_for_python() -> None:
    assert "Py" not in module(add)


def test_llvm_unrolls_no_loops_of_a_small_function(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source("native.kernels.roi_tables", "share", "")
    code = bitcode(source)
    monkeypatch.setitem(dispatcher(roi_tables.share).py_func.__dict__, "optimizes_for_size", False)
    assert len(code) < 0.75 * len(bitcode(source))
