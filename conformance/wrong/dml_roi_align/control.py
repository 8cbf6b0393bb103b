"""DirectML's RoiAlign and its gradient a second time; each step is a method, so that a fault changes one.

It has ONNX's backend interface and shares nothing with the reference or the kernels.
"""

from __future__ import annotations

import itertools
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx

from conformance.wrong.family import Family

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


class Control:
    """The operators without a fault: passes every case. A fault is a subclass; its docstring says what is wrong."""

    family: ClassVar[Family]
    of_gradients_alone: ClassVar[bool] = False

    def __init__(self, model: onnx.ModelProto) -> None:
        (node,) = model.graph.node
        self.is_gradient = node.op_type == "DmlRoiAlignGrad"
        given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        given = {name: value.decode() if isinstance(value, bytes) else value for name, value in given.items()}
        self.attributes = self.meaning(self.defaults() | given)
        self.is_max = self.attributes["reduction_function"] == "max"
        self.is_nearest = self.attributes["interpolation_mode"] == "nearest_neighbor"
        self.outputs = list(node.output)
        self.dtype: np.dtype[Any] = np.dtype(np.float64)
        self._axes: dict[Any, tuple[Axis, Axis]] = {}
        self.check_attributes()

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU") -> bool:
        """Whether it has the operators."""
        return device == "CPU" and model.graph.node[0].op_type in ("DmlRoiAlign", "DmlRoiAlignGrad")

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
        """The outputs that the node has."""
        self.dtype = inputs[0].dtype
        if self.is_gradient:
            dy, rois, images, x_shape, *rest = inputs
            return [self.rounded(g) for g in self.gradient(dy, rois, images, x_shape, rest[0] if rest else None)]
        x, rois, images = inputs
        return [self.rounded(self.forward(x.astype(np.float64), *self.regions(rois, images, x.shape)))]

    def rounded(self, values: Array) -> Array:
        """A result in its type."""
        return values.astype(self.dtype)

    def regions(self, rois: Array, images: Array, shape: Any) -> tuple[Array, Array]:
        """[R, 4] and [R]."""
        count = rois.size // 4
        if len(shape) != 4 or min(shape) < 0 or not 2 <= rois.ndim <= 4 or not 1 <= images.ndim <= 4:
            raise ValueError("rank")
        if not self.are_shapes(rois.shape, images.shape, count):
            raise ValueError("shape")
        if not np.isfinite(rois).all() or not self.are_images(images, shape[0]) or (count and 0 in shape[2:]):
            raise ValueError("value")
        return rois.reshape(-1, 4).astype(np.float64), images.ravel()

    def are_shapes(self, rois: tuple[int, ...], images: tuple[int, ...], count: int) -> bool:
        """Whether ROITensor and BatchIndicesTensor have shapes that go together."""
        return rois == (1,) * (len(rois) - 2) + (count, 4) and images == (1,) * (len(images) - 1) + (count,)

    def are_images(self, images: Array, count: int) -> bool:
        """Whether every index is of an image."""
        return bool(np.all((images >= 0) & (images < count)))

    def forward(self, x: Array, rois: Array, images: Array) -> Array:
        """[R, C, PH, PW]."""
        bins = self.attributes["output_height"], self.attributes["output_width"]
        y = np.zeros((len(rois), x.shape[1], *bins))
        for r, roi in enumerate(rois):
            image, axes = self.image(x, int(images[r])), self.axes(roi, bins, x.shape[2:])
            if not self.is_max:
                y[r] = self.average(image, *axes)
                continue
            for p, q in np.ndindex(*bins):
                y[r, :, p, q] = self.maximum(self.candidates(image, *axes, p, q, self.outside_value()))
        return y

    def image(self, x: Array, n: int) -> Array:
        """[C, H, W]: the image n of the map."""
        return np.asarray(x[n])

    def outside_value(self) -> float:
        """What samples off the map are."""
        return float(self.attributes["out_of_bounds_input_value"])

    def average(self, image: Array, axis_y: Axis, axis_x: Axis) -> Array:
        """[C, PH, PW]."""
        lines = self.partial(np.einsum("ph,chw->cpw", axis_y.means(axis_y.weights), image))
        inside = np.einsum("cpw,qw->cpq", lines, axis_x.means(axis_x.weights))
        return self.completed(inside, np.outer(axis_y.on_map, axis_x.on_map))

    def partial(self, sums: Array) -> Array:
        """Sums that are not the result yet."""
        return sums

    def completed(self, inside: Array, on_map: Array) -> Array:
        """The average, from the part of the samples inside the map and from their share."""
        outside = np.multiply(self.outside_value(), 1 - on_map, where=on_map < 1, out=np.zeros_like(on_map))
        return np.asarray(inside + outside)

    def maximum(self, candidates: Array) -> Array:
        """[C]: of [C, candidates]."""
        return np.asarray(candidates.max(axis=1))

    def gradient(self, dy: Array, rois: Array, images: Array, x_shape: Array, x: Array | None) -> list[Array]:
        """The gradients by the map and by the regions, those that are wanted."""
        if x_shape.shape != (4,) or dy.ndim != 4 or 0 in dy.shape[2:] or dy.shape[1] != x_shape[1]:
            raise ValueError("shape")
        if self.needs_map() if x is None else x.shape != tuple(x_shape):
            raise ValueError("map")
        stored = rois.shape
        rois, images = self.regions(rois, images, x_shape)
        if len(dy) != len(rois):
            raise ValueError("shape")
        dx, drois = np.zeros(x_shape, self.sum_type()), np.zeros((len(rois), 4))
        part = self.maximum_part if self.is_max else self.average_part
        for r, roi in enumerate(rois):
            n = int(images[r])
            image = np.zeros(x_shape[1:]) if x is None else self.image(x, n).astype(np.float64)
            axes = self.axes(roi, dy.shape[2:], image.shape[1:])
            dx_part, drois[r] = part(dy[r].astype(np.float64), image, *axes)
            self.add(dx, n, dx_part)
        results = zip((dx, drois.reshape(stored)), self.outputs, strict=True)
        return [g for g, name in results if name]

    def needs_map(self) -> bool:
        """Whether InputTensor must be given."""
        return self.is_max or bool(self.outputs[1])

    def sum_type(self) -> np.dtype[Any]:
        """In which the map's gradient is summed."""
        return np.dtype(np.float64)

    def add(self, dx: Array, n: int, part: Array) -> None:
        """Adds what one region passes to image n."""
        dx[n] += part.astype(dx.dtype)

    def average_part(self, dy: Array, image: Array, axis_y: Axis, axis_x: Axis) -> tuple[Array, list[float]]:
        """What one region of an average passes to its image and to its coordinates."""
        a_y, a_x = axis_y.means(axis_y.weights), axis_x.means(axis_x.weights)
        dx = np.einsum("cpq,ph,qw->chw", dy, a_y, a_x)
        if not self.outputs[1]:
            return dx, [0.0] * 4

        def along(m_y: Array, m_x: Array) -> float:
            return float(np.einsum("cpq,ph,chw,qw->", dy, m_y, image, m_x))

        droi = [
            along(a_y, axis_x.means(axis_x.slopes, axis_x.by_r1)),
            along(axis_y.means(axis_y.slopes, axis_y.by_r1), a_x),
            along(a_y, axis_x.means(axis_x.slopes, axis_x.by_r2)),
            along(axis_y.means(axis_y.slopes, axis_y.by_r2), a_x),
        ]
        return dx, droi

    def maximum_part(self, dy: Array, image: Array, axis_y: Axis, axis_x: Axis) -> tuple[Array, Array]:
        """What one region of a maximum passes to its image and to its coordinates."""
        dx, droi = np.zeros_like(image), np.zeros(4)
        for p, q in np.ndindex(*dy.shape[1:]):
            # What is off the map counts as 0: the gradient has no out_of_bounds_input_value.
            for c, values in enumerate(self.candidates(image, axis_y, axis_x, p, q, 0.0)):
                dx_of_one, droi_of_one = self.effect(image[c], axis_y, axis_x, p, q, self.winner(values))
                dx[c] += dy[c, p, q] * dx_of_one
                droi += dy[c, p, q] * droi_of_one
        return dx, droi

    def winner(self, candidates: Array) -> int:
        """The largest; of equals the first."""
        return int(np.argmax(candidates))

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
        """The samples along y and x."""
        question = (*map(float, roi), *bins, *lengths)
        if question not in self._axes:
            x1, y1, x2, y2 = map(float, self.corners(roi))
            scale_y, scale_x = self.scales()
            axis_y, axis_x = (
                self.axis(y1, y2, scale_y, bins[0], lengths[0]),
                self.axis(x1, x2, scale_x, bins[1], lengths[1]),
            )
            self._axes[question] = axis_y, axis_x
        return self._axes[question]

    def corners(self, roi: Array) -> Array:
        """X1 y1 x2 y2 of a region."""
        return roi

    def scales(self) -> tuple[float, float]:
        """Of y and x."""
        return float(self.attributes["spatial_scale_y"]), float(self.attributes["spatial_scale_x"])

    def span(self, r1: float, r2: float, scale: float) -> tuple[float, float]:
        """Start and size of a region's side on the map."""
        return r1 * scale, (r2 - r1) * scale

    def input_offset(self) -> float:
        """What is subtracted from coordinates on the map."""
        return float(self.attributes["input_pixel_offset"])

    def output_offset(self) -> float:
        """What is subtracted from the number of a sample."""
        return float(self.attributes["output_pixel_offset"])

    def is_to_corners(self) -> bool:
        """Whether the outermost samples lie on the region's ends."""
        return bool(self.attributes["align_regions_to_corners"])

    def axis(self, r1: float, r2: float, scale: float, bins: int, length: int) -> Axis:
        """The samples of a region's side."""
        a, size = self.span(r1, r2, scale)
        per_bin = self.count(size, bins)
        steps, middle = bins * per_bin, None
        if self.is_to_corners():
            steps, middle = max(steps - 1, 1), 0.5 if steps == 1 else None
        offset, step = self.output_offset(), size / max(steps, 1)
        first = a - self.input_offset() - step * offset
        of_bins = [p * per_bin + self.indices(first + step * p * per_bin, step, per_bin, length) for p in range(bins)]
        ends = np.cumsum([0, *map(len, of_bins)]).tolist()
        s = np.concatenate(of_bins)
        t = (s - offset) / max(steps, 1) if middle is None else np.full(len(s), middle)
        c = self.place(a, size, t)
        inside = self.inside(c, length)
        weights, slopes = self.taps(np.clip(c, 0, length - 1) if not self.is_nearest else c, length)
        values = (
            weights * inside[:, None],
            slopes * self.has_slope(c, inside, length)[:, None],
            inside,
            *self.by_ends(t, scale),
        )
        of_weights, of_slopes, insides, by_r1, by_r2 = (
            [value[i:j] for i, j in itertools.pairwise(ends)] for value in values
        )
        return Axis(of_weights, of_slopes, insides, by_r1, by_r2, per_bin)

    def place(self, a: float, size: float, t: Array) -> Array:
        """Coordinates of samples."""
        return a + size * t - self.input_offset()

    def inside(self, c: Array, length: int) -> Array:
        """Whether samples at c read the map."""
        return (c >= -1) & (c <= length)

    def has_slope(self, c: Array, inside: Array, length: int) -> Array:
        """Whether what a sample reads may change with its coordinate; a clamped one is on a pixel and has none."""
        del c, length
        return inside

    def by_ends(self, t: Array, scale: float) -> tuple[Array, Array]:
        """Derivatives of coordinates by the two ends."""
        return scale * (1 - t), scale * t

    def count(self, size: float, bins: int) -> int:
        """Samples of an output."""
        least, most = self.limits()
        return min(max(self.wanted_count(size, bins), least), most)

    def limits(self) -> tuple[int, int]:
        """The least and the most samples of an output."""
        a = self.attributes
        return int(a["minimum_samples_per_output"]), int(a["maximum_samples_per_output"])

    def wanted_count(self, size: float, bins: int) -> int:
        """The same without limits."""
        return int(np.ceil(size / bins))

    def taps(self, c: Array, length: int) -> tuple[Array, Array]:
        """[k, L] weights and slopes."""
        rows = np.arange(len(c))
        weights, slopes = np.zeros((len(c), length)), np.zeros((len(c), length))
        if self.is_nearest:
            weights[rows, np.clip(self.nearest(c), 0, length - 1).astype(np.int64)] = 1
            return weights, slopes
        low, high = np.floor(c).astype(np.int64), np.ceil(c).astype(np.int64)
        weights[rows, high] = c - low
        weights[rows, low] += 1 - (c - low)
        slopes[rows, high] += 1
        slopes[rows, low] -= 1
        return weights, slopes

    def nearest(self, c: Array) -> Array:
        """The nearest whole coordinate."""
        return np.floor(c + 0.5)

    @staticmethod
    def indices(first: float, step: float, per_bin: int, length: int) -> Array:
        """Of an output's samples, from `first` on, those on the map and the first off it; of a few more, all of them."""
        if per_bin <= 4096:
            return np.arange(float(per_bin))
        edges = np.sort((np.array([-1.0, length]) - first) / step)
        start, end = np.clip([np.floor(edges[0]) - 2, np.ceil(edges[1]) + 3], 0, per_bin)
        near = np.arange(start, end)
        return near if start == 0 else np.concatenate([[0.0], near])
