"""Of which package a backend is, and the version that is installed."""

from __future__ import annotations

import importlib.metadata

PACKAGES = {
    "ortops": "ortops",
    "ortops-pyop": "ortops",
    "reference": "ortops",
    "portable": "onnxruntime",
    "portable-reference": "onnx",
    "onnxruntime": "onnxruntime",
    "onnx-reference": "onnx",
    "torchvision": "torchvision",
    "openvino": "openvino",
}


def version(backend: str) -> str:
    """The version of a backend's package; empty where it is not known."""
    try:
        return importlib.metadata.version(PACKAGES[backend])
    except (KeyError, importlib.metadata.PackageNotFoundError):
        return ""
