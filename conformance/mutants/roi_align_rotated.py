"""The mutants of RoIAlignRotated and its gradient."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from conformance.mutants.base import Category, Mutants, Steps, Table, call, is_gradient, own
from conformance.mutants.shared import (
    EVERY_SAMPLE,
    NARROW,
    OF_ONNX,
    OF_SAMPLES,
    adaptive,
    counted,
)
from conformance.mutants.steps import (
    ROIS,
    by_default,
    given,
    in_type,
    meant,
    narrowed,
    on,
    refused_if,
    result,
)
from ortops.operators.roi_align_rotated import MAX_SAMPLING_RATIO
from ortops.reference import evaluate
from ortops.reference.roi_align_rotated import (
    Region,
    Sample,
    Side,
    add_to_droi,
    add_to_dx,
    average,
    center_of,
    divisor_of,
    interpolated,
    region_of,
    sign_of,
    sine_and_cosine,
    size_of,
)
from ortops.reference.sampling import adaptive_samples, is_inside, samples_per_bin, taps


def numbers(change: Any) -> Steps:
    """The five numbers of a RoI are changed."""
    return {region_of: lambda roi, *a: own(region_of)(change(*roi), *a)}


def region(change: Any) -> Steps:
    """A region is changed, before its samples are placed."""
    return {region_of: lambda *a: change(own(region_of)(*a)), **EVERY_SAMPLE}


def turned(change: Any) -> Steps:
    """The counter-clockwise angle of a region is changed."""
    return {
        sine_and_cosine: lambda angle, clockwise: sine_and_cosine(change(sign_of(clockwise) * angle), 0),
        **EVERY_SAMPLE,
    }


def placed(change: Any) -> Steps:
    """A sample is placed elsewhere: `change` takes the region, u and v, and returns x and y from the centre."""

    def replaced(it: Region, u: float, v: float) -> tuple[float, float]:
        x, y = change(it, u, v)
        return it.center_x + x, it.center_y + y

    return {Region.place: replaced, **EVERY_SAMPLE}


def upright(it: Region, u: float, v: float) -> tuple[float, float]:
    """A point of the upright region, turned about its centre."""
    return u * it.cos + v * it.sin, v * it.cos - u * it.sin


def about(it: Region, x: float, y: float, u: float, v: float) -> tuple[float, float]:
    """A point of the upright region, turned about the point x, y from the centre."""
    by_x, by_y = upright(it, u - x, v - y)
    return x + by_x, y + by_y


def corner_of(it: Region) -> tuple[float, float]:
    """The first corner of the upright region from its centre."""
    return -it.width.size / 2, -it.height.size / 2


def sized(change: Any) -> Steps:
    """A size is changed, before it is raised: `change` takes the stored size and the scale."""
    return {size_of: lambda stored, scale, aligned: size_of(change(stored, scale), 1.0, aligned)}


def centred(change: Any) -> Steps:
    """The centre is changed: `change` takes a stored coordinate, the scale and aligned."""
    return {center_of: change}


def sides(change: Any) -> Steps:
    """The sides of a region are changed: `change` takes and returns width and height."""

    def replaced(*a: Any) -> Region:
        it = own(region_of)(*a)
        width, height = change(it.width, it.height)
        return dataclasses.replace(it, width=width, height=height)

    return {region_of: replaced, **EVERY_SAMPLE}


def adaptive_counts(change: Any) -> Steps:
    """The adaptive numbers of samples are changed: `change` takes the region and returns those of width and height."""

    def replaced(*a: Any) -> Region:
        it = own(region_of)(*a)
        if a[-2]:
            return it
        w, h = change(it)
        width, height = dataclasses.replace(it.width, per_bin=w), dataclasses.replace(it.height, per_bin=h)
        return dataclasses.replace(it, width=width, height=height)

    return {region_of: replaced}


def of_the_box_around(it: Region) -> tuple[int, int]:
    """The numbers of samples of the box around a region."""
    w, h, cos, sin = it.width, it.height, abs(it.cos), abs(it.sin)
    if min(w.size, h.size) <= 0:
        return w.per_bin, h.per_bin
    width, height = w.size * cos + h.size * sin, w.size * sin + h.size * cos
    return adaptive_samples(width, w.bins), adaptive_samples(height, h.bins)


def least_of_both(*a: Any) -> Region:
    """The region, of which both sides are 1 if either is raised."""
    it = own(region_of)(*a)
    if it.width.size_varies and it.height.size_varies:
        return it
    return own(region_of)((*a[0][:2], 0.0, 0.0, a[0][4]), *a[1:])


class _Width(int):
    """The length of a map along x."""


def border_along(is_kept: Any) -> Steps:
    """Whether a sample is inside, by axis: the length of the map along x is a `_Width`."""

    def marked(roi: Any, bins: Any, lengths: Any, *a: Any) -> Region:
        made = own(region_of)(roi, bins, lengths, *a)
        return dataclasses.replace(made, map_size=(lengths[0], _Width(lengths[1])))

    return {region_of: marked, is_inside: is_kept, **EVERY_SAMPLE}


def in_the_middle(side: Side, k: int) -> float:
    """The middle of the bin of sample `k`."""
    p = k // side.per_bin
    return (p + 0.5) / side.bins - 0.5


def inside_alone(samples: Sequence[Sample], channel: Any, it: Region) -> float:
    """The mean of the samples on the map."""
    return average(samples, channel, it) * divisor_of(it) / max(len(samples), 1)


def largest(samples: Sequence[Sample], channel: Any, it: Region) -> float:
    """The largest sample, 0 for those outside the map."""
    found = [interpolated(channel, sample.corners) for sample in samples]
    return max(found + [0.0] * (it.total > len(found)), default=0.0)


def sine_in(sine_type: Any) -> Steps:
    """Sine and cosine are rounded to a type."""
    return {sine_and_cosine: lambda *a: narrowed(sine_and_cosine(*a), sine_type)}


def droi(change: Any) -> Steps:
    """What a sample passes to a RoI is changed: `change` takes the five numbers and the region."""

    def replaced(into: list[float], share: float, channel: Any, sample: Sample, it: Region) -> None:
        part = [0.0] * 5
        add_to_droi(part, share, channel, sample, it)
        for k, value in enumerate(change(part, it)):
            into[k] += value

    return {add_to_droi: replaced}


def seen(change: Any, *ks: int) -> Steps:
    """Some numbers of drois are those of another region or sample: `change` takes and returns both."""

    def replaced(into: list[float], share: float, channel: Any, sample: Sample, it: Region) -> None:
        right, wrong = [0.0] * 5, [0.0] * 5
        add_to_droi(right, share, channel, sample, it)
        other, region_seen = change(sample, it)
        add_to_droi(wrong, share, channel, other, region_seen)
        for k in range(5):
            into[k] += wrong[k] if k in ks else right[k]

    return {add_to_droi: replaced}


def about_the_origin(sample: Sample, it: Region) -> tuple[Sample, Region]:
    """The sample as one that is turned about the origin of the map."""
    turn = dataclasses.replace(it, sin=0.0, cos=1.0)
    w, h = (dataclasses.replace(side, size=1.0) for side in (it.width, it.height))
    return sample._replace(along_w=sample.x, along_h=sample.y), dataclasses.replace(turn, width=w, height=h)


def free(it: Region, *, width: bool, height: bool) -> Region:
    """The region, whose sizes vary or not."""
    return dataclasses.replace(
        it,
        width=dataclasses.replace(it.width, size_varies=width),
        height=dataclasses.replace(it.height, size_varies=height),
    )


def of_first_channel(k: int) -> Steps:
    """One number of drois is computed from the first channel only."""

    def replaced(operator: Any, inputs: Any, attributes: Any, wanted: Any) -> Any:
        whole = evaluate(operator, inputs, attributes, wanted)
        if operator.is_gradient and wanted[1] and inputs[4].shape[1]:
            x = inputs[4].copy()
            x[:, 1:] = 0
            alone = evaluate(operator, [*inputs[:4], x], attributes, wanted)[1]
            if whole[1] is not None and alone is not None:
                whole[1][:, k] = alone[:, k]
        return whole

    return {evaluate: replaced}


def not_divided(function: Any, by: Any) -> Steps:
    """What a sample passes is multiplied by a number: `by` takes the region."""
    return {
        region_of: _remembering,
        function: lambda into, share, *a: function(into, share * by(call().memory["region"]), *a),
    }


def _remembering(*a: Any) -> Region:
    call().memory["region"] = own(region_of)(*a)
    return own(region_of)(*a)


def _of_ratio(it: Region, ratio: int) -> Region:
    call().memory["ratio"] = ratio
    return it


def shift_turned(it: Region, aligned: int) -> Region:
    """The region, whose shift by half a pixel is turned."""
    x, y = upright(it, 0.5 * aligned, 0.5 * aligned)
    return dataclasses.replace(it, center_x=it.center_x + 0.5 * aligned - x, center_y=it.center_y + 0.5 * aligned - y)


mutant = Table(OF_SAMPLES, OF_ONNX, NARROW)
mutant.category = Category.COORDINATES
mutant["Clockwise", "The direction of rotation is inverted."] = meant(lambda a: a | {"clockwise": 1 - a["clockwise"]})
mutant["ClockwiseIgnored", "clockwise is ignored and taken for 0."] = meant(lambda a: a | {"clockwise": 0})
mutant["ClockwiseAlways", "clockwise is ignored and taken for 1."] = meant(lambda a: a | {"clockwise": 1})
mutant["AngleIgnored", "The angle is ignored: regions are upright."] = turned(lambda t: 0.0)
mutant["AngleInDegrees", "Angles are read in degrees, as in detectron2, instead of radians."] = turned(math.radians)
mutant["AngleTwice", "Regions are rotated by twice the angle."] = turned(lambda t: 2 * t)
mutant["AngleScaled", "The angle is multiplied by spatial_scale too."] = {
    region_of: lambda roi, *a: own(region_of)((*roi[:4], roi[4] * a[-1]), *a)
}
mutant["AngleOfQuarters", "Angles are rounded to multiples of a quarter turn."] = turned(
    lambda t: round(t / (math.pi / 2)) * math.pi / 2
)
mutant["AngleOfAHalfTurn", "Angles are taken modulo half a turn, as for a box without a front."] = turned(
    lambda t: t % math.pi
)
mutant["AngleCut", "Angles are clipped to half a turn."] = turned(lambda t: min(max(t, -math.pi), math.pi))
mutant["NegativeAngleIgnored", "The sign of the angle is ignored."] = numbers(lambda *roi: (*roi[:4], abs(roi[4])))
mutant["SmallAngle", "The sine and cosine of angle t are taken for t and 1, which holds for small angles only."] = {
    sine_and_cosine: lambda angle, clockwise: (sign_of(clockwise) * angle, 1.0),
    **EVERY_SAMPLE,
}
mutant["SineOfX", "The sine term of x has the wrong sign, so regions are sheared."] = placed(
    lambda it, u, v: (u * it.cos - v * it.sin, v * it.cos - u * it.sin)
)
mutant["SineOfY", "The sine term of y has the wrong sign, so regions are sheared."] = placed(
    lambda it, u, v: (u * it.cos + v * it.sin, v * it.cos + u * it.sin)
)
mutant["SineAndCosineExchanged", "Sine and cosine are exchanged."] = {
    sine_and_cosine: lambda *a: sine_and_cosine(*a)[::-1],
    **EVERY_SAMPLE,
}
mutant["SineExchanged", "The sine terms of x and y are taken from the wrong side of the region."] = placed(
    lambda it, u, v: (u * it.cos + u * it.sin, v * it.cos - v * it.sin)
)
mutant["XTurnedAlone", "y is rotated with the already rotated x."] = placed(
    lambda it, u, v: ((x := u * it.cos + v * it.sin), v * it.cos - x * it.sin)
)
mutant["TurnedAboutTheCorner", "Regions are rotated about their first corner instead of their centre."] = placed(
    lambda it, u, v: about(it, *corner_of(it), u, v)
)
mutant["TurnedAboutTheOrigin", "Regions are rotated about the origin of the map instead of their centre."] = placed(
    lambda it, u, v: about(it, -it.center_x, -it.center_y, u, v)
)
mutant["BeginsAtTheCentre", "cx and cy are read as the first corner of a region instead of its centre."] = placed(
    lambda it, u, v: upright(it, u - corner_of(it)[0], v - corner_of(it)[1])
)
mutant["CentreYBeforeX", "RoIs are read as cy, cx, w, h and angle."] = numbers(lambda cx, cy, *a: (cy, cx, *a))
mutant["HeightBeforeWidth", "RoIs are read as cx, cy, h, w and angle."] = numbers(
    lambda cx, cy, w, h, angle: (cx, cy, h, w, angle)
)
mutant["CornersForCentreAndSize", "RoIs are read as x1, y1, x2, y2 and angle."] = numbers(
    lambda x1, y1, x2, y2, angle: ((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1, angle)
)
mutant["AngleFirst", "RoIs are read as angle, cx, cy, w and h."] = numbers(
    lambda angle, cx, cy, w, h: (cx, cy, w, h, angle)
)
mutant["SizesHalved", "Width and height are read as half the size of the region, so regions are twice as large."] = (
    sized(lambda stored, scale: 2 * stored * scale)
)
mutant["EndPixelCounted", "Widths and heights are raised by 1."] = sized(lambda stored, scale: (stored + 1) * scale)
mutant["SizesNotScaled", "spatial_scale is applied to the centre but not to width and height."] = sized(
    lambda stored, scale: stored
)
mutant["CentreNotScaled", "spatial_scale is applied to width and height but not to the centre."] = centred(
    lambda stored, scale, aligned: center_of(stored, 1.0, aligned)
)
for name, value in (("AlignedIgnored", 1), ("AlignedNever", 0)):
    mutant[name, f"aligned is ignored and taken for {value}."] = meant(lambda a, value=value: a | {"aligned": value})
for name, words, shift in (
    ("NoHalfPixel", "aligned = 1 does not shift the centre by half a pixel.", 0.0),
    ("HalfPixelAdded", "aligned = 1 shifts the centre by +0.5 instead of -0.5.", 0.5),
    ("HalfPixelTwice", "aligned = 1 shifts the centre twice, by a whole pixel.", -1.0),
):
    mutant[name, words] = centred(lambda stored, scale, aligned, shift=shift: stored * scale + aligned * shift)
mutant["HalfPixelAlways", "The centre is shifted by half a pixel even if aligned = 0."] = centred(
    lambda stored, scale, aligned: stored * scale - 0.5
)
mutant["ShiftBeforeScale", "The shift by half a pixel happens before scaling instead of after it."] = centred(
    lambda stored, scale, aligned: (stored - 0.5 * aligned) * scale
)
mutant["ShiftTurned", "The shift by half a pixel is rotated with the region."] = {
    region_of: lambda roi, bins, lengths, aligned, *a: shift_turned(
        own(region_of)(roi, bins, lengths, aligned, *a), aligned
    ),
    **EVERY_SAMPLE,
}
mutant["SamplesAtTheStart", "Each sample lies at the start of its part of the bin instead of the middle."] = {
    Side.along: lambda side, k: Side.along(side, k) - 0.5 / side.samples
}
mutant[
    "SamplesFromSideToSide", "The first and last samples lie on the sides of a region instead of half a step inside."
] = {Side.along: lambda side, k: k / (side.samples - 1) - 0.5 if side.samples > 1 else Side.along(side, k)}
mutant["OneSampleInTheMiddle", "All samples of a bin lie at its centre."] = {Side.along: in_the_middle, **EVERY_SAMPLE}
mutant["WeightsExchanged", "The weights of the pixels before and after a sample are exchanged."] = {
    taps: lambda *a: tuple(
        tap._replace(weight=other.weight) for tap, other in zip(taps(*a), taps(*a)[::-1], strict=True)
    )
}
mutant["MirroredUpright", "A negative width or height is replaced by its absolute value."] = sized(
    lambda stored, scale: abs(stored * scale)
)
mutant["NegativeSizesAre0", "A negative width or height is replaced by 0."] = sized(
    lambda stored, scale: max(stored * scale, 0.0)
)
mutant["NegativeSizesRefused", "A negative width or height is refused."] = refused_if(
    size_of, lambda stored, *_: stored < 0
)
mutant["EmptySizesRefused", "A width or height of 0 is refused."] = refused_if(size_of, lambda stored, *_: stored == 0)
mutant["NoLeastSize", "Sizes below 1 are not raised to 1 if aligned = 0."] = {
    size_of: lambda stored, scale, aligned: size_of(stored, scale, 1)
}
mutant["LeastSizeAlways", "Sizes below 1 are raised to 1 even if aligned = 1."] = {
    size_of: lambda stored, scale, aligned: size_of(stored, scale, 0)
}
mutant["LeastSizeBeforeScale", "Sizes are raised to 1 before scaling instead of after it."] = {
    size_of: lambda stored, scale, aligned: size_of(stored if aligned else max(stored, 1.0), scale, 1)
}
mutant["LeastSizeOfBoth", "With aligned = 0, both sides are set to 1 if either is smaller."] = {
    region_of: least_of_both
}
for name, side in (("Width", "width"), ("Height", "height")):
    mutant[f"LeastSizeOfThe{name}", f"With aligned = 0, only the {side} is raised to 1."] = {
        region_of: lambda *a, side=side: dataclasses.replace(
            own(region_of)(*a[:3], 1, *a[4:]),
            center_x=own(region_of)(*a).center_x,
            center_y=own(region_of)(*a).center_y,
            **{side: getattr(own(region_of)(*a), side)},
        )
    }
mutant.category = Category.BORDERS
mutant["ReplicatedInXAlone", "Samples are tested against the border along y only."] = border_along(
    lambda c, n: is_inside(c, n) or isinstance(n, _Width)
)
mutant["ReplicatedInYAlone", "Samples are tested against the border along x only."] = border_along(
    lambda c, n: is_inside(c, n) or not isinstance(n, _Width)
)
mutant[
    "LengthsExchanged", "The height and the width of the map are exchanged when samples are tested against the border."
] = border_along(lambda c, n: is_inside(c, call().x_shape[2 if isinstance(n, _Width) else 3]))
mutant["CentreOffTheMapIsEmpty", "A region whose centre is outside the map gives 0."] = region(
    lambda it: (
        it
        if 0 <= it.center_x < it.map_size[1] and 0 <= it.center_y < it.map_size[0]
        else dataclasses.replace(it, center_x=-1e9)
    )
)
mutant.category = Category.COUNTS
mutant["RatioIgnored", "sampling_ratio is ignored and taken for 0."] = meant(lambda a: a | {"sampling_ratio": 0})
mutant[
    "Ratio0OnePastWhole", "The adaptive number of samples is one too large for bins of a whole number of pixels."
] = adaptive(lambda size, bins: math.floor(size / bins) + 1 if size > 0 else 0)
mutant["Ratio0OfTheUnscaledSize", "The adaptive number of samples follows from the size before scaling."] = (
    adaptive_counts(lambda it: [samples_per_bin(side.size / it.scale, side.bins, 0) for side in (it.width, it.height)])
)
mutant["Ratio0OfX", "The adaptive number of samples along x is used along y too."] = sides(
    lambda w, h: (w, dataclasses.replace(h, per_bin=w.per_bin))
)
mutant["Ratio0OfY", "The adaptive number of samples along y is used along x too."] = sides(
    lambda w, h: (dataclasses.replace(w, per_bin=h.per_bin), h)
)
mutant["Ratio0OfTheOther", "The adaptive numbers of samples of the two axes are exchanged."] = sides(
    lambda w, h: (dataclasses.replace(w, per_bin=h.per_bin), dataclasses.replace(h, per_bin=w.per_bin))
)
mutant[
    "Ratio0OfTheBoxAround", "The adaptive number of samples follows from the bounding box of the rotated region."
] = adaptive_counts(of_the_box_around)
mutant[
    "Ratio0OfTheTurnedBins",
    "The adaptive numbers of samples of the two axes are exchanged for regions rotated by about a quarter turn.",
] = adaptive_counts(lambda it: (it.width.per_bin, it.height.per_bin)[:: -1 if abs(it.sin) > abs(it.cos) else 1])
mutant["DivisorWithoutOutside", "Averages are divided by the number of samples inside the map only."] = {
    average: inside_alone
}
mutant["DivisorSquared", "Averages are divided by the square of the number of samples along x."] = {
    divisor_of: lambda it: max(it.width.per_bin**2, 1)
}
mutant["DivisorOfTheRatio", "Averages are divided by the square of sampling_ratio, and not at all if it is 0."] = {
    region_of: lambda *a: _of_ratio(own(region_of)(*a), a[-2]),
    divisor_of: lambda it: max(call().memory["ratio"], 1) ** 2,
}
mutant["EmptyIsNaN", "The average over no samples is NaN (0 divided by 0)."] = {
    average: lambda samples, channel, it: average(samples, channel, it) if it.total else math.nan
}
mutant.category = Category.REDUCTIONS
mutant["SumForAverage", "An output is the sum of its samples, not divided by their number."] = {
    divisor_of: lambda it: 1
}
mutant["Maximum", "An output is the maximum of its samples instead of the average."] = {average: largest}
mutant["FirstSampleAlone", "An output is its first sample instead of the average."] = counted(lambda n: min(n, 1))
mutant.category = Category.TYPES
mutant["CoordinatesInHalf", "Coordinates are float16 whatever the type of the tensors."] = in_type(
    Region.place, dtype=np.float16
)
mutant["SineInTheTensorsType", "Sine and cosine are rounded to the type of the tensors."] = sine_in(None)
mutant["SineOfATable", "Sine and cosine are looked up in a table of whole degrees."] = turned(
    lambda t: math.radians(round(math.degrees(t)))
)
mutant["SineInFloat", "Sine and cosine are float32 even for double tensors."] = sine_in(np.float32)
mutant.category = Category.INDEXING
mutant["AngleOfTheFirst", "Every RoI uses the angle of the first RoI."] = on(
    ROIS, lambda r: np.concatenate([r[:, :4], r[:1, 4:].repeat(len(r), 0)], axis=1)
)
mutant["BinsReversedAlongX", "The bins of each row are written in reverse order."] = result(lambda y: y[..., ::-1])
mutant["BinsReversedAlongY", "The rows of bins are written in reverse order."] = result(lambda y: y[..., ::-1, :])
mutant.category = Category.GRADIENTS
mutant["DxOfTheOtherDirection", "The gradient rotates regions in the wrong direction."] = turned(
    lambda t: -t if is_gradient() else t
)
mutant["DxUpright", "The gradient ignores the angle."] = turned(lambda t: 0.0 if is_gradient() else t)
mutant["DxNotDivided", "dX is not divided by the number of samples: each sample passes on the whole gradient."] = (
    not_divided(add_to_dx, lambda it: it.total)
)
mutant["DxDividedByOneCount", "dX is divided by the number of samples along y only, not by that of both axes."] = (
    not_divided(add_to_dx, lambda it: it.width.per_bin)
)
mutant["DxOfClampedSizes", "The gradient, but not the forward operator, raises sizes to 1 if aligned = 1."] = {
    size_of: lambda stored, scale, aligned: size_of(stored, scale, 0 if is_gradient() else aligned)
}
mutant["DxOfNotAligned", "The gradient ignores aligned."] = centred(
    lambda stored, scale, aligned: center_of(stored, scale, 0 if is_gradient() else aligned)
)
mutant["DroisAre0", "drois is 0."] = {add_to_droi: lambda *a: None}
for number, name in enumerate(("Cx", "Cy", "W", "H", "Angle")):
    words = name.lower()
    mutant[f"D{name}Is0", f"The gradient by {words} is 0."] = droi(
        lambda part, it, k=number: [0.0 if j == k else v for j, v in enumerate(part)]
    )
    mutant[f"D{name}Negated", f"The gradient by {words} has the wrong sign."] = droi(
        lambda part, it, k=number: [-v if j == k else v for j, v in enumerate(part)]
    )
    if name != "Angle":
        mutant[f"D{name}WithoutScale", f"The gradient by {words} lacks the factor spatial_scale."] = droi(
            lambda part, it, k=number: [v / it.scale if j == k else v for j, v in enumerate(part)]
        )
    mutant[f"D{name}OfOneChannel", f"The gradient by {words} is computed from the first channel only."] = (
        of_first_channel(number)
    )
mutant["DAngleScaled", "The gradient by the angle is multiplied by spatial_scale."] = droi(
    lambda part, it: [*part[:4], part[4] * it.scale]
)
mutant["DAngleInDegrees", "The gradient by the angle is per degree instead of per radian."] = droi(
    lambda part, it: [*part[:4], part[4] * math.pi / 180]
)
mutant["DAngleIgnoresClockwise", "The sign of the gradient by the angle ignores clockwise."] = droi(
    lambda part, it: [*part[:4], part[4] * it.angle_sign]
)
mutant["DAngleOfUprightSamples", "The gradient by the angle is computed as if the angle were 0."] = seen(
    lambda sample, it: (sample, dataclasses.replace(it, sin=0.0, cos=1.0)), 4
)
mutant["DAngleAboutTheOrigin", "The gradient by the angle is that of a rotation about the origin of the map."] = seen(
    about_the_origin, 4
)
mutant["DSizesOfUprightSamples", "The gradients by width and height are computed as if the angle were 0."] = seen(
    lambda sample, it: (sample, dataclasses.replace(it, sin=0.0, cos=1.0)), 2, 3
)
mutant["DSizesExchanged", "The gradients by width and height are exchanged."] = droi(
    lambda part, it: [part[k] for k in (0, 1, 3, 2, 4)]
)
mutant["DCentreExchanged", "The gradients by cx and cy are exchanged."] = droi(
    lambda part, it: [part[k] for k in (1, 0, 2, 3, 4)]
)
mutant["DCentreTurned", "The gradients by cx and cy are rotated with the region."] = droi(
    lambda part, it: [part[0] * it.cos - part[1] * it.sin, part[0] * it.sin + part[1] * it.cos, *part[2:]]
)
mutant["DSizesOfEnds", "The gradients by width and height are twice too large, as if only one end moved."] = droi(
    lambda part, it: [v * (2 if k in (2, 3) else 1) for k, v in enumerate(part)]
)
mutant["DroisOfAFreeSize", "drois lets the size vary although it has been raised to 1."] = seen(
    lambda sample, it: (sample, free(it, width=True, height=True)), 2, 3
)
mutant["DroisOfAFixedSize", "drois treats width and height as constant."] = seen(
    lambda sample, it: (sample, free(it, width=False, height=False)), 2, 3
)
mutant["DroisFixedBothWays", "drois treats both width and height as constant if either has been raised to 1."] = seen(
    lambda sample, it: (
        sample,
        free(it, width=(varies := it.width.size_varies and it.height.size_varies), height=varies),
    ),
    *(2, 3),
)
mutant["DroisNotDivided", "drois is not divided by the number of samples."] = {
    add_to_droi: lambda into, share, channel, sample, it: add_to_droi(
        into, share * max(it.total, 1), channel, sample, it
    )
}
mutant.category = Category.DEFAULTS
mutant["NotAlignedByDefault", "aligned defaults to 0."] = by_default(aligned=0)
mutant["ClockwiseByDefault", "clockwise defaults to 1."] = by_default(clockwise=1)
mutant["QuarterByDefault", "spatial_scale defaults to 1/4."] = by_default(spatial_scale=0.25)
for name in ("aligned", "clockwise"):
    mutant[f"{name.capitalize()}Unchecked", f"Values of {name} other than 0 and 1 are accepted and taken for 1."] = (
        given(lambda a, name=name: a | ({name: int(a[name] != 0)} if name in a else {}))
    )
mutant["LargeRatioTaken", "A sampling_ratio that is too large is taken for 1 instead of refused."] = given(
    lambda a: a | ({"sampling_ratio": 1} if a.get("sampling_ratio", 0) > MAX_SAMPLING_RATIO else {})
)
mutant["RatioIn32Bits", "sampling_ratio is truncated to 32 bits."] = given(
    lambda a: a | {"sampling_ratio": (a.get("sampling_ratio", 0) + 2**31) % 2**32 - 2**31}
)
mutant["AnglesUnchecked", "An infinite or NaN angle is taken for 0 instead of refused."] = on(
    ROIS, lambda r: np.where((np.arange(r.shape[-1]) == 4) & ~np.isfinite(r), np.zeros((), r.dtype), r)
)
mutant["FourNumbersTaken", "RoIs with four numbers are accepted and have the angle 0."] = on(
    ROIS, lambda r: np.pad(r, ((0, 0), (0, 1))) if r.shape[1:] == (4,) else r
)
mutant["SixNumbersTaken", "RoIs with six numbers are accepted, and the last number is ignored."] = on(
    ROIS, lambda r: r[:, :5] if r.ndim == 2 else r
)
MUTANTS = Mutants("roi_align_rotated", mutant)
__getattr__ = MUTANTS.find
