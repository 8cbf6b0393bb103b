"""The mutants of MaxRoiPool and its gradient."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from conformance.mutants.base import Array, Category, Mutants, Steps, Table, call, is_gradient, own, rounded
from conformance.mutants.shared import FLT_MAX, OF_ROIS, UNCHECKED, scaled
from conformance.mutants.steps import ROIS, X, asked, by_default, given, narrowed, on, on_images, refused_if, result
from ortops.operators.max_roi_pool import MAX_COORDINATE
from ortops.reference import evaluate
from ortops.reference.max_roi_pool import (
    add_to_dx,
    along,
    bins_of,
    bounds_of,
    first_largest,
    largest,
    on_map,
    size_of,
)
from ortops.reference.max_roi_pool import (
    rounded as rounded_end,
)
from ortops.reference.sampling import ends_of

MARGIN = 32
"""The width of a border of zeros, in pixels."""


def ends(change: Any) -> Steps:
    """The rounding of an end is changed, which is limited to `MAX_COORDINATE`."""
    far = float(MAX_COORDINATE)
    return {rounded_end: lambda end: int(change(max(min(end, far), -far)))}


def along_axis(change: Any) -> Steps:
    """The ends of a RoI along an axis: `change` takes r1, r2, the scale, bins and length, and returns these."""
    return {along: lambda *a: own(along)(*change(*a))}


def bounds(change: Any) -> Steps:
    """The first pixel of a bin and the one after its last: `change` takes p, the size of the RoI and the bins."""
    return {bounds_of: lambda p, size, bins: tuple(map(int, change(p, size, bins)))}


def bounds_in(dtype: Any) -> Steps:
    """The size and the bounds of bins are computed in a floating-point type; `dtype` returns it."""

    def change(p: int, size: int, bins: int) -> tuple[float, float]:
        each = np.asarray(size, dtype()) / np.asarray(bins, dtype())
        first, last = (float(np.asarray(k, dtype()) * each) for k in (p, p + 1))
        return math.floor(first), math.ceil(last)

    return bounds(change)


def clipped(change: Any) -> Steps:
    """The pixels of a bin: `change` takes the first, the one after the last and the length of the map."""
    return {on_map: lambda low, high, length: range(max((at := change(low, high, length))[0], 0), min(at[1], length))}


def pooled(change: Any) -> Steps:
    """An output is another reduction of the pixels [rows, columns] of its bin, if it has any."""

    def replaced(channel: Array, bin_: tuple[range, range]) -> float:
        pixels = channel[np.ix_(*bin_)]
        return float(change(pixels)) if pixels.size else own(largest)(channel, bin_)

    return {largest: replaced}


def answering(change: Any) -> Steps:
    """An output is changed: `change` takes it."""
    return {largest: lambda *a: change(own(largest)(*a))}


def empty_is(value: float) -> Steps:
    """The result of a bin without pixels."""
    return {largest: lambda channel, bin_: value if 0 in map(len, bin_) else own(largest)(channel, bin_)}


def starting_at(number: float) -> Steps:
    """A maximum has this start value: only larger pixels win."""

    def winner(channel: Array, bin_: tuple[range, range]) -> Any:
        found = own(first_largest)(channel, bin_)
        return None if found is not None and channel[found] <= number else found

    def output(channel: Array, bin_: tuple[range, range]) -> float:
        found = first_largest(channel, bin_)
        return 0.0 if found is None else float(max(channel[found], number))

    return {first_largest: winner, largest: output}


def winners(change: Any) -> Steps:
    """Another of several equal pixels gets the gradient: `change` takes their places [k, 2] in row order."""

    def replaced(channel: Array, bin_: tuple[range, range]) -> Any:
        found = first_largest(channel, bin_)
        if found is None:
            return None
        pixels = channel[np.ix_(*bin_)]
        equal = np.isnan(pixels) if np.isnan(channel[found]) else pixels == channel[found]
        if np.isnan(channel[found]):
            return found
        row, column = change(np.argwhere(equal).tolist())
        return bin_[0][row], bin_[1][column]

    return {first_largest: replaced}


def passing(change: Any) -> Steps:
    """What a bin passes back is changed: `change` takes dX, the bin's largest pixel and dy."""
    return {add_to_dx: change}


