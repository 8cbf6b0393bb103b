"""The mutants of RoiAlign and its gradient."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from conformance.mutants.base import Array, Category, Mutants, Steps, Table, call, is_gradient, rounded
from conformance.mutants.shared import (
    EVERY_SAMPLE,
    NARROW,
    OF_ONNX,
    OF_UPRIGHT,
    UNCHECKED,
    adaptive,
    all_channels,
    averaged,
    border,
    corrected,
    winners,
)
from conformance.mutants.steps import (
    ROIS,
    X,
    answered,
    by_default,
    given,
    in_type,
    meant,
    narrowed,
    of_dx,
    on,
    refused_if,
    renamed,
    result,
)
from ortops.reference import evaluate
from ortops.reference.roi_align import (
    Candidate,
    Term,
    average,
    candidates_of,
    divisor_of,
    maximum,
    terms_of,
    value_of,
    winner_of,
)
from ortops.reference.sampling import (
    OnnxAxis,
    adaptive_samples,
    axes_of_roi,
    bins_of,
    coordinate,
    corners,
    ends_of,
    is_inside,
    samples_per_bin,
    size_of,
    start_of,
    taps,
)

MODES = ("avg", "max", "max_interpolated")
COORDINATES = ("half_pixel", "output_half_pixel")
COORDINATE_MODE = "coordinate_transformation_mode"


class _Width(int):
    """The length of a map along x."""


def along(step: Any, change: Any) -> Steps:
    """A step is changed for one axis: `change` takes the length of the map, which is a `_Width` along x."""

    def marked(roi: Any, bins: Any, lengths: Any, **settings: Any) -> Any:
        return axes_of_roi(roi, bins, (lengths[0], _Width(lengths[1])), **settings)

    return {axes_of_roi: marked, step: change}


def is_half(mode: str) -> bool:
    """Whether coordinates are those of half_pixel."""
    return mode == "half_pixel"


def started(change: Any) -> Steps:
    """The start of a RoI: `change` takes r1, the scale and 1 for half_pixel or 0."""
    return {start_of: lambda r1, scale, mode: change(r1, scale, int(is_half(mode)))}


def sized(change: Any) -> Steps:
    """The size of a RoI before it is raised: `change` takes r1, r2, the scale and whether the mode is half_pixel."""

    def replaced(r1: float, r2: float, scale: float, mode: str) -> tuple[float, bool]:
        return size_of(0.0, change(r1, r2, scale, is_half(mode)), 1.0, mode)

    return {size_of: replaced}


def placed(change: Any) -> Steps:
    """The coordinates of samples: `change` takes start, size, bins, samples per bin, p and i."""
    return {
        coordinate: lambda axis, p, i: change(axis.start, axis.size, axis.bins, axis.per_bin, p, i),
        **EVERY_SAMPLE,
    }


def corners_changed(change: Any) -> Steps:
    """The pixels that a sample reads and their weights; `change` maps those along one axis."""
    return {taps: lambda c, length: change(taps(c, length))}


def of_mode(mode: str, step: Any, change: Any) -> Steps:
    """A step whose first argument is the mode is replaced for one mode only."""
    return {step: lambda *a: change(*a) if a[0] == mode else step(*a)}


def axes_with(change: Any) -> Steps:
    """The axes y and x of a RoI are changed."""
    return {axes_of_roi: lambda *a, **settings: change(*axes_of_roi(*a, **settings))}


def counts_of(first: int) -> Any:
    """Both axes have the adaptive number of samples of one: 0 for y, 1 for x."""

    def changed(*axes: OnnxAxis) -> tuple[OnnxAxis, ...]:
        return tuple(dataclasses.replace(axis, per_bin=axes[first].per_bin) for axis in axes)

    def replaced(*a: Any, sampling_ratio: int, **settings: Any) -> Any:
        axes = axes_of_roi(*a, sampling_ratio=sampling_ratio, **settings)
        return axes if sampling_ratio else changed(*axes)

    return {axes_of_roi: replaced}


def swapped_refused(axis: int) -> Steps:
    """RoIs with swapped ends along one axis only, 0 for y and 1 for x, are refused where sampling is adaptive."""

    def refuses(roi: Any, *_: Any, sampling_ratio: int, coordinate_transformation_mode: str, **settings: Any) -> bool:
        own, other = ends_of(roi)[axis], ends_of(roi)[1 - axis]
        is_adaptive = is_half(coordinate_transformation_mode) and not sampling_ratio
        return is_adaptive and own[1] < own[0] and other[1] > other[0]

    def replaced(*a: Any, **settings: Any) -> Any:
        if refuses(*a, **settings):
            raise ValueError("size")
        return axes_of_roi(*a, **settings)

    return {axes_of_roi: replaced}


def inside_alone(bin_: Any) -> float:
    """The number of samples of a bin inside the map, at least 1."""
    return float(max(sum(sample.repeats for sample in bin_.inside), 1))


def valued(change: Any) -> Steps:
    """The value of candidates is changed: `change` takes the mode, the candidate, its value and the channel."""

    def replaced(mode: str, bin_: Any, channel: Any, outside_value: float) -> Iterator[Candidate]:
        for one in candidates_of(mode, bin_, channel, outside_value):  # type: ignore[arg-type]
            value = change(mode, one, channel)
            if value is not None:
                yield one._replace(value=value)

    return {candidates_of: replaced}


def largest(change: Any) -> Steps:
    """A maximum is changed: `change` takes it, None if there are no samples, and the mode."""

    def replaced(mode: Any, *a: Any) -> float:
        winner = winner_of(candidates_of(mode, *a))
        return float(change(None if winner is None else winner.value, mode))

    return {maximum: replaced}


def maximum_inside(*arguments: Any) -> float:
    """A maximum without the samples outside the map, which starts at -65504."""
    return float(max([-65504.0, *(one.value for one in candidates_of(*arguments) if one.sample)]))


def sloped(both: Sequence[Any]) -> tuple[Any, ...]:
    """The pixels of a sample, with no weight but with the slope of their cell."""
    return tuple(tap._replace(weight=0.0, weight_derivative=d) for tap, d in zip(both, (-1.0, 1.0), strict=True))


def without_zero_weights(candidates: list[Candidate]) -> list[Candidate]:
    """Weighted corners without those of weight 0, unless there are no others."""
    return [one for one in candidates if not one.corners or any(c.weight for c in one.corners)] or candidates


def exchanged_corners(taps_y: Sequence[Any], taps_x: Sequence[Any]) -> Any:
    """The corners of a sample, of which the second and the third have each other's weights."""
    made = list(corners(taps_y, taps_x))
    made[1], made[2] = made[1]._replace(weight=made[2].weight), made[2]._replace(weight=made[1].weight)
    return tuple(made)


