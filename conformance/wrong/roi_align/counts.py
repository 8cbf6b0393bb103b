"""Faults in the number of samples and in what an average is divided by."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.wrong.family import Family
from conformance.wrong.roi_align.control import Array, Axis, Control


class CountFault(Control):
    """Has its family."""

    family = Family.COUNTS


class Ratio0As1(CountFault):
    """Without a sampling_ratio takes one sample a bin."""

    def adaptive_count(self, size: float, bins: int) -> int:
        return 1


class Ratio0As2(CountFault):
    """Without a sampling_ratio takes two samples a bin."""

    def adaptive_count(self, size: float, bins: int) -> int:
        return 2


class Ratio0RoundedDown(CountFault):
    """The adaptive number of samples is rounded down, as in MindSpore."""

    def adaptive_count(self, size: float, bins: int) -> int:
        return int(np.floor(size / bins))


class Ratio0RoundedToTheNearest(CountFault):
    """The adaptive number of samples is rounded to the nearest."""

    def adaptive_count(self, size: float, bins: int) -> int:
        return int(np.floor(size / bins + 0.5))


class Ratio0AtLeast1(CountFault):
    """Takes a sample of an empty RoI."""

    def adaptive_count(self, size: float, bins: int) -> int:
        return max(super().adaptive_count(size, bins), 1)


class Ratio0OfTheAbsoluteSize(CountFault):
    """Samples a mirrored RoI as often as it is long."""

    def adaptive_count(self, size: float, bins: int) -> int:
        return super().adaptive_count(abs(size), bins)


class Ratio0OfTheRoi(CountFault):
    """The adaptive number of samples of a bin is that of the whole RoI."""

    def adaptive_count(self, size: float, bins: int) -> int:
        return super().adaptive_count(size, 1)


class Ratio0OfTheUnscaledSize(CountFault):
    """The adaptive number of samples is of the size before the scale."""

    def adaptive_count(self, size: float, bins: int) -> int:
        return super().adaptive_count(size / self.scale(), bins)


class Ratio0OfTheUnraisedSize(CountFault):
    """The adaptive number of samples is of the size before output_half_pixel makes it 1."""

    def axis(self, r1: float, r2: float, bins: int, length: int) -> Axis:
        self._size = self.size(r1, r2)
        return super().axis(r1, r2, bins, length)

    def adaptive_count(self, size: float, bins: int) -> int:
        return super().adaptive_count(self._size, bins)


class Ratio0OfY(CountFault):
    """The adaptive number of samples along y is taken along x, too."""

    def made_axes(self, roi: Array, bins: Any, lengths: Any) -> tuple[Axis, Axis]:
        x1, y1, x2, y2 = map(float, roi)
        self._of_y: int | None = None
        axis_y = self.axis(y1, y2, bins[0], lengths[0])
        self._of_y = axis_y.per_bin
        return axis_y, self.axis(x1, x2, bins[1], lengths[1])

    def adaptive_count(self, size: float, bins: int) -> int:
        return super().adaptive_count(size, bins) if self._of_y is None else self._of_y


class Ratio0OfX(CountFault):
    """The adaptive number of samples along x is taken along y, too."""

    def made_axes(self, roi: Array, bins: Any, lengths: Any) -> tuple[Axis, Axis]:
        x1, y1, x2, y2 = map(float, roi)
        self._of_x: int | None = None
        axis_x = self.axis(x1, x2, bins[1], lengths[1])
        self._of_x = axis_x.per_bin
        return self.axis(y1, y2, bins[0], lengths[0]), axis_x

    def adaptive_count(self, size: float, bins: int) -> int:
        return super().adaptive_count(size, bins) if self._of_x is None else self._of_x


class NegativeWidthRefused(CountFault):
    """Fails where x is swapped and y is not."""

    def made_axes(self, roi: Array, bins: Any, lengths: Any) -> tuple[Axis, Axis]:
        if self.is_half and not self.attributes["sampling_ratio"] and roi[2] < roi[0] and roi[3] > roi[1]:
            raise ValueError("width")
        return super().made_axes(roi, bins, lengths)


class NegativeHeightRefused(CountFault):
    """Fails where y is swapped and x is not."""

    def made_axes(self, roi: Array, bins: Any, lengths: Any) -> tuple[Axis, Axis]:
        if self.is_half and not self.attributes["sampling_ratio"] and roi[3] < roi[1] and roi[2] > roi[0]:
            raise ValueError("height")
        return super().made_axes(roi, bins, lengths)


class Ratio0AtMostTheMap(CountFault):
    """Takes no more adaptive samples than the map has pixels, as in torchvision's deterministic path."""

    def axis(self, r1: float, r2: float, bins: int, length: int) -> Axis:
        self._length = length
        return super().axis(r1, r2, bins, length)

    def adaptive_count(self, size: float, bins: int) -> int:
        return min(super().adaptive_count(size, bins), self._length)


class RatioAtMost8(CountFault):
    """Takes no more than eight samples a bin."""

    def count(self, size: float, bins: int) -> int:
        return min(super().count(size, bins), 8)


class DivisorWithoutOutside(CountFault):
    """Samples outside the map do not count."""

    def divisor(self, axis_y: Axis, axis_x: Axis) -> Any:
        counts = [np.array([max(int(mask.sum()), 1) for mask in axis.inside]) for axis in (axis_y, axis_x)]
        return np.outer(*counts).mean()


class DivisorSquared(CountFault):
    """Divides by the square of the number of samples along x."""

    def divisor(self, axis_y: Axis, axis_x: Axis) -> Any:
        return max(axis_x.per_bin**2, 1)


class DivisorIn32Bits(CountFault):
    """The product of the numbers of samples of both axes is cut to 32 bits."""

    def divisor(self, axis_y: Axis, axis_x: Axis) -> Any:
        cut = axis_y.per_bin * axis_x.per_bin % 2**32
        return max(cut - 2**32 if cut >= 2**31 else cut, 1)


class EmptyIsNaN(CountFault):
    """Divides by 0 where there is no sample, as OpenVINO and Paddle do."""

    def divisor(self, axis_y: Axis, axis_x: Axis) -> Any:
        return np.float64(axis_y.per_bin * axis_x.per_bin)


class NegativeCountRefused(CountFault):
    """Fails where a side is negative, as MXNet does."""

    def adaptive_count(self, size: float, bins: int) -> int:
        if size < 0:
            raise ValueError("size")
        return super().adaptive_count(size, bins)


class ManySamplesRefused(CountFault):
    """Makes a list of all samples and has no memory for it."""

    def adaptive_count(self, size: float, bins: int) -> int:
        if super().adaptive_count(size, bins) > 10**6:
            raise MemoryError("samples")
        return super().adaptive_count(size, bins)


FAULTS = (
    Ratio0As1,
    Ratio0As2,
    Ratio0RoundedDown,
    Ratio0RoundedToTheNearest,
    Ratio0AtLeast1,
    Ratio0OfTheAbsoluteSize,
    Ratio0OfTheRoi,
    Ratio0OfTheUnscaledSize,
    Ratio0OfTheUnraisedSize,
    Ratio0OfY,
    Ratio0OfX,
    NegativeWidthRefused,
    NegativeHeightRefused,
    Ratio0AtMostTheMap,
    RatioAtMost8,
    DivisorWithoutOutside,
    DivisorSquared,
    DivisorIn32Bits,
    EmptyIsNaN,
    NegativeCountRefused,
    ManySamplesRefused,
)