def not_passed_if(is_meant: Any) -> Steps:
    """A maximum passes no gradient; `is_meant` takes its value."""

    def replaced(channel: Array, bin_: tuple[range, range]) -> Any:
        found = own(first_largest)(channel, bin_)
        return None if is_gradient() and found is not None and is_meant(channel[found]) else found

    return {first_largest: replaced}


def passed_to(share: Any) -> Steps:
    """The gradient of a bin goes to several pixels: `share` takes the pixels [rows, columns] of a bin."""

    def replaced(operator: Any, inputs: Any, attributes: Any, wanted: Any) -> Any:
        found = evaluate(operator, inputs, attributes, wanted)
        if not operator.is_gradient:
            return found
        dy, x, rois = (array.astype(np.float64) for array in inputs)
        dx = np.zeros(x.shape)
        scale = attributes.get("spatial_scale", 1.0)
        for r, (roi, p, q, bin_) in bins_of(rois, dy.shape[2:], x.shape[2:], scale):
            for c, channel in enumerate(x[int(roi[0])]):
                if all(map(len, bin_)):
                    dx[int(roi[0]), c][np.ix_(*bin_)] += share(channel[np.ix_(*bin_)]) * dy[r, c, p, q]
        return [dx]

    return {evaluate: replaced}


def ties(pixels: Array) -> Any:
    """Which pixels are as large as the largest; the first NaN alone."""
    if np.isnan(pixels).any():
        return np.arange(pixels.size).reshape(pixels.shape) == np.isnan(pixels).argmax()
    return pixels == pixels.max()


def with_border(operator: Any, inputs: Any, attributes: Any, wanted: Any) -> Any:
    """The outputs for a map with a border of zeros; only its own pixels get a gradient."""
    *dy, x, rois = inputs
    moved = rois.astype(np.float64)
    moved[:, 1:] += MARGIN / attributes.get("spatial_scale", 1.0)
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN)))
    found = evaluate(operator, [*(one.astype(np.float64) for one in dy), wide, moved], attributes, wanted)
    return [y[..., MARGIN:-MARGIN, MARGIN:-MARGIN] if operator.is_gradient and y is not None else y for y in found]


def compared_in(dtype: Any) -> Steps:
    """Pixels are compared in another type, in which nearly equal ones tie."""
    return {first_largest: lambda channel, bin_: first_largest(channel.astype(dtype).astype(np.float64), bin_)}


def as_float(arrays: Any) -> list[Any]:
    """Integer tensors as float ones."""
    return [one.astype(np.float32) if one is not None and one.dtype.kind in "iu" else one for one in arrays]


def unequal_dy(change: Any) -> Steps:
    """A dY of another shape is accepted: `change` takes it and the lengths that it should have."""

    def changed(inputs: dict[str, Array]) -> dict[str, Array]:
        if "dY" not in inputs or inputs["dY"].ndim != 4:
            return inputs
        return inputs | {"dY": change(inputs["dY"], len(inputs["rois"]), inputs["X"].shape[1])}

    return asked(changed)


def no_bins_taken(operator: Any, inputs: Any, attributes: Any, wanted: Any) -> Any:
    """The outputs; dX of a dY without bins is 0."""
    if operator.is_gradient and inputs[0].ndim == 4 and 0 in inputs[0].shape[2:]:
        return [np.zeros(inputs[1].shape)]
    return evaluate(operator, inputs, attributes, wanted)


def numbers(change: Any) -> Steps:
    """The RoIs [R, 5] are changed, before they are checked."""
    return on(ROIS, lambda rois: change(rois).astype(rois.dtype) if rois.shape[1:] == (5,) else rois)


def in_order(*places: int) -> Steps:
    """The four ends of a RoI are read in another order."""
    return {ends_of: lambda roi: ends_of([roi[k] for k in places])}


