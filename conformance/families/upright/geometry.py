# SPDX-License-Identifier: MIT OR Apache-2.0
"""The sampling geometry of a case, in terms that are common to RoiAlign and DmlRoiAlign."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from conformance.case import Case
from conformance.error_terms import Floats
from conformance.families.rois import DIRECTML_NAMES, ONNX_NAMES, RoiCase, RoiPlace, view_of_roi
from conformance.families.view import Element, Point, View
from ortops.operators.dml_roi_align import UINT32_MAX
from ortops.reference.dml_roi_align import region_axes
from ortops.reference.sampling import Corner, SampledAxis, axes_of_roi, corners
from ortops.spec import AttributeValue

NUMBERS = ("x1", "y1", "x2", "y2")
"""The numbers of a RoI."""

Mode = Literal["avg", "max", "max_interpolated"]
Coordinates = Literal["half_pixel", "output_half_pixel"]


class AxisGeometry(NamedTuple):
    """A RoI along one axis of the map, in pixels.

    axis: the reference's samples.
    scale: pixels per unit of the stored coordinates.
    first, last: the stored coordinates times the scale.
    size: `last - first`, or 1 if output_half_pixel has raised it.
    offsets: the input pixel offset, which is subtracted from every coordinate, and the output pixel offset.
    steps: the number of steps between samples into which the size is divided; 0 if there is no sample, or a single one
        that is aligned to both corners.
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
        """The start of the first bin, in coordinates in which pixel 0 has its centre at 0."""
        return self.first - self.offsets[0]

    @property
    def samples(self) -> int:
        """The number of samples of all bins together."""
        return self.axis.bins * self.axis.per_bin

    @property
    def on_map(self) -> float:
        """A close upper bound of the number of samples on the map."""
        step = abs(self.axis.progression(0)[1]) if self.samples else 0.0
        return min(float(self.samples), self.axis.length / step + 4) if step else float(self.samples)

    @property
    def reach(self) -> float:
        """An upper bound of every term of the coordinate of a sample on the map, in pixels."""
        return abs(self.first) + self.axis.length + 1 + max(abs(self.offsets[0]), 0.5)


@dataclass(frozen=True, slots=True)
class Sampling:
    """The attributes that decide where samples lie, in DirectML's terms. Pairs are of y and x.

    scales: pixels per unit of the stored coordinates.
    bins: the output height and width.
    lengths: the height and width of the map.
    limits: the minimum and maximum number of samples of a bin along an axis.
    mode: how samples become an output; DirectML's maximum is max_interpolated.
    coordinates: ONNX's coordinate_transformation_mode; None for DirectML.
    offsets: the input and the output pixel offset.
    nearest: whether a sample reads the nearest pixel.
    to_corners: DirectML's align_regions_to_corners.
    outside: the value of samples outside the map.
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
        """ONNX's sampling_ratio: 0 if the number of samples depends on the size of a bin."""
        return self.limits[0] if self.limits[0] == self.limits[1] else 0

    def place(self, roi: Sequence[float]) -> tuple[AxisGeometry, AxisGeometry]:
        """The geometry of a stored RoI x1, y1, x2, y2 along y and along x."""
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

    def _placed(self, axis: SampledAxis, r1: float, r2: float, scale: float) -> AxisGeometry:
        # The size is computed in the order of each specification, because the number of samples depends on its rounding.
        size = r2 * scale - r1 * scale if self.coordinates is None else (r2 - r1) * scale
        size = max(size, 1.0) if self.coordinates == "output_half_pixel" else size
        steps = max(axis.bins * axis.per_bin - self.to_corners, 0)
        return AxisGeometry(axis, scale, r1 * scale, r2 * scale, size, self.offsets, steps)


class Geometry(RoiCase):
    """The sampling geometry of a valid case of RoiAlign, DmlRoiAlign or their gradients."""

    def __init__(self, case: Case) -> None:
        is_onnx = case.definition.family == "roi_align"
        super().__init__(case, ONNX_NAMES if is_onnx else DIRECTML_NAMES)
        self.sampling = self._of_onnx() if is_onnx else sampling_of_directml(self.attributes, self.bins, self.lengths)

    def _of_onnx(self) -> Sampling:
        given = self.attributes
        scale, ratio, coordinates = (
            given[name] for name in ("spatial_scale", "sampling_ratio", "coordinate_transformation_mode")
        )
        limits = (ratio, ratio) if ratio else (1, UINT32_MAX)
        offsets = 0.5 if coordinates == "half_pixel" else 0.0, -0.5
        return Sampling((scale, scale), self.bins, self.lengths, limits, given["mode"], coordinates, offsets)

    def placed(self) -> list[tuple[AxisGeometry, AxisGeometry]]:
        """The geometry of every RoI along y and along x."""
        return [self.sampling.place(roi) for roi in self.rois.tolist()]


def sampling_of_directml(
    given: Mapping[str, AttributeValue], bins: tuple[int, int], lengths: tuple[int, int]
) -> Sampling:
    """The sampling by all attributes of DmlRoiAlign or its gradient, checked."""
    return Sampling(
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


def samples(case: Case) -> float:
    """The number of samples of a valid case in one channel."""
    return sum(y.samples * x.samples for y, x in Geometry(case).placed())


def explanation(case: Case, worst: Element | None) -> View:
    """See `conformance.families.PARTS`."""
    geometry = Geometry(case)
    sampling = geometry.sampling
    convention = "input_pixel_offset {:g}, output_pixel_offset {:g}".format(*sampling.offsets)
    if sampling.coordinates is not None:
        aligned = sampling.coordinates == "half_pixel"
        convention = f"{sampling.coordinates}, as torchvision with aligned={aligned}"
    return view_of_roi(geometry, worst, NUMBERS, convention, lambda r: _placed(sampling, geometry.rois[r].tolist()))


def _placed(sampling: Sampling, roi: Sequence[float]) -> RoiPlace:
    y, x = axes = sampling.place(roi)

    def point(v: float, u: float) -> Point:
        return y.start + v * y.size, x.start + u * x.size

    def coordinates() -> tuple[Floats, Floats]:
        along = [[a.axis.coordinate(p, i) for p in range(a.axis.bins) for i in range(a.axis.per_bin)] for a in axes]
        rows, columns = np.meshgrid(*along, indexing="ij")
        return rows, columns

    def read(at_y: float, at_x: float) -> Sequence[Corner]:
        is_on_map = y.axis.is_inside(at_y) and x.axis.is_inside(at_x)
        return corners(y.axis.taps(at_y), x.axis.taps(at_x)) if is_on_map else ()

    per_bin = y.axis.per_bin, x.axis.per_bin
    return RoiPlace(point, sampling.bins, per_bin, coordinates, read, sampling.outside)
