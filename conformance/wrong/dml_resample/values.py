"""Faults at the edges, in lengths, sums, types, axes, gradients, defaults and in what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.wrong.dml_resample.control import LISTS, Array, Control, Taps
from conformance.wrong.family import Family


class BorderFault(Control):
    """Has its family."""

    family = Family.BORDERS


class EdgesNotClamped(BorderFault):
    """Outputs beyond the edge are 0."""

    def kept(self, weights: Array, taps: Taps) -> Array:
        return weights * taps.inside

    def pass_at_edge(self, made: Array, pixel: int, passed: Array) -> None:
        pass


class EdgesReflected(BorderFault):
    """Beyond the edge the tensor is mirrored."""

    def coordinates(self, axis: int, rank: int, outputs: int, length: int) -> Array:
        x = np.abs(super().coordinates(axis, rank, outputs, length))
        return np.asarray(np.minimum(x, 2 * (length - 1) - x))


class EdgesWrap(BorderFault):
    """Beyond the edge the tensor begins again."""

    def coordinates(self, axis: int, rank: int, outputs: int, length: int) -> Array:
        x = super().coordinates(axis, rank, outputs, length)
        return np.where((x <= -1) | (x >= length), np.mod(x, length), x)


class UnreadPixelsMultiplied(BorderFault):
    """A pixel with weight 0 is read, so that an infinite one makes NaN."""

    def forward_along(self, data: Array, taps: Taps, _: int) -> Array:
        parts = [data[pixels] * w.reshape(-1, *[1] * (data.ndim - 1)) for pixels, w in taps.parts()]
        return np.asarray(parts[0] + parts[1])


class CountFault(Control):
    """Has its family."""

    family = Family.COUNTS


class LengthRoundedUp(CountFault):
    """The length of an output is rounded up."""

    def scaled(self, length: int, scale: float) -> int:
        return int(np.ceil(length * scale))


class LengthRoundedToTheNearest(CountFault):
    """The length of an output is rounded to the nearest."""

    def scaled(self, length: int, scale: float) -> int:
        return int(np.floor(length * scale + 0.5))


class LengthAtLeast1(CountFault):
    """An output has at least one element along an axis."""

    def scaled(self, length: int, scale: float) -> int:
        return max(super().scaled(length, scale), 1)


class SizesIgnored(CountFault):
    """output_sizes are of no account where scales are given."""

    def output_lengths(self, lengths: tuple[int, ...]) -> tuple[int, ...]:
        if self.attributes["scales"]:
            return tuple(self.scaled(n, scale) for n, scale in zip(lengths, self.attributes["scales"], strict=True))
        return super().output_lengths(lengths)


class ReductionFault(Control):
    """Has its family."""

    family = Family.REDUCTIONS


class Antialiased(ReductionFault):
    """Where a tensor becomes smaller, neighbours are averaged."""

    def forward_along(self, data: Array, taps: Taps, length: int) -> Array:
        if length >= len(data):
            return super().forward_along(data, taps, length)
        before = data[np.maximum(np.arange(len(data)) - 1, 0)]
        after = data[np.minimum(np.arange(len(data)) + 1, len(data) - 1)]
        return super().forward_along((before + 2 * data + after) / 4, taps, length)


class SharesExchanged(ReductionFault):
    """Of two pixels the nearer has the share of the farther."""

    def taps(self, axis: int, rank: int, outputs: int, length: int) -> Taps:
        taps = super().taps(axis, rank, outputs, length)
        return taps._replace(share=np.where(taps.high > taps.low, 1 - taps.share, taps.share))


class Smoothed(ReductionFault):
    """Shares follow a smooth curve, not a line."""

    def taps(self, axis: int, rank: int, outputs: int, length: int) -> Taps:
        taps = super().taps(axis, rank, outputs, length)
        return taps._replace(share=taps.share**2 * (3 - 2 * taps.share))


class TypeFault(Control):
    """Has its family."""

    family = Family.TYPES


class HalfSums(TypeFault):
    """Sums have the type of the tensors."""

    def sum_type(self) -> np.dtype[Any]:
        return self.dtype


class AxesInTheTensorsType(TypeFault):
    """What one axis hands to the next has the type of the tensors."""

    def between_axes(self, working: Array) -> Array:
        return working.astype(self.dtype).astype(np.float64)


class ResampleCoordinatesInTheTensorsType(TypeFault):
    """Coordinates have the type of the tensors."""

    def coordinates(self, axis: int, rank: int, outputs: int, length: int) -> Array:
        return super().coordinates(axis, rank, outputs, length).astype(self.dtype).astype(np.float64)


class ResampleCoordinatesInFloat(TypeFault):
    """Coordinates are float32 for double tensors, too."""

    def coordinates(self, axis: int, rank: int, outputs: int, length: int) -> Array:
        return super().coordinates(axis, rank, outputs, length).astype(np.float32).astype(np.float64)


class ScalesInTheTensorsType(TypeFault):
    """Scales are rounded to the type of the tensors."""

    def scale(self, axis: int, outputs: int, length: int) -> float:
        return float(np.asarray(super().scale(axis, outputs, length)).astype(self.dtype)) or 1.0


class StepsAdded(TypeFault):
    """Coordinates are sums of float32 steps."""

    def coordinates(self, axis: int, rank: int, outputs: int, length: int) -> Array:
        steps = np.full(outputs, 1 / self.scale(axis, outputs, length), np.float32)
        steps[:1] = super().coordinates(axis, rank, outputs, length)[:1]
        return np.add.accumulate(steps).astype(np.float64)


class ResampleDoubleInFloat(TypeFault):
    """double tensors are computed in float32."""

    def rounded(self, values: Array) -> Array:
        return values.astype(np.float32).astype(self.dtype)


class IndexFault(Control):
    """Has its family."""

    family = Family.INDEXING


class FirstImageAlone(IndexFault):
    """Every image of four axes is the first."""

    def run(self, inputs: list[Array]) -> list[Array]:
        (y,) = super().run(inputs)
        return [y[:1].repeat(len(y), 0) if y.ndim == 4 else y]


class AxesReversed(IndexFault):
    """The lists have the last axis first."""

    def meaning(self, attributes: dict[str, Any]) -> dict[str, Any]:
        return {**attributes, **{name: list(attributes[name])[::-1] for name in LISTS}}


class FourAxesAlone(IndexFault):
    """A tensor must have four axes, as in DirectML's first version."""

    def run(self, inputs: list[Array]) -> list[Array]:
        if inputs[0].ndim != 4:
            raise ValueError("rank")
        return super().run(inputs)


