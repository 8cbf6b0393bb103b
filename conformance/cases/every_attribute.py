# SPDX-License-Identifier: MIT OR Apache-2.0
"""RoiAlign, DmlRoiAlign and their gradients on all scenes with every value of every attribute.

The reference computes the expected values. Tests verify its gradient: dX by the adjoint identity, drois by finite
differences.

DirectML's pixel offsets, limits, scales, types and ranks alternate from case to case. The offsets keep samples away from
where rounding decides: the border of the map, the middle between two pixels with nearest_neighbor, the pixels with linear
interpolation, and whole numbers of samples. Where those of a case's turn do not, a scene names later ones (`Scene.later`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from conformance.case import Basis, Case, weakest
from conformance.cases.make import BOTH, of_scene
from conformance.cases.scenes import SCENES, Scene
from ortops.operators.dml_roi_align import DML_ROI_ALIGN, UINT32_MAX
from ortops.operators.roi_align import ROI_ALIGN_22
from ortops.spec import AttributeValue

CHOICES = {attribute.name: attribute.choices for attribute in ROI_ALIGN_22.attributes}

OF_MODE = {"avg": Basis.TEXT, "max": Basis.VECTORS, "max_interpolated": Basis.OURS}
"""The basis of each mode. ONNX's text for max is ambiguous, but its vectors and its evaluator agree on one meaning."""


def basis_of(mode: str, operator: str) -> Basis:
    """The basis of a mode: DirectML's page defines its maximum, and ONNX has no mode max_interpolated."""
    return OF_MODE[mode] if operator == BOTH[0] else Basis.TEXT


WANTED = (("dx", "drois"), ("dx",), ("drois",))
"""The outputs of a gradient, which alternate. With dX only, an average needs no map."""

DML_CHOICES = {attribute.name: attribute.choices for attribute in DML_ROI_ALIGN.attributes}

OFFSETS = (
    (0.5, -0.5),
    (0.0, 0.0),
    (0.5, 0.0),
    (0.0, -0.5),
    (0.34375, -0.21875),
    (-0.28125, 0.40625),
    (0.15625, -0.59375),
    (0.40625, 0.28125),
)
"""Input and output pixel offsets. DirectML's documentation calls 0.5 or 0 and -0.5 or 0 typical and allows any."""

OUT_OF_BOUNDS = (0.0, 2.5, -3.0, 7.0)

LIMITS = ((1, UINT32_MAX), (1, 2), (2, UINT32_MAX), (2, 3), (1, 1))
"""Minimum and maximum numbers of samples for scenes with adaptive sampling."""

STRETCH = (1.0, 0.75, 1.25)
"""The ratio of spatial_scale_y to spatial_scale_x."""

INDEX_TYPES = (np.uint32, np.int64)


def cases() -> Iterator[Case]:
    """The cases of all scenes and attribute values."""
    yield from _of_onnx()
    yield from _of_directml()


def _of_onnx() -> Iterator[Case]:
    for (i, scene), (j, mode), (k, coordinates) in itertools.product(
        enumerate(SCENES), enumerate(CHOICES["mode"]), enumerate(CHOICES["coordinate_transformation_mode"])
    ):
        yield from of_scene(
            "matrix",
            scene,
            ["y", *WANTED[(i + j + k) % len(WANTED)]],
            mode,
            coordinates,
            operators=["roi_align"],
            basis=weakest(scene.basis, OF_MODE[mode]),
        )


def _of_directml() -> Iterator[Case]:
    combinations = itertools.product(DML_CHOICES["reduction_function"], DML_CHOICES["interpolation_mode"], (0, 1))
    for turn, (scene, (reduction, interpolation, corners)) in enumerate(itertools.product(SCENES, list(combinations))):
        chosen = {
            "reduction_function": reduction,
            "interpolation_mode": interpolation,
            "align_regions_to_corners": corners,
        }
        outside = {"out_of_bounds_input_value": OUT_OF_BOUNDS[turn % len(OUT_OF_BOUNDS)]}
        tensors = scene.tensors
        rois, indices = tensors["rois"], tensors["indices"].astype(INDEX_TYPES[turn % 2])
        # DirectML's documentation mirrors inverted regions, but says neither where the map ends nor how samples are aligned
        # to corners.
        variant = f"{reduction}/{interpolation}/{'corners' if corners else 'inside'}"
        is_silent = (scene.basis is not Basis.TEXT and scene.name != "swapped_ends") or corners
        yield from of_scene(
            "matrix",
            scene,
            ["y", *WANTED[turn % len(WANTED)]],
            "avg" if reduction == "average" else "max_interpolated",
            tensors={
                "rois": rois.reshape((1,) * (turn % 3) + rois.shape),
                "indices": indices.reshape((1,) * (turn // 2 % 4) + indices.shape),
            },
            more={**chosen, **_sampling(scene, turn, scene.later.get(variant, 0)), **outside},
            operators=["dml_roi_align"],
            variant=variant,
            basis=Basis.OURS if is_silent else Basis.TEXT,
        )


def _sampling(scene: Scene, turn: int, later: int) -> dict[str, AttributeValue]:
    """The attributes that decide where samples lie: those of a turn, but offsets and scales of a later one."""
    ratio = scene.sampling_ratio
    least, most = (ratio, ratio) if ratio else LIMITS[turn % len(LIMITS)]
    before, after = OFFSETS[(turn + later) % len(OFFSETS)]
    return {
        "spatial_scale_x": scene.spatial_scale,
        "spatial_scale_y": float(np.float32(scene.spatial_scale * STRETCH[(turn + later) % len(STRETCH)])),
        "input_pixel_offset": before,
        "output_pixel_offset": after,
        "minimum_samples_per_output": least,
        "maximum_samples_per_output": most,
    }
