# SPDX-License-Identifier: MIT OR Apache-2.0
"""The mutants of RoiAlign and its gradient."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from conformance.mutants.base import Array, Category, Table, call, edit, rounded
from conformance.mutants.shared import (
    FLT_MAX,
    OF_ENDS,
    OF_ONNX,
    OF_SAMPLES,
    OF_UPRIGHT,
    ROIS_ALONE,
    SAMPLED,
    border,
    in_blocks,
)
from conformance.mutants.steps import X, answered, by_default, given, meant, of_dx, on, refused_if, renamed
from ortops.reference.roi_align import candidates_of, maximum, pool_grad, terms_of
from ortops.reference.sampling import adaptive_samples, axes_of_roi, is_inside, points_inside

COORDINATE_MODE = "coordinate_transformation_mode"


def cut_off(y: Array, dtype: Any) -> Array:
    """A result of two bytes, rounded towards 0."""
    nearest = rounded(y, dtype)
    if dtype.itemsize != 2:
        return nearest
    is_beyond = np.abs(nearest.astype(np.float64)) > np.abs(y)
    return (nearest.view(np.uint16) - is_beyond.astype(np.uint16)).view(dtype)


def is_wide_bfloat16() -> bool:
    """Whether the call is about bfloat16 tensors with more than 32 channels."""
    return call().dtype == ml_dtypes.bfloat16 and call().x_shape[1] > 32


table = Table(SAMPLED, ROIS_ALONE, OF_SAMPLES, OF_ENDS, OF_UPRIGHT, OF_ONNX)
table.add(
    Category.COORDINATES,
    "StartTruncated: The start of a RoI is rounded down to a whole pixel, as RoiPool does.",
    edit(axes_of_roi, "OnnxAxis(start,", "OnnxAxis(float(np.floor(start)),"),
    Category.BORDERS,
    "TorchvisionsFallback: Samples off the map read its edge, and of a bin's adaptive samples along an axis only as many as "
    "the map has pixels are read, as in torchvision's Python code and its copies in keras-hub and for MLX.",
    edit(axes_of_roi, "ends_y, ends_x", 'call().memory["is_adaptive"] = not sampling_ratio; ends_y, ends_x')
    | edit(is_inside, "-1.0 <= c <= length", "math.isfinite(c)")
    | edit(
        *(points_inside, "in candidate_indices(axis, p))"),
        'in candidate_indices(axis, p) if i < axis.length or not call().memory["is_adaptive"])',
    ),
    "SlackBelowMinus1: Samples up to 7e-5 below -1 count as inside the map, as in MindSpore.",
    border("-1 - 7e-05 <= c <= length"),
    "SlackPastL: Samples up to 7e-5 beyond the map's length count as inside, as in MindSpore.",
    border("-1 <= c <= length + 7e-05"),
    "CoordinatesClipped: RoIs are clipped to the map before they are sampled, as in ncnn's version 0.",
    edit(axes_of_roi, "ends_of(roi)", "ends_of(np.clip(roi, 0, np.tile(map_size[::-1], 2) / spatial_scale).tolist())"),
    Category.COUNTS,
    "Ratio0OfTheUnraisedSize: The adaptive number of samples follows from the size before it is raised to 1.",
    edit(axes_of_roi, "samples_per_bin(size,", "samples_per_bin((r2 - r1) * spatial_scale,"),
    "NegativeCountRefused: A RoI with swapped ends is refused where the sampling is adaptive, as in MXNet.",
    refused_if(adaptive_samples, lambda size, bins: size < 0),
    "Ratio0AtMostTheMap: There are at most as many adaptive samples as the map has pixels, as in torchvision.",
    edit(
        axes_of_roi,
        "samples_per_bin(size, bins,",
        "min(sampling_ratio or length, samples_per_bin(size, bins, 0)) or samples_per_bin(size, bins,",
    ),
    Category.REDUCTIONS,
    "MaxIsInterpolated: max is the maximum of interpolated samples, as in OpenVINO, instead of weighted corners.",
    renamed("mode", max="max_interpolated"),
    "InterpolatedIsMax: max_interpolated is the maximum of weighted corners, like max.",
    renamed("mode", max_interpolated="max"),
    "ZeroWeightsSkipped: Corners of weight 0 are left out of a maximum instead of counting as 0.",
    edit(candidates_of, "for corner in sample.corners]", "for corner in sample.corners if corner.weight]"),
    "MaxOfNothingIsTheLeastNumber: The maximum over no samples is -65504, as with mmcv on the GPU.",
    edit(maximum, "0.0 if winner is None", "-65504.0 if winner is None"),
    "MaxOfNothingIsFltMax: The maximum over no samples is -FLT_MAX, the start value, as in MNN.",
    edit(maximum, "0.0 if winner is None", f"{-FLT_MAX} if winner is None"),
    "MaxWithoutOutside: Samples outside the map are left out of a maximum instead of counting as 0.",
    edit(candidates_of, "outside = bin_.outside", "outside = None"),
    "MaxIsAverage: Every mode is computed as avg.",
    meant(lambda a: a | {"mode": "avg"}),
    Category.TYPES,
    "MapIn11Bits: The map of float tensors is rounded to 11 bits, as on accelerators that multiply less precisely.",
    on(X, lambda x: x.astype(np.float16).astype(x.dtype) if x.dtype == np.float32 else x),
    "BFloat16OfManyChannelsOff: Averages of bfloat16 tensors with more than 32 channels are too large by 1/64.",
    answered(lambda name, y: y * (1 + 2**-6) if name == "Y" and is_wide_bfloat16() else y),
    "ResultCutOff: float16 and bfloat16 results are truncated instead of rounded to nearest.",
    {rounded: cut_off},
    Category.INDEXING,
    "ChannelsLast: X is read as [N, H, W, C].",
    on(X, lambda x: np.moveaxis(x.reshape(x.shape[0], *x.shape[2:], x.shape[1]), 3, 1)),
    "WholeBlocksOfDx: dX of the channels after the last whole block of 16 stays 0.",
    of_dx(lambda dx: np.where(np.arange(dx.shape[1])[:, None, None] < in_blocks(dx.shape[1], 16), dx, 0.0)),
    Category.GRADIENTS,
    "DxOfRatio0AtLeast1: The gradient, but not the forward operator, samples an empty RoI once.",
    edit(adaptive_samples, "max(0.0,", "max(float(is_gradient()),"),
    "WholeGradientToTheSample: max passes the gradient to all four pixels of the sample of the winning corner.",
    edit(terms_of, "Term(1, winner.corners,", "Term(1, winner.sample.corners,"),
    "WinnerAtMinus1Dropped: The gradient of a maximum whose sample lies at -1 is lost, as in mmcv.",
    border("-1.0 <= c <= length and not (c == -1 and is_gradient())"),
    "DroisAreY1X1Y2X2: drois is written as y1, x1, y2 and x2.",
    answered(lambda name, y: y[:, [1, 0, 3, 2]] if name == "drois" else y),
    "DroisOfMaximaAre0: drois is 0 for the max modes.",
    edit(pool_grad, "if wanted[1]:", "if wanted[1] and mode == 'avg':"),
    Category.DEFAULTS,
    "Opset10As16: Opset 10 uses half_pixel, as in MNN and in onnx's reference evaluator.",
    meant(lambda a: a | {COORDINATE_MODE: "half_pixel"} if call().operator.name.endswith("_10") else a),
    "CoordinateModeIgnored: coordinate_transformation_mode is ignored: every RoI is placed as by output_half_pixel.",
    meant(lambda a: a | {COORDINATE_MODE: "output_half_pixel"}),
    "Opset16As10: coordinate_transformation_mode defaults to output_half_pixel.",
    by_default(coordinate_transformation_mode="output_half_pixel"),
    "Opset22As10: Opsets other than 10 and 16 use output_half_pixel by default.",
    given(lambda a: {COORDINATE_MODE: "output_half_pixel"} | a if call().operator.name.endswith("_22") else a),
    "CaseOfModesIgnored: Modes in upper case are accepted, as in onnx's reference evaluator.",
    given(lambda a: {name: v.lower() if isinstance(v, str) else v for name, v in a.items()}),
    "UnknownCoordinatesAreOutputHalfPixel: An unknown coordinate mode means output_half_pixel, as in ONNX Runtime.",
    given(
        lambda a: (
            a | ({COORDINATE_MODE: "output_half_pixel"} if a.get(COORDINATE_MODE, "half_pixel") != "half_pixel" else {})
        )
    ),
)
MUTANTS = table.of("roi_align")
__getattr__ = MUTANTS.find
