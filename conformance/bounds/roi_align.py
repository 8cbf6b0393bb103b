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

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from conformance.bounds.growth import Growth, arithmetic, unit
from conformance.case import Case
from conformance.expect import Floats, reference
from conformance.question import Placed, Question, question_of
from ortops.reference.sampling import points_inside

LEAST_SIZE = 1e-9
"""Pixels. A RoI that is smaller has all of its samples at one place as far as counting them goes."""

MOST_ADDED = 4096.0
"""Samples off the map. A runtime that met more would multiply their value by their number, or not come to an end."""


def forward(case: Case) -> dict[str, Growth]:
    """Growth into Y or OutputTensor [R, C, PH, PW].

    avg and max_interpolated: a coordinate's error costs the steepest slope, for the share of samples inside the map.
    max: a corner's weight changes by as much as the coordinate, times the largest pixel.
    """
    question = question_of(case)
    assert question.x is not None  # noqa: S101  # a right case has it
    shape = len(question.rois), question.x_shape[1], *question.sampling.bins
    magnitude, drift = np.zeros(shape), np.zeros(shape)
    inside, terms = np.zeros((shape[0], 1, *shape[2:])), np.zeros((shape[0], 1, 1, 1))
    for r, region in enumerate(_regions(question)):
        inside[r, 0] = region.inside
        magnitude[r] = region.pooled(np.abs(region.pixels()))
        share = region.inside > 0 if question.sampling.mode == "max" else region.inside
        drift[r] = region.drift[:, None, None] * share
        terms[r] = region.terms_of_value
    return {question.names["y"]: Growth(magnitude, terms, drift, inside)}


def gradient(case: Case) -> dict[str, Growth]:
    """Growth into dX [N, C, H, W] and drois [..., R, 4], under the case's names, of those that it has."""
    question = question_of(case)
    regions = _regions(question)
    into = {question.names["dx"]: _into_dx, question.names["drois"]: _into_drois}
    return {name: into[name](question, regions) for name in case.outputs}


def _into_dx(question: Question, regions: list[_Region]) -> Growth:
    """A sample that reads a pixel has all its weight within one pixel of it, so the mean drifts by what lies there.

    Of a maximum by all of the gradient of the RoI and channel: a winner's weight does not tell its sample's.
    """
    magnitude, drift = np.zeros(question.x_shape), np.zeros(question.x_shape)
    terms = np.zeros((2, question.x_shape[0], 1, 1, 1))
    is_average = question.sampling.mode == "avg"
    for region, n, dy in zip(regions, question.indices.tolist(), _sizes(question), strict=True):
        y, x = region.y, region.x
        delta = 0.0 if question.sampling.nearest else y.delta + x.delta
        terms[:, n, 0, 0, 0] += y.touching * x.touching, math.prod(question.sampling.bins)
        if is_average:
            magnitude[n, :, y.pixels(), x.pixels()] += y.means.T @ dy @ x.means
            drift[n, :, y.pixels(), x.pixels()] += delta * (y.near.T @ dy @ x.near)
        else:
            drift[n] += 2 * delta * dy.sum(axis=(1, 2), keepdims=True)
    if not is_average:
        name = question.names["dx"]
        inputs = {**question.case.inputs, question.names["dy"]: _sizes(question)}
        magnitude = reference(question.case.definition, question.case.attributes, inputs, [name])[name]
    most = terms[0] if is_average else terms.min(axis=0)
    return Growth(magnitude, most, drift, most)


def _into_drois(question: Question, regions: list[_Region]) -> Growth:
    """Every term is dY S times a difference of pixels and its share of the end, and moves by twice the steepest slope.

    The difference may be taken of sums, so that what is rounded is as large as the pixels themselves.
    """
    magnitude, drift, gain = (np.zeros((len(regions), 4)) for _ in range(3))
    terms = np.zeros((len(regions), 1))
    for r, (region, dy) in enumerate(zip(regions, _sizes(question), strict=True)):
        per_end = np.array([axis.placed.scale * axis.share for axis in (region.x, region.y)] * 2)
        weight = (dy * region.inside if question.sampling.mode == "avg" else dy).sum(axis=(1, 2))
        largest, steep_y, steep_x = region.largest_and_steepest
        magnitude[r] = 2 * float(weight @ largest) * per_end
        steepest = np.array([float(weight @ steep) for steep in (steep_x, steep_y)] * 2)
        drift[r] = 2 * (region.y.delta + region.x.delta) * steepest * per_end
        gain[r] = 2 * dy.sum() * per_end
        terms[r] = 4 * dy.size * region.summed
    shape = question.case.inputs[question.names["rois"]].shape
    return Growth(magnitude.reshape(shape), terms.reshape(*shape[:-1], 1), drift.reshape(shape), gain.reshape(shape))


def _regions(question: Question) -> list[_Region]:
    u = unit(arithmetic(question.case))
    return [
        _Region(question, n, _Axis(y, u), _Axis(x, u))
        for n, (y, x) in zip(question.indices.tolist(), question.placed(), strict=True)
    ]


def _sizes(question: Question) -> Floats:
    """|dY|, 0 where that is no number."""
    assert question.dy is not None  # noqa: S101  # a right gradient has it
    return _finite(np.abs(question.dy))


def _finite(values: Floats) -> Floats:
    """The values, 0 where they are none: what is infinite or NaN is compared exactly, if it counts."""
    return np.where(np.isfinite(values), values, 0.0)


