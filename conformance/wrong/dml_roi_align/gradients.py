"""Faults in the gradients alone."""

from __future__ import annotations

import numpy as np

from conformance.wrong.dml_roi_align.control import Array, Axis, Control
from conformance.wrong.family import Family


class GradientFault(Control):
    """Has its family."""

    family = Family.GRADIENTS
    of_gradients_alone = True


class DmlDxOverwritten(GradientFault):
    """The last region of an image alone passes its gradient."""

    def add(self, dx: Array, n: int, part: Array) -> None:
        dx[n] = part


class MapGradientOfReplicatedEdges(GradientFault):
    """Samples off the map pass their gradient to its edge."""

    def inside(self, c: Array, length: int) -> Array:
        return np.ones_like(c, bool) if self.is_gradient else super().inside(c, length)


class MapGradientWithoutOutside(GradientFault):
    """Samples off the map do not count in what the map's gradient is divided by."""

    def average_part(self, dy: Array, image: Array, axis_y: Axis, axis_x: Axis) -> tuple[Array, list[float]]:
        on_map = np.outer(axis_y.on_map, axis_x.on_map)
        return super().average_part(dy / np.where(on_map > 0, on_map, 1), image, axis_y, axis_x)


class DmlTieToTheLast(GradientFault):
    """Of equal samples the last wins."""

    def winner(self, candidates: Array) -> int:
        return len(candidates) - 1 - int(np.argmax(candidates[::-1]))


class DmlTieDownTheColumns(GradientFault):
    """Of equal samples the first down a column wins, not the first along a row."""

    def effect(self, channel: Array, axis_y: Axis, axis_x: Axis, p: int, q: int, winner: int) -> tuple[Array, Array]:
        values = self.candidates(channel[None], axis_y, axis_x, p, q, 0.0)[0]
        rows, columns = len(axis_y.inside[p]), len(axis_x.inside[q])
        order = np.arange(len(values)).reshape(rows, columns).T.ravel()
        return super().effect(channel, axis_y, axis_x, p, q, int(order[np.argmax(values[order])]))


class DmlOutsideLoses(GradientFault):
    """A sample off the map never wins a maximum's gradient."""

    def candidates(self, image: Array, axis_y: Axis, axis_x: Axis, p: int, q: int, outside: float) -> Array:
        lost = -np.inf if self.is_gradient else outside
        return super().candidates(image, axis_y, axis_x, p, q, lost)


class MaximumGradientAsAverage(GradientFault):
    """The gradient of a maximum is that of an average."""

    def maximum_part(self, dy: Array, image: Array, axis_y: Axis, axis_x: Axis) -> tuple[Array, Array]:
        dx, droi = self.average_part(dy, image, axis_y, axis_x)
        return dx, np.array(droi)


class MapNeededByAverages(GradientFault):
    """The map's gradient of an average is refused without InputTensor."""

    def needs_map(self) -> bool:
        return True


class MapNotNeeded(GradientFault):
    """Without InputTensor a gradient is that of a map of zeros."""

    def needs_map(self) -> bool:
        return False


class DmlDroisWithoutScale(GradientFault):
    """The gradient of a region is by scaled coordinates."""

    def by_ends(self, t: Array, scale: float) -> tuple[Array, Array]:
        return super().by_ends(t, 1.0)


class DmlDroisEndsExchanged(GradientFault):
    """The gradients of a region's ends are exchanged."""

    def by_ends(self, t: Array, scale: float) -> tuple[Array, Array]:
        by_r1, by_r2 = super().by_ends(t, scale)
        return by_r2, by_r1


class DmlDroisHalfAndHalf(GradientFault):
    """Both ends have half of the gradient, wherever a sample lies."""

    def by_ends(self, t: Array, scale: float) -> tuple[Array, Array]:
        return super().by_ends(0 * t + 0.5, scale)


class DmlDroisAre0(GradientFault):
    """Regions have no gradient."""

    def has_slope(self, c: Array, inside: Array, length: int) -> Array:
        return np.zeros_like(inside)


class SlopeOnAPixel(GradientFault):
    """A sample on a pixel has the slope of the cell that begins there, as ONNX's has."""

    def taps(self, c: Array, length: int) -> tuple[Array, Array]:
        weights, slopes = super().taps(c, length)
        low = np.floor(c).astype(np.int64)
        rows = np.flatnonzero((low == c) & (low < length - 1)) if not self.is_nearest else np.zeros(0, np.int64)
        slopes[rows, low[rows]] -= 1
        slopes[rows, low[rows] + 1] += 1
        return weights, slopes


class NearestHasASlope(GradientFault):
    """The nearest pixel has the slope of an interpolation."""

    def taps(self, c: Array, length: int) -> tuple[Array, Array]:
        weights, slopes = super().taps(c, length)
        if self.is_nearest:
            rows, clamped = np.arange(len(c)), np.clip(c, 0, length - 1)
            slopes[rows, np.ceil(clamped).astype(np.int64)] += 1
            slopes[rows, np.floor(clamped).astype(np.int64)] -= 1
        return weights, slopes


FAULTS = (
    DmlDxOverwritten,
    MapGradientOfReplicatedEdges,
    MapGradientWithoutOutside,
    DmlTieToTheLast,
    DmlTieDownTheColumns,
    DmlOutsideLoses,
    MaximumGradientAsAverage,
    MapNeededByAverages,
    MapNotNeeded,
    DmlDroisWithoutScale,
    DmlDroisEndsExchanged,
    DmlDroisHalfAndHalf,
    DmlDroisAre0,
    SlopeOnAPixel,
    NearestHasASlope,
)
