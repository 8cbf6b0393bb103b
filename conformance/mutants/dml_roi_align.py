"""The mutants of DmlRoiAlign and its gradient."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from conformance.mutants.base import Array, Category, Mutants, Steps, Table, call, is_gradient
from conformance.mutants.roi_align import dividing, inside_alone
from conformance.mutants.shared import (
    DX_NEEDS_X,
    EVERY_SAMPLE,
    OF_UPRIGHT,
    UNCHECKED,
    border,
)
from conformance.mutants.steps import IMAGES, asked, by_default, given, meant, on, renamed
from ortops.reference import evaluate
from ortops.reference.dml_roi_align import RegionAxis, limited_samples, nearest_pixel, region_axes
from ortops.reference.roi_align import average, divisor_of, maximum
from ortops.reference.sampling import is_inside, taps

LIMITS = ("minimum_samples_per_output", "maximum_samples_per_output")


def axis_with(change: Any) -> Steps:
    """Both axes of a region are changed, before their samples are placed."""

    def replaced(*a: Any, **settings: Any) -> Any:
        axes_of = region_axes(*a, **settings)
        return lambda roi: tuple(map(change, axes_of(roi)))

    return {region_axes: replaced, **EVERY_SAMPLE}


def without_outside(bin_: Any, channel: Any, outside_value: float) -> float:
    """The mean of the samples inside the map; the value of those outside if there are no others."""
    count = sum(sample.repeats for sample in bin_.inside)
    return average(bin_._replace(total=count), channel, 0.0) if count else outside_value


def least_size(axis: RegionAxis) -> RegionAxis:
    """An axis of at least one pixel."""
    last = max(axis.last, axis.first + 1.0)
    return dataclasses.replace(axis, last=last)


def sampled_as_raised(samples: Any) -> Any:
    """The number of samples of a region of at least one pixel."""
    return lambda size, bins, *limits: samples(max(size, 1.0), bins, *limits)


def signed(images: Array) -> Array:
    """uint32 indices reinterpreted as int32, of which -1 is the last image; others unchanged."""
    if images.dtype != np.uint32:
        return images
    count, made = call().x_shape[0], images.astype(np.int32)
    return np.where((made < 0) & (made >= -count), made + count, made).astype(np.int64)


def no_leading_axes(operator: Any, inputs: Any, attributes: Any, wanted: Any) -> Any:
    """The outputs; refused if regions or indices have leading axes."""
    arrays = dict(zip((t.name for t in operator.inputs), inputs, strict=False))
    if arrays["ROITensor"].ndim != 2 or arrays["BatchIndicesTensor"].ndim != 1:
        raise ValueError("leading axes")
    return evaluate(operator, inputs, attributes, wanted)


def of_nothing_flat(inputs: dict[str, Array]) -> dict[str, Array]:
    """Regions and indices without leading axes, where there are none."""
    if inputs["ROITensor"].size or inputs["BatchIndicesTensor"].size:
        return inputs
    return inputs | {
        "ROITensor": np.zeros((0, 4), inputs["ROITensor"].dtype),
        "BatchIndicesTensor": inputs["BatchIndicesTensor"].reshape(-1),
    }


def map_of_zeros(operator: Any, inputs: Any, attributes: Any, wanted: Any) -> Any:
    """The outputs, where a missing map is taken for zeros."""
    if operator.is_gradient and (len(inputs) < len(operator.inputs) or inputs[-1] is None):
        inputs = [*inputs[: len(operator.inputs) - 1], np.zeros(tuple(inputs[3]), inputs[0].dtype)]
    return evaluate(operator, inputs, attributes, wanted)


class Nearest(int):
    """The length of a map that is read by the nearest pixel."""


mutant = Table(OF_UPRIGHT)
mutant.category = Category.COORDINATES
mutant["RegionAtLeastOnePixel", "Regions are at least one pixel wide and high, as with ONNX's output_half_pixel."] = {
    **axis_with(least_size),
    limited_samples: sampled_as_raised(limited_samples),
}
mutant["InputOffsetAdded", "input_pixel_offset is added instead of subtracted."] = meant(
    lambda a: a | {"input_pixel_offset": -a["input_pixel_offset"]}
)
mutant["InputOffsetIgnored", "input_pixel_offset is ignored and taken for 0.5."] = meant(
    lambda a: a | {"input_pixel_offset": 0.5}
)
mutant["InputOffsetScaled", "input_pixel_offset is subtracted before scaling instead of after it."] = axis_with(
    lambda axis: dataclasses.replace(axis, input_pixel_offset=axis.input_pixel_offset * axis.scale)
)
for name, attribute in (("InputOffset", "input_pixel_offset"), ("OutputOffset", "output_pixel_offset")):
    mutant[f"{name}AtMost1", f"{attribute} is limited to 1."] = meant(
        lambda a, attribute=attribute: a | {attribute: min(a[attribute], 1.0)}
    )
mutant["OutputOffsetAdded", "output_pixel_offset is added instead of subtracted."] = meant(
    lambda a: a | {"output_pixel_offset": -a["output_pixel_offset"]}
)
mutant["OutputOffsetIgnored", "output_pixel_offset is ignored and taken for -0.5."] = meant(
    lambda a: a | {"output_pixel_offset": -0.5}
)
mutant["OutputOffsetInPixels", "output_pixel_offset counts in pixels of the map instead of samples."] = meant(
    lambda a: a | {"output_pixel_offset": 0.0, "input_pixel_offset": a["input_pixel_offset"] + a["output_pixel_offset"]}
)
for name, value in (("CornersIgnored", 0), ("CornersAlways", 1)):
    mutant[name, f"align_regions_to_corners is ignored and taken for {value}."] = meant(
        lambda a, value=value: a | {"align_regions_to_corners": value}
    )
mutant["ScalesExchanged", "spatial_scale_x and spatial_scale_y are exchanged."] = meant(
    lambda a: a | {"spatial_scale_x": a["spatial_scale_y"], "spatial_scale_y": a["spatial_scale_x"]}
)
mutant["ScaleXForBoth", "spatial_scale_x is used for both axes."] = meant(
    lambda a: a | {"spatial_scale_y": a["spatial_scale_x"]}
)
mutant["TieGoesDown", "A sample halfway between two pixels reads the one before it instead of after it."] = {
    nearest_pixel: lambda c: math.ceil(c - 0.5)
}
mutant["TieGoesToEven", "A sample halfway between two pixels reads the even one."] = {nearest_pixel: round}
mutant["NearestTruncated", "nearest_neighbor rounds coordinates down instead of to nearest."] = {
    nearest_pixel: math.floor
}
mutant["NearestIsLinear", "interpolation_mode is ignored: everything is linear."] = renamed(
    "interpolation_mode", nearest_neighbor="linear"
)
mutant.category = Category.BORDERS
mutant["OutsideReplacesAll", "An average with any sample outside the map is out_of_bounds_input_value."] = {
    average: lambda bin_, channel, outside: average(bin_, channel, outside) if bin_.outside is None else outside
}
mutant["OutsideNotCounted", "Samples outside the map are left out of an average."] = {average: without_outside}
mutant["OutsideIs0", "out_of_bounds_input_value is ignored and taken for 0."] = {
    average: lambda bin_, channel, _: average(bin_, channel, 0.0),
    maximum: lambda mode, bin_, channel, _: maximum(mode, bin_, channel, 0.0),
}
mutant["OutsideIs0InMaxima", "out_of_bounds_input_value applies to averages only; in a maximum it is 0."] = {
    maximum: lambda mode, bin_, channel, _: maximum(mode, bin_, channel, 0.0)
}
mutant["BordersOutside", "Samples at exactly -1 and at exactly the map's length count as outside."] = border(
    lambda c, n: -1 < c < n
)
mutant["BorderAtTheFirstPixel", "Samples before the first and after the last pixel count as outside the map."] = border(
    lambda c, n: 0 <= c <= n - 1
)
mutant["BorderOfTheNearest", "With nearest_neighbor, the map ends half a pixel beyond its first and last pixel."] = {
    is_inside: lambda c, n: -0.5 <= c < n - 0.5 if isinstance(n, Nearest) else is_inside(c, n),
    **axis_with(lambda axis: dataclasses.replace(axis, length=Nearest(axis.length)) if axis.nearest else axis),
}
mutant.category = Category.COUNTS
mutant["MinimumIgnored", "minimum_samples_per_output is ignored and taken for 1."] = meant(lambda a: a | {LIMITS[0]: 1})
mutant["MaximumIgnored", "maximum_samples_per_output is ignored."] = meant(lambda a: a | {LIMITS[1]: 2**62})
mutant["MaximumAlways", "maximum_samples_per_output is always taken as the number of samples if it is given."] = {
    limited_samples: lambda size, bins, least, most: most if most < 2**31 else limited_samples(size, bins, least, most)
}
mutant["CountsIn32Bits", "The number of samples of a bin, the product over both axes, overflows 32 bits."] = {
    divisor_of: lambda bin_: max(bin_.total % 2**32, 1)
}
mutant["EmptyRegionIs0", "An empty or inverted region gives 0, as with ONNX's adaptive sampling."] = {
    limited_samples: lambda size, bins, least, most: (
        0 if size <= 0 and least < most else limited_samples(size, bins, least, most)
    )
}
mutant.category = Category.REDUCTIONS
mutant["MaxOfCorners", "A maximum is taken over weighted corners, as in ONNX, instead of interpolated samples."] = {
    maximum: lambda mode, *a: maximum("max", *a)
}
mutant["EveryReductionIsAverage", "reduction_function is ignored: everything is an average."] = renamed(
    "reduction_function", max="average"
)
mutant["MaxReadsAverage", "average is computed as max."] = renamed("reduction_function", average="max")
mutant.category = Category.INDEXING
mutant["RegionIndexSigned", "uint32 indices are read as signed: the largest is -1, the last image."] = on(
    IMAGES, signed
)
mutant["FirstOfLeadingAxes", "Regions and indices with leading axes are refused."] = {evaluate: no_leading_axes}
mutant.category = Category.GRADIENTS
mutant[
    "MapGradientWithoutOutside", "The gradient of the map is divided by the number of samples inside the map only."
] = dividing(inside_alone)
mutant[
    "MapNotNeeded", "A gradient that needs InputTensor takes zeros for it where it is missing, instead of refusing."
] = {evaluate: map_of_zeros}
mutant["DxNeedsX", "dX of an average is refused unless X is given, though it does not need X."] = DX_NEEDS_X
mutant[
    "SlopeOnAPixel", "In the gradient of regions, a sample on a pixel uses the slope of the cell after it, as in ONNX."
] = {
    RegionAxis.taps: lambda axis, c: (
        RegionAxis.taps(axis, c) if axis.nearest or not is_gradient() else taps(c, axis.length)
    )
}
mutant["NearestHasASlope", "With nearest_neighbor, regions get the gradient of linear interpolation instead of 0."] = {
    **meant(lambda a: a | {"interpolation_mode": "linear"} if is_gradient() else a)
}
mutant.category = Category.DEFAULTS
for name, words, changed in (
    ("InputOffset0ByDefault", "input_pixel_offset defaults to 0.", {"input_pixel_offset": 0.0}),
    ("OutputOffset0ByDefault", "output_pixel_offset defaults to 0.", {"output_pixel_offset": 0.0}),
    ("OneSampleByDefault", "maximum_samples_per_output defaults to 1.", {"maximum_samples_per_output": 1}),
    ("CornersByDefault", "align_regions_to_corners defaults to 1.", {"align_regions_to_corners": 1}),
    (
        "NearestByDefault",
        "interpolation_mode defaults to nearest_neighbor.",
        {"interpolation_mode": "nearest_neighbor"},
    ),
    ("RegionMaxByDefault", "reduction_function defaults to max.", {"reduction_function": "max"}),
):
    mutant[name, words] = by_default(**changed)
mutant["LimitsExchanged", "A minimum_samples_per_output above the maximum is accepted, and the two are exchanged."] = (
    given(
        lambda a: (
            a | dict(zip(LIMITS, sorted((a[LIMITS[0]], a[LIMITS[1]])), strict=True)) if set(LIMITS) <= set(a) else a
        )
    )
)
mutant["LeadingAxesOfNothingTaken", "Leading axes of any length are accepted where there are no regions."] = asked(
    of_nothing_flat
)
mutant["AttributesUnchecked", "Attribute values are not checked, as in ncnn."] = UNCHECKED
mutant.category = Category.SIZES
mutant["NarrowRoisEmptied", "A RoI narrower than an eighth of a pixel counts as empty."] = axis_with(
    lambda axis: axis if abs(axis.last - axis.first) >= 1 / 8 else dataclasses.replace(axis, last=axis.first)
)
MUTANTS = Mutants("dml_roi_align", mutant)
__getattr__ = MUTANTS.find
