"""ONNX's own reference evaluator, with this project's operators as functions in standard ONNX operators."""

from __future__ import annotations

import numpy as np
from onnx.reference import ReferenceEvaluator

from conformance import expected_failures
from conformance.case import Array, Case
from conformance.model import build
from onnx_models.portable import attach


class PortableReference:
    """Answers with the custom operator's body in the evaluator."""

    def __init__(self) -> None:
        _, self.expected_failures = expected_failures.load("portable-reference")

    def run(self, case: Case) -> dict[str, Array]:
        """See `Backend`."""
        outputs = ReferenceEvaluator(attach(build(case, "ortops"))).run(list(case.outputs), dict(case.inputs))
        return dict(zip(case.outputs, map(np.asarray, outputs), strict=True))


def load() -> PortableReference:
    """The backend."""
    return PortableReference()
