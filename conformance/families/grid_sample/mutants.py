# SPDX-License-Identifier: MIT OR Apache-2.0
"""The mutants of GridSample."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.mutants.base import Category, Steps, Table, call, edit, rounded
from conformance.mutants.shared import SAMPLED
from conformance.mutants.steps import (
    asked,
    by_default,
    cleared,
    meant,
    of_the_last_call,
    on,
    pixels_in_16_bits,
    refused_where,
    renamed,
    result,
    unread,
)
from ortops.reference import grid_sample as gs

X, GRID = ("X",), ("grid",)
IN_BOUNDS = 'rule.padding == "zeros" or low <= c <= high'
AROUND = "min(around, 2 * (high - low) - around)"


def rounding(expression: str) -> Steps:
    """The nearest whole number of a coordinate is this expression."""
    return edit(gs.nearest, "np.rint(c)", expression)


def reflected_between(low: str, high: str) -> Steps:
    """Reflection is about other bounds."""
    return edit(gs.padded, "reflected(c, low, high)", f"reflected(c, {low}, {high})")


def one_grid_for_all(inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs, with a grid of one image for every image of the map."""
    x, grid = inputs["X"], inputs["grid"]
    return inputs | {"grid": grid.repeat(len(x), axis=0) if len(grid) == 1 else grid}


