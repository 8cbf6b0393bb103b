# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random choices for one case of a fuzz campaign. hypothesis draws every number, and so can shrink the case."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import hypothesis.strategies as st
import ml_dtypes
import numpy as np

from conformance.case import Array
from conformance.error_terms import smallest_subnormal
from ortops.spec import AttributeValue, Operator

FEW = 48
"""Arrays of up to this many elements are drawn and shrunk element by element. Larger ones are drawn from a seed."""

STEPS = 2**20
"""Random real numbers are multiples of their range divided by this number, so that none is subnormal."""

T = TypeVar("T")
FLOAT = np.dtype(np.float32)
Shape = Sequence[int]

DrawnCase = tuple[dict[str, AttributeValue], dict[str, Array], tuple[str, ...]]
"""The attributes, the inputs (float64 or integer, by name) and the names of the outputs of a random case."""


@dataclass(frozen=True, slots=True)
class RandomDraw:
    """The random choices of one case.

    draw: the function that hypothesis passes to a composite strategy.
    exact: whether numbers are short binary fractions, which float32 arithmetic does not round.
    no_extremes: whether to leave out infinities, NaN and numbers near either end of the type's range.
    dtype: the type of maps and gradients.
    """

    draw: Callable[[Any], Any]
    exact: bool = False
    no_extremes: bool = True
    dtype: np.dtype[Any] = FLOAT

    def chance(self, part: float) -> bool:
        """True with probability `part`, which has two digits. It shrinks to False."""
        # Of a range of more than 128 integers hypothesis prefers small ones.
        return bool(self.draw(st.integers(1, 100)) > round((1 - part) * 100))

    def integer(self, least: int, most: int) -> int:
        """An integer from `least` to `most`, both included. It shrinks to the number nearest to 0."""
        return int(self.draw(st.integers(least, most)))

    def choice(self, choices: Sequence[T]) -> T:
        """One of the choices, uniformly. It shrinks to the first one."""
        return choices[self.integer(0, len(choices) - 1)]

    def some(self, count: int, most: int) -> Array:
        """`count` different integers below `most`."""
        return self._generator().choice(most, count, replace=False)

    def integers(self, least: int, most: int, shape: Shape) -> Array:
        """Integers from `least` to `most`, both included."""
        return self._array(st.integers(least, most), shape, lambda rng: rng.integers(least, most + 1, shape))

    def uniform(self, low: float, high: float, shape: Shape = ()) -> Array:
        """Real numbers from `low` to `high`. They shrink to `low`."""
        number = st.floats(0, 1).map(lambda part: low + (high - low) * round(part * STEPS) / STEPS)
        return self._array(number, shape, lambda rng: rng.uniform(low, high, shape))

    def normal(self, shape: Shape) -> Array:
        """Numbers around 0, most of them within 4. They shrink to 0."""
        number = st.floats(-4, 4).map(lambda value: round(value * STEPS) / STEPS)
        return self._array(number, shape, lambda rng: rng.normal(size=shape))

    def _generator(self) -> np.random.Generator:
        return np.random.default_rng(self.integer(0, 2**32 - 1))

    def _array(
        self, element: st.SearchStrategy[Any], shape: Shape, many: Callable[[np.random.Generator], Array | float]
    ) -> Array:
        count = math.prod(shape)
        if count > FEW:
            return np.asarray(many(self._generator()))
        return np.array([self.draw(element) for _ in range(count)]).reshape(shape)

    def is_large(self) -> bool:
        """Whether the case is large along one or two axes, as half of the cases are."""
        return self.chance(0.5)

    def length(self, most: int) -> int:
        """A large length: log-uniform, or often close to `most`, where an index may wrap or be cut off."""
        if self.chance(0.4):
            return self.integer(math.ceil(0.86 * most), most)
        return round(math.exp(float(self.uniform(math.log(min(12, most / 4)), math.log(most)))))

    def scale(self) -> float:
        """A spatial scale, in pixels per unit."""
        if self.exact:
            return self.choice((1.0, 0.5, 0.25, 2.0, 8.0))
        return float(np.float32(self.choice((1.0, 0.3, 0.0625, 1.7, float(self.uniform(0.2, 12.0))))))

    def offset(self) -> float:
        """An offset in pixels or samples."""
        return self.integer(-4, 4) / 4 if self.exact else float(np.float32(self.uniform(-1.5, 1.5)))

    def attributes(self, operator: Operator, given: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
        """A value for each attribute: the given one, or a random one of its choices."""
        return {a.name: given[a.name] if a.name in given else self.choice(a.choices) for a in operator.attributes}

    def values(self, shape: Shape) -> Array:
        """The elements of a map or a gradient, in float64."""
        values = self._finite_values(shape)
        if values.size and not self.no_extremes and self.chance(0.3):
            if self.chance(0.2):
                return np.full(shape, -np.inf)
            odd = self.choice(((np.nan,), (np.inf,), (-np.inf,), (np.nan, np.inf, -np.inf)))
            for _ in range(math.ceil(values.size / 10) if self.chance(0.3) else self.integer(1, 3)):
                values.flat[self.integer(0, values.size - 1)] = self.choice(odd)
        return values

    def _finite_values(self, shape: Shape) -> Array:
        info = ml_dtypes.finfo(self.dtype)  # type: ignore[no-untyped-call]
        # The reference sums in double, which must not overflow.
        largest, smallest = min(float(info.max), 1e300), max(smallest_subnormal(self.dtype), 1e-290)
        if not self.no_extremes and self.chance(0.2):
            signs = 1 if self.chance(0.6) else 2 * self.integers(0, 1, shape) - 1
            return largest * self.uniform(0.4, 1.0, shape) * signs
        if not self.no_extremes and self.chance(0.2):
            return smallest * np.round(self.normal(shape) * 2.0 ** self.integer(2, int(info.nmant)))
        if self.exact:
            return self.integers(-64, 64, shape) / 32
        kind = self.choice(("normal", "normal", "normal", "whole", "constant", "large", "small"))
        if kind == "whole":
            return self.integers(-3, 3, shape).astype(np.float64)
        if kind == "constant":
            return np.full(shape, self.offset())
        return {"normal": 1.0, "large": 500.0, "small": 1e-6}[kind] * self.normal(shape)
