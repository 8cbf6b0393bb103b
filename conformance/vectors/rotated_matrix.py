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

from conformance.case import Array, Basis, Case
from conformance.geometry.rotated import Sampling, coordinates
from conformance.vectors.dialects import ROTATED, Rule, make_cases
from conformance.vectors.matrix import WANTED
from conformance.vectors.scenes import scatter

MARGIN = 1e-3
"""In pixels. Rounding of float32 coordinates moves a sample of the scenes by less than a twentieth of this."""

SHIFTS = tuple(itertools.product((0, 1, -1, 2, -2, 3, -3), repeat=2))
"""The shifts of a centre that are tried, in steps of the scene."""

SMALL, OF_30, OF_45, OF_90, OF_135, OF_180 = 1 / 64, 67 / 128, 201 / 256, 201 / 128, 151 / 64, 201 / 64
"""Angles in radians, close to the degrees in their names, that are exact in bfloat16."""

MORE_THAN_A_TURN = 29 / 4

Numbers = tuple[float, float, float, float, float, int]
"""A RoI: cx, cy, w, h, angle, and the index of its image."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A feature map, RoIs on it, and how they are sampled.

    seed: the seed of the map's numbers; those of dY have `seed + 100`.
    note: what the scene tests, in words.
    x_shape: [N, C, H, W].
    bins: output height and width.
    variants: the values of aligned and clockwise.
    step: the step by which centres may be shifted, in units of the stored coordinates.
    basis: whose rule decides what the samples of these RoIs are.
    types: element types; if empty, float, double and one of the 16-bit types.
    outputs: the roles of the outputs; if empty, y and alternating outputs of the gradient.
    """

    name: str
    seed: int
    note: str
    x_shape: tuple[int, int, int, int]
    rois: tuple[Numbers, ...]
    bins: tuple[int, int]
    ratio: int
    scale: float = 1.0
    variants: tuple[tuple[int, int], ...] = ((1, 0), (0, 1))
    step: float = 1 / 16
    basis: Basis = Basis.TEXT
    types: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def sampling(self, aligned: int, clockwise: int) -> Sampling:
        """The sampling of one of the variants."""
        lengths, scale = (self.x_shape[2], self.x_shape[3]), float(np.float32(self.scale))
        return Sampling(self.bins, lengths, aligned, clockwise, self.ratio, scale)

    def tensors(self, aligned: int, clockwise: int) -> dict[str, Array]:
        """The tensors by role: x, rois, indices, dy and x_shape, in float64 and int64."""
        sampling = self.sampling(aligned, clockwise)
        has_slopes = not self.outputs or "drois" in self.outputs
        rois = [self._shifted(roi, sampling, has_slopes) for roi in self.rois]
        return {
            "x": scatter(self.x_shape, seed=self.seed),
            "rois": np.array(rois, np.float64).reshape(-1, 5),
            "indices": np.array([roi[5] for roi in self.rois], np.int64),
            "dy": scatter((len(self.rois), self.x_shape[1], *self.bins), seed=100 + self.seed),
            "x_shape": np.array(self.x_shape),
        }

    def _shifted(self, roi: Numbers, sampling: Sampling, has_slopes: bool) -> list[float]:
        """The RoI with its centre shifted by the first of `SHIFTS` that keeps it away from where rounding decides."""
        cx, cy, *rest = roi[:5]
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
        yield from of_scene(f"matrix/{scene.name}", replace(scene, types=types, outputs=outputs), *variant)


def of_scene(scenario: str, scene: Scene, aligned: int, clockwise: int, **rest: Any) -> Iterator[Case]:
    """The cases of one variant of a scene; `rest` has further arguments of `make_cases`."""
    words = f"{'aligned' if aligned else 'not_aligned'}/{'clockwise' if clockwise else 'counter_clockwise'}"
    given = {"note": scene.note, "basis": scene.basis, "types": scene.types, "variant": words}
    yield from make_cases(
        scenario,
        Rule(scale=scene.scale, ratio=scene.ratio),
        scene.tensors(aligned, clockwise),
        scene.outputs,
        bins=scene.bins,
        more={"aligned": aligned, "clockwise": clockwise},
        dialects=[ROTATED],
        **{**given, **rest},
    )


ALL = ((1, 0), (0, 0), (1, 1), (0, 1))

