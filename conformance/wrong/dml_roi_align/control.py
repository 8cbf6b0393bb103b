"""DirectML's RoiAlign and its gradient a second time, with faults to switch on, as `wrong_backends` has ONNX's.

`DmlControl` has none and must pass every case of its operators; each of the others has one and must fail a case. All
have ONNX's backend interface and share nothing with the reference or the kernels.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx

Array = npt.NDArray[Any]

DEFAULTS: dict[str, Any] = {
    "output_height": 1,
    "output_width": 1,
    "reduction_function": "average",
    "interpolation_mode": "linear",
    "spatial_scale_x": 1.0,
    "spatial_scale_y": 1.0,
    "input_pixel_offset": 0.5,
    "output_pixel_offset": -0.5,
    "out_of_bounds_input_value": 0.0,
    "minimum_samples_per_output": 1,
    "maximum_samples_per_output": 2**32 - 1,
    "align_regions_to_corners": 0,
}


class Axis(NamedTuple):
    """One region along one axis of a map of L pixels: of each output the samples on the map, and the first off it.

    weights, slopes: [P][k, L], what a sample reads of each pixel and its derivative by the coordinate; 0 off the map.
    inside: [P][k]. by_r1, by_r2: [P][k], derivatives of the coordinate.
    per_bin: samples of an output, those left out included.
    """

    weights: list[Array]
    slopes: list[Array]
    inside: list[Array]
    by_r1: list[Array]
    by_r2: list[Array]
    per_bin: int

    def means(self, values: list[Array], factors: list[Array] | None = None) -> Array:
        """[P, L]: of each output the sum of its samples over `per_bin`."""
        parts = values if factors is None else [v * f[:, None] for v, f in zip(values, factors, strict=True)]
        return np.array([part.sum(axis=0) for part in parts]) / self.per_bin

    @property
    def on_map(self) -> Array:
        """[P]: the share of the samples that are on the map."""
        return np.array([part.sum() for part in self.inside]) / self.per_bin


class DmlControl:
    """The operators without a fault; a subclass names its own."""

    fault: ClassVar[str] = ""

    def __init__(self, model: onnx.ModelProto) -> None:
        (node,) = model.graph.node
        self.is_gradient = node.op_type == "DmlRoiAlignGrad"
        given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        given = {name: value.decode() if isinstance(value, bytes) else value for name, value in given.items()}
        self.attributes = DEFAULTS | given
        self.is_max = self.attributes["reduction_function"] == "max"
        self.is_nearest = self.attributes["interpolation_mode"] == "nearest_neighbor"
        self.outputs = list(node.output)
        self.check_attributes()

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU") -> bool:
        return device == "CPU" and model.graph.node[0].op_type in ("DmlRoiAlign", "DmlRoiAlignGrad")

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU") -> DmlControl:
        assert device == "CPU"
        return cls(model)

    def check_attributes(self) -> None:
        a = self.attributes
        if a["reduction_function"] not in ("average", "max") or a["output_height"] < 1 or a["output_width"] < 1:
            raise ValueError("reduction or size")
        if a["interpolation_mode"] not in ("linear", "nearest_neighbor") or a["align_regions_to_corners"] not in (0, 1):
            raise ValueError("interpolation or corners")
        if not (0 < a["spatial_scale_x"] < np.inf and 0 < a["spatial_scale_y"] < np.inf):
            raise ValueError("scale")
        if not np.isfinite([a["input_pixel_offset"], a["output_pixel_offset"]]).all():
            raise ValueError("offset")
        if not 1 <= a["minimum_samples_per_output"] <= a["maximum_samples_per_output"] < 2**32:
            raise ValueError("samples")

    def run(self, inputs: list[Array]) -> list[Array]:
        if self.is_gradient:
            dy, rois, images, x_shape, *rest = inputs
            return self.gradient(dy, rois, images, x_shape, rest[0] if rest else None)
        x, rois, images = inputs
        return [self.forward(x.astype(np.float64), *self.regions(rois, images, x.shape)).astype(x.dtype)]

    def regions(self, rois: Array, images: Array, shape: Any) -> tuple[Array, Array]:
        """[R, 4] and [R]."""
        count = int(np.prod(rois.shape[:-1]))
        if len(shape) != 4 or min(shape) < 0 or not 2 <= rois.ndim <= 4 or not 1 <= images.ndim <= 4:
            raise ValueError("rank")
        if rois.shape[-2:] != (count, 4) or images.shape[-1:] != (count,) or images.size != count:
            raise ValueError("shape")
        if not np.isfinite(rois).all() or np.any((images < 0) | (images >= shape[0])) or (count and 0 in shape[2:]):
            raise ValueError("value")
        return rois.reshape(-1, 4).astype(np.float64), images.ravel()

    def forward(self, x: Array, rois: Array, images: Array) -> Array:
        bins = self.attributes["output_height"], self.attributes["output_width"]
        outside = float(self.attributes["out_of_bounds_input_value"])
        y = np.zeros((len(rois), x.shape[1], *bins))
        for r, roi in enumerate(rois):
            axis_y, axis_x = self.axes(roi, bins, x.shape[2:])
            if self.is_max:
                for p, q in np.ndindex(*bins):
                    y[r, :, p, q] = self.candidates(x[images[r]], axis_y, axis_x, p, q, outside).max(axis=1)
                continue
            y[r] = np.einsum("ph,chw,qw->cpq", axis_y.means(axis_y.weights), x[images[r]], axis_x.means(axis_x.weights))
            on_map = np.outer(axis_y.on_map, axis_x.on_map)
            if self.fault == "outside_not_counted":
                y[r] = np.where(on_map > 0, y[r] / np.where(on_map > 0, on_map, 1), outside)
            elif self.fault == "outside_replaces_all":
                y[r] = np.where(on_map < 1, outside, y[r])
            else:
                y[r] += np.multiply(outside, 1 - on_map, where=on_map < 1, out=np.zeros_like(on_map))
        return y

    def gradient(self, dy: Array, rois: Array, images: Array, x_shape: Array, x: Array | None) -> list[Array]:
        if x_shape.shape != (4,) or dy.ndim != 4 or 0 in dy.shape[2:] or dy.shape[1] != x_shape[1]:
            raise ValueError("shape")
        if (self.is_max or self.outputs[1]) if x is None else x.shape != tuple(x_shape):
            raise ValueError("map")
        stored = rois.shape
        rois, images = self.regions(rois, images, x_shape)
        if len(dy) != len(rois):
            raise ValueError("shape")
        dx, drois = np.zeros(x_shape), np.zeros((len(rois), 4))
        for r, roi in enumerate(rois):
            n = images[r]
            image = np.zeros(x_shape[1:]) if x is None else x[n].astype(np.float64)
            axes = self.axes(roi, dy.shape[2:], image.shape[1:])
            part = self.maximum_part if self.is_max else self.average_part
            dx_part, drois[r] = part(dy[r].astype(np.float64), image, *axes)
            dx[n] = dx_part if self.fault == "dx_overwritten" else dx[n] + dx_part
        results = zip((dx, drois.reshape(stored)), self.outputs, strict=True)
        return [g.astype(dy.dtype) for g, name in results if name]

    def average_part(self, dy: Array, image: Array, axis_y: Axis, axis_x: Axis) -> tuple[Array, list[float]]:
        a_y, a_x = axis_y.means(axis_y.weights), axis_x.means(axis_x.weights)

        def along(m_y: Array, m_x: Array) -> float:
            return float(np.einsum("cpq,ph,chw,qw->", dy, m_y, image, m_x))

        droi = [
            along(a_y, axis_x.means(axis_x.slopes, axis_x.by_r1)),
            along(axis_y.means(axis_y.slopes, axis_y.by_r1), a_x),
            along(a_y, axis_x.means(axis_x.slopes, axis_x.by_r2)),
            along(axis_y.means(axis_y.slopes, axis_y.by_r2), a_x),
        ]
        return np.einsum("cpq,ph,qw->chw", dy, a_y, a_x), droi

    def maximum_part(self, dy: Array, image: Array, axis_y: Axis, axis_x: Axis) -> tuple[Array, Array]:
        dx, droi = np.zeros_like(image), np.zeros(4)
        for p, q in np.ndindex(*dy.shape[1:]):
            # What is off the map counts as 0: the gradient has no out_of_bounds_input_value.
            for c, values in enumerate(self.candidates(image, axis_y, axis_x, p, q, 0.0)):
                dx_of_one, droi_of_one = self.effect(image[c], axis_y, axis_x, p, q, int(np.argmax(values)))
                dx[c] += dy[c, p, q] * dx_of_one
                droi += dy[c, p, q] * droi_of_one
        return dx, droi

    def effect(self, channel: Array, axis_y: Axis, axis_x: Axis, p: int, q: int, winner: int) -> tuple[Array, Array]:
        """The derivatives of a candidate of output (p, q) by the channel [H, W] and by the region [4]."""
        i, j = divmod(winner, len(axis_x.inside[q]))
        w_y, w_x = axis_y.weights[p][i], axis_x.weights[q][j]
        in_y, in_x = axis_y.slopes[p][i] @ channel @ w_x, w_y @ channel @ axis_x.slopes[q][j]
        droi = [
            in_x * axis_x.by_r1[q][j],
            in_y * axis_y.by_r1[p][i],
            in_x * axis_x.by_r2[q][j],
            in_y * axis_y.by_r2[p][i],
        ]
        return np.outer(w_y, w_x), np.array(droi)

    def candidates(self, image: Array, axis_y: Axis, axis_x: Axis, p: int, q: int, outside: float) -> Array:
        """[C, samples of output (p, q)] in the order that decides ties."""
        values = np.einsum("ih,chw,jw->cij", axis_y.weights[p], image, axis_x.weights[q])
        values = np.where(np.outer(axis_y.inside[p], axis_x.inside[q]), values, outside)
        flat: Array = values.reshape(len(image), int(np.prod(values.shape[1:])))
        return flat

    def axes(self, roi: Array, bins: Any, lengths: Any) -> tuple[Axis, Axis]:
        x1, y1, x2, y2 = map(float, roi)
        scale_y, scale_x = self.attributes["spatial_scale_y"], self.attributes["spatial_scale_x"]
        if self.fault == "scales_exchanged":
            scale_y, scale_x = scale_x, scale_y
        return self.axis(y1, y2, scale_y, bins[0], lengths[0]), self.axis(x1, x2, scale_x, bins[1], lengths[1])

    def axis(self, r1: float, r2: float, scale: float, bins: int, length: int) -> Axis:
        a, size = r1 * scale, (r2 - r1) * scale
        shift = self.attributes["input_pixel_offset"] * (-1 if self.fault == "input_offset_added" else 1)
        offset = self.attributes["output_pixel_offset"] * (-1 if self.fault == "output_offset_added" else 1)
        per_bin = self.count(size / bins)
        steps, middle = bins * per_bin, None
        if self.attributes["align_regions_to_corners"] and self.fault != "corners_ignored":
            steps, middle = max(steps - 1, 1), 0.5 if steps == 1 else None
        made = Axis([], [], [], [], [], per_bin)
        for p in range(bins):
            s = p * per_bin + self.indices(
                a - shift + size * (p * per_bin - offset) / steps, size / steps, per_bin, length
            )
            t = (s - offset) / steps if middle is None else np.array([middle])
            c = a + size * t - shift
            inside = (c >= -1) & (c <= length)
            weights, slopes = self.taps(np.clip(c, 0, length - 1) if not self.is_nearest else c, length)
            made.weights.append(weights * inside[:, None])
            made.slopes.append(slopes * inside[:, None])
            made.inside.append(inside)
            unit = 1.0 if self.fault == "drois_without_scale" else scale
            made.by_r1.append(unit * (1 - t))
            made.by_r2.append(unit * t)
        return made

    def count(self, wanted: float) -> int:
        """Samples of an output on one axis, for a region of `wanted` pixels an output."""
        least, most = (int(self.attributes[f"{limit}imum_samples_per_output"]) for limit in ("min", "max"))
        rounded = int(np.floor(wanted) if self.fault == "samples_rounded_down" else np.ceil(wanted))
        if self.fault == "minimum_ignored":
            least = 1
        if self.fault == "maximum_ignored":
            most = max(rounded, least)
        return min(max(rounded, least), most)

    def taps(self, c: Array, length: int) -> tuple[Array, Array]:
        """[k, L] weights and slopes."""
        rows = np.arange(len(c))
        weights, slopes = np.zeros((len(c), length)), np.zeros((len(c), length))
        if self.is_nearest:
            nearest = np.ceil(c - 0.5) if self.fault == "tie_goes_down" else np.floor(c + 0.5)
            weights[rows, np.clip(nearest, 0, length - 1).astype(np.int64)] = 1
            return weights, slopes
        low, high = np.floor(c).astype(np.int64), np.ceil(c).astype(np.int64)
        weights[rows, high] = c - low
        weights[rows, low] += 1 - (c - low)
        slopes[rows, high] += 1
        slopes[rows, low] -= 1
        return weights, slopes

    @staticmethod
    def indices(first: float, step: float, per_bin: int, length: int) -> Array:
        """Of an output's samples, from `first` on, those on the map and the first off it; of a few more, all of them."""
        if per_bin <= 4096:
            return np.arange(float(per_bin))
        edges = np.sort((np.array([-1.0, length]) - first) / step)
        start, end = np.clip([np.floor(edges[0]) - 2, np.ceil(edges[1]) + 3], 0, per_bin)
        near = np.arange(start, end)
        return near if start == 0 else np.concatenate([[0.0], near])


