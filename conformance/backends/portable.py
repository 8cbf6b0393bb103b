"""ONNX Runtime alone, with this project's operators as functions in standard ONNX operators."""

from __future__ import annotations

import onnxruntime

from conformance.backends import session
from conformance.case import Array, Case
from conformance.expected_failures import ExpectedFailure
from conformance.model import build
from onnx_models.portable import attach


class Portable:
    """Answers with the custom operator's body in an `onnxruntime.InferenceSession` that has no kernel for it.

    provider: of execution; what it lacks of standard operators the CPU computes, as in any session.
    """

    expected_failures: tuple[ExpectedFailure, ...] = ()

    def __init__(self, provider: str | None = None) -> None:
        self._provider = session.check_provider(provider)

    def run(self, case: Case) -> dict[str, Array]:
        """See `Backend`."""
        model = attach(build(case, "ortops")).SerializeToString()
        made = onnxruntime.InferenceSession(model, session.options(), providers=[self._provider])
        return session.run(made, case)


def load(provider: str | None = None) -> Portable:
    """The backend."""
    return Portable(provider)
