"""The control and the mutants of RoiAlign and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.mutants.base import Array, Category, MutantFactory, by_default, renamed
from conformance.mutants.roi_control import Axis, RoiControl
from conformance.mutants.roi_mutants import add_borders, add_mutants, refused_if, scale_unchecked, with_dx_always
from conformance.mutants.sizes import add_samples_beyond, add_sizes

MODES = ("avg", "max", "max_interpolated")
COORDINATES = ("half_pixel", "output_half_pixel")
COORDINATE_MODE = "coordinate_transformation_mode"


class Control(RoiControl):
    """The operators without a fault."""

    OPERATORS = ("RoiAlign",)

    def defaults(self) -> dict[str, Any]:
        return {
            "mode": "avg",
            COORDINATE_MODE: "output_half_pixel" if self.version == 10 else "half_pixel",
            "output_height": 1,
            "output_width": 1,
            "sampling_ratio": 0,
            "spatial_scale": 1.0,
        }

    @property
    def version(self) -> int:
        """The opset of the node; 0 for a gradient."""
        if self.is_gradient:
            return 0
        suffix = self.op_type.rpartition("_")[2]
        return int(suffix) if suffix.isdigit() else 10 if self.opset < 16 else self.opset

    @property
    def mode(self) -> str:
        return str(self.attributes["mode"])

    def check_attributes(self) -> None:
        a = self.attributes
        if a["mode"] not in MODES or a[COORDINATE_MODE] not in COORDINATES:
            raise ValueError("mode")
        if a["sampling_ratio"] < 0 or a["output_height"] < 1 or a["output_width"] < 1:
            raise ValueError("size")
        if not 0 < a["spatial_scale"] < np.inf:
            raise ValueError("scale")

    def are_shapes(self, rois: tuple[int, ...], images: tuple[int, ...]) -> bool:
        return len(images) == 1 and rois == (images[0], 4)

    @property
    def is_half(self) -> bool:
        """Whether coordinate_transformation_mode is half_pixel."""
        return bool(self.attributes[COORDINATE_MODE] == "half_pixel")

    def scales(self) -> tuple[float, float]:
        return (float(self.attributes["spatial_scale"]),) * 2

    def start(self, r1: float, scale: float) -> float:
        return r1 * scale - (0.5 if self.is_half else 0.0)

    def is_raised(self, size: float) -> bool:
        """Whether the size is raised to 1."""
        return size < 1 and not self.is_half

    def count(self, size: float, bins: int) -> int:
        return int(self.attributes["sampling_ratio"]) or max(self.adaptive_count(size, bins), 0)

    def axis(self, r1: float, r2: float, scale: float, bins: int, length: int) -> Axis:
        start, size = self.start(r1, scale), self.size(r1, r2, scale)
        is_raised = self.is_raised(size)
        size = 1.0 if is_raised else size
        per_bin = self.count(size, bins)
        p, step = np.arange(bins)[:, None], size / max(bins * per_bin, 1)
        i, is_first = self.listed(start + p[:, 0] * size / bins + step / 2, step, per_bin, length)
        t = (p * per_bin + i + 0.5) / max(bins * per_bin, 1)
        c = self.place(start, size, bins, per_bin, p, i)
        return self.sampled(c, self.by_ends(t, scale, is_raised), is_first, per_bin, length)

    def place(self, start: float, size: float, bins: int, per_bin: int, p: Array, i: Array) -> Array:
        """The coordinates of samples i of bins p."""
        return np.asarray(start + p * size / bins + (i + 0.5) * size / max(bins * per_bin, 1))

    def taps(self, c: Array, length: int) -> Array:
        """The pixels before and after each coordinate; after the last pixel there is none."""
        low = np.floor(np.clip(c, 0, length - 1))
        return np.stack([low, low + 1], -1)

    def has_slope(self, c: Array, inside: Array, length: int) -> Array:
        """Whether the cell that begins at or before c has a slope."""
        clamped = np.clip(c, 0, length - 1)
        return np.asarray(inside & (c == clamped) & (np.floor(clamped) < length - 1))


mutant = MutantFactory(Control)


def rescaled(change: Any) -> Any:
    """A replacement of `scales` with another scale."""
    return lambda s, up: (float(change(s, up()[0])),) * 2


mutant.begin_category(Category.COORDINATES)
mutant("WidthAndHeightForTheEnd", "RoIs are read as x, y, width and height.")(
    corners=lambda s, up, roi: [roi[0], roi[1], roi[0] + roi[2], roi[1] + roi[3]]
)
mutant("NoHalfPixel", "half_pixel does not shift RoIs by half a pixel.")(start=lambda s, up, r1, scale: r1 * scale)
mutant("HalfPixelAdded", "half_pixel shifts RoIs by +0.5 instead of -0.5.")(
    start=lambda s, up, r1, scale: r1 * scale + 0.5 * s.is_half
)
mutant("HalfPixelTwice", "half_pixel shifts RoIs twice, by a whole pixel, as mmcv's export does since opset 16.")(
    start=lambda s, up, r1, scale: r1 * scale - s.is_half
)
mutant("HalfPixelAlways", "output_half_pixel shifts RoIs by half a pixel like half_pixel.")(
    start=lambda s, up, r1, scale: r1 * scale - 0.5
)
mutant("ShiftBeforeScale", "The shift by half a pixel happens before scaling instead of after it, as in TVM's Relax.")(
    start=lambda s, up, r1, scale: (r1 - 0.5 * s.is_half) * scale
)
mutant("StartAlone", "half_pixel shifts the start of a RoI but not its end, so RoIs are half a pixel longer.")(
    size=lambda s, up, *a: up(*a) + 0.5 * s.is_half
)
mutant("StartTruncated", "The start of a RoI is rounded down to a whole pixel, as RoiPool does.")(
    start=lambda s, up, *a: float(np.floor(up(*a)))
)
mutant("ScaleIgnored", "spatial_scale is ignored, so RoIs are in pixels of the map.")(
    scales=rescaled(lambda s, scale: 1)
)
mutant("ScaleInverted", "RoIs are divided by spatial_scale instead of multiplied.")(
    scales=rescaled(lambda s, scale: 1 / scale)
)
mutant("EndPixelIncluded", "1 is added to the ends x2 and y2 of RoIs, as MindSpore's roi_end_mode does.")(
    size=lambda s, up, r1, r2, scale: (r2 - r1 + 1) * scale
)
mutant("NoLeastSize", "output_half_pixel does not raise sizes below 1 to 1.")(is_raised=lambda s, up, size: False)
mutant("LeastSizeBeforeScale", "output_half_pixel raises sizes to 1 before scaling instead of after it.")(
    is_raised=lambda s, up, size: False,
    size=lambda s, up, r1, r2, scale: up(r1, r2, scale) if s.is_half else max(r2 - r1, 1.0) * scale,
)
mutant("SizeClampedInHalfPixel", "half_pixel raises sizes below 1 to 1 like output_half_pixel, as MIGraphX does.")(
    is_raised=lambda s, up, size: size < 1
)
mutant("NegativeSizesAreZero", "Negative sizes become 0, so a RoI with swapped ends is a point instead of mirrored.")(
    size=lambda s, up, *a: max(up(*a), 0.0)
)
mutant("SamplesAtTheStart", "Each sample lies at the start of its part of the bin instead of the middle.")(
    place=lambda s, up, start, size, bins, k, p, i: up(start, size, bins, k, p, i - 0.5)
)
mutant(
    "SamplesFromCornerToCorner", "The first and the last sample of a bin lie on its ends instead of half a step inside."
)(
    place=lambda s, up, start, size, bins, k, p, i: (
        start + p * size / bins + (i / (k - 1) if k > 1 else i + 0.5) * size / bins
    )
)
mutant("OneSampleInTheMiddle", "All samples of a bin lie at its centre.")(
    place=lambda s, up, start, size, bins, k, p, i: start + (p + 0.5) * size / bins + 0 * i
)
mutant("NearestPixel", "The nearest pixel is read instead of interpolating.")(
    weights=lambda s, up, c, n: np.stack([1 - np.round(up(c, n)[..., 1]), np.round(up(c, n)[..., 1])], -1)
)


def by_axis(step: str, change: Any) -> dict[str, Any]:
    """A replaced step that may read `s.lengths`, of the map, and `s.number`, 0 for y and 1 for x."""

    def axes(s: Any, up: Any, roi: Array, bins: Any, lengths: Any) -> Any:
        s.number, s.lengths = -1, lengths
        return up(roi, bins, lengths)

    def axis(s: Any, up: Any, *a: Any) -> Any:
        s.number += 1
        return up(*a)

    return {"axes": axes, "axis": axis, step: change}


mutant.begin_category(Category.BORDERS)
for number, side, other in ((1, "X", "y"), (0, "Y", "x")):
    mutant(f"ReplicatedIn{side}Alone", f"Samples are tested against the border along {other} only.")(
        **by_axis("inside", lambda s, up, c, n, number=number: up(c, n) | (s.number == number))
    )
for name, words, low, high in (
    ("SlackBelowMinus1", "Samples up to 7e-5 below -1 count as inside the map, as in MindSpore.", -1 - 7e-5, 0),
    ("SlackPastL", "Samples up to 7e-5 beyond the map's length count as inside, as in MindSpore.", -1, 7e-5),
):
    mutant(name, words)(inside=lambda s, up, c, n, low=low, high=high: (c >= low) & (c <= n + high))
add_borders(mutant)
mutant(
    "LengthsExchanged", "The height and the width of the map are exchanged when samples are tested against the border."
)(**by_axis("inside", lambda s, up, c, n: up(c, s.lengths[1 - s.number])))
mutant("CoordinatesClipped", "RoIs are clipped to the map before they are sampled, as in ncnn's version 0.")(
    axes=lambda s, up, roi, bins, n: up(np.clip(roi, 0, np.array([n[1], n[0]] * 2) / s.scales()[0]), bins, n)
)

mutant.begin_category(Category.COUNTS)
mutant("Ratio0As1", "sampling_ratio 0 means one sample per bin and axis instead of an adaptive number.")(
    adaptive_count=lambda s, up, size, bins: 1
)
mutant("Ratio0As2", "sampling_ratio 0 means two samples per bin and axis instead of an adaptive number.")(
    adaptive_count=lambda s, up, size, bins: 2
)
mutant("Ratio0AtLeast1", "The adaptive number of samples is at least 1, so an empty RoI is sampled.")(
    adaptive_count=lambda s, up, *a: max(up(*a), 1)
)
mutant("Ratio0OfTheUnscaledSize", "The adaptive number of samples follows from the size before scaling.")(
    adaptive_count=lambda s, up, size, bins: up(size / s.scales()[0], bins)
)


def of_the_unraised_size(s: Any, up: Any, size: float) -> Any:
    """A replacement of `is_raised` that stores the size in `s.unraised`."""
    s.unraised = size
    return up(size)


mutant(
    "Ratio0OfTheUnraisedSize",
    "The adaptive number of samples follows from the size before output_half_pixel raises it to 1.",
)(is_raised=of_the_unraised_size, adaptive_count=lambda s, up, size, bins: up(s.unraised, bins))


def count_of_the_other(first: int) -> Any:
    """A replacement of `axes` that uses one axis's adaptive number of samples for both: 0 for y, 1 for x."""

    def axes(s: Any, up: Any, roi: Array, bins: Any, lengths: Any) -> Any:
        s.fixed = None
        s.fixed = up(roi, bins, lengths)[first].per_bin
        return up(roi, bins, lengths)

    return axes


