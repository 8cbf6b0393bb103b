# SPDX-License-Identifier: MIT OR Apache-2.0
"""Deformable attention of any size whose points lie in the middle of four pixels, so that its results have closed forms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from conformance.case import Array
from conformance.cases.large.by_role import ByRole, uniform
from conformance.cases.large.repeating import PERIOD, numbers, recipe_of
from conformance.cases.large.windows import LARGEST
from conformance.error_terms import ErrorTerms
from ortops.spec import AttributeValue

OF_VALUE = (601, 29, 97, 1)
"""The steps of value along images, pixels, heads and channels (`repeating`)."""

OF_DY = (311, 23, 224, 7)
"""Those of dY along images, queries, heads and channels."""

WEIGHTS = (0.5, 0.25)
"""The weights of the points of a level, in turn."""


@dataclass(frozen=True)
class Middles(ByRole):
    """Levels of one size. Their middles of four pixels have numbers; point p of level l of query q has q + 7 l + 3 p.

    side: the height and the width of each level, powers of 2 up to 256, so that every type represents all locations.
    counts: the numbers of images, heads, channels, levels and points.
    queries: their number, at most that of the middles.
    """

    side: tuple[int, int]
    counts: tuple[int, int, int, int, int]
    queries: int

    @property
    def arguments(self) -> Mapping[str, AttributeValue]:
        """See `ByRole`: none."""
        return {}

    @property
    def roles(self) -> Mapping[str, str]:
        """See `ByRole`: tensors are named by their own names."""
        return {name: name for name in self.shapes}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """See `ByRole`."""
        images, heads, channels, levels, points = self.counts
        value = images, levels * math.prod(self.side), heads, channels
        y, weights = (images, self.queries, heads * channels), (images, self.queries, heads, levels, points)
        of_inputs = {"value": value, "sampling_locations": (*weights, 2), "attention_weights": weights}
        of_gradients = {"dvalue": value, "dlocations": (*weights, 2), "dweights": weights}
        return {"dY": y, "Y": y, "spatial_shapes": (levels, 2), **of_inputs, **of_gradients}

    @property
    def work(self) -> float:
        """The number of samples in all channels, or of pixels."""
        return max(math.prod(self.shapes["Y"]) * math.prod(self.counts[3:]), math.prod(self.shapes["value"]))

    def smaller(self) -> Middles:
        """See `Formula`. A quarter of the rows, of the columns and of the heads."""
        height, width = (max(length // 4, 2) for length in self.side)
        images, heads, *rest = self.counts
        queries = min(max(self.queries // 8, 1), (height - 1) * (width - 1))
        counts: Any = (images, max(heads // 4, 1), *rest)
        return replace(self, side=(height, width), counts=counts, queries=queries)

    def tensor(self, name: str) -> Array:
        """See `Formula`."""
        images, heads, channels, levels, points = self.counts
        shape = self.shapes[name]
        if name == "spatial_shapes":
            return np.tile(np.array(self.side, np.int64), (levels, 1))
        if name in ("value", "dY", "attention_weights", "sampling_locations"):
            dtype = self.inputs[name].dtype
            if name == "value":
                return self._elements(numbers(self.element_type), OF_VALUE, np.arange(shape[1])).astype(dtype)
            if name == "dY":
                return self._dy().reshape(shape).astype(dtype)
            if name == "attention_weights":
                return np.broadcast_to(np.resize(WEIGHTS, points), shape).astype(dtype)
            locations = np.zeros((self.queries, 1, levels, points, 2))
            for level, point, row, column in self._middles():
                locations[:, 0, level, point] = np.stack(
                    [(column + 1) / self.side[1], (row + 1) / self.side[0]], axis=-1
                )
            return np.broadcast_to(locations, shape).astype(dtype)
        of_queries = images, self.queries, heads, channels
        wide = np.float64 if self.element_type == "double" or name in ("dweights", "dlocations") else np.float32
        result, dy = np.zeros(of_queries if name == "Y" else shape, wide), self._dy().astype(wide)
        for level, point, row, column in self._middles():
            pixel, weight = (level * self.side[0] + row) * self.side[1] + column, WEIGHTS[point % len(WEIGHTS)]
            if name == "Y":
                result += (weight * self._elements(self._around(1, 1, 1, 1) / 4, OF_VALUE, pixel)).astype(wide)
            elif name == "dvalue":
                for offset in (0, 1, self.side[1], self.side[1] + 1):  # of one point, no two queries read the same
                    result[:, pixel + offset] += dy * np.asarray(weight / 4, wide)
            elif name == "dweights":
                result[..., level, point] = (dy * self._elements(self._around(1, 1, 1, 1) / 4, OF_VALUE, pixel)).sum(-1)
            else:
                for k, signs in enumerate(((-1, 1, -1, 1), (-1, -1, 1, 1))):
                    slope = self._elements(self._around(*signs) / 2, OF_VALUE, pixel)
                    result[..., level, point, k] = weight * self.side[1 - k] * (dy * slope).sum(-1)
        return result.reshape(shape)

    def recipe(self, name: str) -> dict[str, Any] | None:
        """See `Formula`."""
        images, heads, channels, *_ = self.counts
        if name == "value":
            return recipe_of(self.shapes[name], OF_VALUE)
        return recipe_of((images, self.queries, heads, channels), OF_DY) if name == "dY" else None

    def error_terms(self, name: str, rounding: float) -> ErrorTerms:
        """See `Formula`: coordinates are exact."""
        del rounding
        _, _, channels, levels, points = self.counts
        weight = float(np.resize(WEIGHTS, points).sum())
        if name == "Y":
            return uniform(levels * weight * LARGEST, 4 * levels * points)
        if name == "dvalue":
            return uniform(weight * LARGEST, 4 * points)
        slope = LARGEST if name == "dweights" else 2 * max(WEIGHTS) * max(self.side) * LARGEST
        return uniform(channels * LARGEST * slope, 4 * channels)

    def _middles(self) -> Iterator[tuple[int, int, Array, Array]]:
        """Each level and point, with the row and the column of the pixel before the middle, of all queries."""
        height, width = self.side
        for level, point in np.ndindex(self.counts[3:]):
            number = (np.arange(self.queries) + 7 * level + 3 * point) % ((height - 1) * (width - 1))
            yield level, point, number // (width - 1), number % (width - 1)

    def _around(self, *factors: float) -> Array:
        """The sums of four neighbouring pixels, times factors, as a sequence."""
        sequence, step, width = numbers(self.element_type), OF_VALUE[1], self.side[1]
        shifts = 0, step, step * width, step * (width + 1)
        sums = [factor * np.roll(sequence, -shift) for factor, shift in zip(factors, shifts, strict=True)]
        return np.asarray(np.sum(sums, axis=0))

    def _elements(self, sequence: Array, steps: tuple[int, ...], along: Array) -> Array:
        """The elements of a sequence for each image, each number in `along`, each head and each channel."""
        images, heads, channels, *_ = self.counts
        axes = [np.arange(images), along, np.arange(heads), np.arange(channels)]
        parts = [step * axis % PERIOD for step, axis in zip(steps, axes, strict=True)]
        places = sum(part.reshape([-1 if i == k else 1 for i in range(4)]) for k, part in enumerate(parts))
        return np.asarray(np.resize(sequence, 4 * PERIOD)[places])

    def _dy(self) -> Array:
        return self._elements(numbers(self.element_type), OF_DY, np.arange(self.queries))
