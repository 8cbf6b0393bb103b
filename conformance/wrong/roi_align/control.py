"""RoiAlign and its gradient a second time, as dense matrices, with twelve faults to switch on.

`Control` has none and must pass every case; each of the others has one and must fail a case. All have ONNX's backend
interface and share nothing with the reference or the kernels.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx

Array = npt.NDArray[Any]

DEFAULTS: dict[str, Any] = {
    "mode": "avg",
    "output_height": 1,
    "output_width": 1,
    "sampling_ratio": 0,
    "spatial_scale": 1.0,
}
MODES = ("avg", "max", "max_interpolated")
COORDINATES = ("half_pixel", "output_half_pixel")


class Axis(NamedTuple):
    """Samples of one RoI along one axis: those inside the map, and the first outside of each bin, in order.

    taps, weights, slopes: [P][k, 2]. by_r1, by_r2: [P][k], derivatives of the coordinate. inside: [P][k].
    per_bin: samples of a bin, those left out included.
    """

    taps: list[Array]
    weights: list[Array]
    slopes: list[Array]
    by_r1: list[Array]
    by_r2: list[Array]
    inside: list[Array]
    per_bin: int


class Control:
    """The operators without a fault; a subclass names its own."""

    fault: ClassVar[str] = ""

    def __init__(self, model: onnx.ModelProto) -> None:
        (node,) = model.graph.node
        self.opset = next((o.version for o in model.opset_import if o.domain == node.domain), 0)
        if "_" in node.op_type:
            self.opset = int(node.op_type.rpartition("_")[2])
        self.is_gradient = node.op_type == "RoiAlignGrad"
        has_mode = self.is_gradient or self.opset >= 16 or self.fault == "opset_10_as_16"
        given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        given = {name: value.decode() if isinstance(value, bytes) else value for name, value in given.items()}
        self.attributes = {
            **DEFAULTS,
            "coordinate_transformation_mode": "half_pixel" if has_mode else "output_half_pixel",
            **given,
        }
        if self.fault == "ratio_2_by_default" and "sampling_ratio" not in given:
            self.attributes["sampling_ratio"] = 2
        self.inputs, self.outputs = list(node.input), list(node.output)
        if self.fault != "attributes_unchecked":
            self.check_attributes()

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU") -> bool:
        return device == "CPU" and model.graph.node[0].op_type.startswith("RoiAlign")

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU") -> Control:
        assert device == "CPU"
        return cls(model)

    def check_attributes(self) -> None:
        a = self.attributes
        if a["mode"] not in MODES or a["coordinate_transformation_mode"] not in COORDINATES:
            raise ValueError("mode")
        if a["sampling_ratio"] < 0 or a["output_height"] < 1 or a["output_width"] < 1:
            raise ValueError("size")
        if not 0 < a["spatial_scale"] < np.inf:
            raise ValueError("scale")

    def run(self, inputs: list[Array]) -> list[Array]:
        values = iter(inputs)
        by_name = [next(values) if name else None for name in self.inputs]
        if self.is_gradient:
            dy, rois, images, x_shape, x = [*by_name, None][:5]
            assert dy is not None
            assert rois is not None
            assert images is not None
            assert x_shape is not None
            return self.gradient(dy, rois, images, x_shape, x)
        x, rois, images = by_name
        assert x is not None
        assert rois is not None
        assert images is not None
        return [self.forward(x.astype(np.float64), rois, images).astype(x.dtype)]

    def check(self, rois: Array, images: Array, shape: Any) -> None:
        if len(shape) != 4 or min(shape) < 0 or rois.shape != (len(rois), 4) or images.shape != (len(rois),):
            raise ValueError("shape")
        least = -shape[0] if self.fault == "negative_index_wraps" else 0
        if not np.isfinite(rois).all() or np.any((images < least) | (images >= shape[0])):
            raise ValueError("value")
        if len(rois) and 0 in shape[2:]:
            raise ValueError("no pixels")

    def forward(self, x: Array, rois: Array, images: Array) -> Array:
        self.check(rois, images, x.shape)
        bins = self.attributes["output_height"], self.attributes["output_width"]
        y = np.zeros((len(rois), x.shape[1], *bins))
        for r, roi in enumerate(rois.astype(np.float64)):
            image = x[self.image_of(r, images)]
            image = image[:1].repeat(len(image), 0) if self.fault == "first_channel_for_all" else image
            axis_y, axis_x = self.axes(roi, bins, image.shape[1:])
            if self.mode == "avg":
                a_y, a_x = dense(axis_y, axis_y.weights, image.shape[1]), dense(axis_x, axis_x.weights, image.shape[2])
                lines = np.einsum("ph,chw->cpw", a_y, image)
                if self.fault == "sums_in_half":
                    lines = lines.astype(np.float16)
                y[r] = np.einsum("cpw,qw->cpq", lines, a_x) / self.divisor(axis_y, axis_x)
            else:
                for p, q in np.ndindex(*bins):
                    least = 0.0 if self.fault == "max_from_zero" else -np.inf
                    y[r, :, p, q] = self.candidates(image, axis_y, axis_x, p, q).max(axis=1, initial=least)
        return np.where(np.isneginf(y), 0.0, y)

    def image_of(self, r: int, images: Array) -> int:
        """The image of RoI r."""
        return int({"batch_ignored": 0, "images_in_turn": r % (images.max() + 1)}.get(self.fault, images[r]))

    def gradient(self, dy: Array, rois: Array, images: Array, x_shape: Array, x: Array | None) -> list[Array]:
        if x_shape.shape != (4,) or dy.ndim != 4 or dy.shape[:2] != (len(rois), x_shape[1]) or 0 in dy.shape[2:]:
            raise ValueError("shape")
        needs_x = self.mode != "avg" or (len(self.outputs) > 1 and bool(self.outputs[1]))
        if needs_x if x is None else x.shape != tuple(x_shape):
            raise ValueError("X")
        self.check(rois, images, x_shape)
        dx, drois = np.zeros(x_shape), np.zeros((len(rois), 4))
        for r, roi in enumerate(rois.astype(np.float64)):
            n = self.image_of(r, images)
            image = np.zeros(x_shape[1:]) if x is None else x[n].astype(np.float64)
            axes = self.axes(roi, dy.shape[2:], image.shape[1:])
            part = self.average_part if self.mode == "avg" else self.maximum_part
            dx_part, drois[r] = part(dy[r].astype(np.float64), image, *axes)
            dx[n] = dx_part if self.fault == "dx_overwritten" else dx[n] + dx_part
        return [g.astype(dy.dtype) for g, name in zip((dx, drois), self.outputs, strict=False) if name]

    def average_part(self, dy: Array, image: Array, axis_y: Axis, axis_x: Axis) -> tuple[Array, list[float]]:
        height, width = image.shape[1:]
        count = self.divisor(axis_y, axis_x)
        a_y, a_x = dense(axis_y, axis_y.weights, height), dense(axis_x, axis_x.weights, width)

        def along(m_y: Array, m_x: Array) -> float:
            return float(np.einsum("cpq,ph,chw,qw->", dy, m_y, image, m_x) / count)

        droi = [
            along(a_y, dense(axis_x, axis_x.slopes, width, axis_x.by_r1)),
            along(dense(axis_y, axis_y.slopes, height, axis_y.by_r1), a_x),
            along(a_y, dense(axis_x, axis_x.slopes, width, axis_x.by_r2)),
            along(dense(axis_y, axis_y.slopes, height, axis_y.by_r2), a_x),
        ]
        dx_count = max(axis_y.per_bin, 1) if self.fault == "dx_wrong_count" else count
        return np.einsum("cpq,ph,qw->chw", dy, a_y, a_x) / dx_count, droi

    def maximum_part(self, dy: Array, image: Array, axis_y: Axis, axis_x: Axis) -> tuple[Array, Array]:
        dx, droi = np.zeros_like(image), np.zeros(4)
        for p, q in np.ndindex(*dy.shape[1:]):
            candidates = self.candidates(image, axis_y, axis_x, p, q)
            for c in range(len(image) if candidates.shape[1] else 0):
                winner = int(np.argmax(candidates[c]))
                if self.fault == "tie_to_the_last":
                    winner = candidates.shape[1] - 1 - int(np.argmax(candidates[c][::-1]))
                dx_of_one, droi_of_one = self.effect(image[c], axis_y, axis_x, p, q, winner)
                dx[c] += dy[c, p, q] * dx_of_one
                droi += dy[c, p, q] * droi_of_one
        return dx, droi

    def effect(self, channel: Array, axis_y: Axis, axis_x: Axis, p: int, q: int, winner: int) -> tuple[Array, Array]:
        """The derivatives of a candidate of bin (p, q) by the channel [H, W] and by the RoI [4]."""
        dx, droi = np.zeros_like(channel), np.zeros(4)
        sample, corner = divmod(winner, 4 if self.mode == "max" else 1)
        i, j = divmod(sample, len(axis_x.inside[q]))
        if not (axis_y.inside[p][i] and axis_x.inside[q][j]):
            return dx, droi
        for a, b in [divmod(corner, 2)] if self.mode == "max" else np.ndindex(2, 2):
            h, w = axis_y.taps[p][i, a], axis_x.taps[q][j, b]
            w_y, w_x = axis_y.weights[p][i, a], axis_x.weights[q][j, b]
            dx[h, w] += w_y * w_x
            in_y = channel[h, w] * axis_y.slopes[p][i, a] * w_x
            in_x = channel[h, w] * axis_x.slopes[q][j, b] * w_y
            by_x, by_y = (axis_x.by_r1[q][j], axis_x.by_r2[q][j]), (axis_y.by_r1[p][i], axis_y.by_r2[p][i])
            droi += np.array([in_x * by_x[0], in_y * by_y[0], in_x * by_x[1], in_y * by_y[1]])
        return dx, droi

    @property
    def mode(self) -> str:
        mode = str(self.attributes["mode"])
        if self.fault == "max_other_way":
            return {"max": "max_interpolated", "max_interpolated": "max"}.get(mode, mode)
        return mode

    def candidates(self, image: Array, axis_y: Axis, axis_x: Axis, p: int, q: int) -> Array:
        """[C, candidates of bin (p, q)] in the order that decides ties."""
        weights = np.einsum("ia,jb->ijab", axis_y.weights[p], axis_x.weights[q])
        corners = image[:, axis_y.taps[p][:, None, :, None], axis_x.taps[q][None, :, None, :]] * weights
        if self.mode == "max_interpolated":
            corners = corners.sum(axis=(3, 4))
        if self.fault == "max_without_outside":
            mask = np.outer(axis_y.inside[p], axis_x.inside[q])
            corners = np.where(mask.reshape(mask.shape + (1,) * (corners.ndim - 3)), corners, -np.inf)
        values: Array = corners.reshape(len(image), int(np.prod(corners.shape[1:])))
        return values

    def divisor(self, axis_y: Axis, axis_x: Axis) -> Any:
        if self.fault == "divisor_inside":
            counts = [np.array([max(int(mask.sum()), 1) for mask in axis.inside]) for axis in (axis_y, axis_x)]
            return np.outer(*counts).mean()
        return max(axis_y.per_bin * axis_x.per_bin, 1)

    def axes(self, roi: Array, bins: Any, lengths: Any) -> tuple[Axis, Axis]:
        x1, y1, x2, y2 = map(float, roi if self.fault != "x_y_swapped" else roi[[1, 0, 3, 2]])
        return self.axis(y1, y2, bins[0], lengths[0]), self.axis(x1, x2, bins[1], lengths[1])

    def axis(self, r1: float, r2: float, bins: int, length: int) -> Axis:
        scale, ratio = float(self.attributes["spatial_scale"]), int(self.attributes["sampling_ratio"])
        is_half = self.attributes["coordinate_transformation_mode"] == "half_pixel"
        start, size = r1 * scale - (0.5 if is_half and self.fault != "no_half_pixel" else 0.0), (r2 - r1) * scale
        if is_half and self.fault == "shift_before_scale":
            start = (r1 - 0.5) * scale
        size += {"end_pixel_included": scale}.get(self.fault, 0.0)
        is_raised = size < 1 and (not is_half or self.fault == "clamp_in_half_pixel") and self.fault != "no_least_size"
        size = 1.0 if is_raised else size
        wanted = np.floor(size / bins) if self.fault == "ratio_0_rounded_down" else np.ceil(size / bins)
        per_bin = ratio or (1 if self.fault == "ratio_0_as_1" else max(int(wanted), self.fault == "ratio_0_at_least_1"))
        made = Axis([], [], [], [], [], [], per_bin)
        for p in range(bins):
            i = self.indices(start + p * size / bins, size / bins, per_bin, length)
            middle = 0.0 if self.fault == "samples_at_the_start" else 0.5
            t = (p * per_bin + i + 0.5) / max(bins * per_bin, 1)
            c = start + p * size / bins + (i + middle) * size / max(bins * per_bin, 1)
            if self.fault == "coordinates_in_half":
                c = c.astype(np.float16).astype(np.float64)
            inside = self.inside(c, length)
            clamped = np.clip(c, 0, length - 1)
            low = np.floor(clamped)
            f = clamped - low
            is_free = (c == clamped) | (self.fault == "drois_through_clamp")
            has_slope = (inside & is_free & (low < length - 1))[:, None]
            unit = 1.0 if self.fault == "drois_without_scale" else scale
            made.taps.append(np.stack([low, np.minimum(low + 1, length - 1)], 1).astype(np.int64))
            made.weights.append(np.stack([1 - f, f], 1) * inside[:, None])
            made.slopes.append(np.array([-1.0, 1.0]) * has_slope)
            is_fixed = self.fault == "drois_of_a_fixed_size" or (is_raised and self.fault != "drois_of_a_free_size")
            made.by_r1.append(unit * (np.ones_like(t) if is_fixed else 1 - t))
            made.by_r2.append(unit * (np.zeros_like(t) if is_fixed else t))
            made.inside.append(inside)
        return made

    def inside(self, c: Array, length: int) -> Array:
        """Whether samples at c read the map."""
        low, high = {"outside_from_0": (0, length), "outside_from_the_last": (-1, length - 1)}.get(
            self.fault, (-1, length)
        )
        if self.fault == "edges_replicated":
            return np.ones_like(c, bool)
        above = c > low if self.fault == "minus_1_outside" else c >= low
        return above & (c < high if self.fault == "length_outside" else c <= high)

    @staticmethod
    def indices(start: float, size: float, per_bin: int, length: int) -> Array:
        """Indices of a bin's samples inside the map and of its first outside; of a few more, all of them."""
        if per_bin <= 4096:
            return np.arange(float(per_bin))
        edges = np.sort((np.array([-1.0, length]) - start) * per_bin / size - 0.5)
        first, last = np.clip([np.floor(edges[0]) - 2, np.ceil(edges[1]) + 3], 0, per_bin)
        near = np.arange(first, last)
        return near if first == 0 else np.concatenate([[0.0], near])


