"""RoIAlignRotated and its gradient: how errors grow into Y, dX and drois.

A sample's coordinate is x = cx s - o + u cos(t) + v sin(t), and y likewise, with u = W a and v = H b: a and b its places
on the upright region, from -1/2 to 1/2. A runtime may compute u as that or as -W/2 + p W/P + (i + 0.5) W/(P K), in which
sums as large as W/2 cancel: ten roundings of W/2 at most. Sine and cosine are good to two units in their last place, of an
angle that may have been rounded once. With e for one rounding they err by

    turn = e (4 + |t|),    and by nothing where t = 0.

The centre has three roundings; two products and two sums follow. Together a coordinate errs by

    delta_x = e (4 (|cx s| + 1) + 14 span_x) + turn (min(|W|/2, D) + min(|H|/2, D))
    span_x  = |cos(t)| |W|/2 + |sin(t)| |H|/2

where D is the distance from the centre beyond which there is no map. As elsewhere in the suite, samples that this could
carry over a border or a pixel, and numbers of samples that it could change, are in no case unless all of it is exact, so
delta is all that coordinates do.

Everything is counted RoI by RoI, from the pixels that its samples may read: others may be infinite or NaN, or large.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from conformance.case import Case
from conformance.expected_values import Floats
from conformance.growth import Growth, arithmetic, unit
from conformance.rois.growth import finite
from conformance.rotated.question import Question, question_of, samples_of
from ortops.reference.roi_align_rotated import Region


def growth(case: Case) -> dict[str, Growth]:
    """As `conformance.families.Family` has it."""
    question = question_of(case)
    rounding = unit(arithmetic(case))
    regions = [
        _Region(question, n, region, Roundings(region, float(roi[4]), rounding))
        for n, roi, region in zip(question.indices.tolist(), question.rois, question.regions(), strict=True)
    ]
    if question.dy is None:
        return {"Y": _into_y(question, regions)}
    sizes = finite(np.abs(question.dy))
    return {
        name: _into_drois(regions, sizes) if name == "drois" else _into_dx(question.x_shape, regions, sizes)
        for name in case.outputs
    }


class Roundings:
    """By how much the numbers of one region err, in pixels and radians.

    unit: one rounding.
    turn: sine and cosine.
    stretch: width and height, in that order.
    shift: the centre and all that is added to it, x and y.
    delta: the coordinates x and y of a sample.
    """

    def __init__(self, region: Region, angle: float, unit: float) -> None:
        # No sample is further from another one than across the map.
        most = float(sum(region.map_size) + 2)
        sides = [min(abs(side.size), 1e300) / 2 for side in (region.width, region.height)]
        centre = min(abs(region.center_x), 1e300), min(abs(region.center_y), 1e300)
        spans = [
            abs(region.cos) * sides[0] + abs(region.sin) * sides[1],
            abs(region.sin) * sides[0] + abs(region.cos) * sides[1],
        ]
        self.unit = unit
        self.turn = unit * (4 + abs(angle)) if angle else 0.0
        self.stretch = [20 * unit * side for side in sides]
        self.shift = [unit * (4 * (c + 1) + 4 * span) for c, span in zip(centre, spans, strict=True)]
        turned = self.turn * sum(min(side, sum(centre) + most) for side in sides)
        pairs = zip(self.shift, spans, strict=True)
        self.delta = [min(shift + 10 * unit * span + turned, most) for shift, span in pairs]


class _Region:
    """A RoI on image `n`.

    by: the rounding of its numbers.
    bins, pixels: how many there are.
    counts: [PH PW], samples of each bin inside the map.
    share: of one sample in the mean of a bin.
    """

    def __init__(self, question: Question, n: int, region: Region, by: Roundings) -> None:
        self.question, self.n, self.region, self.by = question, n, region, by
        self.samples = samples_of(region)
        self.bins, self.pixels = math.prod(question.sampling.bins), math.prod(question.sampling.lengths)
        self.counts = np.bincount(self.samples.bins, minlength=self.bins)
        self.share = 1.0 / max(region.total, 1)

    @property
    def inside(self) -> Floats:
        """[PH, PW]: the output where every pixel is 1."""
        return np.asarray(self.counts * self.share).reshape(self.question.sampling.bins)

    def window(self, margin: int) -> tuple[slice, slice]:
        """Rows and columns of all that its samples read, and so many more on either side."""
        taps = self.samples.taps[self.samples.taps >= 0]
        rows, columns = np.divmod(taps, self.question.sampling.lengths[1])
        if not taps.size:
            return slice(0), slice(0)
        row, column = (slice(max(int(one.min()) - margin, 0), int(one.max()) + margin + 1) for one in (rows, columns))
        return row, column

    def read(self, image: Floats) -> Floats:
        """[C, PH PW]: the means of `image` [C, H, W]."""
        flat = np.pad(image.reshape(len(image), self.pixels), ((0, 0), (0, 1)))
        made = np.zeros((len(image), self.bins))
        values = (flat[:, self.samples.taps] * self.samples.weights).sum(axis=2)
        np.add.at(made.T, self.samples.bins, values.T * self.share)
        return made

    def given_back(self, dy: Floats) -> Floats:
        """[C, H, W]: what each pixel gets of the gradient `dy` [C, PH, PW]."""
        made = np.zeros((len(dy), self.pixels + 1))
        passed = dy.reshape(len(dy), self.bins)[:, self.samples.bins, None] * self.samples.weights * self.share
        np.add.at(made.T, self.samples.taps, np.moveaxis(passed, 0, -1))
        return np.asarray(made[:, :-1].reshape(len(dy), *self.question.sampling.lengths))

    @functools.cached_property
    def largest_and_steepest(self) -> tuple[Floats, Floats, Floats]:
        """[C]: the largest pixel that a sample may read, and what an error of a pixel in x, and y, changes a value by."""
        assert self.question.x is not None  # noqa: S101  # asked only where the map is read
        window = self.window(math.ceil(max(self.by.delta)))
        x = finite(self.question.x[self.n][:, window[0], window[1]])
        with np.errstate(over="ignore"):
            steepest = [np.abs(np.diff(x, axis=axis)).max(axis=(1, 2), initial=0.0) for axis in (2, 1)]
        most = np.finfo(np.float64).max
        return np.abs(x).max(axis=(1, 2), initial=0.0), np.minimum(steepest[0], most), np.minimum(steepest[1], most)


def _into_y(question: Question, regions: list[_Region]) -> Growth:
    """Growth into Y [R, C, PH, PW]: a coordinate's error costs the steepest slope, for the share of samples inside."""
    assert question.x is not None  # noqa: S101  # the forward operator has it
    shape = len(regions), question.x_shape[1], *question.sampling.bins
    magnitude, drift = np.zeros(shape), np.zeros(shape)
    inside, terms = np.zeros((shape[0], 1, *shape[2:])), np.zeros((shape[0], 1, 1, 1))
    for r, region in enumerate(regions):
        inside[r, 0], terms[r] = region.inside, 4 * region.counts.max(initial=0)
        magnitude[r] = region.read(finite(np.abs(question.x[region.n]))).reshape(shape[1:])
        _, steep_x, steep_y = region.largest_and_steepest
        slopes = region.by.delta[0] * steep_x + region.by.delta[1] * steep_y
        drift[r] = slopes[:, None, None] * region.inside
    return Growth(magnitude, terms, drift, inside)


