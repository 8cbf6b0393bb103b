# SPDX-License-Identifier: MIT OR Apache-2.0
"""Mutants that several families share: mistakes in indexing, in blocked and threaded code, and in sampling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from conformance.mutants.base import Array, Category, Steps, Table, call, edit, is_gradient, narrowed, rounded
from conformance.mutants.steps import (
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
    of_another_thread,
    of_dx,
    of_the_last_call,
    on,
    on_images,
    pixels_in_16_bits,
    refused_if,
    refused_where,
    result,
    second_of_its_shape,
    unread,
    with_last_rows,
)
from ortops.reference import arguments_of, evaluate, grid_sample, ms_deform_attn, roi_align, sampling
from ortops.reference import roi_align_rotated as rotated
from ortops.reference.dml_resample import ResampledAxis
from ortops.reference.dml_roi_align import RegionAxis, is_on_map, limited_samples

FLT_MAX = float(np.finfo(np.float32).max)

COORDINATE = (
    *(sampling.coordinate, RegionAxis.coordinate, rotated.Region.place, ResampledAxis.coordinate),
    *(grid_sample.coordinate, ms_deform_attn.coordinate),
)


def counted(change: Any) -> Steps:
    """The number of samples of a bin along an axis is changed."""
    counts = (sampling.samples_per_bin, limited_samples)
    return {function: lambda *a, function=function: change(function(*a)) for function in counts}


def scaled(change: Any) -> Steps:
    """The attributes that are scales are changed."""
    return meant(lambda a: {name: change(v) if "scale" in name and np.isscalar(v) else v for name, v in a.items()})


def averaged(change: Any) -> Steps:
    """Averages are computed sample by sample, and `change` changes each partial sum."""

    def upright(bin_: Any, channel: Any, outside_value: float) -> float:
        total = 0.0
        for sample in bin_.inside:
            for _ in range(sample.repeats):
                total = change(total + roi_align.value_of(channel, sample.corners))
        outside = bin_.total - sum(sample.repeats for sample in bin_.inside)
        return float(change((total + (outside * outside_value if outside else 0.0)) / roi_align.divisor_of(bin_)))

    def turned(samples: Any, channel: Any, region: Any) -> float:
        total = 0.0
        for sample in samples:
            total = change(total + rotated.interpolated(channel, sample.corners))
        return float(change(total / rotated.divisor_of(region)))

    return {roi_align.average: upright, rotated.average: turned}


def border(is_kept: str) -> Steps:
    """Whether a sample at coordinate `c` is inside a map of some length is this expression."""
    return edit(sampling.is_inside, "-1.0 <= c <= length", is_kept) | border_of_regions(is_kept)


def border_of_regions(is_kept: str) -> Steps:
    """Like `border`, but only for DmlRoiAlign."""
    return edit(is_on_map, "-1.0 < c <= length", is_kept)


def sized(upright: tuple[str, ...], turned: tuple[str, ...]) -> Steps:
    """The computation of a RoI's size is changed, for upright and for rotated RoIs."""
    return edit(sampling.size_of, *upright) | edit(rotated.size_of, *turned)


def shifted(upright: tuple[str, str], turned: tuple[str, str]) -> Steps:
    """The shift by half a pixel is changed, for upright and for rotated RoIs."""
    return edit(sampling.start_of, *upright) | edit(rotated.center_of, *turned)


SLOPE_OF_THE_CELL_BEFORE = "math.floor(clamped) - (is_gradient() and c == clamped == math.floor(c) and 0 < c < {} - 1)"


def slope_after(is_meant: str) -> Steps:
    """In DirectML's gradient a sample on a pixel, where this is true, has the slope of the cell after it."""
    is_wrong = f"(is_gradient() and c == clamped == math.floor(c) < self.length - 1 and {is_meant})"
    return edit(RegionAxis.taps, "math.ceil(clamped)", f"math.ceil(clamped) + {is_wrong}")


def images_of_call() -> list[int]:
    """The image of each RoI of the call."""
    images = call().role(IMAGES)
    return (call().inputs["rois"][:, 0] if images is None else images.ravel()).astype(int).tolist()  # type: ignore[no-any-return]


def uncleared(dx: Array) -> Array:
    """DX with garbage in the images without RoIs that lie between images with RoIs."""
    used = images_of_call()
    dx[[n for n in range(min(used, default=0), max(used, default=0)) if n not in used]] = 7.5
    return dx


