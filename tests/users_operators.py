# SPDX-License-Identifier: MIT
"""Compiled operators of users, which tests put into libraries."""

from __future__ import annotations

import ctypes
import math
import sys
from typing import Annotated, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

import ortops

R = TypeVar("R", np.float32, np.float64)
Doubles = Annotated[NDArray[np.float64], ("n",)]
Ints = Annotated[NDArray[np.int64], ("n",)]


@ortops.operator(domain="mine", compiled=True, outputs=["y"])
def LeakyBias(  # noqa: N802
    x: Annotated[NDArray[np.float32], ("n", "m")],
    bias: Annotated[NDArray[np.float32], ("m",)],
    y: Annotated[NDArray[np.float32], ("n", "m")],
    slope: float = 0.1,
) -> None:
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            v = x[i, j] + bias[j]
            y[i, j] = v if v > 0 else slope * v


@ortops.operator(domain="mine", compiled=True, outputs=["y", "counts"])
def Weighted(  # noqa: N802
    x: Annotated[NDArray[R], ("n", "m")],
    y: Annotated[NDArray[R], ("n",)],
    counts: Annotated[NDArray[np.int64], (2,)],
    weights: list[float],
    scale: Annotated[NDArray[R], ("m",)] | None = None,
    mode: Literal["sum", "last"] = "sum",
    steps: list[int] = [3, 4],  # noqa: B006
) -> None:
    """Arrays, lists and functions of the C library; attributes of all kinds, an optional input."""
    kept, ends = np.empty((x.shape[0], x.shape[1]), x.dtype), []
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            kept[i, j] = math.exp(x[i, j]) + math.atan2(x[i, j], 2.0)
            if scale is not None:
                kept[i, j] *= scale[j]
        row = np.sort(kept[i])
        if mode == "last":
            ends.append(row[-1])
        else:
            ends.append(row.sum())
    for i in range(len(ends)):
        y[i] = ends[i] * weights[-1]
    counts[0] = len(weights)
    counts[1] = steps[-1] if len(steps) else -1


@ortops.operator(domain="", compiled=True, outputs=["y", "z"])
def ExtremesOf(  # noqa: N802
    x: Doubles,
    y: Ints,
    z: Doubles,
    value: int = -(2**63),
    values: list[int] = [2**63 - 1],  # noqa: B006
    level: float = math.inf,
) -> None:
    """Attributes as they are, in turn; nodes have no domain."""
    for i in range(x.shape[0]):
        y[i] = value if i % 2 == 0 else values[-1]
        z[i] = level


@ortops.operator(domain="mine", compiled=True, outputs=["y"], parallel="n")
def Parted(x: Doubles, y: Doubles, kind: Literal["rows", "copy"] = "rows") -> None:  # noqa: N802
    """The number of rows in the part; an error where the input is negative."""
    for i in range(x.shape[0]):
        if x[i] < 0:
            raise ValueError("x must not be negative")
        y[i] = x.shape[0] if kind == "rows" else x[i]


@ortops.operator(domain="mine", compiled=True, outputs=["y"])
def Looked(x: Ints, y: Ints) -> None:  # noqa: N802
    """Hold a table and a list of a megabyte each while an index may be out of bounds."""
    table, parts = np.ones(125_000), [np.ones(60_000), np.ones(65_000)]
    for i in range(x.size):
        y[i] = table[x[i]] + len(parts)


@ortops.operator(domain="mine", compiled=True, outputs=["y"])
def Shuffled(x: Doubles, y: Doubles) -> None:  # noqa: N802
    """Needs numba's state of random numbers."""
    for i in range(x.shape[0]):
        y[i] = x[i] * np.random.random()  # noqa: NPY002 - numba knows this one


_sin = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None).sin
_sin.argtypes, _sin.restype = [ctypes.c_double], ctypes.c_double


@ortops.operator(domain="mine", compiled=True, outputs=["y"])
def OfAnAddress(x: Doubles, y: Doubles) -> None:  # noqa: N802
    """Calls a function by its address in this process."""
    for i in range(x.shape[0]):
        y[i] = _sin(x[i])


@ortops.operator(domain="mine")
def InPython(x: Doubles) -> Doubles:  # noqa: N802
    """Needs the interpreter."""
    return x
