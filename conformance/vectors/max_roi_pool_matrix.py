"""MaxRoiPool and its gradient on scenes, with default attributes, empty tensors, exact bin bounds and large coordinates.

The reference computes the expected values of scenes. Tests verify it with ONNX Runtime's kernel, and its gradient by finite
differences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from conformance.case import Array, Basis, Case, Source
from conformance.vectors.expand import FLOATS, expand
from conformance.vectors.scenes import scatter
from ortops.spec import ELEMENT_DTYPES

TEXT = Source("ONNX operators MaxRoiPool-1 and -22", "onnx 1.23.2", "Inputs, Attributes, Outputs")
BY_HAND = Source("ortops/operators/max_roi_pool.py", "definition", "exact bounds, in whole numbers")

MANY = 4096
"""The number of RoIs. A float16 sum of so many ones stops at 2048, a bfloat16 one at 256."""

INEXACT: tuple[tuple[tuple[int, int], tuple[str, ...]], ...] = (
    ((7, 57), FLOATS),
    ((11, 29), FLOATS),
    ((13, 14), FLOATS),
    ((14, 62), FLOATS),
    ((20, 84), FLOATS),
    ((21, 93), FLOATS),
    ((7, 29), ("double",)),
    ((14, 58), ("double",)),
    ((22, 30), ("double",)),
    ((28, 29), ("double",)),
)
"""Numbers of bins and pixels of a RoI for which float32, or float64 for doubles, gives a bin a pixel too many; and types."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A map and RoIs on it, which are exact in every element type.

    seed: the seed of the map's numbers; those of dY have `seed + 100`.
    note: what the scene tests, in words.
    x_shape: [N, C, H, W].
    rois: batch_id, x1, y1, x2 and y2.
    bins: pooled height and width.
    basis: whose rule decides which pixels the bins have.
    levels: the number of distinct pixel values; 0 if all pixels are distinct.
    """

    name: str
    seed: int
    note: str
    x_shape: tuple[int, int, int, int]
    rois: tuple[tuple[float, float, float, float, float], ...]
    bins: tuple[int, int]
    spatial_scale: float = 1.0
    basis: Basis = Basis.VECTORS
    levels: int = 0


SCENES = (
    Scene(
        "images_and_channels",
        1,
        "RoIs out of order on three images of two channels, the second image without any",
        (3, 2, 6, 7),
        ((2, 1.25, 0.75, 4.75, 5.25), (0, 0.25, 1.25, 6.25, 3.75), (2, 2, 2.25, 5.75, 4.25)),
        (2, 3),
    ),
    Scene(
        "scale_0_3",
        2,
        "a scale that is not a power of two and, as float32, not exactly 0.3",
        (1, 2, 7, 6),
        ((0, 3.25, 2.5, 15.75, 20.25), (0, 6.5, 5.25, 12, 9.75), (0, 0.75, 13.5, 17.25, 19)),
        (3, 2),
        0.3,
    ),
    Scene(
        "scale_1_16",
        3,
        "a scale of 1/16, with RoIs in image coordinates",
        (2, 1, 8, 9),
        ((0, 13, 9, 110, 97), (1, 41, 22, 75, 118)),
        (2, 2),
        0.0625,
    ),
    Scene(
        "scale_1_4",
        4,
        "a scale above 1 that is not a power of two",
        (1, 2, 7, 6),
        ((0, 0.75, 0.5, 3, 4.25), (0, 1.25, 1, 4.75, 2.75)),
        (2, 2),
        1.4,
    ),
    Scene("scale_8", 5, "a scale of 8", (1, 2, 9, 17), ((0, 0.125, 0.25, 1.75, 0.875), (0, 1, 0.5, 2, 1)), (3, 4), 8.0),
    Scene(
        "whole_bins",
        6,
        "as many bins as pixels, half as many, or a quarter",
        (1, 2, 8, 8),
        ((0, 0, 0, 3, 3), (0, 0, 0, 7, 7), (0, 4, 4, 7, 7)),
        (4, 4),
    ),
    Scene(
        "seven_bins",
        7,
        "7 x 7 bins of 14, 10 and 5 pixels, as in the networks of Fast R-CNN",
        (1, 2, 15, 16),
        ((0, 1, 1, 14, 14), (0, 3, 2, 12, 11), (0, 6, 5, 10, 9)),
        (7, 7),
    ),
    Scene(
        "high_bins",
        8,
        "one row of five bins, on RoIs of any size",
        (1, 2, 9, 10),
        ((0, 1, 2, 8, 3), (0, 0, 0, 9, 8), (0, 4, 1, 6, 7)),
        (1, 5),
    ),
    Scene(
        "wide_bins",
        9,
        "one column of five bins, on RoIs of any size",
        (1, 2, 9, 10),
        ((0, 1, 2, 8, 3), (0, 0, 0, 9, 8), (0, 4, 1, 6, 7)),
        (5, 1),
    ),
    Scene(
        "half_outside",
        10,
        "RoIs across each side of the map and across corners",
        (1, 2, 5, 6),
        ((0, -3, 1, 2, 4), (0, 1, -4, 4, 2), (0, 4, 1, 9, 4), (0, 1, 3, 5, 9), (0, 4, 3, 9, 9), (0, -2, -2, 1, 1)),
        (2, 2),
    ),
    Scene(
        "larger_than_the_map",
        11,
        "RoIs around the whole map, most of their bins outside",
        (1, 2, 4, 3),
        ((0, -6, -5, 8, 9), (0, -2, -9, 12, 3)),
        (4, 4),
    ),
    Scene(
        "beside_the_map",
        12,
        "RoIs outside the map along either axis or both, among some that are on it",
        (2, 2, 5, 6),
        ((0, 7, 1, 9, 3), (1, 1, 1, 3, 3), (0, 2, -7, 4, -3), (1, -9, -9, -3, -2), (0, 0, 0, 5, 4), (0, 6, 5, 8, 8)),
        (2, 3),
    ),
    Scene(
        "overlapping",
        13,
        "five RoIs over the same pixels of one image and one of another",
        (2, 1, 5, 5),
        (
            (1, 1, 1, 4, 4),
            (1, 0, 1, 3, 3),
            (1, 1, 1, 4, 4),
            (1, 1, 0, 3, 4),
            (1, 0, 2, 4, 3),
            (0, 1, 1, 4, 3),
        ),
        (2, 2),
    ),
    Scene(
        "upsampled",
        14,
        "more bins than pixels in the RoI",
        (1, 2, 4, 4),
        ((0, 1, 1, 2, 2), (0, 0, 2, 2, 2)),
        (4, 8),
    ),
    Scene("one_row", 15, "a map of one row", (1, 2, 1, 9), ((0, 1, 0, 7, 0), (0, 3, -1, 9, 2)), (1, 4)),
    Scene("one_column", 16, "a map of one column", (1, 2, 9, 1), ((0, 0, 1, 0, 7), (0, -1, 3, 2, 9)), (4, 1)),
    Scene(
        "swapped_ends",
        17,
        "RoIs with swapped ends along either axis or both",
        (1, 2, 6, 6),
        ((0, 5, 4, 1, 1), (0, 5, 1, 1, 4), (0, 1, 4, 4, 1), (0, 3, 3, 2, 2)),
        (2, 2),
        basis=Basis.OURS,
    ),
    Scene(
        "one_pixel_each",
        18,
        "RoIs of one pixel, on corners of the map and within it",
        (1, 3, 4, 5),
        ((0, 0, 0, 0, 0), (0, 4, 3, 4, 3), (0, 2, 1, 2, 1), (0, 4, 0, 4, 0)),
        (1, 1),
    ),
    Scene(
        "halves",
        19,
        "ends halfway between pixels, on either side of 0",
        (1, 2, 7, 8),
        ((0, 0.5, 1.5, 4.5, 5.5), (0, -0.5, -1.5, 2.5, 3.5), (0, -2.5, -3.5, -0.5, 6.5), (0, 3.5, 2.5, 6.5, 4.5)),
        (2, 2),
        basis=Basis.OURS,
    ),
    Scene(
        "ties",
        20,
        "pixels with three distinct values: nearly every bin has several maxima",
        (2, 2, 6, 8),
        ((0, 0, 0, 7, 5), (1, 1, 1, 6, 4), (0, 2, 0, 7, 3), (1, 0, 2, 4, 5)),
        (2, 4),
        levels=3,
    ),
    Scene(
        "huge",
        21,
        "RoIs of up to 2^16 pixels, some of whose bins end on the map",
        (1, 2, 5, 6),
        ((0, -1024, -1024, 1040, 1040), (0, -32768, 2, 32768, 3), (0, 1, -4096, 4, 4096)),
        (4, 2),
        basis=Basis.OURS,
    ),
    Scene(
        "many",
        22,
        "seven channels and nine RoIs on two images: counts that no block of a kernel divides",
        (2, 7, 5, 7),
        tuple((r % 2, r % 3, r % 2, 3 + r % 4, 2 + r % 3) for r in range(9)),
        (3, 3),
    ),
)


def cases() -> Iterator[Case]:
    """The cases of this module."""
    for scene in SCENES:
        x, y_shape = scatter(scene.x_shape, seed=scene.seed), (len(scene.rois), scene.x_shape[1], *scene.bins)
        if scene.levels:
            x = np.floor((x + 2) * scene.levels / 5)
        made = make_cases(
            f"matrix/{scene.name}",
            x,
            scene.rois,
            scatter(y_shape, seed=100 + scene.seed),
            spatial_scale=scene.spatial_scale,
            note=scene.note,
            basis=scene.basis,
        )
        yield from with_ties(made) if scene.levels else made
    yield from _defaults()
    yield from _empty()
    yield from _exact_bounds()
    yield from _coordinates()
    yield from _many_at_one_place()


def make_cases(
    scenario: str,
    x: Array,
    rois: Array | Sequence[Sequence[float]],
    dy: Array,
    *,
    spatial_scale: float = 1.0,
    expected: Mapping[str, Array] | None = None,
    types: Sequence[str] = FLOATS,
    **rest: Any,
) -> Iterator[Case]:
    """Make the cases of MaxRoiPool and its gradient.

    Args:
        scenario: the part `family/scenario` of the ids.
        x: the map, [N, C, H, W].
        rois: [R, 5]; element types that cannot represent them exactly are left out.
        dy: the gradient, [R, C, PH, PW]; its shape is also that of Y.
        spatial_scale: pixels per unit of the RoIs.
        expected: Y and dX, or only one of them, which makes cases of that operator only; None if the reference computes
            them.
        types: element types.
        rest: further arguments of `expand`.
    """
    boxes = np.array(rois, np.float64).reshape(-1, 5)
    of_grid = {"pooled_shape": dy.shape[2:], "spatial_scale": spatial_scale}
    for function, attributes, inputs, output in (
        ("max_roi_pool", of_grid, {"X": x, "rois": boxes}, "Y"),
        ("max_roi_pool_grad", {"spatial_scale": spatial_scale}, {"dY": dy, "X": x, "rois": boxes}, "dX"),
    ):
        if expected is None or output in expected:
            yield from expand(
                scenario,
                function=function,
                attributes=attributes,
                inputs=inputs,
                outputs=[output],
                expected=None if expected is None else {output: expected[output]},
                types=[name for name in types if _is_held(boxes, name)],
                **rest,
            )


def with_ties(cases: Iterable[Case]) -> Iterator[Case]:
    """The cases of bins with several largest pixels: which one gets the gradient is this project's rule."""
    for case in cases:
        yield replace(case, basis=Basis.OURS) if case.definition.is_gradient else case


