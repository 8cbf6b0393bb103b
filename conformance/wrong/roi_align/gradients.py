"""Faults in the gradients alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.wrong.family import Family
from conformance.wrong.roi_align.control import Array, Axis, Control
from conformance.wrong.roi_align.reductions import without_outside


class GradientFault(Control):
    """Has its family."""

    family = Family.GRADIENTS
    of_gradients_alone = True


class DxOverwritten(GradientFault):
    """The last RoI of an image alone passes its gradient."""

    def add(self, dx: Array, n: int, part: Array) -> None:
        dx[n] = part


class DxRaced(GradientFault):
    """Where RoIs share a pixel the last one's gradient alone is kept, as without synchronised sums."""

    def add(self, dx: Array, n: int, part: Array) -> None:
        dx[n] = np.where(part != 0, part, dx[n])


class DxDividedByWrongCount(GradientFault):
    """dX is divided by the number of samples along y alone."""

    def dx_divisor(self, axis_y: Axis, axis_x: Axis) -> Any:
        return max(axis_y.per_bin, 1)


class DxNotDivided(GradientFault):
    """Each sample passes the whole gradient."""

    def dx_divisor(self, axis_y: Axis, axis_x: Axis) -> Any:
        return 1


class DxWithoutOutside(GradientFault):
    """Samples outside the map do not count in what dX is divided by."""

    def dx_divisor(self, axis_y: Axis, axis_x: Axis) -> Any:
        counts = [np.array([max(int(mask.sum()), 1) for mask in axis.inside]) for axis in (axis_y, axis_x)]
        return np.outer(*counts).mean()


class DxOfReplicatedEdges(GradientFault):
    """Samples off the map pass their gradient to its edge."""

    def inside(self, c: Array, length: int) -> Array:
        return np.ones_like(c, bool) if self.is_gradient else super().inside(c, length)


class DxOfAClampedSize(GradientFault):
    """The gradient makes sizes at least 1 in half_pixel, and the forward operator does not, as in Paddle."""

    def is_raised(self, size: float) -> bool:
        return size < 1 if self.is_gradient else super().is_raised(size)


class DxOfRatio0AtLeast1(GradientFault):
    """The gradient samples an empty RoI once, and the forward operator does not."""

    def adaptive_count(self, size: float, bins: int) -> int:
        return max(super().adaptive_count(size, bins), int(self.is_gradient))


class DxNeedsX(GradientFault):
    """dX of an average is refused without X."""

    def needs_x(self) -> bool:
        return True


class TieToTheLast(GradientFault):
    """Of equal candidates the last wins."""

    def winner(self, candidates: Array) -> int:
        return len(candidates) - 1 - int(np.argmax(candidates[::-1]))


class TieDownTheColumns(GradientFault):
    """Of equal samples the first down a column wins, not the first along a row."""

    def maximum_part(self, dy: Array, image: Array, axis_y: Axis, axis_x: Axis) -> tuple[Array, Array]:
        self._rows, self._columns = len(axis_y.inside[0]), len(axis_x.inside[0])
        return super().maximum_part(dy, image, axis_y, axis_x)

    def winner(self, candidates: Array) -> int:
        each = 4 if self.attributes["mode"] == "max" else 1
        if len(candidates) != self._rows * self._columns * each:
            return super().winner(candidates)
        order = np.arange(len(candidates)).reshape(self._rows, self._columns, each).swapaxes(0, 1).ravel()
        return int(order[np.argmax(candidates[order])])