class TieGoesDown(DmlControl):
    fault = "tie_goes_down"


class InputOffsetAdded(DmlControl):
    fault = "input_offset_added"


class OutputOffsetAdded(DmlControl):
    fault = "output_offset_added"


class CornersIgnored(DmlControl):
    fault = "corners_ignored"


class ScalesExchanged(DmlControl):
    fault = "scales_exchanged"


class MinimumIgnored(DmlControl):
    fault = "minimum_ignored"


class MaximumIgnored(DmlControl):
    fault = "maximum_ignored"


class SamplesRoundedDown(DmlControl):
    fault = "samples_rounded_down"


class OutsideReplacesAll(DmlControl):
    fault = "outside_replaces_all"


class OutsideNotCounted(DmlControl):
    fault = "outside_not_counted"


class DmlDxOverwritten(DmlControl):
    fault = "dx_overwritten"


class DmlDroisWithoutScale(DmlControl):
    fault = "drois_without_scale"


WRONG = (
    TieGoesDown,
    InputOffsetAdded,
    OutputOffsetAdded,
    CornersIgnored,
    ScalesExchanged,
    MinimumIgnored,
    MaximumIgnored,
    SamplesRoundedDown,
    OutsideReplacesAll,
    OutsideNotCounted,
    DmlDxOverwritten,
    DmlDroisWithoutScale,
)