def _is_held(values: Array, element_type: str) -> bool:
    with np.errstate(over="ignore"):
        return np.array_equal(values.astype(ELEMENT_DTYPES[element_type]), values)


def _defaults() -> Iterator[Case]:
    """Cases without spatial_scale. pooled_shape has no default."""
    inputs = {"X": scatter((1, 2, 5, 6), seed=31), "rois": np.array([[0.0, 1, 1, 4, 3], [0, 0, 2, 5, 4]])}
    dy = scatter((2, 2, 2, 3), seed=131)
    for function, attributes, given, output in (
        ("max_roi_pool", {"pooled_shape": (2, 3)}, inputs, "Y"),
        ("max_roi_pool_grad", {}, {"dY": dy, **inputs}, "dX"),
    ):
        yield from expand(
            "defaults/scale_left_out",
            function=function,
            note="spatial_scale defaults to 1",
            attributes=attributes,
            inputs=given,
            outputs=[output],
            write_defaults=False,
        )


def _empty() -> Iterator[Case]:
    """Empty tensors, which are valid."""
    for scenario, note, x_shape, count in (
        ("no_rois", "without RoIs, Y is empty and dX is 0", (2, 3, 4, 5), 0),
        ("no_channels", "without channels, Y and dX are empty", (2, 0, 4, 5), 2),
        ("no_images_no_rois", "a map without images is valid if there are no RoIs", (0, 3, 4, 5), 0),
        ("no_pixels_no_rois", "a map without pixels is valid if there are no RoIs", (2, 3, 0, 0), 0),
    ):
        y = np.zeros((count, x_shape[1], 2, 3))
        rois = np.tile([1.0, 0, 0, 3, 2], (count, 1))
        expected = {"Y": y, "dX": np.zeros(x_shape)}
        x = np.ones(x_shape)
        yield from make_cases(
            f"empty/{scenario}", x, rois, y + 1, expected=expected, note=note, source=TEXT, basis=Basis.REFERENCE
        )


