# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tensors of any size that DmlResample doubles by repetition or halves by means, whose results have closed forms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from conformance.case import Array
from conformance.cases.large.by_role import ByRole, uniform
from conformance.cases.large.repeating import OF_DY, OF_X, neighbour, numbers, recipe_of, repeating
from conformance.cases.large.windows import LARGEST
from conformance.error_terms import ErrorTerms
from conformance.families.dml_resample.bounds import ROUNDINGS
from ortops.spec import AttributeValue


@dataclass(frozen=True)
class Repetitions(ByRole):
    """A tensor of four axes, some of which are doubled, or some of which are halved.

    x_shape: its lengths.
    scales: 1 for each axis that does not change; for the others 2, which repeats elements, or 0.5, which averages pairs.
    """

    x_shape: tuple[int, int, int, int]
    scales: tuple[float, float, float, float]

    @property
    def arguments(self) -> Mapping[str, AttributeValue]:
        """See `ByRole`."""
        return {"interpolation_mode": "nearest_neighbor" if self._is_doubled else "linear", "scales": self.scales}

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """See `ByRole`."""
        y_shape = tuple(int(n * scale) for n, scale in zip(self.x_shape, self.scales, strict=True))
        return {"x": self.x_shape, "dx": self.x_shape, "y": y_shape, "dy": y_shape, "x_shape": (4,)}

    @property
    def work(self) -> float:
        """The number of elements before and after."""
        return math.prod(self.x_shape) + math.prod(self.shapes["y"])

    def smaller(self) -> Repetitions:
        """See `Formula`. A tenth of the channels and of the rows."""
        images, channels, height, width = self.x_shape
        return replace(self, x_shape=(images, max(channels // 10, 1), max(height // 20 * 2, 2), width))

    def tensor(self, name: str) -> Array:
        """See `Formula`."""
        role = self.roles[name]
        dtype = self.wide_dtype if role in ("y", "dx") else self.inputs[name].dtype
        if role == "x_shape":
            return np.array(self.x_shape, dtype)
        if role in ("x", "dy"):
            return repeating(numbers(self.element_type), self.shapes[role], OF_X if role == "x" else OF_DY, dtype)
        # Either way, the result with fewer elements has one for every 2, 4, ... of the others.
        few, steps = (self.shapes["y"], OF_X) if role == "y" else (self.x_shape, OF_DY)
        is_repeated = (role == "y") == self._is_doubled
        if is_repeated:
            values = self.tensor(next(n for n, r in self.roles.items() if r == ("x" if role == "y" else "dy")))
            for axis in self._axes:
                values = values.repeat(2, axis)
            return np.asarray(values.astype(dtype) / dtype.type(1 if role == "y" else 2 ** len(self._axes)))
        sums = numbers(self.element_type)
        for axis in self._axes:
            sums = sums + neighbour(sums, steps[axis])
        sums = sums / (2 ** len(self._axes) if role == "y" else 1)
        return repeating(sums, few, [step * (1 + (i in self._axes)) for i, step in enumerate(steps)], dtype)

    def recipe(self, name: str) -> dict[str, Any] | None:
        """See `Formula`."""
        role = self.roles[name]
        steps = {"x": OF_X, "dy": OF_DY}.get(role)
        return recipe_of(self.shapes[role], steps) if steps else None

    def error_terms(self, name: str, rounding: float) -> ErrorTerms:
        """See `Formula`: the bounds of `conformance.families`, with the largest number for each of their terms."""
        count = 2 ** len(self._axes)
        if self._is_doubled:
            return uniform(LARGEST * (1 if self.roles[name] == "y" else count), count)
        delta = ROUNDINGS * rounding * (max(self.x_shape) + 2)
        return uniform(LARGEST, count, len(self._axes) * delta * 2 * LARGEST)

    @property
    def _is_doubled(self) -> bool:
        return max(self.scales) > 1

    @property
    def _axes(self) -> list[int]:
        return [i for i, scale in enumerate(self.scales) if scale != 1]
