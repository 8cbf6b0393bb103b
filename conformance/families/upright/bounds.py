# SPDX-License-Identifier: MIT OR Apache-2.0
"""Forward error bounds of RoiAlign, DmlRoiAlign and their gradients: the terms for Y, dX and drois.

The coordinate of a sample is c = a + (b - a) t - I, where a and b are the ends of the RoI in pixels, t is the position of
the sample between them, and I is the input pixel offset. On a map of L pixels, no term of the coordinate is larger than

    reach = |a| + L + 1 + max(|I|, 1/2)

since beyond that a and (b - a) t have the same sign. About ten roundings are relative to it. The size b - a also has an
absolute error, three roundings of |a| + |b|, which counts only for the part of the size that lies on the map:

    delta = u (10 reach + 3 min(max |t|, reach/|size|) (|a| + |b|))

The suite has no samples that rounding could carry over a border, and no numbers of samples that it could change, unless all
intermediate numbers are exact. So delta is the whole effect of rounding on coordinates. For the same reason, the nearest
pixel does not depend on the last bit of a coordinate, and `coordinate_error` is 0 with nearest_neighbor.

The bounds are computed for each RoI from the pixels that its samples may read, because others may be infinite, NaN or large.
Weights are products of a weight along y and one along x, so their sums and maxima are computed axis by axis. The time for
this does not depend on the number of samples outside the map, and little on the number of samples on it.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from conformance.case import Case
from conformance.error_terms import ErrorTerms, Floats, finite, largest_and_steepest, unit_roundoff, with_neighbours
from conformance.expected_values import reference
from conformance.families.upright.geometry import AxisGeometry, Geometry, Mode
from ortops.reference.sampling import SampledAxis, points_inside

MIN_SIZE = 1e-9
"""In pixels. All samples of a smaller RoI count as if they were at one place."""

MAX_ADDED = 4096.0
"""Samples outside the map are assumed to be added one by one up to this number; a runtime multiplies more of them."""


def error_terms(case: Case) -> dict[str, ErrorTerms]:
    """The error terms of the outputs of a valid case of RoiAlign, DmlRoiAlign or their gradients, by name."""
    geometry = Geometry(case)
    indices, u = geometry.indices.tolist(), unit_roundoff(case.compute_dtype)
    placed = zip(indices, geometry.placed(), strict=True)
    regions, names = [_Region(geometry, n, _axis_of(y, u), _axis_of(x, u)) for n, (y, x) in placed], geometry.names
    if geometry.dy is None:
        return {names["y"]: _into_y(geometry, regions)}
    into = {names["dx"]: _into_dx, names["drois"]: _into_drois}
    return {name: into[name](geometry, regions, finite(np.abs(geometry.dy))) for name in case.outputs}


def _into_y(geometry: Geometry, regions: list[_Region]) -> ErrorTerms:
    """The error terms of Y or OutputTensor [R, C, PH, PW].

    avg and max_interpolated: the coordinate error times the steepest slope and the share of samples inside the map.
    max: the coordinate error, by which the weight of a corner changes, times the largest pixel.
    """
    count, channels, bins = len(regions), geometry.x_shape[1], geometry.sampling.bins
    magnitude, coordinate_error = np.zeros((count, channels, *bins)), np.zeros((count, channels, *bins))
    inside, terms = np.zeros((count, 1, *bins)), np.zeros((count, 1, 1, 1))
    for r, region in enumerate(regions):
        inside[r, 0], magnitude[r] = region.inside, region.pooled(np.abs(region.pixels()))
        _, steep_y, steep_x = region.largest_and_steepest
        slopes = region.y.delta * steep_y + region.x.delta * steep_x
        coordinate_error[r] = slopes[:, None, None] * (region.inside > 0 if region.mode == "max" else region.inside)
        terms[r] = 4 * region.summed
        if region.outside and region.mode == "avg":
            terms[r] += min(float(region.y.placed.axis.per_bin * region.x.placed.axis.per_bin), MAX_ADDED)
    return ErrorTerms(magnitude, terms, coordinate_error, inside)


def _into_dx(geometry: Geometry, regions: list[_Region], sizes: Floats) -> ErrorTerms:
    """The error terms of dX [N, C, H, W].

    A sample moves weight only between pixels next to those that it reads, so the coordinate error of an average depends on
    the gradient there. That of a maximum depends on the whole gradient of the RoI and channel, because the weight of the
    winning corner does not tell where its sample lies.
    """
    magnitude, coordinate_error = np.zeros(geometry.x_shape), np.zeros(geometry.x_shape)
    terms = np.zeros((2, geometry.x_shape[0], 1, 1, 1))
    is_average = geometry.sampling.mode == "avg"
    for region, dy in zip(regions, sizes, strict=True):
        n, y, x = region.n, region.y, region.x
        delta = 0.0 if geometry.sampling.nearest else y.delta + x.delta
        terms[:, n, 0, 0, 0] += y.touching * x.touching, math.prod(geometry.sampling.bins)
        if is_average:
            magnitude[n, :, y.pixels(), x.pixels()] += y.weights.means.T @ dy @ x.weights.means
            coordinate_error[n, :, y.pixels(), x.pixels()] += delta * (y.weights.near.T @ dy @ x.weights.near)
        else:
            coordinate_error[n] += 2 * delta * dy.sum(axis=(1, 2), keepdims=True)
    if not is_average:
        name, case = geometry.names["dx"], geometry.case
        inputs = {**case.inputs, geometry.names["dy"]: sizes}
        magnitude = reference(case.definition, case.attributes, inputs, [name])[name]
    most = terms[0] if is_average else terms.min(axis=0)
    return ErrorTerms(magnitude, most, coordinate_error, most)


def _into_drois(geometry: Geometry, regions: list[_Region], sizes: Floats) -> ErrorTerms:
    """The error terms of drois [..., R, 4].

    Every product is dY times the scale, a difference of pixels, and the sample's derivative by the end. It changes by twice
    the steepest slope. The difference may be computed from sums, so rounding errors are relative to the pixels themselves.
    """
    magnitude, coordinate_error, condition = (np.zeros((len(regions), 4)) for _ in range(3))
    terms = np.zeros((len(regions), 1))
    for r, (region, dy) in enumerate(zip(regions, sizes, strict=True)):
        per_end = np.array([axis.placed.scale * axis.share for axis in (region.x, region.y)] * 2)
        weight = (dy * region.inside if region.mode == "avg" else dy).sum(axis=(1, 2))
        largest, steep_y, steep_x = region.largest_and_steepest
        magnitude[r] = 2 * float(weight @ largest) * per_end
        steepest = np.array([float(weight @ steep) for steep in (steep_x, steep_y)] * 2)
        coordinate_error[r] = 2 * (region.y.delta + region.x.delta) * steepest * per_end
        condition[r] = 2 * dy.sum() * per_end
        terms[r] = 4 * dy.size * region.summed
    shape = geometry.case.inputs[geometry.names["rois"]].shape
    return ErrorTerms(
        magnitude.reshape(shape),
        terms.reshape(*shape[:-1], 1),
        coordinate_error.reshape(shape),
        condition.reshape(shape),
    )


class _Weights:
    """The weights of the K pixels that the samples of one RoI along one axis read, or that lie next to these.

    inside [P]: the share of each bin's samples on the map.
    means, near [P, K]: the weight of each pixel in the average of each bin, and the sum of that and its neighbours' weights.
    most [P, K]: the largest weight of each pixel in a sample of each bin.
    low, high: the K pixels are those from `low` to `high` - 1.
    """

    def __init__(self, axis: SampledAxis) -> None:
        bins = [[(len(s.indices), axis.taps(s.coordinate)) for s in points_inside(axis, p)] for p in range(axis.bins)]
        pixels = [tap.pixel for points in bins for _, taps in points for tap in taps if tap.pixel is not None]
        self.low, self.high = (max(min(pixels) - 1, 0), min(max(pixels) + 2, axis.length)) if pixels else (0, 0)
        self._taps = [[taps for _, taps in points] for points in bins]
        self.means, self.inside = np.zeros((axis.bins, self.high - self.low)), np.zeros(axis.bins)
        self.most = np.zeros_like(self.means)
        for p, points in enumerate(bins):
            samples = self._dense(p)
            for sample, (repeats, _) in zip(samples, points, strict=True):
                self.means[p] += sample * (repeats / axis.per_bin)
                self.inside[p] += repeats / axis.per_bin
            self.most[p] = samples.max(axis=0, initial=0.0)
        self.near = with_neighbours(self.means, 1)

    def _dense(self, p: int) -> Floats:
        samples = np.zeros((len(self._taps[p]), self.high - self.low))
        for sample, taps in zip(samples, self._taps[p], strict=True):
            for tap in taps:
                if tap.pixel is not None:
                    sample[tap.pixel - self.low] += tap.weight
        return samples

    def reached(self, mode: Mode) -> Floats:
        """The output of each bin along this axis if every pixel is 1 and samples outside the map are 0."""
        if mode == "max":
            return np.asarray(self.most.max(axis=1, initial=0.0))
        return self.inside if mode == "avg" else np.sign(self.inside)

    @functools.cached_property
    def samples(self) -> list[Floats]:
        """For each bin, the weights [samples, K] of samples at distinct places."""
        return [self._dense(p) for p in range(len(self._taps))]


@functools.lru_cache(maxsize=512)
def _weights_of(axis: Any) -> _Weights:
    """The weights of an axis, cached: the suite's two hundred thousand axes have only two thousand different ones."""
    return _Weights(axis)


