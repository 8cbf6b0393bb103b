# SPDX-License-Identifier: MIT OR Apache-2.0
"""ONNX's own reference evaluator, `onnx.reference.ReferenceEvaluator`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from conformance import expected_failures
from conformance.backends.base import Backend, Session, require_kernel, require_standard
from conformance.case import Array, Case
from conformance.model import build, feeds

MAX_SAMPLES = 10**6
"""The largest number of samples of a RoI. The evaluator makes a Python object for each sample, which could fill memory."""


class OnnxReference(Backend):
    """Runs the standard node in the evaluator."""

    def __init__(self) -> None:
        _, self.expected_failures = expected_failures.load("onnx-reference")

    def prepare(self, case: Case) -> Session:
        """See `Backend`.

        Raises:
            MemoryError: a RoI has more than `MAX_SAMPLES` samples; the case does not run.
        """
        require_standard(case, element_types=("float16", "bfloat16", "float", "double"))
        if _samples(case) > MAX_SAMPLES:
            raise MemoryError(f"the evaluator would make more than {MAX_SAMPLES} objects for one RoI: not tried")
        return _session(build(case, "standard"), case)


def _session(model: onnx.ModelProto, case: Case) -> Session:
    evaluator = ReferenceEvaluator(model)

    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        outputs = evaluator.run(list(case.outputs), feeds(case, inputs))
        return dict(zip(case.outputs, map(np.asarray, outputs), strict=True))

    return run


def _samples(case: Case) -> float:
    """The approximate number of samples of the largest RoI if it depends on the RoI's size, else 0."""
    if "rois" not in case.inputs:
        return 0.0
    rois = np.abs(case.inputs["rois"].astype(np.float64)) * abs(float(case.attributes.get("spatial_scale", 1.0)))
    if case.attributes.get("sampling_ratio") or rois.size == 0:
        return 0.0
    return float(np.max(rois, initial=0.0, where=np.isfinite(rois))) ** 2


class PortableReference(Backend):
    """Runs the body of the custom operator, a function of standard operators, in the evaluator."""

    def __init__(self) -> None:
        _, self.expected_failures = expected_failures.load("portable-reference")

    def prepare(self, case: Case) -> Session:
        """See `Backend`."""
        require_kernel(case)
        from onnx_models.portable import attach  # takes half a second, which the other backend saves

        return _session(attach(build(case, "ortops")), case)
