"""Mutants that several families have: mistakes of indexing, of blocked and threaded code, and of sampling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from conformance.mutants.base import Array, Category, Steps, Table, call, is_gradient, rounded
from conformance.mutants.steps import (
    DX,
    DY,
    IMAGES,
    ROIS,
    X,
    answered,
    asked,
    by_default,
    cleared,
    flushed,
    given,
    in_type,
    meant,
    narrowed,
    narrowed_into,
    of_dx,
    of_the_last_call,
    on,
    on_images,
    refused_if,
    result,
    roi_by_roi,
    threshold,
    unread,
)
from ortops.reference import arguments_of, check_shapes, evaluate
from ortops.reference import roi_align_rotated as rotated
from ortops.reference.dml_roi_align import RegionAxis, limited_samples
from ortops.reference.roi_align import (
    Candidate,
    add_to_droi,
    add_to_dx,
    average,
    divisor_of,
    maximum,
    terms_of,
    value_of,
    winner_of,
)
from ortops.reference.sampling import (
    Tap,
    adaptive_samples,
    candidate_indices,
    coordinate,
    derivatives_by_ends,
    ends_of,
    is_inside,
    samples_per_bin,
    taps,
)

HALF_MAX, FLT_MAX = float(np.finfo(np.float16).max), float(np.finfo(np.float32).max)
GARBAGE = 7.5
"""The content of memory that was not initialised."""

MOST_LISTED = 4096
"""Of bins with more samples than this along an axis, only those near the map are looked at."""

EVERY_SAMPLE: Steps = {
    candidate_indices: lambda axis, p: (
        range(axis.per_bin) if axis.per_bin <= MOST_LISTED else candidate_indices(axis, p)
    ),
    rotated.Side.between: lambda side, p, low, high: (
        range(p * side.per_bin, (p + 1) * side.per_bin)
        if side.per_bin <= MOST_LISTED
        else rotated.Side.between(side, p, low, high)
    ),
}
"""Samples are looked at wherever they are, for mutants that place them elsewhere or read them outside of the map."""

COORDINATE = (coordinate, RegionAxis.coordinate, rotated.Region.place)
COUNT = (samples_per_bin, limited_samples)


def counted(change: Any) -> Steps:
    """The number of samples of a bin along an axis is changed."""
    return {function: lambda *a, function=function: change(function(*a)) for function in COUNT}


def adaptive(change: Any) -> Steps:
    """The adaptive number of samples: `change` takes the size of a RoI in pixels and the number of bins."""
    return {adaptive_samples: change}


def scaled(change: Any) -> Steps:
    """The attributes that are scales are changed."""
    return meant(lambda a: {name: change(v) if "scale" in name and np.isscalar(v) else v for name, v in a.items()})


def shape_of_x(change: Any) -> Steps:
    """The shape of the map is refused where `change` is true of it and of the RoIs."""

    def replaced(operator: Any, arrays: Any, arguments: Any) -> None:
        check_shapes(operator, arrays, arguments)
        rois = next(arrays[name] for name in ROIS if name in arrays)
        if change(rois, call().x_shape):
            raise ValueError("empty")

    return {check_shapes: replaced}


def overflowing(largest: float, itemsize: int) -> Steps:
    """Partial sums beyond `largest` are infinite for types of at most so many bytes."""

    def limited(value: float) -> float:
        is_beyond = abs(value) > largest and call().dtype.itemsize <= itemsize
        return math.copysign(math.inf, value) if is_beyond else value

    return averaged(limited)


def averaged(change: Any, product: Any = lambda value: value) -> Steps:
    """Averages are computed sample by sample: `change` takes partial sums, `product` samples."""

    def upright(bin_: Any, channel: Any, outside_value: float) -> float:
        total = 0.0
        for sample in bin_.inside:
            for _ in range(sample.repeats):
                total = change(total + product(value_of(channel, sample.corners)))
        outside = bin_.total - sum(sample.repeats for sample in bin_.inside)
        return float(change((total + (outside * outside_value if outside else 0.0)) / divisor_of(bin_)))

    def turned(samples: Any, channel: Any, region: Any) -> float:
        total = 0.0
        for sample in samples:
            total = change(total + product(rotated.interpolated(channel, sample.corners)))
        return float(change(total / rotated.divisor_of(region)))

    return {average: upright, rotated.average: turned}


def border(is_kept: Any) -> Steps:
    """Whether a sample at a coordinate is inside a map of some length is changed."""
    return {is_inside: is_kept, **EVERY_SAMPLE}


def by_box(inputs: Any) -> Any:
    """RoIs with equal coordinates have the image of the first of them."""
    if is_gradient():
        return inputs
    names = list(inputs)
    rois = inputs[names[1]].reshape(-1, inputs[names[1]].shape[-1])
    boxes = rois[:, 1:] if len(names) == 2 else rois
    _, first, which = np.unique(boxes, axis=0, return_index=True, return_inverse=True)
    chosen = first[which.ravel()] if len(rois) else slice(0)
    if len(names) == 2:
        return inputs | {names[1]: rois[chosen]}
    return inputs | {names[2]: inputs[names[2]][..., chosen]}


def uncleared(is_meant: Any) -> Steps:
    """DX of images without RoIs is garbage, where `is_meant(n, first used, last used)`."""

    def changed(name: str, y: Array) -> Array:
        images = call().role(IMAGES)
        used = set((call().inputs["rois"][:, 0] if images is None else images).ravel().tolist())
        for n in range(len(y)) if name in DX and used else ():
            if n not in used and is_meant(n, min(used), max(used)):
                y[n] = GARBAGE
        return y

    return answered(changed)


def slope_at(is_meant: Any, is_before: bool) -> Steps:
    """Samples on some pixels have the slope of the wrong cell, or one where there should be none."""

    def changed(c: float, length: int, right: Any) -> Any:
        if c != math.floor(c) or not is_meant(c, length) or not is_gradient():
            return right
        pixel = int(c)
        if is_before:
            return Tap(pixel - 1, 0.0, -1.0), Tap(pixel, 1.0, 1.0)
        slope = 0.0 if right[0].weight_derivative else 1.0
        return Tap(pixel, 1.0, -slope), Tap(pixel + 1, 0.0, slope)

    return {
        taps: lambda c, length: changed(c, length, taps(c, length)),
        RegionAxis.taps: lambda axis, c: (
            RegionAxis.taps(axis, c) if axis.nearest else changed(c, axis.length, RegionAxis.taps(axis, c))
        ),
    }


def dx_left(name: str, y: Array) -> Array:
    """DX with that of the call before added, if it had the same sizes."""
    if name not in DX:
        return y
    last, call().memory["dx"] = call().memory.get("dx"), y
    return y + last if last is not None and last.shape == y.shape else y


def six_digits(value: Any) -> Any:
    """Floating-point attributes of six digits."""
    if isinstance(value, tuple | list):
        return tuple(map(six_digits, value))
    return float(f"{value:g}") if isinstance(value, float) else value


def winners(change: Any) -> Steps:
    """A maximum chooses among other candidates: `change` takes and returns a list."""
    return {winner_of: lambda candidates: winner_of(change(list(candidates)))}


def down_the_columns(candidates: list[Candidate]) -> list[Candidate]:
    """Candidates in column order."""
    return sorted(candidates, key=lambda one: one.sample.first[::-1] if one.sample else (-1, -1))


def has_nan(candidates: list[Candidate]) -> list[bool]:
    """Which candidates are NaN."""
    return [math.isnan(one.value) for one in candidates]


def without_nan(candidates: list[Candidate]) -> list[Candidate]:
    """The candidates that are numbers, or all if none is."""
    return [one for one in candidates if not math.isnan(one.value)] or candidates


def last_nan_first(candidates: list[Candidate]) -> list[Candidate]:
    """The last NaN, or all candidates if none is NaN."""
    return [one for one in candidates if math.isnan(one.value)][-1:] or candidates


def adding_in_type(function: Any) -> Any:
    """Each pixel of dX is rounded to the type of the tensors whenever something is added to it."""

    def replaced(dx: list[list[float]], share: float, read: Any) -> None:
        function(dx, share, read)
        for corner in getattr(read, "corners", read):
            if corner.pixel is not None:
                h, w = corner.pixel
                dx[h][w] = narrowed(dx[h][w])

    return replaced


def all_channels(x: Array, n: int) -> Any:
    """Channels before the last incomplete block of `n`."""
    return np.arange(x.shape[1]) < max(x.shape[1] // n * n, min(x.shape[1], n))


def with_dx_always(operator: Any, inputs: Any, attributes: Any, wanted: Any) -> Any:
    """A node whose only output is drois returns dX in its place."""
    if list(wanted) != [False, True]:
        return evaluate(operator, inputs, attributes, wanted)
    return [None, evaluate(operator, inputs, attributes, [True, True])[0]]


def earlier(count: int, n: int) -> Array:
    """Indices, from `n` on those of `n` earlier."""
    return (k := np.arange(count)) - n * (k >= n)


def wrapped(x: Array, bits: int) -> Array:
    """A map whose pixels are read by an index of so many bits."""
    flat = x.reshape(*x.shape[:2], x.shape[2] * x.shape[3])
    return flat[:, :, np.arange(flat.shape[2]) % 2**bits].reshape(x.shape)


CALLS = Table()
CALLS.category = Category.SIZES
CALLS["MapOfTheLastCall", "A call with the sizes of the last one reads that one's map and gradient."] = (
    of_the_last_call(*X, *DY)
)
CALLS["SixDigits", "Attributes have six digits, as printed by %g."] = given(
    lambda a: {k: six_digits(v) for k, v in a.items()}
)
CALLS["TinyResultsFlushed", "Subnormal results are flushed to 0."] = {rounded: flushed}
CALLS.of_gradient["DxOfTheLastCallLeft", "dX of the last call is not cleared by a call with the same sizes."] = (
    answered(dx_left)
)
"""Of every operator."""


OF_ROIS = Table(CALLS)
OF_ROIS.category = Category.SIZES
channels, block, tail = (threshold(*one) for one in (("channels", 16, 256), ("block", 16, 256), ("tail", 4, 64)))
rois, boxes, images = (threshold(name, 16, 256) for name in ("rois", "boxes", "images"))
height, width, line = threshold("height", 16, 256), threshold("width", 16, 256), threshold("line", 4, 64)
below, right, bins = threshold("Rows", 8, 24), threshold("Columns", 8, 24), threshold("bins", 64, 192)
pairs, many_rois = threshold("pairs", 2**15, 2**16), threshold("many rois", 300, 1024)
many_bins = threshold("many bins", 71, 128)

OF_ROIS["ChannelsDropped", f"Channels beyond {channels} stay 0."] = cleared(lambda _: np.s_[:, channels:])
OF_ROIS["ChannelsOfAnotherBlock", f"Channels beyond {block} repeat those {block} earlier."] = on(
    X, lambda x: x[:, earlier(x.shape[1], block)]
)
OF_ROIS["ChannelTailDropped", f"Channels beyond the last whole block of {tail} stay 0."] = cleared(
    lambda y: np.s_[:, ~all_channels(y, tail)]
)
OF_ROIS["RoisDropped", f"Results of RoIs beyond {rois} stay 0."] = cleared(lambda _: np.s_[rois:])
OF_ROIS["RoisOfAnotherBlock", f"RoIs beyond {boxes} use the coordinates of the RoI {boxes} earlier."] = on(
    ROIS, lambda r: r[..., earlier(r.shape[-2], boxes), :]
)
OF_ROIS["RowsUnread", f"Rows of the map beyond {height} are not read."] = unread(lambda h, w, *_: h + 0 * w >= height)
OF_ROIS["ColumnsUnread", f"Columns of the map beyond {width} are not read."] = unread(
    lambda h, w, *_: w + 0 * h >= width
)
OF_ROIS["ColumnTailUnread", f"Columns beyond the last whole block of {line} are not read."] = unread(
    lambda h, w, _, n: w + 0 * h >= max(n // line * line, min(n, line))
)
for bits in (12, 16):
    OF_ROIS[f"PixelsIn{bits}Bits", f"The index of a pixel in its channel wraps around at {bits} bits."] = on(
        X, lambda x, bits=bits: wrapped(x, bits)
    )
OF_ROIS["RowsOfBinsDropped", f"Bins along y beyond {below} stay 0."] = cleared(lambda _: np.s_[:, :, below:])
OF_ROIS["ColumnsOfBinsDropped", f"Bins along x beyond {right} stay 0."] = cleared(lambda _: np.s_[..., right:])
OF_ROIS["BinsDropped", f"Bins of a RoI beyond {bins} stay 0."] = cleared(
    lambda y: (..., np.arange(math.prod(y.shape[2:])).reshape(y.shape[2:]) >= bins)
)
OF_ROIS["ImagesWrap", f"Batch indices are taken modulo {images}."] = on_images(lambda n, _: n % images)
OF_ROIS["BoxesAnsweredOnce", "RoIs with equal coordinates all get the result of the first, whatever their image."] = (
    asked(by_box)
)
OF_ROIS["PairsDropped", f"Pairs of a RoI and a channel beyond {pairs} stay 0."] = cleared(
    lambda y: np.arange(y.shape[0] * y.shape[1]).reshape(y.shape[:2]) >= pairs
)
OF_ROIS["ManyRoisDropped", f"Results of RoIs beyond {many_rois} stay 0."] = cleared(lambda _: np.s_[many_rois:])
OF_ROIS["ManyBinsDropped", f"Bins along x beyond {many_bins} stay 0."] = cleared(lambda _: np.s_[..., many_bins:])
OF_ROIS["RoisOfTheLastCall", "A call with the sizes of the last one uses that one's RoIs."] = of_the_last_call(*ROIS)
OF_ROIS["HalfClipped", "float16 results beyond 65504 are clipped to 65504 instead of infinite."] = {
    rounded: lambda y, dtype: rounded(
        np.where(np.isfinite(y) & (dtype == np.float16), np.clip(y, -HALF_MAX, HALF_MAX), y), dtype
    )
}
OF_ROIS["ScaleAtMost4", "spatial_scale is limited to 4."] = scaled(lambda scale: min(scale, 4.0))


for place, is_meant in (
    ("before", lambda n, first, last: n < first),
    ("between", lambda n, first, last: first < n < last),
    ("after", lambda n, first, last: n > last),
):
    OF_ROIS.of_gradient[
        f"ImagesLeft{place.capitalize()}", f"dX of images without RoIs {place} those with RoIs is not set to 0."
    ] = uncleared(is_meant)
OF_ROIS.category = Category.TYPES
OF_ROIS["DoubleInFloat", "Results of double tensors have the precision of float32."] = {
    rounded: lambda y, dtype: rounded(y.astype(np.float32), dtype)
}
OF_ROIS.category = Category.INDEXING
OF_ROIS["BatchIndexIgnored", "Every RoI reads image 0."] = on_images(lambda n, _: 0 * n)
OF_ROIS[
    "NegativeIndexWraps", "Negative batch indices count from the last image, as in NumPy, instead of being refused."
] = on_images(lambda n, count: np.where((n < 0) & (n >= -count), n + n.dtype.type(count), n))
OF_ROIS["IndexNTaken", "A batch index of N, one too large, reads the last image instead of being refused."] = on_images(
    lambda n, count: np.where(n == count, n - (count > 0), n).astype(n.dtype)
)
OF_ROIS["ChannelsReversed", "Channels are read in reverse order."] = on(X, lambda x: x[:, ::-1])
OF_ROIS["NAndCExchanged", "The map is read as [C, N, H, W]."] = on(
    X, lambda x: x.reshape(x.shape[1], x.shape[0], *x.shape[2:]).swapaxes(0, 1)
)
OF_ROIS["ResultTransposed", "The result is written as [R, C, PW, PH]."] = result(
    lambda y: y.swapaxes(2, 3).reshape(y.shape)
)
OF_ROIS.of_gradient["DxOfImage0", "dX of every RoI goes to image 0."] = of_dx(
    lambda dx: np.concatenate([dx.sum(axis=0, keepdims=True), 0 * dx[1:]]) if len(dx) else dx
)
OF_ROIS.category = Category.GRADIENTS
OF_ROIS["DxOverwritten", "dX of an image is overwritten by each RoI instead of summed: only the last RoI counts."] = (
    roi_by_roi(lambda dx, part, n: np.copyto(dx[n], part[n]))
)
OF_ROIS.category = Category.DEFAULTS
OF_ROIS["NoRoisRefused", "An input without RoIs is refused."] = shape_of_x(lambda rois, _: not rois.size)
OF_ROIS["NoChannelsRefused", "A map without channels is refused."] = shape_of_x(lambda _, shape: not shape[1])
OF_ROIS["NoPixelsRefused", "A map without pixels is refused even if there are no RoIs."] = shape_of_x(
    lambda _, shape: 0 in shape[2:]
)
OF_ROIS["NoImagesRefused", "A map without images is refused even if there are no RoIs."] = shape_of_x(
    lambda _, shape: not shape[0]
)
"""Of every operator on RoIs."""

_RATIO, _ODD, _MANY = threshold("ratio", 8, 32), threshold("odd", 4, 16), threshold("many samples", 65, 120)


OF_SAMPLES = Table(OF_ROIS)
OF_SAMPLES.category = Category.BORDERS
OF_SAMPLES[
    "EdgesReplicated", "Samples outside the map read the nearest edge pixel, as in torchvision's deterministic path."
] = border(lambda c, n: math.isfinite(c))
OF_SAMPLES.category = Category.COUNTS
OF_SAMPLES["Ratio0RoundedDown", "The adaptive number of samples is rounded down instead of up, as in MindSpore."] = (
    adaptive(lambda size, bins: max(math.floor(size / bins), 0))
)
OF_SAMPLES["Ratio0RoundedToTheNearest", "The adaptive number of samples is rounded to nearest instead of up."] = (
    adaptive(lambda size, bins: max(math.floor(size / bins + 0.5), 0))
)
OF_SAMPLES[
    "Ratio0OfTheAbsoluteSize",
    "The adaptive number of samples of a RoI with swapped ends follows from its absolute size.",
] = adaptive(lambda size, bins: adaptive_samples(abs(size), bins))
OF_SAMPLES["Ratio0OfTheRoi", "The adaptive number of samples follows from the size of the RoI instead of the bin."] = (
    adaptive(lambda size, bins: adaptive_samples(size, 1))
)
OF_SAMPLES["ManySamplesRefused", "RoIs with very many samples are refused."] = refused_if(
    adaptive_samples, lambda size, bins: size / bins > 10**6
)
OF_SAMPLES.category = Category.TYPES
OF_SAMPLES[
    "CoordinatesInTheTensorsType", "Coordinates are computed in the type of the tensors, as in TensorRT's plugin."
] = in_type(*COORDINATE)
OF_SAMPLES["CoordinatesInFloat", "Coordinates are float32 even for double tensors."] = in_type(
    *COORDINATE, dtype=np.float32
)
OF_SAMPLES["ScaleInTheTensorsType", "spatial_scale is rounded to the type of the tensors."] = scaled(narrowed)
OF_SAMPLES["PartialSumsInTheTensorsType", "Partial sums are rounded to the type of the tensors."] = averaged(narrowed)
OF_SAMPLES.of_gradient[
    "DxSumsInTheTensorsType",
    "dX is summed in the type of the tensors, as in torchvision, so float16 sums stop growing.",
] = {step: adding_in_type(step) for step in (add_to_dx, rotated.add_to_dx)}
OF_SAMPLES.category = Category.INDEXING
OF_SAMPLES["IndexIn32Bits", "Batch indices are truncated to 32 bits."] = on(
    IMAGES, lambda n: n.astype(np.int32 if n.dtype.kind == "i" else np.uint32).astype(n.dtype)
)
OF_SAMPLES["WholeBlocksOfChannels", "Channels after the last whole block of 16 stay 0."] = on(
    X, lambda x: np.where(all_channels(x, 16)[:, None, None], x, np.zeros((), x.dtype))
)
OF_SAMPLES.category = Category.GRADIENTS
OF_SAMPLES["DxOfReplicatedEdges", "Samples outside the map pass their gradient to the nearest edge pixel."] = border(
    lambda c, n: is_inside(c, n) or (is_gradient() and math.isfinite(c))
)
OF_SAMPLES.category = Category.SIZES
OF_SAMPLES["SamplesCapped", f"A bin has at most {_RATIO} samples along an axis."] = counted(lambda n: min(n, _RATIO))
OF_SAMPLES["ManySamplesCapped", f"A bin has at most {_MANY} samples along an axis."] = counted(lambda n: min(n, _MANY))
OF_SAMPLES["OddCountsRounded", f"An odd number of samples above {_ODD} is reduced by one."] = counted(
    lambda n: n - n % 2 * (n > _ODD)
)
OF_SAMPLES["CountsJustAboveRounded", "An adaptive number of samples just above a whole number is rounded down."] = (
    adaptive(lambda size, bins: max(math.floor(size / bins + 0.99), 0))
)
OF_SAMPLES[
    "UnreadPixelsMultiplied", "Pixels that no sample reads are multiplied by 0 and added, so NaN and infinity spread."
] = {
    step: lambda samples, channel, *a, step=step: step(samples, channel, *a) + 0.0 * sum(sum(row) for row in channel)
    for step in (average, rotated.average)
}
OF_SAMPLES["NaNReadAs0", "NaN counts as 0 in an average."] = {
    step: lambda samples, channel, *a, step=step: step(
        samples, [[0.0 if math.isnan(v) else v for v in row] for row in channel], *a
    )
    for step in (average, rotated.average)
}
OF_SAMPLES["SumsOverflowFloat", "Sums beyond FLT_MAX overflow to infinity even if the average is in range."] = (
    overflowing(FLT_MAX, 4)
)
OF_SAMPLES[
    "SumsOverflowHalf", "Sums of 16-bit tensors beyond 65504 overflow to infinity even if the average is in range."
] = overflowing(HALF_MAX, 2)
OF_SAMPLES.of_gradient[
    "SlopeOfTheCellBefore", "In drois, a sample on a pixel uses the slope of the cell before it instead of after it."
] = slope_at(lambda c, n: 0 < c < n - 1, True)
OF_SAMPLES.of_gradient[
    "SlopeAt0Wrong",
    "In drois, a sample on the first pixel has a slope where it should have none, or the other way round.",
] = slope_at(lambda c, n: c == 0 and n > 1, False)
OF_SAMPLES.of_gradient[
    "SlopeOnTheLastPixel", "In drois, a sample on the last pixel has the slope of the last cell instead of none."
] = slope_at(lambda c, n: c == n - 1 and n > 1, True)
"""Of every operator that samples RoIs."""


OF_UPRIGHT = Table(OF_SAMPLES)
OF_UPRIGHT.category = Category.COORDINATES
OF_UPRIGHT["XAndYSwapped", "RoIs are read as y1, x1, y2 and x2."] = {ends_of: lambda roi: ends_of(roi)[::-1]}
OF_UPRIGHT["EndsOrdered", "Swapped ends of a RoI are put in order, so nothing is mirrored."] = {
    ends_of: lambda roi: tuple((min(ends), max(ends)) for ends in ends_of(roi))
}
OF_UPRIGHT.category = Category.REDUCTIONS
OF_UPRIGHT["MaxFromZero", "A maximum starts at 0, so negative values are lost, as in OpenVINO."] = {
    maximum: lambda *a: max(maximum(*a), 0.0)
}
OF_UPRIGHT["MaxFromMinus10000", "A maximum starts at -10000, so lower values are lost, as with mmcv on the CPU."] = {
    maximum: lambda *a: max(maximum(*a), -10000.0)
}
OF_UPRIGHT["MaxFirstSampleAlone", "A maximum is taken over the first sample of a bin only."] = winners(
    lambda them: [one for one in them if one.sample is them[0].sample]
)
OF_UPRIGHT.category = Category.GRADIENTS
OF_UPRIGHT[
    "TieToTheLast", "The last of several equal candidates gets the gradient of a maximum instead of the first."
] = winners(lambda them: them[::-1])
OF_UPRIGHT["TieDownTheColumns", "Ties of a maximum go to the first sample in column order instead of row order."] = (
    winners(down_the_columns)
)
OF_UPRIGHT[
    "OutsideLoses",
    "A sample outside the map is never the maximum in the gradient, though it may be in the forward operator.",
] = winners(lambda them: [one for one in them if one.sample or not is_gradient()])
OF_UPRIGHT["MaximumPassedAsAverage", "The gradient of a maximum is that of an average."] = {
    terms_of: lambda mode, *a: terms_of("avg", *a)
}
OF_UPRIGHT["DroisWithoutScale", "drois lacks the factor spatial_scale."] = {
    derivatives_by_ends: lambda scale, t: derivatives_by_ends(1.0, t)
}
OF_UPRIGHT["DroisEndsExchanged", "drois of the start and of the end of a RoI are exchanged."] = {
    derivatives_by_ends: lambda scale, t: derivatives_by_ends(scale, t)[::-1]
}
OF_UPRIGHT[
    "DroisHalfAndHalf", "drois gives half of each sample's gradient to either end, wherever the sample lies."
] = {derivatives_by_ends: lambda scale, t: derivatives_by_ends(scale, 0.5)}
OF_UPRIGHT["DroisAre0", "drois is 0, as in MXNet."] = {add_to_droi: lambda *a: None}
OF_UPRIGHT.category = Category.SIZES
OF_UPRIGHT["NaNLoses", "NaN is left out of a maximum."] = winners(without_nan)
OF_UPRIGHT["NaNWinsIfFirst", "A maximum is NaN only if the first candidate is."] = winners(
    lambda them: them[:1] if has_nan(them)[:1] == [True] else without_nan(them)
)
OF_UPRIGHT["SeveralNaNLose", "Several NaN are left out of a maximum, but not a single one."] = winners(
    lambda them: without_nan(them) if sum(has_nan(them)) > 1 else them
)
OF_UPRIGHT["MaxFromMinusFltMax", "A maximum starts at -FLT_MAX, so -inf is lost."] = {
    maximum: lambda *a: max(maximum(*a), -FLT_MAX)
}
OF_UPRIGHT.of_gradient["LastNaNWins", "The last of several NaN gets the gradient of a maximum."] = winners(
    last_nan_first
)
"""Of RoiAlign and DmlRoiAlign."""


def _faded(c: float, n: int) -> tuple[Tap, ...]:
    share = min(max(1 + min(c, n - 1 - c), 0.0), 1.0)
    return tuple(tap._replace(weight=share * tap.weight) for tap in taps(c, n))


def _continued(c: float, n: int) -> tuple[Tap, ...]:
    if c <= n - 1 or n == 1:
        return taps(c, n)
    f = c - (n - 2)
    return Tap(n - 2, 1.0 - f, -1.0), Tap(n - 1, f, 1.0)


OF_ONNX = Table()
"""Of RoiAlign and RoIAlignRotated, after those of `OF_SAMPLES`."""
OF_ONNX.category = Category.BORDERS
OF_ONNX["OutsideFrom0", "Samples between -1 and 0 count as outside the map."] = border(lambda c, n: 0 <= c <= n)
OF_ONNX["OutsideFromTheLast", "Samples between the last pixel and the map's length count as outside."] = border(
    lambda c, n: -1 <= c <= n - 1
)
OF_ONNX[
    "BorderMovedByHalfAPixel", "The map reaches from -0.5 to its length - 0.5, instead of from -1 to its length."
] = border(lambda c, n: -0.5 <= c <= n - 0.5)
OF_ONNX["WholePixelPastTheEnd", "The map reaches a whole pixel too far, to its length + 1."] = border(
    lambda c, n: -1 <= c <= n + 1
)
OF_ONNX["Minus1Outside", "A sample at exactly -1 counts as outside the map."] = border(lambda c, n: -1 < c <= n)
OF_ONNX["LengthOutside", "A sample at exactly the map's length counts as outside."] = border(lambda c, n: -1 <= c < n)
OF_ONNX["FadesToZero", "The map is padded with zeros, as in coremltools, so samples between -1 and 0 fade to 0."] = {
    taps: _faded
}
OF_ONNX["LastCellContinued", "Samples beyond the last pixel are extrapolated from the last two pixels."] = {
    taps: _continued
}


def corrected(attribute: str, choices: Any, value: object) -> Steps:
    """Another value of an attribute than the allowed ones is taken for `value`."""
    return given(lambda a: a if a.get(attribute, choices[0]) in choices else a | {attribute: value})


def _positive(a: dict[str, Any]) -> dict[str, Any]:
    return {
        name: v if "scale" not in name or (isinstance(v, float) and 0 < v < np.inf) else 1.0 for name, v in a.items()
    }


def _legal(operator: Any, attributes: Any) -> Any:
    """The attributes, with the default for each value that is not allowed."""
    try:
        return arguments_of(operator, attributes)
    except (TypeError, ValueError):
        kept = {}
        for name, value in attributes.items():
            try:
                arguments_of(operator, {name: value})
            except (TypeError, ValueError):
                continue
            kept[name] = value
        return arguments_of(operator, kept)


def _with_x_of_its_shape(inputs: dict[str, Array]) -> dict[str, Array]:
    """The inputs, where an X whose shape is not x_shape is zeros."""
    if "X" not in inputs or "x_shape" not in inputs or inputs["X"].shape == tuple(inputs["x_shape"]):
        return inputs
    return inputs | {"X": np.zeros(tuple(inputs["x_shape"]), inputs["dY"].dtype)}


SCALE_UNCHECKED: Steps = given(_positive)
UNCHECKED: Steps = {arguments_of: _legal}
MORE_INDICES_TAKEN: Steps = asked(
    lambda given: given | {name: given[name][: len(given["rois"])] for name in IMAGES if name in given}
)
X_OF_ANOTHER_SHAPE_TAKEN: Steps = asked(_with_x_of_its_shape)


def _needing_x(operator: Any, inputs: Any, attributes: Any, wanted: Any) -> Any:
    """The outputs; refused if a gradient lacks the map."""
    if operator.is_gradient and (len(inputs) < len(operator.inputs) or inputs[-1] is None):
        raise ValueError("X")
    return evaluate(operator, inputs, attributes, wanted)


DX_NEEDS_X: Steps = {evaluate: _needing_x}

NARROW = Table()
NARROW.category = Category.SIZES
NARROW["NarrowRoisEmptied", "A RoI narrower than an eighth of a pixel counts as empty."] = adaptive(
    lambda size, bins: adaptive_samples(size, bins) if abs(size) >= 1 / 8 else 0
)


OF_ONNX.category = Category.COORDINATES
OF_ONNX["ScaleIgnored", "spatial_scale is ignored, so RoIs are in pixels of the map."] = scaled(lambda scale: 1.0)
OF_ONNX["ScaleInverted", "RoIs are divided by spatial_scale instead of multiplied."] = scaled(lambda scale: 1 / scale)
OF_ONNX["NearestPixel", "The nearest pixel is read instead of interpolating."] = {
    taps: lambda *a: tuple(tap._replace(weight=float(round(tap.weight))) for tap in taps(*a))
}
OF_ONNX.category = Category.COUNTS
OF_ONNX["Ratio0As1", "sampling_ratio 0 means one sample per bin and axis instead of an adaptive number."] = adaptive(
    lambda size, bins: 1
)
OF_ONNX["Ratio0As2", "sampling_ratio 0 means two samples per bin and axis instead of an adaptive number."] = adaptive(
    lambda size, bins: 2
)
OF_ONNX["Ratio0AtLeast1", "The adaptive number of samples is at least 1, so an empty RoI is sampled."] = adaptive(
    lambda size, bins: max(adaptive_samples(size, bins), 1)
)
OF_ONNX.category = Category.TYPES
OF_ONNX["WeightsInTheTensorsType", "Interpolation weights are rounded to the type of the tensors."] = {
    taps: lambda *a: tuple(tap._replace(weight=narrowed(tap.weight)) for tap in taps(*a))
}
OF_ONNX["ThroughHalf", "Results of bfloat16 tensors are rounded to float16 first."] = {
    rounded: lambda y, dtype: rounded(y.astype(np.float16) if dtype.itemsize == 2 else y, dtype)
}
OF_ONNX["ResultInFloat", "The result of float16 and bfloat16 tensors is a float tensor."] = {
    rounded: lambda y, dtype: rounded(y, np.dtype(np.float32) if dtype.itemsize == 2 else dtype)
}
OF_ONNX.of_gradient["DroisSumsInTheTensorsType", "drois is summed over bins in the type of the tensors."] = {
    **narrowed_into(add_to_droi),
    **narrowed_into(rotated.add_to_droi),
}
OF_ONNX.category = Category.INDEXING
OF_ONNX["ImagesInTurn", "batch_indices is ignored: RoI r reads image r, starting again after the last image."] = on(
    IMAGES, lambda n: (np.arange(len(n)) % (n.max(initial=0) + 1)).astype(n.dtype)
)
OF_ONNX["FirstImageForAll", "Every RoI reads the image of the first RoI."] = on(IMAGES, lambda n: n[:1].repeat(len(n)))
OF_ONNX["FirstChannelForAll", "Every channel of the result is computed from channel 0."] = on(
    X, lambda x: x[:, :1].repeat(x.shape[1], 1)
)
OF_ONNX["HAndWExchanged", "X is read as [N, C, W, H]."] = on(
    X, lambda x: x.reshape(*x.shape[:2], x.shape[3], x.shape[2]).swapaxes(2, 3)
)
OF_ONNX["RoisGroupedByImage", "Results are sorted by image instead of keeping the order of the RoIs."] = result(
    lambda y: y[np.argsort(call().inputs["batch_indices"], kind="stable")]
)
OF_ONNX.of_gradient["DyTransposed", "dY is read as [R, C, PW, PH]."] = on(
    DY, lambda dy: dy.reshape(*dy.shape[:2], *dy.shape[:1:-1]).swapaxes(2, 3)
)
OF_ONNX.of_gradient["DroisOfImage0", "Gradients that need X read image 0 for every RoI."] = on(
    X, lambda x: x[:1].repeat(len(x), 0) if is_gradient() else x
)
OF_ONNX.category = Category.GRADIENTS
OF_ONNX["DxRaced", "Where RoIs share a pixel, only the last one's gradient is kept, as in a data race."] = roi_by_roi(
    lambda dx, part, n: np.copyto(dx[n], part[n], where=part[n] != 0)
)
OF_ONNX["DroisThroughClamp", "A sample that is clamped to the border contributes to drois."] = {
    taps: lambda *a: tuple(
        (
            tap._replace(weight_derivative=slope) if taps(*a)[1].pixel is not None else tap
            for tap, slope in zip(taps(*a), (-1.0, 1.0), strict=True)
        )
    )
}
OF_ONNX["DroisOnlyWithDx", "A node whose only output is drois returns dX in its place."] = {evaluate: with_dx_always}
OF_ONNX["DxNeedsX", "dX of an average is refused unless X is given, though it does not need X."] = DX_NEEDS_X
OF_ONNX.category = Category.DEFAULTS
OF_ONNX["Ratio1ByDefault", "sampling_ratio defaults to 1, as in onnx-tensorrt, OpenVINO's frontend and PopART."] = (
    by_default(sampling_ratio=1)
)
OF_ONNX["Ratio2ByDefault", "sampling_ratio defaults to 2."] = by_default(sampling_ratio=2)
OF_ONNX["Output7x7ByDefault", "The output size defaults to 7 x 7, as in PopART."] = by_default(
    output_height=7, output_width=7
)
OF_ONNX["HeightForWidth", "output_width is ignored: the output is as wide as it is high."] = given(
    lambda a: a | {"output_width": a.get("output_height", 1)}
)
OF_ONNX["HeightAndWidthExchanged", "output_height and output_width are exchanged."] = given(
    lambda a: a | {"output_height": a.get("output_width", 1), "output_width": a.get("output_height", 1)}
)
OF_ONNX["NegativeRatioIsAdaptive", "A negative sampling_ratio is taken for 0, as in onnx's reference evaluator."] = (
    given(lambda a: a | {"sampling_ratio": max(a.get("sampling_ratio", 0), 0)})
)
OF_ONNX["EmptyOutputTaken", "An output height or width of 0 is accepted, as in ONNX Runtime."] = given(
    lambda a: a | {name: max(a.get(name, 1), 1) for name in ("output_height", "output_width")}
)
OF_ONNX["ScaleUnchecked", "Any spatial_scale is accepted, including 0, negative numbers and NaN."] = SCALE_UNCHECKED
OF_ONNX["RoisUnchecked", "Infinite and NaN RoIs are taken for empty ones instead of refused."] = on(
    ROIS, lambda rois: np.nan_to_num(rois, posinf=0.0, neginf=0.0)
)
OF_ONNX["NaNAloneRefused", "Infinite RoIs are taken for empty ones; only NaN is refused."] = on(
    ROIS, lambda rois: np.where(np.isinf(rois), np.zeros((), rois.dtype), rois)
)
OF_ONNX["MoreIndicesTaken", "More batch indices than RoIs are accepted, and the extra ones are ignored."] = (
    MORE_INDICES_TAKEN
)
OF_ONNX.of_gradient[
    "XOfAnotherShapeTaken",
    "An X whose shape is not x_shape is accepted where the gradient of an average does not read it.",
] = X_OF_ANOTHER_SHAPE_TAKEN
