"""The conventions that are often confused: by each of them, where the samples of a RoI fall and what the bins become.

The reference computes both the samples and the values, so a drawing cannot disagree with the suite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from conformance.case import Array
from conformance.expected_values import Floats, reference
from conformance.explain.drawing import Point
from conformance.geometry import rois, rotated
from ortops.operators import BY_NAME
from ortops.operators.dml_roi_align import UINT32_MAX
from ortops.reference.sampling import is_inside
from ortops.spec import AttributeValue

MAX_COMPUTED = 1_000_000
"""The largest number of samples for which a convention computes the bins of a RoI."""

TORCHVISION = (
    "torchvision.ops.roi_align has no convention of its own: aligned=False is output_half_pixel, aligned=True is "
    "half_pixel, both with the mean of the samples. Its sampling_ratio > 0 is that many samples along each axis of a "
    "bin, as in ONNX; -1 or 0 is adaptive, the size of the bin in pixels rounded up, as 0 is in ONNX."
)
ROTATED = (
    "mmcv has the angle in radians, and aligned and clockwise as they are here. detectron2's ROIAlignRotated is aligned "
    "and counter-clockwise, with the angle in degrees."
)


class Placed(NamedTuple):
    """A RoI on the map.

    point: the point at fractions of the RoI's height and width.
    bins, per_bin: the numbers of bins, and of samples of a bin, along the height and the width.
    coordinates: a function that returns y and x of all samples, [samples along the height, along the width] each.
    is_inside: takes y and x of a sample, and returns whether it is on the map.
    """

    point: Callable[[float, float], Point]
    bins: tuple[int, int]
    per_bin: tuple[int, int]
    coordinates: Callable[[], tuple[Floats, Floats]]
    is_inside: Callable[[float, float], bool]

    @property
    def total(self) -> int:
        """The number of samples of all bins."""
        return math.prod((*self.bins, *self.per_bin))


@dataclass(frozen=True, slots=True)
class Convention:
    """One convention, with one RoI of the case translated into it.

    name: the name in headings. `short` is that in columns of tables.
    operator: the name of the operator that computes its values.
    roi: the RoI as that operator takes it, [1, 4 or 5].
    placed: the RoI on the map.
    is_own: whether the case itself uses this convention.
    notes: sentences about attributes of the case that this convention does not have.
    """

    name: str
    detail: str
    operator: str
    attributes: Mapping[str, AttributeValue]
    roi: Floats
    placed: Placed
    is_own: bool
    notes: tuple[str, ...] = ()

    @property
    def short(self) -> str:
        """The short name that columns of tables show."""
        return self.name.removeprefix("ONNX ")

    def output(self, image: Floats | None) -> Floats | None:
        """The bins [rows, columns] of the RoI on an image [H, W]; None if samples are too many or there is no image."""
        if image is None or self.placed.total > MAX_COMPUTED:
            return None
        definition = BY_NAME[self.operator]
        tensors: tuple[Array, ...] = image[None, None], self.roi, np.zeros(1, np.int64)
        inputs = dict(zip((tensor.name for tensor in definition.inputs), tensors, strict=True))
        attributes = {a.name: self.attributes[a.name] for a in definition.attributes if a.name in self.attributes}
        (output,) = reference(definition, attributes, inputs, [definition.outputs[0].name]).values()
        return np.asarray(output[0, 0], np.float64)


def upright(geometry: rois.Geometry, r: int) -> list[Convention]:
    """The conventions of RoiAlign and DmlRoiAlign for RoI `r`: ONNX's at opset 10, those since 16, and DirectML's."""
    given, roi = geometry.sampling, geometry.rois[r : r + 1]
    own, made = given.coordinates, []
    keys: tuple[tuple[rois.Coordinates, str, str, str, float], ...] = (
        ("output_half_pixel", "RoiAlign-10", "False", "RoiAlign_10", 0.0),
        ("half_pixel", "RoiAlign-16/22", "True", "RoiAlign_16", 0.5),
    )
    for key, versions, aligned, operator, offset in keys:
        # ONNX has one scale, so coordinates along y are turned into units of x.
        sampling = rois.Sampling(
            (given.scales[1],) * 2, given.bins, given.lengths, given.limits, given.mode, key, (offset, -0.5)
        )
        scaled = roi * np.array([1.0, given.scales[0] / given.scales[1]] * 2)
        words = f"ONNX {versions}", f"{key}, the same as torchvision aligned={aligned}", operator
        notes = () if own else tuple(_unsupported_by_onnx(given))
        made.append(_upright(words, sampling, scaled, is_own=own == key, notes=notes))
    sampling, notes = given, ()
    if own:
        most = min(given.limits[0], UINT32_MAX), min(given.limits[1], UINT32_MAX)
        sampling = replace(given, limits=most, coordinates=None, offsets=(0.5, -0.5))
        if given.mode == "max":
            notes = ("DirectML's max is the largest interpolated sample, not the largest weighted pixel.",)
    detail = "input_pixel_offset {:g}, output_pixel_offset {:g}".format(*sampling.offsets)
    return [*made, _upright(("DirectML", detail, "DmlRoiAlign"), sampling, roi, is_own=own is None, notes=notes)]


def _upright(
    words: tuple[str, str, str], sampling: rois.Sampling, roi: Floats, *, is_own: bool, notes: tuple[str, ...]
) -> Convention:
    attributes: dict[str, AttributeValue] = {
        "output_height": sampling.bins[0],
        "output_width": sampling.bins[1],
        "mode": sampling.mode,
        "sampling_ratio": sampling.ratio,
        "spatial_scale": sampling.scales[1],
        "coordinate_transformation_mode": sampling.coordinates or "",
        "reduction_function": "average" if sampling.mode == "avg" else "max",
        "interpolation_mode": "nearest_neighbor" if sampling.nearest else "linear",
        "spatial_scale_y": sampling.scales[0],
        "spatial_scale_x": sampling.scales[1],
        "input_pixel_offset": sampling.offsets[0],
        "output_pixel_offset": sampling.offsets[1],
        "out_of_bounds_input_value": sampling.outside,
        "minimum_samples_per_output": sampling.limits[0],
        "maximum_samples_per_output": sampling.limits[1],
        "align_regions_to_corners": int(sampling.to_corners),
    }
    y, x = axes = sampling.place(roi[0].tolist())

    def coordinates() -> tuple[Floats, Floats]:
        along = [[a.axis.coordinate(p, i) for p in range(a.axis.bins) for i in range(a.axis.per_bin)] for a in axes]
        rows, columns = np.meshgrid(*along, indexing="ij")
        return rows, columns

    def point(v: float, u: float) -> Point:
        return y.start + v * y.size, x.start + u * x.size

    def is_on_map(at_y: float, at_x: float) -> bool:
        return y.axis.is_inside(at_y) and x.axis.is_inside(at_x)

    placed = Placed(point, sampling.bins, (y.axis.per_bin, x.axis.per_bin), coordinates, is_on_map)
    return Convention(*words, attributes, roi, placed, is_own, notes)


def _unsupported_by_onnx(sampling: rois.Sampling) -> list[str]:
    rules = (
        (sampling.nearest, "interpolates linearly, never to the nearest pixel"),
        (sampling.to_corners, "does not align samples to corners"),
        (sampling.outside != 0.0, "has 0 for samples off the map"),
        (not sampling.ratio and sampling.limits != (1, UINT32_MAX), "has no limits to the number of samples"),
        (sampling.scales[0] != sampling.scales[1], "has one scale; the RoI's y coordinates are scaled instead"),
    )
    return [f"ONNX {what}." for applies, what in rules if applies]


def turned(geometry: rotated.Geometry, r: int) -> list[Convention]:
    """The convention of a case of RoIAlignRotated for RoI `r`, and three that differ in aligned, clockwise or the unit."""
    own, roi = geometry.sampling, geometry.rois[r : r + 1]
    other, mirrored = replace(own, aligned=1 - own.aligned), replace(own, clockwise=1 - own.clockwise)
    return [
        _turned(own, roi, is_own=True),
        _turned(other, roi),
        _turned(mirrored, roi),
        _turned(own, roi * np.array([1.0, 1.0, 1.0, 1.0, math.pi / 180]), in_degrees=True),
    ]


def _turned(sampling: rotated.Sampling, roi: Floats, *, is_own: bool = False, in_degrees: bool = False) -> Convention:
    centre = "half a pixel is subtracted from the centre" if sampling.aligned else "sizes are at least 1 pixel"
    direction = "clockwise" if sampling.clockwise else "counter-clockwise"
    attributes: dict[str, AttributeValue] = {
        "output_height": sampling.bins[0],
        "output_width": sampling.bins[1],
        "aligned": sampling.aligned,
        "clockwise": sampling.clockwise,
        "sampling_ratio": sampling.ratio,
        "spatial_scale": sampling.scale,
    }
    region = sampling.region(roi[0].tolist())

    def point(along_h: float, along_w: float) -> Point:
        v, u = (along_h - 0.5) * region.height.size, (along_w - 0.5) * region.width.size
        return region.center_y + v * region.cos - u * region.sin, region.center_x + u * region.cos + v * region.sin

    def is_on_map(y: float, x: float) -> bool:
        return is_inside(y, sampling.lengths[0]) and is_inside(x, sampling.lengths[1])

    per_bin = region.height.per_bin, region.width.per_bin
    return Convention(
        "angle in degrees" if in_degrees else f"aligned {sampling.aligned}, clockwise {sampling.clockwise}",
        f"{centre}; positive angles turn {direction}{', and are degrees' if in_degrees else ''}",
        "RoIAlignRotated",
        attributes,
        roi,
        Placed(point, sampling.bins, per_bin, lambda: rotated.coordinates(region), is_on_map),
        is_own,
    )