def dense(axis: Axis, values: list[Array], length: int, factors: list[Array] | None = None) -> Array:
    """[P, length]: for each bin the sum over its samples of `values` at their taps."""
    matrix = np.zeros((len(values), length))
    for p, value in enumerate(values):
        np.add.at(matrix[p], axis.taps[p], value if factors is None else value * factors[p][:, None])
    return matrix


class XAndYSwapped(Control):
    fault = "x_y_swapped"


class NoHalfPixel(Control):
    fault = "no_half_pixel"


class Opset10As16(Control):
    fault = "opset_10_as_16"


class BatchIndexIgnored(Control):
    fault = "batch_ignored"


class Ratio0As1(Control):
    fault = "ratio_0_as_1"


class DivisorWithoutOutside(Control):
    fault = "divisor_inside"


class EdgesReplicated(Control):
    fault = "edges_replicated"


class SizeClampedInHalfPixel(Control):
    fault = "clamp_in_half_pixel"


class MaxTheOtherWay(Control):
    fault = "max_other_way"


class DxOverwritten(Control):
    fault = "dx_overwritten"


class DxDividedByWrongCount(Control):
    fault = "dx_wrong_count"


class DroisWithoutScale(Control):
    fault = "drois_without_scale"


class ShiftBeforeScale(Control):
    fault = "shift_before_scale"


