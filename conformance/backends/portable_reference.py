"""ONNX's own reference evaluator, with this project's operators as functions of standard ONNX operators."""

from __future__ import annotations

from conformance import expected_failures
from conformance.backends.base import Session
from conformance.backends.onnx_reference import evaluator_session
from conformance.case import Case
from conformance.model import build
from onnx_models.portable import attach


class PortableReference:
    """Runs the custom operator's function body in the evaluator."""

    def __init__(self) -> None:
        _, self.expected_failures = expected_failures.load("portable-reference")

    def prepare(self, case: Case) -> Session:
        """See `Backend`."""
        return evaluator_session(attach(build(case, "ortops")), case)


def load() -> PortableReference:
    """The backend."""
    return PortableReference()
