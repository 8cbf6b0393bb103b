"""RoiAlign and DmlRoiAlign in the same terms: what a case samples, under one set of names, and where its samples lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from conformance.case import Array, Case
from conformance.expect import Floats
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
        """Of all bins together."""
        return self.axis.bins * self.axis.per_bin

    @property
    def on_map(self) -> float:
        """About as many samples as lie on the map, and no fewer."""
        step = abs(self.axis.progression(0)[1]) if self.samples else 0.0
        return min(float(self.samples), self.axis.length / step + 4) if step else float(self.samples)

    @property
    def reach(self) -> float:
        """No term of the coordinate of a sample on the map is larger."""
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
        least = 1.0 if self.coordinates == "output_half_pixel" else -np.inf
        x1, y1, x2, y2 = roi
        placed = []
        for axis, r1, r2, scale in zip(self._axes(roi), (y1, x1), (y2, x2), self.scales, strict=True):
            # In the order of operations that each specification has: the number of samples depends on it.
            size = r2 * scale - r1 * scale if self.coordinates is None else max((r2 - r1) * scale, least)
            steps = max(axis.bins * axis.per_bin - self.to_corners, 0)
            placed.append(Placed(axis, scale, r1 * scale, r2 * scale, size, self.offsets, steps))
        return placed[0], placed[1]

    def _axes(self, roi: Sequence[float]) -> tuple[SampledAxis, SampledAxis]:
        if self.coordinates is None:
            return region_axes(
                self.bins,
                self.lengths,
                interpolation_mode="nearest_neighbor" if self.nearest else "linear",
                scales=self.scales,
                offsets=self.offsets,
                samples=self.limits,
                to_corners=self.to_corners,
            )(roi)
        return axes_of_roi(
            roi,
            self.bins,
            self.lengths,
            sampling_ratio=self.ratio,
            spatial_scale=self.scales[1],
            coordinate_transformation_mode=self.coordinates,
        )


@dataclass(frozen=True, slots=True)
class Question:
    """A case that samples RoIs, with its tensors widened to float64 and int64.

    rois: [R, 4].
    indices: [R].
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


def question_of(case: Case) -> Question:
    """The question that a right case with RoIs asks."""
    arguments = case.definition.check_attributes(case.attributes)
    is_onnx = "coordinate_transformation_mode" in arguments
    names = ONNX_NAMES if is_onnx else DIRECTML_NAMES
    x, dy = (_widened(case.inputs.get(names[role])) for role in ("x", "dy"))
    shape = x.shape if x is not None else tuple(map(int, case.inputs["x_shape"]))
    bins = (int(arguments["output_height"]), int(arguments["output_width"])) if dy is None else dy.shape[2:]
    make = _onnx if is_onnx else _directml
    return Question(
        case,
        make(arguments, (bins[0], bins[1]), (shape[2], shape[3])),
        case.inputs[names["rois"]].astype(np.float64).reshape(-1, 4),
        case.inputs[names["indices"]].astype(np.int64).reshape(-1),
        shape,
        x,
        dy,
    )


def _widened(array: Array | None) -> Floats | None:
    return None if array is None else array.astype(np.float64)


def _onnx(arguments: dict[str, AttributeValue], bins: tuple[int, int], lengths: tuple[int, int]) -> Sampling:
    scale, ratio = float(arguments["spatial_scale"]), int(arguments["sampling_ratio"])
    limits = (ratio, ratio) if ratio else (1, UINT32_MAX)
    coordinates: Coordinates = arguments["coordinate_transformation_mode"]
    offset = 0.5 if coordinates == "half_pixel" else 0.0
    return Sampling((scale, scale), bins, lengths, limits, arguments["mode"], coordinates, (offset, -0.5))


def _directml(arguments: dict[str, AttributeValue], bins: tuple[int, int], lengths: tuple[int, int]) -> Sampling:
    return Sampling(
        (arguments["spatial_scale_y"], arguments["spatial_scale_x"]),
        bins,
        lengths,
        (arguments["minimum_samples_per_output"], arguments["maximum_samples_per_output"]),
        "avg" if arguments["reduction_function"] == "average" else "max_interpolated",
        None,
        (arguments["input_pixel_offset"], arguments["output_pixel_offset"]),
        arguments["interpolation_mode"] == "nearest_neighbor",
        bool(arguments["align_regions_to_corners"]),
        float(arguments.get("out_of_bounds_input_value", 0.0)),
    )
