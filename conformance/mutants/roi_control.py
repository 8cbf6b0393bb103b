"""What the controls of RoiAlign and DmlRoiAlign share: a second implementation that works with dense matrices.

Each step is a method, so a mutant can replace it. The code shares nothing with the reference or the kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np

from conformance.mutants.base import Array, Node

MOST_LISTED = 4096
"""For bins with more samples than this, only those that may be inside the map are listed."""

MOST_AT_ONCE = 2**22
"""The number of candidates of a maximum that are held in memory."""


class Axis(NamedTuple):
    """Samples of one RoI along one axis of P bins: those inside the map and the first one outside of each bin, in order.

    taps, weights, slopes: [P, k, 2], the pixels that a sample reads, their weights, and the derivatives of the weights by
        the coordinate. Pixel L stands for none.
    by_r1, by_r2: [P, k], derivatives of the coordinate by the two ends of the RoI.
    inside: [P, k], whether a sample is inside the map.
    is_first: [P, k], False if a sample is repeated to fill a row.
    per_bin: the number of samples of a bin, including those left out.
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
        """The samples of some of the bins."""
        return Axis._make([*(values[bins] for values in self[:-1]), self.per_bin])

    def matrix(self, values: Array, length: int) -> Array:
        """A matrix [P, L]: for each bin, the sum over its samples of `values` [P, k, 2] at their taps."""
        made = np.zeros((len(values), length + 1))
        np.add.at(made, (np.arange(len(values))[:, None, None], self.taps), values * self.is_first[..., None])
        return made[:, :length]

    def along(self, by: Array) -> Array:
        """The derivatives [P, k, 2] of the weights by one end of the RoI."""
        return self.slopes * by[..., None]

    @property
    def counts(self) -> Array:
        """The number of samples of each bin inside the map, [P]."""
        return np.asarray((self.inside & self.is_first).sum(axis=1))


class Passed(NamedTuple):
    """The derivatives of the winners of maxima.

    is_read: [C, P, Q], whether a winner is inside the map.
    pixels: [C, P, Q, 2, 2], indices into a flat map with one more row and column, which stand for no pixel.
    weights: [C, P, Q, 2, 2], the derivatives by these pixels.
    droi: [C, P, Q, 4], the derivatives by the RoI.
    """

    is_read: Array
    pixels: Array
    weights: Array
    droi: Array


def pairs(of_y: Array, of_x: Array) -> Array:
    """Outer products: [P, Q, i, j] from [P, i] and [Q, j], or [P, Q, i, j, 2, 2] from [P, i, 2] and [Q, j, 2]."""
    if of_y.ndim == 2:
        return np.asarray(of_y[:, None, :, None] * of_x[None, :, None])
    return np.asarray(of_y[:, None, :, None, :, None] * of_x[None, :, None, :, None])


