"""ONNX Runtime alone, with this project's operators as functions in standard ONNX operators."""

from __future__ import annotations

import onnxruntime

from conformance import expected_failures
from conformance.backends import session
from conformance.backends.base import Session
from conformance.case import Case
from conformance.model import build
from onnx_models.portable import attach


class Portable:
    """Answers with the custom operator's body in an `onnxruntime.InferenceSession` that has no kernel for it.

    provider: of execution; what it lacks of standard operators the CPU computes, as in any session.
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