for first, (one, two) in enumerate((("Y", "X"), ("X", "Y"))):
    mutant(f"Ratio0Of{one}", f"The adaptive number of samples along {one.lower()} is used along {two.lower()} too.")(
        axes=count_of_the_other(first), adaptive_count=lambda s, up, *a: up(*a) if s.fixed is None else s.fixed
    )


def swapped_refused(low: int, other: int) -> Any:
    """A replacement of `axes` that refuses RoIs with swapped ends along one axis only."""

    def axes(s: Any, up: Any, roi: Array, bins: Any, lengths: Any) -> Any:
        is_adaptive = s.is_half and not s.attributes["sampling_ratio"]
        if is_adaptive and roi[low + 2] < roi[low] and roi[other + 2] > roi[other]:
            raise ValueError("size")
        return up(roi, bins, lengths)

    return axes


mutant("NegativeWidthRefused", "With adaptive sampling, a RoI with swapped ends along x only is refused.")(
    axes=swapped_refused(0, 1)
)
mutant("NegativeHeightRefused", "With adaptive sampling, a RoI with swapped ends along y only is refused.")(
    axes=swapped_refused(1, 0)
)


mutant(
    "Ratio0AtMostTheMap",
    "There are at most as many adaptive samples as the map has pixels, as in torchvision's deterministic path.",
)(**by_axis("adaptive_count", lambda s, up, *a: min(up(*a), s.lengths[s.number])))


