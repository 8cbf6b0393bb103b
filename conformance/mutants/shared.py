"""Mutants that several families have: mistakes of indexing, of blocked and threaded code, and of sampling."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from conformance.mutants.base import Array, Category, Steps, Table, call, edit, is_gradient, narrowed, rounded
from conformance.mutants.steps import (
    DX,
    DY,
    IMAGES,
    ROIS,
    X,
    answered,
    asked,
    before_checks,
    by_default,
    cleared,
    flushed,
    given,
    in_type,
    meant,
    of_dx,
    of_the_last_call,
    on,
    on_images,
    refused_if,
    refused_where,
    result,
    roi_by_roi,
    threshold,
    unread,
)
from ortops.reference import arguments_of, evaluate
from ortops.reference import roi_align_rotated as rotated
from ortops.reference.dml_resample import ResampledAxis
from ortops.reference.dml_roi_align import RegionAxis, is_on_map, limited_samples, region_axes
from ortops.reference.roi_align import (
    add_to_droi,
    add_to_dx,
    average,
    divisor_of,
    maximum,
    pool_grad,
    terms_of,
    value_of,
    winner_of,
)
from ortops.reference.sampling import (
    OnnxAxis,
    Tap,
    adaptive_samples,
    axes_of_roi,
    bins_of,
    coordinate,
    derivatives_by_ends,
    ends_of,
    is_inside,
    samples_per_bin,
    size_of,
    start_of,
    taps,
)

HALF_MAX, FLT_MAX = float(np.finfo(np.float16).max), float(np.finfo(np.float32).max)
GARBAGE = 7.5
"""The content of memory that was not initialised."""

COORDINATE = (coordinate, RegionAxis.coordinate, rotated.Region.place, ResampledAxis.coordinate)


def counted(change: Any) -> Steps:
    """The number of samples of a bin along an axis is changed."""
    counts = (samples_per_bin, limited_samples)
    return {function: lambda *a, function=function: change(function(*a)) for function in counts}


def scaled(change: Any) -> Steps:
    """The attributes that are scales are changed."""
    return meant(lambda a: {name: change(v) if "scale" in name and np.isscalar(v) else v for name, v in a.items()})


def overflowing(largest: float, itemsize: int) -> Steps:
    """Partial sums beyond `largest` are infinite for types of at most so many bytes."""

    def limited(value: float) -> float:
        is_beyond = abs(value) > largest and call().dtype.itemsize <= itemsize
        return math.copysign(math.inf, value) if is_beyond else value

    return averaged(limited)


def averaged(change: Any) -> Steps:
    """Averages are computed sample by sample: `change` takes partial sums."""

    def upright(bin_: Any, channel: Any, outside_value: float) -> float:
        total = 0.0
        for sample in bin_.inside:
            for _ in range(sample.repeats):
                total = change(total + value_of(channel, sample.corners))
        outside = bin_.total - sum(sample.repeats for sample in bin_.inside)
        return float(change((total + (outside * outside_value if outside else 0.0)) / divisor_of(bin_)))

    def turned(samples: Any, channel: Any, region: Any) -> float:
        total = 0.0
        for sample in samples:
            total = change(total + rotated.interpolated(channel, sample.corners))
        return float(change(total / rotated.divisor_of(region)))

    return {average: upright, rotated.average: turned}


def border(is_kept: str) -> Steps:
    """Whether a sample at coordinate `c` is inside a map of some length is this expression, in which {} is the right one."""
    return _border_of(is_inside, "-1.0 <= c <= length", is_kept) | border_of_regions(is_kept)


def border_of_regions(is_kept: str) -> Steps:
    """As `border`, of DmlRoiAlign alone."""
    return _border_of(is_on_map, "-1.0 < c <= length", is_kept)


def _border_of(rule: Callable[[float, int], bool], right: str, is_kept: str) -> Steps:
    return edit(rule, right, is_kept.replace("{}", right))


def border_along(is_kept: str) -> Steps:
    """As `border`, where the length of the map along x is `Marked`."""
    upright = edit(axes_of_roi, "*ends_x, output_size[1], map_size[1]", "*ends_x, output_size[1], Marked(map_size[1])")
    turned = edit(rotated.region_of, "(map_size[0], map_size[1])", "(map_size[0], Marked(map_size[1]))")
    return border(is_kept) | upright | turned


def adaptive_of(size: str) -> Steps:
    """The adaptive number of samples follows from another size."""
    old, new = "samples_per_bin(size, bins, sampling_ratio)", f"samples_per_bin({size}, bins, sampling_ratio)"
    return edit(axes_of_roi, old, new) | edit(rotated.region_of, old, new)


def counted_as(axis: int) -> Steps:
    """Both axes have the number of samples of one: 0 for y, 1 for x."""
    old, size = "samples_per_bin(size, bins, sampling_ratio)", f"output_size[{axis}], sampling_ratio)"
    upright = f"*ends_of(roi)[{axis}], spatial_scale, coordinate_transformation_mode"
    turned = f"roi[{3 - axis}], spatial_scale, aligned"
    return edit(axes_of_roi, old, f"samples_per_bin(size_of({upright})[0], {size}") | edit(
        rotated.region_of, old, f"samples_per_bin(size_of({turned})[0], {size}"
    )


def sized(upright: tuple[str, ...], turned: tuple[str, ...]) -> Steps:
    """The size of a RoI is computed otherwise: the changes for upright and for rotated RoIs."""
    return edit(size_of, *upright) | edit(rotated.size_of, *turned)


def shifted(upright: tuple[str, str], turned: tuple[str, str]) -> Steps:
    """The shift by half a pixel is another one: the changes for upright and for rotated RoIs."""
    return edit(start_of, *upright) | edit(rotated.center_of, *turned)


def placed(upright: str, turned: str) -> Steps:
    """The place of a sample within a bin is computed otherwise, for upright and for rotated RoIs."""
    return edit(coordinate, "(i + 0.5) * axis.size / (axis.bins * axis.per_bin)", upright) | edit(
        rotated.Side.along, "(2 * k + 1 - self.samples) / (2 * self.samples)", turned
    )


def varying(upright: str, turned: str) -> Steps:
    """Whether drois lets the size vary is decided otherwise, for upright and for rotated RoIs."""
    sides = ("if region.width.size_varies:", f"if {turned}:", "if region.height.size_varies:", f"if {turned}:")
    return edit(OnnxAxis.roi_derivatives, " if self.size_varies else 0.0", upright) | edit(rotated.add_to_droi, *sides)


def slope_of_the_cell_before(is_meant: str) -> Steps:
    """In the gradient a sample on a pixel, where this is true, has the slope of the cell before it."""
    is_wrong = f"(is_gradient() and c == clamped == math.floor(c) and {is_meant})"
    both = f"math.floor(clamped) - {is_wrong}, math.ceil"
    return edit(taps, "math.floor(clamped)", f"math.floor(clamped) - {is_wrong}") | edit(
        RegionAxis.taps, "math.floor(clamped), math.ceil", both.replace("length", "self.length")
    )


def slope_after(is_meant: str) -> Steps:
    """In DirectML's gradient a sample on a pixel, where this is true, has the slope of the cell after it."""
    is_wrong = f"(is_gradient() and c == clamped == math.floor(c) < self.length - 1 and {is_meant})"
    return edit(RegionAxis.taps, "math.ceil(clamped)", f"math.ceil(clamped) + {is_wrong}")