class TieShared(GradientFault):
    """Equal candidates of a maximum share its gradient."""

    def maximum_part(self, dy: Array, image: Array, axis_y: Axis, axis_x: Axis) -> tuple[Array, Array]:
        dx, droi = np.zeros_like(image), np.zeros(4)
        for p, q in np.ndindex(*dy.shape[1:]):
            for c, values in enumerate(self.candidates(image, axis_y, axis_x, p, q)):
                winners = np.flatnonzero(values == values.max(initial=-np.inf))
                for winner in winners:
                    dx_of_one, droi_of_one = self.effect(image[c], axis_y, axis_x, p, q, int(winner))
                    dx[c] += dy[c, p, q] * dx_of_one / len(winners)
                    droi += dy[c, p, q] * droi_of_one / len(winners)
        return dx, droi


class MaximumPassedAsAverage(GradientFault):
    """The gradient of a maximum is that of an average."""

    def gradient(self, dy: Array, rois: Array, images: Array, x_shape: Array, x: Array | None) -> list[Array]:
        if self.needs_x() and x is None:
            raise ValueError("X")
        self.attributes["mode"] = "avg"
        return super().gradient(dy, rois, images, x_shape, x)


class WholeGradientToTheCorner(GradientFault):
    """max passes the gradient to the winning corner without its weight."""

    def effect(self, channel: Array, axis_y: Axis, axis_x: Axis, p: int, q: int, winner: int) -> tuple[Array, Array]:
        dx, droi = super().effect(channel, axis_y, axis_x, p, q, winner)
        return (dx != 0).astype(np.float64) if self.attributes["mode"] == "max" else dx, droi


