# SPDX-License-Identifier: MIT OR Apache-2.0
"""Arrays of any size whose elements repeat a sequence of numbers: each is a window into it.

The element at (i, j, ...) is number (start + a i + b j + ...) modulo `PERIOD`, with a step a, b, ... for each axis. The
period is a prime number beyond every length here, so no two elements along an axis are equal, and no block of a power of two
repeats. What is computed from an element and its neighbours, such as the mean of four pixels, is another sequence with the
same period and the same steps.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from conformance.case import Array

PERIOD = 1021

POWER = 151
"""Coprime to PERIOD - 1, so that powers with this exponent are a permutation without similar neighbours."""

OF_X = (601, 29, 97, 1)
"""The steps of a map along images, channels, rows and columns.

Of these and `POWER`, the largest of four neighbouring means of four pixels leads the others by 1/128 everywhere.
"""

OF_DY = (311, 23, 89, 7)
"""The steps of a gradient along RoIs, channels and bins."""


MIXED = (7, 1, 3, 5)
"""Which elements of a sparse gradient are not 0: the steps along RoIs, channels, and rows and columns of bins."""


FINE = 1 + 2.0**-28
"""The factor of the numbers of double: float32 holds none of them."""


@functools.cache
def numbers(element_type: str) -> Array:
    """The sequence, [PERIOD]: all multiples of 1/128 from -510/128 to 510/128, exact in float16, in an irregular order.

    Those of bfloat16 are rounded to multiples of 1/32, which it holds; those of double have the factor `FINE`.
    """
    multiples = np.array([pow(i, POWER, PERIOD) - PERIOD // 2 for i in range(PERIOD)]) / 128.0
    if element_type == "bfloat16":
        return np.asarray(np.trunc(multiples * 32) / 32)
    return multiples * FINE if element_type == "double" else multiples


def neighbour(sequence: Array, steps: int) -> Array:
    """The sequence, shifted by `steps` elements."""
    return np.asarray(np.roll(sequence, -steps))


class Line:
    """A sequence of one type that is long enough for windows of some size.

    Args:
        sequence: one period of it.
        dtype: the type of the windows.
        reach: the sum of the largest absolute offsets of a window's elements along each axis.
    """

    def __init__(self, sequence: Array, dtype: npt.DTypeLike, reach: int) -> None:
        # One more period before the start, for steps below 0, and one for the start itself.
        self._before = PERIOD * (reach // PERIOD + 1)
        self._line = np.resize(sequence.astype(dtype), self._before + PERIOD + reach + 1)
        self._bytes = self._line.view(np.uint8).data  # NumPy shares no memory of bfloat16

    def window(self, start: int, shape: Sequence[int], steps: Sequence[int]) -> npt.NDArray[Any]:
        """The array of this shape whose element at (0, 0, ...) is number `start`; a view, which must not be written to."""
        itemsize = self._line.itemsize
        view: npt.NDArray[Any] = np.ndarray(
            tuple(shape),
            self._line.dtype,
            self._bytes,
            (self._before + start % PERIOD) * itemsize,
            tuple(step * itemsize for step in steps),
        )
        return view


@functools.lru_cache(maxsize=4)
def line_of_numbers(element_type: str, dtype: np.dtype[Any], reach: int) -> Line:
    """The sequence of `numbers` as a line."""
    return Line(numbers(element_type), dtype, reach)


def repeating(
    sequence: Array, shape: Sequence[int], steps: Sequence[int], dtype: npt.DTypeLike, start: int = 0
) -> Array:
    """The array of this shape whose elements repeat a sequence."""
    line = Line(sequence, dtype, sum(abs(step) * length for step, length in zip(steps, shape, strict=True)))
    return np.ascontiguousarray(line.window(start, shape, steps))


def recipe_of(shape: Sequence[int], steps: Sequence[int], one_in: int = 1) -> dict[str, Any]:
    """The recipe of an array that repeats `numbers`. Of a sparse one, an element of `one_in` is not 0."""
    recipe = {"kind": "repeating", "shape": list(shape), "steps": list(steps)}
    return recipe if one_in == 1 else {**recipe, "one_in": one_in, "mixed": list(MIXED)}