def single(roi: Any) -> Any:
    """The ends of a RoI, which are those of one pixel if it is inverted on either axis."""
    y, x = ends_of(roi)
    scale = call().memory["scale"]
    is_inverted = any(last * scale < first * scale - 1 for first, last in (y, x))
    return ((y[0], y[0]), (x[0], x[0])) if is_inverted else (y, x)


def remembering_scale(rois: Any, output_size: Any, map_size: Any, scale: float) -> Iterator[Any]:
    """The bins; the scale is kept."""
    call().memory["scale"] = scale
    return own(bins_of)(rois, output_size, map_size, scale)


def round_half_away(end: float) -> int:
    """The nearest whole number, halves away from 0, without a limit."""
    below = math.floor(abs(end))
    return int(math.copysign(below + (abs(end) - below >= 0.5), end))


def remembering_value(channel: Array, winner: Any) -> Any:
    """The winner; its value is kept."""
    call().memory["value"] = 0.0 if winner is None else float(channel[winner])
    return winner


def averaged_dx(operator: Any, inputs: Any, attributes: Any, wanted: Any) -> Any:
    """The outputs, where dX is divided by the number of bins that pass to a pixel."""
    found: Any = evaluate(operator, inputs, attributes, wanted)
    if not operator.is_gradient:
        return found
    counts: Any = evaluate(operator, [np.ones_like(inputs[0]), *inputs[1:]], attributes, wanted)
    return [found[0] / np.maximum(counts[0], 1)]


def shape_given(change: Any) -> Steps:
    """The pooled_shape that the node has is changed: `change` takes a list."""
    return given(lambda a: a | {"pooled_shape": change(list(a["pooled_shape"]))} if "pooled_shape" in a else a)


def last_nan(channel: Array, bin_: tuple[range, range]) -> Any:
    """The place of the last NaN of a bin, or None."""
    found = np.argwhere(np.isnan(channel[np.ix_(*bin_)])).tolist()
    return (bin_[0][found[-1][0]], bin_[1][found[-1][1]]) if found else None


