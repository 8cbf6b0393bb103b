"""Faults in where a RoI lies and where its samples are."""

from __future__ import annotations

import numpy as np

from conformance.wrong.family import Family
from conformance.wrong.roi_align.control import Array, Control


class CoordinateFault(Control):
    """Has its family."""

    family = Family.COORDINATES


class XAndYSwapped(CoordinateFault):
    """Reads RoIs as y1 x1 y2 x2."""

    def corners(self, roi: Array) -> Array:
        return roi[[1, 0, 3, 2]]


class WidthAndHeightForTheEnd(CoordinateFault):
    """Reads RoIs as x y width height."""

    def corners(self, roi: Array) -> Array:
        return np.array([roi[0], roi[1], roi[0] + roi[2], roi[1] + roi[3]])


class EndsOrdered(CoordinateFault):
    """Exchanges the ends of a RoI where they are swapped, so that nothing is mirrored."""

    def corners(self, roi: Array) -> Array:
        return np.array([min(roi[0], roi[2]), min(roi[1], roi[3]), max(roi[0], roi[2]), max(roi[1], roi[3])])


class NoHalfPixel(CoordinateFault):
    """half_pixel does not shift."""

    def start(self, r1: float) -> float:
        return r1 * self.scale()


class HalfPixelAdded(CoordinateFault):
    """half_pixel shifts the other way."""

    def start(self, r1: float) -> float:
        return r1 * self.scale() + (0.5 if self.is_half else 0.0)


class HalfPixelTwice(CoordinateFault):
    """half_pixel is shifted twice, as mmcv's export is since opset 16."""

    def start(self, r1: float) -> float:
        return r1 * self.scale() - (1.0 if self.is_half else 0.0)


class HalfPixelAlways(CoordinateFault):
    """output_half_pixel shifts, too."""

    def start(self, r1: float) -> float:
        return r1 * self.scale() - 0.5


class ShiftBeforeScale(CoordinateFault):
    """half_pixel shifts before the RoI is scaled, as in TVM's Relax."""

    def start(self, r1: float) -> float:
        return (r1 - 0.5) * self.scale() if self.is_half else super().start(r1)


class StartAlone(CoordinateFault):
    """Shifts the start and not the end, so that RoIs are half a pixel longer."""

    def size(self, r1: float, r2: float) -> float:
        return super().size(r1, r2) + (0.5 if self.is_half else 0.0)


class StartTruncated(CoordinateFault):
    """Begins at whole pixels, as RoiPool does."""

    def start(self, r1: float) -> float:
        return float(np.floor(super().start(r1)))


class ScaleIgnored(CoordinateFault):
    """Takes RoIs in pixels of the map."""

    def scale(self) -> float:
        return 1.0


class ScaleInverted(CoordinateFault):
    """Divides by spatial_scale."""

    def scale(self) -> float:
        return 1.0 / super().scale()


class EndPixelIncluded(CoordinateFault):
    """Adds 1 to the ends of RoIs, as MindSpore's roi_end_mode does."""

    def size(self, r1: float, r2: float) -> float:
        return (r2 - r1 + 1) * self.scale()


class NoLeastSize(CoordinateFault):
    """output_half_pixel keeps sizes below 1."""

    def is_raised(self, size: float) -> bool:
        return False


class LeastSizeBeforeScale(CoordinateFault):
    """output_half_pixel makes sizes at least 1 before they are scaled."""

    def is_raised(self, size: float) -> bool:
        return False

    def size(self, r1: float, r2: float) -> float:
        return super().size(r1, r2) if self.is_half else max(r2 - r1, 1.0) * self.scale()


class SizeClampedInHalfPixel(CoordinateFault):
    """half_pixel makes sizes at least 1, too, as MIGraphX does."""

    def is_raised(self, size: float) -> bool:
        return size < 1


class NegativeSizesAreZero(CoordinateFault):
    """half_pixel makes negative sizes 0, so that mirrored RoIs are points."""

    def size(self, r1: float, r2: float) -> float:
        return max(super().size(r1, r2), 0.0)


class SamplesAtTheStart(CoordinateFault):
    """Samples lie at the start of their parts of a bin, not in the middle."""

    def place(self, start: float, size: float, bins: int, per_bin: int, p: Array, i: Array) -> Array:
        return start + p * size / bins + i * size / max(bins * per_bin, 1)


class SamplesFromCornerToCorner(CoordinateFault):
    """The outermost samples of a bin lie on its ends."""

    def place(self, start: float, size: float, bins: int, per_bin: int, p: Array, i: Array) -> Array:
        return start + p * size / bins + (i / (per_bin - 1) if per_bin > 1 else i + 0.5) * size / bins


class OneSampleInTheMiddle(CoordinateFault):
    """All samples of a bin lie in its middle."""

    def place(self, start: float, size: float, bins: int, per_bin: int, p: Array, i: Array) -> Array:
        return np.asarray(start + (p + 0.5) * size / bins + 0 * i)


class NearestPixel(CoordinateFault):
    """Reads the nearest pixel instead of interpolating."""

    def weights(self, c: Array, length: int) -> Array:
        later = np.round(super().weights(c, length)[:, 1])
        return np.stack([1 - later, later], 1)


FAULTS = (
    XAndYSwapped,
    WidthAndHeightForTheEnd,
    EndsOrdered,
    NoHalfPixel,
    HalfPixelAdded,
    HalfPixelTwice,
    HalfPixelAlways,
    ShiftBeforeScale,
    StartAlone,
    StartTruncated,
    ScaleIgnored,
    ScaleInverted,
    EndPixelIncluded,
    NoLeastSize,
    LeastSizeBeforeScale,
    SizeClampedInHalfPixel,
    NegativeSizesAreZero,
    SamplesAtTheStart,
    SamplesFromCornerToCorner,
    OneSampleInTheMiddle,
    NearestPixel,
)