class EndPixelIncluded(Control):
    fault = "end_pixel_included"


class SamplesAtTheStart(Control):
    fault = "samples_at_the_start"


class NoLeastSize(Control):
    fault = "no_least_size"


class OutsideFrom0(Control):
    fault = "outside_from_0"


class OutsideFromTheLast(Control):
    fault = "outside_from_the_last"


class Minus1Outside(Control):
    fault = "minus_1_outside"


class LengthOutside(Control):
    fault = "length_outside"


class Ratio0RoundedDown(Control):
    fault = "ratio_0_rounded_down"


class Ratio0AtLeast1(Control):
    fault = "ratio_0_at_least_1"


class Ratio2ByDefault(Control):
    fault = "ratio_2_by_default"


class MaxFromZero(Control):
    fault = "max_from_zero"


class MaxWithoutOutside(Control):
    fault = "max_without_outside"


class SumsInHalf(Control):
    fault = "sums_in_half"


class CoordinatesInHalf(Control):
    fault = "coordinates_in_half"


class NegativeIndexWraps(Control):
    fault = "negative_index_wraps"


class ImagesInTurn(Control):
    fault = "images_in_turn"


class FirstChannelForAll(Control):
    fault = "first_channel_for_all"


class TieToTheLast(Control):
    fault = "tie_to_the_last"