def cut_off(y: Array, dtype: Any) -> Array:
    """A result of two bytes, rounded towards 0."""
    found = rounded(y, dtype)
    if dtype.itemsize != 2:
        return found
    is_beyond = np.abs(found.astype(np.float64)) > np.abs(y)
    return (found.view(np.uint16) - is_beyond.astype(np.uint16)).view(dtype)


def narrow_if_short(value: float) -> float:
    """A number rounded to the type of the tensors if that has two bytes."""
    return float(narrowed(value)) if call().dtype.itemsize == 2 else value


def equal_shares(mode: Any, bin_: Any, channel: Any) -> list[Term]:
    """The terms of a maximum if all equal candidates share its gradient."""
    if mode == "avg":
        return terms_of(mode, bin_, channel)
    them = list(candidates_of(mode, bin_, channel, 0.0))
    winner = winner_of(them)
    equal = [one for one in them if winner and one.value == winner.value]
    return [Term(len(equal), one.corners, [one.sample.first[0]], [one.sample.first[1]]) for one in equal if one.sample]


def winning(change: Any) -> Steps:
    """The term of a maximum is changed: `change` takes it, the mode and the bin, and returns terms."""

    def replaced(mode: Any, bin_: Any, channel: Any) -> Iterable[Term]:
        found = terms_of(mode, bin_, channel)
        return found if mode == "avg" or not found else change(found[0], mode, bin_)

    return {terms_of: replaced}


