"""Faults in where samples are, how many there are, and what lies beyond the map."""

from __future__ import annotations

import numpy as np

from conformance.wrong.dml_roi_align.control import Array, Axis, Control
from conformance.wrong.family import Family


class CoordinateFault(Control):
    """Has its family."""

    family = Family.COORDINATES


class RegionsAreY1X1Y2X2(CoordinateFault):
    """Reads regions as y1 x1 y2 x2."""

    def corners(self, roi: Array) -> Array:
        return roi[[1, 0, 3, 2]]


class RegionEndsOrdered(CoordinateFault):
    """Exchanges the ends of an inverted region, so that nothing is mirrored."""

    def span(self, r1: float, r2: float, scale: float) -> tuple[float, float]:
        return super().span(min(r1, r2), max(r1, r2), scale)


class RegionAtLeastOnePixel(CoordinateFault):
    """Regions are at least one pixel, as ONNX's output_half_pixel has them."""

    def span(self, r1: float, r2: float, scale: float) -> tuple[float, float]:
        a, size = super().span(r1, r2, scale)
        return a, max(size, 1.0)


class InputOffsetAdded(CoordinateFault):
    """input_pixel_offset is added."""

    def input_offset(self) -> float:
        return -super().input_offset()


class InputOffsetIgnored(CoordinateFault):
    """input_pixel_offset is 0.5."""

    def input_offset(self) -> float:
        return 0.5


class InputOffsetScaled(CoordinateFault):
    """input_pixel_offset is one of the region, before it is scaled."""

    def span(self, r1: float, r2: float, scale: float) -> tuple[float, float]:
        a, size = super().span(r1, r2, scale)
        return a + self.input_offset() * (1 - scale), size


class InputOffsetAtMost1(CoordinateFault):
    """input_pixel_offset is cut to 1."""

    def input_offset(self) -> float:
        return min(super().input_offset(), 1.0)


class OutputOffsetAtMost1(CoordinateFault):
    """output_pixel_offset is cut to 1."""

    def output_offset(self) -> float:
        return min(super().output_offset(), 1.0)


class OutputOffsetAdded(CoordinateFault):
    """output_pixel_offset is added."""

    def output_offset(self) -> float:
        return -super().output_offset()


class OutputOffsetIgnored(CoordinateFault):
    """output_pixel_offset is -0.5."""

    def output_offset(self) -> float:
        return -0.5


class OutputOffsetInPixels(CoordinateFault):
    """output_pixel_offset is one of the map, not of the samples."""

    def output_offset(self) -> float:
        return 0.0

    def input_offset(self) -> float:
        return super().input_offset() + super().output_offset()


class CornersIgnored(CoordinateFault):
    """align_regions_to_corners is 0."""

    def is_to_corners(self) -> bool:
        return False


class CornersAlways(CoordinateFault):
    """align_regions_to_corners is 1."""

    def is_to_corners(self) -> bool:
        return True


class ScalesExchanged(CoordinateFault):
    """spatial_scale_x is of y, and spatial_scale_y of x."""

    def scales(self) -> tuple[float, float]:
        of_y, of_x = super().scales()
        return of_x, of_y


class ScaleXForBoth(CoordinateFault):
    """There is one scale, spatial_scale_x."""

    def scales(self) -> tuple[float, float]:
        return (super().scales()[1],) * 2


class TieGoesDown(CoordinateFault):
    """Between two pixels the nearest is the one before."""

    def nearest(self, c: Array) -> Array:
        return np.ceil(c - 0.5)


class TieGoesToEven(CoordinateFault):
    """Between two pixels the nearest is the even one."""

    def nearest(self, c: Array) -> Array:
        return np.round(c)


class NearestTruncated(CoordinateFault):
    """The nearest pixel is the one before."""

    def nearest(self, c: Array) -> Array:
        return np.floor(c)


class NearestIsLinear(CoordinateFault):
    """Every interpolation_mode is linear."""

    def taps(self, c: Array, length: int) -> tuple[Array, Array]:
        is_nearest, self.is_nearest = self.is_nearest, False
        try:
            return super().taps(np.clip(c, 0, length - 1), length)
        finally:
            self.is_nearest = is_nearest


class BorderFault(Control):
    """Has its family."""

    family = Family.BORDERS


class OutsideReplacesAll(BorderFault):
    """An average with a sample off the map is out_of_bounds_input_value."""

    def completed(self, inside: Array, on_map: Array) -> Array:
        return np.where(on_map < 1, self.outside_value(), inside)


class OutsideNotCounted(BorderFault):
    """Samples off the map do not count in an average."""

    def completed(self, inside: Array, on_map: Array) -> Array:
        return np.where(on_map > 0, inside / np.where(on_map > 0, on_map, 1), self.outside_value())


class OutsideIs0(BorderFault):
    """out_of_bounds_input_value is 0."""

    def outside_value(self) -> float:
        return 0.0