class DroisThroughClamp(Control):
    fault = "drois_through_clamp"


class DroisOfAFixedSize(Control):
    fault = "drois_of_a_fixed_size"


class DroisOfAFreeSize(Control):
    fault = "drois_of_a_free_size"


class AttributesUnchecked(Control):
    fault = "attributes_unchecked"


WRONG = (
    XAndYSwapped,
    NoHalfPixel,
    Opset10As16,
    BatchIndexIgnored,
    Ratio0As1,
    DivisorWithoutOutside,
    EdgesReplicated,
    SizeClampedInHalfPixel,
    MaxTheOtherWay,
    DxOverwritten,
    DxDividedByWrongCount,
    DroisWithoutScale,
    ShiftBeforeScale,
    EndPixelIncluded,
    SamplesAtTheStart,
    NoLeastSize,
    OutsideFrom0,
    OutsideFromTheLast,
    Minus1Outside,
    LengthOutside,
    Ratio0RoundedDown,
    Ratio0AtLeast1,
    Ratio2ByDefault,
    MaxFromZero,
    MaxWithoutOutside,
    SumsInHalf,
    CoordinatesInHalf,
    NegativeIndexWraps,
    ImagesInTurn,
    FirstChannelForAll,
    TieToTheLast,
    DroisThroughClamp,
    DroisOfAFixedSize,
    DroisOfAFreeSize,
    AttributesUnchecked,
)


class Aborts(Control):
    """Ends the interpreter at the first refusal that is due."""

    def check_attributes(self) -> None:
        try:
            super().check_attributes()
        except ValueError:
            os.abort()


class Hangs(Control):
    """Never answers a model of mode max."""

    def run(self, inputs: list[Array]) -> list[Array]:
        while self.attributes["mode"] == "max":
            pass
        return super().run(inputs)
