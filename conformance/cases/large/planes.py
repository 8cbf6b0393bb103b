# SPDX-License-Identifier: MIT OR Apache-2.0
"""RoIs of any number, size and place on maps that are planes, one for each channel, whose averages have a closed form.

Bilinear interpolation reproduces a plane. So the mean over the samples of a bin, however many there are, is the plane's
height at the middle of the bin. Every channel has another plane.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from conformance.case import Array
from conformance.cases.large.by_role import ByRole, channels_of_bins, of_own_bins, uniform
from conformance.cases.large.windows import seams
from conformance.cases.make import INPUT_OFFSETS, ROTATED, Rule
from conformance.error_terms import ErrorTerms
from ortops.spec import AttributeValue


@dataclass(frozen=True)
class Planes(ByRole):
    """RoIs of any sizes on planes, for an operator that averages samples.

    x_shape: [N, C, H, W].
    count: the number of RoIs.
    bins: height and width of the output.
    coordinates: RoiAlign's coordinate_transformation_mode.
    scale: spatial_scale, a power of two.
    """

    x_shape: tuple[int, int, int, int]
    count: int
    bins: tuple[int, int]
    coordinates: str = "half_pixel"
    scale: float = 1.0

    @property
    def arguments(self) -> Mapping[str, AttributeValue]:
        """See `ByRole`."""
        rule = Rule("avg", self.coordinates, self.scale)
        return {**rule.attributes(self.forward, self.bins), "aligned": int(self.coordinates == "half_pixel")}

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """See `ByRole`."""
        rois = self.count, 5 if self.forward == ROTATED else 4
        return {
            "x": self.x_shape,
            "rois": rois,
            "indices": (self.count,),
            "y": (self.count, self.x_shape[1] // self._of_bins, *self.bins),
        }

    @property
    def _of_bins(self) -> int:
        return channels_of_bins(self.definition, self.bins)

    @property
    def work(self) -> float:
        """The number of samples in all channels, about."""
        height, width = self._boxes()[1].T
        return float(self.x_shape[1] * np.sum((height + self.bins[0]) * (width + self.bins[1])))

    def smaller(self) -> Planes:
        """See `Formula`. A tenth of the channels and of the RoIs."""
        images, channels, height, width = self.x_shape
        shape = images, max(channels // self._of_bins // 10, 1) * self._of_bins, height, width
        return replace(self, x_shape=shape, count=max(self.count // 10, 1))

    def tensor(self, name: str) -> Array:
        """See `Formula`."""
        role = self.roles[name]
        if role == "y":
            return self._y()
        dtype = self.inputs[name].dtype
        if role == "x":
            rows, columns = (np.arange(n, dtype=np.float32) for n in self.x_shape[2:])
            level, down, right = (numbers[..., None, None].astype(np.float32) for numbers in self._planes())
            return np.asarray(level + down * rows[:, None] + right * columns, dtype)
        return np.asarray(self._rois() if role == "rois" else self._images(), dtype)

    def recipe(self, name: str) -> dict[str, Any] | None:
        """See `Formula`."""
        return {"kind": "planes"} if self.roles[name] == "x" else None

    def error_terms(self, _name: str, rounding: float) -> ErrorTerms:
        """See `Formula`: the bounds of `conformance.families`, with the largest number for each of their terms."""
        level, down, right = (float(np.abs(numbers).max()) for numbers in self._planes())
        height, width = self.x_shape[2:]
        sizes = self._boxes()[1]
        per_bin = np.ceil(sizes / self.bins).prod(axis=1).max()
        span = float(sizes.sum(axis=1).max()) / 2
        delta = rounding * (26 * max(height, width) + 20 + (14 + 2 * (4 + np.pi)) * span * (self.forward == ROTATED))
        return uniform(level + down * height + right * width, 4 * float(per_bin) + 1, delta * (down + right))

    def _planes(self) -> tuple[Array, Array, Array]:
        """For each image and channel [N, C], the height at the first pixel, and the slopes along rows and columns.

        They are multiples of 1/32, and no two channels have the same three.
        """
        n, c = np.ogrid[: self.x_shape[0], : self.x_shape[1]]
        level = ((61 * n + 37 * c) % 127 - 63) / 32
        down, right = (-1.0) ** c * (1 + c % 3) / 16, (-1.0) ** (c // 2) * (1 + c % 5) / 32
        return level, down + 0.0 * n, right + 0.0 * n

    def _images(self) -> Array:
        r = np.arange(self.count)
        return (5 * r + r // 7) % self.x_shape[0]

    def _angles(self) -> Array:
        """The angle of each RoI, a multiple of 1/16."""
        return (7 * np.arange(self.count) % 101 - 50) / 16 * (self.forward == ROTATED)

    def _boxes(self) -> tuple[Array, Array]:
        """The middle of each RoI and its height and width, in pixels of the map, [R, 2] each.

        All are multiples of 1/4. The RoIs straddle the rows and columns of `seams` and stay on the map.
        """
        r, lengths = np.arange(self.count), np.array(self.x_shape[2:])
        sizes = np.column_stack([29 * r, 53 * r]) % lengths / 2 + 2.5
        cut = [seams(length) for length in lengths]
        at = np.column_stack([cut[0][r % len(cut[0])], cut[1][r // len(cut[0]) % len(cut[1])]])
        middles = at + (np.column_stack([11 * r, 17 * r]) % 13 - 6) / 8 * sizes / 4
        reach = np.hypot(*sizes.T)[:, None] / 2 + [0.0, 0.0] if self.forward == ROTATED else sizes / 2
        middles = np.floor(np.clip(middles, reach + 0.25, lengths - 1 - reach) * 4) / 4
        return middles, sizes

    def _rois(self) -> Array:
        middles, sizes = self._boxes()
        middles = middles + INPUT_OFFSETS[self.coordinates]
        if self.forward == ROTATED:
            return np.column_stack([middles[:, ::-1] / self.scale, sizes[:, ::-1] / self.scale, self._angles()])
        return np.concatenate([middles - sizes / 2, middles + sizes / 2], axis=1)[:, [1, 0, 3, 2]] / self.scale

    def _y(self) -> Array:
        middles, sizes = self._boxes()
        v, u = (
            ((np.arange(bins) + 0.5) / bins - 0.5) * size[:, None]
            for bins, size in zip(self.bins, sizes.T, strict=True)
        )
        angles = self._angles()[:, None, None]
        cos, sin = np.cos(angles), np.sin(angles)
        y = middles[:, 0, None, None] + v[:, :, None] * cos - u[:, None, :] * sin
        x = middles[:, 1, None, None] + u[:, None, :] * cos + v[:, :, None] * sin
        level, down, right = (numbers[self._images()][..., None, None].astype(np.float32) for numbers in self._planes())
        heights = level + down * y[:, None].astype(np.float32) + right * x[:, None].astype(np.float32)
        return np.asarray(heights if self._of_bins == 1 else of_own_bins(heights))
