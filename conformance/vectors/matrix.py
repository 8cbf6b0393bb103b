"""RoiAlign in every mode, coordinate mode, opset and type over the scenes; expected values by the reference."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

import ortops
from conformance.case import Basis, Case, Source, weakest
from conformance.vectors.expand import expand
from conformance.vectors.scenes import SCENES
from ortops.operators.roi_align import ROI_ALIGN_22

CHOICES = {attribute.name: attribute.choices for attribute in ROI_ALIGN_22.attributes}

BY_REFERENCE = Source("ortops/reference/roi_align.py", f"ortops {ortops.__version__}", "roi_align")


OF_MODE = {"avg": Basis.TEXT, "max": Basis.VECTORS, "max_interpolated": Basis.OURS}
"""Whose rule it is what a mode is. ONNX's text can be read in two ways for max; its vectors and its evaluator have one."""


def cases() -> Iterator[Case]:
    """All of them."""
    for scene, mode, coordinates in itertools.product(
        SCENES, CHOICES["mode"], CHOICES["coordinate_transformation_mode"]
    ):
        yield from expand(
            f"matrix/{scene.name}",
            variant=f"{mode}/{coordinates}",
            function="roi_align",
            source=BY_REFERENCE,
            basis=weakest(scene.basis, OF_MODE[mode]),
            note=scene.note,
            attributes={
                **scene.sampling,
                **scene.output_size,
                "mode": mode,
                "coordinate_transformation_mode": coordinates,
            },
            inputs=scene.inputs,
            outputs=["Y"],
        )
    yield from _defaults()
    yield from _empty()
    yield from _far()


def _defaults() -> Iterator[Case]:
    """Attributes left out: the version's own default of the coordinate mode is what tells opset 10 from 16."""
    inputs = next(scene for scene in SCENES if scene.name == "ratio_0_sides_differ").inputs
    for name, attributes in (("none_given", {}), ("sizes_given", {"output_height": 2, "output_width": 3})):
        yield from expand(
            f"defaults/{name}",
            function="roi_align",
            source=Source("ONNX operators RoiAlign-10, -16, -22", "onnx 1.23.2", "Attributes"),
            note="avg, one output, adaptive sampling, scale 1; output_half_pixel before opset 16, half_pixel since",
            attributes=attributes,
            inputs=inputs,
            outputs=["Y"],
            write_defaults=False,
        )


def _empty() -> Iterator[Case]:
    """Nothing to compute is no error."""
    for fact, note, x_shape, rois in (
        ("no_rois", "no RoIs give an empty result", (2, 3, 4, 5), 0),
        ("no_channels", "no channels give an empty result", (2, 0, 4, 5), 2),
        ("no_images_no_rois", "no images are no error where there are no RoIs", (0, 3, 4, 5), 0),
        ("no_pixels_no_rois", "no pixels are no error where there are no RoIs", (2, 3, 0, 0), 0),
    ):
        yield from expand(
            f"empty/{fact}",
            function="roi_align",
            source=Source("ONNX operators RoiAlign-10, -16, -22", "onnx 1.23.2", "Outputs"),
            note=note,
            basis=Basis.REFERENCE,
            attributes={"output_height": 2, "output_width": 3},
            inputs={
                "X": np.ones(x_shape),
                "rois": np.ones((rois, 4)),
                "batch_indices": np.zeros(rois, np.int64),
            },
            outputs=["Y"],
            expected={"Y": np.zeros((rois, x_shape[1], 2, 3))},
        )


def _far() -> Iterator[Case]:
    """Coordinates that half precision cannot hold, from RoIs that it can."""
    row = np.abs(np.mod(np.arange(320.0), 8.0) - 4.0) / 4.0
    yield from expand(
        "matrix/coordinates_are_not_half",
        function="roi_align",
        source=BY_REFERENCE,
        basis=Basis.REFERENCE,
        note="coordinates have more digits than the tensor's type: 300.3 is no half-precision number",
        attributes={"spatial_scale": 0.3, "sampling_ratio": 1, "output_width": 4},
        inputs={"X": row.reshape(1, 1, 1, 320), "rois": np.array([[1000, 0, 1004, 2]]), "batch_indices": np.array([0])},
        outputs=["Y"],
    )
    for mode in CHOICES["mode"]:
        yield from expand(
            "matrix/huge_from_far",
            variant=mode,
            function="roi_align",
            source=BY_REFERENCE,
            basis=Basis.OURS,
            note="adaptive: a RoI of 2e9 pixels that begins far from the map",
            attributes={"mode": mode, "coordinate_transformation_mode": "half_pixel"},
            inputs={
                "X": np.arange(1.0, 31.0).reshape(1, 1, 5, 6),
                "rois": np.array([[-1e9, -1e9, 1e9, 1e9]]),
                "batch_indices": np.array([0]),
            },
            outputs=["Y"],
            types=["double"],
        )
