"""The mutants of RoiAlign and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.mutants.base import Array, Category, Steps, Table, call, edit, narrowed, rounded
from conformance.mutants.shared import (
    FLT_MAX,
    OF_ENDS,
    OF_ONNX,
    OF_SAMPLES,
    OF_UPRIGHT,
    ROIS_ALONE,
    SAMPLED,
    adaptive_of,
    all_channels,
    averaged,
    border,
    corrected,
    starting_at,
)
from conformance.mutants.steps import X, answered, by_default, given, meant, of_dx, on, refused_if, renamed, result
from ortops.reference.roi_align import candidates_of, maximum, pool_grad, terms_of
from ortops.reference.sampling import adaptive_samples, axes_of_roi, coordinate, size_of, taps

COORDINATE_MODE = "coordinate_transformation_mode"


def narrowed_if_short(value: float) -> float:
    """A number rounded to the type of the tensors if that has two bytes."""
    return float(narrowed(value)) if call().dtype.itemsize == 2 else value


def cut_off(y: Array, dtype: Any) -> Array:
    """A result of two bytes, rounded towards 0."""
    found = rounded(y, dtype)
    if dtype.itemsize != 2:
        return found
    is_beyond = np.abs(found.astype(np.float64)) > np.abs(y)
    return (found.view(np.uint16) - is_beyond.astype(np.uint16)).view(dtype)


def swapped_refused(own: str, other: str) -> Steps:
    """RoIs with swapped ends along one axis only are refused where sampling is adaptive."""
    is_adaptive = f"not sampling_ratio and {COORDINATE_MODE} == 'half_pixel'"
    refused = f"if {is_adaptive} and {own}[1] < {own}[0] and {other}[1] > {other}[0]: raise ValueError"
    return edit(axes_of_roi, "ends_y, ends_x = ends_of(roi)", f"ends_y, ends_x = ends_of(roi)\n    {refused}")


table = Table(SAMPLED, ROIS_ALONE, OF_SAMPLES, OF_ENDS, OF_UPRIGHT, OF_ONNX)
table.add(
    Category.COORDINATES,
    "StartAlone: half_pixel shifts the start of a RoI but not its end, so RoIs are half a pixel longer.",
    edit(size_of, "(size, True) if", "(size + 0.5, True) if"),
    "StartTruncated: The start of a RoI is rounded down to a whole pixel, as RoiPool does.",
    edit(axes_of_roi, "OnnxAxis(start,", "OnnxAxis(float(np.floor(start)),"),
)
table.add(
    Category.BORDERS,
    "SlackBelowMinus1: Samples up to 7e-5 below -1 count as inside the map, as in MindSpore.",
    border("-1 - 7e-05 <= c <= length"),
    "SlackPastL: Samples up to 7e-5 beyond the map's length count as inside, as in MindSpore.",
    border("-1 <= c <= length + 7e-05"),
    "CoordinatesClipped: RoIs are clipped to the map before they are sampled, as in ncnn's version 0.",
    edit(axes_of_roi, "ends_of(roi)", "ends_of(np.clip(roi, 0, np.tile(map_size[::-1], 2) / spatial_scale).tolist())"),
)
table.add(
    Category.COUNTS,
    "Ratio0OfTheUnraisedSize: The adaptive number of samples follows from the size before it is raised to 1.",
    adaptive_of("(r2 - r1) * spatial_scale"),
    "NegativeWidthRefused: With adaptive sampling, a RoI with swapped ends along x only is refused.",
    swapped_refused("ends_x", "ends_y"),
    "NegativeHeightRefused: With adaptive sampling, a RoI with swapped ends along y only is refused.",
    swapped_refused("ends_y", "ends_x"),
    "NegativeCountRefused: A RoI with swapped ends is refused where the sampling is adaptive, as in MXNet.",
    refused_if(adaptive_samples, lambda size, bins: size < 0),
    "Ratio0AtMostTheMap: There are at most as many adaptive samples as the map has pixels, as in torchvision.",
    edit(
        axes_of_roi,
        "samples_per_bin(size, bins,",
        "min(sampling_ratio or length, samples_per_bin(size, bins, 0)) or samples_per_bin(size, bins,",
    ),
)
table.add(
    Category.REDUCTIONS,
    "MaxTheOtherWay: max and max_interpolated are exchanged.",
    renamed("mode", max="max_interpolated", max_interpolated="max"),
    "MaxIsInterpolated: max is the maximum of interpolated samples, as in OpenVINO, instead of weighted corners.",
    renamed("mode", max="max_interpolated"),
    "InterpolatedIsMax: max_interpolated is the maximum of weighted corners, like max.",
    renamed("mode", max_interpolated="max"),
    "MaxOfPixels: max is the maximum of the corner pixels without their interpolation weights.",
    edit(
        *(candidates_of, "Candidate(value_of(channel, corners)", "Candidate(value_of(channel, read)"),
        *(
            "in choices:\n",
            "in choices:\n            read = [c._replace(weight=float(c.weight != 0)) for c in corners]\n",
        ),
        *("value_of(channel, read)", "value_of(channel, read if mode == 'max' else corners)"),
    ),
    "CornersFromMinus10000: A maximum of weighted corners starts at -10000, so lower values are lost.",
    starting_at(-10000.0, "max"),
    "InterpolatedFromZero: A maximum of interpolated samples starts at 0, so negative values are lost.",
    starting_at(0.0, "max_interpolated"),
    "CornersWithoutOutside: Samples outside are left out of a maximum of weighted corners, which starts at -65504.",
    edit(candidates_of, "outside = bin_.outside", "outside = None if mode == 'max' else bin_.outside")
    | edit(maximum, "0.0 if winner is None", "-65504.0 * (mode == 'max' and bin_.total > 0) if winner is None"),
    "ZeroWeightsSkipped: Corners of weight 0 are left out of a maximum instead of counting as 0.",
    edit(candidates_of, "for corner in sample.corners]", "for corner in sample.corners if corner.weight]"),
    "MaxOfNothingIsTheLeastNumber: The maximum over no samples is -65504, as with mmcv on the GPU.",
    edit(maximum, "0.0 if winner is None", "-65504.0 if winner is None"),
    "MaxOfNothingIsFltMax: The maximum over no samples is -FLT_MAX, the start value, as in MNN.",
    edit(maximum, "0.0 if winner is None", f"{-FLT_MAX} if winner is None"),
    "MaxOfMagnitudes: A maximum compares and returns absolute values.",
    edit(candidates_of, "value_of(channel, corners)", "abs(value_of(channel, corners))"),
    "MaxWithoutOutside: Samples outside the map are left out of a maximum instead of counting as 0.",
    edit(candidates_of, "outside = bin_.outside", "outside = None"),
    "MaxIsAverage: Every mode is computed as avg.",
    meant(lambda a: a | {"mode": "avg"}),
)
table.add(
    Category.TYPES,
    "BinsInTheTensorsType: The size of a bin is rounded to the type of the tensors.",
    edit(
        *(coordinate, "_bin_start(axis, p)", "axis.start"),
        *(
            "(i + 0.5) * axis.size / (axis.bins * axis.per_bin)",
            "(p + (i + 0.5) / axis.per_bin) * narrowed(axis.size / axis.bins)",
        ),
    ),
    "SumsInHalf: Partial sums are float16 whatever the type of the tensors.",
    averaged(lambda value: narrowed(value, np.float16)),
    "ShortSums: Partial sums of 16-bit tensors are rounded to their type, so long sums stop growing.",
    averaged(narrowed_if_short),
    "MapIn11Bits: The map of float tensors is rounded to 11 bits, as on accelerators that multiply less precisely.",
    on(X, lambda x: x.astype(np.float16).astype(x.dtype) if x.dtype == np.float32 else x),
    "ResultCutOff: float16 and bfloat16 results are truncated instead of rounded to nearest.",
    {rounded: cut_off},
)
table.add(
    Category.INDEXING,
    "ChannelsLast: X is read as [N, H, W, C].",
    on(X, lambda x: np.moveaxis(x.reshape(x.shape[0], *x.shape[2:], x.shape[1]), 3, 1)),
    "ResultChannelsLast: The result is written as [R, PH, PW, C].",
    result(lambda y: np.moveaxis(y, 1, 3).reshape(y.shape)),
    "WholeBlocksOfDx: dX of the channels after the last whole block of 16 stays 0.",
    of_dx(lambda dx: np.where(all_channels(dx, 16)[:, None, None], dx, 0.0)),
    "FirstImageAlone: Results of RoIs on any image but the first stay 0.",
    result(lambda y: np.where((call().inputs["batch_indices"] != 0)[:, None, None, None], 0, y)),
)
table.add(
    Category.GRADIENTS,
    "DxOfRatio0AtLeast1: The gradient, but not the forward operator, samples an empty RoI once.",
    edit(adaptive_samples, "max(0.0,", "max(float(is_gradient()),"),
    "TieShared: Equal candidates of a maximum share its gradient instead of the first taking it all.",
    edit(
        *(terms_of, "iy, ix = winner.sample.first"),
        "equal = [one for one in candidates_of(mode, bin_, channel, 0.0) if one.value == winner.value]",
        "[Term(1, winner.corners, [iy], [ix])]",
        "[Term(len(equal), one.corners, *[[k] for k in one.sample.first]) for one in equal if one.sample]",
    ),
    "WholeGradientToTheCorner: max passes the gradient to the winning corner without multiplying by its weight.",
    edit(
        *(
            terms_of,
            "Term(1, winner.corners, [iy], [ix])",
            "Term(1, whole if mode == 'max' else winner.corners, [iy], [ix])",
        ),
        *("iy, ix =", "whole = [c._replace(weight=float(c.weight != 0)) for c in winner.corners]\n    iy, ix ="),
    ),
    "WholeGradientToTheSample: max passes the gradient to all four pixels of the sample of the winning corner.",
    edit(terms_of, "Term(1, winner.corners,", "Term(1, winner.sample.corners,"),
    "WinnerAtMinus1Dropped: The gradient of a maximum whose sample lies at -1 is lost, as in mmcv.",
    border("-1.0 <= c <= length and not (c == -1 and is_gradient())"),
    "DroisOfTheStartAlone: drois of the end of a RoI, x2 and y2, is 0.",
    answered(lambda name, y: y * [1, 1, 0, 0] if name == "drois" else y),
    "DroisAreY1X1Y2X2: drois is written as y1, x1, y2 and x2.",
    answered(lambda name, y: y[:, [1, 0, 3, 2]] if name == "drois" else y),
    "DroisFromOutside: Samples outside the map contribute to drois.",
    border("-1.0 <= c <= length or (is_gradient() and math.isfinite(c))")
    | edit(
        *(taps, "if low == length - 1:"),
        "if is_gradient() and not -1 <= c <= length:\n        low = min(low, length - 2)\n"
        "        return Tap(low, 0.0, -1.0), Tap(low + 1, 0.0, 1.0)\n    if low == length - 1:",
    ),
    "DroisOfMaximaAre0: drois is 0 for the max modes.",
    edit(pool_grad, "if wanted[1]:", "if wanted[1] and mode == 'avg':"),
)
table.add(
    Category.DEFAULTS,
    "Opset10As16: Opset 10 uses half_pixel, as in MNN and in onnx's reference evaluator.",
    meant(lambda a: a | {COORDINATE_MODE: "half_pixel"} if call().operator.name.endswith("_10") else a),
    "Opset16As10: coordinate_transformation_mode defaults to output_half_pixel.",
    by_default(coordinate_transformation_mode="output_half_pixel"),
    "Opset22As10: Opsets other than 10 and 16 use output_half_pixel by default.",
    given(lambda a: {COORDINATE_MODE: "output_half_pixel"} | a if call().operator.name.endswith("_22") else a),
    "MaxByDefault: mode defaults to max.",
    by_default(mode="max"),
    "UnknownModeIsMax: An unknown mode is computed as max instead of refused.",
    corrected("mode", ("avg", "max", "max_interpolated"), "max"),
    "CaseOfModesIgnored: Modes in upper case are accepted, as in onnx's reference evaluator.",
    given(lambda a: {name: v.lower() if isinstance(v, str) else v for name, v in a.items()}),
    "UnknownCoordinatesAreOutputHalfPixel: An unknown coordinate mode means output_half_pixel, as in ONNX Runtime.",
    corrected(COORDINATE_MODE, ("half_pixel", "output_half_pixel"), "output_half_pixel"),
)
MUTANTS = table.of("roi_align")
__getattr__ = MUTANTS.find
