"""An ONNX Runtime session with this project's operators."""

from __future__ import annotations

from typing import Literal

import ortops
from conformance.backends import session
from conformance.backends.base import MissingBackendError, Session, UnsupportedError
from conformance.case import Case
from conformance.expected_failures import ExpectedFailure
from conformance.model import build

Engine = Literal["direct", "pyop"]


class Ortops:
    """Answers with the custom operator in an `ortops.InferenceSession`.

    engine: how ONNX Runtime reaches the operators; one holds for the whole process.
    provider: of execution beside which the operators, which are the CPU's, are asked.
    """

    expected_failures: tuple[ExpectedFailure, ...] = ()

    def __init__(self, engine: Engine, provider: str | None = None) -> None:
        self._provider = session.check_provider(provider)
        ortops.register(session.options(), engine)
        self._engine = engine

    def prepare(self, case: Case) -> Session:
        """See `Backend`."""
        if self._engine == "pyop":
            _require_all(case)
        model = build(case, "ortops").SerializeToString()
        made = ortops.InferenceSession(model, session.options(), providers=[self._provider])
        return session.as_session(made, case)


def load(provider: str | None = None) -> Ortops:
    """The backend with the better engine that this platform has."""
    try:
        return Ortops("direct", provider)
    except RuntimeError:
        return load_engine("pyop", provider)


def load_engine(engine: Engine, provider: str | None = None) -> Ortops:
    """The backend with this engine.

    Raises:
        MissingBackendError: the platform or this process cannot have it.
    """
    try:
        return Ortops(engine, provider)
    except RuntimeError as error:
        raise MissingBackendError(f"engine {engine}: {error}") from error


def _require_all(case: Case) -> None:
    """What onnxruntime-extensions' Python operators ask of a node.

    Raises:
        UnsupportedError: the node has not all of it.
    """
    operator = case.definition
    if case.element_type not in ("float", "double"):
        raise UnsupportedError("engine pyop: float and double only")
    if len(case.inputs) < len(operator.inputs) or len(case.outputs) < len(operator.outputs):
        raise UnsupportedError("engine pyop: every input and output must be connected")
