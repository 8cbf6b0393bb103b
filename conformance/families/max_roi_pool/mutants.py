"""The mutants of MaxRoiPool and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.mutants.base import Category, Steps, Table, edit, is_gradient
from conformance.mutants.shared import CALLS, FLT_MAX, INTEGERS_TAKEN, OF_ENDS, ROIS_ALONE
from conformance.mutants.steps import (
    ROIS,
    X,
    asked,
    before_checks,
    by_default,
    given,
    on,
    on_images,
    refused_if,
    result,
)
from ortops.reference import evaluate
from ortops.reference.max_roi_pool import (
    add_to_dx,
    along,
    bins_of,
    bounds_of,
    first_largest,
    largest,
    max_roi_pool_grad,
    on_map,
    rounded,
    size_of,
)

MARGIN = 32
"""The width of a border of zeros, in pixels."""

NEAREST = "below + 1 if size - below >= 0.5 else below"
SIGNED = "return nearest if end > 0 else -nearest"
BOUNDS = "p * size // bins, -(-(p + 1) * size // bins)"
ON_MAP = "max(low, 0), min(high, length)"
DY = "float(dy[r, c, p, q])"


def ends(start: str, end: str) -> Steps:
    """The ends of a RoI along an axis are these expressions, which are then rounded."""
    return edit(along, "rounded(r1 * scale), rounded(r2 * scale)", f"rounded({start}), rounded({end})")


def bounds_in(dtype: str) -> Steps:
    """The size and the bounds of bins are computed in a floating-point type."""
    returned = "return math.floor(float(t(p) * (t(size) / t(bins)))), math.ceil(float(t(p + 1) * (t(size) / t(bins))))"
    return edit(bounds_of, f"return {BOUNDS}", f"t = np.dtype({dtype}).type; {returned}")


def pooled(reduced: str) -> Steps:
    """An output is another reduction of the pixels `v` [rows, columns] of its bin, if it has any."""
    pixels = "winner = first_largest(channel, bin_); v = channel[np.ix_(*bin_)]"
    return edit(largest, "winner = first_largest(channel, bin_)", pixels, "float(channel[winner])", f"float({reduced})")


def starting_at(number: float) -> Steps:
    """A maximum has this start value: only larger pixels win."""
    start, without = f"found = {number}", f"(0.0 if 0 in map(len, bin_) else {number}) if winner is None"
    won = ("found = -math.inf", start, "winner is None or value > found", "value > found")
    return edit(first_largest, *won) | edit(largest, "0.0 if winner is None", without)


def winning(wins: str) -> Steps:
    """Another of several equal pixels gets the gradient."""
    return edit(first_largest, "value > found", f"value > found or (value == found and {wins})")


def not_passed_if(is_meant: str) -> Steps:
    """A maximum passes no gradient where this is true of it."""
    return edit(max_roi_pool_grad, "if winner is not None", f"if winner is not None and not {is_meant}")


def passed_to(share: str) -> Steps:
    """The gradient of a bin goes to its pixels `v` in these shares."""
    added = f"v = channel[np.ix_(*bin_)]; dx[n, c][np.ix_(*bin_)] += ({share}) * {DY}"
    return edit(max_roi_pool_grad, f"add_to_dx(dx[n, c], winner, {DY})", added)


def with_border(operator: Any, inputs: Any, attributes: Any, wanted: Any) -> Any:
    """The outputs for a map with a border of zeros; only its own pixels get a gradient."""
    *dy, x, rois = inputs
    moved = rois.astype(np.float64)
    moved[:, 1:] += MARGIN / attributes.get("spatial_scale", 1.0)
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN)))
    found = evaluate(operator, [*(one.astype(np.float64) for one in dy), wide, moved], attributes, wanted)
    return [y[..., MARGIN:-MARGIN, MARGIN:-MARGIN] if operator.is_gradient and y is not None else y for y in found]


def averaged_dx(operator: Any, inputs: Any, attributes: Any, wanted: Any) -> Any:
    """The outputs, where dX is divided by the number of bins that pass to a pixel."""
    found: Any = evaluate(operator, inputs, attributes, wanted)
    if not operator.is_gradient:
        return found
    counts: Any = evaluate(operator, [np.ones_like(inputs[0]), *inputs[1:]], attributes, wanted)
    return [found[0] / np.maximum(counts[0], 1)]


def numbers(change: Any) -> Steps:
    """The RoIs [R, 5] are changed, before they are checked."""
    return on(ROIS, lambda rois: change(rois).astype(rois.dtype) if rois.shape[1:] == (5,) else rois)


def shape_given(change: Any) -> Steps:
    """The pooled_shape that the node has is changed: `change` takes a list."""
    return given(lambda a: a | {"pooled_shape": change(list(a["pooled_shape"]))} if "pooled_shape" in a else a)


table = Table(CALLS, ROIS_ALONE, OF_ENDS)
table.add(
    Category.COORDINATES,
    "EndsByAxis: RoIs are read as x1, x2, y1 and y2.",
    edit(bins_of, "ends_of(roi[1:])", "ends_of([roi[1], roi[3], roi[2], roi[4]])"),
    "HalvesToEven: Ends halfway between two pixels are rounded to even, as Python and NumPy do.",
    edit(rounded, NEAREST, "round(size)"),
    "HalvesUp: Ends halfway between two pixels are rounded up, also negative ones, instead of away from 0.",
    edit(rounded, SIGNED, "return math.floor(math.copysign(size, end) + 0.5)"),
    "HalvesTowards0: Ends halfway between two pixels are rounded towards 0 instead of away from it.",
    edit(rounded, ">= 0.5", "> 0.5"),
    "HalfAddedAndCut: Ends are rounded by adding 0.5 and truncating, which is wrong for negative ones.",
    edit(rounded, SIGNED, "return math.trunc(math.copysign(size, end) + 0.5)"),
    "EndsCut: Ends are truncated to whole pixels instead of rounded.",
    edit(rounded, NEAREST, "below"),
    "EndsFloored: Ends are rounded down instead of to nearest.",
    edit(rounded, SIGNED, "return below if end > 0 else -math.ceil(size)"),
    "EndsRaised: Ends are rounded up instead of to nearest.",
    edit(rounded, SIGNED, "return math.ceil(size) if end > 0 else -below"),
    "JustBelowAHalfRounded: Ends are rounded by adding 0.5 in float64, which makes 0.49999999999999994 one.",
    edit(rounded, NEAREST, "math.floor(size + 0.5)"),
    "FirstEndFlooredLastRaised: The start of a RoI is rounded down and its end up, instead of both to nearest.",
    ends("math.floor(r1 * scale)", "math.ceil(r2 * scale)"),
    "ScaledAfterRounding: Ends are rounded before scaling and again after it.",
    ends("rounded(r1) * scale", "rounded(r2) * scale"),
    "HalfPixel: Ends are shifted by half a pixel, as in RoiAlign.",
    ends("r1 * scale - 0.5", "r2 * scale - 0.5"),
    "ScaleOfXAlone: spatial_scale is applied to x1 and x2 only.",
    edit(bins_of, "along(*ends_y, scale,", "along(*ends_y, 1.0,"),
    "EndsUnrounded: Ends are not rounded: a bin consists of all pixels that it touches.",
    edit(along, "rounded(r1 * scale), rounded(r2 * scale)", "r1 * scale, r2 * scale")
    | edit(size_of, "end - start + 1", "end - start")
    | edit(bounds_of, BOUNDS, "p * size / bins, (p + 1) * size / bins")
    | edit(on_map, ON_MAP, "max(math.floor(low), 0), min(math.ceil(high), length)"),
    "EndExcluded: The second end is excluded: it is taken for the pixel after the last one.",
    edit(size_of, "end - start + 1", "end - start"),
    "InvertedIsEmpty: A RoI with swapped ends has no pixels instead of one.",
    edit(size_of, "+ 1, 1)", "+ 1, 0)"),
    "InvertedAtItsSecondEnd: A RoI with swapped ends is the pixel at its second end instead of its first.",
    ends("min(r1, r2) * scale", "r2 * scale"),
    "InvertedOnBothAxes: A RoI with swapped ends on one axis is a single pixel along both.",
    edit(
        *(bins_of, "ends_of(roi[1:])"),
        "ends_of(roi[1:] if all(roi[k + 2] * scale >= roi[k] * scale - 1 for k in (1, 2)) else roi[1:3] * 2)",
    ),
    "EndsUnlimited: Ends are not limited to 2^31 pixels.",
    edit(rounded, "float(MAX_COORDINATE)", "2.0**40"),
    "EndsWrap: Ends wrap around like 32-bit integers.",
    edit(
        *(rounded, "float(MAX_COORDINATE)", "2.0**62"),
        *(SIGNED, "return ((nearest if end > 0 else -nearest) + 2**31) % 2**32 - 2**31"),
    ),
    "FarEndsRefused: Ends beyond the range of a 32-bit integer are refused.",
    refused_if(rounded, lambda end: abs(end) >= 2**31),
)
table.add(
    Category.BORDERS,
    "EdgesReplicated: Pixels outside the map are those of its nearest edge.",
    edit(on_map, ON_MAP, "min(max(low, 0), length - 1), min(max(high, 1), length)"),
    "RoisCutFirst: RoIs are clipped to the map before they are divided into bins.",
    ends("min(max(r1 * scale, 0.0), length - 1)", "min(max(r2 * scale, 0.0), length - 1)"),
    "StartsCutFirst: The start of a RoI is clipped to the map before it is divided into bins.",
    ends("max(r1, 0.0) * scale", "r2 * scale"),
    "FirstPixelUnread: A bin that starts before the map does not read the map's first pixel.",
    edit(on_map, ON_MAP, "1 if low < 0 else low, min(high, length)"),
    "LastPixelUnread: A bin that ends beyond the map does not read the map's last pixel.",
    edit(on_map, ON_MAP, "max(low, 0), length - 1 if high > length else high"),
    "BinsAcrossTheEdgeEmpty: A bin that is partly outside the map counts as empty.",
    edit(on_map, ON_MAP, "low, low if low < 0 or high > length else high"),
    "StartsWrap: A negative start of a bin counts from the map's end, as in Python slices.",
    edit(on_map, ON_MAP, "max(low + length, 0) if low < 0 else low, min(high, length)"),
    "OutsideIs0: Pixels outside the map count as 0 instead of being left out.",
    {evaluate: with_border},
    "EmptyIsMinusInfinity: A bin without pixels gives minus infinity instead of 0.",
    edit(largest, "0.0 if winner is None", "-math.inf if winner is None"),
    "EmptyIsLowest: A bin without pixels gives -FLT_MAX instead of 0.",
    edit(largest, "0.0 if winner is None", f"{-FLT_MAX} if winner is None"),
    "EmptyRefused: A bin without pixels is refused.",
    refused_if(first_largest, lambda channel, bin_: 0 in map(len, bin_)),
)
table.add(
    Category.COUNTS,
    "BinsApart: Bins never overlap: a bin ends before the pixel in which the next one starts.",
    edit(bounds_of, BOUNDS, "p * size // bins, (p + 1) * size // bins"),
    "BinsApartWithAPixel: Bins overlap only where one would be empty otherwise.",
    edit(bounds_of, BOUNDS, "p * size // bins, max((p + 1) * size // bins, p * size // bins + 1)"),
    "BinsBeginLate: A bin starts at the first pixel that lies wholly inside it.",
    edit(bounds_of, "return p * size // bins", "return -(-p * size // bins)"),
    "BoundsRounded: The bounds of bins are rounded to nearest instead of outwards.",
    edit(bounds_of, BOUNDS, "int(p * size / bins + 0.5), int((p + 1) * size / bins + 0.5)"),
    "BinsOfWholePixels: All bins have the same number of pixels, rounded down; the last one has the rest.",
    edit(bounds_of, BOUNDS, "p * (size // bins), (p + 1) * (size // bins) if p < bins - 1 else size"),
    "BinsOfRaisedPixels: All bins have the same number of pixels, rounded up; the last ones have fewer or none.",
    edit(bounds_of, BOUNDS, "p * -(-size // bins), min((p + 1) * -(-size // bins), size)"),
    "BinsAPixelMore: Every bin ends one pixel too late.",
    edit(bounds_of, BOUNDS, "p * size // bins, 1 - (-(p + 1) * size // bins)"),
    "WholeBinsAPixelMore: A bin that ends at a whole pixel ends one pixel too late.",
    edit(bounds_of, BOUNDS, "p * size // bins, (p + 1) * size // bins + 1"),
    "EveryBinTheWholeRoi: Every bin consists of all pixels of the RoI.",
    edit(bounds_of, BOUNDS, "0, size"),
    "AtMostAPixelABin: A RoI with fewer pixels than bins has one pixel per bin and then empty bins.",
    edit(bounds_of, f"return {BOUNDS}", f"return ({BOUNDS}) if size >= bins else (p, min(p + 1, size))"),
)
table.add(
    Category.REDUCTIONS,
    "Average: An output is the average of its bin instead of the maximum.",
    pooled("v.mean()"),
    "Minimum: An output is the minimum of its bin instead of the maximum.",
    pooled("v.min()"),
    "LargestOfSizes: An output is the pixel of its bin with the largest absolute value.",
    pooled("v.flat[np.abs(v).argmax()]"),
    "FirstPixel: An output is the first pixel of its bin instead of the maximum.",
    pooled("v[0, 0]"),
    "CornersAlone: An output is the maximum of the four corner pixels of its bin.",
    pooled("v[[0, 0, -1, -1], [0, -1, 0, -1]].max()"),
    "LastRowUnread: The last row of a bin is not read if it has several.",
    pooled("v[: max(len(v) - 1, 1)].max()"),
    "MaxFrom0: A maximum starts at 0, so negative pixels are lost.",
    starting_at(0.0),
    "MaxFromMinus10000: A maximum starts at -10000.",
    starting_at(-10000.0),
    "MaxFromMinusFltMax: A maximum starts at -FLT_MAX.",
    starting_at(-FLT_MAX),
    "MaxFromTheLeastNormal: A maximum starts at the least positive normal number, as ONNX Runtime's once did.",
    starting_at(2.0**-126),
    "NaNLoses: NaN is left out of a maximum.",
    edit(first_largest, "return h, w", "continue"),
    "NaNSpoilsChannels: All outputs of a channel with a NaN are NaN.",
    on(X, lambda x: np.where(np.isnan(x).any(axis=(2, 3), keepdims=True), np.asarray(np.nan, x.dtype), x)),
    "NaNWinsIfFirst: A maximum is NaN only if the first pixel of the bin is.",
    pooled("math.nan if np.isnan(v[0, 0]) else np.fmax.reduce(v.ravel())"),
    "NaNIs0: An output that would be NaN is 0.",
    pooled("0.0 if np.isnan(channel[winner]) else channel[winner]"),
    "InfinityIsEmpty: An output of minus infinity is replaced by 0, as if its bin were empty.",
    pooled("0.0 if channel[winner] == -math.inf else channel[winner]"),
)
table.add(
    Category.TYPES,
    "BinsInFloat: The size and the bounds of bins are computed in float32, as in Caffe and ONNX Runtime.",
    bounds_in("np.float32"),
    "BinsInDouble: The size and the bounds of bins are computed in float64 instead of exactly.",
    bounds_in("np.float64"),
    "BinsInTheTensorsType: The size and the bounds of bins are computed in the type of the tensors.",
    bounds_in("call().dtype if call().dtype.itemsize < 4 else np.float64"),
    "EndsInTheTensorsType: Ends are scaled in the type of the tensors.",
    ends("narrowed(r1 * scale)", "narrowed(r2 * scale)"),
    "EndsInFloat: Ends are scaled in float32 even for double tensors.",
    ends("float(np.float32(r1) * np.float32(scale))", "float(np.float32(r2) * np.float32(scale))"),
    "RoisInHalf: RoIs are converted to float16.",
    numbers(lambda rois: rois.astype(np.float16)),
    "ComparedInFloat: Pixels are compared in float32, so nearly equal doubles tie.",
    edit(first_largest, "float(channel[h, w])", "float(np.float32(channel[h, w]))"),
    "ComparedInHalf: Pixels are compared in float16, so nearly equal ones tie.",
    edit(first_largest, "float(channel[h, w])", "float(np.float16(channel[h, w]))"),
    "DxSumsInTheTensorsType: dX is summed in the type of the tensors, so 16-bit sums stop growing.",
    edit(add_to_dx, "float(dx[winner]) + dy", "narrowed(float(dx[winner]) + dy)"),
)
table.add(
    Category.INDEXING,
    "BatchIdCut: Fractional batch ids are truncated instead of refused.",
    on_images(lambda n, _: np.trunc(n)),
    "BatchIdRounded: Fractional batch ids are rounded instead of refused.",
    on_images(lambda n, _: np.rint(n)),
    "BatchIdLast: The batch id is read from the last of the five numbers of a RoI.",
    numbers(lambda rois: rois[:, [4, 0, 1, 2, 3]]),
    "BatchIdScaled: The batch id is multiplied by spatial_scale too.",
    edit(
        *(bins_of, "yield r, (roi,"),
        "yield r, ([(roi[0] * scale + 0.5) // 1 % (rois[:, 0].max() + 1), *roi[1:]],",
    ),
    "BatchIdClamped: Batch ids are clamped to valid ones instead of refused.",
    on_images(lambda n, count: np.clip(n, 0, count - 1)),
    "NaNIdTaken: A batch id of NaN is taken for 0 instead of refused.",
    on_images(lambda n, _: np.where(np.isnan(n), 0, n)),
    "BinsExchanged: The rows of bins are those of columns, and the other way round.",
    shape_given(lambda bins: bins[::-1]) | result(lambda y: y.reshape(*y.shape[:2], *y.shape[:1:-1])),
    "DxOfImageR: dX of RoI r goes to image r, if there is one.",
    on_images(lambda n, count: np.minimum(np.arange(len(n)), max(count - 1, 0)) if is_gradient() else n),
)
table.add(
    Category.GRADIENTS,
    "BinsOverwrite: If several bins of a RoI share their largest pixel, only the last one's gradient is kept.",
    edit(add_to_dx, "float(dx[winner]) + dy", "dy"),
    "TieToTheLast: The last of several equal pixels gets the gradient instead of the first.",
    winning("True"),
    "TieToTheLastColumn: Of several equal pixels, the last one of the first row gets the gradient.",
    winning("h == winner[0]"),
    "TieToTheLastRow: Of several equal pixels, the first one of the last row gets the gradient.",
    winning("h > winner[0]"),
    "TieDownTheColumns: Of several equal pixels, the first in column order gets the gradient.",
    winning("w < winner[1]"),
    "TiesAll: Each of several equal pixels gets the whole gradient.",
    passed_to("v == channel[winner]"),
    "TiesShare: Equal pixels share the gradient instead of the first getting it all.",
    passed_to("(v == channel[winner]) / max((v == channel[winner]).sum(), 1)"),
    "PassedAsAverage: The gradient of a maximum is that of an average.",
    passed_to("np.full(v.shape, 1 / v.size)"),
    "EmptyPasses: The gradient of a bin without pixels goes to the first pixel of the map.",
    edit(max_roi_pool_grad, "first_largest(channel, bin_)", "first_largest(channel, bin_) or (0, 0)"),
    "NegativePassesNothing: A negative maximum passes no gradient, as behind a ReLU.",
    not_passed_if("channel[winner] < 0"),
    "MinusInfinityPassesNothing: A maximum of minus infinity passes no gradient.",
    not_passed_if("np.isneginf(channel[winner])"),
    "NaNPassesNothing: A maximum of NaN passes no gradient.",
    not_passed_if("np.isnan(channel[winner])"),
    "DxScaled: The gradient is multiplied by spatial_scale.",
    edit(max_roi_pool_grad, DY, f"spatial_scale * {DY}"),
    "DxTimesX: The gradient is multiplied by the value of the pixel.",
    edit(max_roi_pool_grad, DY, f"float(channel[winner]) * {DY}"),
    "DxAveraged: The gradients of bins that share their largest pixel are averaged instead of summed.",
    {evaluate: averaged_dx},
)
table.add(
    Category.DEFAULTS,
    "SixteenthByDefault: spatial_scale defaults to 1/16.",
    by_default(spatial_scale=0.0625),
    "OneNumberTaken: A pooled_shape of one number is accepted as both height and width.",
    shape_given(lambda bins: bins * (1 + (len(bins) == 1))),
    "ThirdNumberIgnored: A pooled_shape of more than two numbers is accepted.",
    shape_given(lambda bins: bins[:2]),
    "NoScaleIsOne: A spatial_scale of 0 is taken for 1 instead of refused.",
    given(lambda a: a | {"spatial_scale": a.get("spatial_scale", 1.0) or 1.0}),
    "NegativeScaleTaken: The sign of a negative spatial_scale is ignored instead of refused.",
    given(lambda a: a | {"spatial_scale": abs(a.get("spatial_scale", 1.0))}),
    "InfiniteRoisTaken: Infinite RoIs are accepted and taken for very large ones.",
    numbers(lambda rois: np.where((np.arange(5) > 0) & np.isinf(rois), np.copysign(6e4, rois), rois)),
    "NaNRoisTaken: NaN in RoIs is taken for 0 instead of refused.",
    numbers(lambda rois: np.where((np.arange(5) > 0) & np.isnan(rois), 0, rois)),
    "FourNumbersTaken: RoIs with four numbers are accepted and read image 0.",
    on(ROIS, lambda rois: np.pad(rois, ((0, 0), (1, 0))) if rois.shape[1:] == (4,) else rois),
    "IntegersTaken: Integer tensors are converted instead of refused.",
    INTEGERS_TAKEN,
    "OtherTypesTaken: RoIs of another type than the map are accepted.",
    asked(lambda inputs: {name: array.astype(inputs["X"].dtype) for name, array in inputs.items()}),
    "NoBinsTaken: A dY without bins is accepted.",
    before_checks("if operator.is_gradient and 0 in arrays['dY'].shape[2:]: return [np.zeros(arrays['X'].shape)]"),
    "OtherChannelsTaken: A dY with another number of channels than the map is accepted.",
    before_checks(
        "if operator.is_gradient and arrays['dY'].ndim == 4: "
        "arrays['dY'] = np.resize(arrays['dY'], (len(arrays['rois']), arrays['X'].shape[1], *arrays['dY'].shape[2:]))"
    ),
    "OtherRoisTaken: A dY with another number of RoIs than rois is accepted.",
    before_checks(
        "if operator.is_gradient and arrays['dY'].ndim == 4: "
        "arrays['dY'] = np.resize(arrays['dY'], (len(arrays['rois']), *arrays['dY'].shape[1:]))"
    ),
)
table.add(
    Category.SIZES,
    "HugeRefused: RoIs of very many pixels are refused even if few of them are on the map.",
    refused_if(size_of, lambda start, end: end - start >= 10**6),
    "LongRowsSplit: Only the first 64 pixels of each row of a bin are read.",
    edit(on_map, ON_MAP, "max(low, 0), min(high, length, max(low, 0) + 64)"),
    "LastNaNWins: The last of several NaN in a bin gets its gradient.",
    edit(first_largest, "return h, w", "winner, found = (h, w), math.inf"),
)

MUTANTS = table.of("max_roi_pool")
__getattr__ = MUTANTS.find
