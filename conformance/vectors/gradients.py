"""The gradient in every mode, coordinate mode and type over the scenes; expected values by the reference.

The reference's gradient is itself confirmed by the tests: dX by the adjoint identity, drois by finite differences.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

import ortops
from conformance.case import Basis, Case, Source, weakest
from conformance.vectors.expand import expand
from conformance.vectors.matrix import CHOICES, OF_MODE
from conformance.vectors.scenes import SCENES

BY_REFERENCE = Source("ortops/reference/roi_align.py", f"ortops {ortops.__version__}", "roi_align_grad")

WANTED = (("dX", "drois"), ("dX",), ("drois",))


def cases() -> Iterator[Case]:
    """All of them."""
    for (i, scene), (j, mode), (k, coordinates) in itertools.product(
        enumerate(SCENES), enumerate(CHOICES["mode"]), enumerate(CHOICES["coordinate_transformation_mode"])
    ):
        # Both outputs, either one, and no X where it is not needed take turns.
        outputs = WANTED[(i + j + k) % len(WANTED)]
        needs_x = mode != "avg" or "drois" in outputs
        inputs = {**scene.inputs, "dY": scene.dy, "x_shape": np.array(scene.x_shape)}
        yield from expand(
            f"matrix/{scene.name}",
            variant=f"{mode}/{coordinates}",
            function="roi_align_grad",
            source=BY_REFERENCE,
            basis=weakest(scene.basis, OF_MODE[mode]),
            note=scene.note,
            attributes={**scene.sampling, "mode": mode, "coordinate_transformation_mode": coordinates},
            inputs={name: array for name, array in inputs.items() if name != "X" or needs_x},
            outputs=outputs,
        )
    yield from _defaults()
    yield from _empty()
    yield from _many_at_one_place()


def _defaults() -> Iterator[Case]:
    scene = next(scene for scene in SCENES if scene.name == "ratio_0_sides_differ")
    yield from expand(
        "defaults/none_given",
        function="roi_align_grad",
        source=BY_REFERENCE,
        note="avg, half_pixel, adaptive sampling, scale 1",
        attributes={},
        inputs={**scene.inputs, "dY": scene.dy, "x_shape": np.array(scene.x_shape)},
        outputs=("dX", "drois"),
        write_defaults=False,
    )


def _empty() -> Iterator[Case]:
    for fact, note, x_shape, rois in (
        ("no_rois", "without RoIs dX is 0 and drois is empty", (2, 3, 4, 5), 0),
        ("no_channels", "without channels dX is empty and drois is 0", (2, 0, 4, 5), 2),
        ("no_images_no_rois", "no images are no error where there are no RoIs", (0, 3, 4, 5), 0),
        ("no_pixels_no_rois", "no pixels are no error where there are no RoIs", (2, 3, 0, 0), 0),
    ):
        yield from expand(
            f"empty/{fact}",
            function="roi_align_grad",
            source=BY_REFERENCE,
            note=note,
            basis=Basis.REFERENCE,
            attributes={},
            inputs={
                "dY": np.ones((rois, x_shape[1], 2, 3)),
                "rois": np.ones((rois, 4)),
                "batch_indices": np.zeros(rois, np.int64),
                "x_shape": np.array(x_shape),
                "X": np.ones(x_shape),
            },
            outputs=("dX", "drois"),
            expected={"dX": np.zeros(x_shape), "drois": np.zeros((rois, 4))},
        )


def _many_at_one_place() -> Iterator[Case]:
    """A sum in float16 stops at 2048, one in bfloat16 at 256."""
    count = 4096
    expected = np.zeros((1, 1, 3, 3))
    expected[0, 0, 1, 1] = count
    yield from expand(
        "edge/dX_of_4096_rois",
        function="roi_align_grad",
        source=Source("ONNX operator RoiAlign-22", "onnx 1.23.2", "the derivative by hand"),
        basis=Basis.OURS,
        note="the gradients of many RoIs at one pixel are not summed in half precision",
        attributes={"sampling_ratio": 1},
        inputs={
            "dY": np.ones((count, 1, 1, 1)),
            "rois": np.full((count, 4), 1.5),
            "batch_indices": np.zeros(count, np.int64),
            "x_shape": np.array([1, 1, 3, 3]),
        },
        outputs=["dX"],
        expected={"dX": expected},
    )