mutant = Table(OF_ROIS)
mutant.category = Category.COORDINATES
mutant["XAndYSwapped", "RoIs are read as y1, x1, y2 and x2."] = in_order(1, 0, 3, 2)
mutant["EndsByAxis", "RoIs are read as x1, x2, y1 and y2."] = in_order(0, 2, 1, 3)
mutant[
    "HalvesToEven",
    "Ends halfway between two pixels are rounded to even, as Python and NumPy do, instead of away from 0.",
] = ends(round)
mutant["HalvesUp", "Ends halfway between two pixels are rounded up, also negative ones, instead of away from 0."] = (
    ends(lambda end: math.floor(end + 0.5))
)
mutant["HalvesTowards0", "Ends halfway between two pixels are rounded towards 0 instead of away from it."] = ends(
    lambda end: math.copysign(math.ceil(abs(end) - 0.5), end)
)
mutant["HalfAddedAndCut", "Ends are rounded by adding 0.5 and truncating, which is wrong for negative ones."] = ends(
    lambda end: math.trunc(end + 0.5)
)
mutant["EndsCut", "Ends are truncated to whole pixels instead of rounded."] = ends(math.trunc)
mutant["EndsFloored", "Ends are rounded down instead of to nearest."] = ends(math.floor)
mutant["EndsRaised", "Ends are rounded up instead of to nearest."] = ends(math.ceil)
mutant[
    "JustBelowAHalfRounded",
    "Ends are rounded by adding 0.5 in float64 and rounding down, which makes 0.49999999999999994 one.",
] = ends(lambda end: math.copysign(math.floor(abs(end) + 0.5), end))
mutant[
    "FirstEndFlooredLastRaised", "The start of a RoI is rounded down and its end up, instead of both to nearest."
] = along_axis(lambda r1, r2, scale, *a: (math.floor(r1 * scale) / scale, math.ceil(r2 * scale) / scale, scale, *a))
mutant["ScaledAfterRounding", "Ends are rounded before scaling and again after it."] = along_axis(
    lambda r1, r2, *a: (float(rounded_end(r1)), float(rounded_end(r2)), *a)
)
mutant["HalfPixel", "Ends are shifted by half a pixel, as in RoiAlign."] = {
    rounded_end: lambda end: rounded_end(end - 0.5)
}
mutant["ScaleDivides", "Ends are divided by spatial_scale instead of multiplied."] = along_axis(
    lambda r1, r2, scale, *a: (r1, r2, 1 / scale, *a)
)
mutant["ScaleOfXAlone", "spatial_scale is applied to x1 and x2 only."] = {
    bins_of: lambda rois, bins, lengths, scale: own(bins_of)(rois / [1, 1, scale, 1, scale], bins, lengths, scale)
}
mutant["EndsUnrounded", "Ends are not rounded: a bin consists of all pixels that it touches."] = {
    along: lambda r1, r2, scale, bins, length: [
        range(
            max(math.floor(min(max(r1 * scale + max((r2 - r1) * scale, 1.0) * p / bins, -1.0), length)), 0),
            min(math.ceil(min(max(r1 * scale + max((r2 - r1) * scale, 1.0) * (p + 1) / bins, -1.0), length)), length),
        )
        for p in range(bins)
    ]
}
mutant["EndExcluded", "The second end is excluded: it is taken for the pixel after the last one."] = {
    size_of: lambda start, end: max(end - start, 1)
}
mutant["CornerAndSize", "RoIs are read as x, y, width and height."] = {
    ends_of: lambda roi: ends_of((roi[0], roi[1], roi[0] + roi[2] - 1, roi[1] + roi[3] - 1))
}
mutant["InvertedIsEmpty", "A RoI with swapped ends has no pixels instead of one."] = {
    size_of: lambda start, end: max(end - start + 1, 0)
}
mutant["InvertedIsOrdered", "Swapped ends of a RoI are put in order."] = along_axis(
    lambda r1, r2, *a: (min(r1, r2), max(r1, r2), *a)
)
mutant["InvertedAtItsSecondEnd", "A RoI with swapped ends is the pixel at its second end instead of its first."] = (
    along_axis(lambda r1, r2, *a: (min(r1, r2), r2, *a))
)
mutant["InvertedOnBothAxes", "A RoI with swapped ends on one axis is a single pixel along both."] = {
    bins_of: remembering_scale,
    ends_of: single,
}
mutant["EndsUnlimited", "Ends are not limited to 2^31 pixels."] = {
    rounded_end: lambda end: round_half_away(max(min(end, 2.0**40), -(2.0**40)))
}
mutant["EndsUpTo31Bits", "Ends are limited to 2^31 - 1 pixels."] = {
    rounded_end: lambda end: rounded_end(min(end, 2.0**31 - 1))
}
mutant["EndsWrap", "Ends wrap around like 32-bit integers."] = {
    rounded_end: lambda end: (round_half_away(max(min(end, 2.0**62), -(2.0**62))) + 2**31) % 2**32 - 2**31
}
mutant["FarEndsRefused", "Ends beyond the range of a 32-bit integer are refused."] = refused_if(
    rounded_end, lambda end: abs(end) >= 2**31
)
mutant.category = Category.BORDERS
mutant["EdgesReplicated", "Pixels outside the map are those of its nearest edge."] = clipped(
    lambda low, high, n: (min(max(low, 0), n - 1), min(max(high, 1), n))
)
mutant["RoisCutFirst", "RoIs are clipped to the map before they are divided into bins."] = along_axis(
    lambda r1, r2, scale, bins, n: (*(min(max(r, 0.0), (n - 1) / scale) for r in (r1, r2)), scale, bins, n)
)
mutant["StartsCutFirst", "The start of a RoI is clipped to the map before it is divided into bins."] = along_axis(
    lambda r1, *a: (max(r1, 0.0), *a)
)
mutant["FirstPixelUnread", "A bin that starts before the map does not read the map's first pixel."] = clipped(
    lambda low, high, n: (1 if low < 0 else low, high)
)
mutant["LastPixelUnread", "A bin that ends beyond the map does not read the map's last pixel."] = clipped(
    lambda low, high, n: (low, n - 1 if high > n else high)
)
mutant["BinsAcrossTheEdgeEmpty", "A bin that is partly outside the map counts as empty."] = clipped(
    lambda low, high, n: (low, low if low < 0 or high > n else high)
)
mutant["StartsWrap", "A negative start of a bin counts from the map's end, as in Python slices."] = clipped(
    lambda low, high, n: (max(low + n, 0) if low < 0 else low, high)
)
mutant["OutsideIs0", "Pixels outside the map count as 0 instead of being left out."] = {evaluate: with_border}
for name, words, value in (
    ("MinusInfinity", "minus infinity", -math.inf),
    ("Lowest", "-FLT_MAX", -FLT_MAX),
    ("NaN", "NaN", math.nan),
    ("Minus1", "-1", -1.0),
):
    mutant[f"EmptyIs{name}", f"A bin without pixels gives {words} instead of 0."] = empty_is(value)
