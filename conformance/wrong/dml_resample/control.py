"""DirectML's Resample and its gradient a second time; each step is a method, so that a fault changes one.

It has ONNX's backend interface and shares nothing with the reference or the kernels.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx

from conformance.wrong.family import Family

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


class Control:
    """The operators without a fault: passes every case. A fault is a subclass; its docstring says what is wrong."""

    family: ClassVar[Family]
    of_gradients_alone: ClassVar[bool] = False

    def __init__(self, model: onnx.ModelProto) -> None:
        (node,) = model.graph.node
        self.is_gradient = node.op_type == "DmlResampleGrad"
        given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        given = {name: value.decode() if isinstance(value, bytes) else value for name, value in given.items()}
        self.attributes = self.meaning(self.defaults() | given)
        self.dtype: np.dtype[Any] = np.dtype(np.float64)
        self.check_attributes()

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU") -> bool:
        """Whether it has the operators."""
        return device == "CPU" and model.graph.node[0].op_type in ("DmlResample", "DmlResampleGrad")

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU") -> Control:
        """Something that runs the model."""
        del device
        return cls(model)

    def defaults(self) -> dict[str, Any]:
        """Of the attributes that a node leaves out."""
        return DEFAULTS

    def meaning(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """The attributes as they are read."""
        return attributes

    def check_attributes(self) -> None:
        """Refuses values that are wrong."""
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
        """The output."""
        data = inputs[0]
        rank = data.ndim
        if data.dtype not in (np.float16, np.float32, np.float64) or not 1 <= rank <= 4:
            raise ValueError("type or rank")
        if any(len(self.attributes[name]) not in (0, rank) for name in LISTS):
            raise ValueError("lists")
        outputs, lengths = data.shape, data.shape
        if self.is_gradient:
            lengths = self.checked_shape(inputs[1], rank)
        else:
            outputs = self.output_lengths(lengths)
        if 0 in lengths and 0 not in outputs:
            raise ValueError("no pixels")
        target = lengths if self.is_gradient else outputs
        if 0 in outputs or 0 in lengths:
            return [np.zeros(target, data.dtype)]
        self.dtype = data.dtype
        working = data.astype(self.sum_type())
        along = self.gradient_along if self.is_gradient else self.forward_along
        for axis in range(rank):
            taps = self.taps(axis, rank, outputs[axis], lengths[axis])
            working = np.moveaxis(along(np.moveaxis(working, axis, 0), taps, target[axis]), 0, axis)
            working = self.between_axes(working)
        return [self.rounded(working)]

    def checked_shape(self, x_shape: Array, rank: int) -> tuple[int, ...]:
        """The lengths that x_shape gives."""
        if x_shape.dtype != np.int64 or x_shape.shape != (rank,) or np.any(x_shape < 0):
            raise ValueError("x_shape")
        return tuple(x_shape.tolist())

    def sum_type(self) -> np.dtype[Any]:
        """In which sums are."""
        return np.dtype(np.float64)

    def between_axes(self, working: Array) -> Array:
        """What one axis hands to the next."""
        return working

    def rounded(self, values: Array) -> Array:
        """A result in its type."""
        return values.astype(self.dtype)

    def output_lengths(self, lengths: tuple[int, ...]) -> tuple[int, ...]:
        """The lengths of the output."""
        if self.attributes["output_sizes"]:
            return tuple(self.attributes["output_sizes"])
        if not self.attributes["scales"]:
            raise ValueError("no sizes")
        made = tuple(self.scaled(n, scale) for n, scale in zip(lengths, self.attributes["scales"], strict=True))
        if max(made) >= 2**63:
            raise ValueError("sizes")
        return made

    def scaled(self, length: int, scale: float) -> int:
        """Outputs of so many pixels."""
        return int(length * scale)

    def forward_along(self, data: Array, taps: Taps, _: int) -> Array:
        """[N, ...] to [M, ...]."""
        made = np.zeros((len(taps.low), *data.shape[1:]), data.dtype)
        for pixels, weights in taps.parts():
            kept = self.kept(weights, taps)
            read = kept != 0
            made[read] += data[pixels[read]] * kept[read].reshape(-1, *[1] * (data.ndim - 1)).astype(data.dtype)
        return made

    def kept(self, weights: Array, taps: Taps) -> Array:
        """The weights of what is read."""
        del taps
        return weights

    def gradient_along(self, data: Array, taps: Taps, length: int) -> Array:
        """[M, ...] to [N, ...]."""
        made = np.zeros((length, *data.shape[1:]), data.dtype)
        for pixels, weights in taps.parts():
            for o in np.flatnonzero(weights):
                passed = data[o] * weights[o].astype(data.dtype)
                if taps.inside[o]:
                    made[pixels[o]] += passed
                else:
                    self.pass_at_edge(made, pixels[o], passed)
        return made

    def pass_at_edge(self, made: Array, pixel: int, passed: Array) -> None:
        """Adds what an output beyond the edge passes to it."""
        made[pixel] += passed

    def taps(self, axis: int, rank: int, outputs: int, length: int) -> Taps:
        """What the outputs of an axis read."""
        x = self.coordinates(axis, rank, outputs, length)
        clamped = np.clip(x, 0, length - 1)
        if self.attributes["interpolation_mode"] == "linear":
            low, high, share = np.floor(clamped), np.ceil(clamped), clamped - np.floor(clamped)
        else:
            low = high = np.clip(self.nearest(x), 0, length - 1)
            share = np.zeros(outputs)
        return Taps(low.astype(np.int64), high.astype(np.int64), share, x == clamped)

    def coordinates(self, axis: int, rank: int, outputs: int, length: int) -> Array:
        """Where the outputs of an axis read."""
        before, after = self.offsets(axis, rank)
        return np.asarray((np.arange(float(outputs)) - after) / self.scale(axis, outputs, length) - before)

    def offsets(self, axis: int, rank: int) -> tuple[float, float]:
        """Input and output pixel offset."""
        before = (self.attributes["input_pixel_offsets"] or [0.5] * rank)[axis]
        return before, (self.attributes["output_pixel_offsets"] or [-0.5] * rank)[axis]

    def scale(self, axis: int, outputs: int, length: int) -> float:
        """Outputs for each pixel."""
        scales = self.attributes["scales"]
        return float(scales[axis]) if scales else outputs / length

    def nearest(self, x: Array) -> Array:
        """The nearest whole coordinate."""
        direction = self.attributes["rounding_direction"]
        if direction == "half_up":
            return self.half_up(x)
        return np.ceil(x) if direction == "increasing" else np.floor(x)

    def half_up(self, x: Array) -> Array:
        """The nearest; of two the later."""
        return np.floor(x + 0.5)
