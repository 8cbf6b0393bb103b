# SPDX-License-Identifier: MIT OR Apache-2.0
"""The mutants of DmlRoiAlign and its gradient."""

from __future__ import annotations

import numpy as np

from conformance.mutants.base import Array, Category, Table, call, edit, is_gradient
from conformance.mutants.shared import (
    DX_NEEDS_X,
    OF_ENDS,
    OF_SAMPLES,
    OF_UPRIGHT,
    ROIS_ALONE,
    SAMPLED,
    border_of_regions,
    slope_after,
)
from conformance.mutants.steps import IMAGES, before_checks, by_default, given, meant, on, refused_where, renamed
from ortops.reference.dml_roi_align import RegionAxis, limited_samples, nearest_pixel, region_axes
from ortops.reference.roi_align import average, maximum, pool

LIMITS = ("minimum_samples_per_output", "maximum_samples_per_output")
LIMITED = "min(max(adaptive_samples(size, bins), minimum), maximum)"


def signed(images: Array) -> Array:
    """uint32 indices reinterpreted as int32, of which -1 is the last image; others unchanged."""
    if images.dtype != np.uint32:
        return images
    count, narrow = call().x_shape[0], images.astype(np.int32)
    return np.where((narrow < 0) & (narrow >= -count), narrow + count, narrow).astype(np.int64)


table = Table(SAMPLED, ROIS_ALONE, OF_SAMPLES, OF_ENDS, OF_UPRIGHT)
table.add(
    Category.COORDINATES,
    "RegionAtLeastOnePixel: Regions are at least one pixel wide and high, as with ONNX's output_half_pixel.",
    edit(region_axes, "= r1 * scale, r2 * scale", "= r1 * scale, max(r2 * scale, r1 * scale + 1.0)"),
    "InputOffsetIgnored: input_pixel_offset is ignored and taken for 0.5.",
    edit(RegionAxis.coordinate, "self.input_pixel_offset", "0.5"),
    "OutputOffsetIgnored: output_pixel_offset is ignored and taken for -0.5.",
    edit(RegionAxis.share, "- self.output_pixel_offset", "+ 0.5"),
    "CornersIgnored: align_regions_to_corners is ignored and taken for 0.",
    meant(lambda a: a | {"align_regions_to_corners": 0}),
    "ScaleXForBoth: spatial_scale_x is used for both axes.",
    meant(lambda a: a | {"spatial_scale_y": a["spatial_scale_x"]}),
    "TieGoesToEven: A sample halfway between two pixels reads the even one.",
    edit(nearest_pixel, "math.floor(c + 0.5)", "round(c)"),
    "NearestIsLinear: interpolation_mode is ignored: everything is linear.",
    renamed("interpolation_mode", nearest_neighbor="linear"),
    Category.BORDERS,
    "OutsideReplacesAll: An average with any sample outside the map is out_of_bounds_input_value.",
    edit(average, "return total", "return outside_value if bin_.outside is not None else total"),
    "OutsideNotCounted: Samples outside the map are left out of an average.",
    edit(
        *(average, "if outside > 0:", "if not bin_.inside:"),
        *("divisor_of(bin_)", "(bin_.total - outside * bool(bin_.inside))"),
    ),
    "OutsideIs0: out_of_bounds_input_value is ignored and taken for 0.",
    edit(
        *(pool, "average(bin_, channel, outside_value)", "average(bin_, channel, 0.0)"),
        *("maximum(mode, bin_, channel, outside_value)", "maximum(mode, bin_, channel, 0.0)"),
    ),
    "LengthOutside: A sample at exactly the map's length counts as outside.",
    border_of_regions("-1 < c < length"),
    "Minus1Inside: A sample at exactly -1 counts as inside, as in ONNX's RoiAlign.",
    border_of_regions("-1 <= c <= length"),
    Category.COUNTS,
    "MinimumIgnored: minimum_samples_per_output is ignored and taken for 1.",
    edit(limited_samples, LIMITED, "min(max(adaptive_samples(size, bins), 1), maximum)"),
    "MaximumIgnored: maximum_samples_per_output is ignored.",
    edit(limited_samples, LIMITED, "max(adaptive_samples(size, bins), minimum)"),
    "EmptyRegionIs0: An empty or inverted region gives 0, as with ONNX's adaptive sampling.",
    edit(limited_samples, LIMITED, f"0 if size <= 0 and minimum < maximum else {LIMITED}"),
    Category.REDUCTIONS,
    "MaxOfCorners: A maximum is taken over weighted corners, as in ONNX, instead of interpolated samples.",
    edit(maximum, "candidates_of(mode,", "candidates_of('max',"),
    Category.INDEXING,
    "RegionIndexSigned: uint32 indices are read as signed: the largest is -1, the last image.",
    on(IMAGES, signed),
    "FirstOfLeadingAxes: Regions and indices with leading axes are refused.",
    refused_where("arrays['ROITensor'].ndim != 2 or arrays['BatchIndicesTensor'].ndim != 1"),
    Category.GRADIENTS,
    "MapNotNeeded: A gradient that needs InputTensor takes zeros for it where it is missing, instead of refusing.",
    before_checks(
        "if operator.is_gradient: "
        "arrays.setdefault('InputTensor', np.zeros(tuple(arrays['x_shape']), arrays['InputGradientTensor'].dtype))"
    ),
    "DxNeedsX: dX of an average is refused unless X is given, though it does not need X.",
    DX_NEEDS_X,
    "WinnerAtMinus1Inside: In the gradient alone, a sample at exactly -1 counts as inside, as in ONNX's RoiAlign.",
    border_of_regions("-1.0 < c <= length or (c == -1 and is_gradient())"),
    "SlopeOnAPixel: In the gradient of regions, a sample on a pixel uses the slope of the cell after it, as in ONNX.",
    slope_after("True"),
    "NearestHasASlope: With nearest_neighbor, regions get the gradient of linear interpolation instead of 0.",
    meant(lambda a: a | {"interpolation_mode": "linear"} if is_gradient() else a),
    Category.DEFAULTS,
    "InputOffset0ByDefault: input_pixel_offset defaults to 0.",
    by_default(input_pixel_offset=0.0),
    "LimitsExchanged: A minimum_samples_per_output above the maximum is accepted, and the two are exchanged.",
    given(lambda a: a | dict(zip(LIMITS, sorted(a[name] for name in LIMITS), strict=True)) if {*LIMITS} <= {*a} else a),
)
MUTANTS = table.of("dml_roi_align")
__getattr__ = MUTANTS.find
