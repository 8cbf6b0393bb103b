"""RoiAlign and its gradient in every mode, coordinate mode, opset and type over the scenes, by the reference.

The reference's gradient is itself confirmed by the tests: dX by the adjoint identity, drois by finite differences.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from conformance.case import Basis, Case, weakest
from conformance.vectors.dialects import Rule, ask
from conformance.vectors.scenes import SCENES
from ortops.operators.roi_align import ROI_ALIGN_22

CHOICES = {attribute.name: attribute.choices for attribute in ROI_ALIGN_22.attributes}

OF_MODE = {"avg": Basis.TEXT, "max": Basis.VECTORS, "max_interpolated": Basis.OURS}
"""Whose rule it is what a mode is. ONNX's text can be read in two ways for max; its vectors and its evaluator have one."""

WANTED = (("dx", "drois"), ("dx",), ("drois",))
"""Outputs of a gradient, which take turns: both, either one, and so no map where it is not needed."""


def cases() -> Iterator[Case]:
    """All of them."""
    for (i, scene), (j, mode), (k, coordinates) in itertools.product(
        enumerate(SCENES), enumerate(CHOICES["mode"]), enumerate(CHOICES["coordinate_transformation_mode"])
    ):
        yield from ask(
            f"matrix/{scene.name}",
            Rule(mode, coordinates, scene.spatial_scale, scene.sampling_ratio),
            scene.tensors,
            ["y", *WANTED[(i + j + k) % len(WANTED)]],
            bins=scene.bins,
            dialects=["roi_align"],
            note=scene.note,
            basis=weakest(scene.basis, OF_MODE[mode]),
        )
