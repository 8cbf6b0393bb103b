"""Faults at the borders of the map."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.wrong.family import Family
from conformance.wrong.roi_align.control import Array, Axis, Control


class BorderFault(Control):
    """Has its family."""

    family = Family.BORDERS


class EdgesReplicated(BorderFault):
    """Samples off the map read its edge, as in torchvision's deterministic path."""

    def inside(self, c: Array, length: int) -> Array:
        return np.ones_like(c, bool)


class ReplicatedInXAlone(BorderFault):
    """Only y is compared with the border."""

    _is_x = False

    def made_axes(self, roi: Array, bins: Any, lengths: Any) -> tuple[Axis, Axis]:
        self._is_x = False
        axis_y, _ = super().made_axes(roi, bins, lengths)
        self._is_x = True
        return axis_y, self.axis(float(roi[0]), float(roi[2]), bins[1], lengths[1])

    def inside(self, c: Array, length: int) -> Array:
        return np.ones_like(c, bool) if self._is_x else super().inside(c, length)


class ReplicatedInYAlone(BorderFault):
    """Only x is compared with the border."""

    _is_y = False

    def made_axes(self, roi: Array, bins: Any, lengths: Any) -> tuple[Axis, Axis]:
        self._is_y = False
        _, axis_x = super().made_axes(roi, bins, lengths)
        self._is_y = True
        return self.axis(float(roi[1]), float(roi[3]), bins[0], lengths[0]), axis_x

    def inside(self, c: Array, length: int) -> Array:
        return np.ones_like(c, bool) if self._is_y else super().inside(c, length)


class SlackBelowMinus1(BorderFault):
    """Samples 7e-5 below -1 are inside, as in MindSpore."""

    def inside(self, c: Array, length: int) -> Array:
        return (c >= -1 - 7e-5) & (c <= length)


class SlackPastL(BorderFault):
    """Samples 7e-5 beyond L are inside, as in MindSpore."""

    def inside(self, c: Array, length: int) -> Array:
        return (c >= -1) & (c <= length + 7e-5)


class OutsideFrom0(BorderFault):
    """Samples between -1 and 0 are outside."""

    def inside(self, c: Array, length: int) -> Array:
        return (c >= 0) & (c <= length)


class OutsideFromTheLast(BorderFault):
    """Samples between the last pixel and L are outside."""

    def inside(self, c: Array, length: int) -> Array:
        return (c >= -1) & (c <= length - 1)


class Minus1Outside(BorderFault):
    """A sample at -1 is outside."""

    def inside(self, c: Array, length: int) -> Array:
        return (c > -1) & (c <= length)


class LengthOutside(BorderFault):
    """A sample at L is outside."""

    def inside(self, c: Array, length: int) -> Array:
        return (c >= -1) & (c < length)


class BorderMovedByHalfAPixel(BorderFault):
    """The map reaches from -0.5 to L - 0.5."""

    def inside(self, c: Array, length: int) -> Array:
        return (c >= -0.5) & (c <= length - 0.5)


class WholePixelPastTheEnd(BorderFault):
    """The map reaches to L + 1."""

    def inside(self, c: Array, length: int) -> Array:
        return (c >= -1) & (c <= length + 1)


class FadesToZero(BorderFault):
    """The map is padded by a row of zeros, as in coremltools: samples between -1 and 0 fade."""

    def weights(self, c: Array, length: int) -> Array:
        near = np.clip(1 + np.minimum(c, length - 1 - c), 0, 1)
        return np.asarray(super().weights(c, length) * near[:, None])


class LastCellContinued(BorderFault):
    """Samples beyond the last pixel go on along the slope of the last cell."""

    def weights(self, c: Array, length: int) -> Array:
        low = np.clip(np.floor(c), 0, max(length - 2, 0))
        f = np.maximum(c, 0) - low if length > 1 else 0 * c
        return np.stack([1 - f, f], 1)

    def taps(self, c: Array, length: int) -> Array:
        low = np.clip(np.floor(c), 0, max(length - 2, 0))
        return np.stack([low, np.minimum(low + 1, length - 1)], 1).astype(np.int64)


class LengthsExchanged(BorderFault):
    """The border of x is where the map's height ends, and the other way round."""

    def inside(self, c: Array, length: int) -> Array:
        return np.asarray((c >= -1) & (c <= self._other))

    def made_axes(self, roi: Array, bins: Any, lengths: Any) -> tuple[Axis, Axis]:
        x1, y1, x2, y2 = map(float, roi)
        self._other = lengths[1]
        axis_y = self.axis(y1, y2, bins[0], lengths[0])
        self._other = lengths[0]
        return axis_y, self.axis(x1, x2, bins[1], lengths[1])


class CoordinatesClipped(BorderFault):
    """RoIs are cut to the map before they are sampled, as in ncnn's version 0."""

    def made_axes(self, roi: Array, bins: Any, lengths: Any) -> tuple[Axis, Axis]:
        most = np.array([lengths[1], lengths[0]] * 2) / self.scale()
        return super().made_axes(np.clip(roi, 0, most), bins, lengths)


FAULTS = (
    EdgesReplicated,
    ReplicatedInXAlone,
    ReplicatedInYAlone,
    SlackBelowMinus1,
    SlackPastL,
    OutsideFrom0,
    OutsideFromTheLast,
    Minus1Outside,
    LengthOutside,
    BorderMovedByHalfAPixel,
    WholePixelPastTheEnd,
    FadesToZero,
    LastCellContinued,
    LengthsExchanged,
    CoordinatesClipped,
)
