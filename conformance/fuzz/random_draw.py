"""Random choices for one case of a fuzz campaign."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from conformance.case import Array
from conformance.error_bounds import smallest_subnormal
from conformance.fuzz.corrupt import T, pick
from ortops.spec import AttributeValue, Operator

LARGE = 0.5
"""The share of cases that are large along one or two axes."""


@dataclass(frozen=True, slots=True)
class RandomDraw:
    """The random choices of one case.

    exact: whether numbers are short binary fractions, which float32 arithmetic does not round.
    no_extremes: whether to leave out infinities, NaN and numbers near either end of the type's range.
    dtype: the type of maps and gradients.
    """

    rng: np.random.Generator
    exact: bool
    no_extremes: bool
    dtype: np.dtype[Any]

    def chance(self, part: float) -> bool:
        """True with probability `part`."""
        return bool(self.rng.random() < part)

    def integer(self, least: int, most: int) -> int:
        """An integer from `least` to `most`, both included."""
        return int(self.rng.integers(least, most + 1))

    def choice(self, choices: Sequence[T]) -> T:
        """One of the choices, uniformly."""
        return pick(self.rng, choices)

    def length(self, most: int) -> int:
        """A large length: log-uniform, or often close to `most`, where an index may wrap or be cut off."""
        if self.chance(0.4):
            return self.integer(math.ceil(0.86 * most), most)
        return round(math.exp(self.rng.uniform(math.log(min(12, most / 4)), math.log(most))))

    def scale(self) -> float:
        """A spatial scale, in pixels per unit."""
        if self.exact:
            return self.choice((1.0, 0.5, 0.25, 2.0, 8.0))
        return float(np.float32(self.choice((1.0, 0.3, 0.0625, 1.7, self.rng.uniform(0.2, 12.0)))))

    def offset(self) -> float:
        """An offset in pixels or samples."""
        return self.integer(-4, 4) / 4 if self.exact else float(np.float32(self.rng.uniform(-1.5, 1.5)))

    def values(self, shape: Sequence[int]) -> Array:
        """The elements of a map or a gradient, in float64."""
        values = self._finite_values(shape)
        if values.size and not self.no_extremes and self.chance(0.3):
            if self.chance(0.2):
                return np.full(shape, -np.inf)
            odd = self.choice(((np.nan,), (np.inf,), (-np.inf,), (np.nan, np.inf, -np.inf)))
            for _ in range(math.ceil(values.size / 10) if self.chance(0.3) else self.integer(1, 3)):
                values.flat[self.integer(0, values.size - 1)] = self.choice(odd)
        return values

    def _finite_values(self, shape: Sequence[int]) -> Array:
        info = ml_dtypes.finfo(self.dtype)  # type: ignore[no-untyped-call]
        # The reference sums in double, which must not overflow.
        largest, smallest = min(float(info.max), 1e300), max(smallest_subnormal(self.dtype), 1e-290)
        if not self.no_extremes and self.chance(0.2):
            return largest * self.rng.uniform(0.4, 1.0, shape) * (1.0 if self.chance(0.6) else self.rng.choice([-1, 1]))
        if not self.no_extremes and self.chance(0.2):
            return smallest * np.round(self.rng.normal(size=shape) * 2.0 ** self.integer(2, int(info.nmant)))
        if self.exact:
            return self.rng.integers(-64, 65, shape) / 32
        kind = self.choice(("normal", "normal", "normal", "whole", "constant", "large", "small"))
        if kind == "whole":
            return self.rng.integers(-3, 4, shape).astype(np.float64)
        if kind == "constant":
            return np.full(shape, self.offset())
        return {"normal": 1.0, "large": 500.0, "small": 1e-6}[kind] * self.rng.normal(size=shape)


def draw_attributes(
    draw: RandomDraw, operator: Operator, given: Mapping[str, AttributeValue]
) -> dict[str, AttributeValue]:
    """A value for each attribute: the given one, or a random one of its choices."""
    return {a.name: given[a.name] if a.name in given else draw.choice(a.choices) for a in operator.attributes}
