"""Faults in how samples become a bin."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.wrong.family import Family
from conformance.wrong.roi_align.control import Array, Axis, Control


def without_outside(candidates: Array, inside_y: Array, inside_x: Array) -> Array:
    """[C, candidates of a bin], those of samples outside the map less than any other."""
    mask = np.outer(inside_y, inside_x).ravel()
    kept = np.repeat(mask, candidates.shape[1] // len(mask)) if len(mask) else np.zeros(0, bool)
    return np.where(kept, candidates, -np.inf)


class ReductionFault(Control):
    """Has its family."""

    family = Family.REDUCTIONS


class MaxTheOtherWay(ReductionFault):
    """max is over interpolated samples and max_interpolated over weighted corners."""

    def meaning(self, attributes: dict[str, Any]) -> dict[str, Any]:
        mode = attributes["mode"]
        return {**attributes, "mode": {"max": "max_interpolated", "max_interpolated": "max"}.get(mode, mode)}


class MaxIsInterpolated(ReductionFault):
    """max is over interpolated samples, as OpenVINO has it."""

    def meaning(self, attributes: dict[str, Any]) -> dict[str, Any]:
        return {**attributes, "mode": "max_interpolated" if attributes["mode"] == "max" else attributes["mode"]}


class InterpolatedIsMax(ReductionFault):
    """max_interpolated is over weighted corners, as max is."""

    def meaning(self, attributes: dict[str, Any]) -> dict[str, Any]:
        mode = attributes["mode"]
        return {**attributes, "mode": "max" if mode == "max_interpolated" else mode}


class MaxOfPixels(ReductionFault):
    """max is over the corners without their weights."""

    def reduced(self, pixels: Array, weights: Array) -> Array:
        return (
            np.where(weights != 0, pixels, 0.0)
            if self.attributes["mode"] == "max"
            else super().reduced(pixels, weights)
        )


class MaxFromZero(ReductionFault):
    """A maximum begins at 0, as OpenVINO's does."""

    def maximum(self, candidates: Array) -> Array:
        return np.asarray(candidates.max(axis=1, initial=0.0))


class MaxFromMinus10000(ReductionFault):
    """A maximum begins at -10000, as mmcv's does on the CPU."""

    def maximum(self, candidates: Array) -> Array:
        return np.maximum(super().maximum(candidates), -10000.0)


class CornersFromMinus10000(ReductionFault):
    """A maximum of weighted corners begins at -10000."""

    def maximum(self, candidates: Array) -> Array:
        least = -10000.0 if self.attributes["mode"] == "max" else -np.inf
        return np.maximum(super().maximum(candidates), least)


class InterpolatedFromZero(ReductionFault):
    """A maximum of interpolated samples begins at 0."""

    def maximum(self, candidates: Array) -> Array:
        least = -np.inf if self.attributes["mode"] == "max" else 0.0
        return np.maximum(super().maximum(candidates), least)


class CornersWithoutOutside(ReductionFault):
    """Samples outside the map are no candidates of a maximum of weighted corners."""

    def candidates(self, image: Array, axis_y: Axis, axis_x: Axis, p: int, q: int) -> Array:
        values = super().candidates(image, axis_y, axis_x, p, q)
        is_max = self.attributes["mode"] == "max"
        return without_outside(values, axis_y.inside[p], axis_x.inside[q]) if is_max else values

    def maximum(self, candidates: Array) -> Array:
        return np.maximum(super().maximum(candidates), -65504.0)


class ZeroWeightsSkipped(ReductionFault):
    """Corners of weight 0 are no candidates of a maximum."""

    def reduced(self, pixels: Array, weights: Array) -> Array:
        values = super().reduced(pixels, weights)
        is_read = weights > 0
        return np.where(is_read, values, np.where(is_read.any(), -np.inf, 0.0)) if values.ndim == 5 else values


class MaxOfNothingIsTheLeastNumber(ReductionFault):
    """A maximum over no samples is where it began, as mmcv's is on the GPU."""

    def maximum(self, candidates: Array) -> Array:
        return super().maximum(candidates) if candidates.shape[1] else np.full(len(candidates), -65504.0)


class MaxOfMagnitudes(ReductionFault):
    """A maximum is of the magnitudes."""

    def maximum(self, candidates: Array) -> Array:
        return super().maximum(np.abs(candidates))


class MaxWithoutOutside(ReductionFault):
    """Samples outside the map are no candidates of a maximum."""

    def candidates(self, image: Array, axis_y: Axis, axis_x: Axis, p: int, q: int) -> Array:
        values = super().candidates(image, axis_y, axis_x, p, q)
        return without_outside(values, axis_y.inside[p], axis_x.inside[q])

    def maximum(self, candidates: Array) -> Array:
        largest = super().maximum(candidates)
        return np.where(np.isneginf(largest), 0.0, largest)


class MaxFirstSampleAlone(ReductionFault):
    """A maximum is over the corners of the first sample."""

    def candidates(self, image: Array, axis_y: Axis, axis_x: Axis, p: int, q: int) -> Array:
        values = super().candidates(image, axis_y, axis_x, p, q)
        return values[:, : 4 if self.attributes["mode"] == "max" else 1]


class MaxIsAverage(ReductionFault):
    """Every mode is avg."""

    def meaning(self, attributes: dict[str, Any]) -> dict[str, Any]:
        return {**attributes, "mode": "avg" if attributes["mode"].startswith("max") else attributes["mode"]}


class SumForAverage(ReductionFault):
    """avg is not divided."""

    def divisor(self, axis_y: Axis, axis_x: Axis) -> Any:
        return 1


class WeightsOfCornersExchanged(ReductionFault):
    """The pixels above right and below left have each other's weights."""

    def average(self, image: Array, axis_y: Axis, axis_x: Axis) -> Array:
        y = np.zeros((len(image), len(axis_y.taps), len(axis_x.taps)))
        for p, q in np.ndindex(*y.shape[1:]):
            weights = np.einsum("ia,jb->ijba", axis_y.weights[p], axis_x.weights[q])
            pixels = image[:, axis_y.taps[p][:, None, :, None], axis_x.taps[q][None, :, None, :]]
            y[:, p, q] = (pixels * weights).sum(axis=(1, 2, 3, 4)) / self.divisor(axis_y, axis_x)
        return y


FAULTS = (
    MaxTheOtherWay,
    MaxIsInterpolated,
    InterpolatedIsMax,
    MaxOfPixels,
    MaxFromZero,
    MaxFromMinus10000,
    CornersFromMinus10000,
    InterpolatedFromZero,
    CornersWithoutOutside,
    ZeroWeightsSkipped,
    MaxOfNothingIsTheLeastNumber,
    MaxOfMagnitudes,
    MaxWithoutOutside,
    MaxFirstSampleAlone,
    MaxIsAverage,
    SumForAverage,
    WeightsOfCornersExchanged,
)
