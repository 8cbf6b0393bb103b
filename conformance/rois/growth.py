"""RoiAlign, DmlRoiAlign and their gradients: how errors grow into Y, dX and drois.

A sample's coordinate is c = a + (b - a) t - I: a and b the RoI's ends in pixels, t the sample's place between them, I the
input's pixel offset. Of the terms of a coordinate on a map of L pixels none is larger than

    reach = |a| + L + 1 + max(|I|, 1/2)

(a and (b - a) t have one sign beyond that), and about ten roundings are relative to it. The size b - a has an absolute
error besides, three roundings of |a| + |b|, of which only the part of the size counts that lies on the map:

    delta = u (10 reach + 3 min(max |t|, reach/|size|) (|a| + |b|))

Samples whose rounding could carry them over a border, and numbers of samples that it could change, are not in the suite
unless every number on the way is exact, so delta is all that coordinates do. For the same reason the nearest pixel does
not depend on the last bit of a coordinate, and values of the nearest pixels have no drift.

Everything is counted RoI by RoI, from the pixels that its samples may read: others may be infinite or NaN, or large.
Weights are products of one of y and one of x, so sums and maxima of them are taken axis by axis; the time that this takes
does not depend on how many samples lie beside the map, and little on how many lie on it.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from conformance.case import Case
from conformance.expected_values import Floats, reference
from conformance.growth import Growth, arithmetic, unit
from conformance.rois.question import Placed, Question, question_of
from ortops.reference.sampling import points_inside

LEAST_SIZE = 1e-9
"""Pixels. A RoI that is smaller has all of its samples at one place as far as counting them goes."""

MOST_ADDED = 4096.0
"""Samples off the map. A runtime that met more would multiply their value by their number, or not come to an end."""

finite = functools.partial(np.nan_to_num, nan=0.0, posinf=0.0, neginf=0.0)
"""The values, 0 where they are no finite numbers: those are compared exactly, if they count."""


def growth(case: Case) -> dict[str, Growth]:
    """Growth into the outputs of a right case of an operator with RoIs or its gradient, under the case's names."""
    question = question_of(case)
    indices, u = question.indices.tolist(), unit(arithmetic(case))
    placed = zip(indices, question.placed(), strict=True)
    regions, names = [_Region(question, n, _Axis(y, u), _Axis(x, u)) for n, (y, x) in placed], question.names
    if question.dy is None:
        return {names["y"]: _into_y(question, regions)}
    into = {names["dx"]: _into_dx, names["drois"]: _into_drois}
    return {name: into[name](question, regions, finite(np.abs(question.dy))) for name in case.outputs}


def _into_y(question: Question, regions: list[_Region]) -> Growth:
    """Growth into Y or OutputTensor [R, C, PH, PW].

    avg and max_interpolated: a coordinate's error costs the steepest slope, for the share of samples inside the map.
    max: a corner's weight changes by as much as the coordinate, times the largest pixel.
    """
    count, channels, bins = len(regions), question.x_shape[1], question.sampling.bins
    magnitude, drift = np.zeros((count, channels, *bins)), np.zeros((count, channels, *bins))
    inside, terms = np.zeros((count, 1, *bins)), np.zeros((count, 1, 1, 1))
    for r, region in enumerate(regions):
        inside[r, 0], magnitude[r] = region.inside, region.pooled(np.abs(region.pixels()))
        _, steep_y, steep_x = region.largest_and_steepest
        slopes = region.y.delta * steep_y + region.x.delta * steep_x
        drift[r] = slopes[:, None, None] * (region.inside > 0 if region.mode == "max" else region.inside)
        terms[r] = 4 * region.summed
        if region.outside and region.mode == "avg":
            terms[r] += min(float(region.y.placed.axis.per_bin * region.x.placed.axis.per_bin), MOST_ADDED)
    return Growth(magnitude, terms, drift, inside)


