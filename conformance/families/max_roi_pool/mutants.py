# SPDX-License-Identifier: MIT OR Apache-2.0
"""The mutants of MaxRoiPool and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.mutants.base import Category, Steps, Table, edit
from conformance.mutants.shared import CALLS, FLT_MAX, INTEGERS_TAKEN, OF_ENDS, ROIS_ALONE
from conformance.mutants.steps import (
    ROIS,
    asked,
    before_checks,
    by_default,
    given,
    meant,
    on,
    on_images,
    refused_if,
    result,
)
from ortops.reference import max_roi_pool

NEAREST = "below + 1 if size - below >= 0.5 else below"
BOUNDS = "p * size // bins, -(-(p + 1) * size // bins)"
ON_MAP = "max(low, 0), min(high, length)"
DY = "float(dy[r, c, p, q])"


def ends(start: str, end: str) -> Steps:
    """The ends of a RoI along an axis are these expressions, which are then rounded."""
    return edit(max_roi_pool.along, "rounded(r1 * scale), rounded(r2 * scale)", f"rounded({start}), rounded({end})")


def bounds_in(dtype: str) -> Steps:
    """The size and the bounds of bins are computed in a floating-point type."""
    returned = "return math.floor(float(t(p) * (t(size) / t(bins)))), math.ceil(float(t(p + 1) * (t(size) / t(bins))))"
    return edit(max_roi_pool.bounds_of, f"return {BOUNDS}", f"t = np.dtype({dtype}).type; {returned}")


def starting_at(number: float) -> Steps:
    """A maximum has this start value: only larger pixels win."""
    start, without = f"largest = {number}", f"(0.0 if 0 in map(len, bin_) else {number}) if winner is None"
    won = ("largest = -math.inf", start, "winner is None or value > largest", "value > largest")
    return edit(max_roi_pool.first_largest, *won) | edit(max_roi_pool.largest, "0.0 if winner is None", without)


def numbers(change: Any) -> Steps:
    """The RoIs [R, 5] are changed, before they are checked."""
    return on(ROIS, lambda rois: change(rois).astype(rois.dtype) if rois.shape[1:] == (5,) else rois)


table = Table(CALLS, ROIS_ALONE, OF_ENDS)
table.add(
    Category.COORDINATES,
    "HalvesToEven: Ends halfway between two pixels are rounded to even, as Python and NumPy do.",
    edit(max_roi_pool.rounded, NEAREST, "round(size)"),
    "EndsCut: Ends are truncated to whole pixels instead of rounded.",
    edit(max_roi_pool.rounded, NEAREST, "below"),
    "JustBelowAHalfRounded: Ends are rounded by adding 0.5 in float64, which makes 0.49999999999999994 one.",
    edit(max_roi_pool.rounded, NEAREST, "math.floor(size + 0.5)"),
    "HalfPixel: Ends are shifted by half a pixel, as in RoiAlign.",
    ends("r1 * scale - 0.5", "r2 * scale - 0.5"),
    "EndExcluded: The second end is excluded: it is taken for the pixel after the last one.",
    edit(max_roi_pool.size_of, "end - start + 1", "end - start"),
    "InvertedIsEmpty: A RoI with swapped ends has no pixels instead of one.",
    edit(max_roi_pool.size_of, "+ 1, 1)", "+ 1, 0)"),
    "EndsWrap: Ends wrap around like 32-bit integers.",
    edit(
        *(max_roi_pool.rounded, "float(MAX_COORDINATE)", "2.0**62"),
        *(
            "return nearest if end > 0 else -nearest",
            "return ((nearest if end > 0 else -nearest) + 2**31) % 2**32 - 2**31",
        ),
    ),
    "FarEndsRefused: Ends beyond the range of a 32-bit integer are refused.",
    refused_if(max_roi_pool.rounded, lambda end: abs(end) >= 2**31),
    Category.BORDERS,
    "EdgesReplicated: Pixels outside the map are those of its nearest edge.",
    edit(max_roi_pool.on_map, ON_MAP, "min(max(low, 0), length - 1), min(max(high, 1), length)"),
    "RoisCutFirst: RoIs are clipped to the map before they are divided into bins.",
    ends("min(max(r1 * scale, 0.0), length - 1)", "min(max(r2 * scale, 0.0), length - 1)"),
    "LastPixelUnread: A bin that ends beyond the map does not read the map's last pixel.",
    edit(max_roi_pool.on_map, ON_MAP, "max(low, 0), length - 1 if high > length else high"),
    "EmptyIsLowest: A bin without pixels gives -FLT_MAX instead of 0.",
    edit(max_roi_pool.largest, "0.0 if winner is None", f"{-FLT_MAX} if winner is None"),
    Category.COUNTS,
    "BinsApart: Bins never overlap: a bin ends before the pixel in which the next one starts.",
    edit(max_roi_pool.bounds_of, BOUNDS, "p * size // bins, (p + 1) * size // bins"),
    "BinsOfWholePixels: All bins have the same number of pixels, rounded down; the last one has the rest.",
    edit(max_roi_pool.bounds_of, BOUNDS, "p * (size // bins), (p + 1) * (size // bins) if p < bins - 1 else size"),
    Category.REDUCTIONS,
    "Average: An output is the average of its bin instead of the maximum.",
    edit(max_roi_pool.largest, "float(channel[winner])", "float(channel[np.ix_(*bin_)].mean())"),
    "MaxFrom0: A maximum starts at 0, so negative pixels are lost.",
    starting_at(0.0),
    "MaxFromTheLeastNormal: A maximum starts at the least positive normal number, as ONNX Runtime's once did.",
    starting_at(2.0**-126),
    "NaNLoses: NaN is left out of a maximum.",
    edit(max_roi_pool.first_largest, "return h, w", "continue"),
    Category.TYPES,
    "BinsInFloat: The size and the bounds of bins are computed in float32, as in Caffe and ONNX Runtime.",
    bounds_in("np.float32"),
    "BinsInDouble: The size and the bounds of bins are computed in float64 instead of exactly.",
    bounds_in("np.float64"),
    "EndsInTheTensorsType: Ends are scaled in the type of the tensors.",
    ends("narrowed(r1 * scale)", "narrowed(r2 * scale)"),
    "ComparedInFloat: Pixels are compared in float32, so nearly equal doubles tie.",
    edit(max_roi_pool.first_largest, "float(channel[h, w])", "float(np.float32(channel[h, w]))"),
    "DxSumsInTheTensorsType: dX is summed in the type of the tensors, so 16-bit sums stop growing.",
    edit(max_roi_pool.add_to_dx, "float(dx[winner]) + dy", "narrowed(float(dx[winner]) + dy)"),
    Category.INDEXING,
    "BatchIdCut: Fractional batch ids are truncated instead of refused.",
    on_images(lambda n, _: np.trunc(n)),
    "BatchIdLast: The batch id is read from the last of the five numbers of a RoI.",
    numbers(lambda rois: rois[:, [4, 0, 1, 2, 3]]),
    "NaNIdTaken: A batch id of NaN is taken for 0 instead of refused.",
    on_images(lambda n, _: np.where(np.isnan(n), 0, n)),
    "BinsExchanged: The rows of bins are those of columns, and the other way round.",
    meant(lambda a: a | {"pooled_shape": a["pooled_shape"][::-1]} if "pooled_shape" in a else a)
    | result(lambda y: y.reshape(*y.shape[:2], *y.shape[:1:-1])),
    Category.GRADIENTS,
    "BinsOverwrite: If several bins of a RoI share their largest pixel, only the last one's gradient is kept.",
    edit(max_roi_pool.add_to_dx, "float(dx[winner]) + dy", "dy"),
    "TieToTheLast: The last of several equal pixels gets the gradient instead of the first.",
    edit(max_roi_pool.first_largest, "value > largest", "value >= largest"),
    "TiesShare: Equal pixels share the gradient instead of the first getting it all.",
    edit(
        *(max_roi_pool.max_roi_pool_grad, f"add_to_dx(dx[n, c], winner, {DY})"),
        f"v = channel[np.ix_(*bin_)] == channel[winner]; dx[n, c][np.ix_(*bin_)] += v / max(v.sum(), 1) * {DY}",
    ),
    "EmptyPasses: The gradient of a bin without pixels goes to the first pixel of the map.",
    edit(max_roi_pool.max_roi_pool_grad, "first_largest(channel, bin_)", "first_largest(channel, bin_) or (0, 0)"),
    "NaNPassesNothing: A maximum of NaN passes no gradient.",
    edit(
        max_roi_pool.max_roi_pool_grad,
        "if winner is not None",
        "if winner is not None and not np.isnan(channel[winner])",
    ),
    Category.DEFAULTS,
    "SixteenthByDefault: spatial_scale defaults to 1/16.",
    by_default(spatial_scale=0.0625),
    "OneNumberTaken: A pooled_shape of one number is accepted as both height and width.",
    given(
        lambda a: (
            a | {"pooled_shape": a["pooled_shape"] * (2 if len(a["pooled_shape"]) == 1 else 1)}
            if "pooled_shape" in a
            else a
        )
    ),
    "InfiniteRoisTaken: Infinite RoIs are accepted and taken for very large ones.",
    numbers(lambda rois: np.where((np.arange(5) > 0) & np.isinf(rois), np.copysign(6e4, rois), rois)),
    "FourNumbersTaken: RoIs with four numbers are accepted and read image 0.",
    on(ROIS, lambda rois: np.pad(rois, ((0, 0), (1, 0))) if rois.shape[1:] == (4,) else rois),
    "IntegersTaken: Integer tensors are converted instead of refused.",
    INTEGERS_TAKEN,
    "OtherTypesTaken: RoIs of another type than the map are accepted.",
    asked(lambda inputs: {name: array.astype(inputs["X"].dtype) for name, array in inputs.items()}),
    "NoBinsTaken: A dY without bins is accepted.",
    before_checks("if operator.is_gradient and 0 in arrays['dY'].shape[2:]: return [np.zeros(arrays['X'].shape)]"),
    Category.SIZES,
    "HugeRefused: RoIs of very many pixels are refused even if few of them are on the map.",
    refused_if(max_roi_pool.size_of, lambda start, end: end - start >= 10**6),
    "LongRowsSplit: Only the first 64 pixels of each row of a bin are read.",
    edit(max_roi_pool.on_map, ON_MAP, "max(low, 0), min(high, length, max(low, 0) + 64)"),
    "LastNaNWins: The last of several NaN in a bin gets its gradient.",
    edit(max_roi_pool.first_largest, "return h, w", "winner, largest = (h, w), math.inf"),
)

MUTANTS = table.of("max_roi_pool")
__getattr__ = MUTANTS.find