def whole_sample(term: Term, mode: str, bin_: Any) -> list[Term]:
    """The term of the sample to which the corner of a term belongs."""
    if mode != "max":
        return [term]
    sample = next(s for s in bin_.inside if s.first == (term.iy[0], term.ix[0]))
    return [term._replace(corners=sample.corners)]


def dividing(change: Any) -> Steps:
    """The gradient of an average is divided by another number: `change` takes the bin."""

    def replaced(mode: Any, bin_: Any, channel: Any) -> list[Term]:
        found = terms_of(mode, bin_, channel)
        return [term._replace(divisor=change(bin_)) for term in found] if mode == "avg" else found

    return {terms_of: replaced}


def without_drois_of_maxima(operator: Any, inputs: Any, attributes: Any, wanted: Any) -> Any:
    """The outputs, where drois is 0 unless the mode is avg."""
    found = evaluate(operator, inputs, attributes, wanted)
    is_zero = operator.is_gradient and attributes.get("mode", "avg") != "avg" and wanted[1]
    return [found[0], np.zeros((len(inputs[1]), 4))] if is_zero else found


def of_first_channel(operator: Any, inputs: Any, attributes: Any, wanted: Any) -> Any:
    """The outputs, where drois is computed from the first channel only."""
    whole = evaluate(operator, inputs, attributes, wanted)
    if not operator.is_gradient or not wanted[1] or not inputs[4].shape[1]:
        return whole
    x = inputs[4].copy()
    x[:, 1:] = 0
    return [whole[0], evaluate(operator, [*inputs[:4], x], attributes, wanted)[1]]


mutant = Table(OF_UPRIGHT, OF_ONNX, NARROW)
mutant.category = Category.COORDINATES
mutant["WidthAndHeightForTheEnd", "RoIs are read as x, y, width and height."] = {
    ends_of: lambda roi: ends_of((roi[0], roi[1], roi[0] + roi[2], roi[1] + roi[3]))
}
mutant["NoHalfPixel", "half_pixel does not shift RoIs by half a pixel."] = started(lambda r1, scale, _: r1 * scale)
mutant["HalfPixelAdded", "half_pixel shifts RoIs by +0.5 instead of -0.5."] = started(
    lambda r1, scale, half: r1 * scale + 0.5 * half
)
mutant["HalfPixelTwice", "half_pixel shifts RoIs twice, by a whole pixel, as mmcv's export does since opset 16."] = (
    started(lambda r1, scale, half: r1 * scale - half)
)
mutant["HalfPixelAlways", "output_half_pixel shifts RoIs by half a pixel like half_pixel."] = started(
    lambda r1, scale, _: r1 * scale - 0.5
)
mutant[
    "ShiftBeforeScale", "The shift by half a pixel happens before scaling instead of after it, as in TVM's Relax."
] = started(lambda r1, scale, half: (r1 - 0.5 * half) * scale)
mutant["StartAlone", "half_pixel shifts the start of a RoI but not its end, so RoIs are half a pixel longer."] = sized(
    lambda r1, r2, scale, half: (r2 - r1) * scale + 0.5 * half
)
mutant["StartTruncated", "The start of a RoI is rounded down to a whole pixel, as RoiPool does."] = {
    start_of: lambda *a: float(math.floor(start_of(*a)))
}
mutant["EndPixelIncluded", "1 is added to the ends x2 and y2 of RoIs, as MindSpore's roi_end_mode does."] = sized(
    lambda r1, r2, scale, _: (r2 - r1 + 1) * scale
)
mutant["NoLeastSize", "output_half_pixel does not raise sizes below 1 to 1."] = {
    size_of: lambda r1, r2, scale, mode: size_of(r1, r2, scale, "half_pixel")
}
mutant["LeastSizeBeforeScale", "output_half_pixel raises sizes to 1 before scaling instead of after it."] = {
    size_of: lambda r1, r2, scale, mode: size_of(r1, r2 if is_half(mode) else max(r2, r1 + 1.0), scale, "half_pixel")
}
mutant["SizeClampedInHalfPixel", "half_pixel raises sizes below 1 to 1 like output_half_pixel, as MIGraphX does."] = {
    size_of: lambda r1, r2, scale, mode: size_of(r1, r2, scale, "output_half_pixel")
}
mutant[
    "NegativeSizesAreZero", "Negative sizes become 0, so a RoI with swapped ends is a point instead of mirrored."
] = sized(lambda r1, r2, scale, _: max((r2 - r1) * scale, 0.0))
mutant["SamplesAtTheStart", "Each sample lies at the start of its part of the bin instead of the middle."] = placed(
    lambda start, size, bins, k, p, i: start + p * size / bins + i * size / (bins * k)
)
mutant[
    "SamplesFromCornerToCorner", "The first and the last sample of a bin lie on its ends instead of half a step inside."
] = placed(
    lambda start, size, bins, k, p, i: start + p * size / bins + (i / (k - 1) if k > 1 else i + 0.5) * size / bins
)
mutant["OneSampleInTheMiddle", "All samples of a bin lie at its centre."] = placed(
    lambda start, size, bins, k, p, i: start + (p + 0.5) * size / bins
)


