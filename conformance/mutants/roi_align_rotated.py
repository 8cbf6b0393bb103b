"""The control and the mutants of RoiAlignRotated and its gradient.

A point of the map is a complex number, x + iy, and a region is rotated by a factor: (u + iv) exp(-it). Its samples are one
list, which gives a dense matrix of weights, [bins, pixels], and five matrices of derivatives.
"""

from __future__ import annotations

import itertools
from typing import Any, ClassVar, NamedTuple

import numpy as np

from conformance.mutants.base import Array, Category, MutantFactory, by_default
from conformance.mutants.roi_control import MOST_LISTED, RoiControl
from conformance.mutants.roi_mutants import (
    add_borders,
    in_32_bits,
    refused_if,
    refused_without,
    scale_unchecked,
    too_many,
    whole_blocks,
    widened,
    with_dx_always,
)
from conformance.mutants.sizes import add_samples_beyond, add_sizes

MOST_RATIO = 64


class Side(NamedTuple):
    """The samples along one side of an upright region, without those that cannot be on the map.

    t: [k], their positions on a side of length 1 around 0.
    bins: [k], the bin of each.
    size: the length of the side, in pixels.
    by_size: the derivative of `size` by the stored size; 0 if it has been raised to 1.
    per_bin: the number of samples of a bin, including those left out.
    """

    t: Array
    bins: Array
    size: float
    by_size: float
    per_bin: int


class Grid(NamedTuple):
    """The samples of a region, in a list.

    bins: [S], the bin of each, counted row by row.
    taps: [S, 4], the pixels that each reads, as indices into the flat map; the index H*W stands for none.
    weights: [S, 4], the weights of those pixels.
    droi: [5, S, 4], the derivatives of the weights by the numbers of the RoI.
    inside: [S], whether a sample is on the map.
    shape: the number of rows and columns of bins.
    per_bin: the number of samples of a bin along y and along x.
    """

    bins: Array
    taps: Array
    weights: Array
    droi: Array
    inside: Array
    shape: tuple[int, int]
    per_bin: tuple[int, int]

    @property
    def total(self) -> int:
        """The number of bins."""
        return self.shape[0] * self.shape[1]

    def matrix(self, values: Array, pixels: int) -> Array:
        """A matrix [bins, pixels]: for each bin, the sum of `values` [S, 4] at their taps."""
        made = np.zeros((self.total, pixels + 1))
        np.add.at(made, (self.bins[:, None], self.taps), values)
        return made[:, :pixels]