def overwritten(operator: Any, inputs: Any, attributes: Any, wanted: Any) -> Any:
    """The results, where only the last RoI of each image contributes to dX."""
    whole = evaluate(operator, inputs, attributes, wanted)
    if not operator.is_gradient or whole[0] is None:
        return whole
    images, dy = images_of_call(), inputs[0].copy()
    dy[[r for r, n in enumerate(images) if n in images[r + 1 :]]] = 0
    return [evaluate(operator, [dy, *inputs[1:]], attributes, wanted)[0], *whole[1:]]


def six_digits(value: Any) -> Any:
    """A floating-point attribute rounded to six digits; other values do not change."""
    if isinstance(value, tuple | list):
        return tuple(map(six_digits, value))
    return float(f"{value:g}") if isinstance(value, float) else value


def winners(change: Any) -> Steps:
    """A maximum chooses among other candidates: `change` takes and returns a list."""
    return {roi_align.winner_of: lambda candidates: roi_align.winner_of(change(list(candidates)))}


def starting_at(value: float) -> Steps:
    """A maximum has this start value."""
    return edit(roi_align.maximum, "winner.value", f"max(winner.value, {value})")


def in_blocks(count: int, n: int) -> int:
    """How many are in whole blocks of `n`, or in the first one if it is incomplete."""
    return max(count // n * n, min(count, n))


def earlier(count: int, n: int) -> Array:
    """Indices, from `n` on those of `n` earlier."""
    return (k := np.arange(count)) - n * (k >= n)


def padded(x: Array) -> Array:
    """A map with a pixel along axes that have none. A gradient has the lengths twice, so it is left alone."""
    if x.ndim != 4 or is_gradient():
        return x
    return np.pad(x, [(0, 0), (0, 0), *((0, int(n == 0)) for n in x.shape[2:])])


def positive(a: dict[str, Any]) -> dict[str, Any]:
    """The attributes, with 1 for each scale that is not allowed."""
    return {
        name: v if "scale" not in name or (isinstance(v, float) and 0 < v < np.inf) else 1.0 for name, v in a.items()
    }


def legal(operator: Any, attributes: Any) -> Any:
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


DX_NEEDS_X = refused_where("operator.is_gradient and operator.inputs[-1].name not in arrays")
INTEGERS_TAKEN = on((*X, *DY, *ROIS), lambda a: a.astype(np.float32) if a.dtype.kind in "iu" else a) | {
    rounded: lambda y, dtype: rounded(y, np.dtype(np.float32) if dtype.kind in "iu" else dtype)
}

CALLS = Table()
"""Of every operator."""

CALLS.add(
    Category.SIZES,
    "MapOfTheLastCall: A call with the sizes of the last one reads that one's map and gradient.",
    of_the_last_call(*X, *DY),
    "LastRowsKept: A result with fewer rows than that of the call before keeps the rows beyond.",
    answered(with_last_rows),
    "SecondCallRepeated: From its third call of a size on, a session repeats its second result.",
    answered(second_of_its_shape),
    "InputsOfAnotherThread: A session keeps its inputs where those of another thread replace them.",
    {evaluate: of_another_thread},
    "SixDigits: Attributes have six digits, as printed by %g.",
    given(lambda a: {k: six_digits(v) for k, v in a.items()}),
    "TinyResultsFlushed: Subnormal results are flushed to 0.",
    {rounded: flushed},
    Category.TYPES,
    "DoubleInFloat: Results of double tensors have the precision of float32.",
    {rounded: lambda y, dtype: rounded(y.astype(np.float32), dtype)},
    Category.DEFAULTS,
    "AttributesUnchecked: Attribute values are not checked, as in ncnn.",
    {arguments_of: legal},
)

SAMPLED = Table(CALLS)
"""Of every operator that interpolates."""

SAMPLED.add(
    Category.TYPES,
    "CoordinatesInTheTensorsType: Coordinates are computed in the type of the tensors, as in TensorRT's plugin.",
    in_type(*COORDINATE),
    "CoordinatesInFloat: Coordinates are float32 even for double tensors.",
    in_type(*COORDINATE, dtype=np.float32),
)


ROIS_ALONE = Table()
"""Of every operator on RoIs, after those of `CALLS`."""

ROIS_ALONE.add_limits(
    ("ChannelsDropped: Channels beyond {} stay 0.", 16, 256, lambda n: cleared(lambda _: np.s_[:, n:])),
    (
        "ChannelsOfAnotherBlock: Channels beyond {0} repeat those {0} earlier.",
        *(16, 256, lambda n: on(X, lambda x: x[:, earlier(x.shape[1], n)])),
    ),
    (
        "ChannelTailDropped: Channels beyond the last whole block of {} stay 0.",
        *(4, 64, lambda n: cleared(lambda y: np.s_[:, in_blocks(y.shape[1], n) :])),
    ),
    ("RoisDropped: Results of RoIs beyond {} stay 0.", 16, 256, lambda n: cleared(lambda _: np.s_[n:])),
    ("ManyRoisDropped: Results of RoIs beyond {} stay 0.", 300, 1024, lambda n: cleared(lambda _: np.s_[n:])),
    (
        "RoisOfAnotherBlock: RoIs beyond {0} use the coordinates of the RoI {0} earlier.",
        *(16, 256, lambda n: on(ROIS, lambda r: r[..., earlier(r.shape[-2], n), :])),
    ),
    (
        "PairsDropped: Pairs of a RoI and a channel beyond {} stay 0.",
        *(2**15, 2**16, lambda n: cleared(lambda y: np.arange(y.shape[0] * y.shape[1]).reshape(y.shape[:2]) >= n)),
    ),
    ("ImagesWrap: Batch indices are taken modulo {}.", 16, 256, lambda n: on_images(lambda images, _: images % n)),
    ("RowsUnread: Rows of the map beyond {} are not read.", 16, 256, lambda n: unread(lambda _: np.s_[n:])),
    ("ColumnsUnread: Columns of the map beyond {} are not read.", 16, 256, lambda n: unread(lambda _: np.s_[:, n:])),
    (
        "ColumnTailUnread: Columns beyond the last whole block of {} are not read.",
        *(4, 64, lambda n: unread(lambda image: np.s_[:, in_blocks(image.shape[1], n) :])),
    ),
    ("RowsOfBinsDropped: Bins along y beyond {} stay 0.", 8, 24, lambda n: cleared(lambda _: np.s_[:, :, n:])),
    ("ColumnsOfBinsDropped: Bins along x beyond {} stay 0.", 8, 24, lambda n: cleared(lambda _: np.s_[..., n:])),
    ("ManyBinsDropped: Bins along x beyond {} stay 0.", 71, 128, lambda n: cleared(lambda _: np.s_[..., n:])),
    (
        "BinsDropped: Bins of a RoI beyond {} stay 0.",
        *(64, 128, lambda n: cleared(lambda y: (..., np.arange(math.prod(y.shape[2:])).reshape(y.shape[2:]) >= n))),
    ),
)
ROIS_ALONE.add(
    Category.SIZES,
    "PixelsIn16Bits: The index of a pixel in its channel wraps around at 16 bits.",
    on(X, pixels_in_16_bits),
    "ImagesLeftBetween: dX of images without RoIs between those with RoIs is not set to 0.",
    of_dx(uncleared),
    "ConstantRoisInFloat16: RoIs that are constants of the model are rounded to float16.",
    on(ROIS, lambda rois: rois.astype(np.float16).astype(rois.dtype) if call().constants.intersection(ROIS) else rois),
    Category.COORDINATES,
    "ScaleIgnored: spatial_scale is ignored, so RoIs are in pixels of the map.",
    scaled(lambda scale: 1.0),
    Category.TYPES,
    "ManyDoublesInFloat: Results of more than 64 RoIs have the precision of float32.",
    {rounded: lambda y, dtype: rounded(y.astype(np.float32) if len(images_of_call()) > 64 else y, dtype)},
    "ScaleInTheTensorsType: spatial_scale is rounded to the type of the tensors.",
    scaled(lambda scale: narrowed(scale) or 1.0),
    Category.INDEXING,
    "BatchIndexIgnored: Every RoI reads image 0.",
    on_images(lambda n, _: 0 * n),
    "NegativeIndexWraps: Negative batch indices count from the last image, as in NumPy, instead of being refused.",
    on_images(lambda n, count: np.where((n < 0) & (n >= -count), n + n.dtype.type(count), n)),
    "IndexNTaken: A batch index of N, one too large, reads the last image instead of being refused.",
    on_images(lambda n, count: np.where(n == count, n - (count > 0), n).astype(n.dtype)),
    "ChannelsReversed: Channels are read in reverse order.",
    on(X, lambda x: x[:, ::-1]),
    "ResultTransposed: The result is written as [R, C, PW, PH].",
    result(lambda y: y.swapaxes(2, 3).reshape(y.shape)),
    "DxOfImage0: dX of every RoI goes to image 0.",
    of_dx(lambda dx: np.concatenate([dx.sum(axis=0, keepdims=True), 0 * dx[1:]]) if len(dx) else dx),
    Category.GRADIENTS,
    "DxOverwritten: dX of an image is overwritten by each RoI instead of summed: only the last RoI counts.",
    {evaluate: overwritten},
    Category.DEFAULTS,
    "NoRoisRefused: An input without RoIs is refused.",
    refused_where("not arrays.get('rois', arrays.get('ROITensor')).size"),
    "NoChannelsRefused: A map without channels is refused.",
    refused_where("not call().x_shape[1]"),
    "NoPixelsAre0: RoIs on a map without pixels give 0 instead of an error.",
    on(X, padded),
    "ScaleUnchecked: Any spatial_scale is accepted, including 0, negative numbers and NaN.",
    given(positive),
)

OF_SAMPLES = Table()
"""Of every operator that samples RoIs, after those of `SAMPLED` and `ROIS_ALONE`."""

OF_SAMPLES.add(
    Category.BORDERS,
    "EdgesReplicated: Samples outside the map read the nearest edge pixel, as in torchvision's deterministic path.",
    border("math.isfinite(c)"),
    Category.COUNTS,
    "Ratio0RoundedDown: The adaptive number of samples is rounded down instead of up, as in MindSpore.",
    edit(sampling.adaptive_samples, "math.ceil", "math.floor"),
    "Ratio0OfTheAbsoluteSize: The adaptive number of samples of a RoI with swapped ends is that of its absolute size.",
    edit(sampling.adaptive_samples, "size / bins", "abs(size) / bins"),
    "ManySamplesRefused: RoIs with very many samples are refused.",
    refused_if(sampling.adaptive_samples, lambda size, bins: size / bins > 10**6),
    Category.TYPES,
    "PartialSumsInTheTensorsType: Partial sums are rounded to the type of the tensors.",
    averaged(narrowed),
    "DxSumsInTheTensorsType: dX is summed in the type of the tensors, as in torchvision, so float16 sums stop growing.",
    edit(roi_align.add_to_dx, "corner.weight", "corner.weight; dx[h][w] = narrowed(dx[h][w])")
    | edit(rotated.add_to_dx, "corner.weight", "corner.weight; dx[h][w] = narrowed(dx[h][w])"),
    Category.INDEXING,
    "IndexIn32Bits: Batch indices are truncated to 32 bits.",
    on(IMAGES, lambda n: n.astype(np.int32 if n.dtype.kind == "i" else np.uint32).astype(n.dtype)),
    Category.DEFAULTS,
    "WidthByDefaultTheHeight: output_width defaults to output_height.",
    given(lambda a: {"output_width": a.get("output_height", 1)} | a),
    Category.GRADIENTS,
    "DroisAre0: The gradient by the RoIs is 0, as in MXNet.",
    {roi_align.add_to_droi: lambda *a: None, rotated.add_to_droi: lambda *a: None},
)
OF_SAMPLES.add_limits(
    ("SamplesCapped: A bin has at most {} samples along an axis.", 8, 32, lambda n: counted(lambda k: min(k, n))),
    ("ManySamplesCapped: A bin has at most {} samples along an axis.", 65, 120, lambda n: counted(lambda k: min(k, n))),
    (
        "OddCountsRounded: An odd number of samples above {} is reduced by one.",
        *(4, 16, lambda n: counted(lambda k: k - k % 2 * (k > n))),
    ),
)
OF_SAMPLES.add(
    Category.SIZES,
    "CountsJustAboveRounded: An adaptive number of samples just above a whole number is rounded down.",
    edit(sampling.adaptive_samples, "math.ceil(", "math.floor(0.99 + "),
    "UnreadPixelsMultiplied: Pixels that no sample reads are multiplied by 0 and added, so NaN and infinity spread.",
    edit(roi_align.average, "total / divisor_of(bin_)", "total / divisor_of(bin_) + 0.0 * sum(map(sum, channel))")
    | edit(rotated.average, "total / divisor_of(region)", "total / divisor_of(region) + 0.0 * sum(map(sum, channel))"),
    "SumsOverflowFloat: Sums beyond FLT_MAX overflow to infinity even if the average is in range.",
    averaged(lambda total: total * math.inf if abs(total) > FLT_MAX and call().dtype.itemsize <= 4 else total),
    "SlopeOfTheCellBefore: In drois, a sample on a pixel uses the slope of the cell before it instead of after it.",
    edit(sampling.taps, "math.floor(clamped)", SLOPE_OF_THE_CELL_BEFORE.format("length"))
    | edit(RegionAxis.taps, "math.floor(clamped),", f"{SLOPE_OF_THE_CELL_BEFORE.format('self.length')},"),
    "SlopeAt0Wrong: In drois, a sample on the first pixel has a slope where it should have none, or has none.",
    edit(sampling.taps, "if c == clamped", "if c == clamped and c != 0") | slope_after("c == 0"),
)


OF_ENDS = Table()
"""Of the operators whose RoIs have two ends along each axis."""

OF_ENDS.add(
    Category.COORDINATES,
    "XAndYSwapped: RoIs are read as y1, x1, y2 and x2.",
    edit(sampling.ends_of, "(y1, y2), (x1, x2)", "(x1, x2), (y1, y2)"),
    "EndsOrdered: Swapped ends of a RoI are put in order, so nothing is mirrored.",
    edit(sampling.ends_of, "(y1, y2), (x1, x2)", "sorted((y1, y2)), sorted((x1, x2))"),
)

OF_UPRIGHT = Table()
"""Of RoiAlign and DmlRoiAlign."""

OF_UPRIGHT.add(
    Category.COUNTS,
    "DivisorIn32Bits: The number of samples of a bin, the product over both axes, overflows 32 bits.",
    edit(roi_align.divisor_of, "bin_.total", "(bin_.total + 2**31) % 2**32 - 2**31"),
    Category.REDUCTIONS,
    "MaxFromZero: A maximum starts at 0, so negative values are lost, as in OpenVINO.",
    starting_at(0.0),
    "MaxFromMinus10000: A maximum starts at -10000, so lower values are lost, as with mmcv on the CPU.",
    starting_at(-10000.0),
    Category.GRADIENTS,
    "OutsideLosesTies: Of equal samples, one on the map gets the gradient of a maximum even if one outside is the first.",
    winners(lambda candidates: sorted(candidates, key=lambda candidate: candidate.sample is None)),
    "TieToTheLast: The last of several equal candidates gets the gradient of a maximum instead of the first.",
    winners(lambda them: them[::-1]),
    "MaximumPassedAsAverage: The gradient of a maximum is that of an average.",
    edit(roi_align.terms_of, 'if mode == "avg":', "if True:"),
    "DxWithoutOutside: The gradient of an average is divided by the number of samples inside the map only.",
    edit(roi_align.terms_of, "Term(divisor_of(bin_),", "Term(max(sum(sample.repeats for sample in bin_.inside), 1),"),
    "DroisWithoutScale: drois lacks the factor spatial_scale.",
    edit(sampling.derivatives_by_ends, "scale * (1.0 - t), scale * t", "1.0 - t, t"),
    "DroisHalfAndHalf: drois gives half of each sample's gradient to either end, wherever the sample lies.",
    edit(sampling.derivatives_by_ends, "scale * (1.0 - t), scale * t", "scale * 0.5, scale * 0.5"),
)


def numbers(candidates: list[Any]) -> list[Any]:
    """The candidates that are numbers, or all if none is."""
    return [candidate for candidate in candidates if not math.isnan(candidate.value)] or candidates


OF_UPRIGHT.add(
    Category.SIZES,
    "NaNLoses: NaN is left out of a maximum.",
    winners(numbers),
    "NaNWinsIfFirst: A maximum is NaN only if the first candidate is.",
    winners(lambda them: them[:1] if them and math.isnan(them[0].value) else numbers(them)),
    "MaxFromMinusFltMax: A maximum starts at -FLT_MAX, so -inf is lost.",
    starting_at(-FLT_MAX),
)


def faded(c: float, n: int) -> tuple[sampling.Tap, ...]:
    """The pixels that a sample reads on a map that is padded with zeros."""
    share = min(max(1 + min(c, n - 1 - c), 0.0), 1.0)
    return tuple(tap._replace(weight=share * tap.weight) for tap in sampling.taps(c, n))


RAISED_WITHOUT_SAMPLES = edit(
    sampling.axes_of_roi,
    "samples_per_bin(size,",
    "samples_per_bin(size if sampling_ratio or size_varies or r2 > r1 or not is_gradient() else 0.0,",
) | edit(
    rotated.region_of,
    "samples_per_bin(size,",
    "samples_per_bin(size if sampling_ratio or varies or stored > 0 or not is_gradient() else 0.0,",
)

OF_ONNX = Table()
"""Of RoiAlign and RoIAlignRotated."""

OF_ONNX.add(
    Category.COORDINATES,
    "NoHalfPixel: RoIs are not shifted by half a pixel where they should be.",
    shifted(("- 0.5", "- 0.0"), ("0.5 if", "0.0 if")),
    "HalfPixelTwice: RoIs are shifted twice, by a whole pixel, as mmcv's export does since opset 16.",
    shifted(("- 0.5", "- 1.0"), ("0.5 if", "1.0 if")),
    "HalfPixelAlways: RoIs are shifted by half a pixel whatever the attribute says.",
    shifted(("else r1 * scale", "else r1 * scale - 0.5"), ("else 0.0", "else 0.5")),
    "ShiftBeforeScale: The shift by half a pixel happens before scaling instead of after it, as in TVM's Relax.",
    shifted(("r1 * scale - 0.5", "(r1 - 0.5) * scale"), ("else 0.0)", "else 0.0) * scale")),
    "EndPixelIncluded: 1 is added to the ends x2 and y2, or to the sizes, as MindSpore's roi_end_mode does.",
    sized(("(r2 - r1)", "(r2 - r1 + 1)"), ("stored * scale", "(stored + 1) * scale")),
    "NoLeastSize: Sizes below 1 are never raised to 1.",
    sized(("(max(size, 1.0), size >= 1.0)", "(size, True)"), ("aligned != 0 or size >= 1.0", "True")),
    "LeastSizeAlways: Sizes below 1 are raised to 1 even with half_pixel or aligned = 1, as MIGraphX does.",
    sized(("(size, True) if", "(max(size, 1.0), size >= 1.0) if"), ("aligned != 0 or ", "")),
    "NegativeSizesAre0: Negative sizes become 0, so a RoI with swapped ends is a point instead of mirrored.",
    sized(("(r2 - r1) * scale", "max((r2 - r1) * scale, 0.0)"), ("stored * scale", "max(stored * scale, 0.0)")),
    "SamplesAtTheStart: Each sample lies at the start of its part of the bin instead of the middle.",
    edit(sampling.coordinate, "(i + 0.5) * axis.size", "i * axis.size")
    | edit(rotated.Side.along, "2 * k + 1", "2 * k"),
    "NearestPixel: The nearest pixel is read instead of interpolating.",
    edit(sampling.taps, "f = clamped - low", "f = float(round(clamped - low))"),
    Category.BORDERS,
    "Minus1Outside: A sample at exactly -1 counts as outside the map.",
    border("-1 < c <= length"),
    "LengthOutside: A sample at exactly the map's length counts as outside.",
    border("-1 <= c < length"),
    "FadesToZero: The map is padded with zeros, as in coremltools, so samples between -1 and 0 fade to 0.",
    {sampling.taps: faded},
    Category.COUNTS,
    "Ratio0As1: sampling_ratio 0 means one sample per bin and axis instead of an adaptive number.",
    {sampling.adaptive_samples: lambda size, bins: 1},
    "Ratio0AtLeast1: The adaptive number of samples is at least 1, so an empty RoI is sampled.",
    edit(sampling.adaptive_samples, "max(0.0,", "max(1.0,"),
    "DivisorWithoutOutside: Averages are divided by the number of samples inside the map only.",
    edit(roi_align.divisor_of, "bin_.total", "sum(sample.repeats for sample in bin_.inside)")
    | edit(rotated.average, "divisor_of(region)", "max(len(samples), 1)"),
    "EmptyIsNaN: The average over no samples is NaN (0 divided by 0), as in MNN, OpenVINO and Paddle.",
    edit(roi_align.average, "total / divisor_of(bin_)", "total / divisor_of(bin_) if bin_.total else math.nan")
    | edit(rotated.average, "total / divisor_of(region)", "total / divisor_of(region) if region.total else math.nan"),
    Category.REDUCTIONS,
    "SumForAverage: An average is the sum of its samples, not divided by their number.",
    {roi_align.divisor_of: lambda _: 1, rotated.divisor_of: lambda _: 1},
    Category.TYPES,
    "WeightsInTheTensorsType: Interpolation weights are rounded to the type of the tensors.",
    edit(sampling.taps, "1.0 - f, -", "narrowed(1.0 - f), -", "f, derivative)", "narrowed(f), derivative)"),
    "ResultInFloat: The result of float16 and bfloat16 tensors is a float tensor.",
    {rounded: lambda y, dtype: rounded(y, np.dtype(np.float32) if dtype.itemsize == 2 else dtype)},
    Category.INDEXING,
    "DroisOfImage0: Gradients that need X read image 0 for every RoI.",
    on(X, lambda x: x[:1].repeat(len(x), 0) if is_gradient() else x),
    Category.GRADIENTS,
    "DxNotDivided: The gradient is not divided by the number of samples: each sample passes on the whole gradient.",
    edit(roi_align.terms_of, "Term(divisor_of(bin_),", "Term(1,")
    | edit(rotated.roi_align_rotated_grad, "share / divisor_of(region)", "share"),
    "DxOfClampedSizes: The gradient alone raises sizes to 1 with half_pixel or aligned = 1, as in Paddle.",
    sized(
        ("(size, True) if", "(size, True) if not is_gradient() and"),
        ("aligned != 0 or", "aligned and not is_gradient() or"),
    ),
    "NoGradientOfRaisedRois: With adaptive sampling, RoIs of no or negative size that are raised to 1 get no gradient.",
    RAISED_WITHOUT_SAMPLES,
    "DroisThroughClamp: A sample that is clamped to the border contributes to drois.",
    edit(sampling.taps, "1.0 if c == clamped else 0.0", "1.0"),
    "DroisOfAFreeSize: drois lets the size vary although it has been raised to 1.",
    edit(sampling.OnnxAxis.roi_derivatives, " if self.size_varies else 0.0", "")
    | edit(
        rotated.add_to_droi, "if region.width.size_varies:", "if True:", "if region.height.size_varies:", "if True:"
    ),
    "DroisOfOneChannel: drois is computed from the first channel only.",
    edit(roi_align.pool_grad, "drois[r], share,", "drois[r], share * (c == 0),")
    | edit(rotated.roi_align_rotated_grad, "drois[r], share,", "drois[r], share * (channel is channels[0]),"),
    "DxNeedsX: dX of an average is refused unless X is given, though it does not need X.",
    DX_NEEDS_X,
    Category.DEFAULTS,
    "Ratio1ByDefault: sampling_ratio defaults to 1, as in onnx-tensorrt, OpenVINO's frontend and PopART.",
    by_default(sampling_ratio=1),
    "Output7x7ByDefault: The output size defaults to 7 x 7, as in PopART.",
    by_default(output_height=7, output_width=7),
    "HeightForWidth: output_width is ignored: the output is as wide as it is high.",
    given(lambda a: a | {"output_width": a.get("output_height", 1)}),
    "NegativeRatioIsAdaptive: A negative sampling_ratio is taken for 0, as in onnx's reference evaluator.",
    given(lambda a: a | {"sampling_ratio": max(a.get("sampling_ratio", 0), 0)}),
    "EmptyOutputTaken: An output height or width of 0 is accepted, as in ONNX Runtime.",
    given(lambda a: a | {name: max(a.get(name, 1), 1) for name in ("output_height", "output_width")}),
    "RoisUnchecked: Infinite and NaN RoIs are taken for empty ones instead of refused.",
    on(ROIS, lambda rois: np.nan_to_num(rois, posinf=0.0, neginf=0.0)),
    "NumberTooManyTaken: RoIs with a number too many are accepted, and the last number is ignored.",
    on(ROIS, lambda rois: rois[:, : call().operator.inputs[1].shape[-1]] if rois.ndim == 2 else rois),
    "MoreIndicesTaken: More batch indices than RoIs are accepted, and the extra ones are ignored.",
    asked(lambda given: given | {name: given[name][: len(given["rois"])] for name in IMAGES if name in given}),
)