mutant.category = Category.BORDERS
mutant["ReplicatedInXAlone", "Samples are tested against the border along y only."] = {
    **along(is_inside, lambda c, n: is_inside(c, n) or isinstance(n, _Width)),
    **EVERY_SAMPLE,
}
mutant["ReplicatedInYAlone", "Samples are tested against the border along x only."] = {
    **along(is_inside, lambda c, n: is_inside(c, n) or not isinstance(n, _Width)),
    **EVERY_SAMPLE,
}
mutant["SlackBelowMinus1", "Samples up to 7e-5 below -1 count as inside the map, as in MindSpore."] = border(
    lambda c, n: -1 - 7e-05 <= c <= n
)
mutant["SlackPastL", "Samples up to 7e-5 beyond the map's length count as inside, as in MindSpore."] = border(
    lambda c, n: -1 <= c <= n + 7e-05
)
mutant[
    "LengthsExchanged", "The height and the width of the map are exchanged when samples are tested against the border."
] = {**along(is_inside, lambda c, n: is_inside(c, call().x_shape[2 if isinstance(n, _Width) else 3])), **EVERY_SAMPLE}
mutant["CoordinatesClipped", "RoIs are clipped to the map before they are sampled, as in ncnn's version 0."] = {
    axes_of_roi: lambda roi, bins, lengths, **a: axes_of_roi(
        np.clip(roi, 0, np.array([lengths[1], lengths[0]] * 2) / a["spatial_scale"]).tolist(), bins, lengths, **a
    )
}


mutant.category = Category.COUNTS
mutant["Ratio0OfTheUnscaledSize", "The adaptive number of samples follows from the size before scaling."] = {
    axes_of_roi: lambda *a, spatial_scale, **settings: tuple(
        dataclasses.replace(
            axis, per_bin=samples_per_bin(axis.size / spatial_scale, axis.bins, settings["sampling_ratio"])
        )
        for axis in axes_of_roi(*a, spatial_scale=spatial_scale, **settings)
    )
}
mutant[
    "Ratio0OfTheUnraisedSize",
    "The adaptive number of samples follows from the size before output_half_pixel raises it to 1.",
] = {
    axes_of_roi: lambda roi, *a, spatial_scale, sampling_ratio, **settings: tuple(
        (
            dataclasses.replace(
                axis, per_bin=samples_per_bin((ends[1] - ends[0]) * spatial_scale, axis.bins, sampling_ratio)
            )
            for ends, axis in zip(
                ends_of(roi),
                axes_of_roi(roi, *a, spatial_scale=spatial_scale, sampling_ratio=sampling_ratio, **settings),
                strict=True,
            )
        )
    )
}
mutant["Ratio0OfY", "The adaptive number of samples along y is used along x too."] = counts_of(0)
mutant["Ratio0OfX", "The adaptive number of samples along x is used along y too."] = counts_of(1)
mutant["NegativeWidthRefused", "With adaptive sampling, a RoI with swapped ends along x only is refused."] = (
    swapped_refused(1)
)
mutant["NegativeHeightRefused", "With adaptive sampling, a RoI with swapped ends along y only is refused."] = (
    swapped_refused(0)
)
mutant[
    "Ratio0AtMostTheMap",
    "There are at most as many adaptive samples as the map has pixels, as in torchvision's deterministic path.",
] = {
    axes_of_roi: lambda *a, sampling_ratio, **settings: tuple(
        axis if sampling_ratio else dataclasses.replace(axis, per_bin=min(axis.per_bin, axis.length))
        for axis in axes_of_roi(*a, sampling_ratio=sampling_ratio, **settings)
    )
}
mutant["DivisorWithoutOutside", "Averages are divided by the number of samples inside the map only."] = {
    divisor_of: inside_alone
}
mutant["DivisorSquared", "Averages are divided by the square of the number of samples along x."] = {
    bins_of: lambda axis_y, axis_x: (bin_._replace(total=axis_x.per_bin**2) for bin_ in bins_of(axis_y, axis_x))
}
mutant["DivisorIn32Bits", "The number of samples of a bin, the product over both axes, overflows 32 bits."] = {
    divisor_of: lambda bin_: max((bin_.total + 2**31) % 2**32 - 2**31, 1)
}
mutant["EmptyIsNaN", "The average over no samples is NaN (0 divided by 0), as in MNN, OpenVINO and Paddle."] = {
    average: lambda bin_, *a: average(bin_, *a) if bin_.total else math.nan
}
mutant[
    "NegativeCountRefused",
    "A RoI with a negative width or height is refused where the sampling is adaptive, as in MXNet.",
] = refused_if(adaptive_samples, lambda size, bins: size < 0)


