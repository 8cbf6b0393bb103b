"""RoIAlignRotated and its gradient on scenes of rotated RoIs, aligned or not, clockwise or not.

The reference computes the expected values. The numbers of RoIs are short binary fractions, which are exact in every element
type. If necessary, the centre of a RoI is shifted until its samples keep away from where rounding of a coordinate decides:
borders, pixels, whole numbers of samples, and the minimum size.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from conformance.case import Array, Case
from conformance.geometry.rotated import Sampling, coordinates
from conformance.vectors.dialects import ROTATED, of_scene
from conformance.vectors.matrix import WANTED
from conformance.vectors.scenes import Scene, load

MARGIN = 1e-3
"""In pixels. Rounding of float32 coordinates moves a sample of the scenes by less than a twentieth of this."""

SHIFTS = tuple(itertools.product((0, 1, -1, 2, -2, 3, -3), repeat=2))
"""The shifts of a centre that are tried, in steps of the scene."""

OF_30, OF_45, OF_90, OF_135, OF_180 = 67 / 128, 201 / 256, 201 / 128, 151 / 64, 201 / 64
"""Angles in radians, close to the degrees in their names, that are exact in bfloat16."""

MORE_THAN_A_TURN = 29 / 4


@dataclass(frozen=True, slots=True)
class RotatedScene(Scene):
    """A scene with rotated RoIs: cx, cy, w, h, angle, and the index of the image.

    variants: the values of aligned and clockwise.
    step: the step by which centres may be shifted, in units of the stored coordinates.
    types: element types; if empty, float, double and one of the 16-bit types.
    outputs: the roles of the outputs; if empty, y and alternating outputs of the gradient.
    """

    variants: tuple[tuple[int, int], ...] = ((1, 0), (0, 1))
    step: float = 1 / 16
    types: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def sampling(self, aligned: int, clockwise: int) -> Sampling:
        """The sampling of one of the variants."""
        lengths, scale = (self.x_shape[2], self.x_shape[3]), float(np.float32(self.spatial_scale))
        return Sampling(self.bins, lengths, aligned, clockwise, self.sampling_ratio, scale)

    def tensors_of(self, aligned: int, clockwise: int) -> dict[str, Array]:
        """The tensors by role, with the centres of the RoIs shifted for one of the variants."""
        sampling, tensors = self.sampling(aligned, clockwise), self.tensors
        has_slopes = not self.outputs or "drois" in self.outputs
        rois = [self._shifted(roi, sampling, has_slopes) for roi in tensors["rois"].tolist()]
        return {**tensors, "rois": np.array(rois, np.float64).reshape(-1, 5)}

    def _shifted(self, roi: Sequence[float], sampling: Sampling, has_slopes: bool) -> list[float]:
        """The RoI with its centre shifted by the first of `SHIFTS` that keeps it away from where rounding decides."""
        cx, cy, *rest = roi
        for right, down in SHIFTS:
            moved = [cx + right * self.step, cy + down * self.step, *rest]
            if is_clear(moved, sampling, has_slopes):
                return moved
        raise ValueError(f"scene {self.name}: no centre near {cx}, {cy} keeps samples away from where rounding decides")


def is_clear(roi: Sequence[float], sampling: Sampling, has_slopes: bool) -> bool:
    """Whether rounding decides neither the number of samples, nor which pixels they read, nor their slopes if these matter.

    A region with too many samples to list is not checked further.
    """
    region = sampling.region(roi)
    for stored, side in ((roi[2], region.width), (roi[3], region.height)):
        size, wanted = stored * sampling.scale, side.size / side.bins
        is_whole = abs(wanted - round(wanted)) < MARGIN and not (wanted * 2**20).is_integer()
        if (sampling.ratio == 0 and wanted > 0 and is_whole) or (not sampling.aligned and abs(size - 1) < MARGIN):
            return False
    if region.total * region.height.bins * region.width.bins > 10**6:
        return True
    for c, length in zip(coordinates(region), sampling.lengths, strict=True):
        inside = c[(c > -MARGIN) & (c < length - 1 + MARGIN)] if has_slopes else c[:0]
        distances = [np.abs(c + 1), np.abs(c - length), np.abs(inside - np.round(inside))]
        if min(float(np.min(distance, initial=1.0)) for distance in distances) < MARGIN:
            return False
    return True


def cases() -> Iterator[Case]:
    """The cases of all scenes and their variants."""
    for turn, (scene, variant) in enumerate((one, variant) for one in SCENES for variant in one.variants):
        types = scene.types or ("float", "double", ("float16", "bfloat16")[turn % 2])
        outputs = scene.outputs or ("y", *WANTED[turn % len(WANTED)])
        yield from of_rotated("matrix", replace(scene, types=types, outputs=outputs), *variant)


def of_rotated(family: str, scene: RotatedScene, aligned: int, clockwise: int, **rest: Any) -> Iterator[Case]:
    """The cases of one variant of a scene; `rest` has further arguments of `of_rule`."""
    words = f"{'aligned' if aligned else 'not_aligned'}/{'clockwise' if clockwise else 'counter_clockwise'}"
    yield from of_scene(
        family,
        scene,
        scene.outputs,
        tensors=scene.tensors_of(aligned, clockwise),
        more={"aligned": aligned, "clockwise": clockwise},
        dialects=[ROTATED],
        **{"types": scene.types, "variant": words, **rest},
    )


SCENES = load("roi_align_rotated.json", RotatedScene)