def _into_dx(x_shape: tuple[int, ...], regions: list[_Region], sizes: Floats) -> Growth:
    """Growth into dX [N, C, H, W]: a sample has all its weight within one pixel of those that it reads."""
    magnitude, drift = np.zeros(x_shape), np.zeros(x_shape)
    terms = np.zeros((x_shape[0], 1, 1, 1))
    for region, dy in zip(regions, sizes, strict=True):
        window = (region.n, slice(None), *region.window(1))
        part = region.given_back(dy)[window[1:]]
        magnitude[window] += part
        drift[window] += sum(region.by.delta) * _beside(part)
        terms[region.n] += np.bincount(region.samples.taps[region.samples.taps >= 0]).max(initial=0)
    return Growth(magnitude, terms, drift, terms)


def _beside(values: Floats) -> Floats:
    """[C, H, W]: the sums of each pixel and the eight around it."""
    for axis in (1, 2):
        padded = np.moveaxis(np.pad(values, [(0, 0), *((k == axis,) * 2 for k in (1, 2))]), axis, 0)
        values = np.moveaxis(padded[:-2] + padded[1:-1] + padded[2:], 0, axis)
    return values


def _into_drois(regions: list[_Region], sizes: Floats) -> Growth:
    """Growth into drois [R, 5].

    Every term is dY times a difference of pixels along x, or y, times what a unit of the RoI's number moves the sample
    along it by. The difference moves by twice the steepest slope, and the other factor errs by itself. Differences may be
    taken of sums, so that what is rounded is as large as the pixels themselves.
    """
    magnitude, drift, gain = (np.zeros((len(regions), 5)) for _ in range(3))
    terms = np.zeros((len(regions), 1))
    for r, (region, dy) in enumerate(zip(regions, sizes, strict=True)):
        largest, *steepest = region.largest_and_steepest
        weight = (dy * region.inside).sum(axis=(1, 2))
        for steep, (means, errors) in zip(steepest, _moves(region), strict=True):
            moved = dy.reshape(len(dy), region.bins) @ means.T
            magnitude[r] += 2 * largest @ moved
            drift[r] += 2 * sum(region.by.delta) * (steep @ moved) + float(steep @ weight) * errors
            gain[r] += 2 * moved.sum(axis=0)
        terms[r] = 4 * dy.size * region.counts.max(initial=0)
    return Growth(magnitude, terms, drift, gain)


def _moves(region: _Region) -> list[tuple[Floats, Floats]]:
    """Along x, and y: [5, PH PW], the mean of what a unit of each number moves a bin's samples by, and [5], its error."""
    placed, samples, by = region.region, region.samples, region.by
    scale, cos, sin = placed.scale, abs(placed.cos), abs(placed.sin)
    ones, vary = np.ones(len(samples.x)), (placed.width.size_varies, placed.height.size_varies)
    a, b = (scale * varies * np.abs(one) for one, varies in zip((samples.along_w, samples.along_h), vary, strict=True))
    # Where a sample is from the centre may be had by subtracting that, so it errs as the sample's coordinates do.
    # A sample's place on its side errs by two roundings of 1, and its products with the scale and the cosine by two more.
    in_a, in_b = (
        varies * scale * 4 * by.unit + by.turn * float(one.max(initial=0.0))
        for one, varies in zip((a, b), vary, strict=True)
    )
    of_x = [scale * ones, 0 * ones, a * cos, b * sin, np.abs(samples.y - placed.center_y)]
    of_y = [0 * ones, scale * ones, a * sin, b * cos, np.abs(samples.x - placed.center_x)]
    return [
        (
            np.array([np.bincount(samples.bins, one, region.bins) for one in each]) * region.share,
            np.array([0.0, 0.0, in_a, in_b, delta]),
        )
        for each, delta in ((of_x, by.delta[1]), (of_y, by.delta[0]))
    ]