mutant.category = Category.REDUCTIONS
mutant["MaxTheOtherWay", "max and max_interpolated are exchanged."] = renamed(
    "mode", max="max_interpolated", max_interpolated="max"
)
mutant[
    "MaxIsInterpolated", "max is the maximum of interpolated samples, as in OpenVINO, instead of weighted corners."
] = renamed("mode", max="max_interpolated")
mutant[
    "InterpolatedIsMax",
    "max_interpolated is the maximum of weighted corners like max, instead of interpolated samples.",
] = renamed("mode", max_interpolated="max")
mutant["MaxOfPixels", "max is the maximum of the corner pixels without their interpolation weights."] = valued(
    lambda mode, one, channel: (
        value_of(channel, [c._replace(weight=float(c.weight != 0)) for c in one.corners])
        if mode == "max" and one.corners
        else one.value
    )
)
mutant["CornersFromMinus10000", "A maximum of weighted corners starts at -10000, so lower values are lost."] = of_mode(
    "max", maximum, lambda *a: max(maximum(*a), -10000.0)
)
mutant["InterpolatedFromZero", "A maximum of interpolated samples starts at 0, so negative values are lost."] = of_mode(
    "max_interpolated", maximum, lambda *a: max(maximum(*a), 0.0)
)
mutant[
    "CornersWithoutOutside",
    "Samples outside the map are left out of a maximum of weighted corners instead of counting as 0.",
] = of_mode("max", maximum, maximum_inside)
mutant["ZeroWeightsSkipped", "Corners of weight 0 are left out of a maximum instead of counting as 0."] = winners(
    without_zero_weights
)
mutant[
    "MaxOfNothingIsTheLeastNumber", "The maximum over no samples is -65504, the start value, as with mmcv on the GPU."
] = largest(lambda value, _: -65504.0 if value is None else value)
mutant["MaxOfNothingIsFltMax", "The maximum over no samples is -FLT_MAX, the start value, as in MNN."] = largest(
    lambda value, _: float(np.finfo(np.float32).min) if value is None else value
)
mutant["MaxOfMagnitudes", "A maximum compares and returns absolute values."] = valued(
    lambda mode, one, _: abs(one.value)
)
mutant["MaxWithoutOutside", "Samples outside the map are left out of a maximum instead of counting as 0."] = valued(
    lambda mode, one, _: one.value if one.sample else None
)
mutant["MaxIsAverage", "Every mode is computed as avg."] = meant(lambda a: a | {"mode": "avg"})
mutant["SumForAverage", "avg is the sum of the samples, not divided by their number."] = {divisor_of: lambda _: 1}
mutant["WeightsOfCornersExchanged", "The weights of the top right and the bottom left pixel are exchanged."] = {
    corners: exchanged_corners
}


