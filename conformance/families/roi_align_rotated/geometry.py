# SPDX-License-Identifier: MIT OR Apache-2.0
"""The sampling geometry of a case of RoIAlignRotated or its gradient, with the reference's regions and samples."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from conformance.case import Case
from conformance.error_terms import Floats
from conformance.families.rois import ONNX_NAMES, RoiCase, RoiPlace, view_of_roi
from conformance.families.view import Element, Point, View
from ortops.reference.roi_align_rotated import Region, Sample, region_of
from ortops.reference.sampling import Corner, corners, is_inside, taps

NUMBERS = ("cx", "cy", "w", "h", "angle")
"""The numbers of a RoI."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """The attributes and lengths that decide where samples lie.

    bins: the output height and width.
    lengths: the height and width of the map.
    """

    bins: tuple[int, int]
    lengths: tuple[int, int]
    aligned: int
    clockwise: int
    ratio: int
    scale: float

    def region(self, roi: Sequence[float]) -> Region:
        """The region of a stored RoI cx, cy, w, h, angle on the map."""
        return region_of(roi, self.bins, self.lengths, self.aligned, self.clockwise, self.ratio, self.scale)


class Geometry(RoiCase):
    """The sampling geometry of a valid case of RoIAlignRotated or its gradient."""

    def __init__(self, case: Case) -> None:
        super().__init__(case, ONNX_NAMES)
        given = (self.attributes[name] for name in ("aligned", "clockwise", "sampling_ratio", "spatial_scale"))
        self.sampling = Sampling(self.bins, self.lengths, *given)

    def regions(self) -> list[Region]:
        """The region of every RoI."""
        return [self.sampling.region(roi) for roi in self.rois.tolist()]


class Samples(NamedTuple):
    """The S samples of a region that are inside the map.

    bins: [S], the bin of each, counted row by row.
    taps, weights: [S, 4], the pixels that each reads, counted row by row, and their weights; -1 stands for no pixel.
    along_w, along_h: [S], their positions in units of the region's width and height.
    x, y: [S], their coordinates on the map.
    """

    bins: npt.NDArray[np.int64]
    taps: npt.NDArray[np.int64]
    weights: Floats
    along_w: Floats
    along_h: Floats
    x: Floats
    y: Floats


@functools.lru_cache(maxsize=512)
def samples_of(region: Region) -> Samples:
    """The samples of a region inside the map. The cache shares them: do not write to them."""
    shape, width = (region.height.bins, region.width.bins), region.map_size[1]
    samples: list[tuple[int, Sample]] = [
        (p * shape[1] + q, sample) for p, q in np.ndindex(shape) for sample in region.samples(p, q)
    ]
    taps = [[-1 if c.pixel is None else c.pixel[0] * width + c.pixel[1] for c in s.corners] for _, s in samples]
    places = np.array([(s.along_w, s.along_h, s.x, s.y) for _, s in samples], np.float64).reshape(-1, 4)
    return Samples(
        np.array([number for number, _ in samples], np.int64),
        np.array(taps, np.int64).reshape(-1, 4),
        np.array([[c.weight for c in s.corners] for _, s in samples], np.float64).reshape(-1, 4),
        *places.T,
    )


def coordinates(region: Region) -> tuple[Floats, Floats]:
    """The coordinates y and x of all samples of a region, inside the map or not, [samples along h, samples along w] each."""
    v, u = (
        side.size * np.array([side.along(k) for k in range(side.samples)], np.float64)
        for side in (region.height, region.width)
    )
    y = region.center_y + v[:, None] * region.cos - u[None, :] * region.sin
    x = region.center_x + u[None, :] * region.cos + v[:, None] * region.sin
    return y, x


def work_of(geometry: Geometry) -> float:
    """An estimate of the number of samples that the reference computes, for all channels."""
    _, channels, height, width = geometry.x_shape
    across = math.hypot(height, width) + 4
    total = 0.0
    for region in geometry.regions():
        count = 1.0
        for side in (region.height, region.width):
            step = abs(side.size) / max(side.samples, 1)
            count *= min(float(side.samples), across / step + 4) if step else float(side.samples)
        # The reference converts the image to a list for each RoI, and each bin has an overhead.
        total += count * (channels + 2) + channels * height * width / 300 + math.prod(geometry.sampling.bins)
    return total


def samples(case: Case) -> float:
    """The number of samples of a valid case in one channel."""
    return float(sum(region.height.samples * region.width.samples for region in Geometry(case).regions()))


def explanation(case: Case, worst: Element | None) -> View:
    """See `conformance.families.PARTS`."""
    geometry = Geometry(case)
    sampling = geometry.sampling
    centre = "half a pixel is subtracted from the centre" if sampling.aligned else "sizes are at least 1 pixel"
    direction = "clockwise" if sampling.clockwise else "counter-clockwise"
    convention = f"aligned {sampling.aligned}: {centre}; positive angles turn {direction}"
    return view_of_roi(
        geometry, worst, NUMBERS, convention, lambda r: _placed(sampling.region(geometry.rois[r].tolist()))
    )


def _placed(region: Region) -> RoiPlace:
    height, width = region.map_size

    def point(along_h: float, along_w: float) -> Point:
        v, u = (along_h - 0.5) * region.height.size, (along_w - 0.5) * region.width.size
        return region.center_y + v * region.cos - u * region.sin, region.center_x + u * region.cos + v * region.sin

    def read(y: float, x: float) -> Sequence[Corner]:
        return corners(taps(y, height), taps(x, width)) if is_inside(y, height) and is_inside(x, width) else ()

    bins, per_bin = (region.height.bins, region.width.bins), (region.height.per_bin, region.width.per_bin)
    return RoiPlace(point, bins, per_bin, lambda: coordinates(region), read)