class _Axis:
    """One RoI along one axis, and the weights of the pixels that it reads.

    u: the unit roundoff of the compute type.
    delta: an upper bound of the error of a coordinate.
    per_bin, touching: upper bounds of the samples of a bin on the map, and of the samples that read one pixel.
    share: the largest derivative of a sample's coordinate by an end, in units of the scale.
    """

    def __init__(self, placed: AxisGeometry, u: float) -> None:
        axis: Any = placed.axis
        self.placed = placed
        steps, size = max(placed.steps, 1), max(abs(placed.size), MIN_SIZE)
        shares = [(s - placed.offsets[1]) / steps for s in (0, placed.samples - 1) if placed.samples]
        # The largest distance of a sample on the map from the RoI's start; 1 covers a single sample in the middle.
        furthest = min(max([1.0, *map(abs, shares)]), placed.reach / size)
        density = steps / size
        self.delta = u * (10 * placed.reach + 3 * furthest * (abs(placed.first) + abs(placed.last)))
        self.per_bin = min(axis.per_bin, (axis.length + 1) * density + 1)
        self.touching = min(placed.samples, 2 * density + 1)
        self.share = max([1.0, *map(abs, shares), *(abs(1 - t) for t in shares)])
        self.weights = _weights_of(axis)

    def pixels(self, margin: int = 0) -> slice:
        """The K pixels, and `margin` more on either side."""
        return slice(max(self.weights.low - margin, 0), min(self.weights.high + margin, self.placed.axis.length))


