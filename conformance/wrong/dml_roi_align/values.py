"""Faults in how samples become an output, in types, in indices, in defaults and in what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.wrong.dml_roi_align.control import Array, Axis, Control
from conformance.wrong.family import Family


class ReductionFault(Control):
    """Has its family."""

    family = Family.REDUCTIONS


class MaxOfRegionFrom0(ReductionFault):
    """A maximum begins at 0."""

    def maximum(self, candidates: Array) -> Array:
        return np.asarray(candidates.max(axis=1, initial=0.0))


class MaxOfRegionFromMinus10000(ReductionFault):
    """A maximum begins at -10000."""

    def maximum(self, candidates: Array) -> Array:
        return np.asarray(candidates.max(axis=1, initial=-10000.0))


class MaxOfCorners(ReductionFault):
    """A maximum is over weighted corners, as ONNX's is."""

    def candidates(self, image: Array, axis_y: Axis, axis_x: Axis, p: int, q: int, outside: float) -> Array:
        if self.is_nearest or self.is_gradient:
            return super().candidates(image, axis_y, axis_x, p, q, outside)
        corners = np.einsum("ih,chw,jw->cijhw", axis_y.weights[p], image, axis_x.weights[q]).max(axis=(3, 4))
        return np.where(np.outer(axis_y.inside[p], axis_x.inside[q]), corners, outside).reshape(len(image), -1)


class MaxOfTheFirstSample(ReductionFault):
    """A maximum is over the first sample."""

    def maximum(self, candidates: Array) -> Array:
        return candidates[:, 0]


class EveryReductionIsAverage(ReductionFault):
    """reduction_function is average."""

    def meaning(self, attributes: dict[str, Any]) -> dict[str, Any]:
        reduction = attributes["reduction_function"]
        return {**attributes, "reduction_function": "average" if reduction == "max" else reduction}


class MaxReadsAverage(ReductionFault):
    """average is max."""

    def meaning(self, attributes: dict[str, Any]) -> dict[str, Any]:
        reduction = attributes["reduction_function"]
        return {**attributes, "reduction_function": "max" if reduction == "average" else reduction}


class TypeFault(Control):
    """Has its family."""

    family = Family.TYPES


class RegionCoordinatesInHalf(TypeFault):
    """Coordinates have the type of the tensors."""

    def place(self, a: float, size: float, t: Array) -> Array:
        return super().place(a, size, t).astype(self.dtype).astype(np.float64)


class RegionCoordinatesInFloat(TypeFault):
    """Coordinates are float32 for double tensors, too."""

    def place(self, a: float, size: float, t: Array) -> Array:
        return super().place(a, size, t).astype(np.float32).astype(np.float64)


class RegionScalesInTheTensorsType(TypeFault):
    """The scales are rounded to the type of the tensors."""

    def scales(self) -> tuple[float, float]:
        of_y, of_x = np.array(super().scales()).astype(self.dtype)
        return float(of_y), float(of_x)


class RegionSumsInTheTensorsType(TypeFault):
    """Partial sums are rounded to the type of the tensors."""

    def partial(self, sums: Array) -> Array:
        return sums.astype(self.dtype).astype(np.float64)


class MapGradientSumsInTheTensorsType(TypeFault):
    """The map's gradient is summed in the type of the tensors: float16 sums stall."""

    of_gradients_alone = True

    def sum_type(self) -> np.dtype[Any]:
        return self.dtype


class RegionsOfDoubleInFloat(TypeFault):
    """double tensors are computed in float32."""

    def rounded(self, values: Array) -> Array:
        return values.astype(np.float32).astype(self.dtype)


class IndexFault(Control):
    """Has its family."""

    family = Family.INDEXING


class RegionIndexIgnored(IndexFault):
    """Every region is of image 0."""

    def image(self, x: Array, n: int) -> Array:
        return super().image(x, 0)


