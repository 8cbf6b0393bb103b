"""An ONNX Runtime session with this project's operators, by the engine that works where there is no other."""

from __future__ import annotations

from conformance.backends.ortops import Ortops, load_engine


def load(provider: str | None = None) -> Ortops:
    """The backend."""
    return load_engine("pyop", provider)