def without_outside(s: Any, up: Any, axis_y: Axis, axis_x: Axis) -> Any:
    """A divisor that counts only samples inside the map."""
    return np.outer(np.maximum(axis_y.counts, 1), np.maximum(axis_x.counts, 1)).mean()


mutant("RatioAtMost8", "A bin has at most eight samples along an axis.")(count=lambda s, up, *a: min(up(*a), 8))
mutant("DivisorWithoutOutside", "Averages are divided by the number of samples inside the map only.")(
    divisor=without_outside
)
mutant("DivisorSquared", "Averages are divided by the square of the number of samples along x.")(
    divisor=lambda s, up, y, x: max(x.per_bin**2, 1)
)
mutant("DivisorIn32Bits", "The number of samples of a bin, the product over both axes, overflows 32 bits.")(
    divisor=lambda s, up, y, x: max((y.per_bin * x.per_bin + 2**31) % 2**32 - 2**31, 1)
)
mutant("EmptyIsNaN", "The average over no samples is NaN (0 divided by 0), as in MNN, OpenVINO and Paddle.")(
    divisor=lambda s, up, y, x: np.float64(y.per_bin * x.per_bin)
)


mutant(
    "NegativeCountRefused",
    "A RoI with a negative width or height is refused where the sampling is adaptive, as in MXNet.",
)(adaptive_count=refused_if(lambda size, bins: size < 0))

