"""The control and the mutants of MaxRoiPool and its gradient."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from conformance.mutants.base import Array, Category, MutantFactory, Node, by_default
from conformance.mutants.sizes import FLT_MAX, Thresholds, add_beyond, add_lengths, clipped, flushed

DEFAULTS: dict[str, Any] = {"pooled_shape": [1, 1], "spatial_scale": 1.0}
TYPES = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)
FAR = 2**31
"""Ends are limited to this many pixels on either side of 0."""


class Found(NamedTuple):
    """The maxima of one RoI, [C, P, Q] each: rank among the pixels of the channel, row, column. Rank 0 means none."""

    rank: Array
    row: Array
    column: Array


class Control(Node):
    """The operators without a fault. They compare ranks of pixels instead of values."""

    OPERATORS = ("MaxRoiPool",)

    def defaults(self) -> dict[str, Any]:
        return DEFAULTS

    def check_attributes(self) -> None:
        bins = self.attributes["pooled_shape"]
        if len(bins) != 2 or min(bins) < 1 or not 0 < self.attributes["spatial_scale"] < np.inf:
            raise ValueError("attribute")

    def answer(self, *inputs: Any) -> list[Array]:
        if any(one is None for one in inputs) or len(inputs) != 2 + self.is_gradient:
            raise ValueError("inputs")
        *dy, x, rois = inputs
        if x.dtype not in TYPES or any(one.dtype != x.dtype for one in inputs):
            raise ValueError("type")
        boxes, images = self.regions(rois, x.shape)
        return self.gradient(dy[0], boxes, images, x.shape, x) if dy else [self.forward(x, boxes, images)]

    def regions(self, rois: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """The boxes [R, 4] and the image [R] of each RoI."""
        if rois.ndim != 2 or rois.shape[1] != 5:
            raise ValueError("shape")
        numbers, boxes = self.columns(rois.astype(np.float64))
        self.check(rois, boxes, numbers, shape)
        return boxes, numbers.astype(np.int64)

    def columns(self, rois: Array) -> tuple[Array, Array]:
        """The batch ids [R] and the boxes [R, 4]."""
        return rois[:, 0], rois[:, 1:]

    def check(self, rois: Array, boxes: Array, numbers: Array, shape: tuple[int, ...]) -> None:
        """Raise ValueError for wrong RoIs, batch ids or shapes."""
        if len(shape) != 4 or not self.are_images(numbers, shape[0]) or not self.are_boxes(boxes):
            raise ValueError("value")
        if rois.size and 0 in shape[2:]:
            raise ValueError("no pixels")

    def are_boxes(self, boxes: Array) -> bool:
        """Whether all ends are finite."""
        return bool(np.isfinite(boxes).all())

    def are_images(self, numbers: Array, count: int) -> bool:
        """Whether every batch id is an integer and names an image."""
        return bool(np.all((numbers >= 0) & (numbers < count) & (numbers == np.floor(numbers))))

    def forward(self, x: Array, rois: Array, images: Array) -> Array:
        """The result [R, C, P, Q]."""
        bins = self.bins()
        y = np.zeros((len(rois), x.shape[1], *bins))
        for r, roi in enumerate(rois):
            y[r] = self.pooled(self.image(x, self.image_of(r, images)).astype(np.float64), *self.masks(roi, bins, x))
        return y

    def bins(self) -> tuple[int, int]:
        """The number of bins of a RoI along y and along x."""
        height, width = self.attributes["pooled_shape"]
        return height, width

    def image_of(self, r: int, images: Array) -> int:
        """The image of RoI r."""
        return int(images[r])

    def image(self, x: Array, n: int) -> Array:
        """Image n of the map, [C, H, W]."""
        return np.asarray(x[n])

    def pooled(self, image: Array, of_y: Array, of_x: Array) -> Array:
        """The maxima of a RoI's bins, [C, P, Q]."""
        values, ranks = self.ranked(image)
        found = self.found(ranks, of_y, of_x)
        return np.asarray(np.where(found.rank > 0, np.append(self.empty(), values)[found.rank], self.empty()))

    def empty(self) -> float:
        """The result of a bin without pixels."""
        return 0.0

    def ranked(self, image: Array) -> tuple[Array, Array]:
        """The sorted values of an image, NaN last, and the rank of each pixel among them, from 1."""
        values, ranks = np.unique(image, return_inverse=True)
        return values, ranks.reshape(image.shape) + 1

    def found(self, ranks: Array, of_y: Array, of_x: Array) -> Found:
        """The position of each bin's maximum: the first row with the largest pixel, and its first column."""
        shape = (len(ranks), len(of_y), len(of_x))
        made = Found(*(np.zeros(shape, np.int64) for _ in range(3)))
        for q, columns in enumerate(map(np.flatnonzero, of_x)):
            best = self.first(ranks[:, :, columns]) if columns.size else None
            for p, rows in enumerate(map(np.flatnonzero, of_y)):
                if best is None or not rows.size or not len(ranks):
                    continue
                column = columns[best[:, rows]]
                largest = np.take_along_axis(ranks[:, rows], column[..., None], -1)[..., 0]
                row = self.first(largest)
                made.rank[:, p, q] = np.take_along_axis(largest, row[:, None], -1)[:, 0]
                made.row[:, p, q] = rows[row]
                made.column[:, p, q] = np.take_along_axis(column, row[:, None], -1)[:, 0]
        return made

    def first(self, ranks: Array) -> Array:
        """The index of the maximum along the last axis; the first of several."""
        return np.asarray(ranks.argmax(axis=-1))

    def gradient(self, dy: Array, rois: Array, images: Array, x_shape: tuple[int, ...], x: Array) -> list[Array]:
        """dX, [N, C, H, W]."""
        if dy.ndim != 4 or dy.shape[:2] != (len(rois), x_shape[1]) or 0 in dy.shape[2:]:
            raise ValueError("shape")
        dx = np.zeros(x_shape, self.sum_type())
        for r, roi in enumerate(rois):
            n = self.image_of(r, images)
            image = self.image(x, n).astype(np.float64)
            self.add(dx, n, self.passed(dy[r].astype(np.float64), image, *self.masks(roi, dy.shape[2:], x)))
        return [dx]

    def sum_type(self) -> np.dtype[Any]:
        """The type in which dX is summed."""
        return np.dtype(np.float64)

    def add(self, dx: Array, n: int, part: Array) -> None:
        """Add the gradient of one RoI to that of image n."""
        dx[n] += part.astype(dx.dtype)

    def passed(self, dy: Array, image: Array, of_y: Array, of_x: Array) -> Array:
        """The gradient of one RoI, [C, H, W]."""
        values, ranks = self.ranked(image)
        found = self.found(ranks, of_y, of_x)
        made = np.zeros(image.shape)
        is_read = self.passes(found, np.append(0.0, values)[found.rank])
        channel = np.broadcast_to(np.arange(len(image))[:, None, None], dy.shape)
        self.give(made, (channel[is_read], found.row[is_read], found.column[is_read]), dy[is_read])
        return made

    def passes(self, found: Found, largest: Array) -> Array:
        """Whether a bin passes its gradient to a pixel, [C, P, Q]; `largest` is the value of that pixel."""
        return np.asarray(found.rank > 0)

    def give(self, made: Array, pixels: tuple[Array, ...], dy: Array) -> None:
        """Add the gradient of bins to their pixels."""
        np.add.at(made, pixels, dy)

    def masks(self, roi: Array, bins: Any, x: Array) -> tuple[Array, Array]:
        """The masks of the pixels of each bin along y, [P, H], and along x, [Q, W]."""
        x1, y1, x2, y2 = map(float, self.corners(roi))
        return self.mask(y1, y2, bins[0], x.shape[2]), self.mask(x1, x2, bins[1], x.shape[3])

    def corners(self, roi: Array) -> Any:
        """The numbers x1, y1, x2 and y2 of a RoI."""
        return roi

    def mask(self, r1: float, r2: float, bins: int, length: int) -> Array:
        """The mask of the pixels of each bin along one axis, [P, L]."""
        start, end = self.ends(self.whole(self.scaled(r1)), self.whole(self.scaled(r2)), length)
        low, high = self.bounds(self.size(start, end), bins)
        begin, stop = self.on_map(start + low, start + high, length)
        pixels = np.arange(length)
        return np.asarray((pixels >= begin[:, None]) & (pixels < stop[:, None]))

    def scaled(self, end: float) -> float:
        """An end, scaled to pixels."""
        return end * self.scale()

    def scale(self) -> float:
        """The number of pixels per unit of the stored coordinates."""
        return float(self.attributes["spatial_scale"])

    def whole(self, end: float) -> int:
        """An end rounded to the nearest pixel; ties go away from 0."""
        return int(Decimal(max(min(end, self.far()), -FAR)).to_integral_value(ROUND_HALF_UP))

    def far(self) -> float:
        """The largest pixel that an end may be."""
        return FAR

    def ends(self, start: int, end: int, length: int) -> tuple[int, int]:
        """The first and the last pixel of a RoI on a map of `length` pixels."""
        return start, end

    def size(self, start: int, end: int) -> int:
        """The number of pixels of a RoI."""
        return max(end - start + 1, 1)

    def bounds(self, size: int, bins: int) -> tuple[Array, Array]:
        """The first and end pixel of each bin, [P] each, from the start of the RoI."""
        p = np.arange(bins)
        return p * size // bins, -(-(p + 1) * size // bins)

    def on_map(self, begin: Array, stop: Array, length: int) -> tuple[Array, Array]:
        """The bounds of each bin, clipped to a map of `length` pixels."""
        return begin, stop


