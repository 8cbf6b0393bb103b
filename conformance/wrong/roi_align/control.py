"""RoiAlign and its gradient a second time, as dense matrices; each step is a method, so that a fault changes one.

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

    def dense(self, values: list[Array], length: int, factors: list[Array] | None = None) -> Array:
        """[P, length]: for each bin the sum over its samples of `values` at their taps."""
        matrix = np.zeros((len(values), length))
        for p, value in enumerate(values):
            np.add.at(matrix[p], self.taps[p], value if factors is None else value * factors[p][:, None])
        return matrix


class Control:
    """The operators without a fault: passes every case. A fault is a subclass; its docstring says what is wrong."""

    family: ClassVar[Family]
    of_gradients_alone: ClassVar[bool] = False

    def __init__(self, model: onnx.ModelProto) -> None:
        (node,) = model.graph.node
        self.opset = next((o.version for o in model.opset_import if o.domain == node.domain), 0)
        if "_" in node.op_type:
            self.opset = int(node.op_type.rpartition("_")[2])
        self.is_gradient = node.op_type == "RoiAlignGrad"
        given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        given = {name: value.decode() if isinstance(value, bytes) else value for name, value in given.items()}
        self.attributes = self.meaning({**self.defaults(), **given})
        self.inputs, self.outputs = list(node.input), list(node.output)
        self.dtype: np.dtype[Any] = np.dtype(np.float64)
        self._axes: dict[Any, tuple[Axis, Axis]] = {}
        self.check_attributes()

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU") -> bool:
        """Whether it has the operator."""
        return device == "CPU" and model.graph.node[0].op_type.startswith("RoiAlign")

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU") -> Control:
        """Something that runs the model."""
        del device
        return cls(model)

    def defaults(self) -> dict[str, Any]:
        """Of the attributes that a node leaves out."""
        has_mode = self.is_gradient or self.opset >= 16
        return {
            "mode": "avg",
            "coordinate_transformation_mode": "half_pixel" if has_mode else "output_half_pixel",
            "output_height": 1,
            "output_width": 1,
            "sampling_ratio": 0,
            "spatial_scale": 1.0,
        }

    def meaning(self, attributes: dict[str, Any]) -> dict[str, Any]:
        """The attributes as they are read."""
        return attributes

    def check_attributes(self) -> None:
        """Refuses values that are wrong."""
        a = self.attributes
        if a["mode"] not in MODES or a["coordinate_transformation_mode"] not in COORDINATES:
            raise ValueError("mode")
        if a["sampling_ratio"] < 0 or a["output_height"] < 1 or a["output_width"] < 1:
            raise ValueError("size")
        if not 0 < a["spatial_scale"] < np.inf:
            raise ValueError("scale")

    def run(self, inputs: list[Array]) -> list[Array]:
        """The outputs that the node has."""
        values = iter(inputs)
        first, rois, images, *rest = (next(values) if name else None for name in self.inputs)
        if first is None or rois is None or images is None:
            raise ValueError("inputs")
        self.dtype = first.dtype
        if not self.is_gradient:
            return [self.rounded(self.forward(first, rois, images))]
        x_shape, x = (*rest, None)[:2]
        if x_shape is None:
            raise ValueError("inputs")
        return [self.rounded(g) for g in self.gradient(first, rois, images, x_shape, x)]

    def rounded(self, values: Array) -> Array:
        """A result in its type."""
        return values.astype(self.dtype)

    def check(self, rois: Array, images: Array, shape: Any) -> None:
        """Refuses data that are wrong."""
        if len(shape) != 4 or min(shape) < 0 or rois.shape != (len(rois), 4) or images.shape != (len(rois),):
            raise ValueError("shape")
        if not np.isfinite(rois).all() or not self.are_images(images, shape[0]):
            raise ValueError("value")
        if len(rois) and 0 in shape[2:]:
            raise ValueError("no pixels")

    def are_images(self, images: Array, count: int) -> bool:
        """Whether every index is of an image."""
        return bool(np.all((images >= 0) & (images < count)))

    def forward(self, x: Array, rois: Array, images: Array) -> Array:
        """[R, C, PH, PW]."""
        self.check(rois, images, x.shape)
        bins = self.attributes["output_height"], self.attributes["output_width"]
        y = np.zeros((len(rois), x.shape[1], *bins))
        for r, roi in enumerate(rois.astype(np.float64)):
            image = self.image(x, self.image_of(r, images)).astype(np.float64)
            axes = self.axes(roi, bins, image.shape[1:])
            if self.attributes["mode"] == "avg":
                y[r] = self.average(image, *axes)
            else:
                for p, q in np.ndindex(*bins):
                    y[r, :, p, q] = self.maximum(self.candidates(image, *axes, p, q))
        return y

    def image_of(self, r: int, images: Array) -> int:
        """The image of RoI r."""
        return int(images[r])

    def image(self, x: Array, n: int) -> Array:
        """[C, H, W]: the image n of X."""
        return np.asarray(x[n])

    def average(self, image: Array, axis_y: Axis, axis_x: Axis) -> Array:
        """[C, PH, PW]."""
        a_y = axis_y.dense(axis_y.weights, image.shape[1])
        a_x = axis_x.dense(axis_x.weights, image.shape[2])
        lines = self.partial(np.einsum("ph,chw->cpw", a_y, image))
        return np.asarray(self.partial(np.einsum("cpw,qw->cpq", lines, a_x)) / self.divisor(axis_y, axis_x))

    def partial(self, sums: Array) -> Array:
        """Sums that are not the result yet."""
        return sums

    def maximum(self, candidates: Array) -> Array:
        """[C]: of [C, candidates] the largest, 0 where there is none."""
        return candidates.max(axis=1) if candidates.shape[1] else np.zeros(len(candidates))

    def gradient(self, dy: Array, rois: Array, images: Array, x_shape: Array, x: Array | None) -> list[Array]:
        """DX [N, C, H, W] and drois [R, 4], those that are wanted."""
        if x_shape.shape != (4,) or dy.ndim != 4 or dy.shape[:2] != (len(rois), x_shape[1]) or 0 in dy.shape[2:]:
            raise ValueError("shape")
        if self.needs_x() if x is None else x.shape != tuple(x_shape):
            raise ValueError("X")
        self.check(rois, images, x_shape)
        dx, drois = np.zeros(x_shape, self.sum_type()), np.zeros((len(rois), 4))
        part = self.average_part if self.attributes["mode"] == "avg" else self.maximum_part
        for r, roi in enumerate(rois.astype(np.float64)):
            n = self.image_of(r, images)
            image = np.zeros(x_shape[1:]) if x is None else self.image(x, n).astype(np.float64)
            axes = self.axes(roi, dy.shape[2:], image.shape[1:])
            dx_part, drois[r] = part(dy[r].astype(np.float64), image, *axes)
            self.add(dx, n, dx_part)
        return [g for g, name in zip((dx, drois), self.outputs, strict=False) if name]

    def needs_x(self) -> bool:
        """Whether X must be given."""
        return self.attributes["mode"] != "avg" or self.wants_drois

    @property
    def wants_drois(self) -> bool:
        """Whether the node has the output drois."""
        return len(self.outputs) > 1 and bool(self.outputs[1])

    def sum_type(self) -> np.dtype[Any]:
        """In which dX is summed."""
        return np.dtype(np.float64)

    def add(self, dx: Array, n: int, part: Array) -> None:
        """Adds what one RoI passes to image n."""
        dx[n] += part.astype(dx.dtype)

    def average_part(self, dy: Array, image: Array, axis_y: Axis, axis_x: Axis) -> tuple[Array, list[float]]:
        """What one RoI of mode avg passes to its image and to its coordinates."""
        height, width = image.shape[1:]
        a_y, a_x = axis_y.dense(axis_y.weights, height), axis_x.dense(axis_x.weights, width)
        dx = np.einsum("cpq,ph,qw->chw", dy, a_y, a_x) / self.dx_divisor(axis_y, axis_x)
        if not self.wants_drois:
            return dx, [0.0] * 4

        def along(m_y: Array, m_x: Array) -> float:
            return self.droi_sum(np.einsum("cpq,ph,chw,qw->cpq", dy, m_y, image, m_x) / self.divisor(axis_y, axis_x))

        droi = [
            along(a_y, axis_x.dense(axis_x.slopes, width, axis_x.by_r1)),
            along(axis_y.dense(axis_y.slopes, height, axis_y.by_r1), a_x),
            along(a_y, axis_x.dense(axis_x.slopes, width, axis_x.by_r2)),
            along(axis_y.dense(axis_y.slopes, height, axis_y.by_r2), a_x),
        ]
        return dx, droi

    def droi_sum(self, parts: Array) -> float:
        """Of what channels and bins pass to a coordinate."""
        return float(parts.sum())

    def dx_divisor(self, axis_y: Axis, axis_x: Axis) -> Any:
        """By which what dX gets is divided."""
        return self.divisor(axis_y, axis_x)

    def maximum_part(self, dy: Array, image: Array, axis_y: Axis, axis_x: Axis) -> tuple[Array, Array]:
        """What one RoI of a maximum passes to its image and to its coordinates."""
        dx, droi = np.zeros_like(image), np.zeros(4)
        for p, q in np.ndindex(*dy.shape[1:]):
            candidates = self.candidates(image, axis_y, axis_x, p, q)
            for c in range(len(image) if candidates.shape[1] else 0):
                dx_of_one, droi_of_one = self.effect(image[c], axis_y, axis_x, p, q, self.winner(candidates[c]))
                dx[c] += dy[c, p, q] * dx_of_one
                droi += dy[c, p, q] * droi_of_one
        return dx, droi

    def winner(self, candidates: Array) -> int:
        """The largest; of equals the first."""
        return int(np.argmax(candidates))

    def effect(self, channel: Array, axis_y: Axis, axis_x: Axis, p: int, q: int, winner: int) -> tuple[Array, Array]:
        """The derivatives of a candidate of bin (p, q) by the channel [H, W] and by the RoI [4]."""
        dx, droi = np.zeros_like(channel), np.zeros(4)
        is_corner = self.attributes["mode"] == "max"
        sample, corner = divmod(winner, 4 if is_corner else 1)
        i, j = divmod(sample, len(axis_x.inside[q]))
        if not (axis_y.inside[p][i] and axis_x.inside[q][j]):
            return dx, droi
        for a, b in [divmod(corner, 2)] if is_corner else np.ndindex(2, 2):
            h, w = axis_y.taps[p][i, a], axis_x.taps[q][j, b]
            w_y, w_x = axis_y.weights[p][i, a], axis_x.weights[q][j, b]
            dx[h, w] += w_y * w_x
            in_y = channel[h, w] * axis_y.slopes[p][i, a] * w_x
            in_x = channel[h, w] * axis_x.slopes[q][j, b] * w_y
            by_x, by_y = (axis_x.by_r1[q][j], axis_x.by_r2[q][j]), (axis_y.by_r1[p][i], axis_y.by_r2[p][i])
            droi += np.array([in_x * by_x[0], in_y * by_y[0], in_x * by_x[1], in_y * by_y[1]])
        return dx, droi

    def candidates(self, image: Array, axis_y: Axis, axis_x: Axis, p: int, q: int) -> Array:
        """[C, candidates of bin (p, q)] in the order that decides ties."""
        weights = np.einsum("ia,jb->ijab", axis_y.weights[p], axis_x.weights[q])
        pixels = image[:, axis_y.taps[p][:, None, :, None], axis_x.taps[q][None, :, None, :]]
        values = self.reduced(pixels, np.broadcast_to(weights, pixels.shape))
        return values.reshape(len(image), int(np.prod(values.shape[1:])))

    def reduced(self, pixels: Array, weights: Array) -> Array:
        """Of [C, samples along y, along x, 2, 2] what the maximum is over."""
        corners = pixels * weights
        return np.asarray(corners if self.attributes["mode"] == "max" else corners.sum(axis=(3, 4)))

    def divisor(self, axis_y: Axis, axis_x: Axis) -> Any:
        """Of the average."""
        return max(axis_y.per_bin * axis_x.per_bin, 1)

    def axes(self, roi: Array, bins: Any, lengths: Any) -> tuple[Axis, Axis]:
        """The samples along y and x."""
        question = (*map(float, roi), *bins, *lengths)
        if question not in self._axes:
            self._axes[question] = self.made_axes(roi, bins, lengths)
        return self._axes[question]

    def made_axes(self, roi: Array, bins: Any, lengths: Any) -> tuple[Axis, Axis]:
        """As `axes`."""
        x1, y1, x2, y2 = map(float, self.corners(roi))
        return self.axis(y1, y2, bins[0], lengths[0]), self.axis(x1, x2, bins[1], lengths[1])

    def corners(self, roi: Array) -> Array:
        """X1 y1 x2 y2 of a RoI."""
        return roi

    @property
    def is_half(self) -> bool:
        """Whether the mode is half_pixel."""
        return bool(self.attributes["coordinate_transformation_mode"] == "half_pixel")

    def scale(self) -> float:
        """The spatial scale."""
        return float(self.attributes["spatial_scale"])

    def start(self, r1: float) -> float:
        """Where the RoI begins on the map."""
        return r1 * self.scale() - (0.5 if self.is_half else 0.0)

    def size(self, r1: float, r2: float) -> float:
        """How far it goes."""
        return (r2 - r1) * self.scale()

    def is_raised(self, size: float) -> bool:
        """Whether the size is made 1."""
        return size < 1 and not self.is_half

    def count(self, size: float, bins: int) -> int:
        """Samples of a bin."""
        return int(self.attributes["sampling_ratio"]) or max(self.adaptive_count(size, bins), 0)

    def adaptive_count(self, size: float, bins: int) -> int:
        """The same where no sampling_ratio is given."""
        return int(np.ceil(size / bins))

    def axis(self, r1: float, r2: float, bins: int, length: int) -> Axis:
        """The samples of a RoI's side."""
        start, size = self.start(r1), self.size(r1, r2)
        is_raised = self.is_raised(size)
        size = 1.0 if is_raised else size
        per_bin = self.count(size, bins)
        of_bins = [self.indices(start + p * size / bins, size / bins, per_bin, length) for p in range(bins)]
        ends = np.cumsum([0, *map(len, of_bins)]).tolist()
        p, i = np.repeat(np.arange(bins), [len(of_bin) for of_bin in of_bins]), np.concatenate(of_bins)
        t = (p * per_bin + i + 0.5) / max(bins * per_bin, 1)
        c = self.place(start, size, bins, per_bin, p, i)
        inside = self.inside(c, length)
        values = (
            self.taps(c, length),
            self.weights(c, length) * inside[:, None],
            np.array([-1.0, 1.0]) * self.has_slope(c, inside, length)[:, None],
            *self.by_ends(t, is_raised),
            inside,
        )
        taps, weights, slopes, by_r1, by_r2, insides = (
            [value[a:b] for a, b in itertools.pairwise(ends)] for value in values
        )
        return Axis(taps, weights, slopes, by_r1, by_r2, insides, per_bin)

    def place(self, start: float, size: float, bins: int, per_bin: int, p: Array, i: Array) -> Array:
        """Coordinates of the samples i of the bins p."""
        return start + p * size / bins + (i + 0.5) * size / max(bins * per_bin, 1)

    def inside(self, c: Array, length: int) -> Array:
        """Whether samples at c read the map."""
        return (c >= -1) & (c <= length)

    def taps(self, c: Array, length: int) -> Array:
        """[k, 2]: the pixels before and after."""
        low = np.floor(np.clip(c, 0, length - 1))
        return np.stack([low, np.minimum(low + 1, length - 1)], 1).astype(np.int64)

    def weights(self, c: Array, length: int) -> Array:
        """[k, 2]: how much a sample has of either."""
        clamped = np.clip(c, 0, length - 1)
        f = clamped - np.floor(clamped)
        return np.stack([1 - f, f], 1)

    def has_slope(self, c: Array, inside: Array, length: int) -> Array:
        """Whether what a sample reads changes with its coordinate."""
        clamped = np.clip(c, 0, length - 1)
        return np.asarray(inside & (c == clamped) & (np.floor(clamped) < length - 1))

    def by_ends(self, t: Array, is_raised: bool) -> tuple[Array, Array]:
        """Derivatives of coordinates by the two ends."""
        scale = self.scale()
        if is_raised:
            return scale * np.ones_like(t), np.zeros_like(t)
        return scale * (1 - t), scale * t

    @staticmethod
    def indices(start: float, size: float, per_bin: int, length: int) -> Array:
        """Indices of a bin's samples inside the map and of its first outside; of a few more, all of them."""
        if per_bin <= 4096:
            return np.arange(float(per_bin))
        edges = np.sort((np.array([-1.0, length]) - start) * per_bin / size - 0.5)
        first, last = np.clip([np.floor(edges[0]) - 2, np.ceil(edges[1]) + 3], 0, per_bin)
        near = np.arange(first, last)
        return near if first == 0 else np.concatenate([[0.0], near])