class OutsideIs0InMaxima(BorderFault):
    """out_of_bounds_input_value is of averages alone."""

    def outside_value(self) -> float:
        return 0.0 if self.is_max else super().outside_value()


class RegionEdgesReplicated(BorderFault):
    """Samples off the map read its edge."""

    def inside(self, c: Array, length: int) -> Array:
        return np.ones_like(c, bool)


class BordersOutside(BorderFault):
    """Samples at -1 and at L are off the map."""

    def inside(self, c: Array, length: int) -> Array:
        return (c > -1) & (c < length)


class BorderAtTheFirstPixel(BorderFault):
    """Samples before the first and beyond the last pixel are off the map."""

    def inside(self, c: Array, length: int) -> Array:
        return (c >= 0) & (c <= length - 1)


class BorderOfTheNearest(BorderFault):
    """With nearest_neighbor the map ends where the nearest pixel would be off it."""

    def inside(self, c: Array, length: int) -> Array:
        is_near = (c >= -0.5) & (c < length - 0.5)
        return is_near if self.is_nearest else super().inside(c, length)


class CountFault(Control):
    """Has its family."""

    family = Family.COUNTS


class MinimumIgnored(CountFault):
    """minimum_samples_per_output is 1."""

    def limits(self) -> tuple[int, int]:
        return 1, super().limits()[1]


class MaximumIgnored(CountFault):
    """maximum_samples_per_output has no effect."""

    def limits(self) -> tuple[int, int]:
        return super().limits()[0], 2**62


class MaximumAlways(CountFault):
    """Takes maximum_samples_per_output wherever it is given."""

    def count(self, size: float, bins: int) -> int:
        most = self.limits()[1]
        return most if most < 2**31 else super().count(size, bins)


class SamplesRoundedDown(CountFault):
    """The number of samples is rounded down."""

    def wanted_count(self, size: float, bins: int) -> int:
        return int(np.floor(size / bins))


class SamplesRoundedToTheNearest(CountFault):
    """The number of samples is rounded to the nearest."""

    def wanted_count(self, size: float, bins: int) -> int:
        return int(np.floor(size / bins + 0.5))


class SamplesOfTheRegion(CountFault):
    """An output has as many samples as its region should have."""

    def wanted_count(self, size: float, bins: int) -> int:
        return super().wanted_count(size, 1)


class SamplesOfTheAbsoluteSize(CountFault):
    """An inverted region has as many samples as one that is not."""

    def wanted_count(self, size: float, bins: int) -> int:
        return super().wanted_count(abs(size), bins)


class SamplesAtMost64(CountFault):
    """An output has at most 64 samples."""

    def count(self, size: float, bins: int) -> int:
        return min(super().count(size, bins), 64)


class CountsIn32Bits(CountFault):
    """The product of the numbers of samples of both axes is cut to 32 bits."""

    def average(self, image: Array, axis_y: Axis, axis_x: Axis) -> Array:
        count = axis_y.per_bin * axis_x.per_bin
        return super().average(image, axis_y, axis_x) * (count / max(count % 2**32, 1))


class EmptyRegionIs0(CountFault):
    """An empty or inverted region is 0, as for ONNX's adaptive sampling."""

    def axis(self, r1: float, r2: float, scale: float, bins: int, length: int) -> Axis:
        made = super().axis(r1, r2, scale, bins, length)
        if r2 > r1 or self.limits()[0] == self.limits()[1]:
            return made
        return made._replace(weights=[0 * w for w in made.weights], inside=[m | True for m in made.inside])


class ManySamplesRefused(CountFault):
    """Makes a list of all samples and has no memory for it."""

    def count(self, size: float, bins: int) -> int:
        if super().count(size, bins) > 10**6:
            raise MemoryError("samples")
        return super().count(size, bins)


FAULTS = (
    RegionsAreY1X1Y2X2,
    RegionEndsOrdered,
    RegionAtLeastOnePixel,
    InputOffsetAdded,
    InputOffsetIgnored,
    InputOffsetScaled,
    InputOffsetAtMost1,
    OutputOffsetAtMost1,
    OutputOffsetAdded,
    OutputOffsetIgnored,
    OutputOffsetInPixels,
    CornersIgnored,
    CornersAlways,
    ScalesExchanged,
    ScaleXForBoth,
    TieGoesDown,
    TieGoesToEven,
    NearestTruncated,
    NearestIsLinear,
    OutsideReplacesAll,
    OutsideNotCounted,
    OutsideIs0,
    OutsideIs0InMaxima,
    RegionEdgesReplicated,
    BordersOutside,
    BorderAtTheFirstPixel,
    BorderOfTheNearest,
    MinimumIgnored,
    MaximumIgnored,
    MaximumAlways,
    SamplesRoundedDown,
    SamplesRoundedToTheNearest,
    SamplesOfTheRegion,
    SamplesOfTheAbsoluteSize,
    SamplesAtMost64,
    CountsIn32Bits,
    EmptyRegionIs0,
    ManySamplesRefused,
)
