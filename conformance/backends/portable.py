"""Plain ONNX Runtime, with this project's operators as functions of standard ONNX operators."""

from __future__ import annotations

import onnxruntime

from conformance import expected_failures
from conformance.backends import session
from conformance.backends.base import Session
from conformance.case import Case
from conformance.model import build
from onnx_models.portable import attach


class Portable:
    """Runs the custom operator's function body in an `onnxruntime.InferenceSession` without our kernels.

    provider: the execution provider; the CPU runs the standard operators that it lacks, as in any session.
    """

    def __init__(self, provider: str | None = None) -> None:
        _, self.expected_failures = expected_failures.load("portable")
        self._provider = session.check_provider(provider)

    def prepare(self, case: Case) -> Session:
        """See `Backend`."""
        model = attach(build(case, "ortops")).SerializeToString()
        made = onnxruntime.InferenceSession(model, session.options(), providers=[self._provider])
        return session.as_session(made, case)


def load(provider: str | None = None) -> Portable:
    """The backend."""
    return Portable(provider)