class RegionIndexIn32Bits(IndexFault):
    """Batch indices are cut to 32 bits."""

    def regions(self, rois: Array, images: Array, shape: Any) -> tuple[Array, Array]:
        return super().regions(rois, images.astype(np.uint32), shape)


class RegionIndexSigned(IndexFault):
    """The largest uint32 index is -1, the last image."""

    def are_images(self, images: Array, count: int) -> bool:
        signed = images.astype(np.int32) if images.dtype == np.uint32 else images
        return super().are_images(np.where((signed < 0) & (images.dtype == np.uint32), 0, images), count)

    def image(self, x: Array, n: int) -> Array:
        return super().image(x, n - 2**32 if n >= 2**31 else n)


class FirstOfLeadingAxes(IndexFault):
    """Regions and indices have no leading axes."""

    def are_shapes(self, rois: tuple[int, ...], images: tuple[int, ...], count: int) -> bool:
        return super().are_shapes(rois, images, count) and len(rois) == 2 and len(images) == 1


class NegativeRegionIndexWraps(IndexFault):
    """A batch index of -1 is the last image."""

    def are_images(self, images: Array, count: int) -> bool:
        return super().are_images(np.where((images < 0) & (images >= -count), 0, images), count)


class RegionIndexNTaken(IndexFault):
    """A batch index of N is read as the last image."""

    def are_images(self, images: Array, count: int) -> bool:
        return super().are_images(images, count + 1 if count else 0)

    def image(self, x: Array, n: int) -> Array:
        return super().image(x, min(n, len(x) - 1))

    def add(self, dx: Array, n: int, part: Array) -> None:
        super().add(dx, min(n, len(dx) - 1), part)