mutant.category = Category.TYPES
mutant["CoordinatesInHalf", "Coordinates are float16 whatever the type of the tensors."] = in_type(
    coordinate, dtype=np.float16
)
mutant["BinsInTheTensorsType", "The size of a bin is rounded to the type of the tensors."] = placed(
    lambda start, size, bins, k, p, i: start + (p + (i + 0.5) / k) * narrowed(size / bins)
)
mutant["SumsInHalf", "Partial sums are float16 whatever the type of the tensors."] = averaged(
    lambda value: narrowed(value, np.float16)
)
mutant[
    "EachStepInTheTensorsType",
    "Every product and partial sum is rounded to the type of the tensors, so long sums stop growing.",
] = {value_of: lambda *a: narrow_if_short(value_of(*a)), **averaged(narrow_if_short, narrow_if_short)}
mutant[
    "AverageInTheTensorsType",
    "Samples are interpolated in float32 but summed in the type of the tensors, so long sums stop growing.",
] = averaged(narrow_if_short)
mutant[
    "MapIn11Bits",
    "The map of float tensors is rounded to 11 bits, as on accelerators that multiply with less precision.",
] = on(X, lambda x: x.astype(np.float16).astype(x.dtype) if x.dtype == np.float32 else x)
mutant["ResultCutOff", "float16 and bfloat16 results are truncated instead of rounded to nearest."] = {rounded: cut_off}
mutant.category = Category.INDEXING
mutant["ChannelsLast", "X is read as [N, H, W, C]."] = on(
    X, lambda x: np.moveaxis(x.reshape(x.shape[0], *x.shape[2:], x.shape[1]), 3, 1)
)
mutant["ResultChannelsLast", "The result is written as [R, PH, PW, C]."] = result(
    lambda y: np.moveaxis(y, 1, 3).reshape(y.shape)
)
mutant["FirstImageAlone", "Results of RoIs on any image but the first stay 0."] = result(
    lambda y: np.where((call().inputs["batch_indices"] != 0)[:, None, None, None], 0, y)
)
mutant.of_gradient["WholeBlocksOfDx", "dX of the channels after the last whole block of 16 stays 0."] = of_dx(
    lambda dx: np.where(all_channels(dx, 16)[:, None, None], dx, 0.0)
)


