"""ONNX Runtime's own kernels on the CPU."""

from __future__ import annotations

import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

from conformance import expected_failures
from conformance.backends import session
from conformance.backends.base import OperatorMissingError
from conformance.backends.standard import require_standard
from conformance.case import Array, Case
from conformance.model import build


class OnnxRuntime:
    """Answers with the standard node in an `onnxruntime.InferenceSession`."""

    def __init__(self) -> None:
        _, self.expected_failures = expected_failures.load("onnxruntime")

    def run(self, case: Case) -> dict[str, Array]:
        """See `Backend`."""
        require_standard(case, element_types=("float16", "float", "double"))
        model = build(case, "standard").SerializeToString()
        try:
            made = onnxruntime.InferenceSession(model, session.options(), providers=["CPUExecutionProvider"])
        except NoKernel as error:
            raise OperatorMissingError(str(error)) from error
        return session.run(made, case)


def load() -> OnnxRuntime:
    """The backend."""
    return OnnxRuntime()
