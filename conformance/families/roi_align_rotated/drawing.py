"""The explanation of a case of RoIAlignRotated: one RoI by its own convention and by those that are taken for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from conformance.case import Case
from conformance.expected_values import Floats
from conformance.explain import sampled_rois
from conformance.explain.conventions import Convention, Placed
from conformance.explain.drawing import Point
from conformance.explain.parts import Comparison, Explanation
from conformance.families.roi_align_rotated.geometry import NUMBERS, Geometry, Sampling, coordinates
from ortops.reference.sampling import is_inside
from ortops.spec import AttributeValue

ROTATED = (
    "mmcv has the angle in radians, and aligned and clockwise as they are here. detectron2's ROIAlignRotated is aligned "
    "and counter-clockwise, with the angle in degrees."
)


def explanation(case: Case, facts: Mapping[str, str], compared: Comparison, roi: int | None) -> Explanation:
    """The explanation of a valid case; raises ValueError if it has no such RoI."""
    geometry = Geometry(case)
    return sampled_rois.explanation(
        case, facts, compared, roi, geometry, lambda r: turned(geometry, r), NUMBERS, ROTATED
    )


def turned(geometry: Geometry, r: int) -> list[Convention]:
    """The convention of a case of RoIAlignRotated for RoI `r`, and three that differ in aligned, clockwise or the unit."""
    own, roi = geometry.sampling, geometry.rois[r : r + 1]
    other, mirrored = replace(own, aligned=1 - own.aligned), replace(own, clockwise=1 - own.clockwise)
    return [
        _turned(own, roi, is_own=True),
        _turned(other, roi),
        _turned(mirrored, roi),
        _turned(own, roi * np.array([1.0, 1.0, 1.0, 1.0, math.pi / 180]), in_degrees=True),
    ]


def _turned(sampling: Sampling, roi: Floats, *, is_own: bool = False, in_degrees: bool = False) -> Convention:
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
        Placed(point, sampling.bins, per_bin, lambda: coordinates(region), is_on_map),
        is_own,
    )
