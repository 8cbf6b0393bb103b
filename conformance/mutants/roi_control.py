"""The operators on RoIs a second time, as dense matrices: what ONNX's and DirectML's have in common.

Each step is a method, so that a fault changes one. It shares nothing with the reference or the kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np

from conformance.mutants.base import Array, Node

MOST_LISTED = 4096
"""Of a bin with more samples those are listed that may be inside the map."""

MOST_AT_ONCE = 2**22
"""Candidates of a maximum that are in memory."""


class Axis(NamedTuple):
    """Samples of one RoI along one axis of P bins: those inside the map, and the first outside of each bin, in order.

    taps, weights, slopes: [P, k, 2], the pixels that a sample reads, and of each its weight and the derivative of that by
        the coordinate. Pixel L stands for none.
    by_r1, by_r2: [P, k], derivatives of the coordinate.
    inside: [P, k], whether a sample is inside the map.
    is_first: [P, k], False where a sample is listed again to fill a row.
    per_bin: samples of a bin, those left out included.
    """

    taps: Array
    weights: Array
    slopes: Array
    by_r1: Array
    by_r2: Array
    inside: Array
    is_first: Array
    per_bin: int

    def of(self, bins: slice) -> Axis:
        """Some of the bins."""
        return Axis._make([*(values[bins] for values in self[:-1]), self.per_bin])

    def matrix(self, values: Array, length: int) -> Array:
        """[P, L]: for each bin the sum over its samples of `values` [P, k, 2] at their taps."""
        made = np.zeros((len(values), length + 1))
        np.add.at(made, (np.arange(len(values))[:, None, None], self.taps), values * self.is_first[..., None])
        return made[:, :length]

    def along(self, by: Array) -> Array:
        """[P, k, 2]: the derivatives of the weights by one end of the RoI."""
        return self.slopes * by[..., None]

    @property
    def counts(self) -> Array:
        """[P]: samples inside the map."""
        return np.asarray((self.inside & self.is_first).sum(axis=1))


class Passed(NamedTuple):
    """What the winners of a maximum pass on.

    is_read: [C, P, Q], whether a winner is inside the map.
    pixels: [C, P, Q, 2, 2], indices into the flat map with a row and a column more, of which the last stands for none.
    weights: [C, P, Q, 2, 2]. droi: [C, P, Q, 4].
    """

    is_read: Array
    pixels: Array
    weights: Array
    droi: Array


def pairs(of_y: Array, of_x: Array) -> Array:
    """[P, Q, i, j]: the products of [P, i] and [Q, j]; [P, Q, i, j, 2, 2] those of [P, i, 2] and [Q, j, 2]."""
    if of_y.ndim == 2:
        return np.asarray(of_y[:, None, :, None] * of_x[None, :, None])
    return np.asarray(of_y[:, None, :, None, :, None] * of_x[None, :, None, :, None])


class RoiControl(Node):
    """The operators without a fault: passes every case.

    NUMBERS: how many a RoI has.
    """

    NUMBERS: ClassVar[int] = 4

    def answer(self, *inputs: Any) -> list[Array]:
        """As `Node`."""
        self.known: dict[Any, tuple[Axis, Axis]] = {}
        first, rois, images, *rest = inputs
        if rois is None or images is None:
            raise ValueError("inputs")
        if not self.is_gradient:
            return [self.forward(first, *self.regions(rois, images, first.shape))]
        x_shape, x = (*rest, None)[:2]
        return self.gradient(first, rois, images, x_shape, x)

    @property
    def mode(self) -> str:
        """One of avg, max and max_interpolated."""
        raise NotImplementedError

    def regions(self, rois: Array, images: Array, shape: Any) -> tuple[Array, Array]:
        """[R, 4] and [R]."""
        self.check(rois, images, shape)
        return rois.reshape(-1, self.NUMBERS).astype(np.float64), images.ravel()

    def check(self, rois: Array, images: Array, shape: Any) -> None:
        """Refuses data that are wrong."""
        if len(shape) != 4 or min(shape) < 0 or not self.are_shapes(rois.shape, images.shape):
            raise ValueError("shape")
        if not np.isfinite(rois).all() or not self.are_images(images, shape[0]):
            raise ValueError("value")
        if rois.size and 0 in shape[2:]:
            raise ValueError("no pixels")

    def are_shapes(self, rois: tuple[int, ...], images: tuple[int, ...]) -> bool:
        """Whether RoIs and batch indices have shapes that go together."""
        raise NotImplementedError

    def are_images(self, images: Array, count: int) -> bool:
        """Whether every index is of an image."""
        return bool(np.all((images >= 0) & (images < count)))

    def forward(self, x: Array, rois: Array, images: Array) -> Array:
        """[R, C, P, Q]."""
        bins = self.attributes["output_height"], self.attributes["output_width"]
        y = np.zeros((len(rois), x.shape[1], *bins))
        for r, roi in enumerate(rois):
            image = self.image(x, self.image_of(r, images)).astype(np.float64)
            axes = self.known_axes(roi, bins, x.shape[2:])
            y[r] = self.average(image, *axes) if self.mode == "avg" else self.pooled(image, *axes)
        return y

    def image_of(self, r: int, images: Array) -> int:
        """The image of RoI r."""
        return int(images[r])

    def image(self, x: Array, n: int) -> Array:
        """[C, H, W]: the image n of the map."""
        return np.asarray(x[n])

    def average(self, image: Array, axis_y: Axis, axis_x: Axis) -> Array:
        """[C, P, Q]."""
        sums = self.sums(image, axis_y.weights, axis_x.weights, axis_y, axis_x)
        return np.asarray(sums / self.divisor(axis_y, axis_x))

    def sums(self, image: Array, of_y: Array, of_x: Array, axis_y: Axis, axis_x: Axis, dy: Any = 1.0) -> Array:
        """[C, P, Q]: of each bin the sum over its samples of the pixels times [P, k, 2], times [Q, k, 2], times dy."""
        if self.is_dense(image, dy):
            lines = self.partial(axis_y.matrix(of_y, image.shape[1]) @ image)
            return np.asarray(self.partial(lines @ axis_x.matrix(of_x, image.shape[2]).T) * dy)
        samples = (self.pixels(image, axis_y, axis_x) * pairs(of_y, of_x)).sum(axis=(5, 6))
        samples *= np.asarray(dy)[..., None, None]
        is_read = pairs(axis_y.inside & axis_y.is_first, axis_x.inside & axis_x.is_first)
        return np.asarray(np.where(is_read, samples, 0).sum(axis=(3, 4)))

    def is_dense(self, *values: Any) -> bool:
        """Whether a product of a matrix will do: not where 0 times a pixel that no sample reads is NaN."""
        return all(np.isfinite(one).all() for one in values)

    def partial(self, sums: Array) -> Array:
        """Sums that are not the result yet."""
        return sums

    def divisor(self, axis_y: Axis, axis_x: Axis) -> Any:
        """Of the average."""
        return max(axis_y.per_bin * axis_x.per_bin, 1)

    def pixels(self, image: Array, axis_y: Axis, axis_x: Axis) -> Array:
        """[C, P, Q, i, j, 2, 2]: what the samples read."""
        taps_y, taps_x = axis_y.taps[:, None, :, None, :, None], axis_x.taps[None, :, None, :, None]
        return np.asarray(np.pad(image, ((0, 0), (0, 1), (0, 1)))[:, taps_y, taps_x])

    def pooled(self, image: Array, axis_y: Axis, axis_x: Axis) -> Array:
        """[C, P, Q]: maxima."""
        rows = self.blocks(len(image), axis_y, axis_x)
        parts = [self.maximum(self.candidates(image, axis_y.of(bins), axis_x)) for bins in rows]
        return np.concatenate(parts, axis=1)

    def blocks(self, channels: int, axis_y: Axis, axis_x: Axis) -> Iterator[slice]:
        """Rows of bins, as many as may be done at once."""
        bins, samples = axis_y.inside.shape
        step = max(MOST_AT_ONCE // max(channels * samples * axis_x.inside.size * 4, 1), 1)
        return (slice(first, first + step) for first in range(0, bins, step))

    def candidates(self, image: Array, axis_y: Axis, axis_x: Axis) -> Array:
        """[C, P, Q, candidates of a bin] in the order that decides ties."""
        values = self.reduced(self.pixels(image, axis_y, axis_x), pairs(axis_y.weights, axis_x.weights))
        inside = pairs(axis_y.inside, axis_x.inside)
        values = np.where(inside[..., None, None] if values.ndim == 7 else inside, values, self.outside_value())
        return values.reshape(*values.shape[:3], int(np.prod(values.shape[3:])))

    def outside_value(self) -> float:
        """What a sample outside the map is."""
        return 0.0

    def reduced(self, pixels: Array, weights: Array) -> Array:
        """What the maximum is over: [C, P, Q, i, j] samples, or their corners [C, P, Q, i, j, 2, 2]."""
        corners = pixels * weights
        if self.mode == "max":
            return np.asarray(corners)
        # One after the other, as the reference does: equal samples must tie.
        return np.asarray(((corners[..., 0, 0] + corners[..., 0, 1]) + corners[..., 1, 0]) + corners[..., 1, 1])

    def maximum(self, candidates: Array) -> Array:
        """[C, P, Q]: the largest, 0 where there is none."""
        return np.asarray(candidates.max(axis=-1) if candidates.shape[-1] else np.zeros(candidates.shape[:-1]))

    def gradient(self, dy: Array, rois: Array, images: Array, x_shape: Any, x: Any) -> list[Array]:
        """The gradients by the map [N, C, H, W] and by the RoIs, in their shape; those that are wanted."""
        if x_shape is None or x_shape.shape != (4,) or dy.ndim != 4 or dy.shape[1] != x_shape[1] or 0 in dy.shape[2:]:
            raise ValueError("shape")
        if self.needs_x() if x is None else x.shape != tuple(x_shape):
            raise ValueError("X")
        stored, (rois, images) = rois.shape, self.regions(rois, images, x_shape)
        if len(dy) != len(rois):
            raise ValueError("shape")
        dx, drois = np.zeros(x_shape, self.sum_type()), np.zeros((len(rois), self.NUMBERS))
        part = self.average_part if self.mode == "avg" else self.maximum_part
        for r, roi in enumerate(rois):
            n = self.image_of(r, images)
            image = np.zeros(x_shape[1:]) if x is None else self.image(x, n).astype(np.float64)
            axes = self.known_axes(roi, dy.shape[2:], image.shape[1:])
            dx_part, drois[r] = part(dy[r].astype(np.float64), image, *axes)
            self.add(dx, n, dx_part)
        made = dx, drois.reshape(*stored[:-1], self.NUMBERS)
        return [g for g, name in zip(made, self.outputs, strict=False) if name]

    def needs_x(self) -> bool:
        """Whether the map must be given."""
        return self.mode != "avg" or self.wants_drois

    @property
    def wants_drois(self) -> bool:
        """Whether the node has the gradient by the RoIs."""
        return len(self.outputs) > 1 and bool(self.outputs[1])

    def sum_type(self) -> np.dtype[Any]:
        """In which the map's gradient is summed."""
        return np.dtype(np.float64)

    def add(self, dx: Array, n: int, part: Array) -> None:
        """Adds what one RoI passes to image n."""
        dx[n] += part.astype(dx.dtype)

    def average_part(self, dy: Array, image: Array, axis_y: Axis, axis_x: Axis) -> tuple[Array, Any]:
        """What one RoI of an average passes to its image and to its coordinates."""
        dx = self.spread(dy, image.shape, axis_y, axis_x) / self.dx_divisor(axis_y, axis_x)
        if not self.wants_drois:
            return dx, np.zeros(4)
        y, x, divisor = axis_y.weights, axis_x.weights, self.divisor(axis_y, axis_x)
        ends = (
            (y, axis_x.along(axis_x.by_r1)),
            (axis_y.along(axis_y.by_r1), x),
            (y, axis_x.along(axis_x.by_r2)),
            (axis_y.along(axis_y.by_r2), x),
        )
        return dx, [self.droi_sum(self.sums(image, *end, axis_y, axis_x, dy) / divisor) for end in ends]

    def spread(self, dy: Array, shape: Any, axis_y: Axis, axis_x: Axis) -> Array:
        """[C, H, W]: what the samples of an average pass to the pixels that they read."""
        if self.is_dense(dy):
            of_y, of_x = axis_y.matrix(axis_y.weights, shape[1]), axis_x.matrix(axis_x.weights, shape[2])
            return np.asarray(of_y.T @ dy @ of_x)
        made = np.zeros((shape[0], shape[1] + 1, shape[2] + 1))
        taps = axis_y.taps[:, None, :, None, :, None], axis_x.taps[None, :, None, :, None]
        channel = np.arange(len(dy)).reshape(-1, *[1] * 6)
        np.add.at(made, (channel, *taps), dy[..., None, None, None, None] * pairs(axis_y.weights, axis_x.weights))
        return made[:, :-1, :-1]

    def droi_sum(self, parts: Array) -> float:
        """Of what channels and bins pass to a coordinate."""
        return float(parts.sum())

    def dx_divisor(self, axis_y: Axis, axis_x: Axis) -> Any:
        """By which what the map's gradient gets is divided."""
        return self.divisor(axis_y, axis_x)

    def maximum_part(self, dy: Array, image: Array, axis_y: Axis, axis_x: Axis) -> tuple[Array, Any]:
        """What one RoI of a maximum passes to its image and to its coordinates."""
        channels, height, width = image.shape
        dx, droi = np.zeros((channels, (height + 1) * (width + 1))), np.zeros(4)
        channel = np.arange(channels)[:, None, None, None, None]
        for bins in self.blocks(channels, axis_y, axis_x):
            rows = axis_y.of(bins)
            candidates = self.candidates(image, rows, axis_x)
            for winner, share in self.winners(candidates) if candidates.shape[-1] else ():
                passed = self.effect(image, rows, axis_x, winner)
                by = np.where(passed.is_read, share * dy[:, bins], 0.0)
                np.add.at(dx, (channel, passed.pixels), by[..., None, None] * passed.weights)
                droi += np.where(passed.is_read[..., None], by[..., None] * passed.droi, 0.0).sum(axis=(0, 1, 2))
        return dx.reshape(channels, height + 1, width + 1)[:, :-1, :-1], droi

    def winners(self, candidates: Array) -> list[tuple[Array, Any]]:
        """[C, P, Q] candidates that get the gradient, each with its share of it."""
        return [(self.winner(candidates), 1.0)]

    def winner(self, candidates: Array) -> Array:
        """[C, P, Q]: the largest; of equals the first."""
        return np.asarray(np.argmax(candidates, axis=-1))

    def effect(self, image: Array, axis_y: Axis, axis_x: Axis, winner: Array) -> Passed:
        """The derivatives of the candidates [C, P, Q]."""
        sample, corner = np.divmod(winner, 4 if self.mode == "max" else 1)
        i, j = np.divmod(sample, axis_x.inside.shape[1])
        p, q = np.ogrid[: len(axis_y.inside), : len(axis_x.inside)]
        is_read = axis_y.inside[p, i] & axis_x.inside[q, j]
        is_passed = is_read[..., None, None]
        if self.mode == "max":
            is_passed = is_passed & (corner[..., None, None] == np.array([[0, 1], [2, 3]]))
        rows, columns = axis_y.taps[p, i][..., :, None], axis_x.taps[q, j][..., None, :]
        values = np.pad(image, ((0, 0), (0, 1), (0, 1)))[
            np.arange(len(image))[:, None, None, None, None], rows, columns
        ]
        of_y, of_x = axis_y.weights[p, i][..., :, None], axis_x.weights[q, j][..., None, :]
        slope_y, slope_x = axis_y.slopes[p, i][..., :, None], axis_x.slopes[q, j][..., None, :]
        in_y, in_x = (np.where(is_passed, s * values, 0).sum(axis=(3, 4)) for s in (slope_y * of_x, slope_x * of_y))
        by_x, by_y = (axis_x.by_r1[q, j], axis_x.by_r2[q, j]), (axis_y.by_r1[p, i], axis_y.by_r2[p, i])
        width = image.shape[2] + 1
        pixels = np.where(is_passed, rows * width + columns, (image.shape[1] + 1) * width - 1)
        droi = np.stack([in_x * by_x[0], in_y * by_y[0], in_x * by_x[1], in_y * by_y[1]], axis=-1)
        return Passed(is_read, pixels, np.where(is_passed, of_y * of_x, 0), droi)

    def known_axes(self, roi: Array, bins: Any, lengths: Any) -> tuple[Axis, Axis]:
        """As `axes`, made once for equal RoIs."""
        question = roi.tobytes(), tuple(bins), tuple(lengths)
        if question not in self.known:
            self.known[question] = self.axes(roi, bins, lengths)
        return self.known[question]

    def axes(self, roi: Array, bins: Any, lengths: Any) -> tuple[Axis, Axis]:
        """The samples along y and x."""
        x1, y1, x2, y2 = map(float, self.corners(roi))
        scale_y, scale_x = self.scales()
        return self.axis(y1, y2, scale_y, bins[0], lengths[0]), self.axis(x1, x2, scale_x, bins[1], lengths[1])

    def corners(self, roi: Array) -> Any:
        """X1 y1 x2 y2 of a RoI."""
        return roi

    def scales(self) -> tuple[float, float]:
        """Of y and x."""
        raise NotImplementedError

    def start(self, r1: float, scale: float) -> float:
        """Where the RoI begins on the map."""
        return r1 * scale

    def size(self, r1: float, r2: float, scale: float) -> float:
        """How far it goes."""
        return (r2 - r1) * scale

    def count(self, size: float, bins: int) -> int:
        """Samples of a bin."""
        raise NotImplementedError

    def adaptive_count(self, size: float, bins: int) -> int:
        """The same where the size of a bin decides."""
        return int(np.ceil(size / bins))

    def axis(self, r1: float, r2: float, scale: float, bins: int, length: int) -> Axis:
        """The samples of a RoI's side."""
        raise NotImplementedError

    def listed(self, first: Array, step: float, per_bin: int, length: int) -> tuple[Array, Array]:
        """[P, k]: indices of each bin's samples, and whether they are not there to fill the row.

        Args:
            first: [P], where the first sample of each bin lies.
            step: from one sample to the next.
            per_bin: samples of a bin.
            length: pixels of the map.
        """
        if per_bin <= MOST_LISTED:
            return np.tile(np.arange(float(per_bin)), (len(first), 1)), np.ones((len(first), per_bin), bool)
        edges = np.sort((np.array([-1.0, length]) - first[:, None]) / step)
        begin = np.clip(np.floor(edges[:, 0]) - 2, 0, per_bin)
        end = np.clip(np.ceil(edges[:, 1]) + 3, 0, per_bin)
        # The first sample outside the map is a sample before `begin`, the first of all, or one before `end`.
        of_bins = [np.unique([0.0, *np.arange(a, b)]) for a, b in zip(begin, end, strict=True)]
        most = max(map(len, of_bins))
        is_first = np.array([np.arange(most) < len(one) for one in of_bins])
        return np.array([np.pad(one, (0, most - len(one)), "edge") for one in of_bins]), is_first

    def sampled(self, c: Array, ends: tuple[Array, Array], is_first: Array, per_bin: int, length: int) -> Axis:
        """Samples at coordinates [P, k], with the derivatives of these by the RoI's ends."""
        inside = self.inside(c, length)
        taps, weights = self.taps(c, length), self.weights(c, length)
        slopes = np.array([-1.0, 1.0]) * self.has_slope(c, inside, length)[..., None]
        taps = np.where(inside[..., None], taps, length).astype(np.int64)
        return Axis(taps, weights * inside[..., None], slopes, *ends, inside, is_first, per_bin)

    def inside(self, c: Array, length: int) -> Array:
        """Whether samples at c read the map."""
        return (c >= -1) & (c <= length)

    def taps(self, c: Array, length: int) -> Array:
        """[..., 2]: the pixels before and after."""
        raise NotImplementedError

    def weights(self, c: Array, length: int) -> Array:
        """[..., 2]: how much a sample has of either."""
        clamped = np.clip(c, 0, length - 1)
        f = clamped - np.floor(clamped)
        return np.stack([1 - f, f], -1)

    def has_slope(self, c: Array, inside: Array, length: int) -> Array:
        """Whether what a sample reads changes with its coordinate."""
        raise NotImplementedError

    def by_ends(self, t: Array, scale: float, is_fixed: bool) -> tuple[Array, Array]:
        """Derivatives of coordinates by the two ends; is_fixed: the size of the RoI is the least one."""
        if is_fixed:
            return scale * np.ones_like(t), np.zeros_like(t)
        return scale * (1 - t), scale * t