mutant.begin_category(Category.REDUCTIONS)
mutant("MaxTheOtherWay", "max and max_interpolated are exchanged.")(
    meaning=renamed("mode", max="max_interpolated", max_interpolated="max")
)
mutant("MaxIsInterpolated", "max is the maximum of interpolated samples, as in OpenVINO, instead of weighted corners.")(
    meaning=renamed("mode", max="max_interpolated")
)
mutant(
    "InterpolatedIsMax",
    "max_interpolated is the maximum of weighted corners like max, instead of interpolated samples.",
)(meaning=renamed("mode", max_interpolated="max"))
mutant("MaxOfPixels", "max is the maximum of the corner pixels without their interpolation weights.")(
    reduced=lambda s, up, pixels, w: np.where(w != 0, pixels, 0.0) if s.mode == "max" else up(pixels, w)
)
mutant("CornersFromMinus10000", "A maximum of weighted corners starts at -10000, so lower values are lost.")(
    maximum=lambda s, up, v: np.maximum(up(v), -10000.0 if s.mode == "max" else -np.inf)
)
mutant("InterpolatedFromZero", "A maximum of interpolated samples starts at 0, so negative values are lost.")(
    maximum=lambda s, up, v: np.maximum(up(v), -np.inf if s.mode == "max" else 0.0)
)
mutant(
    "CornersWithoutOutside",
    "Samples outside the map are left out of a maximum of weighted corners instead of counting as 0.",
)(
    outside_value=lambda s, up: -np.inf if s.mode == "max" else 0.0,
    maximum=lambda s, up, v: np.maximum(up(v), -65504.0),
)


def without_zero_weights(s: Any, up: Any, pixels: Array, weights: Array) -> Any:
    """A replacement of `reduced` that leaves out corners with weight 0 if the bin has others."""
    values, is_read = up(pixels, weights), weights > 0
    if s.mode != "max":
        return values
    others = np.where(is_read.any(axis=(2, 3, 4, 5), keepdims=True), -np.inf, 0.0)
    return np.where(is_read, values, others)


mutant("ZeroWeightsSkipped", "Corners of weight 0 are left out of a maximum instead of counting as 0.")(
    reduced=without_zero_weights
)
for name, words, least in (
    (
        "MaxOfNothingIsTheLeastNumber",
        "The maximum over no samples is -65504, the start value, as with mmcv on the GPU.",
        -65504.0,
    ),
    (
        "MaxOfNothingIsFltMax",
        "The maximum over no samples is -FLT_MAX, the start value, as in MNN.",
        float(np.finfo(np.float32).min),
    ),
):
    mutant(name, words)(maximum=lambda s, up, v, least=least: up(v) if v.shape[-1] else np.full(v.shape[:-1], least))