mutant = MutantFactory(Control)
mutant.begin_category(Category.COORDINATES)


def rounded(change: Any) -> Any:
    """A replacement of `whole` with another rounding."""
    return lambda s, up, end: int(change(max(min(end, FAR), -FAR)))


mutant(
    "HalvesToEven",
    "Ends halfway between two pixels are rounded to even, as Python and NumPy do, instead of away from 0.",
)(whole=rounded(np.rint))
mutant("HalvesUp", "Ends halfway between two pixels are rounded up, also negative ones, instead of away from 0.")(
    whole=rounded(lambda end: np.floor(end + 0.5))
)
mutant("HalvesTowards0", "Ends halfway between two pixels are rounded towards 0 instead of away from it.")(
    whole=rounded(lambda end: np.sign(end) * np.ceil(abs(end) - 0.5))
)
mutant("HalfAddedAndCut", "Ends are rounded by adding 0.5 and truncating, which is wrong for negative ones.")(
    whole=rounded(lambda end: np.trunc(end + 0.5))
)
mutant("EndsCut", "Ends are truncated to whole pixels instead of rounded.")(whole=rounded(np.trunc))
mutant("EndsFloored", "Ends are rounded down instead of to nearest.")(whole=rounded(np.floor))
mutant("EndsRaised", "Ends are rounded up instead of to nearest.")(whole=rounded(np.ceil))
mutant(
    "JustBelowAHalfRounded",
    "Ends are rounded by adding 0.5 in float64 and rounding down, which makes 0.49999999999999994 one.",
)(whole=lambda s, up, end: int(np.sign(end) * np.floor(min(abs(end), FAR) + 0.5)))
mutant("FirstEndFlooredLastRaised", "The start of a RoI is rounded down and its end up, instead of both to nearest.")(
    mask=lambda s, up, r1, r2, *a: up(np.floor(s.scaled(r1)) / s.scale(), np.ceil(s.scaled(r2)) / s.scale(), *a)
)
mutant("ScaledAfterRounding", "Ends are rounded before scaling and again after it.")(
    scaled=lambda s, up, end: up(float(Control.whole(s, end)))
)
mutant("HalfPixel", "Ends are shifted by half a pixel, as in RoiAlign.")(scaled=lambda s, up, end: up(end) - 0.5)
mutant("ScaleDivides", "Ends are divided by spatial_scale instead of multiplied.")(
    scaled=lambda s, up, end: end / s.scale()
)
mutant("ScaleOfXAlone", "spatial_scale is applied to x1 and x2 only.")(
    corners=lambda s, up, roi: up(roi) / np.array([1, s.scale(), 1, s.scale()])
)