def _into_dx(question: Question, regions: list[_Region], sizes: Floats) -> Growth:
    """Growth into dX [N, C, H, W].

    A sample that reads a pixel has all its weight within one pixel of it, so a mean drifts by what lies there, and a
    maximum by all of the gradient of the RoI and channel: a winner's weight does not tell its sample's.
    """
    magnitude, drift = np.zeros(question.x_shape), np.zeros(question.x_shape)
    terms = np.zeros((2, question.x_shape[0], 1, 1, 1))
    is_average = question.sampling.mode == "avg"
    for region, dy in zip(regions, sizes, strict=True):
        n, y, x = region.n, region.y, region.x
        delta = 0.0 if question.sampling.nearest else y.delta + x.delta
        terms[:, n, 0, 0, 0] += y.touching * x.touching, math.prod(question.sampling.bins)
        if is_average:
            magnitude[n, :, y.pixels(), x.pixels()] += y.means.T @ dy @ x.means
            drift[n, :, y.pixels(), x.pixels()] += delta * (y.near.T @ dy @ x.near)
        else:
            drift[n] += 2 * delta * dy.sum(axis=(1, 2), keepdims=True)
    if not is_average:
        name, case = question.names["dx"], question.case
        inputs = {**case.inputs, question.names["dy"]: sizes}
        magnitude = reference(case.definition, case.attributes, inputs, [name])[name]
    most = terms[0] if is_average else terms.min(axis=0)
    return Growth(magnitude, most, drift, most)


def _into_drois(question: Question, regions: list[_Region], sizes: Floats) -> Growth:
    """Growth into drois [..., R, 4].

    Every term is dY S times a difference of pixels and its share of the end, and moves by twice the steepest slope.
    The difference may be taken of sums, so that what is rounded is as large as the pixels themselves.
    """
    magnitude, drift, gain = (np.zeros((len(regions), 4)) for _ in range(3))
    terms = np.zeros((len(regions), 1))
    for r, (region, dy) in enumerate(zip(regions, sizes, strict=True)):
        per_end = np.array([axis.placed.scale * axis.share for axis in (region.x, region.y)] * 2)
        weight = (dy * region.inside if region.mode == "avg" else dy).sum(axis=(1, 2))
        largest, steep_y, steep_x = region.largest_and_steepest
        magnitude[r] = 2 * float(weight @ largest) * per_end
        steepest = np.array([float(weight @ steep) for steep in (steep_x, steep_y)] * 2)
        drift[r] = 2 * (region.y.delta + region.x.delta) * steepest * per_end
        gain[r] = 2 * dy.sum() * per_end
        terms[r] = 4 * dy.size * region.summed
    shape = question.case.inputs[question.names["rois"]].shape
    return Growth(magnitude.reshape(shape), terms.reshape(*shape[:-1], 1), drift.reshape(shape), gain.reshape(shape))


class _Axis:
    """One RoI along one axis: its numbers, and the weights of the K pixels that it reads, or that lie beside these.

    u: the rounding of the arithmetic.
    delta: the largest error of a coordinate.
    per_bin, touching: samples of a bin on the map, and samples that read any one pixel, at most.
    share: the most that a sample moves with an end, in units of the scale.
    inside [P]: the share of each bin's samples that lies on the map.
    means, near [P, K]: each pixel's weight in the mean of each bin, and the sum of its own and its neighbours'.
    samples, most: of each bin the weights [samples, K] of samples at different places, and the largest [K] of them.
    """

    def __init__(self, placed: Placed, u: float) -> None:
        self.placed, axis = placed, placed.axis
        steps, size = max(placed.steps, 1), max(abs(placed.size), LEAST_SIZE)
        shares = [(s - placed.offsets[1]) / steps for s in (0, placed.samples - 1) if placed.samples]
        # As far as a sample on the map is from the RoI's start; 1 covers a lone sample in the middle.
        furthest = min(max([1.0, *map(abs, shares)]), placed.reach / size)
        density = steps / size
        self.delta = u * (10 * placed.reach + 3 * furthest * (abs(placed.first) + abs(placed.last)))
        self.per_bin = min(axis.per_bin, (axis.length + 1) * density + 1)
        self.touching = min(placed.samples, 2 * density + 1)
        self.share = max([1.0, *map(abs, shares), *(abs(1 - t) for t in shares)])
        bins = [[(len(s.indices), axis.taps(s.coordinate)) for s in points_inside(axis, p)] for p in range(axis.bins)]
        pixels = [tap.pixel for points in bins for _, taps in points for tap in taps if tap.pixel is not None]
        self._low, self._high = (max(min(pixels) - 1, 0), min(max(pixels) + 2, axis.length)) if pixels else (0, 0)
        self.samples = [np.zeros((len(points), self._high - self._low)) for points in bins]
        self.means, self.inside = np.zeros((axis.bins, self._high - self._low)), np.zeros(axis.bins)
        for p, points in enumerate(bins):
            for i, (repeats, taps) in enumerate(points):
                for tap in taps:
                    if tap.pixel is not None:
                        self.samples[p][i, tap.pixel - self._low] += tap.weight
                self.means[p] += self.samples[p][i] * (repeats / axis.per_bin)
                self.inside[p] += repeats / axis.per_bin
        self.most = np.array([sample.max(axis=0, initial=0.0) for sample in self.samples])
        self.near = self.means.copy()
        self.near[:, 1:] += self.means[:, :-1]
        self.near[:, :-1] += self.means[:, 1:]

    def pixels(self, margin: int = 0) -> slice:
        """The K pixels, and so many more on either side."""
        return slice(max(self._low - margin, 0), min(self._high + margin, self.placed.axis.length))