SCENES = (
    Scene(
        "angles",
        21,
        "no angle, a small one, 30, 45, 90, 135, 180 and -60 degrees, and more than a turn",
        (1, 2, 9, 10),
        tuple(
            (4.8125 + i / 16, 4.25 - i / 8, 5.5, 3.25, angle, 0)
            for i, angle in enumerate((0.0, SMALL, OF_30, OF_45, OF_90, OF_135, OF_180, -2 * OF_30, MORE_THAN_A_TURN))
        ),
        (2, 3),
        2,
        variants=ALL,
    ),
    Scene(
        "images_and_channels",
        19,
        "RoIs out of order on three images of two channels, the second image without any",
        (3, 2, 6, 7),
        (
            (3.0625, 2.875, 3.4375, 4.25, OF_30, 2),
            (3.375, 2.5625, 5.875, 2.75, -2 * OF_30, 0),
            (3.9375, 3.375, 3.8125, 2.375, OF_135, 2),
        ),
        (2, 3),
        2,
    ),
    Scene(
        "scale_0_3",
        9,
        "a scale that is not a power of two and, as float32, not exactly 0.3",
        (1, 2, 7, 6),
        ((9.5, 11.375, 12.5, 17.75, OF_30, 0), (9.25, 7.5, 5.5, 4.5, -OF_45, 0), (9.0, 16.25, 16.5, 5.5, 3.0, 0)),
        (3, 2),
        2,
        0.3,
        step=1 / 8,
    ),
    Scene(
        "scale_1_16",
        10,
        "a scale of 1/16, with RoIs in image coordinates",
        (2, 1, 8, 9),
        ((62.0, 53.5, 97.0, 88.0, -OF_30, 0), (58.5, 70.5, 34.0, 96.0, OF_135, 1)),
        (2, 2),
        3,
        0.0625,
        step=0.5,
    ),
    Scene(
        "scale_6_5",
        11,
        "a scale of 6.5 pixels per unit",
        (1, 2, 8, 9),
        ((0.8125, 0.6875, 0.75, 0.5, OF_45, 0), (0.5625, 0.6875, 0.375, 1.0625, -1.0, 0)),
        (2, 2),
        2,
        6.5,
        step=1 / 64,
    ),
    Scene(
        "ratio_0_sides_differ",
        20,
        "adaptive: one to three samples per bin, a different number along each axis of each RoI, rotated or not",
        (1, 2, 8, 9),
        (
            (3.0625, 2.0, 4.75, 1.8125, OF_30, 0),
            (3.875, 3.875, 1.375, 6.125, OF_90, 0),
            (1.5, 2.5625, 0.9375, 0.5, -1.0, 0),
        ),
        (2, 2),
        0,
    ),
    Scene(
        "ratio_0_scale_0_7",
        17,
        "adaptive: the numbers of samples follow from the scaled sizes",
        (1, 1, 8, 9),
        ((5.375, 3.5, 8.25, 5.5, OF_45, 0), (4.125, 6.375, 3.25, 6.25, -OF_30, 0)),
        (3, 2),
        0,
        0.7,
    ),
    Scene(
        "half_outside",
        12,
        "RoIs across each side of the map and across a corner: samples outside are 0 and count",
        (1, 2, 5, 6),
        (
            (-0.625, 2.4375, 5.375, 2.6875, OF_30, 0),
            (2.875, -0.75, 2.875, 5.875, OF_135, 0),
            (6.5625, 2.625, 5.75, 3.125, -OF_45, 0),
            (2.9375, 5.6875, 3.5625, 5.75, OF_90, 0),
            (6.25, 6.125, 4.875, 5.5625, MORE_THAN_A_TURN, 0),
        ),
        (2, 2),
        2,
        basis=Basis.REFERENCE,
    ),
    Scene(
        "all_outside",
        13,
        "RoIs outside the map that would be on it if they were upright, and the other way round",
        (1, 1, 4, 9),
        ((4.25, 7.1875, 2.0, 9.0, OF_90, 0), (4.25, 7.1875, 9.0, 2.0, OF_90, 0), (-7.0, -6.0, 3.0, 2.0, OF_45, 0)),
        (2, 2),
        2,
        basis=Basis.REFERENCE,
    ),
    Scene(
        "overlapping",
        11,
        "five RoIs over the same pixels of one image and one of another",
        (2, 1, 5, 5),
        (
            (2.375, 2.125, 3.125, 2.875, OF_30, 1),
            (2.75, 2.4375, 3.125, 2.75, OF_135, 1),
            (2.375, 2.125, 3.125, 2.875, OF_30, 1),
            (2.3125, 2.40625, 1.71875, 3.8125, -OF_45, 1),
            (2.375, 2.25, 3.5, 1.375, 0.0, 1),
            (2.375, 2.25, 2.625, 2.125, OF_180, 0),
        ),
        (2, 2),
        2,
    ),
    Scene(
        "larger_than_the_map",
        19,
        "adaptive: RoIs around the whole map, most of their samples outside",
        (1, 2, 4, 3),
        ((1.0625, 2.1875, 13.75, 13.75, OF_45, 0), (5.0625, -2.9375, 14.75, 12.5, OF_30, 0)),
        (2, 3),
        0,
        basis=Basis.REFERENCE,
    ),
    Scene(
        "upsampled",
        9,
        "more bins than pixels in the RoI",
        (1, 1, 4, 4),
        ((1.75, 1.96875, 1.375, 1.6875, OF_30, 0),),
        (5, 6),
        1,
    ),
    Scene(
        "one_row",
        7,
        "a map of one row: nothing to interpolate between along y",
        (1, 2, 1, 9),
        ((4.0625, 0.5625, 5.5, 0.75, SMALL, 0), (6.375, 0.75, 2.125, 6.8125, OF_90, 0)),
        (1, 3),
        2,
        basis=Basis.REFERENCE,
    ),
    Scene(
        "one_column",
        10,
        "a map of one column: nothing to interpolate between along x",
        (1, 2, 9, 1),
        ((0.5625, 4.0625, 5.5, 0.75, OF_90, 0), (0.75, 6.375, 2.125, 6.8125, -SMALL, 0)),
        (3, 1),
        2,
        basis=Basis.REFERENCE,
    ),
    Scene(
        "one_pixel",
        8,
        "a map of one pixel",
        (1, 2, 1, 1),
        ((0.5625, 0.4375, 1.125, 2.25, OF_30, 0), (0.4375, 0.75, 4.25, 1.3125, OF_135, 0)),
        (2, 2),
        2,
        basis=Basis.REFERENCE,
    ),
    Scene(
        "mirrored",
        12,
        "a negative width, height or both: mirrored if aligned = 1, raised to 1 otherwise",
        (1, 2, 6, 6),
        (
            (3.0, 2.5625, -3.375, 3.25, OF_30, 0),
            (3.0, 2.5625, 3.375, -2.75, OF_30, 0),
            (2.46875, 2.75, -2.4375, -3.375, -1.0, 0),
        ),
        (2, 2),
        2,
        variants=((1, 0), (1, 1), (0, 0)),
        basis=Basis.OURS,
    ),
    Scene(
        "mirrored_ratio_0",
        14,
        "adaptive: a negative width or height has no samples if aligned = 1",
        (1, 2, 6, 6),
        (
            (3.0, 2.5625, -3.375, 3.25, OF_30, 0),
            (3.0, 2.5625, 3.375, -2.75, OF_30, 0),
            (2.9375, 2.75, 2.4375, 3.375, OF_30, 0),
        ),
        (2, 2),
        0,
        variants=((1, 0), (0, 0)),
        basis=Basis.OURS,
    ),
    Scene(
        "no_extent",
        9,
        "RoIs that are a line or a point",
        (1, 2, 6, 6),
        (
            (2.1875, 2.875, 0.0, 2.875, OF_30, 0),
            (2.46875, 2.3125, 2.4375, 0.0, OF_135, 0),
            (2.3125, 3.1875, 0.0, 0.0, OF_45, 0),
        ),
        (2, 3),
        2,
    ),
    Scene(
        "less_than_a_pixel",
        15,
        "sizes below 1, which are raised to 1 if aligned = 0",
        (1, 2, 6, 6),
        (
            (2.625, 2.875, 0.375, 0.8125, OF_30, 0),
            (2.46875, 2.3125, 0.5, 3.25, OF_135, 0),
            (2.3125, 3.1875, 4.25, 0.25, -1.0, 0),
        ),
        (2, 3),
        2,
        variants=ALL,
    ),
    Scene(
        "less_than_a_pixel_scaled",
        16,
        "adaptive: sizes below 1, which are raised to 1 after scaling if aligned = 0",
        (1, 2, 6, 6),
        ((5.25, 5.75, 1.5, 1.625, OF_30, 0), (4.9375, 4.625, 1.5, 6.5, OF_135, 0), (4.625, 6.375, 0.75, 3.5, -1.0, 0)),
        (2, 2),
        0,
        0.5,
        variants=ALL,
    ),
    Scene(
        "many",
        4,
        "seven channels and nine RoIs on two images: counts that no block of a kernel divides",
        (2, 7, 5, 7),
        tuple(
            (1.75 + 0.375 * i, 1.25 + 0.25 * i, 2.875 + i / 16, 1.625 + i / 16, (i - 4) / 2 + 1 / 8, i % 2)
            for i in range(9)
        ),
        (3, 3),
        1,
    ),
    Scene(
        "huge",
        22,
        "adaptive: RoIs of 1e9 pixels, with the map in the middle or towards a corner",
        (1, 1, 5, 6),
        ((2.5, 2.25, 1e9, 1e9, OF_30, 0), (-3e8, 2e8, 1e9, 1e9, OF_30, 0), (2.5, 2.25, 1e9, 3.25, OF_45, 0)),
        (2, 2),
        0,
        variants=((1, 0),),
        basis=Basis.REFERENCE,
        types=("double",),
        outputs=("y", "dx"),
    ),
)
