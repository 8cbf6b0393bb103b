"""DirectML's Resample and its gradient a second time, with faults to switch on, as `wrong_dml_backends` has RoiAlign.

`ResampleControl` has none and must pass every case of its operators; each of the others has one and must fail a case.
All have ONNX's backend interface and share nothing with the reference or the kernels.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx

Array = npt.NDArray[Any]

DEFAULTS: dict[str, Any] = {
    "interpolation_mode": "linear",
    "scales": [],
    "input_pixel_offsets": [],
    "output_pixel_offsets": [],
    "rounding_direction": "half_up",
    "output_sizes": [],
}
LISTS = ("scales", "input_pixel_offsets", "output_pixel_offsets", "output_sizes")


class Taps(NamedTuple):
    """One axis: of each output the pixels before and after its coordinate, and the weight of the latter.

    inside: whether its coordinate is on the axis, so that it is not clamped.
    """

    low: Array
    high: Array
    share: Array
    inside: Array

    def parts(self) -> list[tuple[Array, Array]]:
        """Pixels and weights of both: one whose weight is 0 must do nothing, whatever is there."""
        return [(self.low, 1 - self.share), (self.high, self.share)]


class ResampleControl:
    """The operators without a fault; a subclass names its own."""

    fault: ClassVar[str] = ""

    def __init__(self, model: onnx.ModelProto) -> None:
        (node,) = model.graph.node
        self.is_gradient = node.op_type == "DmlResampleGrad"
        given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        given = {name: value.decode() if isinstance(value, bytes) else value for name, value in given.items()}
        self.attributes = DEFAULTS | given
        self.check_attributes()

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU") -> bool:
        return device == "CPU" and model.graph.node[0].op_type in ("DmlResample", "DmlResampleGrad")

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU") -> ResampleControl:
        assert device == "CPU"
        return cls(model)

    def check_attributes(self) -> None:
        a = self.attributes
        if a["interpolation_mode"] not in ("linear", "nearest_neighbor"):
            raise ValueError("interpolation")
        if a["rounding_direction"] not in ("half_up", "increasing", "decreasing"):
            raise ValueError("direction")
        if not all(0 < scale < np.inf for scale in a["scales"]) or any(size < 0 for size in a["output_sizes"]):
            raise ValueError("scale or size")
        if not np.isfinite([*a["input_pixel_offsets"], *a["output_pixel_offsets"]]).all():
            raise ValueError("offset")
        if not {len(a[name]) for name in LISTS} <= {0, max(len(a[name]) for name in LISTS)}:
            raise ValueError("lists")

    def run(self, inputs: list[Array]) -> list[Array]:
        data = inputs[0]
        rank = data.ndim
        if data.dtype not in (np.float16, np.float32, np.float64) or not 1 <= rank <= 4:
            raise ValueError("type or rank")
        if any(len(self.attributes[name]) not in (0, rank) for name in LISTS):
            raise ValueError("lists")
        outputs, lengths = data.shape, data.shape
        if self.is_gradient:
            if inputs[1].dtype != np.int64 or inputs[1].shape != (rank,) or np.any(inputs[1] < 0):
                raise ValueError("x_shape")
            lengths = tuple(inputs[1].tolist())
        else:
            outputs = self.output_lengths(lengths)
        if 0 in lengths and 0 not in outputs:
            raise ValueError("no pixels")
        target = lengths if self.is_gradient else outputs
        if 0 in outputs or 0 in lengths:
            return [np.zeros(target, data.dtype)]
        working = data if self.fault == "half_sums" else data.astype(np.float64)
        along = self.gradient_along if self.is_gradient else self.forward_along
        for axis in range(rank):
            taps = self.taps(axis, rank, outputs[axis], lengths[axis])
            working = np.moveaxis(along(np.moveaxis(working, axis, 0), taps, target[axis]), 0, axis)
        return [working.astype(data.dtype)]

    def output_lengths(self, lengths: tuple[int, ...]) -> tuple[int, ...]:
        if self.attributes["output_sizes"]:
            return tuple(self.attributes["output_sizes"])
        if not self.attributes["scales"]:
            raise ValueError("no sizes")
        made = tuple(int(n * scale) for n, scale in zip(lengths, self.attributes["scales"], strict=True))
        if max(made) >= 2**63:
            raise ValueError("sizes")
        return made

    def forward_along(self, data: Array, taps: Taps, _: int) -> Array:
        """[N, ...] to [M, ...]."""
        made = np.zeros((len(taps.low), *data.shape[1:]), data.dtype)
        for pixels, weights in taps.parts():
            if self.fault == "edges_not_clamped":
                weights = weights * taps.inside  # noqa: PLW2901
            read = weights != 0
            made[read] += data[pixels[read]] * self.shaped(weights[read], data)
        return made

    def gradient_along(self, data: Array, taps: Taps, length: int) -> Array:
        """[M, ...] to [N, ...]."""
        made = np.zeros((length, *data.shape[1:]), data.dtype)
        for pixels, weights in taps.parts():
            for o in np.flatnonzero(weights):
                passed = data[o] * weights[o].astype(data.dtype)
                if taps.inside[o]:
                    made[pixels[o]] += passed
                elif self.fault == "gradient_assigned_at_edges":
                    made[pixels[o]] = passed
                elif self.fault not in ("clamped_gradient_dropped", "edges_not_clamped"):
                    made[pixels[o]] += passed
        return made

    @staticmethod
    def shaped(weights: Array, data: Array) -> Array:
        return weights.reshape(-1, *[1] * (data.ndim - 1)).astype(data.dtype)

    def taps(self, axis: int, rank: int, outputs: int, length: int) -> Taps:
        x = self.coordinates(axis, rank, outputs, length)
        clamped = np.clip(x, 0, length - 1)
        if self.attributes["interpolation_mode"] == "linear":
            low, high, share = np.floor(clamped), np.ceil(clamped), clamped - np.floor(clamped)
        else:
            low = high = np.clip(self.nearest(x), 0, length - 1)
            share = np.zeros(outputs)
        return Taps(low.astype(np.int64), high.astype(np.int64), share, x == clamped)

    def coordinates(self, axis: int, rank: int, outputs: int, length: int) -> Array:
        o = np.arange(float(outputs))
        if self.fault == "leading_axes_ignored" and axis < rank - 2:
            return o
        before = (self.attributes["input_pixel_offsets"] or [0.5] * rank)[axis]
        after = (self.attributes["output_pixel_offsets"] or [-0.5] * rank)[axis]
        if self.fault == "offsets_swapped_in_gradient" and self.is_gradient:
            before, after = after, before
        if self.fault == "input_offset_added":
            before = -before
        if self.fault == "output_offset_added":
            after = -after
        scale = self.scale(axis, outputs, length)
        if self.fault == "scale_inverted_in_gradient" and self.is_gradient:
            scale = 1 / scale
        return np.asarray((o - after) / scale - before)

    def scale(self, axis: int, outputs: int, length: int) -> float:
        scales = self.attributes["scales"]
        if not scales and self.fault == "no_scales_is_1":
            return 1.0
        if not scales or self.fault == "ratio_for_scales":
            return outputs / length
        return float(scales[-1 if self.fault == "last_scale_for_all" else axis])

    def nearest(self, x: Array) -> Array:
        direction = self.attributes["rounding_direction"]
        if self.fault == "directions_exchanged":
            direction = {"increasing": "decreasing", "decreasing": "increasing"}.get(direction, direction)
        if direction == "half_up" or self.fault == "direction_ignored":
            if self.fault == "floor_for_half_up":
                return np.floor(x)
            return np.ceil(x - 0.5) if self.fault == "tie_goes_down" else np.floor(x + 0.5)
        return np.ceil(x) if direction == "increasing" else np.floor(x)


class FloorForHalfUp(ResampleControl):
    fault = "floor_for_half_up"


class ResampleTieGoesDown(ResampleControl):
    fault = "tie_goes_down"


class ResampleInputOffsetAdded(ResampleControl):
    fault = "input_offset_added"


class ResampleOutputOffsetAdded(ResampleControl):
    fault = "output_offset_added"


class OffsetsSwappedInGradient(ResampleControl):
    fault = "offsets_swapped_in_gradient"


class ScaleInvertedInGradient(ResampleControl):
    fault = "scale_inverted_in_gradient"


class GradientAssignedAtEdges(ResampleControl):
    fault = "gradient_assigned_at_edges"


class ClampedGradientDropped(ResampleControl):
    fault = "clamped_gradient_dropped"


class LastScaleForAll(ResampleControl):
    fault = "last_scale_for_all"


class RatioForScales(ResampleControl):
    fault = "ratio_for_scales"


class DirectionsExchanged(ResampleControl):
    fault = "directions_exchanged"


class LeadingAxesIgnored(ResampleControl):
    fault = "leading_axes_ignored"


class HalfSums(ResampleControl):
    fault = "half_sums"


class EdgesNotClamped(ResampleControl):
    fault = "edges_not_clamped"


class DirectionIgnored(ResampleControl):
    fault = "direction_ignored"


class NoScalesIs1(ResampleControl):
    fault = "no_scales_is_1"


WRONG = (
    FloorForHalfUp,
    ResampleTieGoesDown,
    ResampleInputOffsetAdded,
    ResampleOutputOffsetAdded,
    OffsetsSwappedInGradient,
    ScaleInvertedInGradient,
    GradientAssignedAtEdges,
    ClampedGradientDropped,
    LastScaleForAll,
    RatioForScales,
    DirectionsExchanged,
    LeadingAxesIgnored,
    HalfSums,
    EdgesNotClamped,
    DirectionIgnored,
    NoScalesIs1,
)
