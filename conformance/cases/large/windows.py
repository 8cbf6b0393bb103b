# SPDX-License-Identifier: MIT OR Apache-2.0
"""RoIs of any number on maps of any size, whose results have closed forms for every operator with RoIs.

The samples of a RoI are one pixel apart and all at the same place between pixels; for MaxRoiPool its bins are whole pixels.
The map repeats a sequence of numbers (`repeating.py`). So what a bin becomes depends only on where in the sequence its first
pixel is: all outputs of a RoI are a window into another sequence. dX and drois follow from such windows, too.

RoIs straddle all multiples of `BLOCKS`, rows and columns in every combination, and touch the borders of the map.
Neighbouring numbers differ by much more than rounding can change. So the results show if a pixel, row, column, channel, bin
or RoI is read twice, not at all or from another place, even if this happens only in large problems.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from conformance.case import Array
from conformance.cases.large.bins import CORNERS, Form, pooled, slopes_of, winners_of
from conformance.cases.large.by_role import ByRole, channels_of_bins, of_own_bins, uniform
from conformance.cases.large.repeating import (
    MIXED,
    OF_DY,
    OF_X,
    PERIOD,
    Line,
    line_of_numbers,
    numbers,
    recipe_of,
    repeating,
)
from conformance.cases.make import INPUT_OFFSETS, POOL, ROTATED, Rule
from conformance.error_terms import ErrorTerms, Floats
from ortops.spec import AttributeValue

BLOCKS = (16, 32, 64, 65, 100, 128)
"""Lengths at whose multiples a runtime may cut its work."""

FRACTIONS = (0.25, 0.5, 0.75)
"""Places of samples between two pixels, which alternate."""

LARGEST = float(np.abs(numbers("double")).max())

MAX_DOUBLES = 2**22
"""The elements of the largest dX that is summed up in double. In larger ones all sums are exact in float32."""

MANY = 2**15
"""With at least this many RoIs, all samples lie in the middle between pixels, so that many RoIs share a place."""


class Place(NamedTuple):
    """Where RoIs lie on the map.

    image, row, column: the first pixel that they read.
    samples: those of a bin along the height and the width of the RoI.
    below, beside: the place of all samples between two pixels, along y and x.
    turn: the quarter turns of a rotated RoI, counter-clockwise.
    """

    image: int
    row: int
    column: int
    samples: tuple[int, int]
    below: float
    beside: float
    turn: int

    @property
    def steps(self) -> tuple[int, int]:
        """The steps in the map's sequence from one sample to the next, along the height and the width of the RoI."""
        _, _, down, right = OF_X
        return ((down, right), (right, -down), (-down, -right), (-right, down))[self.turn]