mutant("MaxOfMagnitudes", "A maximum compares and returns absolute values.")(maximum=lambda s, up, v: up(np.abs(v)))
mutant("MaxWithoutOutside", "Samples outside the map are left out of a maximum instead of counting as 0.")(
    outside_value=lambda s, up: -np.inf, maximum=lambda s, up, v: np.where(np.isneginf(up(v)), 0.0, up(v))
)
mutant("MaxIsAverage", "Every mode is computed as avg.")(
    meaning=lambda s, up, a: a | {"mode": "avg" if a["mode"].startswith("max") else a["mode"]}
)
mutant("SumForAverage", "avg is the sum of the samples, not divided by their number.")(divisor=lambda s, up, y, x: 1)


def with_exchanged_corners(s: Any, up: Any, image: Array, axis_y: Axis, axis_x: Axis) -> Any:
    """An average with two of the four weights exchanged."""
    weights = axis_y.weights[:, None, :, None, None, :] * axis_x.weights[None, :, None, :, :, None]
    is_listed = (axis_y.is_first[:, None, :, None] & axis_x.is_first[None, :, None])[..., None, None]
    values = s.pixels(image, axis_y, axis_x) * weights * is_listed
    return values.sum(axis=(3, 4, 5, 6)) / s.divisor(axis_y, axis_x)


mutant("WeightsOfCornersExchanged", "The weights of the top right and the bottom left pixel are exchanged.")(
    average=with_exchanged_corners
)

mutant.begin_category(Category.TYPES)
mutant("CoordinatesInHalf", "Coordinates are float16 whatever the type of the tensors.")(
    place=lambda s, up, *a: up(*a).astype(np.float16).astype(np.float64)
)
mutant("BinsInTheTensorsType", "The size of a bin is rounded to the type of the tensors.")(
    place=lambda s, up, start, size, bins, k, p, i: (
        start + (p + (i + 0.5) / max(k, 1)) * float(np.asarray(size / bins).astype(s.dtype))
    )
)
mutant("WeightsInTheTensorsType", "Interpolation weights are rounded to the type of the tensors.")(
    weights=lambda s, up, *a: up(*a).astype(s.dtype).astype(np.float64)
)
mutant("SumsInHalf", "Partial sums are float16 whatever the type of the tensors.")(
    partial=lambda s, up, v: v.astype(np.float16).astype(np.float64)
)


def step_by_step(needs_all_inside: bool) -> Any:
    """An average that adds its samples one by one in the type of the tensors."""

    def average(s: Any, up: Any, image: Array, axis_y: Axis, axis_x: Axis) -> Any:
        is_complete = all(axis.inside.shape[1] == axis.per_bin for axis in (axis_y, axis_x))
        if s.dtype.itemsize != 2 or (needs_all_inside and not is_complete) or 0 in (axis_y.per_bin, axis_x.per_bin):
            return up(image, axis_y, axis_x)
        samples = s.candidates(image, axis_y, axis_x).astype(s.dtype)
        return np.add.accumulate(samples, axis=-1)[..., -1].astype(np.float64) / s.divisor(axis_y, axis_x)

    return average


mutant(
    "EachStepInTheTensorsType",
    "Every product and partial sum is rounded to the type of the tensors, so long sums stop growing.",
)(average=step_by_step(False))
mutant(
    "AverageInTheTensorsType",
    "Samples are interpolated in float32 but summed in the type of the tensors, so long sums stop growing.",
)(average=step_by_step(True))
mutant(
    "MapIn11Bits",
    "The map of float tensors is rounded to 11 bits, as on accelerators that multiply with less precision.",
)(image=lambda s, up, *a: up(*a).astype(np.float16) if s.dtype == np.float32 else up(*a))
mutant("ThroughHalf", "Results of bfloat16 tensors are rounded to float16 first.")(
    rounded=lambda s, up, v: up(v.astype(np.float16) if s.dtype.itemsize == 2 else v)
)


def cut_off(s: Any, up: Any, values: Array) -> Any:
    """A replacement of `rounded` that rounds towards 0."""
    rounded = up(values)
    if s.dtype.itemsize != 2:
        return rounded
    is_beyond = np.abs(rounded.astype(np.float64)) > np.abs(values)
    return (rounded.view(np.uint16) - is_beyond.astype(np.uint16)).view(s.dtype)


