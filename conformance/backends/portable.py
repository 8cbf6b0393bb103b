"""ONNX Runtime alone, with this project's operators as functions in standard ONNX operators."""

from __future__ import annotations

import onnxruntime

from conformance.backends import session
from conformance.case import Array, Case
from conformance.expected_failures import ExpectedFailure
from conformance.model import build
from onnx_models.portable import attach


class Portable:
    """Answers with the custom operator's body in an `onnxruntime.InferenceSession` that has no kernel for it."""

    expected_failures: tuple[ExpectedFailure, ...] = ()

    def run(self, case: Case) -> dict[str, Array]:
        """See `Backend`."""
        model = attach(build(case, "ortops")).SerializeToString()
        made = onnxruntime.InferenceSession(model, session.options(), providers=["CPUExecutionProvider"])
        return session.run(made, case)


def load() -> Portable:
    """The backend."""
    return Portable()
