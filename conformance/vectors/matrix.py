"""RoiAlign and its gradient on all scenes in every mode, coordinate mode, opset and type.

The reference computes the expected values. Tests verify its gradient: dX by the adjoint identity, drois by finite
differences.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from conformance.case import Basis, Case, weakest
from conformance.vectors.dialects import BOTH, of_scene
from conformance.vectors.scenes import SCENES
from ortops.operators.roi_align import ROI_ALIGN_22

CHOICES = {attribute.name: attribute.choices for attribute in ROI_ALIGN_22.attributes}

OF_MODE = {"avg": Basis.TEXT, "max": Basis.VECTORS, "max_interpolated": Basis.OURS}
"""The basis of each mode. ONNX's text for max is ambiguous, but its vectors and its evaluator agree on one meaning."""


def basis_of(mode: str, dialect: str) -> Basis:
    """The basis of a mode: DirectML's page defines its maximum, and ONNX has no mode max_interpolated."""
    return OF_MODE[mode] if dialect == BOTH[0] else Basis.TEXT


WANTED = (("dx", "drois"), ("dx",), ("drois",))
"""The outputs of a gradient, which alternate. With dX only, an average needs no map."""


def cases() -> Iterator[Case]:
    """The cases of all scenes and modes."""
    for (i, scene), (j, mode), (k, coordinates) in itertools.product(
        enumerate(SCENES), enumerate(CHOICES["mode"]), enumerate(CHOICES["coordinate_transformation_mode"])
    ):
        yield from of_scene(
            "matrix",
            scene,
            ["y", *WANTED[(i + j + k) % len(WANTED)]],
            mode,
            coordinates,
            dialects=["roi_align"],
            basis=weakest(scene.basis, OF_MODE[mode]),
        )