class GradientFault(Control):
    """Has its family."""

    family = Family.GRADIENTS
    of_gradients_alone = True


class OffsetsSwappedInGradient(GradientFault):
    """The gradient exchanges the two lists of offsets, as DirectML's operator does."""

    def offsets(self, axis: int, rank: int) -> tuple[float, float]:
        before, after = super().offsets(axis, rank)
        return (after, before) if self.is_gradient else (before, after)


class ScaleInvertedInGradient(GradientFault):
    """The gradient takes scales for those from the output to the input."""

    def scale(self, axis: int, outputs: int, length: int) -> float:
        scale = super().scale(axis, outputs, length)
        return 1 / scale if self.is_gradient else scale


class GradientAssignedAtEdges(GradientFault):
    """Of the outputs beyond an edge the last alone passes its gradient."""

    def pass_at_edge(self, made: Array, pixel: int, passed: Array) -> None:
        made[pixel] = passed


class ClampedGradientDropped(GradientFault):
    """Outputs beyond an edge pass no gradient."""

    def pass_at_edge(self, made: Array, pixel: int, passed: Array) -> None:
        pass


class GradientByResampling(GradientFault):
    """The gradient is the resampled gradient of the output, not the transpose."""

    def gradient_along(self, data: Array, taps: Taps, length: int) -> Array:
        x = (np.arange(length) + 0.5) * len(data) / length - 0.5
        pixels = np.clip(np.floor(x + 0.5), 0, len(data) - 1).astype(np.int64)
        return np.asarray(data[pixels])


class GradientAveraged(GradientFault):
    """Outputs that read one pixel pass the average of their gradients."""

    def gradient_along(self, data: Array, taps: Taps, length: int) -> Array:
        counts = np.maximum(super().gradient_along(np.ones(len(data)), taps, length), 1)
        return super().gradient_along(data, taps, length) / counts.reshape(-1, *[1] * (data.ndim - 1))