class WholeGradientToTheSample(GradientFault):
    """max passes the gradient to all four pixels of the winning corner's sample."""

    def effect(self, channel: Array, axis_y: Axis, axis_x: Axis, p: int, q: int, winner: int) -> tuple[Array, Array]:
        if self.attributes["mode"] != "max":
            return super().effect(channel, axis_y, axis_x, p, q, winner)
        parts = [Control.effect(self, channel, axis_y, axis_x, p, q, winner // 4 * 4 + i) for i in range(4)]
        return np.sum([dx for dx, _ in parts], axis=0), np.sum([droi for _, droi in parts], axis=0)


class WinnerAtMinus1Dropped(GradientFault):
    """A winner at y = -1 is taken for none, as in mmcv."""

    def inside(self, c: Array, length: int) -> Array:
        inside = super().inside(c, length)
        is_of_a_maximum = self.is_gradient and self.attributes["mode"] != "avg"
        return inside & (c != -1) if is_of_a_maximum else inside


class OutsideLoses(GradientFault):
    """A sample outside the map never wins a maximum's gradient."""

    def candidates(self, image: Array, axis_y: Axis, axis_x: Axis, p: int, q: int) -> Array:
        values = super().candidates(image, axis_y, axis_x, p, q)
        return without_outside(values, axis_y.inside[p], axis_x.inside[q]) if self.is_gradient else values


class DroisWithoutScale(GradientFault):
    """drois is by scaled coordinates."""

    def by_ends(self, t: Array, is_raised: bool) -> tuple[Array, Array]:
        by_r1, by_r2 = super().by_ends(t, is_raised)
        return by_r1 / self.scale(), by_r2 / self.scale()


class DroisOfTheStartAlone(GradientFault):
    """A RoI's end has no gradient."""

    def by_ends(self, t: Array, is_raised: bool) -> tuple[Array, Array]:
        by_r1, by_r2 = super().by_ends(t, is_raised)
        return by_r1, 0 * by_r2


class DroisEndsExchanged(GradientFault):
    """The gradients of a RoI's ends are exchanged."""

    def by_ends(self, t: Array, is_raised: bool) -> tuple[Array, Array]:
        by_r1, by_r2 = super().by_ends(t, is_raised)
        return by_r2, by_r1


class DroisHalfAndHalf(GradientFault):
    """Both ends have half of the gradient, wherever a sample lies."""

    def by_ends(self, t: Array, is_raised: bool) -> tuple[Array, Array]:
        return super().by_ends(0 * t + 0.5, is_raised)


class DroisOfAFixedSize(GradientFault):
    """drois moves RoIs and never makes them larger."""

    def by_ends(self, t: Array, is_raised: bool) -> tuple[Array, Array]:
        return super().by_ends(t, True)


class DroisOfAFreeSize(GradientFault):
    """drois makes RoIs larger whose size output_half_pixel has made 1."""

    def by_ends(self, t: Array, is_raised: bool) -> tuple[Array, Array]:
        return super().by_ends(t, False)


class DroisAreY1X1Y2X2(GradientFault):
    """drois has y before x."""

    def gradient(self, dy: Array, rois: Array, images: Array, x_shape: Array, x: Array | None) -> list[Array]:
        return [g[:, [1, 0, 3, 2]] if g.ndim == 2 else g for g in super().gradient(dy, rois, images, x_shape, x)]


class DroisThroughClamp(GradientFault):
    """A sample that is clamped to the border has a slope."""

    def has_slope(self, c: Array, inside: Array, length: int) -> Array:
        return np.asarray(inside & (np.floor(np.clip(c, 0, length - 1)) < length - 1))


class DroisFromOutside(GradientFault):
    """drois has the slope of samples outside the map, too."""

    def axis(self, r1: float, r2: float, bins: int, length: int) -> Axis:
        made = super().axis(r1, r2, bins, length)
        both = zip(made.slopes, made.inside, strict=True)
        return made._replace(slopes=[np.where(inside[:, None], slopes, [-1.0, 1.0]) for slopes, inside in both])


class DroisOfOneChannel(GradientFault):
    """drois is of the first channel."""

    def average_part(self, dy: Array, image: Array, axis_y: Axis, axis_x: Axis) -> tuple[Array, list[float]]:
        dx, _ = super().average_part(dy, image, axis_y, axis_x)
        return dx, super().average_part(dy[:1], image[:1], axis_y, axis_x)[1]


class DroisOfMaximaAre0(GradientFault):
    """drois of a maximum is 0."""

    def maximum_part(self, dy: Array, image: Array, axis_y: Axis, axis_x: Axis) -> tuple[Array, Array]:
        return super().maximum_part(dy, image, axis_y, axis_x)[0], np.zeros(4)


class DroisAre0(GradientFault):
    """drois is 0, as in MXNet."""

    def has_slope(self, c: Array, inside: Array, length: int) -> Array:
        return np.zeros_like(inside)


class DroisOnlyWithDx(GradientFault):
    """The first output of a node is dX, wanted or not."""

    def gradient(self, dy: Array, rois: Array, images: Array, x_shape: Array, x: Array | None) -> list[Array]:
        names, self.outputs = self.outputs, ["dX", "drois"]
        try:
            needs_x = self.attributes["mode"] != "avg" or (len(names) > 1 and bool(names[1]))
            given = np.zeros(x_shape) if x is None and not needs_x else x
            return super().gradient(dy, rois, images, x_shape, given)[: len([name for name in names if name])]
        finally:
            self.outputs = names


FAULTS = (
    DxOverwritten,
    DxRaced,
    DxDividedByWrongCount,
    DxNotDivided,
    DxWithoutOutside,
    DxOfReplicatedEdges,
    DxOfAClampedSize,
    DxOfRatio0AtLeast1,
    DxNeedsX,
    TieToTheLast,
    TieDownTheColumns,
    TieShared,
    MaximumPassedAsAverage,
    WholeGradientToTheCorner,
    WholeGradientToTheSample,
    WinnerAtMinus1Dropped,
    OutsideLoses,
    DroisWithoutScale,
    DroisOfTheStartAlone,
    DroisEndsExchanged,
    DroisHalfAndHalf,
    DroisOfAFixedSize,
    DroisOfAFreeSize,
    DroisAreY1X1Y2X2,
    DroisThroughClamp,
    DroisFromOutside,
    DroisOfOneChannel,
    DroisOfMaximaAre0,
    DroisAre0,
    DroisOnlyWithDx,
)
