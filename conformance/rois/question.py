"""RoiAlign and DmlRoiAlign in the same terms: what a case samples, under one set of names, and where its samples lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from conformance.case import Array, Case
from conformance.expected_values import Floats
from ortops.operators.dml_roi_align import UINT32_MAX
from ortops.reference.dml_roi_align import region_axes
from ortops.reference.sampling import SampledAxis, axes_of_roi
from ortops.spec import AttributeValue

Mode = Literal["avg", "max", "max_interpolated"]
Coordinates = Literal["half_pixel", "output_half_pixel"]

ONNX_NAMES = {"x": "X", "rois": "rois", "indices": "batch_indices", "dy": "dY", "y": "Y", "dx": "dX", "drois": "drois"}
DIRECTML_NAMES = {
    "x": "InputTensor",
    "rois": "ROITensor",
    "indices": "BatchIndicesTensor",
    "dy": "InputGradientTensor",
    "y": "OutputTensor",
    "dx": "OutputGradientTensor",
    "drois": "OutputROIGradientTensor",
}


class Placed(NamedTuple):
    """A RoI along one axis of the map, in pixels.

    axis: its samples, those of the reference.
    scale: pixels to a unit of the stored coordinates.
    first, last: the stored coordinates times the scale.
    size: from the first sample's side to the last one's: `last - first`, or the least size that is allowed.
    offsets: of the input's pixels, which is subtracted from every coordinate, and of the output's samples.
    steps: into which the samples divide the size; 0 where there is no sample, or a lone one aligned to both corners.
    """

    axis: SampledAxis
    scale: float
    first: float
    last: float
    size: float
    offsets: tuple[float, float]
    steps: int

    @property
    def start(self) -> float:
        """The end that the first bin is at, where pixel 0 has its centre at 0."""
        return self.first - self.offsets[0]

    @property
    def end(self) -> float:
        """The end that the last bin is at, where pixel 0 has its centre at 0."""
        return self.start + self.size

    def edge(self, p: int) -> float:
        """Where bin `p` begins."""
        return self.start + self.size * p / self.axis.bins

    @property
    def samples(self) -> int:
        """The number of samples of all bins together."""
        return self.axis.bins * self.axis.per_bin

    @property
    def on_map(self) -> float:
        """About as many samples as lie on the map, and no fewer."""
        step = abs(self.axis.progression(0)[1]) if self.samples else 0.0
        return min(float(self.samples), self.axis.length / step + 4) if step else float(self.samples)

    @property
    def reach(self) -> float:
        """The most that any term of the coordinate of a sample on the map can be, in pixels."""
        return abs(self.first) + self.axis.length + 1 + max(abs(self.offsets[0]), 0.5)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How RoIs are sampled, in DirectML's terms: of these ONNX has the scale and the number of samples alone.

    scales, bins, lengths: of y and x; pixels to a unit, output bins, pixels of the map.
    limits: fewest and most samples of a bin along an axis.
    coordinates: ONNX's coordinate transformation mode; None for DirectML's rule.
    offsets: of the input's pixels and of the output's samples.
    """

    scales: tuple[float, float]
    bins: tuple[int, int]
    lengths: tuple[int, int]
    limits: tuple[int, int]
    mode: Mode
    coordinates: Coordinates | None = None
    offsets: tuple[float, float] = (0.5, -0.5)
    nearest: bool = False
    to_corners: bool = False
    outside: float = 0.0

    @property
    def ratio(self) -> int:
        """ONNX's sampling_ratio: 0 where the number of samples depends on the bin."""
        return self.limits[0] if self.limits[0] == self.limits[1] else 0

    def place(self, roi: Sequence[float]) -> tuple[Placed, Placed]:
        """The RoI x1 y1 x2 y2, in its stored coordinates, along y and along x."""
        axes: tuple[SampledAxis, SampledAxis]
        if self.coordinates is None:
            axes = region_axes(
                self.bins,
                self.lengths,
                interpolation_mode="nearest_neighbor" if self.nearest else "linear",
                scales=self.scales,
                offsets=self.offsets,
                samples=self.limits,
                to_corners=self.to_corners,
            )(roi)
        else:
            axes = axes_of_roi(
                roi,
                self.bins,
                self.lengths,
                sampling_ratio=self.ratio,
                spatial_scale=self.scales[1],
                coordinate_transformation_mode=self.coordinates,
            )
        x1, y1, x2, y2 = roi
        return self._placed(axes[0], y1, y2, self.scales[0]), self._placed(axes[1], x1, x2, self.scales[1])

    def _placed(self, axis: SampledAxis, r1: float, r2: float, scale: float) -> Placed:
        # The size is computed in the order that each specification has: the number of samples depends on it.
        size = r2 * scale - r1 * scale if self.coordinates is None else (r2 - r1) * scale
        size = max(size, 1.0) if self.coordinates == "output_half_pixel" else size
        steps = max(axis.bins * axis.per_bin - self.to_corners, 0)
        return Placed(axis, scale, r1 * scale, r2 * scale, size, self.offsets, steps)