def first_of_equal(images: Array, *_: int) -> Array:
    """The image of the first of the RoIs with equal coordinates, for each RoI of a forward operator."""
    if is_gradient():
        return images
    rois: Any = call().role(ROIS)
    boxes = rois.reshape(-1, rois.shape[-1])[:, len(call().operator.inputs) == 2 :]
    _values, first, which = np.unique(boxes, axis=0, return_index=True, return_inverse=True)
    return images.ravel()[first[which.ravel()]].reshape(images.shape) if len(boxes) else images


def images_of_call() -> Array:
    """The image of each RoI of the call."""
    images = call().role(IMAGES)
    return call().inputs["rois"][:, 0] if images is None else images.ravel()


def uncleared(is_meant: Any) -> Steps:
    """DX of images without RoIs is garbage, where `is_meant(n, first used, last used)`."""

    def changed(name: str, y: Array) -> Array:
        used = set(images_of_call().tolist())
        for n in range(len(y)) if name in DX and used else ():
            if n not in used and is_meant(n, min(used), max(used)):
                y[n] = GARBAGE
        return y

    return answered(changed)


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


def starting_at(value: float, mode: str = "") -> Steps:
    """A maximum has this start value, in one mode or in all."""
    largest = f"max(winner.value, {value})"
    return edit(maximum, "winner.value", f"({largest} if mode == {mode!r} else winner.value)" if mode else largest)


