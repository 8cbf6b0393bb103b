"""What a case of RoIAlignRotated or of its gradient samples, and where: regions and samples are those of the reference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from conformance.case import Array, Case
from conformance.expected_values import Floats
from conformance.rois.question import ONNX_NAMES, bins_of, tensors_of
from ortops.reference.roi_align_rotated import Region, Sample, region_of

NUMBERS = ("cx", "cy", "w", "h", "angle")
"""Of a RoI."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How RoIs are sampled.

    bins, lengths: of y and x; output bins, pixels of the map.
    """

    bins: tuple[int, int]
    lengths: tuple[int, int]
    aligned: int
    clockwise: int
    ratio: int
    scale: float

    def region(self, roi: Sequence[float]) -> Region:
        """The RoI cx cy w h angle, as it is stored, on the map."""
        return region_of(roi, self.bins, self.lengths, self.aligned, self.clockwise, self.ratio, self.scale)


@dataclass(frozen=True, slots=True)
class Question:
    """A case, with its tensors widened to float64 and int64.

    rois, indices: [R, 5] and [R].
    x, dy: [N, C, H, W] and [R, C, PH, PW]; None where the case has none.
    """

    case: Case
    sampling: Sampling
    rois: Floats
    indices: Array
    x_shape: tuple[int, ...]
    x: Floats | None
    dy: Floats | None

    def regions(self) -> list[Region]:
        """Every RoI on the map."""
        return [self.sampling.region(roi) for roi in self.rois.tolist()]


def question_of(case: Case) -> Question:
    """The question that a right case asks."""
    given = case.definition.check_attributes(case.attributes)
    tensors = tensors_of(case, ONNX_NAMES)
    sampling = Sampling(
        bins_of(given, tensors),
        tensors.x_shape[2:],
        given["aligned"],
        given["clockwise"],
        given["sampling_ratio"],
        given["spatial_scale"],
    )
    return Question(case, sampling, *tensors)


class Samples(NamedTuple):
    """The S samples of a region that are inside the map.

    bins: [S], the bin of each, counted row by row.
    taps, weights: [S, 4], the pixels that it reads, counted row by row, and their weights; -1 stands for no pixel.
    along_w, along_h: [S], its places in units of the region's width and height.
    x, y: [S], its place on the map.
    """

    bins: npt.NDArray[np.int64]
    taps: npt.NDArray[np.int64]
    weights: Floats
    along_w: Floats
    along_h: Floats
    x: Floats
    y: Floats


def samples_of(region: Region) -> Samples:
    """Those inside the map."""
    shape, width = (region.height.bins, region.width.bins), region.map_size[1]
    found: list[tuple[int, Sample]] = [
        (p * shape[1] + q, sample) for p, q in np.ndindex(shape) for sample in region.samples(p, q)
    ]
    taps = [[-1 if c.pixel is None else c.pixel[0] * width + c.pixel[1] for c in s.corners] for _, s in found]
    places = np.array([(s.along_w, s.along_h, s.x, s.y) for _, s in found], np.float64).reshape(-1, 4)
    return Samples(
        np.array([number for number, _ in found], np.int64),
        np.array(taps, np.int64).reshape(-1, 4),
        np.array([[c.weight for c in s.corners] for _, s in found], np.float64).reshape(-1, 4),
        *places.T,
    )


def coordinates(region: Region) -> tuple[Floats, Floats]:
    """[k of y, k of x] each: y and x of every sample, be it inside the map or not; of a region that has not too many."""
    v, u = (
        side.size * np.array([side.along(k) for k in range(side.samples)], np.float64)
        for side in (region.height, region.width)
    )
    y = region.center_y + v[:, None] * region.cos - u[None, :] * region.sin
    x = region.center_x + u[None, :] * region.cos + v[:, None] * region.sin
    return y, x


def work_of(question: Question) -> float:
    """About as many samples as the reference computes, for all channels."""
    _, channels, height, width = question.x_shape
    across = math.hypot(height, width) + 4
    total = 0.0
    for region in question.regions():
        count = 1.0
        for side in (region.height, region.width):
            step = abs(side.size) / max(side.samples, 1)
            count *= min(float(side.samples), across / step + 4) if step else float(side.samples)
        # A list of the image for each RoI, and each bin begins anew.
        total += count * (channels + 2) + channels * height * width / 300 + math.prod(question.sampling.bins)
    return total


def samples(case: Case) -> float:
    """As `conformance.families.Family` has it."""
    return float(sum(region.height.samples * region.width.samples for region in question_of(case).regions()))