@dataclass(frozen=True)
class Windows(ByRole):
    """RoIs on a map, for one operator.

    x_shape: [N, C, H, W].
    count: the number of RoIs.
    bins: height and width of the output.
    samples: the numbers of samples of a bin along y and x, which take turns from RoI to RoI.
    mode: RoiAlign's; "pixels" for MaxRoiPool.
    coordinates: RoiAlign's coordinate_transformation_mode.
    scale: spatial_scale, a power of two.
    ratio: sampling_ratio, which is 0 or the number of all samples.
    one_in: of the gradient, one element of this many is not 0. drois is a sum over all channels and bins, and few terms keep
        its error bound below each of them.
    """

    x_shape: tuple[int, int, int, int]
    count: int
    bins: tuple[int, int]
    samples: tuple[tuple[int, int], ...] = ((1, 1),)
    mode: str = "avg"
    coordinates: str = "half_pixel"
    scale: float = 1.0
    ratio: int = 0
    one_in: int = 1

    @property
    def arguments(self) -> Mapping[str, AttributeValue]:
        """See `ByRole`."""
        rule = Rule(self.mode, self.coordinates, self.scale, self.ratio)
        return {**rule.attributes(self.forward, self.bins), "aligned": int(self.coordinates == "half_pixel")}

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """See `ByRole`."""
        y_shape = self.count, self._channels, *self.bins
        rois = self.count, 5 if self.forward in (ROTATED, POOL) else 4
        shapes = {"x": self.x_shape, "dx": self.x_shape, "x_shape": (4,), "indices": (self.count,)}
        return {**shapes, "y": y_shape, "dy": y_shape, "rois": rois, "drois": rois}

    @property
    def _channels(self) -> int:
        return self.x_shape[1] // channels_of_bins(self.definition, self.bins)

    @property
    def work(self) -> float:
        """The number of samples in all channels."""
        per_bin = sum(map(math.prod, self.samples)) / len(self.samples)
        return self.count * self._channels * math.prod(self.bins) * per_bin

    def smaller(self) -> Windows:
        """See `Formula`. A tenth of the channels and of the RoIs, or a hundredth of the RoIs."""
        images, channels, height, width = self.x_shape
        fewer = max(self._channels // 10, 1) * (channels // self._channels)
        count = max(self.count // 10 if fewer < channels else self.count // 100, 1)
        return replace(self, x_shape=(images, fewer, height, width), count=count)

    def with_mode(self, mode: str) -> Windows:
        """See `Formula`."""
        return replace(self, mode=mode)

    def tensor(self, name: str) -> Array:
        """See `Formula`."""
        role = self.roles[name]
        if role in ("y", "dx", "drois"):
            return {"y": self._y, "dx": self._dx, "drois": self._drois}[role]()
        dtype = self.inputs[name].dtype
        if role == "x":
            return repeating(numbers(self.element_type), self.x_shape, OF_X, dtype)
        if role == "dy":
            return self._dy(np.arange(self.count), dtype)
        if role == "x_shape":
            return np.array(self.x_shape, dtype)
        values = self._rois() if role == "rois" else self._columns()["image"]
        return np.ascontiguousarray(values, dtype)

    def recipe(self, name: str) -> dict[str, Any] | None:
        """See `Formula`. RoIs are small."""
        role = self.roles[name]
        if role == "x":
            return recipe_of(self.x_shape, OF_X)
        return recipe_of(self.shapes["dy"], OF_DY, self.one_in) if role == "dy" else None

    def error_terms(self, name: str, rounding: float) -> ErrorTerms:
        """See `Formula`: the bounds of `conformance.families`, with the largest number for each of their terms."""
        role, delta = self.roles[name], self._delta(rounding)
        if role == "y":
            if self.mode == "pixels":
                return uniform(0.0, 0.0, 0.0)
            # The outputs here are rounded to float32, which is one term more.
            terms = 4 * max(map(math.prod, self.samples)) + 1
            return uniform(LARGEST, terms, 2 * delta * (LARGEST if self.mode == "max" else 2 * LARGEST))
        if role == "dx":
            hits, weight, near = self._cover()
            moved = 0.0 if self.mode == "pixels" else 2 * delta * near
            return uniform(weight * LARGEST, hits, moved * LARGEST)
        passed = max(
            float(np.abs(self._dy(np.array([r]), np.float64)).sum()) for r in range(min(self.count, 2 * PERIOD))
        )
        sides = [max(bins * each[i] for each in self.samples) for i, bins in enumerate(self.bins)]
        per_number, errors = np.full(4, self.scale), np.zeros(4)
        if self.forward == ROTATED:
            per_number = np.array([self.scale] * 4 + [sum(sides) / 2])
            turn = 2 * np.pi * rounding + 4 * rounding
            errors = np.array([0.0, 0.0, *[self.scale * (4 * rounding + turn)] * 2, delta])
        steepest = 2 * LARGEST
        terms = 4 * math.prod(self.bins) * math.ceil(self._channels / self.one_in) * max(map(math.prod, self.samples))
        changes = 2 * steepest * passed * (2 * delta * per_number + errors)
        return ErrorTerms(2 * passed * LARGEST * per_number, float(terms), changes, np.ones(()))

    def _delta(self, rounding: float) -> float:
        """An upper bound of the error of a coordinate: that of the family's `bounds` on this map."""
        longest = max(self.x_shape[2:])
        if self.forward != ROTATED:
            return rounding * (26 * longest + 20)
        span = max(sum(bins * each[i] for i, bins in enumerate(self.bins)) for each in self.samples) / 2
        return rounding * (4 * (longest + 1) + 14 * span + (4 + 2 * np.pi) * 2 * span)

    @property
    def _extra(self) -> int:
        """The pixels that a sample reads beyond its own."""
        return int(self.mode != "pixels")

    def _columns(self) -> dict[str, Array]:
        """Where each RoI lies: the fields of its `Place`, [R] each, with numbers of `samples` and `FRACTIONS`."""
        r = np.arange(self.count)
        has_turns = self.forward == ROTATED and self.element_type not in ("float16", "bfloat16")
        turn = r // 3 % 4 if has_turns else np.zeros_like(r)
        kind = r // 2 % len(self.samples)
        # The winner of a maximum does not depend on a rounding where all weights are equal.
        is_free = (self.mode == "avg" or "y" in self.wanted) and self.count < MANY
        below, beside = (r // 5 % 3, r // 7 % 3) if is_free else (np.ones_like(r), np.ones_like(r))
        sizes = np.array(self.samples)[kind] * self.bins
        sizes = np.where(turn[:, None] % 2 == 1, sizes[:, ::-1], sizes) + self._extra
        rows, columns = map(seams, self.x_shape[2:])
        # The first ones straddle each pair of a row and a column, the others lie anywhere.
        is_at_a_seam = r < len(rows) * len(columns)
        row, column = (
            np.where(is_at_a_seam, _straddling(seam, turns, size, length), factor * r % (length - size + 1))
            for seam, turns, size, length, factor in (
                (rows[r % len(rows)], r, sizes[:, 0], self.x_shape[2], 7919),
                (columns[r // len(rows) % len(columns)], r // 3, sizes[:, 1], self.x_shape[3], 104729),
            )
        )
        image = (5 * r + r // 7) % self.x_shape[0]
        return {
            "image": image,
            "row": row,
            "column": column,
            "kind": kind,
            "below": below,
            "beside": beside,
            "turn": turn,
        }

    @functools.lru_cache(4)  # noqa: B019  # a formula is a value
    def _places(self) -> Sequence[tuple[Place, Array]]:
        """The places of RoIs, each with the numbers of the RoIs there."""
        columns, places = self._columns(), list[tuple[Place, Array]]()
        key = functools.reduce(lambda key, column: key * (int(column.max(initial=0)) + 1) + column, columns.values())
        order = np.argsort(key, kind="stable")
        _, firsts = np.unique(key[order], return_index=True)
        for rois in np.split(order, firsts[1:]):
            image, row, column, kind, below, beside, turn = (int(column_[rois[0]]) for column_ in columns.values())
            place = Place(image, row, column, self.samples[kind], FRACTIONS[below], FRACTIONS[beside], turn)
            places.append((place, rois))
        return places

    def _rois(self) -> Array:
        at = self._columns()
        sizes = np.array(self.samples)[at["kind"]] * self.bins
        height, width = np.where(at["turn"][:, None] % 2 == 1, sizes[:, ::-1], sizes).T
        if self.mode == "pixels":
            ends = [at["column"], at["row"], at["column"] + width - 1, at["row"] + height - 1]
            return np.column_stack([at["image"], *(end / self.scale for end in ends)])
        # The first sample is half a pixel from the RoI's start.
        fractions = np.array(FRACTIONS)
        y1 = at["row"] + fractions[at["below"]] - 0.5 + INPUT_OFFSETS[self.coordinates]
        x1 = at["column"] + fractions[at["beside"]] - 0.5 + INPUT_OFFSETS[self.coordinates]
        if self.forward == ROTATED:
            pixels = np.column_stack([x1 + width / 2, y1 + height / 2, sizes[:, 1], sizes[:, 0]])
            return np.column_stack([pixels / self.scale, at["turn"] * (np.pi / 2)])
        return np.column_stack([x1, y1, x1 + width, y1 + height]) / self.scale

    def _form(self, place: Place) -> Form:
        # Float and float16 have the same numbers, and so the same sequences.
        element_type = "float" if self.element_type == "float16" else self.element_type
        return Form(element_type, place.samples, place.steps, place.below, place.beside)

    def _start(self, place: Place) -> int:
        """The number in the map's sequence of the first pixel of the first sample of a RoI, in channel 0."""
        height, width = (bins * each - 1 for bins, each in zip(self.bins, place.samples, strict=True))
        down, right = ((0, 0), (width, 0), (height, width), (0, height))[place.turn]
        return int(np.dot(OF_X, (place.image, 0, place.row + down, place.column + right)))

    def _bin_steps(self, place: Place) -> tuple[int, int, int]:
        """The steps in the map's sequence along channels and bins."""
        (down, right), (height, width), channel = place.steps, place.samples, OF_X[1]
        if self._channels == self.x_shape[1]:
            return channel, down * height, right * width
        rows, columns = self.bins
        return rows * columns * channel, down * height + columns * channel, right * width + channel

    def _line(self, sequence: Array, dtype: type = np.float64) -> Line:
        """A sequence for windows of a RoI."""
        most = max(bins * max(each) for bins in self.bins for each in self.samples)
        return Line(sequence, dtype, OF_X[1] * self.x_shape[1] + 2 * (OF_X[2] + 1) * most)

    def _windows(self, sequences: Sequence[Array], place: Place, lines: dict[int, Line]) -> list[Array]:
        """The windows [C, PH, PW] of a RoI into sequences; `lines` keeps what other places need, too."""
        shape, steps, start = (self._channels, *self.bins), self._bin_steps(place), self._start(place)
        for sequence in sequences:
            if id(sequence) not in lines:
                lines[id(sequence)] = self._line(sequence, sequence.dtype.type)
        return [lines[id(sequence)].window(start, shape, steps) for sequence in sequences]

    def _y(self) -> Array:
        y, lines = np.empty(self.shapes["y"], self.wide_dtype), dict[int, Line]()
        for place, rois in self._places():
            y[rois] = self._windows([pooled(self._form(place), self.mode)], place, lines)[0]
        return y

    def _dy(self, rois: Array, dtype: np.dtype | type) -> Array:
        """The gradient of some RoIs, [., C, PH, PW]."""
        shape = self.count, self._channels, *self.bins
        line = line_of_numbers(self.element_type, np.dtype(dtype), int(np.dot(OF_DY, shape)))
        dy = line.window(0, shape, OF_DY)[rois]
        if self.one_in > 1:
            kept = np.arange(int(np.dot(MIXED, shape))) % self.one_in == 0
            dy[~np.ndarray(shape, bool, kept.data, 0, MIXED)[rois]] = 0
        return dy

    def _dx(self) -> Array:
        dx = np.zeros(self.x_shape, np.float64 if math.prod(self.x_shape) <= MAX_DOUBLES else self.wide_dtype)
        lines = dict[int, Line]()
        for place, rois in self._places():
            dy = self._dy(rois, dx.dtype).sum(axis=0, dtype=dx.dtype)
            if self._channels < self.x_shape[1]:
                whole = np.zeros((self.x_shape[1], *self.bins), dx.dtype)
                of_own_bins(whole)[:] = dy
                dy = whole
            for (below, beside), grid in self._shares(place, dy, lines):
                turned = np.rot90(grid, place.turn, (1, 2))
                row, column = place.row + below, place.column + beside
                dx[place.image, :, row : row + turned.shape[1], column : column + turned.shape[2]] += turned
        return dx

    def _shares(self, place: Place, dy: Array, lines: dict[int, Line]) -> Iterator[tuple[tuple[int, int], Array]]:
        """What the pixels at each corner of the samples get from a RoI's gradient, [C, PH my, PW mx]."""
        height, width = place.samples
        if self.mode == "avg":
            grid = (dy / dy.dtype.type(height * width)).repeat(height, 1).repeat(width, 2)
            for corner, weight in zip(CORNERS, self._form(place).weights, strict=True):
                yield corner, grid * dy.dtype.type(weight)
            return
        (winners,) = self._windows([winners_of(self._form(place), self.mode)], place, lines)
        corners = CORNERS if self._extra else CORNERS[:1]
        for e, corner in enumerate(corners):
            weight = dy.dtype.type(self._form(place).weights[e] if self._extra else 1.0)
            grid = np.zeros((len(dy), self.bins[0], height, self.bins[1], width), dy.dtype)
            for a, b in np.ndindex(height, width):
                # The maximum of samples passes something to all four corners, that of weighted pixels to one.
                number = (a * width + b) * len(corners) + e if self.mode == "max" else a * width + b
                grid[:, :, a, :, b] = np.where(winners == number, dy * weight, 0)
            yield corner, grid.reshape(len(dy), self.bins[0] * height, -1)

    def _cover(self) -> tuple[float, float, float]:
        """The most products that are added up at a pixel, the largest sum of their weights, and that of weights near it.

        An error of 1 in both coordinates of each sample would change dX by at most twice the last one times the largest dY.
        """
        images, _, *lengths = self.x_shape
        cover = np.zeros((3, images, *lengths))
        for place, rois in self._places():
            each = place.samples[::-1] if place.turn % 2 else place.samples
            bins = self.bins[::-1] if place.turn % 2 else self.bins
            fractions = place.below, place.beside
            axes = [self._profile(*side) for side in zip(bins, each, fractions, strict=True)]
            rows, columns = (slice(at, at + axis.shape[1]) for at, axis in zip(place[1:3], axes, strict=True))
            cover[:, place.image, rows, columns] += len(rois) * axes[0][:, :, None] * axes[1][:, None, :]
        hits, weight, near = cover.max(axis=(1, 2, 3))
        return float(hits), float(weight), float(near)

    def _profile(self, bins: int, samples: int, fraction: float) -> Floats:
        """Along one axis of a RoI, for each pixel: the products, the sum of their weights, and that of weights near it."""
        profile = np.zeros((3, bins * samples + self._extra))
        if self.mode == "avg":
            for corner, weight in enumerate((1 - fraction, fraction)):
                profile[:, corner : corner + bins * samples] += np.array([[1.0], [weight / samples], [1 / samples]])
        else:  # each bin may pass all it has to each of its pixels
            for p in range(bins):
                profile[:, p * samples : (p + 1) * samples + self._extra] += 1.0
        return profile

    def _drois(self) -> Array:
        drois, lines = np.zeros((self.count, self.shapes["rois"][1])), dict[int, Line]()
        for place, rois in self._places():
            dy = self._dy(rois, np.float64)
            along_y, along_x = (
                [
                    np.einsum("rcij,cij->rij", dy, slopes, optimize=False)
                    for slopes in self._windows(slopes_of(self._form(place), axis), place, lines)
                ]
                for axis in (0, 1)
            )
            drois[rois] = self._moved(place, along_y, along_x).T
        return drois

    def _moved(self, place: Place, along_y: list[Array], along_x: list[Array]) -> Array:
        """The gradient [4 or 5, R] from dY times the mean slope of each bin, [R, PH, PW], and its moments."""
        i, j = np.arange(self.bins[0])[:, None], np.arange(self.bins[1])

        def along(slope: list[Array]) -> tuple[Array, Array, Array]:
            """The sums of slopes, and of slopes times the sample's position on the RoI's width and height, from 0 to 1."""
            mean, of_height, of_width = slope
            wide, high = (mean * j + of_width) / self.bins[1], (mean * i + of_height) / self.bins[0]
            return tuple(slopes.sum(axis=2).sum(axis=1) for slopes in (mean, wide, high))

        (sum_y, wide_y, high_y), (sum_x, wide_x, high_x) = along(along_y), along(along_x)
        if self.forward != ROTATED:
            return self.scale * np.array([sum_x - wide_x, sum_y - high_y, wide_x, high_y])
        cos, sin = ((1, 0), (0, 1), (-1, 0), (0, -1))[place.turn]
        height, width = (bins * each for bins, each in zip(self.bins, place.samples, strict=True))
        a_x, a_y, b_x, b_y = wide_x - sum_x / 2, wide_y - sum_y / 2, high_x - sum_x / 2, high_y - sum_y / 2
        by_w, by_h = cos * a_x - sin * a_y, sin * b_x + cos * b_y
        by_angle = height * (cos * b_x - sin * b_y) - width * (sin * a_x + cos * a_y)
        return np.array([*(self.scale * number for number in (sum_x, sum_y, by_w, by_h)), by_angle])


def seams(length: int) -> Array:
    """The multiples of `BLOCKS` within a length, and its ends."""
    inside = {n for block in BLOCKS for n in range(block, length, block)}
    return np.array(sorted({0, *inside, length}))


def _straddling(seam: Array, turn: Array, size: Array, length: int) -> Array:
    """The first pixels of windows of some sizes with a seam between two of their pixels, on an axis of some length."""
    before = 1 + turn % np.maximum(size - 1, 1)
    return np.asarray(np.clip(seam - before, 0, length - size))