def all_channels(x: Array, n: int) -> Any:
    """Channels before the last incomplete block of `n`."""
    return np.arange(x.shape[1]) < max(x.shape[1] // n * n, min(x.shape[1], n))


def earlier(count: int, n: int) -> Array:
    """Indices, from `n` on those of `n` earlier."""
    return (k := np.arange(count)) - n * (k >= n)


def wrapped(x: Array, bits: int) -> Array:
    """A map whose pixels are read by an index of so many bits."""
    flat = x.reshape(*x.shape[:2], x.shape[2] * x.shape[3])
    return flat[:, :, np.arange(flat.shape[2]) % 2**bits].reshape(x.shape)


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


def corrected(attribute: str, choices: Any, value: object) -> Steps:
    """Another value of an attribute than the allowed ones is taken for `value`."""
    return given(lambda a: a if a.get(attribute, choices[0]) in choices else a | {attribute: value})


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
    "SixDigits: Attributes have six digits, as printed by %g.",
    given(lambda a: {k: six_digits(v) for k, v in a.items()}),
    "TinyResultsFlushed: Subnormal results are flushed to 0.",
    {rounded: flushed},
    "DxOfTheLastCallLeft: dX of the last call is not cleared by a call with the same sizes.",
    answered(dx_left),
)
CALLS.add(
    Category.TYPES,
    "DoubleInFloat: Results of double tensors have the precision of float32.",
    {rounded: lambda y, dtype: rounded(y.astype(np.float32), dtype)},
)
CALLS.add(
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

channels, block, tail = (threshold(*one) for one in (("channels", 16, 256), ("block", 16, 256), ("tail", 4, 64)))
rois, boxes, images = (threshold(name, 16, 256) for name in ("rois", "boxes", "images"))
height, width, line = threshold("height", 16, 256), threshold("width", 16, 256), threshold("line", 4, 64)
below, right, bins = threshold("Rows", 8, 24), threshold("Columns", 8, 24), threshold("bins", 64, 192)
pairs, many_rois = threshold("pairs", 2**15, 2**16), threshold("many rois", 300, 1024)
many_bins = threshold("many bins", 71, 128)
ratio, odd, many = threshold("ratio", 8, 32), threshold("odd", 4, 16), threshold("many samples", 65, 120)

ROIS_ALONE = Table()
"""Of every operator on RoIs, after those of `CALLS`."""

ROIS_ALONE.add(
    Category.SIZES,
    f"ChannelsDropped: Channels beyond {channels} stay 0.",
    cleared(lambda _: np.s_[:, channels:]),
    f"ChannelsOfAnotherBlock: Channels beyond {block} repeat those {block} earlier.",
    on(X, lambda x: x[:, earlier(x.shape[1], block)]),
    f"ChannelTailDropped: Channels beyond the last whole block of {tail} stay 0.",
    cleared(lambda y: np.s_[:, ~all_channels(y, tail)]),
    f"RoisOfAnotherBlock: RoIs beyond {boxes} use the coordinates of the RoI {boxes} earlier.",
    on(ROIS, lambda r: r[..., earlier(r.shape[-2], boxes), :]),
    f"RowsUnread: Rows of the map beyond {height} are not read.",
    unread(lambda h, w, *_: h + 0 * w >= height),
    f"ColumnsUnread: Columns of the map beyond {width} are not read.",
    unread(lambda h, w, *_: w + 0 * h >= width),
    f"ColumnTailUnread: Columns beyond the last whole block of {line} are not read.",
    unread(lambda h, w, _, n: w + 0 * h >= max(n // line * line, min(n, line))),
    "PixelsIn12Bits: The index of a pixel in its channel wraps around at 12 bits.",
    on(X, lambda x: wrapped(x, 12)),
    "PixelsIn16Bits: The index of a pixel in its channel wraps around at 16 bits.",
    on(X, lambda x: wrapped(x, 16)),
    f"RowsOfBinsDropped: Bins along y beyond {below} stay 0.",
    cleared(lambda _: np.s_[:, :, below:]),
    f"BinsDropped: Bins of a RoI beyond {bins} stay 0.",
    cleared(lambda y: (..., np.arange(math.prod(y.shape[2:])).reshape(y.shape[2:]) >= bins)),
    f"ImagesWrap: Batch indices are taken modulo {images}.",
    on_images(lambda n, _: n % images),
    "BoxesAnsweredOnce: RoIs with equal coordinates all get the result of the first, whatever their image.",
    on_images(first_of_equal),
    f"PairsDropped: Pairs of a RoI and a channel beyond {pairs} stay 0.",
    cleared(lambda y: np.arange(y.shape[0] * y.shape[1]).reshape(y.shape[:2]) >= pairs),
    f"RoisDropped: Results of RoIs beyond {rois} stay 0.",
    cleared(lambda _: np.s_[rois:]),
    f"ManyRoisDropped: Results of RoIs beyond {many_rois} stay 0.",
    cleared(lambda _: np.s_[many_rois:]),
    f"ColumnsOfBinsDropped: Bins along x beyond {right} stay 0.",
    cleared(lambda _: np.s_[..., right:]),
    f"ManyBinsDropped: Bins along x beyond {many_bins} stay 0.",
    cleared(lambda _: np.s_[..., many_bins:]),
    "RoisOfTheLastCall: A call with the sizes of the last one uses that one's RoIs.",
    of_the_last_call(*ROIS),
    "HalfClipped: float16 results beyond 65504 are clipped to 65504 instead of infinite.",
    {
        rounded: lambda y, dtype: rounded(
            np.where(np.isfinite(y) & (dtype == np.float16), np.clip(y, -HALF_MAX, HALF_MAX), y), dtype
        )
    },
    "ScaleAtMost4: spatial_scale is limited to 4.",
    scaled(lambda scale: min(scale, 4.0)),
    "ImagesLeftBefore: dX of images without RoIs before those with RoIs is not set to 0.",
    uncleared(lambda n, first, last: n < first),
    "ImagesLeftBetween: dX of images without RoIs between those with RoIs is not set to 0.",
    uncleared(lambda n, first, last: first < n < last),
    "ImagesLeftAfter: dX of images without RoIs after those with RoIs is not set to 0.",
    uncleared(lambda n, first, last: n > last),
)
ROIS_ALONE.add(
    Category.COORDINATES,
    "ScaleIgnored: spatial_scale is ignored, so RoIs are in pixels of the map.",
    scaled(lambda scale: 1.0),
    "ScaleInverted: RoIs are divided by spatial_scale instead of multiplied.",
    scaled(lambda scale: 1 / scale),
)
ROIS_ALONE.add(
    Category.TYPES,
    "ScaleInTheTensorsType: spatial_scale is rounded to the type of the tensors.",
    scaled(lambda scale: narrowed(scale) or 1.0),
)
ROIS_ALONE.add(
    Category.INDEXING,
    "BatchIndexIgnored: Every RoI reads image 0.",
    on_images(lambda n, _: 0 * n),
    "FirstImageForAll: Every RoI reads the image of the first RoI.",
    on_images(lambda n, _: np.resize(n.flat[:1], n.shape)),
    "NegativeIndexWraps: Negative batch indices count from the last image, as in NumPy, instead of being refused.",
    on_images(lambda n, count: np.where((n < 0) & (n >= -count), n + n.dtype.type(count), n)),
    "IndexNTaken: A batch index of N, one too large, reads the last image instead of being refused.",
    on_images(lambda n, count: np.where(n == count, n - (count > 0), n).astype(n.dtype)),
    "ChannelsReversed: Channels are read in reverse order.",
    on(X, lambda x: x[:, ::-1]),
    "NAndCExchanged: The map is read as [C, N, H, W].",
    on(X, lambda x: x.reshape(x.shape[1], x.shape[0], *x.shape[2:]).swapaxes(0, 1)),
    "HAndWExchanged: The map is read as [N, C, W, H].",
    on(X, lambda x: x.reshape(*x.shape[:2], x.shape[3], x.shape[2]).swapaxes(2, 3)),
    "ResultTransposed: The result is written as [R, C, PW, PH].",
    result(lambda y: y.swapaxes(2, 3).reshape(y.shape)),
    "RoisGroupedByImage: Results are sorted by image instead of keeping the order of the RoIs.",
    result(lambda y: y[np.argsort(images_of_call(), kind="stable")]),
    "DxOfImage0: dX of every RoI goes to image 0.",
    of_dx(lambda dx: np.concatenate([dx.sum(axis=0, keepdims=True), 0 * dx[1:]]) if len(dx) else dx),
    "DyTransposed: dY is read as [R, C, PW, PH].",
    on(DY, lambda dy: dy.reshape(*dy.shape[:2], *dy.shape[:1:-1]).swapaxes(2, 3) if dy.ndim == 4 else dy),
)
ROIS_ALONE.add(
    Category.GRADIENTS,
    "DxOverwritten: dX of an image is overwritten by each RoI instead of summed: only the last RoI counts.",
    roi_by_roi(lambda dx, part, n: np.copyto(dx[n], part[n])),
)
ROIS_ALONE.add(
    Category.DEFAULTS,
    "NoRoisRefused: An input without RoIs is refused.",
    refused_where("not arrays.get('rois', arrays.get('ROITensor')).size"),
    "NoChannelsRefused: A map without channels is refused.",
    refused_where("not call().x_shape[1]"),
    "NoPixelsRefused: A map without pixels is refused even if there are no RoIs.",
    refused_where("0 in call().x_shape[2:]"),
    "NoImagesRefused: A map without images is refused even if there are no RoIs.",
    refused_where("not call().x_shape[0]"),
    "NoPixelsAre0: RoIs on a map without pixels give 0 instead of an error.",
    on(X, lambda x: np.pad(x, [(0, 0), (0, 0), *((0, int(n == 0)) for n in x.shape[2:])]) if x.ndim == 4 else x),
    "ScaleUnchecked: Any spatial_scale is accepted, including 0, negative numbers and NaN.",
    given(positive),
)

OF_SAMPLES = Table()
"""Of every operator that samples RoIs, after those of `SAMPLED` and `ROIS_ALONE`."""

OF_SAMPLES.add(
    Category.BORDERS,
    "EdgesReplicated: Samples outside the map read the nearest edge pixel, as in torchvision's deterministic path.",
    border("math.isfinite(c)"),
)
OF_SAMPLES.add(
    Category.COUNTS,
    "Ratio0RoundedDown: The adaptive number of samples is rounded down instead of up, as in MindSpore.",
    edit(adaptive_samples, "math.ceil", "math.floor"),
    "Ratio0RoundedToTheNearest: The adaptive number of samples is rounded to nearest instead of up.",
    edit(adaptive_samples, "math.ceil(", "math.floor(0.5 + "),
    "Ratio0OfTheAbsoluteSize: The adaptive number of samples of a RoI with swapped ends is that of its absolute size.",
    edit(adaptive_samples, "size / bins", "abs(size) / bins"),
    "Ratio0OfTheRoi: The adaptive number of samples follows from the size of the RoI instead of the bin.",
    edit(adaptive_samples, "size / bins", "size"),
    "ManySamplesRefused: RoIs with very many samples are refused.",
    refused_if(adaptive_samples, lambda size, bins: size / bins > 10**6),
)
OF_SAMPLES.add(
    Category.TYPES,
    "CoordinatesInHalf: Coordinates are float16 whatever the type of the tensors.",
    in_type(*COORDINATE, dtype=np.float16),
    "PartialSumsInTheTensorsType: Partial sums are rounded to the type of the tensors.",
    averaged(narrowed),
    "DxSumsInTheTensorsType: dX is summed in the type of the tensors, as in torchvision, so float16 sums stop growing.",
    edit(add_to_dx, "corner.weight", "corner.weight; dx[h][w] = narrowed(dx[h][w])")
    | edit(rotated.add_to_dx, "corner.weight", "corner.weight; dx[h][w] = narrowed(dx[h][w])"),
)
OF_SAMPLES.add(
    Category.INDEXING,
    "IndexIn32Bits: Batch indices are truncated to 32 bits.",
    on(IMAGES, lambda n: n.astype(np.int32 if n.dtype.kind == "i" else np.uint32).astype(n.dtype)),
)
OF_SAMPLES.add(
    Category.GRADIENTS,
    "DxOfReplicatedEdges: Samples outside the map pass their gradient to the nearest edge pixel.",
    border("{} or (is_gradient() and math.isfinite(c))"),
    "DroisAre0: The gradient by the RoIs is 0, as in MXNet.",
    {add_to_droi: lambda *a: None, rotated.add_to_droi: lambda *a: None},
)
OF_SAMPLES.add(
    Category.SIZES,
    f"SamplesCapped: A bin has at most {ratio} samples along an axis.",
    counted(lambda n: min(n, ratio)),
    f"ManySamplesCapped: A bin has at most {many} samples along an axis.",
    counted(lambda n: min(n, many)),
    f"OddCountsRounded: An odd number of samples above {odd} is reduced by one.",
    counted(lambda n: n - n % 2 * (n > odd)),
    "CountsJustAboveRounded: An adaptive number of samples just above a whole number is rounded down.",
    edit(adaptive_samples, "math.ceil(", "math.floor(0.99 + "),
    "UnreadPixelsMultiplied: Pixels that no sample reads are multiplied by 0 and added, so NaN and infinity spread.",
    edit(average, "total / divisor_of(bin_)", "total / divisor_of(bin_) + 0.0 * sum(map(sum, channel))")
    | edit(rotated.average, "total / divisor_of(region)", "total / divisor_of(region) + 0.0 * sum(map(sum, channel))"),
    "NaNReadAs0: NaN counts as 0 in an average.",
    edit(average, "value_of(channel,", "value_of([[0.0 if v != v else v for v in row] for row in channel],")
    | edit(
        rotated.average,
        "interpolated(channel,",
        "interpolated(np.nan_to_num(channel, posinf=np.inf, neginf=-np.inf),",
    ),
    "SumsOverflowFloat: Sums beyond FLT_MAX overflow to infinity even if the average is in range.",
    overflowing(FLT_MAX, 4),
    "SumsOverflowHalf: Sums of 16-bit tensors beyond 65504 overflow to infinity even if the average is in range.",
    overflowing(HALF_MAX, 2),
    "NarrowRoisEmptied: A RoI narrower than an eighth of a pixel counts as empty.",
    edit(adaptive_samples, "size / bins", "size * (abs(size) >= 1 / 8) / bins")
    | edit(
        region_axes,
        "= r1 * scale, r2 * scale",
        "= r1 * scale, (r2 if abs(r2 - r1) * scale >= 1 / 8 else r1) * scale",
    ),
    "SlopeOfTheCellBefore: In drois, a sample on a pixel uses the slope of the cell before it instead of after it.",
    slope_of_the_cell_before("0 < c < length - 1"),
    "SlopeAt0Wrong: In drois, a sample on the first pixel has a slope where it should have none, or has none.",
    edit(taps, "if c == clamped", "if c == clamped and c != 0") | slope_after("c == 0"),
    "SlopeOnTheLastPixel: In drois, a sample on the last pixel has the slope of the last cell instead of none.",
    slope_of_the_cell_before("c == length - 1 > 0"),
)


OF_ENDS = Table()
"""Of the operators whose RoIs have two ends along each axis."""

OF_ENDS.add(
    Category.COORDINATES,
    "XAndYSwapped: RoIs are read as y1, x1, y2 and x2.",
    edit(ends_of, "(y1, y2), (x1, x2)", "(x1, x2), (y1, y2)"),
    "EndsOrdered: Swapped ends of a RoI are put in order, so nothing is mirrored.",
    edit(ends_of, "(y1, y2), (x1, x2)", "sorted((y1, y2)), sorted((x1, x2))"),
    "WidthAndHeightForTheEnd: RoIs are read as x, y, width and height.",
    edit(ends_of, "= roi", "= roi; x2, y2 = x1 + x2, y1 + y2"),
)

OF_UPRIGHT = Table()
"""Of RoiAlign and DmlRoiAlign."""

OF_UPRIGHT.add(
    Category.COUNTS,
    "DivisorIn32Bits: The number of samples of a bin, the product over both axes, overflows 32 bits.",
    edit(divisor_of, "bin_.total", "(bin_.total + 2**31) % 2**32 - 2**31"),
)
OF_UPRIGHT.add(
    Category.REDUCTIONS,
    "MaxFromZero: A maximum starts at 0, so negative values are lost, as in OpenVINO.",
    starting_at(0.0),
    "MaxFromMinus10000: A maximum starts at -10000, so lower values are lost, as with mmcv on the CPU.",
    starting_at(-10000.0),
    "MaxFirstSampleAlone: A maximum is taken over the first sample of a bin only.",
    winners(lambda them: [one for one in them if one.sample is them[0].sample]),
)
OF_UPRIGHT.add(
    Category.GRADIENTS,
    "TieToTheLast: The last of several equal candidates gets the gradient of a maximum instead of the first.",
    winners(lambda them: them[::-1]),
    "TieDownTheColumns: Ties of a maximum go to the first sample in column order instead of row order.",
    winners(lambda them: sorted(them, key=lambda one: one.sample.first[::-1] if one.sample else (-1, -1))),
    "OutsideLoses: A sample outside the map is never the maximum in the gradient, though it may be one forward.",
    winners(lambda them: [one for one in them if one.sample or not is_gradient()]),
    "MaximumPassedAsAverage: The gradient of a maximum is that of an average.",
    edit(terms_of, 'if mode == "avg":', "if True:"),
    "DxWithoutOutside: The gradient of an average is divided by the number of samples inside the map only.",
    edit(terms_of, "Term(divisor_of(bin_),", "Term(max(sum(sample.repeats for sample in bin_.inside), 1),"),
    "DroisWithoutScale: drois lacks the factor spatial_scale.",
    edit(derivatives_by_ends, "scale * (1.0 - t), scale * t", "1.0 - t, t"),
    "DroisEndsExchanged: drois of the start and of the end of a RoI are exchanged.",
    edit(derivatives_by_ends, "scale * (1.0 - t), scale * t", "scale * t, scale * (1.0 - t)"),
    "DroisHalfAndHalf: drois gives half of each sample's gradient to either end, wherever the sample lies.",
    edit(derivatives_by_ends, "scale * (1.0 - t), scale * t", "scale * 0.5, scale * 0.5"),
)


def numbers(them: list[Any]) -> list[Any]:
    """The candidates that are numbers, or all if none is."""
    return [one for one in them if not math.isnan(one.value)] or them


OF_UPRIGHT.add(
    Category.SIZES,
    "NaNLoses: NaN is left out of a maximum.",
    winners(numbers),
    "NaNWinsIfFirst: A maximum is NaN only if the first candidate is.",
    winners(lambda them: them[:1] if them and math.isnan(them[0].value) else numbers(them)),
    "SeveralNaNLose: Several NaN are left out of a maximum, but not a single one.",
    winners(lambda them: numbers(them) if sum(math.isnan(one.value) for one in them) > 1 else them),
    "MaxFromMinusFltMax: A maximum starts at -FLT_MAX, so -inf is lost.",
    starting_at(-FLT_MAX),
    "LastNaNWins: The last of several NaN gets the gradient of a maximum.",
    winners(lambda them: [one for one in them if math.isnan(one.value)][-1:] or them),
)


def faded(c: float, n: int) -> tuple[Tap, ...]:
    """The pixels that a sample reads on a map that is padded with zeros."""
    share = min(max(1 + min(c, n - 1 - c), 0.0), 1.0)
    return tuple(tap._replace(weight=share * tap.weight) for tap in taps(c, n))


OF_ONNX = Table()
"""Of RoiAlign and RoIAlignRotated."""

OF_ONNX.add(
    Category.COORDINATES,
    "NoHalfPixel: RoIs are not shifted by half a pixel where they should be.",
    shifted(("- 0.5", "- 0.0"), ("0.5 if", "0.0 if")),
    "HalfPixelAdded: RoIs are shifted by +0.5 instead of -0.5.",
    shifted(("- 0.5", "+ 0.5"), ("0.5 if", "-0.5 if")),
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
    "LeastSizeBeforeScale: Sizes are raised to 1 before scaling instead of after it.",
    sized(
        ("(max(size, 1.0), size >= 1.0)", "(max(r2 - r1, 1.0) * scale, True)"),
        ("size = stored", "size = (stored if aligned else max(stored, 1.0))", "aligned != 0 or size >= 1.0", "True"),
    ),
    "NegativeSizesAre0: Negative sizes become 0, so a RoI with swapped ends is a point instead of mirrored.",
    sized(("(r2 - r1) * scale", "max((r2 - r1) * scale, 0.0)"), ("stored * scale", "max(stored * scale, 0.0)")),
    "SamplesAtTheStart: Each sample lies at the start of its part of the bin instead of the middle.",
    placed("i * axis.size / (axis.bins * axis.per_bin)", "(2 * k - self.samples) / (2 * self.samples)"),
    "SamplesFromCornerToCorner: The first and the last sample lie on the ends instead of half a step inside.",
    placed(
        "(i / (axis.per_bin - 1) if axis.per_bin > 1 else 0.5) * axis.size / axis.bins",
        "k / (self.samples - 1) - 0.5 if self.samples > 1 else 0.0",
    ),
    "OneSampleInTheMiddle: All samples of a bin lie at its centre.",
    placed("0.5 * axis.size / axis.bins", "(k // self.per_bin + 0.5) / self.bins - 0.5"),
    "NearestPixel: The nearest pixel is read instead of interpolating.",
    edit(taps, "f = clamped - low", "f = float(round(clamped - low))"),
    "WeightsExchanged: The weights of the pixels before and after a sample are exchanged.",
    edit(taps, "1.0 - f, -derivative", "f, -derivative", "f, derivative)", "1.0 - f, derivative)"),
)
OF_ONNX.add(
    Category.BORDERS,
    "OutsideFrom0: Samples between -1 and 0 count as outside the map.",
    border("0 <= c <= length"),
    "OutsideFromTheLast: Samples between the last pixel and the map's length count as outside.",
    border("-1 <= c <= length - 1"),
    "BorderMovedByHalfAPixel: The map reaches from -0.5 to its length - 0.5, instead of from -1 to its length.",
    border("-0.5 <= c <= length - 0.5"),
    "WholePixelPastTheEnd: The map reaches a whole pixel too far, to its length + 1.",
    border("-1 <= c <= length + 1"),
    "Minus1Outside: A sample at exactly -1 counts as outside the map.",
    border("-1 < c <= length"),
    "LengthOutside: A sample at exactly the map's length counts as outside.",
    border("-1 <= c < length"),
    "ReplicatedInXAlone: Samples are tested against the border along y only.",
    border_along("-1.0 <= c <= length or isinstance(length, Marked)"),
    "ReplicatedInYAlone: Samples are tested against the border along x only.",
    border_along("-1.0 <= c <= length or not isinstance(length, Marked)"),
    "LengthsExchanged: The height and the width of the map are exchanged in the test against the border.",
    border_along("-1.0 <= c <= call().x_shape[2 if isinstance(length, Marked) else 3]"),
    "FadesToZero: The map is padded with zeros, as in coremltools, so samples between -1 and 0 fade to 0.",
    {taps: faded},
    "LastCellContinued: Samples beyond the last pixel are extrapolated from the last two pixels.",
    edit(
        *(taps, "math.floor(clamped)", "math.floor(clamped) - (c > length - 1 > 0)"),
        *("f = clamped - low", "f = c - low if c > length - 1 else clamped - low"),
    ),
)
OF_ONNX.add(
    Category.COUNTS,
    "Ratio0As1: sampling_ratio 0 means one sample per bin and axis instead of an adaptive number.",
    {adaptive_samples: lambda size, bins: 1},
    "Ratio0AtLeast1: The adaptive number of samples is at least 1, so an empty RoI is sampled.",
    edit(adaptive_samples, "max(0.0,", "max(1.0,"),
    "Ratio0OfTheUnscaledSize: The adaptive number of samples follows from the size before scaling.",
    adaptive_of("size / spatial_scale"),
    "Ratio0OfY: The adaptive number of samples along y is used along x too.",
    counted_as(0),
    "Ratio0OfX: The adaptive number of samples along x is used along y too.",
    counted_as(1),
    "DivisorWithoutOutside: Averages are divided by the number of samples inside the map only.",
    edit(divisor_of, "bin_.total", "sum(sample.repeats for sample in bin_.inside)")
    | edit(rotated.average, "divisor_of(region)", "max(len(samples), 1)"),
    "DivisorSquared: Averages are divided by the square of the number of samples along x.",
    edit(bins_of, "axis_y.per_bin * axis_x.per_bin", "axis_x.per_bin**2")
    | edit(rotated.divisor_of, "region.total", "region.width.per_bin**2"),
    "EmptyIsNaN: The average over no samples is NaN (0 divided by 0), as in MNN, OpenVINO and Paddle.",
    edit(average, "total / divisor_of(bin_)", "total / divisor_of(bin_) if bin_.total else math.nan")
    | edit(rotated.average, "total / divisor_of(region)", "total / divisor_of(region) if region.total else math.nan"),
)
OF_ONNX.add(
    Category.REDUCTIONS,
    "SumForAverage: An average is the sum of its samples, not divided by their number.",
    {divisor_of: lambda _: 1, rotated.divisor_of: lambda _: 1},
)
OF_ONNX.add(
    Category.TYPES,
    "WeightsInTheTensorsType: Interpolation weights are rounded to the type of the tensors.",
    edit(taps, "1.0 - f, -", "narrowed(1.0 - f), -", "f, derivative)", "narrowed(f), derivative)"),
    "ThroughHalf: Results of bfloat16 tensors are rounded to float16 first.",
    {rounded: lambda y, dtype: rounded(y.astype(np.float16) if dtype.itemsize == 2 else y, dtype)},
    "ResultInFloat: The result of float16 and bfloat16 tensors is a float tensor.",
    {rounded: lambda y, dtype: rounded(y, np.dtype(np.float32) if dtype.itemsize == 2 else dtype)},
    "DroisSumsInTheTensorsType: drois is summed over bins in the type of the tensors.",
    edit(add_to_droi, "y_by_y2 * len(term.ix)", "y_by_y2 * len(term.ix); droi[:] = narrowed(droi)")
    | edit(rotated.add_to_droi, "region.angle_sign", "region.angle_sign; droi[:] = narrowed(droi)"),
)
OF_ONNX.add(
    Category.INDEXING,
    "ImagesInTurn: batch_indices is ignored: RoI r reads image r, starting again after the last image.",
    on(IMAGES, lambda n: (np.arange(len(n)) % (n.max(initial=0) + 1)).astype(n.dtype)),
    "FirstChannelForAll: Every channel of the result is computed from channel 0.",
    on(X, lambda x: x[:, :1].repeat(x.shape[1], 1)),
    "DroisOfImage0: Gradients that need X read image 0 for every RoI.",
    on(X, lambda x: x[:1].repeat(len(x), 0) if is_gradient() else x),
)
OF_ONNX.add(
    Category.GRADIENTS,
    "DxRaced: Where RoIs share a pixel, only the last one's gradient is kept, as in a data race.",
    roi_by_roi(lambda dx, part, n: np.copyto(dx[n], part[n], where=part[n] != 0)),
    "DxNotDivided: The gradient is not divided by the number of samples: each sample passes on the whole gradient.",
    edit(terms_of, "Term(divisor_of(bin_),", "Term(1,")
    | edit(rotated.roi_align_rotated_grad, "share / divisor_of(region)", "share"),
    "DxDividedByOneCount: The gradient is divided by the number of samples along y only, not by that of both axes.",
    edit(bins_of, "* axis_x.per_bin", "* (1 if is_gradient() else axis_x.per_bin)")
    | edit(rotated.divisor_of, "region.total", "(region.height.per_bin if is_gradient() else region.total)"),
    "DxOfClampedSizes: The gradient alone raises sizes to 1 with half_pixel or aligned = 1, as in Paddle.",
    sized(
        ("(size, True) if", "(size, True) if not is_gradient() and"),
        ("aligned != 0 or", "aligned and not is_gradient() or"),
    ),
    "DroisThroughClamp: A sample that is clamped to the border contributes to drois.",
    edit(taps, "1.0 if c == clamped else 0.0", "1.0"),
    "DroisOfAFixedSize: drois treats the size of a RoI as constant.",
    varying(" * 0.0", "False"),
    "DroisOfAFreeSize: drois lets the size vary although it has been raised to 1.",
    varying("", "True"),
    "DroisOfOneChannel: drois is computed from the first channel only.",
    edit(pool_grad, "drois[r], share,", "drois[r], share * (c == 0),")
    | edit(rotated.roi_align_rotated_grad, "drois[r], share,", "drois[r], share * (channel is channels[0]),"),
    "DroisOnlyWithDx: A node whose only output is drois returns dX in its place.",
    edit(
        *(evaluate, "return compute(operator, given, arguments, names)"),
        "return compute(operator, given, arguments, [operator.outputs[0].name] if names == ['drois'] else names)",
    ),
    "DxNeedsX: dX of an average is refused unless X is given, though it does not need X.",
    DX_NEEDS_X,
)
OF_ONNX.add(
    Category.DEFAULTS,
    "Ratio1ByDefault: sampling_ratio defaults to 1, as in onnx-tensorrt, OpenVINO's frontend and PopART.",
    by_default(sampling_ratio=1),
    "SixteenthByDefault: spatial_scale defaults to 1/16.",
    by_default(spatial_scale=0.0625),
    "Output7x7ByDefault: The output size defaults to 7 x 7, as in PopART.",
    by_default(output_height=7, output_width=7),
    "HeightForWidth: output_width is ignored: the output is as wide as it is high.",
    given(lambda a: a | {"output_width": a.get("output_height", 1)}),
    "HeightAndWidthExchanged: output_height and output_width are exchanged.",
    given(lambda a: a | {"output_height": a.get("output_width", 1), "output_width": a.get("output_height", 1)}),
    "NegativeRatioIsAdaptive: A negative sampling_ratio is taken for 0, as in onnx's reference evaluator.",
    given(lambda a: a | {"sampling_ratio": max(a.get("sampling_ratio", 0), 0)}),
    "EmptyOutputTaken: An output height or width of 0 is accepted, as in ONNX Runtime.",
    given(lambda a: a | {name: max(a.get(name, 1), 1) for name in ("output_height", "output_width")}),
    "RoisUnchecked: Infinite and NaN RoIs are taken for empty ones instead of refused.",
    on(ROIS, lambda rois: np.nan_to_num(rois, posinf=0.0, neginf=0.0)),
    "NaNAloneRefused: Infinite RoIs are taken for empty ones; only NaN is refused.",
    on(ROIS, lambda rois: np.where(np.isinf(rois), np.zeros((), rois.dtype), rois)),
    "NumberTooManyTaken: RoIs with a number too many are accepted, and the last number is ignored.",
    on(ROIS, lambda rois: rois[:, : call().operator.inputs[1].shape[-1]] if rois.ndim == 2 else rois),
    "MoreIndicesTaken: More batch indices than RoIs are accepted, and the extra ones are ignored.",
    asked(lambda given: given | {name: given[name][: len(given["rois"])] for name in IMAGES if name in given}),
    "XOfAnotherShapeTaken: An X whose shape is not x_shape is accepted where the gradient does not read it.",
    before_checks(
        "if 'X' in arrays and 'x_shape' in arrays and arrays['X'].shape != tuple(arrays['x_shape']): "
        "arrays['X'] = np.zeros(tuple(arrays['x_shape']), arrays['dY'].dtype)"
    ),
)