def _exact_bounds() -> Iterator[Case]:
    """Bins that floating-point bounds would make a pixel wider, along either axis, with pixels around the RoI."""
    for ((bins, size), types), along_x in ((one, along) for one in INEXACT for along in (True, False)):
        first = np.array([p * size // bins for p in range(bins)])
        last = np.array([-(-(p + 1) * size // bins) - 1 for p in range(bins)])
        line = np.arange(size + 2.0)
        dx = np.zeros((2, size + 2))
        np.add.at(dx[0], 1 + last, 1.0)
        np.add.at(dx[1], 1 + first, 1.0)
        # In one channel pixels ascend, so the last one of a bin is the maximum; in the other they descend.
        lines = {"x": np.stack([line, -line]), "y": np.stack([1.0 + last, -1.0 - first]), "dx": dx}
        x, y, dx = (one[None, :, None, :] if along_x else one[None, :, :, None] for one in lines.values())
        ends = [1.0, 0.0, size, 0.0] if along_x else [0.0, 1.0, 0.0, size]
        yield from make_cases(
            f"matrix/{bins}_bins_of_{size}_pixels",
            x,
            [[0.0, *ends]],
            np.ones_like(y),
            expected={"Y": y, "dX": dx},
            types=types,
            variant="along_x" if along_x else "along_y",
            note=f"{bins} bins of a RoI of {size} pixels have exact bounds; floating point would add a pixel to one",
            source=BY_HAND,
            basis=Basis.OURS,
        )


def _coordinates() -> Iterator[Case]:
    """Scaled ends that float16 cannot represent, from RoIs that it can; each pixel is its index modulo 8."""
    x = np.mod(np.arange(320.0), 8.0).reshape(1, 1, 1, 320)
    yield from make_cases(
        "matrix/coordinates_are_not_half",
        x,
        [[0, 1001.5, 0, 1001.5, 0], [0, 998.5, 0, 1001.5, 0]],
        np.array([[[[1.0]]], [[[2.0]]]]),
        spatial_scale=0.3,
        expected={"Y": np.array([4.0, 4.0]).reshape(2, 1, 1, 1)},
        note="1001.5 at scale 0.3 is below 300.5 and so pixel 300, but float16 would make it 301",
        source=BY_HAND,
        basis=Basis.VECTORS,
    )


def _many_at_one_place() -> Iterator[Case]:
    dx = np.zeros((1, 1, 3, 3))
    dx[0, 0, 1, 1] = MANY
    x = dx / MANY
    for scenario, rois, bins in (
        ("dX_of_4096_rois", np.tile([0.0, 0, 0, 2, 2], (MANY, 1)), (1, 1)),
        ("dX_of_4096_bins", np.array([[0.0, 1, 1, 1, 1]]), (64, 64)),
    ):
        yield from make_cases(
            f"edge/{scenario}",
            x,
            rois,
            np.ones((len(rois), 1, *bins)),
            expected={"dX": dx},
            note=f"the gradients of {MANY} outputs at one pixel are not summed in 16 bits",
            source=TEXT,
        )