class _Region:
    """A RoI on image `n`.

    inside [PH, PW]: what the output is where every pixel is 1 and what is outside is 0.
    summed: of how many samples on the map an output is the sum, at most: a maximum is one of them.
    outside: the size of what is outside; 0 for an infinite one, which is all of an output or nothing of it.
    """

    def __init__(self, question: Question, n: int, y: _Axis, x: _Axis) -> None:
        self.question, self.n, self.y, self.x, self.mode = question, n, y, x, question.sampling.mode
        inside = {
            "avg": (y.inside, x.inside),
            "max": (y.most.max(axis=1, initial=0.0), x.most.max(axis=1, initial=0.0)),
            "max_interpolated": (np.sign(y.inside), np.sign(x.inside)),
        }
        self.inside: Floats = np.multiply.outer(*inside[self.mode])
        self.summed = y.per_bin * x.per_bin if self.mode == "avg" else 1.0
        self.outside = float(finite(abs(question.sampling.outside)))

    def pixels(self, margin: int = 0) -> Floats:
        """[C, K, L]: those that it reads, and so many more on either side; 0 where they are no numbers."""
        assert self.question.x is not None  # noqa: S101  # asked only where the map is read
        return np.asarray(finite(self.question.x[self.n][:, self.y.pixels(margin), self.x.pixels(margin)]))

    @functools.cached_property
    def largest_and_steepest(self) -> tuple[Floats, Floats, Floats]:
        """[C]: the largest pixel that a sample may read, and what an error of a pixel in y, and x, changes a value by."""
        if self.question.sampling.nearest:
            return (np.zeros(self.question.x_shape[1]),) * 3
        x = self.pixels(math.ceil(min(max(self.y.delta, self.x.delta), 1e9)))
        largest = np.abs(x).max(axis=(1, 2), initial=0.0)
        if self.mode == "max":
            return largest, largest, largest
        with np.errstate(over="ignore"):
            steepest = [np.abs(np.diff(x, axis=axis)).max(axis=(1, 2), initial=0.0) for axis in (1, 2)]
        most = np.finfo(np.float64).max
        return largest, np.minimum(steepest[0], most), np.minimum(steepest[1], most)

    def pooled(self, pixels: Floats) -> Floats:
        """[C, PH, PW]: the outputs of pixels that are not negative, with the value `outside` off the map."""
        if self.mode == "avg":
            return np.asarray(self.y.means @ pixels @ self.x.means.T + self.outside * (1 - self.inside))
        y = np.zeros((len(pixels), *self.inside.shape))
        for p, q in np.ndindex(self.inside.shape):
            rows, columns = np.flatnonzero(self.y.most[p]), np.flatnonzero(self.x.most[q])
            values = pixels[:, rows][:, :, columns]
            if self.mode == "max":
                values = values * np.multiply.outer(self.y.most[p, rows], self.x.most[q, columns])
            else:
                values = self.y.samples[p][:, rows] @ values @ self.x.samples[q][:, columns].T
            outside = self.outside if min(self.y.inside[p], self.x.inside[q]) < 1 else 0.0
            y[:, p, q] = values.max(axis=(1, 2), initial=outside)
        return y