def unrounded(s: Any, up: Any, r1: float, r2: float, bins: int, length: int) -> Any:
    """A replacement of `mask` that does not round the ends."""
    first, size, edges = s.scaled(r1), max(s.scaled(r2) - s.scaled(r1), 1.0), np.arange(bins + 1) / bins
    cells = np.clip(first + size * edges, -FAR, FAR)
    pixels = np.arange(length)
    return (pixels >= np.floor(cells[:-1, None])) & (pixels < np.ceil(cells[1:, None]))


mutant("EndsUnrounded", "Ends are not rounded: a bin consists of all pixels that it touches.")(mask=unrounded)
mutant("EndExcluded", "The second end is excluded: it is taken for the pixel after the last one.")(
    size=lambda s, up, start, end: max(end - start, 1)
)
mutant("SizeWithoutTheLastPixel", "The size of a RoI is end - start instead of end - start + 1.")(
    bounds=lambda s, up, size, bins: up(max(size - 1, 1), bins)
)
mutant("XAndYSwapped", "RoIs are read as y1, x1, y2 and x2.")(corners=lambda s, up, roi: up(roi)[[1, 0, 3, 2]])
mutant("EndsByAxis", "RoIs are read as x1, x2, y1 and y2.")(corners=lambda s, up, roi: up(roi)[[0, 2, 1, 3]])
mutant("CornerAndSize", "RoIs are read as x, y, width and height.")(
    corners=lambda s, up, roi: np.concatenate([up(roi)[:2], up(roi)[:2] + up(roi)[2:] - 1])
)
mutant("InvertedIsEmpty", "A RoI with swapped ends has no pixels instead of one.")(
    size=lambda s, up, start, end: max(end - start + 1, 0)
)
mutant("InvertedIsOrdered", "Swapped ends of a RoI are put in order.")(
    ends=lambda s, up, start, end, n: (min(up(start, end, n)), max(up(start, end, n)))
)
mutant("InvertedAtItsSecondEnd", "A RoI with swapped ends is the pixel at its second end instead of its first.")(
    ends=lambda s, up, start, end, n: (min(up(start, end, n)), end)
)
mutant("InvertedOnBothAxes", "A RoI with swapped ends on one axis is a single pixel along both.")(
    corners=lambda s, up, roi: (
        np.tile(up(roi)[:2], 2) if np.any(up(roi)[2:] * s.scale() < up(roi)[:2] * s.scale() - 1) else up(roi)
    )
)
mutant("EndsUnlimited", "Ends are not limited to 2^31 pixels.")(
    whole=lambda s, up, end: int(Decimal(max(min(end, 2**40), -(2**40))).to_integral_value(ROUND_HALF_UP))
)
mutant("EndsUpTo31Bits", "Ends are limited to 2^31 - 1 pixels.")(far=lambda s, up: 2**31 - 1)
mutant("EndsWrap", "Ends wrap around like 32-bit integers.")(
    whole=lambda s, up, end: (
        (int(Decimal(max(min(end, 2**62), -(2**62))).to_integral_value(ROUND_HALF_UP)) + 2**31) % 2**32 - 2**31
    )
)
mutant("FarEndsRefused", "Ends beyond the range of a 32-bit integer are refused.")(
    are_boxes=lambda s, up, boxes: up(boxes) and bool(np.all(np.abs(boxes * s.scale()) < FAR))
)