mutant("ResultCutOff", "float16 and bfloat16 results are truncated instead of rounded to nearest.")(rounded=cut_off)
mutant("ResultInFloat", "The result of float16 and bfloat16 tensors is a float tensor.")(
    rounded=lambda s, up, v: v.astype(np.float32 if s.dtype.itemsize == 2 else s.dtype)
)
mutant(
    "DroisSumsInTheTensorsType",
    "drois is summed over bins in the type of the tensors.",
    gradient_only=True,
)(droi_sum=lambda s, up, v: float(np.add.accumulate(v.ravel().astype(s.dtype))[-1]) if v.size else 0.0)

mutant.begin_category(Category.INDEXING)
mutant("ImagesInTurn", "batch_indices is ignored: RoI r reads image r, starting again after the last image.")(
    image_of=lambda s, up, r, images: int(r % (images.max() + 1))
)
mutant("FirstImageForAll", "Every RoI reads the image of the first RoI.")(
    image_of=lambda s, up, r, images: int(images[0])
)
mutant("FirstChannelForAll", "Every channel of the result is computed from channel 0.")(
    image=lambda s, up, x, n: x[n][:1].repeat(x.shape[1], 0)
)
mutant("ChannelsLast", "X is read as [N, H, W, C].")(
    image=lambda s, up, x, n: np.moveaxis(x[n].reshape(*x.shape[2:], x.shape[1]), 2, 0)
)
mutant("HAndWExchanged", "X is read as [N, C, W, H].")(
    image=lambda s, up, x, n: x[n].reshape(x.shape[1], x.shape[3], x.shape[2]).swapaxes(1, 2)
)
mutant("ResultChannelsLast", "The result is written as [R, PH, PW, C].")(
    forward=lambda s, up, *a: np.moveaxis(y := up(*a), 1, 3).reshape(y.shape)
)
mutant("RoisGroupedByImage", "Results are sorted by image instead of keeping the order of the RoIs.")(
    forward=lambda s, up, x, rois, images: up(x, rois, images)[np.argsort(images, kind="stable")]
)
mutant("FirstImageAlone", "Results of RoIs on any image but the first stay 0.")(
    forward=lambda s, up, x, rois, images: np.where((images != 0)[:, None, None, None], 0, up(x, rois, images))
)
mutant("WholeBlocksOfDx", "dX of the channels after the last whole block of 16 stays 0.", gradient_only=True)(
    add=lambda s, up, dx, n, part: up(dx[:, : (done := max(len(part) // 16 * 16, min(len(part), 16)))], n, part[:done])
)
mutant("DyTransposed", "dY is read as [R, C, PW, PH].", gradient_only=True)(
    gradient=lambda s, up, dy, *a: up(
        dy.reshape(*dy.shape[:2], *dy.shape[:1:-1]).swapaxes(2, 3) if dy.ndim == 4 else dy, *a
    )
)
mutant("DroisOfImage0", "Gradients that need X read image 0 for every RoI.", gradient_only=True)(
    image=lambda s, up, x, n: up(x, 0 if s.is_gradient else n)
)

mutant.begin_category(Category.GRADIENTS)
mutant("DxRaced", "Where RoIs share a pixel, only the last one's gradient is kept, as in a data race.")(
    add=lambda s, up, dx, n, part: np.copyto(dx[n], part, casting="unsafe", where=part != 0)
)
mutant("DxDividedByWrongCount", "dX is divided by the number of samples along y only, not by that of both axes.")(
    dx_divisor=lambda s, up, y, x: max(y.per_bin, 1)
)
mutant("DxNotDivided", "dX is not divided by the number of samples: each sample passes on the whole gradient.")(
    dx_divisor=lambda s, up, y, x: 1
)
mutant("DxWithoutOutside", "dX is divided by the number of samples inside the map only.")(dx_divisor=without_outside)
mutant(
    "DxOfAClampedSize",
    "The gradient, but not the forward operator, raises sizes to 1 with half_pixel, as in Paddle.",
)(is_raised=lambda s, up, size: size < 1 if s.is_gradient else up(size))
mutant("DxOfRatio0AtLeast1", "The gradient, but not the forward operator, samples an empty RoI once.")(
    adaptive_count=lambda s, up, *a: max(up(*a), int(s.is_gradient))
)


def equal_shares(s: Any, up: Any, candidates: Array) -> list[tuple[Array, Any]]:
    """The winners of a maximum if all equal candidates win."""
    wins = candidates == candidates.max(axis=-1, keepdims=True)
    share, everywhere = 1 / np.maximum(wins.sum(axis=-1), 1), np.ones(wins.shape[:-1], int)
    return [(k * everywhere, wins[..., k] * share) for k in np.flatnonzero(wins.any(axis=(0, 1, 2)))]


mutant("TieShared", "Equal candidates of a maximum share its gradient instead of the first taking it all.")(
    winners=equal_shares
)
mutant("WholeGradientToTheCorner", "max passes the gradient to the winning corner without multiplying by its weight.")(
    effect=lambda s, up, *a: (
        passed._replace(weights=(passed.weights != 0) * 1.0) if (passed := up(*a)) and s.mode == "max" else passed
    )
)
mutant(
    "WholeGradientToTheSample",
    "max passes the gradient to all four pixels of the sample that the winning corner belongs to.",
)(
    winners=lambda s, up, v: (
        [(w // 4 * 4 + k, share) for w, share in up(v) for k in range(4)] if s.mode == "max" else up(v)
    )
)
mutant("WinnerAtMinus1Dropped", "The gradient of a maximum whose sample lies at -1 is lost, as in mmcv.")(
    inside=lambda s, up, c, n: up(c, n) & ((c != -1) | (not s.is_gradient) | (s.mode == "avg"))
)
mutant("DroisOfTheStartAlone", "drois of the end of a RoI, x2 and y2, is 0.")(
    by_ends=lambda s, up, *a: ((ends := up(*a))[0], 0 * ends[1])
)
mutant("DroisOfAFixedSize", "drois treats the size of a RoI as constant: both ends get the same gradient.")(
    by_ends=lambda s, up, t, scale, is_fixed: up(t, scale, True)
)
mutant("DroisOfAFreeSize", "drois lets the size vary although output_half_pixel has fixed it at 1.")(
    by_ends=lambda s, up, t, scale, is_fixed: up(t, scale, False)
)
mutant("DroisAreY1X1Y2X2", "drois is written as y1, x1, y2 and x2.")(
    gradient=lambda s, up, *a: [g[:, [1, 0, 3, 2]] if g.ndim == 2 else g for g in up(*a)]
)
mutant("DroisThroughClamp", "A sample that is clamped to the border contributes to drois.")(
    has_slope=lambda s, up, c, inside, n: inside & (np.floor(np.clip(c, 0, n - 1)) < n - 1)
)


def from_outside(s: Any, up: Any, c: Array, *a: Any) -> Any:
    """The samples, where those outside the map have the pixels and slopes of the cell at the border."""
    made, length = up(c, *a), a[-1]
    taps = s.taps(c, length).astype(np.int64)
    outside = ~made.inside[..., None]
    return made._replace(taps=np.where(outside, taps, made.taps), slopes=np.where(outside, [-1.0, 1.0], made.slopes))


mutant("DroisFromOutside", "Samples outside the map contribute to drois.")(sampled=from_outside)
mutant("DroisOfOneChannel", "drois is computed from the first channel only.")(
    average_part=lambda s, up, dy, image, y, x: (up(dy, image, y, x)[0], up(dy[:1], image[:1], y, x)[1])
)
mutant("DroisOfMaximaAre0", "drois is 0 for the max modes.")(maximum_part=lambda s, up, *a: (up(*a)[0], np.zeros(4)))


mutant("DroisOnlyWithDx", "A node whose only output is drois returns dX in its place.")(gradient=with_dx_always)

mutant.begin_category(Category.DEFAULTS)
mutant("Opset10As16", "Opset 10 uses half_pixel, as in MNN and in onnx's reference evaluator.")(
    defaults=by_default(coordinate_transformation_mode="half_pixel")
)
mutant("Opset16As10", "coordinate_transformation_mode defaults to output_half_pixel.")(
    defaults=by_default(coordinate_transformation_mode="output_half_pixel")
)
mutant("Opset22As10", "Opsets other than 10 and 16 use output_half_pixel by default.")(
    defaults=lambda s, up: up() | ({} if s.version in (0, 10, 16) else {COORDINATE_MODE: "output_half_pixel"})
)
mutant("Ratio1ByDefault", "sampling_ratio defaults to 1, as in onnx-tensorrt, OpenVINO's frontend and PopART.")(
    defaults=by_default(sampling_ratio=1)
)
mutant("Ratio2ByDefault", "sampling_ratio defaults to 2.")(defaults=by_default(sampling_ratio=2))
mutant("Output7x7ByDefault", "The output size defaults to 7 x 7, as in PopART.")(
    defaults=by_default(output_height=7, output_width=7)
)
mutant("MaxByDefault", "mode defaults to max.")(defaults=by_default(mode="max"))
mutant("SixteenthByDefault", "spatial_scale defaults to 1/16.")(defaults=by_default(spatial_scale=0.0625))
mutant("HeightForWidth", "output_width is ignored: the output is as wide as it is high.")(
    meaning=lambda s, up, a: a | {"output_width": a["output_height"]}
)
mutant("HeightAndWidthExchanged", "output_height and output_width are exchanged.")(
    meaning=lambda s, up, a: a | {"output_height": a["output_width"], "output_width": a["output_height"]}
)
mutant("UnknownModeIsMax", "An unknown mode is computed as max instead of refused.")(
    meaning=lambda s, up, a: a if a["mode"] in MODES else a | {"mode": "max"}
)
mutant("CaseOfModesIgnored", "Modes in upper case are accepted, as in onnx's reference evaluator.")(
    meaning=lambda s, up, a: a | {name: a[name].lower() for name in ("mode", COORDINATE_MODE)}
)
mutant(
    "UnknownCoordinatesAreOutputHalfPixel",
    "An unknown coordinate_transformation_mode means output_half_pixel, as in ONNX Runtime, instead of an error.",
)(meaning=lambda s, up, a: a if a[COORDINATE_MODE] in COORDINATES else a | {COORDINATE_MODE: "output_half_pixel"})
mutant("NegativeRatioIsAdaptive", "A negative sampling_ratio is taken for 0, as in onnx's reference evaluator.")(
    meaning=lambda s, up, a: a | {"sampling_ratio": max(a["sampling_ratio"], 0)}
)
mutant("EmptyOutputTaken", "An output height or width of 0 is accepted, as in ONNX Runtime.")(
    meaning=lambda s, up, a: a | {name: max(a[name], 1) for name in ("output_height", "output_width")}
)


mutant("ScaleUnchecked", "Any spatial_scale is accepted, including 0, negative numbers and NaN.")(
    check_attributes=scale_unchecked
)


def empty_if_not_finite(s: Any, up: Any, size: float, bins: int) -> Any:
    """A replacement of `count` that is 0 for RoIs that are not finite."""
    return up(size, bins) if np.isfinite(size) else 0


mutant("RoisUnchecked", "Infinite and NaN RoIs are taken for empty ones instead of refused.")(
    check=lambda s, up, rois, *a: up(np.nan_to_num(rois, posinf=0.0, neginf=0.0), *a), count=empty_if_not_finite
)
mutant("NaNAloneRefused", "Infinite RoIs are taken for empty ones; only NaN is refused.")(
    check=lambda s, up, rois, *a: up(np.where(np.isinf(rois), 0, rois), *a), count=empty_if_not_finite
)
mutant("FiveNumbersTaken", "RoIs with five numbers are accepted, and the last number is ignored.")(
    regions=lambda s, up, rois, *a: up(rois[:, :4] if rois.ndim == 2 else rois, *a)
)
mutant("MoreIndicesTaken", "More batch indices than RoIs are accepted, and the extra ones are ignored.")(
    regions=lambda s, up, rois, images, shape: up(rois, images[: len(rois)], shape)
)


def pixels_made(s: Any, up: Any, x: Array, *a: Any) -> Any:
    """A replacement of `forward` that pads axes without pixels to one pixel of 0."""
    return up(np.pad(x, [(0, 0), (0, 0), *((0, int(n == 0)) for n in x.shape[2:])]), *a)


mutant("NoPixelsTaken", "RoIs on a map without pixels give 0 instead of an error.")(
    check=lambda s, up, rois, images, shape: up(rois, images, (*shape[:2], *(max(n, 1) for n in shape[2:]))),
    forward=pixels_made,
)
mutant(
    "XOfAnotherShapeTaken",
    "An X whose shape is not x_shape is accepted where the gradient of an average does not read it.",
    gradient_only=True,
)(gradient=lambda s, up, *a: up(*a[:4], a[4] if a[4] is None or a[4].shape == tuple(a[3]) else np.zeros(a[3])))
add_mutants(mutant, 0)
add_sizes(mutant)
add_samples_beyond(mutant, "size")
MUTANTS = tuple(mutant)
__getattr__ = mutant.find
