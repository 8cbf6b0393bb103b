"""The mutants of DmlResample and its gradient."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from conformance.mutants.base import Array, Category, Mutants, Steps, Table, call, is_gradient, own, rounded
from conformance.mutants.shared import CALLS, UNCHECKED
from conformance.mutants.steps import (
    answered,
    asked,
    by_default,
    given,
    meant,
    narrowed,
    refused_if,
    renamed,
    threshold,
)
from ortops.reference import check_types, evaluate
from ortops.reference.dml_resample import (
    ResampledAxis,
    Tap,
    output_lengths,
    resample_axis,
    resampled_axes,
    transpose_axis,
)

LISTS = ("scales", "input_pixel_offsets", "output_pixel_offsets", "output_sizes")
OFFSETS = {"input_pixel_offsets": 0.5, "output_pixel_offsets": -0.5}


def rounding(change: Any) -> Steps:
    """How a coordinate is rounded to its pixel: `change` takes what rounds it now, and the direction."""

    def replaced(*a: Any, rounding_direction: str, **settings: Any) -> list[ResampledAxis]:
        axes = own(resampled_axes)(*a, rounding_direction=rounding_direction, **settings)
        return [
            axis
            if axis.rounded is None
            else dataclasses.replace(axis, rounded=change(axis.rounded, rounding_direction))
            for axis in axes
        ]

    return {resampled_axes: replaced}


def half_up(change: Any) -> Steps:
    """Where a coordinate is rounded to nearest, it is rounded otherwise."""
    return rounding(lambda now, direction: change if direction == "half_up" else now)


def axes(change: Any) -> Steps:
    """The axes are changed: `change` takes and returns a list of them."""
    return {resampled_axes: lambda *a, **settings: change(own(resampled_axes)(*a, **settings))}


def each_axis(change: Any) -> Steps:
    """Each axis is changed."""
    return axes(lambda them: list(map(change, them)))


def coordinates(change: Any) -> Steps:
    """A coordinate is changed: `change` takes the axis, the number of the output and the right coordinate."""
    return {ResampledAxis.coordinate: lambda axis, o: change(axis, o, ResampledAxis.coordinate(axis, o))}


def offsets(change: Any) -> Steps:
    """The offsets of an axis are changed: `change` takes and returns that of the input and of the output."""

    def replaced(axis: ResampledAxis) -> ResampledAxis:
        before, after = change(axis.input_pixel_offset, axis.output_pixel_offset)
        return dataclasses.replace(axis, input_pixel_offset=before, output_pixel_offset=after)

    return each_axis(replaced)


def scale_of(axis: ResampledAxis) -> float:
    """Output pixels for each input pixel."""
    return axis.size / axis.length if axis.scale is None else axis.scale


def rescaled(change: Any) -> Steps:
    """The scale of an axis is changed: `change` takes the axis and whether the scales are given."""
    return each_axis(lambda axis: dataclasses.replace(axis, scale=change(axis, axis.scale is not None)))


def shares(change: Any) -> Steps:
    """The weight of the second of two pixels is changed."""

    def replaced(axis: ResampledAxis, o: int) -> Any:
        found = own(ResampledAxis.taps)(axis, o)
        if len(found) == 1:
            return found
        share = change(found[1].weight)
        return Tap(found[0].pixel, 1.0 - share), Tap(found[1].pixel, share)

    return {ResampledAxis.taps: replaced}


def at_edges(change: Any) -> Steps:
    """What an output beyond an edge reads: `change` takes its taps."""

    def replaced(axis: ResampledAxis, o: int) -> Any:
        found = own(ResampledAxis.taps)(axis, o)
        return found if 0 <= own(ResampledAxis.coordinate)(axis, o) <= axis.length - 1 else change(found)

    return {ResampledAxis.taps: replaced}


def assigned_at_edges(axis: ResampledAxis, dy: Array) -> Array:
    """The transpose, where only the last output beyond each edge passes its gradient on."""
    places = [own(ResampledAxis.coordinate)(axis, o) for o in range(axis.size)]
    before = [o for o, c in enumerate(places) if c < 0]
    after = [o for o, c in enumerate(places) if c > axis.length - 1]
    kept = dy.copy()
    if axis.length > 1:
        kept[before[:-1]], kept[after[:-1]] = 0, 0
    else:
        kept[sorted(before + after)[:-1]] = 0
    return own(transpose_axis)(axis, kept)


def resized(axis: ResampledAxis, dy: Array) -> Array:
    """A gradient resized to the length of the input."""
    places = (np.arange(axis.length) + 0.5) * axis.size / axis.length - 0.5
    return dy[np.clip(np.floor(places + 0.5), 0, axis.size - 1).astype(np.int64)]


def averaged(axis: ResampledAxis, dy: Array) -> Array:
    """The transpose, divided by the sum of the weights of each pixel."""
    weights = own(transpose_axis)(axis, np.ones(len(dy)))
    return own(transpose_axis)(axis, dy) / np.maximum(weights, 1).reshape(-1, *[1] * (dy.ndim - 1))


def to_both(axis: ResampledAxis, o: int) -> Any:
    """The taps of an output, also one of weight 0."""
    found = own(ResampledAxis.taps)(axis, o)
    return found if len(found) == 2 else (*found, Tap(found[0].pixel, 0.0))


def smoothed(axis: ResampledAxis, x: Array) -> Array:
    """An axis resampled after neighbours are averaged, where it becomes shorter."""
    if axis.size < axis.length:
        places = np.arange(len(x))
        x = (x[np.maximum(places - 1, 0)] + 2 * x + x[np.minimum(places + 1, len(x) - 1)]) / 4
    return own(resample_axis)(axis, x)


def in_steps(axis: ResampledAxis, o: int) -> float:
    """A coordinate that float32 steps add up to."""
    steps = np.full(o + 1, 1 / scale_of(axis), np.float32)
    steps[0] = ResampledAxis.coordinate(axis, 0)
    return float(np.add.accumulate(steps)[-1])


def mirrored(axis: ResampledAxis, c: float) -> float:
    """A coordinate, mirrored at the edges."""
    return min(abs(c), 2 * (axis.length - 1) - abs(c))


def scales_in(order: Any) -> Steps:
    """The scales are read in another order: `order` takes and returns a list."""
    return meant(lambda a: a | {"scales": tuple(order(list(a["scales"])))})


def lengths(change: Any) -> Steps:
    """Output lengths that follow from scales are changed: `change` takes a length and a scale."""
    return {
        output_lengths: lambda sizes, scales, given_sizes: (
            tuple(given_sizes) or tuple(change(n, s) for n, s in zip(sizes, scales, strict=True))
        )
    }


def empty_refused(refuses: Any) -> Steps:
    """An empty output or input is refused: `refuses` takes the lengths of both."""

    def replaced(sizes: Any, *a: Any) -> Any:
        found = output_lengths(sizes, *a)
        if refuses(sizes, found):
            raise ValueError("empty")
        return found

    return {output_lengths: replaced}


def no_pixels_are_0(operator: Any, inputs: Any, attributes: Any, wanted: Any) -> Any:
    """The outputs, 0 where there are no pixels to read."""
    x = inputs[0]
    if operator.is_gradient or x is None or x.size:
        return evaluate(operator, inputs, attributes, wanted)
    filled = np.ones([max(n, 1) for n in x.shape], x.dtype)
    (found,) = evaluate(operator, [filled], attributes, wanted)
    return [None if found is None else 0 * found]


def as_float(operator: Any, inputs: Any, *a: Any) -> Any:
    """The outputs of integer tensors, converted to float."""
    x = inputs[0]
    return evaluate(operator, [x.astype(np.float32) if x.dtype.kind in "iu" else x, *inputs[1:]], *a)


def _of_last_axis(n: int, is_tail: bool) -> Steps:
    def cut(y: Array) -> Array:
        kept = max(y.shape[-1] // n * n, min(y.shape[-1], n)) if is_tail else n
        return np.where(np.arange(y.shape[-1]) < kept, y, 0)

    return {rounded: lambda y, dtype: rounded(cut(y), dtype)}


mutant = Table(CALLS)
mutant.category = Category.COORDINATES
mutant["FloorForHalfUp", "half_up always rounds down."] = half_up(math.floor)
mutant["ResampleTieGoesDown", "half_up rounds ties down instead of up."] = half_up(lambda c: math.ceil(c - 0.5))
mutant["ResampleTieGoesToEven", "half_up rounds ties to even instead of up."] = half_up(round)
mutant["DirectionsExchanged", "The rounding directions increasing and decreasing are exchanged."] = renamed(
    "rounding_direction", increasing="decreasing", decreasing="increasing"
)
mutant["DirectionIgnored", "rounding_direction is ignored and taken for half_up."] = meant(
    lambda a: a | {"rounding_direction": "half_up"}
)
mutant["DirectionOfTiesAlone", "rounding_direction is applied to ties only; elsewhere the nearest pixel is read."] = (
    rounding(
        lambda now, direction: (
            (lambda c: math.ceil(c - 0.5)) if direction == "decreasing" else (lambda c: math.floor(c + 0.5))
        )
    )
)
mutant["DirectionOfLinear", "With increasing and decreasing, linear interpolation reads a single pixel."] = {
    resampled_axes: lambda *a, rounding_direction, **settings: [
        axis if rounding_direction == "half_up" or axis.rounded else dataclasses.replace(axis, rounded=math.ceil)
        for axis in own(resampled_axes)(*a, rounding_direction=rounding_direction, **settings)
    ]
}
mutant["ResampleInputOffsetAdded", "input_pixel_offsets are added instead of subtracted."] = offsets(
    lambda before, after: (-before, after)
)
mutant["ResampleOutputOffsetAdded", "output_pixel_offsets are added instead of subtracted."] = offsets(
    lambda before, after: (before, -after)
)
mutant["OffsetsIgnored", "Pixel offsets are ignored and taken for 0.5 and -0.5."] = offsets(lambda *_: (0.5, -0.5))
mutant[
    "OutputOffsetOfTheInput",
    "output_pixel_offsets are subtracted after scaling, like input_pixel_offsets, instead of before.",
] = offsets(lambda before, after: (before + after, 0.0))
mutant[
    "InputOffsetOfTheOutput",
    "input_pixel_offsets are subtracted before scaling, like output_pixel_offsets, instead of after.",
] = offsets(lambda before, after: (0.0, before + after))
mutant["LastOffsetsForAll", "Every axis uses the pixel offsets of the last axis."] = axes(
    lambda them: [
        dataclasses.replace(
            axis,
            input_pixel_offset=them[-1].input_pixel_offset,
            output_pixel_offset=them[-1].output_pixel_offset,
        )
        for axis in them
    ]
)
mutant["LastScaleForAll", "Every axis uses the scale of the last axis."] = axes(
    lambda them: [dataclasses.replace(axis, scale=them[-1].scale) for axis in them]
)
mutant["ScalesBackwards", "scales are read in reverse order."] = axes(
    lambda them: [dataclasses.replace(axis, scale=other.scale) for axis, other in zip(them, them[::-1], strict=True)]
)
mutant["RatioForScales", "scales are ignored: the ratio of output length to input length is used."] = rescaled(
    lambda axis, is_given: None
)
mutant["NoScalesIs1", "The scales are 1 if none are given, instead of the ratio of the lengths."] = rescaled(
    lambda axis, is_given: axis.scale if is_given else 1.0
)
mutant[
    "RatioOfCorners", "Without scales, corners are aligned: the first and last outputs are the first and last pixels."
] = rescaled(
    lambda axis, is_given: (
        axis.scale if is_given or min(axis.size, axis.length) < 2 else (axis.size - 1) / (axis.length - 1)
    )
)
mutant["LeadingAxesIgnored", "Only the last two axes are resampled."] = axes(
    lambda them: [
        dataclasses.replace(axis, scale=1.0, input_pixel_offset=0.0, output_pixel_offset=0.0)
        if k < len(them) - 2
        else axis
        for k, axis in enumerate(them)
    ]
)
mutant["Scale1IsCopied", "An axis with scale 1 is copied, and its pixel offsets are ignored."] = coordinates(
    lambda axis, o, c: float(o) if scale_of(axis) == 1 else c
)
mutant["LinearIsNearest", "interpolation_mode is ignored: everything is nearest_neighbor."] = renamed(
    "interpolation_mode", linear="nearest_neighbor"
)
mutant["NearestIsLinear", "interpolation_mode is ignored: everything is linear."] = renamed(
    "interpolation_mode", nearest_neighbor="linear"
)
mutant.category = Category.BORDERS
mutant["EdgesNotClamped", "Outputs beyond the edge are 0 instead of the edge pixel."] = at_edges(lambda _: ())
mutant["EdgesReflected", "The tensor is mirrored beyond its edges instead of clamped."] = coordinates(
    lambda axis, o, c: mirrored(axis, c)
)
mutant["EdgesWrap", "The tensor is repeated beyond its edges instead of clamped."] = coordinates(
    lambda axis, o, c: c % axis.length if c <= -1 or c >= axis.length else c
)
mutant["UnreadPixelsMultiplied", "Pixels with weight 0 are multiplied too, so an infinite one gives NaN."] = {
    ResampledAxis.taps: lambda axis, o: own(ResampledAxis.taps)(axis, o) if is_gradient() else to_both(axis, o)
}
mutant.category = Category.COUNTS
mutant["LengthRoundedUp", "Output lengths are rounded up instead of down."] = lengths(lambda n, s: math.ceil(n * s))
mutant["LengthRoundedToTheNearest", "Output lengths are rounded to nearest instead of down."] = lengths(
    lambda n, s: math.floor(n * s + 0.5)
)
mutant["LengthAtLeast1", "Output lengths are at least 1."] = lengths(lambda n, s: max(math.floor(n * s), 1))
mutant["SizesIgnored", "output_sizes are ignored if scales are given."] = meant(
    lambda a: a | {"output_sizes": ()} if a["scales"] else a
)
mutant.category = Category.REDUCTIONS
mutant["Antialiased", "Downsampling is antialiased: neighbouring pixels are averaged."] = {resample_axis: smoothed}
mutant["SharesExchanged", "The weights of the two interpolated pixels are exchanged."] = shares(lambda f: 1 - f)
mutant["Smoothed", "Interpolation weights follow a smooth curve instead of a line."] = shares(
    lambda f: f**2 * (3 - 2 * f)
)
mutant.category = Category.TYPES
mutant["HalfSums", "Sums are computed in the type of the tensors."] = {
    step: lambda axis, x, step=step: own(step)(axis, x.astype(call().dtype)).astype(call().dtype).astype(np.float64)
    for step in (resample_axis, transpose_axis)
}
mutant[
    "AxesInTheTensorsType",
    "The result along each axis is rounded to the type of the tensors before the next axis.",
] = {
    step: lambda axis, x, step=step: own(step)(axis, x).astype(call().dtype).astype(np.float64)
    for step in (resample_axis, transpose_axis)
}
mutant["ResampleCoordinatesInTheTensorsType", "Coordinates are computed in the type of the tensors."] = coordinates(
    lambda axis, o, c: narrowed(c)
)
mutant["ResampleCoordinatesInFloat", "Coordinates are float32 even for double tensors."] = coordinates(
    lambda axis, o, c: narrowed(c, np.float32)
)
mutant["ScalesInTheTensorsType", "Scales are rounded to the type of the tensors."] = rescaled(
    lambda axis, is_given: narrowed(scale_of(axis)) or 1.0
)
mutant["StepsAdded", "Coordinates are accumulated in float32 steps."] = {ResampledAxis.coordinate: in_steps}
mutant["ResampleDoubleInFloat", "Results of double tensors have the precision of float32."] = {
    rounded: lambda y, dtype: rounded(y.astype(np.float32), dtype)
}
mutant.category = Category.INDEXING
mutant["FirstImageAlone", "Results of tensors with four axes are those of the first image."] = answered(
    lambda _, y: y[:1].repeat(len(y), 0) if y.ndim == 4 else y
)
mutant["AxesReversed", "All list attributes are read in reverse order."] = given(
    lambda a: a | {name: list(a[name])[::-1] for name in LISTS if name in a}
)
mutant["FourAxesAlone", "Tensors without exactly four axes are refused, as in DirectML's first version."] = refused_if(
    check_types, lambda operator, arrays: next(iter(arrays.values())).ndim != 4
)
mutant.category = Category.GRADIENTS
mutant[
    "OffsetsSwappedInGradient",
    "The gradient exchanges the input and output pixel offsets, as DirectML's operator does.",
] = offsets(lambda before, after: (after, before) if is_gradient() else (before, after))
mutant["ScaleInvertedInGradient", "The gradient takes scales for the scales from output to input."] = rescaled(
    lambda axis, is_given: 1 / scale_of(axis) if is_gradient() else axis.scale
)
mutant["GradientAssignedAtEdges", "Of all outputs beyond an edge, only the last one passes its gradient on."] = {
    transpose_axis: assigned_at_edges
}
mutant["ClampedGradientDropped", "Outputs beyond an edge pass no gradient to the edge pixel."] = at_edges(
    lambda found: () if is_gradient() else found
)
mutant[
    "GradientByResampling",
    "The gradient is resized to the input's length instead of multiplied by the transposed matrix.",
] = {transpose_axis: resized}
mutant[
    "GradientAveraged", "The gradient of a pixel is the average over the outputs that read it instead of the sum."
] = {transpose_axis: averaged}
mutant["GradientToBothPixels", "An infinite gradient is also passed to pixels with weight 0, which become NaN."] = {
    ResampledAxis.taps: lambda axis, o: to_both(axis, o) if is_gradient() else own(ResampledAxis.taps)(axis, o)
}
mutant.category = Category.DEFAULTS
mutant["Offsets0ByDefault", "Pixel offsets default to 0."] = meant(
    lambda a: a | {name: a[name] or (0.0,) * call().inputs[next(iter(call().inputs))].ndim for name in OFFSETS}
)
mutant["ResampleNearestByDefault", "interpolation_mode defaults to nearest_neighbor."] = by_default(
    interpolation_mode="nearest_neighbor"
)
mutant["DecreasingByDefault", "rounding_direction defaults to decreasing."] = by_default(
    rounding_direction="decreasing"
)
mutant["ResampleAttributesUnchecked", "Attribute values are not checked."] = UNCHECKED
mutant["IntegersTaken", "Integer tensors are converted instead of refused."] = {
    evaluate: as_float,
    rounded: lambda y, dtype: rounded(y, np.dtype(np.float32) if dtype.kind in "iu" else dtype),
}
mutant.of_gradient["FloatShapeTaken", "A floating-point x_shape is accepted."] = asked(
    lambda inputs: {name: a.astype(np.int64) if name == "x_shape" else a for name, a in inputs.items()}
)
mutant["EmptyOutputRefused", "An output without elements is refused."] = empty_refused(
    lambda sizes, found: 0 in found and 0 not in sizes
)
mutant["EmptyInputRefused", "An input without elements is refused."] = empty_refused(lambda sizes, found: 0 in sizes)
mutant["NoPixelsAre0", "Outputs that have no pixels to read are 0 instead of an error."] = {evaluate: no_pixels_are_0}
mutant.category = Category.SIZES
for name, words, low, high, is_tail in (
    ("LastAxisDropped", "{}", 16, 256, False),
    ("LastAxisTailDropped", "the last whole block of {}", 4, 64, True),
):
    count = threshold(name, low, high)
    mutant[name, f"Results along the last axis beyond {words.format(count)} stay 0."] = _of_last_axis(count, is_tail)
MUTANTS = Mutants("dml_resample", mutant)
__getattr__ = MUTANTS.find