class GradientToBothPixels(GradientFault):
    """A pixel with weight 0 gets a gradient of 0, which of an infinite one is NaN."""

    def gradient_along(self, data: Array, taps: Taps, length: int) -> Array:
        made = super().gradient_along(data, taps, length)
        for pixels, weights in taps.parts():
            for o in np.flatnonzero(weights == 0):
                made[pixels[o]] += data[o] * 0
        return made


class DefaultFault(Control):
    """Has its family."""

    family = Family.DEFAULTS


class Offsets0ByDefault(DefaultFault):
    """Pixel offsets are 0 where none are given."""

    def offsets(self, axis: int, rank: int) -> tuple[float, float]:
        before, after = super().offsets(axis, rank)
        return (
            before if self.attributes["input_pixel_offsets"] else 0.0,
            after if self.attributes["output_pixel_offsets"] else 0.0,
        )


class ResampleNearestByDefault(DefaultFault):
    """interpolation_mode is nearest_neighbor where nothing is said."""

    def defaults(self) -> dict[str, Any]:
        return {**super().defaults(), "interpolation_mode": "nearest_neighbor"}


class DecreasingByDefault(DefaultFault):
    """rounding_direction is decreasing where nothing is said."""

    def defaults(self) -> dict[str, Any]:
        return {**super().defaults(), "rounding_direction": "decreasing"}


class ResampleAttributesUnchecked(DefaultFault):
    """No attribute is refused."""

    def check_attributes(self) -> None:
        pass


class IntegersTaken(DefaultFault):
    """Tensors of integers are converted."""

    def run(self, inputs: list[Array]) -> list[Array]:
        return super().run([inputs[0].astype(np.float32) if inputs[0].dtype.kind in "iu" else inputs[0], *inputs[1:]])


class FloatShapeTaken(DefaultFault):
    """x_shape may be of floats."""

    of_gradients_alone = True

    def checked_shape(self, x_shape: Array, rank: int) -> tuple[int, ...]:
        return super().checked_shape(x_shape.astype(np.int64), rank)


class EmptyOutputRefused(DefaultFault):
    """An output without elements is an error."""

    def output_lengths(self, lengths: tuple[int, ...]) -> tuple[int, ...]:
        made = super().output_lengths(lengths)
        if 0 in made and 0 not in lengths:
            raise ValueError("no outputs")
        return made


class EmptyInputRefused(DefaultFault):
    """An input without elements is an error."""

    def output_lengths(self, lengths: tuple[int, ...]) -> tuple[int, ...]:
        if 0 in lengths:
            raise ValueError("no pixels")
        return super().output_lengths(lengths)


class NoPixelsAre0(DefaultFault):
    """Outputs that have no pixels to read are 0."""

    def run(self, inputs: list[Array]) -> list[Array]:
        if self.is_gradient or 0 not in inputs[0].shape:
            return super().run(inputs)
        return [np.zeros(self.output_lengths(inputs[0].shape), inputs[0].dtype)]


FAULTS = (
    EdgesNotClamped,
    EdgesReflected,
    EdgesWrap,
    UnreadPixelsMultiplied,
    LengthRoundedUp,
    LengthRoundedToTheNearest,
    LengthAtLeast1,
    SizesIgnored,
    Antialiased,
    SharesExchanged,
    Smoothed,
    HalfSums,
    AxesInTheTensorsType,
    ResampleCoordinatesInTheTensorsType,
    ResampleCoordinatesInFloat,
    ScalesInTheTensorsType,
    StepsAdded,
    ResampleDoubleInFloat,
    FirstImageAlone,
    AxesReversed,
    FourAxesAlone,
    OffsetsSwappedInGradient,
    ScaleInvertedInGradient,
    GradientAssignedAtEdges,
    ClampedGradientDropped,
    GradientByResampling,
    GradientAveraged,
    GradientToBothPixels,
    Offsets0ByDefault,
    ResampleNearestByDefault,
    DecreasingByDefault,
    ResampleAttributesUnchecked,
    IntegersTaken,
    FloatShapeTaken,
    EmptyOutputRefused,
    EmptyInputRefused,
    NoPixelsAre0,
)
