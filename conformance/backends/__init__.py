"""Who answers a case: one file a backend, and `external.py` for those from elsewhere.

A backend is named on the command line. What it needs is imported when it is loaded, so listing cases needs none of it.
"""

from __future__ import annotations

import importlib

from conformance.backends.base import Backend, MissingBackendError, OperatorMissingError, UnsupportedError

__all__ = ["NAMES", "Backend", "MissingBackendError", "OperatorMissingError", "UnsupportedError", "load"]

NAMES = ("ortops", "ortops-pyop", "onnxruntime", "onnx-reference", "reference", "portable", "portable-reference")


def load(name: str) -> Backend:
    """The backend of one of the `NAMES`, or from `module[:Class]`.

    Raises:
        MissingBackendError: there is no such backend, or something that it needs is not installed.
    """
    if name not in NAMES:
        return importlib.import_module("conformance.backends.external").load(name)  # type: ignore[no-any-return]
    module = f"conformance.backends.{name.replace('-', '_')}"
    try:
        return importlib.import_module(module).load()  # type: ignore[no-any-return]
    except ImportError as error:
        raise MissingBackendError(f"backend {name}: {error}") from error
