"""The view of a case of RoIAlignRotated: one RoI with its bins and samples."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.case import Case
from conformance.explain import sampled_rois
from conformance.explain.drawing import Point
from conformance.explain.parts import Focus, View
from conformance.explain.sampled_rois import Placed, SampledRois
from conformance.families.roi_align_rotated.geometry import NUMBERS, Geometry, coordinates
from ortops.reference.roi_align_rotated import Region
from ortops.reference.sampling import Corner, corners, is_inside, taps


def explanation(case: Case, focus: Focus) -> View:
    """The view of a valid case; raises ValueError if it has no such RoI."""
    geometry = Geometry(case)
    sampling = geometry.sampling
    centre = "half a pixel is subtracted from the centre" if sampling.aligned else "sizes are at least 1 pixel"
    direction = "clockwise" if sampling.clockwise else "counter-clockwise"
    convention = f"aligned {sampling.aligned}: {centre}; positive angles turn {direction}"
    rois = SampledRois(geometry, NUMBERS, convention, lambda r: _placed(sampling.region(geometry.rois[r].tolist())))
    return sampled_rois.explanation(case, focus, rois)


def _placed(region: Region) -> Placed:
    height, width = region.map_size

    def point(along_h: float, along_w: float) -> Point:
        v, u = (along_h - 0.5) * region.height.size, (along_w - 0.5) * region.width.size
        return region.center_y + v * region.cos - u * region.sin, region.center_x + u * region.cos + v * region.sin

    def read(y: float, x: float) -> Sequence[Corner]:
        return corners(taps(y, height), taps(x, width)) if is_inside(y, height) and is_inside(x, width) else ()

    bins, per_bin = (region.height.bins, region.width.bins), (region.height.per_bin, region.width.per_bin)
    return Placed(point, bins, per_bin, lambda: coordinates(region), read)