mutant["EmptyRefused", "A bin without pixels is refused."] = refused_if(
    first_largest, lambda channel, bin_: 0 in map(len, bin_)
)
mutant.category = Category.COUNTS
mutant["BinsApart", "Bins never overlap: a bin ends before the pixel in which the next one starts."] = bounds(
    lambda p, size, bins: (p * size // bins, (p + 1) * size // bins)
)
mutant[
    "BinsApartWithAPixel",
    "Bins overlap only where one would be empty otherwise: a bin ends before the next one's first pixel.",
] = bounds(lambda p, size, bins: ((low := p * size // bins), max((p + 1) * size // bins, low + 1)))
mutant["BinsBeginLate", "A bin starts at the first pixel that lies wholly inside it."] = bounds(
    lambda p, size, bins: (-(-p * size // bins), bounds_of(p, size, bins)[1])
)
mutant["BoundsRounded", "The bounds of bins are rounded to nearest instead of outwards."] = bounds(
    lambda p, size, bins: (p * size / bins + 0.5, (p + 1) * size / bins + 0.5)
)
mutant["BinsOfWholePixels", "All bins have the same number of pixels, rounded down; the last one has the rest."] = (
    bounds(lambda p, size, bins: (p * (size // bins), (p + 1) * (size // bins) if p < bins - 1 else size))
)
mutant[
    "BinsOfRaisedPixels", "All bins have the same number of pixels, rounded up; the last ones have fewer or none."
] = bounds(lambda p, size, bins: (p * -(-size // bins), min((p + 1) * -(-size // bins), size)))
mutant["BinsAPixelMore", "Every bin ends one pixel too late."] = bounds(
    lambda p, size, bins: (bounds_of(p, size, bins)[0], bounds_of(p, size, bins)[1] + 1)
)
mutant["WholeBinsAPixelMore", "A bin that ends at a whole pixel ends one pixel too late."] = bounds(
    lambda p, size, bins: (p * size // bins, (p + 1) * size // bins + 1)
)
mutant["EveryBinTheWholeRoi", "Every bin consists of all pixels of the RoI."] = bounds(lambda p, size, bins: (0, size))
mutant["AtMostAPixelABin", "A RoI with fewer pixels than bins has one pixel per bin and then empty bins."] = bounds(
    lambda p, size, bins: bounds_of(p, size, bins) if size >= bins else (p, min(p + 1, size))
)
mutant.category = Category.REDUCTIONS
mutant["Average", "An output is the average of its bin instead of the maximum."] = pooled(np.mean)
mutant["Minimum", "An output is the minimum of its bin instead of the maximum."] = pooled(np.min)
mutant["LargestOfSizes", "An output is the pixel of its bin with the largest absolute value."] = pooled(
    lambda v: v.flat[np.abs(v).argmax()]
)
mutant["FirstPixel", "An output is the first pixel of its bin instead of the maximum."] = pooled(lambda v: v[0, 0])
mutant["CornersAlone", "An output is the maximum of the four corner pixels of its bin."] = pooled(
    lambda v: v[[0, 0, -1, -1], [0, -1, 0, -1]].max()
)
mutant["LastRowUnread", "The last row of a bin is not read if it has several."] = pooled(
    lambda v: v[: max(len(v) - 1, 1)].max()
)
for name, words, value in (
    ("From0", "0, so negative pixels are lost", 0.0),
    ("FromMinus10000", "-10000", -10000.0),
    ("FromMinusFltMax", "-FLT_MAX", -FLT_MAX),
    ("FromTheLeastNormal", "the least positive normal number, as ONNX Runtime's once did", 2.0**-126),
):
    mutant[f"Max{name}", f"A maximum starts at {words}."] = starting_at(value)
mutant["NaNLoses", "NaN is left out of a maximum."] = {
    first_largest: lambda channel, bin_: first_largest(np.where(np.isnan(channel), -np.inf, channel), bin_),
    largest: lambda channel, bin_: largest(np.where(np.isnan(channel), -np.inf, channel), bin_),
}
mutant["NaNSpoilsChannels", "All outputs of a channel with a NaN are NaN."] = on(
    X, lambda x: np.where(np.isnan(x).any(axis=(2, 3), keepdims=True), np.asarray(np.nan, x.dtype), x)
)
mutant["NaNWinsIfFirst", "A maximum is NaN only if the first pixel of the bin is."] = pooled(
    lambda v: np.nan if np.isnan(v[0, 0]) else np.fmax.reduce(v.ravel())
)
mutant["NaNIs0", "An output that would be NaN is 0."] = answering(lambda y: 0.0 if math.isnan(y) else y)
mutant["InfinityIsEmpty", "An output of minus infinity is replaced by 0, as if its bin were empty."] = answering(
    lambda y: 0.0 if y == -math.inf else y
)
mutant.category = Category.TYPES
mutant["BinsInFloat", "The size and the bounds of bins are computed in float32, as in Caffe and ONNX Runtime."] = (
    bounds_in(lambda: np.float32)
)
mutant["BinsInDouble", "The size and the bounds of bins are computed in float64 instead of exactly."] = bounds_in(
    lambda: np.float64
)
mutant["BinsInTheTensorsType", "The size and the bounds of bins are computed in the type of the tensors."] = bounds_in(
    lambda: call().dtype if call().dtype.itemsize < 4 else np.float64
)
mutant["EndsInTheTensorsType", "Ends are scaled in the type of the tensors."] = {
    rounded_end: lambda end: rounded_end(narrowed(end))
}
mutant["EndsInFloat", "Ends are scaled in float32 even for double tensors."] = {
    along: lambda r1, r2, scale, *a: own(along)(*(float(np.float32(r) * np.float32(scale)) for r in (r1, r2)), 1.0, *a)
}
mutant["ScaleInTheTensorsType", "spatial_scale is rounded to the type of the tensors."] = scaled(
    lambda scale: narrowed(scale) or 1.0
)
mutant["RoisInHalf", "RoIs are converted to float16."] = numbers(lambda rois: rois.astype(np.float16))
for name, dtype in (("Float", np.float32), ("Half", np.float16)):
    mutant.of_gradient[
        f"ComparedIn{name}",
        f"Pixels are compared in float{np.dtype(dtype).itemsize * 8}, so nearly equal "
        + ("doubles tie." if name == "Float" else "ones tie."),
    ] = compared_in(dtype)
mutant.of_gradient[
    "DxSumsInTheTensorsType", "dX is summed in the type of the tensors, so 16-bit sums stop growing."
] = {add_to_dx: lambda dx, winner, dy: dx.__setitem__(winner, narrowed(float(dx[winner]) + dy))}
mutant.category = Category.INDEXING
mutant["BatchIdCut", "Fractional batch ids are truncated instead of refused."] = on_images(lambda n, _: np.trunc(n))
mutant["BatchIdRounded", "Fractional batch ids are rounded instead of refused."] = on_images(lambda n, _: np.rint(n))
mutant["BatchIdLast", "The batch id is read from the last of the five numbers of a RoI."] = numbers(
    lambda rois: rois[:, [4, 0, 1, 2, 3]]
)
mutant["BatchIdScaled", "The batch id is multiplied by spatial_scale too."] = {
    bins_of: lambda rois, bins, lengths, scale: own(bins_of)(
        np.column_stack([(rois[:, 0] * scale + 0.5) // 1 % (rois[:, 0].max(initial=0) + 1), rois[:, 1:]]),
        bins,
        lengths,
        scale,
    )
}
mutant["BatchIdOfTheFirstRoi", "All RoIs read the image of the first RoI."] = on_images(
    lambda n, _: n[:1].repeat(len(n))
)
mutant["RoisByImage", "Results are sorted by image."] = result(
    lambda y: y[np.argsort(call().inputs["rois"][:, 0], kind="stable")]
)
mutant["BatchIdClamped", "Batch ids are clamped to valid ones instead of refused."] = on_images(
    lambda n, count: np.clip(n, 0, count - 1)
)
mutant["NaNIdTaken", "A batch id of NaN is taken for 0 instead of refused."] = on_images(
    lambda n, _: np.where(np.isnan(n), 0, n)
)
mutant["HAndWExchanged", "The map is read as [N, C, W, H]."] = on(
    X, lambda x: x.reshape(*x.shape[:2], x.shape[3], x.shape[2]).swapaxes(2, 3)
)
mutant["BinsExchanged", "pooled_shape is read as width and height."] = {
    **given(lambda a: a | {"pooled_shape": list(a["pooled_shape"])[::-1]} if "pooled_shape" in a else a),
    rounded: lambda y, dtype: rounded(y if is_gradient() else y.reshape(*y.shape[:2], *y.shape[:1:-1]), dtype),
}
mutant.of_gradient["DxOfImageR", "dX of RoI r goes to image r, if there is one."] = on_images(
    lambda n, count: np.minimum(np.arange(len(n)), max(count - 1, 0)) if is_gradient() else n
)
mutant.category = Category.GRADIENTS
mutant["BinsOverwrite", "If several bins of a RoI share their largest pixel, only the last one's gradient is kept."] = (
    passing(lambda dx, winner, dy: dx.__setitem__(winner, dy))
)
mutant["TieToTheLast", "The last of several equal pixels gets the gradient instead of the first."] = winners(
    lambda them: them[-1]
)
mutant["TieToTheLastColumn", "Of several equal pixels, the last one of the first row gets the gradient."] = winners(
    lambda them: max(them, key=lambda at: (-at[0], at[1]))
)
mutant["TieToTheLastRow", "Of several equal pixels, the first one of the last row gets the gradient."] = winners(
    lambda them: max(them, key=lambda at: (at[0], -at[1]))
)
mutant["TieDownTheColumns", "Of several equal pixels, the first in column order gets the gradient."] = winners(
    lambda them: min(them, key=lambda at: at[::-1])
)
mutant["TiesAll", "Each of several equal pixels gets the whole gradient."] = passed_to(ties)
mutant["TiesShare", "Equal pixels share the gradient instead of the first getting it all."] = passed_to(
    lambda pixels: ties(pixels) / ties(pixels).sum()
)
mutant["PassedAsAverage", "The gradient of a maximum is that of an average."] = passed_to(
    lambda pixels: np.full(pixels.shape, 1 / pixels.size)
)
mutant["EmptyPasses", "The gradient of a bin without pixels goes to the first pixel of the map."] = {
    first_largest: lambda channel, bin_: own(first_largest)(channel, bin_) or ((0, 0) if is_gradient() else None)
}
mutant["NegativePassesNothing", "A negative maximum passes no gradient, as behind a ReLU."] = not_passed_if(
    lambda value: value < 0
)
mutant["MinusInfinityPassesNothing", "A maximum of minus infinity passes no gradient."] = not_passed_if(np.isneginf)
mutant["NaNPassesNothing", "A maximum of NaN passes no gradient."] = not_passed_if(np.isnan)
mutant["DxScaled", "The gradient is multiplied by spatial_scale."] = {
    bins_of: remembering_scale,
    add_to_dx: lambda dx, winner, dy: add_to_dx(dx, winner, dy * call().memory["scale"]),
}
mutant["DxTimesX", "The gradient is multiplied by the value of the pixel."] = {
    first_largest: lambda channel, bin_: remembering_value(channel, first_largest(channel, bin_)),
    add_to_dx: lambda dx, winner, dy: add_to_dx(dx, winner, dy * call().memory["value"]),
}
mutant["DxTransposed", "dY is read as [R, C, width, height]."] = on(
    ("dY",), lambda dy: dy.swapaxes(2, 3).reshape(dy.shape) if dy.ndim == 4 else dy
)
mutant["DxAveraged", "The gradients of bins that share their largest pixel are averaged instead of summed."] = {
    evaluate: averaged_dx
}
mutant.category = Category.DEFAULTS
mutant["ScaleBySixteenth", "spatial_scale defaults to 1/16, as in the networks of Fast R-CNN."] = by_default(
    spatial_scale=0.0625
)
mutant["AttributesUnchecked", "Attribute values are not checked."] = UNCHECKED
mutant["OneNumberTaken", "A pooled_shape of one number is accepted as both height and width."] = shape_given(
    lambda bins: bins * (1 + (len(bins) == 1))
)
mutant["ThirdNumberIgnored", "A pooled_shape of more than two numbers is accepted."] = shape_given(
    lambda bins: bins[:2]
)
mutant["NoScaleIsOne", "A spatial_scale of 0 is taken for 1 instead of refused."] = given(
    lambda a: a | {"spatial_scale": a.get("spatial_scale", 1.0) or 1.0}
)
mutant["NegativeScaleTaken", "The sign of a negative spatial_scale is ignored instead of refused."] = given(
    lambda a: a | {"spatial_scale": abs(a.get("spatial_scale", 1.0))}
)
mutant["InfiniteRoisTaken", "Infinite RoIs are accepted and taken for very large ones."] = numbers(
    lambda rois: np.where((np.arange(5) > 0) & np.isinf(rois), np.copysign(6e4, rois), rois)
)
mutant["NaNRoisTaken", "NaN in RoIs is taken for 0 instead of refused."] = numbers(
    lambda rois: np.where((np.arange(5) > 0) & np.isnan(rois), 0, rois)
)
mutant["FourNumbersTaken", "RoIs with four numbers are accepted and read image 0."] = on(
    ROIS, lambda rois: np.pad(rois, ((0, 0), (1, 0))) if rois.shape[1:] == (4,) else rois
)
mutant["IntegersTaken", "Integer tensors are converted instead of refused."] = {
    evaluate: lambda operator, inputs, *a: evaluate(operator, as_float(inputs), *a),
    rounded: lambda y, dtype: rounded(y, np.dtype(np.float32) if dtype.kind in "iu" else dtype),
}
mutant["OtherTypesTaken", "RoIs of another type than the map are accepted."] = asked(
    lambda inputs: {name: array.astype(inputs["X"].dtype) for name, array in inputs.items()}
)
mutant["NoPixelsAre0", "RoIs on a map without pixels give 0 instead of an error."] = on(
    X, lambda x: np.pad(x, [(0, 0), (0, 0), *((0, int(n == 0)) for n in x.shape[2:])]) if x.ndim == 4 else x
)
mutant.of_gradient["NoBinsTaken", "A dY without bins is accepted."] = {evaluate: no_bins_taken}
mutant.of_gradient["OtherChannelsTaken", "A dY with another number of channels than the map is accepted."] = unequal_dy(
    lambda dy, rois, channels: np.resize(dy, (len(dy), channels, *dy.shape[2:]))
)
mutant.of_gradient["OtherRoisTaken", "A dY with another number of RoIs than rois is accepted."] = unequal_dy(
    lambda dy, rois, channels: np.resize(dy, (rois, *dy.shape[1:]))
)
mutant.category = Category.SIZES
mutant.of_gradient["LastNaNWins", "The last of several NaN in a bin gets its gradient."] = {
    first_largest: lambda channel, bin_: last_nan(channel, bin_) or first_largest(channel, bin_)
}
mutant["HugeRefused", "RoIs of very many pixels are refused even if few of them are on the map."] = refused_if(
    size_of, lambda start, end: end - start >= 10**6
)
mutant["LongRowsSplit", "Only the first 64 pixels of each row of a bin are read."] = clipped(
    lambda low, high, n: (low, min(high, max(low, 0) + 64))
)
MUTANTS = Mutants("max_roi_pool", mutant)
__getattr__ = MUTANTS.find