class RoiControl(Node):
    """The operators without a fault.

    NUMBERS: how many numbers a RoI has.
    """

    NUMBERS: ClassVar[int] = 4

    def answer(self, *inputs: Any) -> list[Array]:
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
        """The RoIs [R, 4] and their images [R]."""
        self.check(rois, images, shape)
        return rois.reshape(-1, self.NUMBERS).astype(np.float64), images.ravel()

    def check(self, rois: Array, images: Array, shape: Any) -> None:
        """Raise ValueError for wrong RoIs, indices or shapes."""
        if len(shape) != 4 or min(shape) < 0 or not self.are_shapes(rois.shape, images.shape):
            raise ValueError("shape")
        if not np.isfinite(rois).all() or not self.are_images(images, shape[0]):
            raise ValueError("value")
        if rois.size and 0 in shape[2:]:
            raise ValueError("no pixels")

    def are_shapes(self, rois: tuple[int, ...], images: tuple[int, ...]) -> bool:
        """Whether the shapes of RoIs and batch indices are right."""
        raise NotImplementedError

    def are_images(self, images: Array, count: int) -> bool:
        """Whether every index names an image."""
        return bool(np.all((images >= 0) & (images < count)))

    def forward(self, x: Array, rois: Array, images: Array) -> Array:
        """The result [R, C, P, Q]."""
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
        """Image n of the map, [C, H, W]."""
        return np.asarray(x[n])

    def average(self, image: Array, axis_y: Axis, axis_x: Axis) -> Array:
        """The averages of a RoI's bins, [C, P, Q]."""
        sums = self.sums(image, axis_y.weights, axis_x.weights, axis_y, axis_x)
        return np.asarray(sums / self.divisor(axis_y, axis_x))

    def sums(self, image: Array, of_y: Array, of_x: Array, axis_y: Axis, axis_x: Axis, dy: Any = 1.0) -> Array:
        """For each bin [C, P, Q], the sum over its samples of pixels times `of_y` [P, k, 2], `of_x` [Q, k, 2] and dy."""
        if self.is_dense(image, dy):
            lines = self.partial(axis_y.matrix(of_y, image.shape[1]) @ image)
            return np.asarray(self.partial(lines @ axis_x.matrix(of_x, image.shape[2]).T) * dy)
        samples = (self.pixels(image, axis_y, axis_x) * pairs(of_y, of_x)).sum(axis=(5, 6))
        samples *= np.asarray(dy)[..., None, None]
        is_read = pairs(axis_y.inside & axis_y.is_first, axis_x.inside & axis_x.is_first)
        return np.asarray(np.where(is_read, samples, 0).sum(axis=(3, 4)))

    def is_dense(self, *values: Any) -> bool:
        """Whether a matrix product is exact: it is not if 0 times an unread pixel gives NaN."""
        return all(np.isfinite(one).all() for one in values)

    def partial(self, sums: Array) -> Array:
        """Partial sums; mutants round them."""
        return sums

    def divisor(self, axis_y: Axis, axis_x: Axis) -> Any:
        """The divisor of an average."""
        return max(axis_y.per_bin * axis_x.per_bin, 1)

    def pixels(self, image: Array, axis_y: Axis, axis_x: Axis) -> Array:
        """The pixels that the samples read, [C, P, Q, i, j, 2, 2]."""
        taps_y, taps_x = axis_y.taps[:, None, :, None, :, None], axis_x.taps[None, :, None, :, None]
        return np.asarray(np.pad(image, ((0, 0), (0, 1), (0, 1)))[:, taps_y, taps_x])

    def pooled(self, image: Array, axis_y: Axis, axis_x: Axis) -> Array:
        """The maxima of a RoI's bins, [C, P, Q]."""
        rows = self.blocks(len(image), axis_y, axis_x)
        parts = [self.maximum(self.candidates(image, axis_y.of(bins), axis_x)) for bins in rows]
        return np.concatenate(parts, axis=1)

    def blocks(self, channels: int, axis_y: Axis, axis_x: Axis) -> Iterator[slice]:
        """Slices of the rows of bins that fit into memory at once."""
        bins, samples = axis_y.inside.shape
        step = max(MOST_AT_ONCE // max(channels * samples * axis_x.inside.size * 4, 1), 1)
        return (slice(first, first + step) for first in range(0, bins, step))

    def candidates(self, image: Array, axis_y: Axis, axis_x: Axis) -> Array:
        """The candidates of each maximum, [C, P, Q, candidates], in the order that decides ties."""
        values = self.reduced(self.pixels(image, axis_y, axis_x), pairs(axis_y.weights, axis_x.weights))
        inside = pairs(axis_y.inside, axis_x.inside)
        values = np.where(inside[..., None, None] if values.ndim == 7 else inside, values, self.outside_value())
        return values.reshape(*values.shape[:3], int(np.prod(values.shape[3:])))

    def outside_value(self) -> float:
        """The value of a sample outside the map."""
        return 0.0

    def reduced(self, pixels: Array, weights: Array) -> Array:
        """The values that a maximum compares: samples [C, P, Q, i, j], or weighted corners [C, P, Q, i, j, 2, 2]."""
        corners = pixels * weights
        if self.mode == "max":
            return np.asarray(corners)
        # One after the other, as the reference does: equal samples must tie.
        return np.asarray(((corners[..., 0, 0] + corners[..., 0, 1]) + corners[..., 1, 0]) + corners[..., 1, 1])

    def maximum(self, candidates: Array) -> Array:
        """The largest candidate of each bin, [C, P, Q]; 0 if there is none."""
        return np.asarray(candidates.max(axis=-1) if candidates.shape[-1] else np.zeros(candidates.shape[:-1]))

    def gradient(self, dy: Array, rois: Array, images: Array, x_shape: Any, x: Any) -> list[Array]:
        """The gradients by the map, [N, C, H, W], and by the RoIs, in their shape, as far as the node has them."""
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
        """Whether the gradient needs the map."""
        return self.mode != "avg" or self.wants_drois

    @property
    def wants_drois(self) -> bool:
        """Whether the node has the output drois."""
        return len(self.outputs) > 1 and bool(self.outputs[1])

    def sum_type(self) -> np.dtype[Any]:
        """The type in which dX is summed."""
        return np.dtype(np.float64)

    def add(self, dx: Array, n: int, part: Array) -> None:
        """Add the gradient of one RoI to that of image n."""
        dx[n] += part.astype(dx.dtype)

    def average_part(self, dy: Array, image: Array, axis_y: Axis, axis_x: Axis) -> tuple[Array, Any]:
        """The gradients of an average by the image and by the coordinates of one RoI."""
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
        """The gradient of an average by the pixels of an image, [C, H, W]."""
        if self.is_dense(dy):
            of_y, of_x = axis_y.matrix(axis_y.weights, shape[1]), axis_x.matrix(axis_x.weights, shape[2])
            return np.asarray(of_y.T @ dy @ of_x)
        made = np.zeros((shape[0], shape[1] + 1, shape[2] + 1))
        taps = axis_y.taps[:, None, :, None, :, None], axis_x.taps[None, :, None, :, None]
        channel = np.arange(len(dy)).reshape(-1, *[1] * 6)
        np.add.at(made, (channel, *taps), dy[..., None, None, None, None] * pairs(axis_y.weights, axis_x.weights))
        return made[:, :-1, :-1]

    def droi_sum(self, parts: Array) -> float:
        """The sum over channels and bins for one coordinate of a RoI."""
        return float(parts.sum())

    def dx_divisor(self, axis_y: Axis, axis_x: Axis) -> Any:
        """The divisor of dX."""
        return self.divisor(axis_y, axis_x)

    def maximum_part(self, dy: Array, image: Array, axis_y: Axis, axis_x: Axis) -> tuple[Array, Any]:
        """The gradients of a maximum by the image and by the coordinates of one RoI."""
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
        """The candidates [C, P, Q] that get the gradient, each with its share of it."""
        return [(self.winner(candidates), 1.0)]

    def winner(self, candidates: Array) -> Array:
        """The index of the largest candidate, [C, P, Q]; the first of several."""
        return np.asarray(np.argmax(candidates, axis=-1))

    def effect(self, image: Array, axis_y: Axis, axis_x: Axis, winner: Array) -> Passed:
        """The derivatives of the winning candidates [C, P, Q]."""
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
        """The result of `axes`, cached for equal RoIs."""
        key = roi.tobytes(), tuple(bins), tuple(lengths)
        if key not in self.known:
            self.known[key] = self.axes(roi, bins, lengths)
        return self.known[key]

    def axes(self, roi: Array, bins: Any, lengths: Any) -> tuple[Axis, Axis]:
        """The samples of a RoI along y and along x."""
        x1, y1, x2, y2 = map(float, self.corners(roi))
        scale_y, scale_x = self.scales()
        return self.axis(y1, y2, scale_y, bins[0], lengths[0]), self.axis(x1, x2, scale_x, bins[1], lengths[1])

    def corners(self, roi: Array) -> Any:
        """The numbers x1, y1, x2 and y2 of a RoI."""
        return roi

    def scales(self) -> tuple[float, float]:
        """The scales of y and x."""
        raise NotImplementedError

    def start(self, r1: float, scale: float) -> float:
        """The start of a RoI on the map."""
        return r1 * scale

    def size(self, r1: float, r2: float, scale: float) -> float:
        """The size of a RoI on the map."""
        return (r2 - r1) * scale

    def count(self, size: float, bins: int) -> int:
        """The number of samples of a bin."""
        raise NotImplementedError

    def adaptive_count(self, size: float, bins: int) -> int:
        """The number of samples of a bin if it depends on the bin's size."""
        return int(np.ceil(size / bins))

    def axis(self, r1: float, r2: float, scale: float, bins: int, length: int) -> Axis:
        """The samples of a RoI along one axis."""
        raise NotImplementedError

    def listed(self, first: Array, step: float, per_bin: int, length: int) -> tuple[Array, Array]:
        """The indices of each bin's samples, [P, k], and whether each is listed for the first time.

        Args:
            first: [P], the coordinate of the first sample of each bin.
            step: the distance from one sample to the next.
            per_bin: the number of samples of a bin.
            length: the number of pixels of the map.
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
        """The samples at coordinates [P, k]; `ends` are the derivatives of these by the RoI's ends."""
        inside = self.inside(c, length)
        taps, weights = self.taps(c, length), self.weights(c, length)
        slopes = np.array([-1.0, 1.0]) * self.has_slope(c, inside, length)[..., None]
        taps = np.where(inside[..., None], taps, length).astype(np.int64)
        return Axis(taps, weights * inside[..., None], slopes, *ends, inside, is_first, per_bin)

    def inside(self, c: Array, length: int) -> Array:
        """Whether samples at c are inside the map."""
        return (c >= -1) & (c <= length)

    def taps(self, c: Array, length: int) -> Array:
        """The pixels before and after each coordinate, [..., 2]."""
        raise NotImplementedError

    def weights(self, c: Array, length: int) -> Array:
        """The weights of these two pixels, [..., 2]."""
        clamped = np.clip(c, 0, length - 1)
        f = clamped - np.floor(clamped)
        return np.stack([1 - f, f], -1)

    def has_slope(self, c: Array, inside: Array, length: int) -> Array:
        """Whether the value of a sample changes with its coordinate."""
        raise NotImplementedError

    def by_ends(self, t: Array, scale: float, is_fixed: bool) -> tuple[Array, Array]:
        """The derivatives of coordinates by the two ends; `is_fixed` means that the RoI has the minimum size."""
        if is_fixed:
            return scale * np.ones_like(t), np.zeros_like(t)
        return scale * (1 - t), scale * t