mutant.begin_category(Category.BORDERS)
mutant("EdgesReplicated", "Pixels outside the map are those of its nearest edge.")(
    on_map=lambda s, up, begin, stop, n: (np.clip(begin, 0, n - 1), np.clip(stop, 1, n))
)
mutant("RoisCutFirst", "RoIs are clipped to the map before they are divided into bins.")(
    ends=lambda s, up, start, end, n: (min(max(start, 0), n - 1), min(max(end, 0), n - 1))
)
mutant("StartsCutFirst", "The start of a RoI is clipped to the map before it is divided into bins.")(
    ends=lambda s, up, start, end, n: (max(start, 0), end)
)
mutant("FirstPixelUnread", "A bin that starts before the map does not read the map's first pixel.")(
    on_map=lambda s, up, begin, stop, n: (np.where(begin < 0, np.maximum(begin, 1), begin), stop)
)
mutant("LastPixelUnread", "A bin that ends beyond the map does not read the map's last pixel.")(
    on_map=lambda s, up, begin, stop, n: (begin, np.where(stop > n, n - 1, stop))
)
mutant("BinsAcrossTheEdgeEmpty", "A bin that is partly outside the map counts as empty.")(
    on_map=lambda s, up, begin, stop, n: (begin, np.where((begin < 0) | (stop > n), begin, stop))
)
mutant("StartsWrap", "A negative start of a bin counts from the map's end, as in Python slices.")(
    on_map=lambda s, up, begin, stop, n: (np.where(begin < 0, np.maximum(begin + n, 0), begin), stop)
)


MARGIN = 32
"""The width of the border of zeros, in pixels."""
BORDER = ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN))
mutant("OutsideIs0", "Pixels outside the map count as 0 instead of being left out.")(
    scaled=lambda s, up, end: up(end) + MARGIN,
    mask=lambda s, up, r1, r2, bins, n: up(r1, r2, bins, n + 2 * MARGIN),
    pooled=lambda s, up, image, *a: up(np.pad(image, BORDER), *a),
    passed=lambda s, up, dy, image, *a: up(dy, np.pad(image, BORDER), *a)[:, MARGIN:-MARGIN, MARGIN:-MARGIN],
)
for name, words, value in (
    ("EmptyIsMinusInfinity", "A bin without pixels gives minus infinity instead of 0.", -np.inf),
    ("EmptyIsLowest", "A bin without pixels gives -FLT_MAX instead of 0.", -FLT_MAX),
    ("EmptyIsNaN", "A bin without pixels gives NaN instead of 0.", np.nan),
    ("EmptyIsMinus1", "A bin without pixels gives -1 instead of 0.", -1.0),
):
    mutant(name, words)(empty=lambda s, up, value=value: value)
mutant("EmptyRefused", "A bin without pixels is refused.")(found=lambda s, up, *a: full(up(*a)))


def full(found: Found) -> Found:
    """The maxima; raises ValueError if a bin has none."""
    if not found.rank.all():
        raise ValueError("empty bin")
    return found


mutant.begin_category(Category.COUNTS)


def divided(change: Any) -> Any:
    """A replacement of `bounds`: `change` maps bin numbers, RoI size and bin count to first and end pixels."""
    return lambda s, up, size, bins: tuple(
        np.asarray(one).astype(np.int64) for one in change(np.arange(bins, dtype=float), float(size), float(bins))
    )


