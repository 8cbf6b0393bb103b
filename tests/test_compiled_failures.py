# SPDX-License-Identifier: MIT
"""Operators of users that numba compiles: exceptions, memory after them, and functions that numba cannot compile."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from ortops.custom.decorator import OperatorError
from processes import python
from sessions import ONE, compiled, session

N = Annotated[NDArray[np.float32], ("n",)]
N64 = Annotated[NDArray[np.float64], ("n",)]
Int = Annotated[NDArray[np.int64], ("n",)]


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
    runner = session(f"(int64[n] x) => (int64[m] y) {{ y = t.f <how = {how}> (x) }}", failing)
    with pytest.raises(Exception, match=f"t::f: {error.__name__}") as found:
        runner.run(None, {"x": x})
    assert message in str(found.value)
    with pytest.raises(error) as raised:
        failing(x, how)
    assert message in str(raised.value)
    assert failing(x, 0).tolist() == x.tolist()


def putting() -> Any:
    """A new function of numba, without a check of its indices."""

    @numba.njit  # type: ignore[untyped-decorator]
    def put(y: Any, i: int, depth: int) -> int:
        if depth:
            return int(put(y, i, depth - 1))
        y[i] = 7
        return i

    return put


@pytest.mark.parametrize("is_called", [False, True])
@pytest.mark.parametrize("depth", [0, 2])
def test_indices_in_functions_that_an_operator_calls_are_checked(depth: int, is_called: bool) -> None:
    put = putting()
    if is_called:
        put(np.zeros(2, np.int64), np.int64(1), np.int64(depth))

    @compiled()
    def calling(x: Int, y: Int) -> None:
        y[:] = 0
        y[0] = put(y, x[0], x[1])

    assert calling(np.array([1, depth])).tolist() == [1, 7]
    for wrong in (2, 10**9, -3):
        with pytest.raises(IndexError, match="index is out of bounds"):
            calling(np.array([wrong, depth]))
    assert put(np.zeros(2, np.int64), np.int64(1), np.int64(depth)) == 1


def test_a_function_that_says_so_is_not_checked() -> None:
    @numba.njit(boundscheck=False)  # type: ignore[untyped-decorator]
    def first(x: Any) -> int:
        return int(x[0])

    @numba.njit  # type: ignore[untyped-decorator]
    def last(x: Any) -> int:
        return int(x[-1])

    @compiled()
    def checked(x: Int, y: Int) -> None:
        y[:] = first(x)

    @compiled(compiled={"boundscheck": False})
    def unchecked(x: Int, y: Int) -> None:
        y[:] = last(x)

    for operator in (checked, unchecked):
        assert operator(np.array([3])).tolist() == [3]
    assert (first.targetoptions["boundscheck"], last.targetoptions.get("boundscheck")) == (False, None)


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


def test_exception_behind_try_block_is_raised() -> None:
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
from sessions import session
from test_compiled_failures import holding, holding_in_parts

graph = "(int64[n] x) => (int64[m] y) { y = t.f"
ways = [(f"{graph} <how = {how}> (x) }}", holding, how) for how in range(7)] + [(f"{graph}(x) }}", holding_in_parts, 1)]
sessions = [(session(graph, operator), how) for graph, operator, how in ways]
x, parts = np.zeros(2, np.int64), np.full(20_000, 10**9)
for call in (lambda: holding(x, how=0), lambda: holding_in_parts(x)):
    call()
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

for runner, how in sessions:
    given = {"x": parts if runner is sessions[-1][0] else x + 10**9 * (how == 1)}
    outcomes(lambda: runner.run(None, given)[0])
outcomes(lambda: holding(x, how=3))
outcomes(lambda: holding_in_parts(parts))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="others do not limit memory")
def test_failed_call_releases_memory() -> None:
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
def test_error_tells_what_numba_cannot_compile(function: Callable[..., Any], says: str) -> None:
    operator = compiled()(function)
    with pytest.raises(Exception, match="t::f") as found:
        session(ONE, operator)
    assert function.__name__ in str(found.value)
    with pytest.raises(OperatorError, match=f"(?s)^t::f: .*(?:{says})"):
        operator(np.zeros(1, np.float32))