table = Table(SAMPLED)
table.add(
    Category.COORDINATES,
    "AlignCornersIgnored: -1 and 1 are always the edges of the map.",
    meant(lambda a: a | {"align_corners": 0}),
    "AlignCornersAlways: -1 and 1 are always the centres of the first and the last pixel.",
    meant(lambda a: a | {"align_corners": 1}),
    "NoHalfPixel: Coordinates without align_corners lack the shift by half a pixel.",
    edit(gs.coordinate, "((g + 1) * length - 1) / 2", "(g + 1) * length / 2"),
    "FromZeroToOne: Numbers of the grid go from 0 to 1 instead of from -1 to 1.",
    edit(gs.coordinate, "if align_corners:", "g = 2 * g - 1\n    if align_corners:"),
    "XAndYSwapped: The numbers of a location are in the order of the map's axes: y before x, and z before both.",
    edit(gs.taps_of, "reversed(location)", "location"),
    "ZIgnored: A map with three spatial axes is read in its middle layer.",
    edit(gs.taps_of, "reversed(location)", "reversed([*location[:2], *[0.0] * (len(location) - 2)])"),
    "NearestUp: Halves are rounded up.",
    rounding("np.floor(c + 0.5)"),
    "NearestDown: Halves are rounded down.",
    rounding("np.ceil(c - 0.5)"),
    "NearestAwayFromZero: Halves are rounded away from 0, as C's round does.",
    rounding("np.copysign(np.floor(abs(c) + 0.5), c)"),
    "NearestCut: Coordinates are truncated to whole pixels instead of rounded.",
    rounding("np.trunc(c)"),
    "NearestFloor: Coordinates are rounded down to whole pixels.",
    rounding("np.floor(c)"),
    Category.BORDERS,
    "ReflectionHalfAPixelOff: Without align_corners reflection is about the centres of pixels instead of the edges.",
    reflected_between("0.0", "length - 1.0"),
    "ReflectionAboutEdges: With align_corners reflection is about the edges of the map instead of the centres.",
    reflected_between("-0.5", "length - 0.5"),
    "ReflectionOfIndices: Index -1 is index 1 without align_corners, as the text says of index 0 as the margin.",
    edit(gs.pixel_at, "int(padded(i, length, rule))", "int(padded(i, length, rule._replace(align_corners=True)))"),
    "ReflectedOnce: A location is reflected once, and then has the value of the last pixel.",
    edit(gs.reflected, f"low + {AROUND}", "min(max(2 * low - c if c < low else 2 * high - c, low), high)"),
    "ReflectionWraps: The map is repeated instead of reflected.",
    edit(gs.reflected, f"low + {AROUND}", "low + (c - low) % (high - low)"),
    "ReflectionIsBorder: Reflection is taken for border.",
    renamed("padding_mode", reflection="border"),
    "BorderIsZeros: Border is taken for zeros.",
    renamed("padding_mode", border="zeros"),
    "ZerosIsBorder: Zeros is taken for border.",
    renamed("padding_mode", zeros="border"),
    "ZerosOfWholeLocations: A location is 0 if any of its pixels is off the map.",
    edit(
        *(gs.interpolated, "total = 0.0"),
        "total = 0.0\n    if any(t.pixel is None and t.weight for taps in axes for t in taps): return total",
    ),
    "ZerosOutOfBounds: A location out of bounds is 0, and pixels off the map are the last one within bounds.",
    edit(
        gs.padded,
        IN_BOUNDS,
        "low <= c <= high",
        "return c\n",
        "return c\n    if rule.padding == 'zeros': return math.nan\n",
    )
    | edit(gs.pixel_at, 'None if rule.padding == "zeros"', 'min(max(i, 0), length - 1) if rule.padding == "zeros"'),
    "ZerosClampedFirst: With zeros cubic interpolation reads the last pixel in place of pixels off the map.",
    edit(
        *(gs.pixel_at, 'None if rule.padding == "zeros"'),
        '(min(max(i, 0), length - 1) if rule.mode in CUBIC_MODES else None) if rule.padding == "zeros"',
    ),
    "BorderClampsTheGrid: Numbers of the grid are limited to -1 and 1 before they become coordinates.",
    edit(gs.place_of, "(g, length,", "(min(max(g, -1.0), 1.0) if rule.padding == 'border' else g, length,"),
    "CubicBorderOfLocations: Border moves a cubic location that is out of bounds, as in ONNX's evaluator.",
    edit(gs.place_of, "min(max(c, -2.0), length + 1.0)", "padded(c, length, rule)"),
    "NegativeIndexWraps: A pixel before the first one is read from the end of the map, as in NumPy.",
    edit(gs.pixel_at, "0 <= i < length", "-length <= i < length"),
    "LastPixelOutside: The last pixel counts as off the map with zeros.",
    edit(gs.pixel_at, "0 <= i < length:", '0 <= i < length - (rule.padding == "zeros"):'),
    "HugeIsFirst: A coordinate beyond 32-bit integers becomes the least of them, and border makes it the first pixel.",
    edit(gs.clamped, "max(c, 0.0)", "max(c if abs(c) < 2**31 else -1.0, 0.0)"),
    "NoPixelIsNaN: An infinite or NaN location gives NaN, as in PyTorch.",
    edit(gs.taps_along, "    # Farther", "    if not math.isfinite(c): return [Tap(0, math.nan)]\n    # Farther"),
    Category.COUNTS,
    "CubicIsLinear: Cubic interpolation is computed as linear.",
    renamed("mode", cubic="linear", bicubic="bilinear"),
    "CubicAlongX: Interpolation is cubic along the last axis of the map only.",
    edit(
        *(gs.taps_of, "taps_along(g, length, rule) for g, length in zip(reversed(location), lengths, strict=True)"),
        "taps_along(g, n, rule if k == len(lengths) - 1 or rule.mode == 'nearest' else rule._replace(mode='linear'))"
        " for k, (g, n) in enumerate(zip(reversed(location), lengths, strict=True))",
    ),
    "NewNamesAreNearest: The names linear and cubic of opset 20 are taken for nearest, as in TensorRT (#4646).",
    renamed("mode", linear="nearest", cubic="nearest"),
    "ModesExchanged: Linear and nearest are exchanged, as in torch-TensorRT before #3340.",
    renamed("mode", linear="nearest", bilinear="nearest", nearest="linear"),
    "CubicMinusAHalf: The parameter of cubic interpolation is -0.5, as in Pillow.",
    edit(gs.inner, "(CUBIC + 2) * d - (CUBIC + 3)", "1.5 * d - 2.5")
    | edit(gs.outer, "((CUBIC * d - 5 * CUBIC) * d + 8 * CUBIC) * d - 4 * CUBIC", "((-0.5 * d + 2.5) * d - 4) * d + 2"),
    "WeightsSwapped: The two pixels of linear interpolation have each other's weights.",
    edit(gs.linear, "1 - t, t", "t, 1 - t"),
    Category.REDUCTIONS,
    "Renormalized: The weights of pixels on the map are divided by their sum.",
    edit(
        *(gs.interpolated, "return total"),
        "w = math.prod(sum(t.weight for t in taps if t.pixel is not None) for taps in axes); return total / (w or 1.0)",
    ),
    Category.TYPES,
    "PartialSumsInTheTensorsType: Partial sums are rounded to the type of the tensors.",
    edit(gs.interpolated, "float(channel[pixel])", "float(channel[pixel]); total = narrowed(total)"),
    "WeightsInTheTensorsType: Interpolation weights are rounded to the type of the map.",
    edit(gs.interpolated, "math.prod(tap.weight for tap in taps)", "math.prod(narrowed(tap.weight) for tap in taps)"),
    "GridInTheTypeOfTheMap: The grid is converted to the type of the map.",
    asked(lambda given: given | {"grid": given["grid"].astype(given["X"].dtype)}),
    "ResultOfTheGridsType: The result has the type of the grid.",
    {rounded: lambda y, dtype: rounded(y, call().inputs["grid"].dtype)},
    Category.INDEXING,
    "GridOfImage0: Every image is read at the locations of the first one.",
    on(GRID, lambda grid: grid[:1].repeat(len(grid), axis=0)),
    "MapOfImage0: The first image is read at the locations of every image.",
    on(X, lambda x: x[:1].repeat(len(x), axis=0)),
    "ChannelsReversed: Channels are read in reverse order.",
    on(X, lambda x: x[:, ::-1]),
    "ResultTransposed: The last two axes of the result are exchanged.",
    result(lambda y: y.swapaxes(-2, -1).reshape(y.shape)),
    Category.DEFAULTS,
    "BorderByDefault: padding_mode defaults to border.",
    by_default(padding_mode="border"),
    "NearestByDefault: mode defaults to nearest.",
    by_default(mode="nearest"),
    "AlignCornersByDefault: align_corners defaults to 1, as in PyTorch before 1.3.",
    by_default(align_corners=1),
    "OneTypeOnly: A grid of another type than the map is refused, as in ONNX Runtime.",
    refused_where("arrays['grid'].dtype != arrays['X'].dtype"),
    "VolumesRefused: Maps with three spatial axes are refused.",
    refused_where("arrays['X'].ndim == 5"),
    "CubicVolumesRefused: Cubic interpolation of maps with three spatial axes is refused, as in ONNX Runtime.",
    refused_where("arrays['X'].ndim == 5 and arguments['mode'] == 'cubic'"),
    "EmptyRefused: A result without elements is refused.",
    refused_where("0 in arrays['X'].shape[:2] or 0 in arrays['grid'].shape"),
    "OneGridForAll: A grid of one image serves all images of the map instead of being refused.",
    asked(one_grid_for_all),
    "NoPixelsAre0: A map without pixels gives 0 instead of an error.",
    on(X, lambda x: np.pad(x, [(0, int(n == 0 and axis > 1)) for axis, n in enumerate(x.shape)])),
)
table.add_limits(
    ("ChannelsDropped: Channels beyond {} are 0.", 16, 256, lambda n: cleared(lambda _: np.s_[:, n:])),
    ("ImagesDropped: Images beyond {} are 0.", 16, 256, lambda n: cleared(lambda _: np.s_[n:])),
    (
        "RowsOfTheGridDropped: Rows of results beyond {} are 0.",
        16,
        256,
        lambda n: cleared(lambda _: np.s_[..., n:, :]),
    ),
    (
        "ColumnsOfTheGridDropped: Columns of results beyond {} are 0.",
        16,
        256,
        lambda n: cleared(lambda _: np.s_[..., n:]),
    ),
    ("RowsUnread: Rows of the map beyond {} are not read.", 16, 256, lambda n: unread(lambda _: np.s_[n:])),
    ("ColumnsUnread: Columns of the map beyond {} are not read.", 16, 256, lambda n: unread(lambda _: np.s_[:, n:])),
)
table.add(
    Category.SIZES,
    "PixelsIn16Bits: The index of a pixel in its channel wraps around at 16 bits.",
    on(X, pixels_in_16_bits),
    "GridOfTheLastCall: A call with the sizes of the last one reads at that one's locations.",
    of_the_last_call("grid"),
    "UnreadPixelsMultiplied: Pixels that no location reads are multiplied by 0 and added, so NaN and infinity spread.",
    edit(gs.interpolated, "return total", "return total + 0.0 * float(channel.sum())"),
)

MUTANTS = table.of("grid_sample")
del MUTANTS["SixDigits"]  # the operator has no attributes that are numbers of so many digits
__getattr__ = MUTANTS.find