class WholeBlocksOfRegionChannels(IndexFault):
    """Channels beyond the last whole block of sixteen stay 0."""

    def image(self, x: Array, n: int) -> Array:
        is_done = np.arange(x.shape[1]) < max(x.shape[1] // 16 * 16, min(x.shape[1], 16))
        return np.where(is_done[:, None, None], x[n], 0)


class RegionChannelsReversed(IndexFault):
    """Channels are read from the last to the first."""

    def image(self, x: Array, n: int) -> Array:
        return super().image(x, n)[::-1]


class RegionNAndCExchanged(IndexFault):
    """The map is read as [C, N, H, W]."""

    def image(self, x: Array, n: int) -> Array:
        return x.reshape(x.shape[1], x.shape[0], *x.shape[2:])[:, n]


class RegionResultTransposed(IndexFault):
    """The result is written as [R, C, PW, PH]."""

    def forward(self, x: Array, rois: Array, images: Array) -> Array:
        y = super().forward(x, rois, images)
        return np.asarray(y.swapaxes(2, 3).reshape(y.shape))


class MapGradientOfImage0(IndexFault):
    """Every region passes its gradient to image 0."""

    of_gradients_alone = True

    def add(self, dx: Array, n: int, part: Array) -> None:
        super().add(dx, 0, part)


class DefaultFault(Control):
    """Has its family."""

    family = Family.DEFAULTS


class InputOffset0ByDefault(DefaultFault):
    """input_pixel_offset is 0 where nothing is said."""

    def defaults(self) -> dict[str, Any]:
        return {**super().defaults(), "input_pixel_offset": 0.0}


class OutputOffset0ByDefault(DefaultFault):
    """output_pixel_offset is 0 where nothing is said."""

    def defaults(self) -> dict[str, Any]:
        return {**super().defaults(), "output_pixel_offset": 0.0}


class OneSampleByDefault(DefaultFault):
    """maximum_samples_per_output is 1 where nothing is said."""

    def defaults(self) -> dict[str, Any]:
        return {**super().defaults(), "maximum_samples_per_output": 1}


class CornersByDefault(DefaultFault):
    """align_regions_to_corners is 1 where nothing is said."""

    def defaults(self) -> dict[str, Any]:
        return {**super().defaults(), "align_regions_to_corners": 1}


class NearestByDefault(DefaultFault):
    """interpolation_mode is nearest_neighbor where nothing is said."""

    def defaults(self) -> dict[str, Any]:
        return {**super().defaults(), "interpolation_mode": "nearest_neighbor"}


class RegionMaxByDefault(DefaultFault):
    """reduction_function is max where nothing is said."""

    def defaults(self) -> dict[str, Any]:
        return {**super().defaults(), "reduction_function": "max"}


class RegionAttributesUnchecked(DefaultFault):
    """No attribute is refused."""

    def check_attributes(self) -> None:
        pass


class LimitsExchanged(DefaultFault):
    """A minimum_samples_per_output above the maximum is taken for the maximum."""

    def meaning(self, attributes: dict[str, Any]) -> dict[str, Any]:
        least, most = attributes["minimum_samples_per_output"], attributes["maximum_samples_per_output"]
        limits = {"minimum_samples_per_output": min(least, most), "maximum_samples_per_output": max(least, most)}
        return {**attributes, **limits}


class LeadingAxesOfNothingTaken(DefaultFault):
    """Where there are no regions, leading axes may have any length."""

    def are_shapes(self, rois: tuple[int, ...], images: tuple[int, ...], count: int) -> bool:
        is_empty = count == 0 and rois[-2:] == (0, 4) and images[-1:] == (0,)
        return is_empty or super().are_shapes(rois, images, count)


class NoRegionsRefused(DefaultFault):
    """No regions are an error."""

    def regions(self, rois: Array, images: Array, shape: Any) -> tuple[Array, Array]:
        if rois.size == 0:
            raise ValueError("no regions")
        return super().regions(rois, images, shape)


class NoChannelsOfAMapRefused(DefaultFault):
    """No channels are an error."""

    def regions(self, rois: Array, images: Array, shape: Any) -> tuple[Array, Array]:
        if shape[1] == 0:
            raise ValueError("no channels")
        return super().regions(rois, images, shape)


class NoPixelsOfAMapRefused(DefaultFault):
    """No pixels are an error without regions, too."""

    def regions(self, rois: Array, images: Array, shape: Any) -> tuple[Array, Array]:
        if 0 in shape[2:]:
            raise ValueError("no pixels")
        return super().regions(rois, images, shape)


class NoImagesOfAMapRefused(DefaultFault):
    """No images are an error without regions, too."""

    def regions(self, rois: Array, images: Array, shape: Any) -> tuple[Array, Array]:
        if shape[0] == 0:
            raise ValueError("no images")
        return super().regions(rois, images, shape)


FAULTS = (
    MaxOfRegionFrom0,
    MaxOfRegionFromMinus10000,
    MaxOfCorners,
    MaxOfTheFirstSample,
    EveryReductionIsAverage,
    MaxReadsAverage,
    RegionCoordinatesInHalf,
    RegionCoordinatesInFloat,
    RegionScalesInTheTensorsType,
    RegionSumsInTheTensorsType,
    MapGradientSumsInTheTensorsType,
    RegionsOfDoubleInFloat,
    RegionIndexIn32Bits,
    RegionIndexSigned,
    RegionIndexIgnored,
    FirstOfLeadingAxes,
    NegativeRegionIndexWraps,
    RegionIndexNTaken,
    WholeBlocksOfRegionChannels,
    RegionChannelsReversed,
    RegionNAndCExchanged,
    RegionResultTransposed,
    MapGradientOfImage0,
    InputOffset0ByDefault,
    OutputOffset0ByDefault,
    OneSampleByDefault,
    CornersByDefault,
    NearestByDefault,
    RegionMaxByDefault,
    RegionAttributesUnchecked,
    LimitsExchanged,
    LeadingAxesOfNothingTaken,
    NoRegionsRefused,
    NoChannelsOfAMapRefused,
    NoPixelsOfAMapRefused,
    NoImagesOfAMapRefused,
)
