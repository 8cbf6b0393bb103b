"""Faults in where outputs read."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.wrong.dml_resample.control import Array, Control, Taps
from conformance.wrong.family import Family


class CoordinateFault(Control):
    """Has its family."""

    family = Family.COORDINATES


class FloorForHalfUp(CoordinateFault):
    """half_up is the pixel before."""

    def half_up(self, x: Array) -> Array:
        return np.floor(x)


class ResampleTieGoesDown(CoordinateFault):
    """Between two pixels half_up is the one before."""

    def half_up(self, x: Array) -> Array:
        return np.ceil(x - 0.5)


class ResampleTieGoesToEven(CoordinateFault):
    """Between two pixels half_up is the even one."""

    def half_up(self, x: Array) -> Array:
        return np.round(x)


class DirectionsExchanged(CoordinateFault):
    """increasing is decreasing, and decreasing increasing."""

    def meaning(self, attributes: dict[str, Any]) -> dict[str, Any]:
        direction = attributes["rounding_direction"]
        other = {"increasing": "decreasing", "decreasing": "increasing"}.get(direction, direction)
        return {**attributes, "rounding_direction": other}


class DirectionIgnored(CoordinateFault):
    """Every rounding_direction is half_up."""

    def nearest(self, x: Array) -> Array:
        return self.half_up(x)


class DirectionOfTiesAlone(CoordinateFault):
    """rounding_direction is of pixels as far away alone."""

    def nearest(self, x: Array) -> Array:
        is_down = self.attributes["rounding_direction"] == "decreasing"
        return np.ceil(x - 0.5) if is_down else self.half_up(x)


class DirectionOfLinear(CoordinateFault):
    """rounding_direction makes linear interpolation read one pixel."""

    def taps(self, axis: int, rank: int, outputs: int, length: int) -> Taps:
        taps = super().taps(axis, rank, outputs, length)
        if self.attributes["rounding_direction"] == "half_up":
            return taps
        return taps._replace(share=np.ceil(taps.share))


class ResampleInputOffsetAdded(CoordinateFault):
    """input_pixel_offsets are added."""

    def offsets(self, axis: int, rank: int) -> tuple[float, float]:
        before, after = super().offsets(axis, rank)
        return -before, after


class ResampleOutputOffsetAdded(CoordinateFault):
    """output_pixel_offsets are added."""

    def offsets(self, axis: int, rank: int) -> tuple[float, float]:
        before, after = super().offsets(axis, rank)
        return before, -after


class OffsetsIgnored(CoordinateFault):
    """Pixel offsets are 0.5 and -0.5."""

    def offsets(self, axis: int, rank: int) -> tuple[float, float]:
        return 0.5, -0.5


class OutputOffsetOfTheInput(CoordinateFault):
    """output_pixel_offsets are subtracted after the scale, as input_pixel_offsets are."""

    def coordinates(self, axis: int, rank: int, outputs: int, length: int) -> Array:
        before, after = self.offsets(axis, rank)
        return np.asarray(np.arange(float(outputs)) / self.scale(axis, outputs, length) - after - before)


class InputOffsetOfTheOutput(CoordinateFault):
    """input_pixel_offsets are subtracted before the scale, as output_pixel_offsets are."""

    def coordinates(self, axis: int, rank: int, outputs: int, length: int) -> Array:
        before, after = self.offsets(axis, rank)
        return np.asarray((np.arange(float(outputs)) - after - before) / self.scale(axis, outputs, length))


class LastOffsetsForAll(CoordinateFault):
    """Every axis has the pixel offsets of the last."""

    def offsets(self, axis: int, rank: int) -> tuple[float, float]:
        return super().offsets(rank - 1, rank)


class LastScaleForAll(CoordinateFault):
    """Every axis has the scale of the last."""

    def scale(self, axis: int, outputs: int, length: int) -> float:
        scales = self.attributes["scales"]
        return float(scales[-1]) if scales else super().scale(axis, outputs, length)


class ScalesBackwards(CoordinateFault):
    """The first scale is of the last axis."""

    def scale(self, axis: int, outputs: int, length: int) -> float:
        scales = self.attributes["scales"]
        return float(scales[-1 - axis]) if scales else super().scale(axis, outputs, length)


class RatioForScales(CoordinateFault):
    """Scales are the ratios of the lengths, as where none are given."""

    def scale(self, axis: int, outputs: int, length: int) -> float:
        return outputs / length


class NoScalesIs1(CoordinateFault):
    """Scales are 1 where none are given."""

    def scale(self, axis: int, outputs: int, length: int) -> float:
        return super().scale(axis, outputs, length) if self.attributes["scales"] else 1.0


class RatioOfCorners(CoordinateFault):
    """Without scales the first and the last pixel are those of the output, as with aligned corners."""

    def scale(self, axis: int, outputs: int, length: int) -> float:
        is_given = bool(self.attributes["scales"]) or min(outputs, length) < 2
        return super().scale(axis, outputs, length) if is_given else (outputs - 1) / (length - 1)


class LeadingAxesIgnored(CoordinateFault):
    """Images and channels are not resampled."""

    def coordinates(self, axis: int, rank: int, outputs: int, length: int) -> Array:
        return np.arange(float(outputs)) if axis < rank - 2 else super().coordinates(axis, rank, outputs, length)


class Scale1IsCopied(CoordinateFault):
    """An axis of scale 1 is copied, whatever its offsets."""

    def coordinates(self, axis: int, rank: int, outputs: int, length: int) -> Array:
        if self.scale(axis, outputs, length) == 1:
            return np.arange(float(outputs))
        return super().coordinates(axis, rank, outputs, length)


class LinearIsNearest(CoordinateFault):
    """Every interpolation_mode is nearest_neighbor."""

    def meaning(self, attributes: dict[str, Any]) -> dict[str, Any]:
        mode = attributes["interpolation_mode"]
        return {**attributes, "interpolation_mode": "nearest_neighbor" if mode == "linear" else mode}


class NearestIsLinear(CoordinateFault):
    """Every interpolation_mode is linear."""

    def meaning(self, attributes: dict[str, Any]) -> dict[str, Any]:
        mode = attributes["interpolation_mode"]
        return {**attributes, "interpolation_mode": "linear" if mode == "nearest_neighbor" else mode}


FAULTS = (
    FloorForHalfUp,
    ResampleTieGoesDown,
    ResampleTieGoesToEven,
    DirectionsExchanged,
    DirectionIgnored,
    DirectionOfTiesAlone,
    DirectionOfLinear,
    ResampleInputOffsetAdded,
    ResampleOutputOffsetAdded,
    OffsetsIgnored,
    OutputOffsetOfTheInput,
    InputOffsetOfTheOutput,
    LastOffsetsForAll,
    LastScaleForAll,
    ScalesBackwards,
    RatioForScales,
    NoScalesIs1,
    RatioOfCorners,
    LeadingAxesIgnored,
    Scale1IsCopied,
    LinearIsNearest,
    NearestIsLinear,
)
