"""The runtimes that answer cases: a module for each backend, and `external.py` for backends outside this package.

Loading a backend imports its runtime, so that listing cases needs none.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from conformance.backends.base import (
    Backend,
    MissingBackendError,
    OperatorMissingError,
    ProviderError,
    Session,
    UnsupportedError,
    conventions_of,
    is_unsafe,
)

__all__ = [
    "NAMES",
    "WITH_PROVIDER",
    "Backend",
    "MissingBackendError",
    "OperatorMissingError",
    "ProviderError",
    "Session",
    "UnsupportedError",
    "conventions_of",
    "is_unsafe",
    "load",
]

NAMES = (
    "ortops",
    "ortops-pyop",
    "onnxruntime",
    "onnx-reference",
    "reference",
    "portable",
    "portable-reference",
    "torchvision",
    "openvino",
)

WITH_PROVIDER = ("ortops", "ortops-pyop", "onnxruntime", "portable")
"""The backends that make sessions of ONNX Runtime, and so can take its execution providers."""


def load(name: str, provider: str | None = None) -> Backend:
    """The backend of one of the `NAMES`, or from `module[:Class]` or `module:function`.

    Args:
        name: the name as given to `--backend`.
        provider: execution provider of ONNX Runtime for those of `WITH_PROVIDER`; None for the CPU's.

    Raises:
        MissingBackendError: there is no such backend, or a package that it needs is not installed.
        ProviderError: ONNX Runtime cannot use this provider here, or the backend does not use ONNX Runtime.
    """
    if name in WITH_PROVIDER:
        return _load_own(name, provider)
    if provider is not None:
        raise ProviderError(f"{provider!r}: only with backend {', '.join(WITH_PROVIDER)}, not {name}")
    if name not in NAMES:
        return importlib.import_module("conformance.backends.external").load(name)  # type: ignore[no-any-return]
    return _load_own(name)


def _load_own(name: str, *options: str | None) -> Backend:
    """The backend in the module of this name."""
    try:
        return _imported(name).load(*options)  # type: ignore[no-any-return]
    except ImportError as error:
        raise MissingBackendError(f"backend {name}: {error}") from error


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"conformance.backends.{name.replace('-', '_')}")
    except Exception as error:  # mismatched binaries raise any error: torchvision a RuntimeError
        raise ImportError(str(error)) from error
