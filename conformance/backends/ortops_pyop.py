"""An ONNX Runtime session with this project's operators, through the Python operators of onnxruntime-extensions."""

from __future__ import annotations

from conformance.backends.ortops import Ortops, load_engine


def load(provider: str | None = None) -> Ortops:
    """The backend."""
    return load_engine("pyop", provider)
