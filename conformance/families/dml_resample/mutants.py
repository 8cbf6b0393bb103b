# SPDX-License-Identifier: MIT OR Apache-2.0
"""The mutants of DmlResample and its gradient."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from conformance.mutants.base import Array, Category, Steps, Table, call, edit, rounded
from conformance.mutants.shared import INTEGERS_TAKEN, SAMPLED
from conformance.mutants.steps import answered, asked, meant, refused_where, renamed
from ortops.reference.dml_resample import (
    ResampledAxis,
    along_each,
    dml_resample,
    output_lengths,
    resample_axis,
    resampled_axes,
    transpose_axis,
)

OFFSETS = ("input_pixel_offsets", "output_pixel_offsets")
BEYOND = "not 0 <= self.coordinate(o) <= self.length - 1"


def offsets(before: str, after: str) -> Steps:
    """The offsets of the input and of the output are these expressions."""
    return edit(ResampledAxis.coordinate, "self.output_pixel_offset", after, "- self.input_pixel_offset", f"- {before}")


def resized(axis: ResampledAxis, dy: Array) -> Array:
    """A gradient resized to the length of the input."""
    places = (np.arange(axis.length) + 0.5) * axis.size / axis.length - 0.5
    return dy[np.clip(np.floor(places + 0.5), 0, axis.size - 1).astype(np.int64)]


def smoothed(axis: ResampledAxis, x: Array) -> Array:
    """An axis resampled after neighbours are averaged, where it becomes shorter."""
    if axis.size < axis.length:
        places = np.arange(len(x))
        x = (x[np.maximum(places - 1, 0)] + 2 * x + x[np.minimum(places + 1, len(x) - 1)]) / 4
    return resample_axis(axis, x)


def of_last_axis(kept: Any) -> Steps:
    """Results along the last axis stay 0 but for the first ones; `kept` takes its length and returns their number."""
    return {rounded: lambda y, dtype: rounded(np.where(np.arange(y.shape[-1]) < kept(y.shape[-1]), y, 0), dtype)}


def of_the_first_call(*arguments: Any, **named: Any) -> list[ResampledAxis]:
    """The axes of a call with the scales of the session's first call where there are none."""
    axes = resampled_axes(*arguments, **named)
    ratios = call().memory.setdefault("ratios", [axis.size / axis.length for axis in axes])
    return [replace(axis, scale=axis.scale or ratio) for axis, ratio in zip(axes, ratios, strict=True)]


