"""Random cases as a strategy of hypothesis, which can then shrink them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import hypothesis.strategies as st
import numpy as np
from hypothesis import reject

from conformance.case import Case
from conformance.fuzz.generate import draw_case

FEW = 48
"""Arrays of at most so many elements are drawn one by one, and shrunk so. Others follow from a seed."""

STEPS = 2**20
"""The number of different values of a random real number."""

Size = int | Sequence[int] | None


@st.composite
def cases(draw: Callable[[Any], Any], names: Sequence[str], place: str) -> Case:
    """Cases of the named operators, or of all; `place` is the end of their ids."""
    return draw_case(cast(np.random.Generator, DrawnNumbers(draw)), names, place, reject)


class DrawnNumbers:
    """What random cases use of `numpy.random.Generator`; every number is drawn by hypothesis."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self._draw = draw

    def _array(self, kind: type, one: Any, size: Size, many: Callable[[np.random.Generator], Any]) -> Any:
        if size is None:
            return self._draw(one)
        count = math.prod(size) if isinstance(size, Sequence) else size
        if count > FEW:
            return many(np.random.default_rng(self._draw(st.integers(0, 2**32 - 1))))
        return np.fromiter((self._draw(one) for _ in range(count)), kind, count).reshape(size)

    def random(self) -> float:
        """A number from 0 to 1. It shrinks to 1, which is an unlikely choice not made."""
        return float(1.0 - self._draw(st.integers(1, STEPS)) / STEPS)

    def integers(self, low: int, high: int | None = None, size: Size = None) -> Any:
        """See `numpy.random.Generator.integers`. They shrink to 0 or what is next to it."""
        low, high = (0, low) if high is None else (low, high)
        return self._array(int, st.integers(low, high - 1), size, lambda rng: rng.integers(low, high, size))

    def uniform(self, low: float, high: float, size: Size = None) -> Any:
        """See `numpy.random.Generator.uniform`. They shrink to `low`."""
        one = st.integers(0, STEPS).map(lambda i: low + (high - low) * i / STEPS)
        return self._array(float, one, size, lambda rng: rng.uniform(low, high, size))

    def normal(self, size: Size = None) -> Any:
        """Numbers around 0, most of them within 4. They shrink to 0."""
        one = st.integers(-STEPS, STEPS).map(lambda i: 4 * i / STEPS)
        return self._array(float, one, size, lambda rng: rng.normal(size=size))

    def choice(self, choices: Any, size: Size = None, replace: bool = True) -> Any:
        """See `numpy.random.Generator.choice`. They shrink to the first ones."""
        among = np.arange(choices) if isinstance(choices, int) else np.asarray(choices)
        if not replace:
            return np.random.default_rng(self._draw(st.integers(0, 2**32 - 1))).choice(among, size, replace=False)
        return among[self.integers(0, len(among), size)]
