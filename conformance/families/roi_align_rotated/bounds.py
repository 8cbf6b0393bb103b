# SPDX-License-Identifier: MIT OR Apache-2.0
"""Forward error bounds of RoIAlignRotated and its gradient: the terms for Y, dX and drois.

The coordinate of a sample is x = cx s - o + u cos(t) + v sin(t), and y is similar, with u = W a and v = H b, where a and b
are the sample's positions on the upright region, from -1/2 to 1/2. A runtime may also compute u as -W/2 + p W/P + (i + 0.5)
W/(P K), where sums as large as W/2 cancel: at most ten roundings of W/2. Sine and cosine are accurate to two units in the
last place, and the angle may have been rounded once. With the unit roundoff e, their error is

    turn = e (4 + |t|),    or 0 if t = 0.

The centre has three roundings, and two products and two sums follow. Together, the error of a coordinate is

    delta_x = e (4 (|cx s| + 1) + 14 span_x) + turn (min(|W|/2, D) + min(|H|/2, D))
    span_x  = |cos(t)| |W|/2 + |sin(t)| |H|/2

where D is the largest distance from the centre to a point of the map. As elsewhere in the suite, no case has samples that
rounding could carry over a border or a pixel, or numbers of samples that it could change, unless all intermediate numbers
are exact. So delta is the whole effect of rounding on coordinates.

The bounds are computed for each RoI from the pixels that its samples may read, because others may be infinite, NaN or large.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from conformance.case import Case
from conformance.error_terms import ErrorTerms, Floats, finite, largest_and_steepest, unit_roundoff, with_neighbours
from conformance.families.roi_align_rotated.geometry import Geometry, samples_of
from ortops.reference.roi_align_rotated import Region


def error_terms(case: Case) -> dict[str, ErrorTerms]:
    """The error terms of the outputs of a valid case, by name."""
    geometry = Geometry(case)
    rounding = unit_roundoff(case.compute_dtype)
    regions = [
        _Region(geometry, n, region, Roundings(region, float(roi[4]), rounding))
        for n, roi, region in zip(geometry.indices.tolist(), geometry.rois, geometry.regions(), strict=True)
    ]
    if geometry.dy is None:
        return {"Y": _into_y(geometry, regions)}
    sizes = finite(np.abs(geometry.dy))
    return {
        name: _into_drois(regions, sizes) if name == "drois" else _into_dx(geometry.x_shape, regions, sizes)
        for name in case.outputs
    }


class Roundings:
    """Upper bounds of the errors of the numbers of one region, in pixels and radians.

    unit_roundoff: of the compute type.
    turn: the error of sine and cosine.
    stretch: the errors of width and height.
    shift: the errors of the centre and of the sums with it, along x and y.
    delta: the errors of the coordinates x and y of a sample.
    """

    def __init__(self, region: Region, angle: float, unit_roundoff: float) -> None:
        # The distance of two samples on the map is less than this.
        most = float(sum(region.map_size) + 2)
        sides = [min(abs(side.size), 1e300) / 2 for side in (region.width, region.height)]
        centre = min(abs(region.center_x), 1e300), min(abs(region.center_y), 1e300)
        spans = [
            abs(region.cos) * sides[0] + abs(region.sin) * sides[1],
            abs(region.sin) * sides[0] + abs(region.cos) * sides[1],
        ]
        self.unit_roundoff = unit_roundoff
        self.turn = unit_roundoff * (4 + abs(angle)) if angle else 0.0
        self.stretch = [20 * unit_roundoff * side for side in sides]
        self.shift = [unit_roundoff * (4 * (c + 1) + 4 * span) for c, span in zip(centre, spans, strict=True)]
        turned = self.turn * sum(min(side, sum(centre) + most) for side in sides)
        pairs = zip(self.shift, spans, strict=True)
        self.delta = [min(shift + 10 * unit_roundoff * span + turned, most) for shift, span in pairs]


class _Region:
    """A RoI on image `n`.

    by: the rounding errors of its numbers.
    bins, pixels: the number of bins, and of pixels in a channel.
    counts: [PH PW], the number of samples of each bin inside the map.
    share: the weight of one sample in the average of a bin.
    """

    def __init__(self, geometry: Geometry, n: int, region: Region, by: Roundings) -> None:
        self.geometry, self.n, self.region, self.by = geometry, n, region, by
        self.samples = samples_of(region)
        self.bins, self.pixels = math.prod(geometry.sampling.bins), math.prod(geometry.sampling.lengths)
        self.counts = np.bincount(self.samples.bins, minlength=self.bins)
        self.share = 1.0 / max(region.total, 1)

    @property
    def inside(self) -> Floats:
        """The output if every pixel is 1, [PH, PW]."""
        return np.asarray(self.counts * self.share).reshape(self.geometry.sampling.bins)

    def window(self, margin: int) -> tuple[slice, slice]:
        """The rows and columns that its samples read, and `margin` more on either side."""
        taps = self.samples.taps[self.samples.taps >= 0]
        rows, columns = np.divmod(taps, self.geometry.sampling.lengths[1])
        if not taps.size:
            return slice(0), slice(0)
        row, column = (slice(max(int(i.min()) - margin, 0), int(i.max()) + margin + 1) for i in (rows, columns))
        return row, column

    def read(self, image: Floats) -> Floats:
        """The averages [C, PH PW] of `image` [C, H, W]."""
        flat = np.pad(image.reshape(len(image), self.pixels), ((0, 0), (0, 1)))
        averages = np.zeros((len(image), self.bins))
        values = (flat[:, self.samples.taps] * self.samples.weights).sum(axis=2)
        np.add.at(averages.T, self.samples.bins, values.T * self.share)
        return averages

    def transposed(self, dy: Floats) -> Floats:
        """The gradient of each pixel, [C, H, W], from `dy` [C, PH, PW]."""
        dx = np.zeros((len(dy), self.pixels + 1))
        passed = dy.reshape(len(dy), self.bins)[:, self.samples.bins, None] * self.samples.weights * self.share
        np.add.at(dx.T, self.samples.taps, np.moveaxis(passed, 0, -1))
        return np.asarray(dx[:, :-1].reshape(len(dy), *self.geometry.sampling.lengths))

    @functools.cached_property
    def largest_and_steepest(self) -> tuple[Floats, Floats, Floats]:
        """For each channel [C], the largest pixel that a sample may read, and the steepest slopes along y and along x."""
        assert self.geometry.x is not None  # noqa: S101  # used only where the map is read
        rows, columns = self.window(math.ceil(max(self.by.delta)))
        return largest_and_steepest(finite(self.geometry.x[self.n][:, rows, columns]))


def _into_y(geometry: Geometry, regions: list[_Region]) -> ErrorTerms:
    """The error terms of Y [R, C, PH, PW]: the coordinate error times the steepest slope and the share of samples inside."""
    assert geometry.x is not None  # noqa: S101  # the forward operator has it
    shape = len(regions), geometry.x_shape[1], *geometry.sampling.bins
    magnitude, coordinate_error = np.zeros(shape), np.zeros(shape)
    inside, terms = np.zeros((shape[0], 1, *shape[2:])), np.zeros((shape[0], 1, 1, 1))
    for r, region in enumerate(regions):
        inside[r, 0], terms[r] = region.inside, 4 * region.counts.max(initial=0)
        magnitude[r] = region.read(finite(np.abs(geometry.x[region.n]))).reshape(shape[1:])
        _, steep_y, steep_x = region.largest_and_steepest
        slopes = region.by.delta[0] * steep_x + region.by.delta[1] * steep_y
        coordinate_error[r] = slopes[:, None, None] * region.inside
    return ErrorTerms(magnitude, terms, coordinate_error, inside)


def _into_dx(x_shape: tuple[int, ...], regions: list[_Region], sizes: Floats) -> ErrorTerms:
    """The error terms of dX [N, C, H, W]: a sample moves weight only between pixels next to those that it reads."""
    magnitude, coordinate_error = np.zeros(x_shape), np.zeros(x_shape)
    terms = np.zeros((x_shape[0], 1, 1, 1))
    for region, dy in zip(regions, sizes, strict=True):
        window = (region.n, slice(None), *region.window(1))
        part = region.transposed(dy)[window[1:]]
        magnitude[window] += part
        coordinate_error[window] += sum(region.by.delta) * with_neighbours(with_neighbours(part, 1), 2)
        terms[region.n] += np.bincount(region.samples.taps[region.samples.taps >= 0]).max(initial=0)
    return ErrorTerms(magnitude, terms, coordinate_error, terms)


def _into_drois(regions: list[_Region], sizes: Floats) -> ErrorTerms:
    """The error terms of drois [R, 5].

    Every product is dY times a difference of pixels along x or y, times the derivative of the sample's coordinate by a
    number of the RoI. The difference changes by twice the steepest slope, and the derivative has its own error. Differences
    may be computed from sums, so rounding errors are relative to the pixels themselves.
    """
    magnitude, coordinate_error, condition = (np.zeros((len(regions), 5)) for _ in range(3))
    terms = np.zeros((len(regions), 1))
    for r, (region, dy) in enumerate(zip(regions, sizes, strict=True)):
        largest, steep_y, steep_x = region.largest_and_steepest
        weight = (dy * region.inside).sum(axis=(1, 2))
        for steep, (means, errors) in zip((steep_x, steep_y), _derivatives(region), strict=True):
            moved = dy.reshape(len(dy), region.bins) @ means.T
            magnitude[r] += 2 * largest @ moved
            coordinate_error[r] += 2 * sum(region.by.delta) * (steep @ moved) + float(steep @ weight) * errors
            condition[r] += 2 * moved.sum(axis=0)
        terms[r] = 4 * dy.size * region.counts.max(initial=0)
    return ErrorTerms(magnitude, terms, coordinate_error, condition)


def _derivatives(region: _Region) -> list[tuple[Floats, Floats]]:
    """Along x and y: the average derivative of a bin's samples by each number of the RoI, [5, PH PW], and its error [5]."""
    placed, samples, by = region.region, region.samples, region.by
    scale, cos, sin = placed.scale, abs(placed.cos), abs(placed.sin)
    ones, vary = np.ones(len(samples.x)), (placed.width.size_varies, placed.height.size_varies)
    a, b = (
        scale * varies * np.abs(along) for along, varies in zip((samples.along_w, samples.along_h), vary, strict=True)
    )
    # The vector from the centre to a sample may be a difference of coordinates, so it has the error of the coordinates. The
    # position of a sample on its side has two roundings of 1, and its products with the scale and the cosine two more.
    in_a, in_b = (
        varies * scale * 4 * by.unit_roundoff + by.turn * float(derivative.max(initial=0.0))
        for derivative, varies in zip((a, b), vary, strict=True)
    )
    of_x = [scale * ones, 0 * ones, a * cos, b * sin, np.abs(samples.y - placed.center_y)]
    of_y = [0 * ones, scale * ones, a * sin, b * cos, np.abs(samples.x - placed.center_x)]
    return [
        (
            np.array([np.bincount(samples.bins, derivatives, region.bins) for derivatives in each]) * region.share,
            np.array([0.0, 0.0, in_a, in_b, delta]),
        )
        for each, delta in ((of_x, by.delta[1]), (of_y, by.delta[0]))
    ]
