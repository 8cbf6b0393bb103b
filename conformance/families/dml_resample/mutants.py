"""The mutants of DmlResample and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.mutants.base import Array, Category, Steps, Table, call, edit, rounded
from conformance.mutants.shared import INTEGERS_TAKEN, SAMPLED
from conformance.mutants.steps import (
    answered,
    asked,
    by_default,
    given,
    meant,
    refused_where,
    renamed,
    threshold,
)
from ortops.reference.dml_resample import (
    ResampledAxis,
    along_each,
    dml_resample,
    output_lengths,
    resample_axis,
    resampled_axes,
    transpose_axis,
)

LISTS = ("scales", "input_pixel_offsets", "output_pixel_offsets", "output_sizes")
OFFSETS = ("input_pixel_offsets", "output_pixel_offsets")
LENGTH = "math.floor(length * scale)"


def rounding(how: str) -> Steps:
    """What rounds a coordinate with nearest_neighbor is this expression."""
    return edit(resampled_axes, "_ROUNDED[rounding_direction]", how)


def half_up(how: str) -> Steps:
    """Where a coordinate is rounded to nearest, it is rounded by this function."""
    return rounding(f"({how} if rounding_direction == 'half_up' else _ROUNDED[rounding_direction])")


def offsets(before: str, after: str) -> Steps:
    """The offsets of the input and of the output are these expressions."""
    return edit(ResampledAxis.coordinate, "self.output_pixel_offset", after, "- self.input_pixel_offset", f"- {before}")


def beyond_edges(reads: str) -> Steps:
    """An output beyond an edge reads other pixels."""
    early = f"if not 0 <= self.coordinate(o) <= self.length - 1{reads}\n    clamped ="
    return edit(ResampledAxis.taps, "clamped =", early)


def coordinate_read(c: str) -> Steps:
    """The coordinate `c` that is clamped to the tensor is changed."""
    return edit(
        ResampledAxis.taps, "clamped = min(max(self.coordinate(o)", f"c = self.coordinate(o)\n    clamped = min(max({c}"
    )


def resized(axis: ResampledAxis, dy: Array) -> Array:
    """A gradient resized to the length of the input."""
    places = (np.arange(axis.length) + 0.5) * axis.size / axis.length - 0.5
    return dy[np.clip(np.floor(places + 0.5), 0, axis.size - 1).astype(np.int64)]


def averaged(axis: ResampledAxis, dy: Array) -> Array:
    """The transpose, divided by the sum of the weights of each pixel."""
    weights = transpose_axis(axis, np.ones(len(dy)))
    return transpose_axis(axis, dy) / np.maximum(weights, 1).reshape(-1, *[1] * (dy.ndim - 1))


def smoothed(axis: ResampledAxis, x: Array) -> Array:
    """An axis resampled after neighbours are averaged, where it becomes shorter."""
    if axis.size < axis.length:
        places = np.arange(len(x))
        x = (x[np.maximum(places - 1, 0)] + 2 * x + x[np.minimum(places + 1, len(x) - 1)]) / 4
    return resample_axis(axis, x)


def in_steps(axis: ResampledAxis, o: int) -> float:
    """A coordinate that float32 steps add up to."""
    steps = np.full(o + 1, axis.length / axis.size if axis.scale is None else 1 / axis.scale, np.float32)
    steps[0] = ResampledAxis.coordinate(axis, 0)
    return float(np.add.accumulate(steps)[-1])


def of_last_axis(kept: Any) -> Steps:
    """Results along the last axis stay 0 but for the first ones; `kept` takes its length and returns their number."""
    return {
        rounded: lambda y, dtype: rounded(np.where(np.arange(y.shape[-1]) < kept(y.shape[-1]), y, 0), dtype),
    }


count, block = threshold("LastAxisDropped", 16, 256), threshold("LastAxisTailDropped", 4, 64)

table = Table(SAMPLED)
table.add(
    Category.COORDINATES,
    "FloorForHalfUp: half_up always rounds down.",
    half_up("math.floor"),
    "ResampleTieGoesDown: half_up rounds ties down instead of up.",
    half_up("(lambda c: math.ceil(c - 0.5))"),
    "ResampleTieGoesToEven: half_up rounds ties to even instead of up.",
    half_up("round"),
    "DirectionsExchanged: The rounding directions increasing and decreasing are exchanged.",
    renamed("rounding_direction", increasing="decreasing", decreasing="increasing"),
    "DirectionIgnored: rounding_direction is ignored and taken for half_up.",
    meant(lambda a: a | {"rounding_direction": "half_up"}),
    "DirectionOfTiesAlone: rounding_direction is applied to ties only; elsewhere the nearest pixel is read.",
    rounding("(lambda c: math.ceil(c - 0.5) if rounding_direction == 'decreasing' else math.floor(c + 0.5))"),
    "DirectionOfLinear: With increasing and decreasing, linear interpolation reads a single pixel.",
    edit(resampled_axes, '== "nearest_neighbor"', '== "nearest_neighbor" or rounding_direction != "half_up"'),
    "ResampleInputOffsetAdded: input_pixel_offsets are added instead of subtracted.",
    offsets("-self.input_pixel_offset", "self.output_pixel_offset"),
    "ResampleOutputOffsetAdded: output_pixel_offsets are added instead of subtracted.",
    offsets("self.input_pixel_offset", "-self.output_pixel_offset"),
    "OffsetsIgnored: Pixel offsets are ignored and taken for 0.5 and -0.5.",
    offsets("0.5", "-0.5"),
    "OutputOffsetOfTheInput: output_pixel_offsets are subtracted after scaling, like input_pixel_offsets.",
    offsets("(self.input_pixel_offset + self.output_pixel_offset)", "0.0"),
    "InputOffsetOfTheOutput: input_pixel_offsets are subtracted before scaling, like output_pixel_offsets.",
    offsets("0.0", "(self.output_pixel_offset + self.input_pixel_offset)"),
    "LastOffsetsForAll: Every axis uses the pixel offsets of the last axis.",
    edit(
        *(resampled_axes, "input_pixel_offsets or [I", "list(input_pixel_offsets[-1:]) * rank or [I"),
        *("output_pixel_offsets or [O", "list(output_pixel_offsets[-1:]) * rank or [O"),
    ),
    "LastScaleForAll: Every axis uses the scale of the last axis.",
    edit(resampled_axes, "scales or", "list(scales[-1:]) * rank or"),
    "ScalesBackwards: scales are read in reverse order.",
    edit(resampled_axes, "scales or", "scales[::-1] or"),
    "RatioForScales: scales are ignored: the ratio of output length to input length is used.",
    edit(resampled_axes, "scales or [None]", "[None]"),
    "NoScalesIs1: The scales are 1 if none are given, instead of the ratio of the lengths.",
    edit(resampled_axes, "[None]", "[1.0]"),
    "RatioOfCorners: Without scales, corners are aligned: the first and last outputs are the first and last pixels.",
    edit(
        *(ResampledAxis.coordinate, "moved * self.length / self.size"),
        "moved * max(self.length - 1, 1) / max(self.size - 1, 1)",
    ),
    "LeadingAxesIgnored: Only the last two axes are resampled.",
    edit(
        *(resampled_axes, "[ResampledAxis(*one, rounded) for one in each]"),
        "[ResampledAxis(*(one if k >= rank - 2 else (*one[:2], 1.0, 0.0, 0.0)), rounded) for k, one in enumerate(each)]",
    ),
    "Scale1IsCopied: An axis with scale 1 is copied, and its pixel offsets are ignored.",
    edit(
        ResampledAxis.coordinate,
        "return scaled",
        "return o if (self.scale or self.size / self.length) == 1 else scaled",
    ),
    "LinearIsNearest: interpolation_mode is ignored: everything is nearest_neighbor.",
    renamed("interpolation_mode", linear="nearest_neighbor"),
    "NearestIsLinear: interpolation_mode is ignored: everything is linear.",
    renamed("interpolation_mode", nearest_neighbor="linear"),
)
table.add(
    Category.BORDERS,
    "EdgesNotClamped: Outputs beyond the edge are 0 instead of the edge pixel.",
    beyond_edges(": return ()"),
    "EdgesReflected: The tensor is mirrored beyond its edges instead of clamped.",
    coordinate_read("min(abs(c), 2 * (self.length - 1) - abs(c))"),
    "EdgesWrap: The tensor is repeated beyond its edges instead of clamped.",
    coordinate_read("c % self.length if c <= -1 or c >= self.length else c"),
    "UnreadPixelsMultiplied: Pixels with weight 0 are multiplied too, so an infinite one gives NaN.",
    edit(ResampledAxis.taps, "return (Tap(low, 1.0),)", "return [Tap(low, 1.0), Tap(low, 0.0)][: 2 - is_gradient()]"),
)
table.add(
    Category.COUNTS,
    "LengthRoundedUp: Output lengths are rounded up instead of down.",
    edit(output_lengths, LENGTH, "math.ceil(length * scale)"),
    "LengthRoundedToTheNearest: Output lengths are rounded to nearest instead of down.",
    edit(output_lengths, LENGTH, "math.floor(length * scale + 0.5)"),
    "LengthAtLeast1: Output lengths are at least 1.",
    edit(output_lengths, LENGTH, f"max({LENGTH}, 1)"),
    "SizesIgnored: output_sizes are ignored if scales are given.",
    meant(lambda a: a | {"output_sizes": ()} if a["scales"] else a),
)
table.add(
    Category.REDUCTIONS,
    "Antialiased: Downsampling is antialiased: neighbouring pixels are averaged.",
    {resample_axis: smoothed},
    "SharesExchanged: The weights of the two interpolated pixels are exchanged.",
    edit(ResampledAxis.taps, "f = clamped - low", "f = 1 - (clamped - low)"),
    "Smoothed: Interpolation weights follow a smooth curve instead of a line.",
    edit(ResampledAxis.taps, "f = clamped - low", "f = (clamped - low) ** 2 * (3 - 2 * (clamped - low))"),
)
table.add(
    Category.TYPES,
    "HalfSums: Sums are computed in the type of the tensors.",
    edit(resample_axis, "+= tap.weight * x[tap.pixel]", "= (y[o] + tap.weight * x[tap.pixel]).astype(call().dtype)")
    | edit(transpose_axis, "+= tap.weight * dy[o]", "= (dx[tap.pixel] + tap.weight * dy[o]).astype(call().dtype)"),
    "AxesInTheTensorsType: The result along each axis is rounded to the type of the tensors before the next axis.",
    edit(along_each, "step(axis, array)", "step(axis, array).astype(call().dtype).astype(np.float64)"),
    "ScalesInTheTensorsType: Scales are rounded to the type of the tensors.",
    edit(ResampledAxis.coordinate, "moved / self.scale", "moved / (narrowed(self.scale) or 1.0)"),
    "StepsAdded: Coordinates are accumulated in float32 steps.",
    {ResampledAxis.coordinate: in_steps},
)
table.add(
    Category.INDEXING,
    "FirstImageAlone: Results of tensors with four axes are those of the first image.",
    answered(lambda _, y: y[:1].repeat(len(y), 0) if y.ndim == 4 else y),
    "AxesReversed: All list attributes are read in reverse order.",
    given(lambda a: a | {name: list(a[name])[::-1] for name in LISTS if name in a}),
    "FourAxesAlone: Tensors without exactly four axes are refused, as in DirectML's first version.",
    refused_where("next(iter(arrays.values())).ndim != 4"),
)
table.add(
    Category.GRADIENTS,
    "OffsetsSwappedInGradient: The gradient exchanges the input and output pixel offsets, as DirectML's operator does.",
    offsets(
        "(self.output_pixel_offset if is_gradient() else self.input_pixel_offset)",
        "(self.input_pixel_offset if is_gradient() else self.output_pixel_offset)",
    ),
    "ScaleInvertedInGradient: The gradient takes scales for the scales from output to input.",
    edit(ResampledAxis.coordinate, "moved / self.scale", "moved * self.scale ** (1 if is_gradient() else -1)"),
    "GradientAssignedAtEdges: An output beyond an edge overwrites the gradient of the edge pixel.",
    edit(
        *(transpose_axis, "+= tap.weight * dy[o]"),
        "= tap.weight * dy[o] + dx[tap.pixel] * (0 <= axis.coordinate(o) <= axis.length - 1)",
    ),
    "ClampedGradientDropped: Outputs beyond an edge pass no gradient to the edge pixel.",
    beyond_edges(" and is_gradient(): return ()"),
    "GradientByResampling: The gradient is resized to the input's length instead of multiplied by the transpose.",
    {transpose_axis: resized},
    "GradientAveraged: The gradient of a pixel is the average over the outputs that read it instead of the sum.",
    {transpose_axis: averaged},
    "GradientToBothPixels: An infinite gradient is also passed to pixels with weight 0, which become NaN.",
    edit(ResampledAxis.taps, "return (Tap(low, 1.0),)", "return [Tap(low, 1.0), Tap(low, 0.0)][: 1 + is_gradient()]"),
)
table.add(
    Category.DEFAULTS,
    "Offsets0ByDefault: Pixel offsets default to 0.",
    meant(lambda a: a | {name: a[name] or (0.0,) * next(iter(call().inputs.values())).ndim for name in OFFSETS}),
    "ResampleNearestByDefault: interpolation_mode defaults to nearest_neighbor.",
    by_default(interpolation_mode="nearest_neighbor"),
    "DecreasingByDefault: rounding_direction defaults to decreasing.",
    by_default(rounding_direction="decreasing"),
    "IntegersTaken: Integer tensors are converted instead of refused.",
    INTEGERS_TAKEN,
    "EmptyOutputRefused: An output without elements is refused.",
    edit(dml_resample, "if 0 in sizes:", "if 0 in sizes and x.size: raise ValueError\n    if 0 in sizes:"),
    "EmptyInputRefused: An input without elements is refused.",
    edit(dml_resample, "if 0 in sizes:", "if not x.size: raise ValueError\n    if 0 in sizes:"),
    "NoPixelsAre0: Outputs that have no pixels to read are 0 instead of an error.",
    edit(dml_resample, "if 0 in sizes:", "if 0 in sizes or x.size == 0:"),
    "FloatShapeTaken: A floating-point x_shape is accepted.",
    asked(lambda inputs: {name: a.astype(np.int64) if name == "x_shape" else a for name, a in inputs.items()}),
)
table.add(
    Category.SIZES,
    f"LastAxisDropped: Results along the last axis beyond {count} stay 0.",
    of_last_axis(lambda n: count),
    f"LastAxisTailDropped: Results along the last axis beyond the last whole block of {block} stay 0.",
    of_last_axis(lambda n: max(n // block * block, min(n, block))),
)
MUTANTS = table.of("dml_resample")
__getattr__ = MUTANTS.find