mutant.category = Category.GRADIENTS
mutant["DxDividedByWrongCount", "dX is divided by the number of samples along y only, not by that of both axes."] = {
    bins_of: lambda axis_y, axis_x: (
        bin_._replace(total=axis_y.per_bin) if is_gradient() else bin_ for bin_ in bins_of(axis_y, axis_x)
    )
}
mutant["DxNotDivided", "dX is not divided by the number of samples: each sample passes on the whole gradient."] = (
    dividing(lambda _: 1)
)
mutant["DxWithoutOutside", "dX is divided by the number of samples inside the map only."] = dividing(inside_alone)
mutant[
    "DxOfAClampedSize", "The gradient, but not the forward operator, raises sizes to 1 with half_pixel, as in Paddle."
] = {size_of: lambda r1, r2, scale, mode: size_of(r1, r2, scale, "output_half_pixel" if is_gradient() else mode)}
mutant["DxOfRatio0AtLeast1", "The gradient, but not the forward operator, samples an empty RoI once."] = adaptive(
    lambda size, bins: max(adaptive_samples(size, bins), int(is_gradient()))
)
mutant["TieShared", "Equal candidates of a maximum share its gradient instead of the first taking it all."] = {
    terms_of: equal_shares
}
mutant[
    "WholeGradientToTheCorner", "max passes the gradient to the winning corner without multiplying by its weight."
] = winning(
    lambda term, mode, _: (
        [term._replace(corners=tuple(c._replace(weight=float(c.weight != 0)) for c in term.corners))]
        if mode == "max"
        else [term]
    )
)
mutant[
    "WholeGradientToTheSample",
    "max passes the gradient to all four pixels of the sample that the winning corner belongs to.",
] = winning(whole_sample)
mutant["WinnerAtMinus1Dropped", "The gradient of a maximum whose sample lies at -1 is lost, as in mmcv."] = {
    is_inside: lambda c, n: is_inside(c, n) and (not (c == -1 and is_gradient()))
}
mutant["DroisOfTheStartAlone", "drois of the end of a RoI, x2 and y2, is 0."] = {
    OnnxAxis.roi_derivatives: lambda *a: (OnnxAxis.roi_derivatives(*a)[0], 0.0)
}
mutant["DroisOfAFixedSize", "drois treats the size of a RoI as constant: both ends get the same gradient."] = {
    OnnxAxis.roi_derivatives: lambda axis, p, i: OnnxAxis.roi_derivatives(
        dataclasses.replace(axis, size_varies=False), p, i
    )
}
mutant["DroisOfAFreeSize", "drois lets the size vary although output_half_pixel has fixed it at 1."] = {
    OnnxAxis.roi_derivatives: lambda axis, p, i: OnnxAxis.roi_derivatives(
        dataclasses.replace(axis, size_varies=True), p, i
    )
}
mutant["DroisAreY1X1Y2X2", "drois is written as y1, x1, y2 and x2."] = answered(
    lambda name, y: y[:, [1, 0, 3, 2]] if name == "drois" else y
)
mutant["DroisFromOutside", "Samples outside the map contribute to drois."] = {
    is_inside: lambda c, n: is_inside(c, n) or (is_gradient() and math.isfinite(c)),
    taps: lambda c, n: taps(c, n) if is_inside(c, n) else sloped(taps(c, n)),
    **EVERY_SAMPLE,
}
mutant["DroisOfOneChannel", "drois is computed from the first channel only."] = {evaluate: of_first_channel}
mutant["DroisOfMaximaAre0", "drois is 0 for the max modes."] = {evaluate: without_drois_of_maxima}


mutant.category = Category.DEFAULTS
mutant["Opset10As16", "Opset 10 uses half_pixel, as in MNN and in onnx's reference evaluator."] = meant(
    lambda a: a | {COORDINATE_MODE: "half_pixel"} if call().operator.name.endswith("_10") else a
)
mutant["Opset16As10", "coordinate_transformation_mode defaults to output_half_pixel."] = by_default(
    coordinate_transformation_mode="output_half_pixel"
)
mutant["Opset22As10", "Opsets other than 10 and 16 use output_half_pixel by default."] = given(
    lambda a: {COORDINATE_MODE: "output_half_pixel"} | a if call().operator.name.endswith("_22") else a
)
mutant["MaxByDefault", "mode defaults to max."] = by_default(mode="max")
mutant["SixteenthByDefault", "spatial_scale defaults to 1/16."] = by_default(spatial_scale=0.0625)
mutant["UnknownModeIsMax", "An unknown mode is computed as max instead of refused."] = corrected("mode", MODES, "max")
mutant["CaseOfModesIgnored", "Modes in upper case are accepted, as in onnx's reference evaluator."] = given(
    lambda a: {name: v.lower() if isinstance(v, str) else v for name, v in a.items()}
)
mutant[
    "UnknownCoordinatesAreOutputHalfPixel",
    "An unknown coordinate_transformation_mode means output_half_pixel, as in ONNX Runtime, instead of an error.",
] = corrected(COORDINATE_MODE, COORDINATES, "output_half_pixel")
mutant["AttributesUnchecked", "Attribute values are not checked, as in ncnn."] = UNCHECKED
mutant["FiveNumbersTaken", "RoIs with five numbers are accepted, and the last number is ignored."] = on(
    ROIS, lambda rois: rois[:, :4] if rois.ndim == 2 else rois
)
mutant["NoPixelsTaken", "RoIs on a map without pixels give 0 instead of an error."] = on(
    X, lambda x: np.pad(x, [(0, 0), (0, 0), *((0, int(n == 0)) for n in x.shape[2:])])
)
mutant.category = Category.GRADIENTS
MUTANTS = Mutants("roi_align", mutant)
__getattr__ = MUTANTS.find