_axis_of = functools.lru_cache(maxsize=512)(_Axis)


class _Region:
    """A RoI on image `n`.

    inside [PH, PW]: the output if every pixel is 1 and samples outside the map are 0.
    summed: an upper bound of the number of samples on the map in an output's sum; 1 for a maximum.
    outside: the absolute value of samples outside the map; 0 if it is infinite, since it then decides the whole output.
    """

    def __init__(self, geometry: Geometry, n: int, y: _Axis, x: _Axis) -> None:
        self.geometry, self.n, self.y, self.x, self.mode = geometry, n, y, x, geometry.sampling.mode
        self.inside = np.multiply.outer(y.weights.reached(self.mode), x.weights.reached(self.mode))
        self.summed = y.per_bin * x.per_bin if self.mode == "avg" else 1.0
        self.outside = abs(geometry.sampling.outside) if math.isfinite(geometry.sampling.outside) else 0.0

    def pixels(self, margin: int = 0) -> Floats:
        """The pixels that it reads and `margin` more on either side, [C, K, L]; infinities and NaN are replaced by 0."""
        assert self.geometry.x is not None  # noqa: S101  # used only where the map is read
        return finite(self.geometry.x[self.n][:, self.y.pixels(margin), self.x.pixels(margin)])

    @functools.cached_property
    def largest_and_steepest(self) -> tuple[Floats, Floats, Floats]:
        """For each channel [C], the largest pixel that a sample may read, and the steepest slopes along y and along x."""
        if self.geometry.sampling.nearest:
            return (np.zeros(self.geometry.x_shape[1]),) * 3
        terms = largest_and_steepest(self.pixels(math.ceil(min(max(self.y.delta, self.x.delta), 1e9))))
        return (terms[0],) * 3 if self.mode == "max" else terms

    def pooled(self, pixels: Floats) -> Floats:
        """The outputs [C, PH, PW] for pixels that are not negative, with the value `outside` outside the map."""
        if self.mode == "avg":
            return np.asarray(self.y.weights.means @ pixels @ self.x.weights.means.T + self.outside * (1 - self.inside))
        y = np.zeros((len(pixels), *self.inside.shape))
        for p, q in np.ndindex(self.inside.shape):
            rows, columns = np.flatnonzero(self.y.weights.most[p]), np.flatnonzero(self.x.weights.most[q])
            values = pixels[:, rows][:, :, columns]
            if self.mode == "max":
                values = values * np.multiply.outer(self.y.weights.most[p, rows], self.x.weights.most[q, columns])
            else:
                values = self.y.weights.samples[p][:, rows] @ values @ self.x.weights.samples[q][:, columns].T
            outside = self.outside if min(self.y.weights.inside[p], self.x.weights.inside[q]) < 1 else 0.0
            y[:, p, q] = values.max(axis=(1, 2), initial=outside)
        return y