@dataclass(frozen=True, slots=True)
class Question:
    """A case that samples RoIs, with its tensors widened to float64 and int64.

    rois, indices: [R, 4] and [R].
    x, dy: [N, C, H, W] and [R, C, PH, PW]; None where the case has none.
    """

    case: Case
    sampling: Sampling
    rois: Floats
    indices: Array
    x_shape: tuple[int, ...]
    x: Floats | None
    dy: Floats | None

    @property
    def coordinates(self) -> Coordinates | None:
        """ONNX's coordinate transformation mode; None in a case of DirectML."""
        return self.sampling.coordinates

    @property
    def names(self) -> dict[str, str]:
        """The names of the case's tensors: those of x, rois, indices, dy, y, dx and drois."""
        return ONNX_NAMES if self.coordinates else DIRECTML_NAMES

    def output(self, name: str) -> str:
        """What the output is, in the same words for every operator: y, dx or drois."""
        return next(role for role, known in self.names.items() if known == name)

    def placed(self) -> list[tuple[Placed, Placed]]:
        """Every RoI along y and along x."""
        return [self.sampling.place(roi) for roi in self.rois.tolist()]


class Tensors(NamedTuple):
    """The tensors of a case with RoIs, widened to float64 and int64.

    rois, indices: [R, 4], or [R, 5] of rotated ones, and [R].
    x_shape: N, C, H and W.
    x, dy: [N, C, H, W] and [R, C, PH, PW]; None where the case has none.
    """

    rois: Floats
    indices: Array
    x_shape: tuple[int, int, int, int]
    x: Floats | None
    dy: Floats | None


def tensors_of(case: Case, names: Mapping[str, str]) -> Tensors:
    """The tensors of a case, whose names are given by their roles."""
    wide = {name: array.astype(np.float64) for name, array in case.inputs.items() if array.dtype.kind not in "iu"}
    x, rois = wide.get(names["x"]), wide[names["rois"]]
    images, channels, height, width = map(int, case.inputs["x_shape"] if x is None else x.shape)
    indices = case.inputs[names["indices"]].astype(np.int64).reshape(-1)
    shape = images, channels, height, width
    return Tensors(rois.reshape(-1, rois.shape[-1]), indices, shape, x, wide.get(names["dy"]))


def bins_of(attributes: Mapping[str, AttributeValue], tensors: Tensors) -> tuple[int, int]:
    """PH and PW: those of dY, or of an operator that has no dY its attributes."""
    if tensors.dy is None:
        return attributes["output_height"], attributes["output_width"]
    return tensors.dy.shape[2], tensors.dy.shape[3]


def question_of(case: Case) -> Question:
    """The question that a right case with RoIs asks."""
    given = case.definition.check_attributes(case.attributes)
    is_onnx = case.definition.family == "roi_align"
    names = ONNX_NAMES if is_onnx else DIRECTML_NAMES
    tensors = tensors_of(case, names)
    bins, lengths = bins_of(given, tensors), tensors.x_shape[2:]
    if is_onnx:
        scale, ratio = given["spatial_scale"], given["sampling_ratio"]
        coordinates = given["coordinate_transformation_mode"]
        limits = (ratio, ratio) if ratio else (1, UINT32_MAX)
        offsets = 0.5 if coordinates == "half_pixel" else 0.0, -0.5
        sampling = Sampling((scale, scale), bins, lengths, limits, given["mode"], coordinates, offsets)
    else:
        sampling = Sampling(
            scales=(given["spatial_scale_y"], given["spatial_scale_x"]),
            bins=bins,
            lengths=lengths,
            limits=(given["minimum_samples_per_output"], given["maximum_samples_per_output"]),
            mode="avg" if given["reduction_function"] == "average" else "max_interpolated",
            offsets=(given["input_pixel_offset"], given["output_pixel_offset"]),
            nearest=given["interpolation_mode"] == "nearest_neighbor",
            to_corners=bool(given["align_regions_to_corners"]),
            outside=given.get("out_of_bounds_input_value", 0.0),
        )
    return Question(case, sampling, *tensors)


def samples(case: Case) -> float:
    """As `conformance.families.Family` has it."""
    return sum(y.samples * x.samples for y, x in question_of(case).placed())
