"""MaxRoiPool and its gradient on scenes, with default attributes, empty tensors, exact bin bounds and large coordinates.

The reference computes the expected values of scenes. Tests verify it with ONNX Runtime's kernel, and its gradient by finite
differences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from conformance.case import Basis, Case, Source
from conformance.vectors.dialects import pooled
from conformance.vectors.expand import FLOATS, expand
from conformance.vectors.scenes import Scene, load, scatter

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


SCENES = load("max_roi_pool.json", Scene)


def cases() -> Iterator[Case]:
    """The cases of this module."""
    for scene in SCENES:
        tensors = scene.tensors
        made = pooled(
            f"matrix/{scene.name}",
            tensors["x"],
            np.column_stack([tensors["indices"], tensors["rois"]]),
            tensors["dy"],
            spatial_scale=scene.spatial_scale,
            outputs=["y", "dx"],
            note=scene.note,
            basis=scene.basis,
        )
        yield from with_ties(made) if scene.levels else made
    yield from _defaults()
    yield from _empty()
    yield from _exact_bounds()
    yield from _coordinates()
    yield from _many_at_one_place()


def with_ties(cases: Iterable[Case]) -> Iterator[Case]:
    """The cases of bins with several largest pixels: which one gets the gradient is this project's rule."""
    for case in cases:
        yield replace(case, basis=Basis.OURS) if case.definition.is_gradient else case


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
        expected = {"y": y, "dx": np.zeros(x_shape)}
        x = np.ones(x_shape)
        yield from pooled(
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
        yield from pooled(
            f"matrix/{bins}_bins_of_{size}_pixels",
            x,
            [[0.0, *ends]],
            np.ones_like(y),
            expected={"y": y, "dx": dx},
            types=types,
            variant="along_x" if along_x else "along_y",
            note=f"{bins} bins of a RoI of {size} pixels have exact bounds; floating point would add a pixel to one",
            source=BY_HAND,
            basis=Basis.OURS,
        )


def _coordinates() -> Iterator[Case]:
    """Scaled ends that float16 cannot represent, from RoIs that it can; each pixel is its index modulo 8."""
    x = np.mod(np.arange(320.0), 8.0).reshape(1, 1, 1, 320)
    yield from pooled(
        "matrix/coordinates_are_not_half",
        x,
        [[0, 1001.5, 0, 1001.5, 0], [0, 998.5, 0, 1001.5, 0]],
        np.array([[[[1.0]]], [[[2.0]]]]),
        spatial_scale=0.3,
        expected={"y": np.array([4.0, 4.0]).reshape(2, 1, 1, 1)},
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
        yield from pooled(
            f"edge/{scenario}",
            x,
            rois,
            np.ones((len(rois), 1, *bins)),
            expected={"dx": dx},
            note=f"the gradients of {MANY} outputs at one pixel are not summed in 16 bits",
            source=TEXT,
        )