class _Axis:
    """One RoI along one axis: its numbers, and the weights of the K pixels that it reads, or that lie beside these.

    u: the rounding of the arithmetic.
    means, near [P, K]: each pixel's weight in the mean of each bin, and the sum of its own and its neighbours'.
    samples, most: of each bin the weights [samples, K] of samples at different places, and the largest [K] of them.
    """

    def __init__(self, placed: Placed, u: float) -> None:
        self.placed = placed
        first, last = placed.first, placed.last
        steps, size = max(placed.steps, 1), max(abs(placed.size), LEAST_SIZE)
        shares = [(s - placed.offsets[1]) / steps for s in (0, placed.samples - 1) if placed.samples]
        # As far as a sample on the map is from the RoI's start; 1 covers a lone sample in the middle.
        furthest = min(max([1.0, *map(abs, shares)]), placed.reach / size)
        density = steps / size
        self.delta = u * (10 * placed.reach + 3 * furthest * (abs(first) + abs(last)))
        """The largest error of a coordinate."""
        self.per_bin = min(placed.axis.per_bin, (placed.axis.length + 1) * density + 1)
        """Samples of a bin on the map, at most."""
        self.touching = min(placed.samples, 2 * density + 1)
        """Samples that read any one pixel, at most."""
        self.share = max([1.0, *map(abs, shares), *(abs(1 - t) for t in shares)])
        """The most that a sample moves with an end, in units of the scale."""
        self._weigh()

    def _weigh(self) -> None:
        axis = self.placed.axis
        bins = [
            [(len(point.indices), axis.taps(point.coordinate)) for point in points_inside(axis, p)]
            for p in range(axis.bins)
        ]
        pixels = [tap.pixel for points in bins for _, taps in points for tap in taps if tap.pixel is not None]
        self._low, self._high = (max(min(pixels) - 1, 0), min(max(pixels) + 2, axis.length)) if pixels else (0, 0)
        self.samples = [np.zeros((len(points), self._high - self._low)) for points in bins]
        self.means = np.zeros((axis.bins, self._high - self._low))
        self.inside = np.zeros(axis.bins)
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


@dataclass(frozen=True)
class _Region:
    """A RoI on image `n`."""

    question: Question
    n: int
    y: _Axis
    x: _Axis

    def pixels(self, margin: int = 0) -> Floats:
        """[C, K, L]: those that it reads, and so many more on either side; 0 where they are no numbers."""
        assert self.question.x is not None  # noqa: S101  # asked only where the map is read
        return _finite(self.question.x[self.n][:, self.y.pixels(margin), self.x.pixels(margin)])

    @cached_property
    def inside(self) -> Floats:
        """[PH, PW]: what the output is where every pixel is 1 and what is outside is 0."""
        mode = self.question.sampling.mode
        if mode == "avg":
            return np.multiply.outer(self.y.inside, self.x.inside)
        if mode == "max":
            most = (axis.most.max(axis=1, initial=0.0) for axis in (self.y, self.x))
            return np.asarray(np.multiply.outer(*most))
        return np.asarray(np.multiply.outer(self.y.inside > 0, self.x.inside > 0), np.float64)

    @property
    def summed(self) -> float:
        """Of how many samples on the map an output is the sum, at most: a maximum is one of them."""
        return self.y.per_bin * self.x.per_bin if self.question.sampling.mode == "avg" else 1.0

    @property
    def terms_of_value(self) -> float:
        """Of how many products an output is the sum, at most."""
        terms = 4 * self.summed
        if self._outside and self.question.sampling.mode == "avg":
            terms += min(float(self.y.placed.axis.per_bin * self.x.placed.axis.per_bin), MOST_ADDED)
        return terms

    @property
    def _outside(self) -> float:
        """The size of what is outside. One that is infinite is all of an output or nothing of it."""
        outside = abs(self.question.sampling.outside)
        return outside if math.isfinite(outside) else 0.0

    @cached_property
    def largest_and_steepest(self) -> tuple[Floats, Floats, Floats]:
        """[C]: the largest pixel that a sample may read, and what an error of a pixel in y, and x, changes a value by."""
        if self.question.sampling.nearest:
            return (np.zeros(self.question.x_shape[1]),) * 3
        x = self.pixels(math.ceil(min(max(self.y.delta, self.x.delta), 1e9)))
        largest = np.abs(x).max(axis=(1, 2), initial=0.0)
        if self.question.sampling.mode == "max":
            return largest, largest, largest
        return largest, _steepest(x, 1), _steepest(x, 2)

    @property
    def drift(self) -> Floats:
        """[C]: what the errors of both coordinates can change a sample by."""
        _, steep_y, steep_x = self.largest_and_steepest
        return self.y.delta * steep_y + self.x.delta * steep_x

    def pooled(self, pixels: Floats) -> Floats:
        """[C, PH, PW]: the outputs of pixels that are not negative, with `_outside` as the value outside."""
        if self.question.sampling.mode == "avg":
            return np.asarray(self.y.means @ pixels @ self.x.means.T + self._outside * (1 - self.inside))
        y = np.zeros((len(pixels), *self.inside.shape))
        for p, q in np.ndindex(self.inside.shape):
            rows, columns = np.flatnonzero(self.y.most[p]), np.flatnonzero(self.x.most[q])
            part = pixels[:, rows][:, :, columns]
            if self.question.sampling.mode == "max":
                values = part * np.multiply.outer(self.y.most[p, rows], self.x.most[q, columns])
            else:
                values = self.y.samples[p][:, rows] @ part @ self.x.samples[q][:, columns].T
            outside = self._outside if min(self.y.inside[p], self.x.inside[q]) < 1 else 0.0
            y[:, p, q] = values.max(axis=(1, 2), initial=outside)
        return y


def _steepest(x: Floats, axis: int) -> Floats:
    """[C]: the largest difference of neighbours."""
    with np.errstate(over="ignore"):
        differences = np.abs(np.diff(x, axis=axis))
    return np.asarray(np.minimum(differences.max(axis=(1, 2), initial=0.0), np.finfo(np.float64).max))