class Control(RoiControl):
    """The operators without a fault."""

    OPERATORS = ("RoIAlignRotated",)
    NUMBERS: ClassVar[int] = 5

    def defaults(self) -> dict[str, Any]:
        return {
            "aligned": 1,
            "clockwise": 0,
            "output_height": 1,
            "output_width": 1,
            "sampling_ratio": 0,
            "spatial_scale": 1.0,
        }

    def check_attributes(self) -> None:
        a = self.attributes
        if a["aligned"] not in (0, 1) or a["clockwise"] not in (0, 1):
            raise ValueError("flag")
        if not 0 <= a["sampling_ratio"] <= MOST_RATIO or a["output_height"] < 1 or a["output_width"] < 1:
            raise ValueError("size")
        if not 0 < a["spatial_scale"] < np.inf:
            raise ValueError("scale")

    def are_shapes(self, rois: tuple[int, ...], images: tuple[int, ...]) -> bool:
        return len(images) == 1 and rois == (images[0], 5)

    @property
    def mode(self) -> str:
        return "avg"

    @property
    def is_aligned(self) -> bool:
        """Whether the centre is shifted by half a pixel."""
        return bool(self.attributes["aligned"])

    def scales(self) -> tuple[float, float]:
        return (float(self.attributes["spatial_scale"]),) * 2

    def axes(self, roi: Array, bins: Any, lengths: Any) -> Any:
        """The samples of a RoI, as one grid."""
        self.lengths = lengths
        cx, cy, w, h, angle = map(float, self.corners(roi))
        with np.errstate(all="ignore"):
            return (self.grid(self.centre(cx, cy), w, h, self.turn(angle), bins, lengths),)

    def centre(self, cx: float, cy: float) -> complex:
        """The centre on the map, as a complex number."""
        scale, shift = self.scales()[0], 0.5 if self.is_aligned else 0.0
        return complex(cx * scale - shift, cy * scale - shift)

    def turn(self, angle: float) -> float:
        """The counter-clockwise rotation of a region, in radians."""
        return self.sign() * angle

    def sign(self) -> float:
        """The sign of the stored angle: -1 if it is clockwise."""
        return -1.0 if self.attributes["clockwise"] else 1.0

    def turned(self, upright: Any, t: float) -> Any:
        """Points of an upright region around 0, rotated."""
        return upright * np.exp(-1j * t)

    def extent(self, stored: float) -> float:
        """The length of a side on the map, before it is raised to 1."""
        return stored * self.scales()[0]

    def is_raised(self, size: float, axis: int) -> bool:
        """Whether the width (axis 0) or height (axis 1) is raised to 1."""
        del axis
        return size < 1 and not self.is_aligned

    def count(self, size: float, bins: int) -> int:
        return int(self.attributes["sampling_ratio"]) or max(self.adaptive_count(size, bins), 0)

    def adaptive_count(self, size: float, bins: int) -> int:
        return int(min(np.ceil(size / bins), 2.0**62))

    def counts(self, w: float, h: float, bins: Any) -> tuple[int, int]:
        """The number of samples of a bin along x and y, from the sizes on the map."""
        return self.count(w, bins[1]), self.count(h, bins[0])

    def grid(self, centre: complex, w: float, h: float, t: float, bins: Any, lengths: Any) -> Grid:
        """The samples of a region with the stored sizes w and h."""
        extents = [self.extent(stored) for stored in (w, h)]
        are_raised = [self.is_raised(size, axis) for axis, size in enumerate(extents)]
        sizes = [1.0 if is_raised else size for is_raised, size in zip(are_raised, extents, strict=True)]
        reach = self.reach(centre, t, lengths)
        per_bin = self.counts(sizes[0], sizes[1], bins)
        along = list(zip(sizes, are_raised, per_bin, (bins[1], bins[0]), reach, strict=True))
        x, y = (self.side(*one) for one in along)
        upright = (x.size * x.t)[None, :] + 1j * (y.size * y.t)[:, None]
        z = self.placed(centre, upright, t).ravel()
        by = self.by_numbers(x, y, z - centre, t)
        number = (y.bins[:, None] * bins[1] + x.bins[None, :]).ravel()
        return self.sampled_at(z, by, number, tuple(bins), (y.per_bin, x.per_bin), lengths)

    def placed(self, centre: complex, upright: Array, t: float) -> Array:
        """Points of an upright region around 0, rotated and moved to their place on the map."""
        return np.asarray(centre + self.turned(upright, t))

    def reach(self, centre: complex, t: float, lengths: Any) -> tuple[Any, Any]:
        """The range of the map along each upright axis, x first: the bounding box of the map, rotated back."""
        corners = [complex(x, y) for x, y in itertools.product((-2.0, lengths[1] + 1.0), (-2.0, lengths[0] + 1.0))]
        units = [self.turned(unit, t) for unit in (1.0 + 0j, 1j)]
        across = np.array([[one.real for one in units], [one.imag for one in units]])
        away = np.array([[(c - centre).real for c in corners], [(c - centre).imag for c in corners]])
        back = np.linalg.solve(across, away)
        return (back[0].min(), back[0].max()), (back[1].min(), back[1].max())

    def side(self, size: float, is_raised: bool, per_bin: int, bins: int, reach: tuple[float, float]) -> Side:
        """The samples along a side; `reach` is the range of the map along it."""
        total, low, high = per_bin * bins, 0, per_bin * bins
        if total > MOST_LISTED and size != 0:
            ends = np.sort((np.array(reach) / size + 0.5) * total)
            low, high = (int(np.clip(end, 0, total)) for end in (np.floor(ends[0]) - 2, np.ceil(ends[1]) + 2))
        k = np.array(range(low, high), object)
        p = np.array([one // max(per_bin, 1) for one in k], np.int64)
        t = self.shares(k.astype(np.float64), total)
        return Side(t, p, size, 0.0 if is_raised else self.scales()[0], per_bin)

    def shares(self, k: Array, total: int) -> Array:
        """The positions of samples k of `total` on a side of length 1 around 0."""
        return np.asarray((k + 0.5) / max(total, 1) - 0.5)

    def by_numbers(self, x: Side, y: Side, away: Array, t: float) -> Array:
        """The derivatives [5, S] of sample positions by the RoI's numbers; `away` [S]: samples relative to the centre."""
        scale, ones = self.scales()[0], np.ones((len(y.t), len(x.t)))
        along_w, along_h = x.by_size * x.t[None, :] * ones, y.by_size * y.t[:, None] * ones
        made = [scale * ones, 1j * scale * ones, self.turned(along_w, t), self.turned(1j * along_h, t)]
        return np.array([*(one.ravel() for one in made), self.by_angle(away)])

    def by_angle(self, away: Array) -> Array:
        """The derivatives [S] of sample positions by the angle."""
        return np.asarray(self.sign() * -1j * away)

    def sampled_at(self, z: Array, by: Array, number: Array, shape: Any, per_bin: Any, lengths: Any) -> Grid:
        """The grid of samples at z [S], with their derivatives."""
        y, x = self.place(z.imag), self.place(z.real)
        inside = self.inside_along(0, y, lengths[0]) & self.inside_along(1, x, lengths[1])
        y, x = np.where(inside, y, 0.0), np.where(inside, x, 0.0)
        rows, columns = self.taps(y, lengths[0]).astype(np.int64), self.taps(x, lengths[1]).astype(np.int64)
        is_pixel = inside[:, None, None] & (rows < lengths[0])[:, :, None] & (columns < lengths[1])[:, None, :]
        taps = np.where(is_pixel, rows[:, :, None] * lengths[1] + columns[:, None, :], lengths[0] * lengths[1])
        in_y, in_x = self.weights(y, lengths[0]), self.weights(x, lengths[1])
        signs, met = np.array([-1.0, 1.0]), inside[:, None]
        slope_y, slope_x = (
            signs * (self.has_slope(c, inside, n) & inside)[:, None] for c, n in ((y, lengths[0]), (x, lengths[1]))
        )
        weights = in_y[:, :, None] * in_x[:, None, :] * met[..., None]
        moved = by[:, :, None, None]
        droi = slope_y[:, :, None] * in_x[:, None, :] * moved.imag + in_y[:, :, None] * slope_x[:, None, :] * moved.real
        droi = np.where(met[..., None], droi, 0.0).reshape(len(by), -1, 4)
        return Grid(number, taps.reshape(-1, 4), weights.reshape(-1, 4), droi, inside, shape, per_bin)

    def place(self, c: Array) -> Array:
        """Coordinates along an axis in the precision in which they are computed."""
        return c

    def inside_along(self, axis: int, c: Array, length: int) -> Array:
        """Whether samples at c are inside the map along an axis, 0 for y and 1 for x."""
        del axis
        return self.inside(c, length)

    def taps(self, c: Array, length: int) -> Array:
        """The pixels before and after each coordinate; after the last pixel there is none."""
        low = np.floor(np.clip(c, 0, length - 1))
        return np.stack([low, low + 1], -1)

    def has_slope(self, c: Array, inside: Array, length: int) -> Array:
        """Whether the cell that begins at or before c has a slope."""
        clamped = np.clip(c, 0, length - 1)
        return np.asarray(inside & (c == clamped) & (np.floor(clamped) < length - 1))

    def average(self, image: Array, grid: Any, *_: Any) -> Array:
        return np.asarray(self.of_samples(image, grid.weights, grid) / self.divided_by(grid))

    def of_samples(self, image: Array, values: Array, grid: Grid, dy: Any = 1.0) -> Array:
        """For each bin [C, P, Q], the sum over its samples of pixels times `values` [S, 4], times dy."""
        made, pixels = (len(image), *grid.shape), image.shape[1] * image.shape[2]
        flat = image.reshape(len(image), pixels)
        if self.is_dense(image, dy):
            return np.asarray(self.partial(flat @ grid.matrix(values, pixels).T).reshape(made) * dy)
        by = np.broadcast_to(dy, made).reshape(len(image), grid.total)[:, grid.bins]
        read = (np.pad(flat, ((0, 0), (0, 1)))[:, grid.taps] * values).sum(axis=2)
        sums = np.zeros((len(image), grid.total))
        np.add.at(sums.T, grid.bins, (np.where(grid.inside, read, 0.0) * by).T)
        return np.asarray(sums.reshape(made))

    def divided_by(self, grid: Grid) -> Any:
        """The divisor of the sum of a bin."""
        return max(grid.per_bin[0] * grid.per_bin[1], 1)

    def gradient_divided_by(self, grid: Grid) -> Any:
        """The divisor of dX."""
        return self.divided_by(grid)

    def average_part(self, dy: Array, image: Array, grid: Any, *_: Any) -> tuple[Array, Any]:
        dx = self.given_back(dy, image.shape, grid) / self.gradient_divided_by(grid)
        if not self.wants_drois:
            return dx, np.zeros(5)
        sums = [self.of_samples(image, values, grid, dy) / self.divided_by(grid) for values in grid.droi]
        return dx, self.droi([self.droi_sum(one) for one in sums])

    def droi(self, sums: list[float]) -> Any:
        """The gradient by one RoI, in the order of its numbers."""
        return sums

    def given_back(self, dy: Array, shape: Any, grid: Grid) -> Array:
        """The gradient that samples pass to the pixels that they read, [C, H, W], not divided."""
        flat, pixels = dy.reshape(len(dy), grid.total), shape[1] * shape[2]
        if self.is_dense(dy):
            return np.asarray((flat @ grid.matrix(grid.weights, pixels)).reshape(shape))
        made = np.zeros((len(dy), pixels + 1))
        np.add.at(made.T, grid.taps, np.moveaxis(flat[:, grid.bins, None] * grid.weights, 0, -1))
        return np.asarray(made[:, :-1].reshape(shape))


mutant = MutantFactory(Control)


def remembering(name: str, place: int) -> Any:
    """A replaced step that stores one of its arguments as an attribute."""

    def step(s: Any, up: Any, *a: Any) -> Any:
        setattr(s, name, a[place])
        return up(*a)

    return step


def in_order(sums: list[float], *order: int) -> list[float]:
    """A replacement of `droi` with another order of the numbers."""
    return [sums[k] for k in order]


def by_numbers_changed(change: Any) -> dict[str, Any]:
    """Replacements that compute cx, cy, w, h and angle from the stored numbers."""
    return {"corners": lambda s, up, roi: change(s, *map(float, up(roi)))}


def moved_about(change: Any) -> Any:
    """A replacement of `placed` that shifts the upright samples by `change` of them before rotating."""
    return lambda s, up, centre, upright, t: up(centre, upright + change(s, upright), t)


def corner_of(upright: Array) -> Any:
    """The vector from the centre of a region to its first corner, estimated from its samples."""
    first, last = upright.ravel()[[0, -1]] if upright.size else (0j, 0j)
    rows, columns = max(upright.shape[0], 1), max(upright.shape[1], 1)
    step = complex(
        (last - first).real / max(columns - 1, 1) if columns > 1 else 0.0,
        (last - first).imag / max(rows - 1, 1) if rows > 1 else 0.0,
    )
    return first - step / 2


mutant.begin_category(Category.COORDINATES)
mutant("Clockwise", "The direction of rotation is inverted.")(sign=lambda s, up: -up())
mutant("ClockwiseIgnored", "clockwise is ignored and taken for 0.")(sign=lambda s, up: 1.0)
mutant("ClockwiseAlways", "clockwise is ignored and taken for 1.")(sign=lambda s, up: -1.0)
mutant("AngleIgnored", "The angle is ignored: regions are upright.")(turn=lambda s, up, angle: 0.0 * up(angle))
mutant("AngleInDegrees", "Angles are read in degrees, as in detectron2, instead of radians.")(
    turn=lambda s, up, angle: float(np.deg2rad(up(angle)))
)
mutant("AngleTwice", "Regions are rotated by twice the angle.")(turn=lambda s, up, angle: 2 * up(angle))
mutant("AngleScaled", "The angle is multiplied by spatial_scale too.")(
    turn=lambda s, up, angle: up(angle) * s.scales()[0]
)
mutant("AngleOfQuarters", "Angles are rounded to multiples of a quarter turn.")(
    turn=lambda s, up, angle: float(np.round(up(angle) / (np.pi / 2)) * np.pi / 2)
)
mutant("AngleOfAHalfTurn", "Angles are taken modulo half a turn, as for a box without a front.")(
    turn=lambda s, up, angle: float(np.remainder(up(angle), np.pi))
)
mutant("AngleCut", "Angles are clipped to half a turn.")(
    turn=lambda s, up, angle: float(np.clip(up(angle), -np.pi, np.pi))
)
mutant("NegativeAngleIgnored", "The sign of the angle is ignored.")(turn=lambda s, up, angle: s.sign() * abs(angle))
mutant("SmallAngle", "The sine and cosine of angle t are taken for t and 1, which holds for small angles only.")(
    turned=lambda s, up, upright, t: upright * (1 - 1j * t)
)
mutant("SineOfX", "The sine term of x has the wrong sign, so regions are sheared.")(
    turned=lambda s, up, w, t: w.real * np.cos(t) - w.imag * np.sin(t) + 1j * (w.imag * np.cos(t) - w.real * np.sin(t))
)
mutant("SineOfY", "The sine term of y has the wrong sign, so regions are sheared.")(
    turned=lambda s, up, w, t: w.real * np.cos(t) + w.imag * np.sin(t) + 1j * (w.imag * np.cos(t) + w.real * np.sin(t))
)
mutant("SineAndCosineExchanged", "Sine and cosine are exchanged.")(
    turned=lambda s, up, upright, t: up(upright, np.pi / 2 - t)
)
mutant("SineExchanged", "The sine terms of x and y are taken from the wrong side of the region.")(
    turned=lambda s, up, w, t: w.real * (np.cos(t) + np.sin(t)) + 1j * w.imag * (np.cos(t) - np.sin(t))
)
mutant("XTurnedAlone", "y is rotated with the already rotated x.")(
    turned=lambda s, up, w, t: (
        (x := w.real * np.cos(t) + w.imag * np.sin(t)) + 1j * (w.imag * np.cos(t) - x * np.sin(t))
    )
)
mutant("TurnedAboutTheCorner", "Regions are rotated about their first corner instead of their centre.")(
    placed=lambda s, up, centre, upright, t: up(centre + corner_of(upright), upright - corner_of(upright), t)
)
mutant("TurnedAboutTheOrigin", "Regions are rotated about the origin of the map instead of their centre.")(
    placed=lambda s, up, centre, upright, t: up(0j, centre + upright, t)
)
mutant("BeginsAtTheCentre", "cx and cy are read as the first corner of a region instead of its centre.")(
    placed=moved_about(lambda s, upright: -corner_of(upright))
)
mutant("CentreYBeforeX", "RoIs are read as cy, cx, w, h and angle.")(
    **by_numbers_changed(lambda s, cx, cy, w, h, angle: (cy, cx, w, h, angle))
)
mutant("HeightBeforeWidth", "RoIs are read as cx, cy, h, w and angle.")(
    **by_numbers_changed(lambda s, cx, cy, w, h, angle: (cx, cy, h, w, angle))
)
mutant("CornersForCentreAndSize", "RoIs are read as x1, y1, x2, y2 and angle.")(
    **by_numbers_changed(lambda s, x1, y1, x2, y2, angle: ((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1, angle))
)
mutant("AngleFirst", "RoIs are read as angle, cx, cy, w and h.")(
    **by_numbers_changed(lambda s, a, cx, cy, w, h: (cx, cy, w, h, a))
)
mutant("SizesHalved", "Width and height are read as half the size of the region, so regions are twice as large.")(
    extent=lambda s, up, stored: 2 * up(stored)
)
mutant("EndPixelCounted", "Widths and heights are raised by 1.")(extent=lambda s, up, stored: up(stored + 1))
mutant("SizesNotScaled", "spatial_scale is applied to the centre but not to width and height.")(
    extent=lambda s, up, stored: stored
)
mutant("CentreNotScaled", "spatial_scale is applied to width and height but not to the centre.")(
    centre=lambda s, up, cx, cy: up(cx / s.scales()[0], cy / s.scales()[0])
)
mutant("ScaleIgnored", "spatial_scale is ignored, so RoIs are in pixels of the map.")(scales=lambda s, up: (1.0, 1.0))
mutant("ScaleInverted", "RoIs are divided by spatial_scale instead of multiplied.")(
    scales=lambda s, up: (1 / up()[0],) * 2
)
for name, value in (("AlignedIgnored", 1), ("AlignedNever", 0)):
    mutant(name, f"aligned is ignored and taken for {value}.")(
        meaning=lambda s, up, a, value=value: a | ({"aligned": value} if a["aligned"] in (0, 1) else {})
    )
for name, words, shift in (
    ("NoHalfPixel", "aligned = 1 does not shift the centre by half a pixel.", 0.5),
    ("HalfPixelAdded", "aligned = 1 shifts the centre by +0.5 instead of -0.5.", 1.0),
    ("HalfPixelTwice", "aligned = 1 shifts the centre twice, by a whole pixel.", -0.5),
):
    mutant(name, words)(centre=lambda s, up, cx, cy, shift=shift: up(cx, cy) + s.is_aligned * shift * (1 + 1j))
mutant("HalfPixelAlways", "The centre is shifted by half a pixel even if aligned = 0.")(
    centre=lambda s, up, cx, cy: up(cx, cy) - (not s.is_aligned) * (0.5 + 0.5j)
)
mutant("ShiftBeforeScale", "The shift by half a pixel happens before scaling instead of after it.")(
    centre=lambda s, up, cx, cy: complex(cx - 0.5 * s.is_aligned, cy - 0.5 * s.is_aligned) * s.scales()[0]
)
mutant("ShiftTurned", "The shift by half a pixel is rotated with the region.")(
    placed=lambda s, up, centre, upright, t: up(
        centre + s.is_aligned * (0.5 + 0.5j), upright - s.is_aligned * (0.5 + 0.5j), t
    )
)
mutant("SamplesAtTheStart", "Each sample lies at the start of its part of the bin instead of the middle.")(
    shares=lambda s, up, k, total: up(k - 0.5, total)
)
mutant(
    "SamplesFromSideToSide", "The first and last samples lie on the sides of a region instead of half a step inside."
)(shares=lambda s, up, k, total: k / (total - 1) - 0.5 if total > 1 else up(k, total))
mutant("OneSampleInTheMiddle", "All samples of a bin lie at its centre.")(
    side=remembering("per_bin", 2),
    shares=lambda s, up, k, total: up(k // max(s.per_bin, 1) * s.per_bin + (s.per_bin - 1) / 2, total),
)
mutant("NearestPixel", "The nearest pixel is read instead of interpolating.")(
    weights=lambda s, up, c, n: np.stack([1 - np.round(up(c, n)[..., 1]), np.round(up(c, n)[..., 1])], -1)
)
mutant("WeightsExchanged", "The weights of the pixels before and after a sample are exchanged.")(
    weights=lambda s, up, c, n: up(c, n)[..., ::-1]
)
mutant("MirroredUpright", "A negative width or height is replaced by its absolute value.")(
    extent=lambda s, up, stored: abs(up(stored))
)
mutant("NegativeSizesAre0", "A negative width or height is replaced by 0.")(
    extent=lambda s, up, stored: max(up(stored), 0.0)
)
mutant("NegativeSizesRefused", "A negative width or height is refused.")(extent=refused_if(lambda stored: stored < 0))
mutant("EmptySizesRefused", "A width or height of 0 is refused.")(extent=refused_if(lambda stored: stored == 0))
mutant("NoLeastSize", "Sizes below 1 are not raised to 1 if aligned = 0.")(is_raised=lambda s, up, *a: False)
mutant("LeastSizeAlways", "Sizes below 1 are raised to 1 even if aligned = 1.")(
    is_raised=lambda s, up, size, axis: size < 1
)
mutant("LeastSizeBeforeScale", "Sizes are raised to 1 before scaling instead of after it.")(
    is_raised=lambda s, up, *a: False,
    extent=lambda s, up, stored: up(stored if s.is_aligned else max(stored, 1.0)),
)
mutant("LeastSizeOfBoth", "With aligned = 0, both sides are set to 1 if either is smaller.")(
    grid=lambda s, up, centre, w, h, *a: up(
        centre, *((0.0, 0.0) if not s.is_aligned and s.extent(min(w, h)) < 1 else (w, h)), *a
    )
)
for number, side in enumerate(("width", "height")):
    mutant(f"LeastSizeOfThe{side.capitalize()}", f"With aligned = 0, only the {side} is raised to 1.")(
        is_raised=lambda s, up, size, axis, number=number: up(size, axis) and axis == number
    )

mutant.begin_category(Category.BORDERS)
for number, side, other in ((1, "X", "y"), (0, "Y", "x")):
    mutant(f"ReplicatedIn{side}Alone", f"Samples are tested against the border along {other} only.")(
        inside_along=lambda s, up, axis, c, n, number=number: up(axis, c, n) | (axis == number)
    )
mutant("EdgesReplicated", "Samples outside the map read the nearest edge pixel.")(
    inside=lambda s, up, c, n: np.ones_like(c, bool)
)
add_borders(mutant)
mutant(
    "LengthsExchanged", "The height and the width of the map are exchanged when samples are tested against the border."
)(inside_along=lambda s, up, axis, c, n: up(axis, c, s.lengths[1 - axis]))
mutant("CentreOffTheMapIsEmpty", "A region whose centre is outside the map gives 0.")(
    placed=lambda s, up, centre, upright, t: up(
        centre if 0 <= centre.real < s.lengths[1] and 0 <= centre.imag < s.lengths[0] else complex(-1e9, -1e9),
        upright,
        t,
    )
)

mutant.begin_category(Category.COUNTS)
mutant("RatioIgnored", "sampling_ratio is ignored and taken for 0.")(
    count=lambda s, up, size, bins: max(s.adaptive_count(size, bins), 0)
)
mutant("Ratio0As1", "sampling_ratio 0 means one sample per bin and axis instead of an adaptive number.")(
    adaptive_count=lambda s, up, size, bins: 1
)
mutant("Ratio0As2", "sampling_ratio 0 means two samples per bin and axis instead of an adaptive number.")(
    adaptive_count=lambda s, up, size, bins: 2
)
mutant("Ratio0RoundedDown", "The adaptive number of samples is rounded down instead of up.")(
    adaptive_count=lambda s, up, size, bins: int(np.floor(size / bins))
)
mutant("Ratio0RoundedToTheNearest", "The adaptive number of samples is rounded to nearest instead of up.")(
    adaptive_count=lambda s, up, size, bins: int(np.floor(size / bins + 0.5))
)
mutant("Ratio0OnePastWhole", "The adaptive number of samples is one too large for bins of a whole number of pixels.")(
    adaptive_count=lambda s, up, size, bins: int(np.floor(size / bins)) + 1 if size > 0 else 0
)
mutant("Ratio0AtLeast1", "The adaptive number of samples is at least 1, so an empty RoI is sampled.")(
    adaptive_count=lambda s, up, *a: max(up(*a), 1)
)
mutant(
    "Ratio0OfTheAbsoluteSize",
    "The adaptive number of samples of a RoI with swapped ends follows from its absolute size.",
)(adaptive_count=lambda s, up, size, bins: up(abs(size), bins))
mutant("Ratio0OfTheRoi", "The adaptive number of samples follows from the size of the RoI instead of the bin.")(
    adaptive_count=lambda s, up, size, bins: up(size, 1)
)
mutant("Ratio0OfTheUnscaledSize", "The adaptive number of samples follows from the size before scaling.")(
    adaptive_count=lambda s, up, size, bins: up(size / s.scales()[0], bins)
)
for first, (one, two) in enumerate((("X", "Y"), ("Y", "X"))):
    mutant(f"Ratio0Of{one}", f"The adaptive number of samples along {one.lower()} is used along {two.lower()} too.")(
        counts=lambda s, up, *a, first=first: (up(*a)[first],) * 2
    )
mutant("Ratio0OfTheOther", "The adaptive numbers of samples of the two axes are exchanged.")(
    counts=lambda s, up, *a: up(*a)[::-1]
)


def counts_around(s: Any, up: Any, w: float, h: float, bins: Any) -> Any:
    """A replacement of `counts` for the bounding box of a region."""
    cos, sin = abs(np.cos(s.angle)), abs(np.sin(s.angle))
    return up(w * cos + h * sin, w * sin + h * cos, bins) if min(w, h) > 0 else up(w, h, bins)


mutant("Ratio0OfTheBoxAround", "The adaptive number of samples follows from the bounding box of the rotated region.")(
    grid=remembering("angle", 3), counts=counts_around
)
mutant(
    "Ratio0OfTheTurnedBins",
    "The adaptive numbers of samples of the two axes are exchanged for regions rotated by about a quarter turn.",
)(
    grid=remembering("angle", 3),
    counts=lambda s, up, *a: up(*a)[::-1] if abs(np.sin(s.angle)) > abs(np.cos(s.angle)) else up(*a),
)
mutant("ManySamplesRefused", "RoIs with very many samples are refused.")(adaptive_count=too_many)
mutant("RatioAtMost8", "A bin has at most eight samples along an axis.")(count=lambda s, up, *a: min(up(*a), 8))
mutant("DivisorWithoutOutside", "Averages are divided by the number of samples inside the map only.")(
    divided_by=lambda s, up, grid: inside_of(grid)
)
mutant("DivisorSquared", "Averages are divided by the square of the number of samples along x.")(
    divided_by=lambda s, up, grid: max(grid.per_bin[1] ** 2, 1)
)
mutant("DivisorOfTheRatio", "Averages are divided by the square of sampling_ratio, and not at all if it is 0.")(
    divided_by=lambda s, up, grid: max(s.attributes["sampling_ratio"], 1) ** 2
)
mutant("EmptyIsNaN", "The average over no samples is NaN (0 divided by 0).")(
    divided_by=lambda s, up, grid: np.float64(grid.per_bin[0] * grid.per_bin[1])
)


def inside_of(grid: Grid) -> Array:
    """The number of samples of each bin inside the map, [P, Q], at least 1."""
    counts = np.bincount(grid.bins, grid.inside, grid.total).reshape(grid.shape)
    return np.maximum(counts, 1)


mutant.begin_category(Category.REDUCTIONS)
mutant("SumForAverage", "An output is the sum of its samples, not divided by their number.")(
    divided_by=lambda s, up, grid: 1
)


def maxima(s: Any, up: Any, image: Array, grid: Grid, *_: Any) -> Array:
    """A replacement of `average` that is a maximum."""
    read = (np.pad(image.reshape(len(image), -1), ((0, 0), (0, 1)))[:, grid.taps] * grid.weights).sum(axis=2)
    made = np.full((len(image), grid.total), -np.inf)
    np.maximum.at(made.T, grid.bins, np.where(grid.inside, read, 0.0).T)
    return np.where(np.isfinite(made), made, 0.0).reshape(len(image), *grid.shape)


mutant("Maximum", "An output is the maximum of its samples instead of the average.")(
    average=lambda s, up, image, *a: maxima(s, up, image, *a) if image.size else up(image, *a)
)
mutant("FirstSampleAlone", "An output is its first sample instead of the average.")(
    counts=lambda s, up, *a: tuple(min(one, 1) for one in up(*a))
)

mutant.begin_category(Category.TYPES)
mutant("CoordinatesInTheTensorsType", "Coordinates are computed in the type of the tensors.")(**widened("place"))
mutant("CoordinatesInHalf", "Coordinates are float16 whatever the type of the tensors.")(
    place=lambda s, up, *a: up(*a).astype(np.float16).astype(np.float64)
)
mutant("CoordinatesInFloat", "Coordinates are float32 even for double tensors.")(
    place=lambda s, up, *a: up(*a).astype(np.float32).astype(np.float64)
)
mutant("SineInTheTensorsType", "Sine and cosine are rounded to the type of the tensors.")(
    turned=lambda s, up, upright, t: (
        upright * complex(*(float(np.asarray(one).astype(s.dtype)) for one in (np.cos(t), -np.sin(t))))
    )
)
mutant("SineOfATable", "Sine and cosine are looked up in a table of whole degrees.")(
    turned=lambda s, up, upright, t: up(upright, float(np.deg2rad(np.round(np.rad2deg(t)))))
)
mutant("SineInFloat", "Sine and cosine are float32 even for double tensors.")(
    turned=lambda s, up, upright, t: upright * complex(*(float(np.float32(one)) for one in (np.cos(t), -np.sin(t))))
)
mutant("ScaleInTheTensorsType", "spatial_scale is rounded to the type of the tensors.")(
    scales=lambda s, up: tuple(map(float, np.array(up()).astype(s.dtype)))
)
mutant("WeightsInTheTensorsType", "Interpolation weights are rounded to the type of the tensors.")(**widened("weights"))
mutant("PartialSumsInTheTensorsType", "Partial sums are rounded to the type of the tensors.")(**widened("partial"))
mutant("DoubleInFloat", "Results of double tensors have the precision of float32.")(
    rounded=lambda s, up, v: v.astype(np.float32).astype(s.dtype)
)
mutant("ThroughHalf", "Results of bfloat16 tensors are rounded to float16 first.")(
    rounded=lambda s, up, v: up(v.astype(np.float16) if s.dtype.itemsize == 2 else v)
)
mutant("ResultInFloat", "The result of float16 and bfloat16 tensors is a float tensor.")(
    rounded=lambda s, up, v: v.astype(np.float32 if s.dtype.itemsize == 2 else s.dtype)
)
mutant(
    "DxSumsInTheTensorsType",
    "dX is summed in the type of the tensors, so float16 sums stop growing.",
    gradient_only=True,
)(sum_type=lambda s, up: s.dtype)
mutant(
    "DroisSumsInTheTensorsType",
    "drois is summed over bins in the type of the tensors.",
    gradient_only=True,
)(droi_sum=lambda s, up, v: float(np.add.accumulate(v.ravel().astype(s.dtype))[-1]) if v.size else 0.0)

mutant.begin_category(Category.INDEXING)
mutant("BatchIndexIgnored", "Every RoI reads image 0.")(image_of=lambda s, up, r, images: 0)
mutant("ImagesInTurn", "batch_indices is ignored: RoI r reads image r, starting again after the last image.")(
    image_of=lambda s, up, r, images: int(r % (images.max() + 1))
)
mutant("FirstImageForAll", "Every RoI reads the image of the first RoI.")(
    image_of=lambda s, up, r, images: int(images[0])
)
mutant(
    "NegativeIndexWraps", "Negative batch indices count from the last image, as in NumPy, instead of being refused."
)(are_images=lambda s, up, images, n: up(np.where((images < 0) & (images >= -n), 0, images), n))
mutant("IndexNTaken", "A batch index of N, one too large, reads the last image instead of being refused.")(
    are_images=lambda s, up, images, count: up(images, count + 1 if count else 0),
    image=lambda s, up, x, n: up(x, min(n, len(x) - 1)),
    add=lambda s, up, dx, n, part: up(dx, min(n, len(dx) - 1), part),
)
mutant("IndexIn32Bits", "Batch indices are truncated to 32 bits.")(regions=in_32_bits)
mutant("AngleOfTheFirst", "Every RoI uses the angle of the first RoI.")(
    regions=lambda s, up, *a: (
        (b := up(*a)) and (np.concatenate([b[0][:, :4], b[0][:1, 4:].repeat(len(b[0]), 0)], axis=1), b[1])
    )
)
mutant("FirstChannelForAll", "Every channel of the result is computed from channel 0.")(
    image=lambda s, up, x, n: x[n][:1].repeat(x.shape[1], 0)
)
mutant("WholeBlocksOfChannels", "Channels after the last whole block of 16 stay 0.")(image=whole_blocks)
mutant("ChannelsReversed", "Channels are read in reverse order.")(image=lambda s, up, x, n: up(x, n)[::-1])
mutant("NAndCExchanged", "The map is read as [C, N, H, W].")(
    image=lambda s, up, x, n: x.reshape(x.shape[1], x.shape[0], *x.shape[2:])[:, n]
)
mutant("HAndWExchanged", "X is read as [N, C, W, H].")(
    image=lambda s, up, x, n: x[n].reshape(x.shape[1], x.shape[3], x.shape[2]).swapaxes(1, 2)
)
mutant("BinsTransposed", "The result is written as [R, C, PW, PH].")(
    forward=lambda s, up, *a: (y := up(*a)).swapaxes(2, 3).reshape(y.shape)
)
mutant("BinsReversedAlongX", "The bins of each row are written in reverse order.")(
    forward=lambda s, up, *a: up(*a)[..., ::-1]
)
mutant("BinsReversedAlongY", "The rows of bins are written in reverse order.")(
    forward=lambda s, up, *a: up(*a)[..., ::-1, :]
)
mutant("RoisGroupedByImage", "Results are sorted by image instead of keeping the order of the RoIs.")(
    forward=lambda s, up, x, rois, images: up(x, rois, images)[np.argsort(images, kind="stable")]
)
mutant("DyTransposed", "dY is read as [R, C, PW, PH].", gradient_only=True)(
    gradient=lambda s, up, dy, *a: up(
        dy.reshape(*dy.shape[:2], *dy.shape[:1:-1]).swapaxes(2, 3) if dy.ndim == 4 else dy, *a
    )
)
mutant("DxOfImage0", "dX of every RoI goes to image 0.", gradient_only=True)(
    add=lambda s, up, dx, n, part: up(dx, 0, part)
)
mutant("DroisOfImage0", "Gradients that need X read image 0 for every RoI.", gradient_only=True)(
    image=lambda s, up, x, n: up(x, 0 if s.is_gradient else n)
)

mutant.begin_category(Category.GRADIENTS)
mutant("DxOverwritten", "dX of an image is overwritten by each RoI instead of summed: only the last RoI counts.")(
    add=lambda s, up, dx, n, part: np.copyto(dx[n], part, casting="unsafe")
)
mutant("DxRaced", "Where RoIs share a pixel, only the last one's gradient is kept.")(
    add=lambda s, up, dx, n, part: np.copyto(dx[n], part, casting="unsafe", where=part != 0)
)
mutant("DxOfTheOtherDirection", "The gradient rotates regions in the wrong direction.")(
    turn=lambda s, up, angle: up(-angle) if s.is_gradient else up(angle)
)
mutant("DxUpright", "The gradient ignores the angle.")(turn=lambda s, up, angle: 0.0 if s.is_gradient else up(angle))
mutant("DxOfReplicatedEdges", "Samples outside the map pass their gradient to the nearest edge pixel.")(
    inside=lambda s, up, c, n: up(c, n) | s.is_gradient
)
mutant("DxNotDivided", "dX is not divided by the number of samples: each sample passes on the whole gradient.")(
    gradient_divided_by=lambda s, up, grid: 1
)
mutant("DxDividedByOneCount", "dX is divided by the number of samples along y only, not by that of both axes.")(
    gradient_divided_by=lambda s, up, grid: max(grid.per_bin[0], 1)
)
mutant("DxOfClampedSizes", "The gradient, but not the forward operator, raises sizes to 1 if aligned = 1.")(
    is_raised=lambda s, up, size, axis: size < 1 if s.is_gradient else up(size, axis)
)
mutant("DxOfNotAligned", "The gradient ignores aligned.")(
    centre=lambda s, up, cx, cy: up(cx, cy) + s.is_aligned * s.is_gradient * (0.5 + 0.5j)
)
mutant("DxNeedsX", "dX is refused unless X is given, though it does not need X.")(needs_x=lambda s, up: True)
mutant("DroisAre0", "drois is 0.")(droi=lambda s, up, sums: [0 * one for one in up(sums)])
for number, name in enumerate(("Cx", "Cy", "W", "H", "Angle")):
    words = name.lower()
    mutant(f"D{name}Is0", f"The gradient by {words} is 0.")(
        droi=lambda s, up, sums, number=number: [0 * v if k == number else v for k, v in enumerate(up(sums))]
    )
    mutant(f"D{name}Negated", f"The gradient by {words} has the wrong sign.")(
        droi=lambda s, up, sums, number=number: [-v if k == number else v for k, v in enumerate(up(sums))]
    )
    if name != "Angle":
        mutant(f"D{name}WithoutScale", f"The gradient by {words} lacks the factor spatial_scale.")(
            droi=lambda s, up, sums, number=number: [
                v / s.scales()[0] if k == number else v for k, v in enumerate(up(sums))
            ]
        )
    mutant(f"D{name}OfOneChannel", f"The gradient by {words} is computed from the first channel only.")(
        average_part=lambda s, up, dy, image, *a, number=number: (
            (both := up(dy, image, *a))[0],
            [
                w if k == number else v
                for k, (v, w) in enumerate(zip(both[1], up(dy[:1], image[:1], *a)[1], strict=True))
            ],
        )
    )
mutant("DAngleScaled", "The gradient by the angle is multiplied by spatial_scale.")(
    by_angle=lambda s, up, away: up(away) * s.scales()[0]
)
mutant("DAngleInDegrees", "The gradient by the angle is per degree instead of per radian.")(
    by_angle=lambda s, up, away: up(away) * np.pi / 180
)
mutant("DAngleIgnoresClockwise", "The sign of the gradient by the angle ignores clockwise.")(
    by_angle=lambda s, up, away: up(away) * s.sign()
)
mutant("DAngleOfUprightSamples", "The gradient by the angle is computed as if the angle were 0.")(
    by_numbers=lambda s, up, x, y, away, t: np.concatenate(
        [up(x, y, away, t)[:4], up(x, y, away * np.exp(1j * t), t)[4:]]
    )
)
mutant("DAngleAboutTheOrigin", "The gradient by the angle is that of a rotation about the origin of the map.")(
    grid=remembering("middle", 0),
    by_angle=lambda s, up, away: up(away + s.middle),
)
mutant("DSizesOfUprightSamples", "The gradients by width and height are computed as if the angle were 0.")(
    by_numbers=lambda s, up, x, y, away, t: up(x, y, away, t) * np.exp(1j * t * np.array([[0], [0], [1], [1], [0]]))
)
mutant("DSizesExchanged", "The gradients by width and height are exchanged.")(
    droi=lambda s, up, sums: in_order(up(sums), 0, 1, 3, 2, 4)
)
mutant("DCentreExchanged", "The gradients by cx and cy are exchanged.")(
    droi=lambda s, up, sums: in_order(up(sums), 1, 0, 2, 3, 4)
)
mutant("DCentreTurned", "The gradients by cx and cy are rotated with the region.")(
    by_numbers=lambda s, up, x, y, away, t: up(x, y, away, t) * np.exp(-1j * t * np.array([[1], [1], [0], [0], [0]]))
)
mutant("DSizesOfEnds", "The gradients by width and height are twice too large, as if only one end moved.")(
    droi=lambda s, up, sums: [v * (2 if k in (2, 3) else 1) for k, v in enumerate(up(sums))]
)
mutant("DroisOfAFreeSize", "drois lets the size vary although it has been raised to 1.")(
    side=lambda s, up, *a: up(*a)._replace(by_size=s.scales()[0])
)
mutant("DroisOfAFixedSize", "drois treats width and height as constant.")(
    side=lambda s, up, *a: up(*a)._replace(by_size=0.0)
)
mutant("DroisFixedBothWays", "drois treats both width and height as constant if either has been raised to 1.")(
    by_numbers=lambda s, up, x, y, *a: up(
        *(side._replace(by_size=side.by_size * bool(x.by_size and y.by_size)) for side in (x, y)), *a
    )
)
mutant("DroisThroughClamp", "A sample that is clamped to the border contributes to drois.")(
    has_slope=lambda s, up, c, inside, n: inside & (np.floor(np.clip(c, 0, n - 1)) < n - 1)
)


def undivided(s: Any, up: Any, dy: Array, image: Array, grid: Grid) -> Any:
    """A replacement of `average_part` whose drois is not divided by the number of samples."""
    dx, droi = up(dy, image, grid)
    return dx, [one * max(grid.per_bin[0] * grid.per_bin[1], 1) for one in droi]


mutant("DroisNotDivided", "drois is not divided by the number of samples.")(average_part=undivided)
mutant("DroisOnlyWithDx", "A node whose only output is drois returns dX in its place.")(gradient=with_dx_always)

mutant.begin_category(Category.DEFAULTS)
mutant("NotAlignedByDefault", "aligned defaults to 0.")(defaults=by_default(aligned=0))
mutant("ClockwiseByDefault", "clockwise defaults to 1.")(defaults=by_default(clockwise=1))
mutant("Ratio1ByDefault", "sampling_ratio defaults to 1.")(defaults=by_default(sampling_ratio=1))
mutant("Ratio2ByDefault", "sampling_ratio defaults to 2.")(defaults=by_default(sampling_ratio=2))
mutant("Output7x7ByDefault", "The output size defaults to 7 x 7.")(defaults=by_default(output_height=7, output_width=7))
mutant("QuarterByDefault", "spatial_scale defaults to 1/4.")(defaults=by_default(spatial_scale=0.25))
mutant("HeightForWidth", "output_width is ignored: the output is as wide as it is high.")(
    meaning=lambda s, up, a: a | {"output_width": a["output_height"]}
)
mutant("HeightAndWidthExchanged", "output_height and output_width are exchanged.")(
    meaning=lambda s, up, a: a | {"output_height": a["output_width"], "output_width": a["output_height"]}
)
for name in ("aligned", "clockwise"):
    mutant(f"{name.capitalize()}Unchecked", f"Values of {name} other than 0 and 1 are accepted and taken for 1.")(
        meaning=lambda s, up, a, name=name: a | {name: int(a[name] != 0)}
    )
mutant("NegativeRatioIsAdaptive", "A negative sampling_ratio is taken for 0.")(
    meaning=lambda s, up, a: a | {"sampling_ratio": max(a["sampling_ratio"], 0)}
)
mutant("LargeRatioTaken", "A sampling_ratio that is too large is taken for 1 instead of refused.")(
    meaning=lambda s, up, a: a | ({"sampling_ratio": 1} if a["sampling_ratio"] > MOST_RATIO else {})
)
mutant("RatioIn32Bits", "sampling_ratio is truncated to 32 bits.")(
    meaning=lambda s, up, a: a | {"sampling_ratio": (a["sampling_ratio"] + 2**31) % 2**32 - 2**31}
)
mutant("EmptyOutputTaken", "An output height or width of 0 is accepted.")(
    meaning=lambda s, up, a: a | {name: max(a[name], 1) for name in ("output_height", "output_width")}
)
mutant("ScaleUnchecked", "Any spatial_scale is accepted, including 0, negative numbers and NaN.")(
    check_attributes=scale_unchecked
)
mutant("RoisUnchecked", "Infinite and NaN RoIs are taken for 0 instead of refused.")(
    regions=lambda s, up, rois, *a: up(np.nan_to_num(rois, posinf=0.0, neginf=0.0), *a)
)
mutant("NaNAloneRefused", "Infinite RoIs are accepted; only NaN is refused.")(
    regions=lambda s, up, rois, *a: up(np.where(np.isinf(rois), 0, rois), *a)
)
mutant("AnglesUnchecked", "An infinite or NaN angle is taken for 0 instead of refused.")(
    regions=lambda s, up, rois, *a: up(
        np.where((np.arange(rois.shape[-1]) == 4) & ~np.isfinite(rois), 0, rois).astype(rois.dtype), *a
    )
)
mutant("FourNumbersTaken", "RoIs with four numbers are accepted and have the angle 0.")(
    regions=lambda s, up, rois, *a: up(np.pad(rois, ((0, 0), (0, 1))) if rois.shape[1:] == (4,) else rois, *a)
)
mutant("SixNumbersTaken", "RoIs with six numbers are accepted, and the last number is ignored.")(
    regions=lambda s, up, rois, *a: up(rois[:, :5] if rois.ndim == 2 else rois, *a)
)
mutant("MoreIndicesTaken", "More batch indices than RoIs are accepted, and the extra ones are ignored.")(
    regions=lambda s, up, rois, images, shape: up(rois, images[: len(rois)], shape)
)
for axis, things in enumerate(("RoIs", "channels", "pixels", "images")):
    refused = (
        f"{'A map' if axis else 'An input'} without {things} is refused{' even if there are no RoIs' * (axis > 1)}."
    )
    mutant(f"No{things.capitalize()}Refused", refused)(**refused_without(axis))
mutant(
    "XOfAnotherShapeTaken",
    "An X whose shape is not x_shape is accepted.",
    gradient_only=True,
)(gradient=lambda s, up, *a: up(*a[:4], a[4] if a[4] is None or a[4].shape == tuple(a[3]) else np.zeros(a[3])))
add_sizes(mutant, has_maxima=False)
add_samples_beyond(mutant, "extent", has_maxima=False)
MUTANTS = tuple(mutant)
__getattr__ = mutant.find