mutant("BinsApart", "Bins never overlap: a bin ends before the pixel in which the next one starts.")(
    bounds=lambda s, up, size, bins: (up(size, bins)[0], np.arange(1, bins + 1) * size // bins)
)
mutant(
    "BinsApartWithAPixel",
    "Bins overlap only where one would be empty otherwise: a bin ends before the next one's first pixel.",
)(
    bounds=lambda s, up, size, bins: (
        (low := up(size, bins)[0]),
        np.maximum(np.arange(1, bins + 1) * size // bins, low + 1),
    )
)
mutant("BinsBeginLate", "A bin starts at the first pixel that lies wholly inside it.")(
    bounds=lambda s, up, size, bins: (-(-np.arange(bins) * size // bins), up(size, bins)[1])
)
mutant("BoundsRounded", "The bounds of bins are rounded to nearest instead of outwards.")(
    bounds=divided(lambda p, size, bins: (np.floor(p * size / bins + 0.5), np.floor((p + 1) * size / bins + 0.5)))
)
mutant("BinsOfWholePixels", "All bins have the same number of pixels, rounded down; the last one has the rest.")(
    bounds=divided(lambda p, size, bins: (p * (size // bins), np.where(p < bins - 1, (p + 1) * (size // bins), size)))
)
mutant("BinsOfRaisedPixels", "All bins have the same number of pixels, rounded up; the last ones have fewer or none.")(
    bounds=divided(lambda p, size, bins: (p * -(-size // bins), np.minimum((p + 1) * -(-size // bins), size)))
)
mutant("BinsAPixelMore", "Every bin ends one pixel too late.")(
    bounds=lambda s, up, size, bins: (up(size, bins)[0], up(size, bins)[1] + 1)
)
mutant("WholeBinsAPixelMore", "A bin that ends at a whole pixel ends one pixel too late.")(
    bounds=divided(lambda p, size, bins: (np.floor(p * size / bins), np.floor((p + 1) * size / bins) + 1))
)
mutant("EveryBinTheWholeRoi", "Every bin consists of all pixels of the RoI.")(
    bounds=lambda s, up, size, bins: (np.zeros(bins, np.int64), np.full(bins, size))
)
mutant("AtMostAPixelABin", "A RoI with fewer pixels than bins has one pixel per bin and then empty bins.")(
    bounds=lambda s, up, size, bins: (
        up(size, bins) if size >= bins else ((p := np.arange(bins)), np.minimum(p + 1, size))
    )
)

mutant.begin_category(Category.REDUCTIONS)


def pooling(change: Any) -> Any:
    """A replacement of `pooled` with another reduction of the pixels [C, rows, columns] of a bin."""

    def pooled(s: Any, up: Any, image: Array, of_y: Array, of_x: Array) -> Array:
        made = np.zeros((len(image), len(of_y), len(of_x)))
        for p, rows in enumerate(of_y):
            for q, columns in enumerate(of_x):
                if rows.any() and columns.any():
                    made[:, p, q] = change(image[:, rows][:, :, columns])
        return made

    return pooled


mutant("Average", "An output is the average of its bin instead of the maximum.")(
    pooled=pooling(lambda v: v.mean(axis=(1, 2)))
)
mutant("Minimum", "An output is the minimum of its bin instead of the maximum.")(
    pooled=pooling(lambda v: v.min(axis=(1, 2)))
)
mutant("LargestOfSizes", "An output is the pixel of its bin with the largest absolute value.")(
    pooled=pooling(lambda v: v.reshape(len(v), -1)[range(len(v)), np.abs(v).reshape(len(v), -1).argmax(axis=1)])
)
mutant("FirstPixel", "An output is the first pixel of its bin instead of the maximum.")(
    pooled=pooling(lambda v: v[:, 0, 0])
)
mutant("CornersAlone", "An output is the maximum of the four corner pixels of its bin.")(
    pooled=pooling(lambda v: v[:, [0, 0, -1, -1], [0, -1, 0, -1]].max(axis=1))
)
mutant("LastRowUnread", "The last row of a bin is not read if it has several.")(
    pooled=pooling(lambda v: v[:, : max(v.shape[1] - 1, 1)].max(axis=(1, 2)))
)


def beginning(number: float) -> dict[str, Any]:
    """Replacements for a maximum with this start value: only larger pixels win."""

    def pooled(s: Any, up: Any, image: Array, of_y: Array, of_x: Array) -> Array:
        y = up(image, of_y, of_x)
        has_pixels = np.logical_and.outer(of_y.any(axis=1), of_x.any(axis=1))
        return np.asarray(np.where(has_pixels, np.maximum(y, number), y))

    return {"pooled": pooled, "passes": lambda s, up, found, largest: up(found, largest) & ~(largest <= number)}


for name, words, value in (
    ("From0", "0, so negative pixels are lost", 0.0),
    ("FromMinus10000", "-10000", -10000.0),
    ("FromMinusFltMax", "-FLT_MAX", -FLT_MAX),
    ("FromTheLeastNormal", "the least positive normal number, as ONNX Runtime's once did", 2.0**-126),
):
    mutant(f"Max{name}", f"A maximum starts at {words}.")(**beginning(value))
mutant("NaNLoses", "NaN is left out of a maximum.")(
    ranked=lambda s, up, image: up(np.where(np.isnan(image), -np.inf, image))
)
mutant("NaNSpoilsChannels", "All outputs of a channel with a NaN are NaN.")(
    image=lambda s, up, *a: np.where(np.isnan(x := up(*a)).any(axis=(1, 2), keepdims=True), np.nan, x)
)
mutant("NaNWinsIfFirst", "A maximum is NaN only if the first pixel of the bin is.")(
    pooled=pooling(lambda v: np.where(np.isnan(v[:, 0, 0]), np.nan, np.fmax.reduce(v.reshape(len(v), -1), axis=1)))
)
mutant("NaNIs0", "An output that would be NaN is 0.")(pooled=lambda s, up, *a: np.where(np.isnan(y := up(*a)), 0.0, y))
mutant("InfinityIsEmpty", "An output of minus infinity is replaced by 0, as if its bin were empty.")(
    pooled=lambda s, up, *a: np.where(np.isneginf(y := up(*a)), 0.0, y)
)

mutant.begin_category(Category.TYPES)


def in_type(size: int, bins: int, dtype: Any) -> tuple[Array, Array]:
    """A replacement of `bounds` that computes in another type."""
    each, p = np.asarray(size, dtype) / np.asarray(bins, dtype), np.arange(bins + 1).astype(dtype)
    edges = (p * each).astype(np.float64)
    return np.floor(edges[:-1]).astype(np.int64), np.ceil(edges[1:]).astype(np.int64)


mutant("BinsInFloat", "The size and the bounds of bins are computed in float32, as in Caffe and ONNX Runtime.")(
    bounds=lambda s, up, size, bins: in_type(size, bins, np.float32)
)
mutant("BinsInDouble", "The size and the bounds of bins are computed in float64 instead of exactly.")(
    bounds=lambda s, up, size, bins: in_type(size, bins, np.float64)
)
mutant("BinsInTheTensorsType", "The size and the bounds of bins are computed in the type of the tensors.")(
    bounds=lambda s, up, size, bins: in_type(size, bins, s.dtype if s.dtype.itemsize < 4 else np.float64)
)
mutant("EndsInTheTensorsType", "Ends are scaled in the type of the tensors.")(
    scaled=lambda s, up, end: float(np.asarray(up(end)).astype(s.dtype))
)
mutant("EndsInFloat", "Ends are scaled in float32 even for double tensors.")(
    scaled=lambda s, up, end: float(np.float32(end) * np.float32(s.scale()))
)
mutant("ScaleInTheTensorsType", "spatial_scale is rounded to the type of the tensors.")(
    scale=lambda s, up: float(np.asarray(up()).astype(s.dtype)) or 1.0
)
mutant("RoisInHalf", "RoIs are converted to float16.")(
    columns=lambda s, up, rois: up(rois.astype(np.float16).astype(np.float64))
)
mutant("DoubleInFloat", "Results of double tensors have the precision of float32.")(
    rounded=lambda s, up, v: v.astype(np.float32).astype(s.dtype)
)
mutant("ComparedInFloat", "Pixels are compared in float32, so nearly equal doubles tie.", gradient_only=True)(
    ranked=lambda s, up, image: up(image.astype(np.float32))
)
mutant("ComparedInHalf", "Pixels are compared in float16, so nearly equal ones tie.", gradient_only=True)(
    ranked=lambda s, up, image: up(image.astype(np.float16))
)
mutant(
    "DxSumsInTheTensorsType",
    "dX is summed in the type of the tensors, so 16-bit sums stop growing.",
    gradient_only=True,
)(sum_type=lambda s, up: s.dtype)

mutant.begin_category(Category.INDEXING)
mutant("BatchIdIgnored", "Every RoI reads image 0.")(image_of=lambda s, up, r, images: 0)
mutant("BatchIdCut", "Fractional batch ids are truncated instead of refused.")(
    are_images=lambda s, up, numbers, n: up(np.trunc(numbers), n)
)
mutant("BatchIdRounded", "Fractional batch ids are rounded instead of refused.")(
    are_images=lambda s, up, numbers, n: up(np.rint(numbers), n)
)
mutant("BatchIdLast", "The batch id is read from the last of the five numbers of a RoI.")(
    columns=lambda s, up, rois: (rois[:, 4], rois[:, :4])
)
mutant("BatchIdScaled", "The batch id is multiplied by spatial_scale too.")(
    image_of=lambda s, up, r, images: int(up(r, images) * s.scale() + 0.5) % max(int(images.max()) + 1, 1)
)
mutant("BatchIdOfTheFirstRoi", "All RoIs read the image of the first RoI.")(
    image_of=lambda s, up, r, images: up(0, images)
)
mutant("RoisByImage", "Results are sorted by image.")(
    forward=lambda s, up, x, rois, images: up(x, rois[(o := np.argsort(images, kind="stable"))], images[o])
)
mutant("NegativeIdWraps", "Negative batch ids count from the last image, as in NumPy, instead of being refused.")(
    are_images=lambda s, up, numbers, n: up(np.where((numbers < 0) & (numbers >= -n), 0, numbers), n)
)
mutant("IdNTaken", "A batch id of N, one too large, reads the last image instead of being refused.")(
    are_images=lambda s, up, numbers, n: up(np.where(numbers == n, n - 1, numbers) if n else numbers, n),
    image=lambda s, up, x, n: up(x, min(n, len(x) - 1)),
    add=lambda s, up, dx, n, part: up(dx, min(n, len(dx) - 1), part),
)
mutant("BatchIdClamped", "Batch ids are clamped to valid ones instead of refused.")(
    are_images=lambda s, up, numbers, n: bool(np.isfinite(numbers).all()) and n > 0,
    image_of=lambda s, up, r, images: max(up(r, images), 0),
    image=lambda s, up, x, n: up(x, min(n, len(x) - 1)),
    add=lambda s, up, dx, n, part: up(dx, min(n, len(dx) - 1), part),
)
mutant("NaNIdTaken", "A batch id of NaN is taken for 0 instead of refused.")(
    are_images=lambda s, up, numbers, n: up(np.where(np.isnan(numbers), 0, numbers), n),
    image_of=lambda s, up, r, images: max(up(r, images), 0),
)
mutant("ChannelsReversed", "Channels are read in reverse order.")(image=lambda s, up, x, n: up(x, n)[::-1])
mutant("NAndCExchanged", "The map is read as [C, N, H, W].")(
    image=lambda s, up, x, n: x.reshape(x.shape[1], x.shape[0], *x.shape[2:])[:, n]
)
mutant("HAndWExchanged", "The map is read as [N, C, W, H].")(
    image=lambda s, up, x, n: (i := up(x, n)).reshape(len(i), i.shape[2], i.shape[1]).swapaxes(1, 2)
)
mutant("BinsExchanged", "pooled_shape is read as width and height.")(
    bins=lambda s, up: up()[::-1], forward=lambda s, up, *a: (y := up(*a)).reshape(*y.shape[:2], *s.bins()[::-1])
)
mutant("ResultTransposed", "The result is written as [R, C, width, height].")(
    forward=lambda s, up, *a: (y := up(*a)).swapaxes(2, 3).reshape(y.shape)
)
mutant("DxOfImage0", "dX of every RoI goes to image 0.", gradient_only=True)(
    add=lambda s, up, dx, n, part: up(dx, 0, part)
)
mutant("DxOfImageR", "dX of RoI r goes to image r, if there is one.", gradient_only=True)(
    gradient=lambda s, up, dy, rois, images, shape, x: up(
        dy, rois, np.minimum(np.arange(len(rois)), max(shape[0] - 1, 0)), shape, x
    )
)

mutant.begin_category(Category.GRADIENTS)
mutant("DxOverwritten", "dX of an image is overwritten by each RoI instead of summed: only the last RoI counts.")(
    add=lambda s, up, dx, n, part: np.copyto(dx[n], part, casting="unsafe")
)


def assigned(s: Any, up: Any, made: Array, pixels: tuple[Array, ...], dy: Array) -> None:
    """A replacement of `give` that assigns instead of adding."""
    made[pixels] = dy


mutant("BinsOverwrite", "If several bins of a RoI share their largest pixel, only the last one's gradient is kept.")(
    give=assigned
)
mutant("TieToTheLast", "The last of several equal pixels gets the gradient instead of the first.")(
    first=lambda s, up, ranks: ranks.shape[-1] - 1 - up(ranks[..., ::-1])
)
mutant("TieToTheLastColumn", "Of several equal pixels, the last one of the first row gets the gradient.")(
    found=lambda s, up, ranks, of_y, of_x: (f := up(ranks[..., ::-1], of_y, of_x[:, ::-1]))._replace(
        column=ranks.shape[2] - 1 - f.column
    )
)
mutant("TieToTheLastRow", "Of several equal pixels, the first one of the last row gets the gradient.")(
    found=lambda s, up, ranks, of_y, of_x: (f := up(ranks[:, ::-1], of_y[:, ::-1], of_x))._replace(
        row=ranks.shape[1] - 1 - f.row
    )
)
mutant("TieDownTheColumns", "Of several equal pixels, the first in column order gets the gradient.")(
    found=lambda s, up, ranks, of_y, of_x: Found(
        (f := up(ranks.swapaxes(1, 2), of_x, of_y)).rank.swapaxes(1, 2), f.column.swapaxes(1, 2), f.row.swapaxes(1, 2)
    )
)


def to_ties(is_shared: bool) -> Any:
    """A replacement of `passed` that gives the gradient of a bin, or a share of it, to all equal pixels."""

    def passed(s: Any, up: Any, dy: Array, image: Array, of_y: Array, of_x: Array) -> Array:
        ranks = s.ranked(image)[1]
        largest = s.found(ranks, of_y, of_x).rank
        made = np.zeros(image.shape)
        for p, q in np.ndindex(len(of_y), len(of_x)):
            ties = (ranks == largest[:, p, q, None, None]) & np.logical_and.outer(of_y[p], of_x[q])
            count = np.maximum(ties.sum(axis=(1, 2)), 1) if is_shared else 1
            made += np.where(ties, (dy[:, p, q] / count)[:, None, None], 0.0)
        return made

    return passed


mutant("TiesAll", "Each of several equal pixels gets the whole gradient.")(passed=to_ties(False))
mutant("TiesShare", "Equal pixels share the gradient instead of the first getting it all.")(passed=to_ties(True))


def spread(s: Any, up: Any, dy: Array, image: Array, of_y: Array, of_x: Array) -> Any:
    """A replacement of `passed` that is the gradient of an average."""
    shares = [of / np.maximum(of.sum(axis=1, keepdims=True), 1) for of in (of_y, of_x)]
    return np.einsum("cpq,ph,qw->chw", dy, *shares)


mutant("PassedAsAverage", "The gradient of a maximum is that of an average.")(passed=spread)
mutant("EmptyPasses", "The gradient of a bin without pixels goes to the first pixel of the map.")(
    passes=lambda s, up, found, largest: np.ones_like(found.rank, bool)
)
mutant("NegativePassesNothing", "A negative maximum passes no gradient, as behind a ReLU.")(
    passes=lambda s, up, found, largest: up(found, largest) & ~(largest < 0)
)
mutant("MinusInfinityPassesNothing", "A maximum of minus infinity passes no gradient.")(
    passes=lambda s, up, found, largest: up(found, largest) & ~np.isneginf(largest)
)
mutant("NaNPassesNothing", "A maximum of NaN passes no gradient.")(
    passes=lambda s, up, found, largest: up(found, largest) & ~np.isnan(largest)
)
mutant("DxScaled", "The gradient is multiplied by spatial_scale.")(passed=lambda s, up, dy, *a: up(dy * s.scale(), *a))
mutant("DxTimesX", "The gradient is multiplied by the value of the pixel.")(
    passed=lambda s, up, dy, image, *a: np.where((g := up(dy, image, *a)) == 0, 0.0, g * image)
)
mutant("DxTransposed", "dY is read as [R, C, width, height].")(
    passed=lambda s, up, dy, *a: up(dy.swapaxes(1, 2).reshape(dy.shape), *a)
)
mutant("DxAveraged", "The gradients of bins that share their largest pixel are averaged instead of summed.")(
    passed=lambda s, up, dy, *a: up(dy, *a) / np.maximum(up(np.ones_like(dy), *a), 1)
)

mutant.begin_category(Category.DEFAULTS)
mutant("ScaleBySixteenth", "spatial_scale defaults to 1/16, as in the networks of Fast R-CNN.")(
    defaults=by_default(spatial_scale=0.0625)
)
mutant("AttributesUnchecked", "Attribute values are not checked.")(
    check_attributes=lambda s, up: None,
    bins=lambda s, up: (*(max(one, 1) for one in s.attributes["pooled_shape"]), 1, 1)[:2],
    scaled=lambda s, up, end: 0.0 if np.isnan(up(end)) else up(end),
)
mutant("OneNumberTaken", "A pooled_shape of one number is accepted as both height and width.")(
    meaning=lambda s, up, a: a | {"pooled_shape": list(a["pooled_shape"]) * (1 + (len(a["pooled_shape"]) == 1))}
)
mutant("ThirdNumberIgnored", "A pooled_shape of more than two numbers is accepted.")(
    meaning=lambda s, up, a: a | {"pooled_shape": list(a["pooled_shape"])[:2]}
)
mutant("NoScaleIsOne", "A spatial_scale of 0 is taken for 1 instead of refused.")(
    meaning=lambda s, up, a: a | {"spatial_scale": a["spatial_scale"] or 1.0}
)
mutant("NegativeScaleTaken", "The sign of a negative spatial_scale is ignored instead of refused.")(
    meaning=lambda s, up, a: a | {"spatial_scale": abs(a["spatial_scale"])}
)
mutant("InfiniteRoisTaken", "Infinite RoIs are accepted and taken for very large ones.")(
    are_boxes=lambda s, up, boxes: not np.isnan(boxes).any()
)
mutant("NaNRoisTaken", "NaN in RoIs is taken for 0 instead of refused.")(
    are_boxes=lambda s, up, boxes: up(np.nan_to_num(boxes, nan=0.0, posinf=np.inf, neginf=-np.inf)),
    scaled=lambda s, up, end: 0.0 if np.isnan(end) else up(end),
)
mutant("FourNumbersTaken", "RoIs with four numbers are accepted and read image 0.")(
    regions=lambda s, up, rois, shape: up(
        np.pad(rois, ((0, 0), (1, 0))) if rois.ndim == 2 and rois.shape[1] == 4 else rois, shape
    )
)
mutant("IntegersTaken", "Integer tensors are converted instead of refused.")(
    answer=lambda s, up, *a: up(*(one.astype(np.float32) if one.dtype.kind in "iu" else one for one in a)),
    rounded=lambda s, up, y: y.astype(np.float32) if s.dtype.kind in "iu" else up(y),
)
mutant("OtherTypesTaken", "RoIs of another type than the map are accepted.")(
    answer=lambda s, up, *a: up(*(one.astype(a[0].dtype) for one in a))
)
mutant("NoPixelsAre0", "RoIs on a map without pixels give 0 instead of an error.")(
    check=lambda s, up, rois, boxes, numbers, shape: up(
        rois, boxes, numbers, (*shape[:2], *(n or 1 for n in shape[2:]))
    )
)
mutant("NoBinsTaken", "A dY without bins is accepted.", gradient_only=True)(
    gradient=lambda s, up, dy, rois, images, shape, x: (
        [np.zeros(shape)] if dy.ndim == 4 and 0 in dy.shape[2:] else up(dy, rois, images, shape, x)
    )
)
mutant("OtherChannelsTaken", "A dY with another number of channels than the map is accepted.", gradient_only=True)(
    gradient=lambda s, up, dy, rois, images, shape, x: up(
        np.resize(dy, (*dy.shape[:1], *shape[1:2], *dy.shape[2:])), rois, images, shape, x
    )
)
mutant("OtherRoisTaken", "A dY with another number of RoIs than rois is accepted.", gradient_only=True)(
    gradient=lambda s, up, dy, rois, images, shape, x: up(
        np.resize(dy, (len(rois), *dy.shape[1:])), rois, images, shape, x
    )
)


def refused_without(axis: int) -> Any:
    """A replacement of `check` that refuses RoIs or a map with length 0 along an axis."""

    def check(s: Any, up: Any, rois: Array, boxes: Array, numbers: Array, shape: Any) -> None:
        up(rois, boxes, numbers, shape)
        if 0 in ((rois.size,), shape[1:2], shape[2:], shape[:1])[axis]:
            raise ValueError("empty")

    return check


for axis, (name, words) in enumerate(
    (
        ("NoRoisRefused", "An input without RoIs is refused."),
        ("NoChannelsRefused", "A map without channels is refused."),
        ("NoPixelsRefused", "A map without pixels is refused even if there are no RoIs."),
        ("NoImagesRefused", "A map without images is refused even if there are no RoIs."),
    )
):
    mutant(name, words)(check=refused_without(axis))

add_lengths(mutant, Thresholds(0))
add_beyond(mutant)
mutant("LastNaNWins", "The last of several NaN in a bin gets its gradient.", gradient_only=True)(
    ranked=lambda s, up, image: (
        (found := np.unique(image, return_inverse=True, equal_nan=False))[0],
        found[1].reshape(image.shape) + 1,
    )
)
mutant("HugeRefused", "RoIs of very many pixels are refused even if few of them are on the map.")(
    size=lambda s, up, *a: size if (size := up(*a)) < 10**6 else int("many pixels")
)
mutant("LongRowsSplit", "Only the first 64 pixels of each row of a bin are read.")(
    on_map=lambda s, up, begin, stop, n: (np.maximum(begin, 0), np.minimum(stop, np.maximum(begin, 0) + 64))
)
mutant("ScaleAtMost4", "spatial_scale is limited to 4.")(scale=lambda s, up: min(up(), 4.0))
mutant("TinyResultsFlushed", "Subnormal results are flushed to 0.")(rounded=flushed)
mutant("HalfClipped", "float16 results beyond 65504 are clipped to 65504 instead of infinite.")(rounded=clipped)
MUTANTS = tuple(mutant)
__getattr__ = mutant.find
