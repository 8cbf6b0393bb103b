"""Faults in the types of coordinates, sums and results."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.wrong.family import Family
from conformance.wrong.roi_align.control import Array, Axis, Control


class TypeFault(Control):
    """Has its family."""

    family = Family.TYPES

    @property
    def has_16_bits(self) -> bool:
        """Whether the tensors are float16 or bfloat16."""
        return self.dtype.itemsize == 2


class CoordinatesInHalf(TypeFault):
    """Coordinates are float16 in every type."""

    def place(self, start: float, size: float, bins: int, per_bin: int, p: Array, i: Array) -> Array:
        return super().place(start, size, bins, per_bin, p, i).astype(np.float16).astype(np.float64)


class CoordinatesInTheTensorsType(TypeFault):
    """Coordinates have the type of the tensors, as in TensorRT's plugin."""

    def place(self, start: float, size: float, bins: int, per_bin: int, p: Array, i: Array) -> Array:
        return super().place(start, size, bins, per_bin, p, i).astype(self.dtype).astype(np.float64)


class CoordinatesInFloat(TypeFault):
    """Coordinates are float32 for double tensors, too."""

    def place(self, start: float, size: float, bins: int, per_bin: int, p: Array, i: Array) -> Array:
        return super().place(start, size, bins, per_bin, p, i).astype(np.float32).astype(np.float64)


class ScaleInTheTensorsType(TypeFault):
    """spatial_scale is rounded to the type of the tensors."""

    def scale(self) -> float:
        return float(np.asarray(super().scale()).astype(self.dtype))


class BinsInTheTensorsType(TypeFault):
    """The size of a bin is rounded to the type of the tensors."""

    def place(self, start: float, size: float, bins: int, per_bin: int, p: Array, i: Array) -> Array:
        of_bin = float(np.asarray(size / bins).astype(self.dtype))
        return start + p * of_bin + (i + 0.5) * of_bin / max(per_bin, 1)


class WeightsInTheTensorsType(TypeFault):
    """Interpolation weights have the type of the tensors."""

    def weights(self, c: Array, length: int) -> Array:
        return super().weights(c, length).astype(self.dtype).astype(np.float64)


class SumsInHalf(TypeFault):
    """Partial sums are float16 in every type."""

    def partial(self, sums: Array) -> Array:
        return sums.astype(np.float16).astype(np.float64)


class PartialSumsInTheTensorsType(TypeFault):
    """Partial sums are rounded to the type of the tensors."""

    def partial(self, sums: Array) -> Array:
        return sums.astype(self.dtype).astype(np.float64)


class EachStepInTheTensorsType(TypeFault):
    """Each product and each sum is rounded to the type of the tensors, one after the other: long sums stall."""

    def average(self, image: Array, axis_y: Axis, axis_x: Axis) -> Array:
        if not self.has_16_bits:
            return super().average(image, axis_y, axis_x)
        y = np.zeros((len(image), len(axis_y.taps), len(axis_x.taps)))
        for p, q in np.ndindex(*y.shape[1:]):
            products = self.candidates(image, axis_y, axis_x, p, q).astype(self.dtype)
            if products.shape[1]:
                y[:, p, q] = np.add.accumulate(products, axis=1)[:, -1].astype(np.float64)
        return np.asarray(y / self.divisor(axis_y, axis_x))


class AverageInTheTensorsType(TypeFault):
    """Samples are interpolated in float32 and summed in the type of the tensors: long sums stall."""

    def average(self, image: Array, axis_y: Axis, axis_x: Axis) -> Array:
        if not self.has_16_bits or len(axis_y.inside[0]) != axis_y.per_bin or len(axis_x.inside[0]) != axis_x.per_bin:
            return super().average(image, axis_y, axis_x)
        y = np.zeros((len(image), len(axis_y.taps), len(axis_x.taps)))
        for p, q in np.ndindex(*y.shape[1:]):
            samples = self.candidates(image, axis_y, axis_x, p, q).astype(self.dtype)
            if samples.shape[1]:
                y[:, p, q] = np.add.accumulate(samples, axis=1)[:, -1].astype(np.float64)
        return np.asarray(y / self.divisor(axis_y, axis_x))


class DoubleInFloat(TypeFault):
    """double tensors are computed in float32."""

    def rounded(self, values: Array) -> Array:
        return values.astype(np.float32).astype(self.dtype)


class MapIn11Bits(TypeFault):
    """The map of float tensors has 11 bits, as where accelerators may multiply with less."""

    def image(self, x: Array, n: int) -> Array:
        image = super().image(x, n)
        return image if image.dtype != np.float32 else image.astype(np.float16).astype(np.float32)


class ThroughHalf(TypeFault):
    """bfloat16 tensors are computed through float16."""

    def rounded(self, values: Array) -> Array:
        return super().rounded(values.astype(np.float16) if self.has_16_bits else values)


class ResultCutOff(TypeFault):
    """float16 and bfloat16 results are cut off, not rounded."""

    def rounded(self, values: Array) -> Array:
        rounded = super().rounded(values)
        if not self.has_16_bits:
            return rounded
        is_beyond = np.abs(rounded.astype(np.float64)) > np.abs(values)
        return (rounded.view(np.uint16) - is_beyond.astype(np.uint16)).view(self.dtype)


class ResultInFloat(TypeFault):
    """float16 and bfloat16 tensors have a float result."""

    def rounded(self, values: Array) -> Array:
        return values.astype(np.float32 if self.has_16_bits else self.dtype)


class DxSumsInTheTensorsType(TypeFault):
    """dX is summed in the type of the tensors, as torchvision does: float16 sums stall."""

    of_gradients_alone = True

    def sum_type(self) -> np.dtype[Any]:
        return self.dtype


class DroisSumsInTheTensorsType(TypeFault):
    """drois is summed in the type of the tensors, one bin after the other."""

    of_gradients_alone = True

    def droi_sum(self, parts: Array) -> float:
        sums = np.add.accumulate(parts.ravel().astype(self.dtype))
        return float(sums[-1]) if len(sums) else 0.0


FAULTS = (
    CoordinatesInHalf,
    CoordinatesInTheTensorsType,
    CoordinatesInFloat,
    ScaleInTheTensorsType,
    BinsInTheTensorsType,
    WeightsInTheTensorsType,
    SumsInHalf,
    PartialSumsInTheTensorsType,
    EachStepInTheTensorsType,
    AverageInTheTensorsType,
    DoubleInFloat,
    MapIn11Bits,
    ThroughHalf,
    ResultCutOff,
    ResultInFloat,
    DxSumsInTheTensorsType,
    DroisSumsInTheTensorsType,
)
