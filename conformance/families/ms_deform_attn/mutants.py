# SPDX-License-Identifier: MIT OR Apache-2.0
"""The mutants of multi-scale deformable attention and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.mutants.base import Category, Steps, Table, edit
from conformance.mutants.shared import SAMPLED
from conformance.mutants.steps import asked, on
from ortops.reference.ms_deform_attn import (
    coordinate,
    corners,
    levels_of,
    ms_deform_attn,
    ms_deform_attn_grad,
    taps,
)

BOTH = "float(location[0]), level.width), coordinate(float(location[1])"
AT = "fraction * length - 0.5"
LOCATIONS, WEIGHTS, STARTS = "sampling_locations", "attention_weights", "level_start_index"
_WRAPPED = "(height * width + 2**63) % 2**64 - 2**63"
_COVERED = "sum(level.height * level.width for level in levels) > pixels"
ON_MAP = "if 0 <= row < level.height and 0 <= column < level.width:"
FINITE = "math.isfinite(x) and math.isfinite(y)"
READ = "sample += corner.weight * value[n, corner.pixel, m]"
ADDED = "y[n, q, m] += attention_weights[n, q, m, level, p] * sample"
RESHAPED = "y.reshape(*y.shape[:2], heads * channels)"
SLOPES = "slopes = size.width * (g * along_x).sum(), size.height * (g * along_y).sum()"
TO_LOCATIONS = "weight * np.array(slopes)"
TO_VALUE = "+= weight * corner.weight * g"
TO_WEIGHTS = "= (g * sample).sum()"


def placed(new: str) -> Steps:
    """A coordinate is another expression of `fraction` and `length`."""
    return edit(coordinate, AT, new)


def of_weights(change: Any) -> Steps:
    """The weights are changed; `change` takes [N, Q, M, L * P]."""

    def changed(weights: Any) -> Any:
        if not weights.size:
            return weights
        flat = weights.reshape(*weights.shape[:3], -1).astype(np.float64)
        return change(flat).reshape(weights.shape).astype(weights.dtype)

    return on((WEIGHTS,), changed)


def softmax(weights: Any) -> Any:
    """Positive weights that add up to 1."""
    powers = np.exp(weights - weights.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def first(name: str, axis: int, count: int) -> Steps:
    """Only the first entries of an input along an axis are read, over and over."""
    return on((name,), lambda array: array.take(np.arange(array.shape[axis]) % count, axis) if array.size else array)


def without(name: str, axis: int, count: int) -> Steps:
    """The entries of an input from a number on, along an axis, are 0."""

    def kept(array: Any) -> Any:
        array = array.copy()
        array[(slice(None),) * axis + (slice(count, None),)] = 0
        return array

    return on((name,), kept)


table = Table(SAMPLED)
table.add(
    Category.COORDINATES,
    "XAndYSwapped: Locations are read as y, x.",
    edit(corners, BOTH, BOTH.translate(str.maketrans("01", "10"))),
    "HeightAndWidthSwapped: spatial_shapes is read as width, height.",
    edit(levels_of, "Level(height, width, start)", "Level(width, height, start)"),
    "CornersAligned: Fractions 0 and 1 are the centres of the first and the last pixel, as with align_corners.",
    placed("fraction * (length - 1)"),
    "NoHalfPixel: Coordinates are not shifted by half a pixel.",
    placed("fraction * length"),
    "HalfPixelAdded: Coordinates are shifted by half a pixel in the wrong direction.",
    placed("fraction * length + 0.5"),
    "MinusOneToOne: Locations are taken for the -1 to 1 of grid_sample.",
    placed("(fraction + 1) * length / 2 - 0.5"),
    "InPixels: Locations are taken for pixels.",
    placed("fraction - 0.5"),
    "NearestPixel: The nearest pixel is read instead of interpolating.",
    edit(taps, "first = math.floor(at)", "at = float(math.floor(at + 0.5))\n    first = math.floor(at)"),
    "SizeOfTheFirstLevel: Coordinates on every level have the size of the first.",
    edit(
        ms_deform_attn,
        "levels[level])",
        "levels[level]._replace(**levels[0]._asdict() | {'start': levels[level].start}))",
    ),
    Category.BORDERS,
    "CoordinatesClamped: Coordinates are clamped to the map, as with padding_mode border.",
    placed(f"min(max({AT}, 0.0), length - 1.0) if math.isfinite(fraction) else math.nan"),
    "PixelsClamped: Pixels off the map are those at its edge.",
    edit(
        corners,
        ON_MAP,
        "row, column = min(max(row, 0), level.height - 1), min(max(column, 0), level.width - 1)\n        if True:",
    ),
    "LocationsClamped: Locations are clamped to 0 and 1.",
    placed("min(max(fraction, 0.0), 1.0) * length - 0.5 if math.isfinite(fraction) else math.nan"),
    "Reflected: Coordinates beyond an edge are reflected.",
    placed(f"min(abs({AT} + 0.5) - 0.5, 2 * length - 0.5 - {AT} - 0.5) if math.isfinite(fraction) else math.nan"),
    "OffTheEdgeIs0: A point beyond the centre of an outermost pixel reads nothing.",
    edit(
        corners,
        f"if not ({FINITE}):",
        f"if not ({FINITE} and 0 <= y <= level.height - 1 and 0 <= x <= level.width - 1):",
    ),
    "ZeroExcluded: The first row and the first column are off the map.",
    edit(corners, "0 <= row", "0 < row", "0 <= column", "0 < column"),
    "RowsRunOn: Pixels beyond the end of a row are those of the next row.",
    edit(
        corners,
        "0 <= row < level.height and 0 <= column < level.width",
        "0 <= row * level.width + column < level.height * level.width",
    ),
    "NaNIsZero: A location that is NaN is taken for 0.",
    edit(
        corners,
        f"if not ({FINITE}):",
        "x, y = (0.0 if math.isnan(c) else c for c in (x, y))\n    if math.isinf(x) or math.isinf(y):",
    ),
    "NaNSampled: A location that is NaN or infinite gives NaN.",
    edit(
        ms_deform_attn,
        ADDED,
        f"{ADDED[:-6]}(sample if np.isfinite(sampling_locations[n, q, m, level, p]).all() else math.nan)",
    ),
    "ZeroWeightsSkipped: A pixel with weight 0 is not read, so a NaN there does not count.",
    edit(
        corners,
        "pixel = level.start",
        "if of_row * of_column == 0 and not is_gradient(): continue\n            pixel = level.start",
    ),
    "OffTheMapSkipped: The weight of a point off the map is not read, so a NaN there does not count.",
    edit(ms_deform_attn, ADDED, f"if sample.any(): {ADDED}"),
    Category.COUNTS,
    "MeanOfPoints: The mean over points is taken instead of the sum.",
    edit(ms_deform_attn, RESHAPED, f"{RESHAPED} / max(math.prod(attention_weights.shape[3:]), 1)"),
    "MeanOfLevels: The mean over levels is taken instead of the sum.",
    edit(ms_deform_attn, RESHAPED, f"{RESHAPED} / max(len(levels), 1)"),
    Category.REDUCTIONS,
    "SoftmaxedAgain: Weights are normalised by a softmax over levels and points.",
    of_weights(softmax),
    "Normalised: Weights are divided by their sum.",
    of_weights(lambda w: w / w.sum(-1, keepdims=True)),
    "LastPointAlone: The last point replaces the sum.",
    edit(
        ms_deform_attn,
        "+= attention_weights[n, q, m, level, p] * sample",
        "= attention_weights[n, q, m, level, p] * sample",
    ),
    "WeightsOnPixels: Weights multiply pixels and not samples, so an infinite one meets a weight 0.",
    edit(
        *(
            ms_deform_attn,
            READ,
            "sample += attention_weights[n, q, m, level, p] * corner.weight * value[n, corner.pixel, m]",
        ),
        *("attention_weights[n, q, m, level, p] * sample", "sample"),
    ),
    "WeightsIgnored: All weights are 1.",
    edit(ms_deform_attn, "attention_weights[n, q, m, level, p] * sample", "sample"),
    Category.TYPES,
    "WeightsInTheTensorsType: Interpolation weights are rounded to the type of the tensors.",
    edit(
        taps, "first + 1 - at, -1.0", "narrowed(first + 1 - at), -1.0", "at - first, 1.0", "narrowed(at - first), 1.0"
    ),
    "SumsInTheTensorsType: Sums are rounded to the type of the tensors after each point.",
    edit(ms_deform_attn, ADDED, f"{ADDED}; y[n, q, m] = y[n, q, m].astype(call().dtype)"),
    "DvalueInTheTensorsType: dvalue is summed in the type of the tensors.",
    edit(
        ms_deform_attn_grad,
        TO_VALUE,
        f"{TO_VALUE}; dvalue[n, corner.pixel, m] = dvalue[n, corner.pixel, m].astype(call().dtype)",
    ),
    Category.INDEXING,
    "StartsIgnored: level_start_index is ignored: levels follow each other.",
    edit(levels_of, "end if level_start_index is None else int(level_start_index[i])", "end"),
    "StartsNeeded: Without level_start_index, all levels begin at the first pixel.",
    edit(levels_of, "end if level_start_index", "0 if level_start_index", "and end != pixels", "and False"),
    "StartsInOrder: level_start_index is sorted.",
    on((STARTS,), np.sort),
    "FirstLevelAlone: All levels read the first level's pixels.",
    edit(ms_deform_attn, "levels[level])", "levels[0])"),
    "LevelsAndPointsSwapped: Locations are ordered by points and then levels.",
    on((LOCATIONS,), lambda a: a.swapaxes(3, 4).reshape(a.shape) if a.ndim == 6 else a),
    "WeightsByPoints: Weights are ordered by points and then levels.",
    on((WEIGHTS,), lambda a: a.swapaxes(3, 4).reshape(a.shape) if a.ndim == 5 else a),
    "ChannelsOutermost: Y has channel 0 of all heads first.",
    edit(ms_deform_attn, RESHAPED, RESHAPED.replace("y.reshape", "y.swapaxes(2, 3).reshape")),
    "HeadsInterleaved: Pixels have channel 0 of all heads first.",
    edit(ms_deform_attn, "value[n, corner.pixel, m]", "value[n, corner.pixel].T.reshape(heads, channels)[m]"),
    "HeadsAlike: All heads read the pixels of the first.",
    edit(ms_deform_attn, "value[n, corner.pixel, m]", "value[n, corner.pixel, 0]"),
    "LocationsOfTheFirstHead: All heads have the locations of the first.",
    first(LOCATIONS, 2, 1),
    "WeightsOfTheFirstHead: All heads have the weights of the first.",
    first(WEIGHTS, 2, 1),
    "LocationsOfTheFirstImage: All images have the locations of the first.",
    first(LOCATIONS, 0, 1),
    "WeightsOfTheFirstImage: All images have the weights of the first.",
    first(WEIGHTS, 0, 1),
    "ValueOfTheFirstImage: All images have the pixels of the first.",
    first("value", 0, 1),
    "LocationsOfTheFirstQuery: All queries have the locations of the first.",
    first(LOCATIONS, 1, 1),
    "Columns: Pixels of a level are ordered by columns.",
    edit(corners, "row * level.width + column", "column * level.height + row"),
    Category.GRADIENTS,
    "DlocationsInPixels: dlocations lacks the factors W and H.",
    edit(ms_deform_attn_grad, SLOPES, "slopes = (g * along_x).sum(), (g * along_y).sum()"),
    "DlocationsSwapped: dlocations is y, x.",
    edit(ms_deform_attn_grad, TO_LOCATIONS, f"{TO_LOCATIONS}[::-1]"),
    "DlocationsOfTheOtherSide: dlocations has the factor H along x, and W along y.",
    edit(ms_deform_attn_grad, SLOPES, "slopes = size.height * (g * along_x).sum(), size.width * (g * along_y).sum()"),
    "DlocationsWithoutWeight: dlocations lacks the factor of the weight.",
    edit(ms_deform_attn_grad, TO_LOCATIONS, "np.array(slopes)"),
    "DlocationsAre0: dlocations is 0.",
    edit(ms_deform_attn_grad, TO_LOCATIONS, "0.0"),
    "SlopeToTheLeft: On a pixel, dlocations is the slope to the left and upwards.",
    edit(taps, "first = math.floor(at)", "first = math.ceil(at) - 1 if is_gradient() else math.floor(at)"),
    "DvalueWithoutWeight: dvalue lacks the factor of the weight.",
    edit(ms_deform_attn_grad, TO_VALUE, "+= corner.weight * g"),
    "DvalueOfTheLastPoint: A pixel gets the gradient of the last point that reads it, not the sum.",
    edit(ms_deform_attn_grad, TO_VALUE, "= weight * corner.weight * g"),
    "DvalueToTheNearest: The whole gradient of a point goes to the pixel before it.",
    edit(ms_deform_attn_grad, TO_VALUE, "+= weight * (corner is read[0]) * g"),
    "DweightsWithWeight: dweights has the weight as a factor.",
    edit(ms_deform_attn_grad, TO_WEIGHTS, "= weight * (g * sample).sum()"),
    "DweightsOfAMean: dweights is the mean over channels instead of the sum.",
    edit(ms_deform_attn_grad, TO_WEIGHTS, "= (g * sample).mean() if channels else 0.0"),
    "DyByChannels: dY has channel 0 of all heads first.",
    edit(
        ms_deform_attn_grad,
        "dy.reshape(images, dy.shape[1], heads, channels)",
        "dy.reshape(images, dy.shape[1], channels, heads).swapaxes(2, 3)",
    ),
    Category.DEFAULTS,
    "SizesUnchecked: Heights and widths below 1 are taken.",
    edit(levels_of, "if min(height, width) < 1:", "if False:"),
    "LevelsUnchecked: Levels beyond the pixels of value are moved to its start.",
    edit(
        levels_of,
        "if start < 0 or end > pixels:",
        "if start < 0 or end > pixels: start, height, width = 0, 1, 1\n        if False:",
    ),
    "RestIgnored: Without level_start_index, pixels after the last level are ignored.",
    edit(levels_of, "and end != pixels", "and end > pixels"),
    "WrappedSizes: The pixels of a level are counted in 64 bits, which wrap.",
    edit(levels_of, "end = start + height * width", f"end = start + {_WRAPPED}", _COVERED, "False"),
    "OverlapsNotCounted: Levels that overlap may have more pixels than value.",
    edit(levels_of, _COVERED, "False"),
    "LevelsCounted: Levels of locations beyond those of spatial_shapes are ignored.",
    asked(lambda given: given | {n: given[n][:, :, :, : len(given["spatial_shapes"])] for n in (LOCATIONS, WEIGHTS)}),
    "NoPointsRefused: A call without points is refused.",
    edit(
        levels_of,
        "end, levels = value.shape[1], 0, []",
        "end, levels = value.shape[1], 0, []\n    if call().inputs['attention_weights'].size == 0: raise ValueError",
    ),
)
table.add_limits(
    ("PointsDropped: Points beyond {} of a level are ignored.", 8, 32, lambda n: without(WEIGHTS, 4, n)),
    ("QueriesDropped: Weights of queries beyond {} count as 0.", 32, 256, lambda n: without(WEIGHTS, 1, n)),
    ("ChannelsOfAnotherBlock: Channels beyond {0} repeat those {0} earlier.", 16, 64, lambda n: first("value", 3, n)),
)
MUTANTS = table.of("ms_deform_attn")
for name in ("SixDigits", "AttributesUnchecked"):  # the operator has no attributes
    del MUTANTS[name]
__getattr__ = MUTANTS.find