table = Table(SAMPLED)
table.add(
    Category.COORDINATES,
    "ResampleTieGoesDown: half_up rounds ties down instead of up.",
    edit(
        *(resampled_axes, "_ROUNDED[rounding_direction]"),
        "(lambda c: math.ceil(c - 0.5)) if rounding_direction == 'half_up' else _ROUNDED[rounding_direction]",
    ),
    "DirectionsExchanged: The rounding directions increasing and decreasing are exchanged.",
    renamed("rounding_direction", increasing="decreasing", decreasing="increasing"),
    "OffsetsIgnored: Pixel offsets are ignored and taken for 0.5 and -0.5.",
    offsets("0.5", "-0.5"),
    "InputOffsetOfTheOutput: input_pixel_offsets are subtracted before scaling, like output_pixel_offsets.",
    offsets("0.0", "(self.output_pixel_offset + self.input_pixel_offset)"),
    "RatioForScales: scales are ignored: the ratio of output length to input length is used.",
    edit(resampled_axes, "scales or [None]", "[None]"),
    "RatioOfTheFirstCall: Without scales, every call of a session has the ratios of the first one.",
    {resampled_axes: of_the_first_call},
    "RatioOfCorners: Without scales, corners are aligned: the first and last outputs are the first and last pixels.",
    edit(
        *(ResampledAxis.coordinate, "moved * self.length / self.size"),
        "moved * max(self.length - 1, 1) / max(self.size - 1, 1)",
    ),
    "LeadingAxesIgnored: Only the last two axes are resampled.",
    edit(
        *(resampled_axes, "[ResampledAxis(*values, rounded) for values in each]"),
        "[ResampledAxis(*(one if k >= rank - 2 else (*one[:2], 1.0, 0.0, 0.0)), rounded) for k, one in enumerate(each)]",
    ),
    "LinearIsNearest: interpolation_mode is ignored: everything is nearest_neighbor.",
    renamed("interpolation_mode", linear="nearest_neighbor"),
    Category.BORDERS,
    "EdgesNotClamped: Outputs beyond the edge are 0 instead of the edge pixel.",
    edit(ResampledAxis.taps, "clamped =", f"if {BEYOND}: return ()\n    clamped ="),
    "UnreadPixelsMultiplied: Pixels with weight 0 are multiplied too, so an infinite one gives NaN.",
    edit(ResampledAxis.taps, "return (Tap(low, 1.0),)", "return [Tap(low, 1.0), Tap(low, 0.0)][: 2 - is_gradient()]"),
    Category.COUNTS,
    "LengthRoundedUp: Output lengths are rounded up instead of down.",
    edit(output_lengths, "math.floor(length * scale)", "math.ceil(length * scale)"),
    Category.REDUCTIONS,
    "Antialiased: Downsampling is antialiased: neighbouring pixels are averaged.",
    {resample_axis: smoothed},
    Category.TYPES,
    "HalfSums: Sums are computed in the type of the tensors.",
    edit(resample_axis, "+= tap.weight * x[tap.pixel]", "= (y[o] + tap.weight * x[tap.pixel]).astype(call().dtype)")
    | edit(transpose_axis, "+= tap.weight * dy[o]", "= (dx[tap.pixel] + tap.weight * dy[o]).astype(call().dtype)"),
    "AxesInTheTensorsType: The result along each axis is rounded to the type of the tensors before the next axis.",
    edit(along_each, "step(axis, array)", "step(axis, array).astype(call().dtype).astype(np.float64)"),
    "ScalesInTheTensorsType: Scales are rounded to the type of the tensors.",
    edit(ResampledAxis.coordinate, "moved / self.scale", "moved / (narrowed(self.scale) or 1.0)"),
    Category.INDEXING,
    "FirstImageAlone: Results of tensors with four axes are those of the first image.",
    answered(lambda _, y: y[:1].repeat(len(y), 0) if y.ndim == 4 else y),
    "FourAxesAlone: Tensors without exactly four axes are refused, as in DirectML's first version.",
    refused_where("next(iter(arrays.values())).ndim != 4"),
    Category.GRADIENTS,
    "OffsetsSwappedInGradient: The gradient exchanges the input and output pixel offsets, as DirectML's operator does.",
    offsets(
        "(self.output_pixel_offset if is_gradient() else self.input_pixel_offset)",
        "(self.input_pixel_offset if is_gradient() else self.output_pixel_offset)",
    ),
    "ClampedGradientDropped: Outputs beyond an edge pass no gradient to the edge pixel.",
    edit(ResampledAxis.taps, "clamped =", f"if is_gradient() and {BEYOND}: return ()\n    clamped ="),
    "GradientByResampling: The gradient is resized to the input's length instead of multiplied by the transpose.",
    {transpose_axis: resized},
    "GradientToBothPixels: An infinite gradient is also passed to pixels with weight 0, which become NaN.",
    edit(ResampledAxis.taps, "return (Tap(low, 1.0),)", "return [Tap(low, 1.0), Tap(low, 0.0)][: 1 + is_gradient()]"),
    Category.DEFAULTS,
    "Offsets0ByDefault: Pixel offsets default to 0.",
    meant(lambda a: a | {name: a[name] or (0.0,) * next(iter(call().inputs.values())).ndim for name in OFFSETS}),
    "IntegersTaken: Integer tensors are converted instead of refused.",
    INTEGERS_TAKEN,
    "EmptyOutputRefused: An output without elements is refused.",
    edit(dml_resample, "if 0 in sizes:", "if 0 in sizes and x.size: raise ValueError\n    if 0 in sizes:"),
    "NoPixelsAre0: Outputs that have no pixels to read are 0 instead of an error.",
    edit(dml_resample, "if 0 in sizes:", "if 0 in sizes or x.size == 0:"),
    "FloatShapeTaken: A floating-point x_shape is accepted.",
    asked(lambda inputs: {name: a.astype(np.int64) if name == "x_shape" else a for name, a in inputs.items()}),
)
table.add_limits(
    ("LastAxisDropped: Results along the last axis beyond {} stay 0.", 16, 256, lambda n: of_last_axis(lambda _: n)),
    (
        "LastAxisTailDropped: Results along the last axis beyond the last whole block of {} stay 0.",
        *(4, 64, lambda n: of_last_axis(lambda length: max(length // n * n, min(length, n)))),
    ),
)
MUTANTS = table.of("dml_resample")
__getattr__ = MUTANTS.find
