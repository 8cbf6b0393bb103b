"""The runtimes that answer cases: a module for each backend, and `external.py` for backends outside this package.

Loading a backend imports its runtime, so that listing cases needs none.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType
from typing import NamedTuple

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
    "BACKENDS",
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
    "package_of",
]


class Known(NamedTuple):
    """What is known of a backend without importing its runtime.

    package: the distribution whose version it reports.
    takes_provider: whether it makes sessions of ONNX Runtime, and so can take an execution provider.
    is_compared: whether `matrix` asks it if no backend is named.
    """

    package: str
    takes_provider: bool = False
    is_compared: bool = False


BACKENDS: Mapping[str, Known] = {
    "ortops": Known("ortops", takes_provider=True, is_compared=True),
    "ortops-pyop": Known("ortops", takes_provider=True),
    "onnxruntime": Known("onnxruntime", takes_provider=True, is_compared=True),
    "onnx-reference": Known("onnx", is_compared=True),
    "reference": Known("ortops"),
    "portable": Known("onnxruntime", takes_provider=True),
    "portable-reference": Known("onnx"),
    "torchvision": Known("torchvision", is_compared=True),
    "openvino": Known("openvino", is_compared=True),
}
"""The backends of this package by name. The module of each has the function `load`."""

NAMES = tuple(BACKENDS)
WITH_PROVIDER = tuple(name for name, known in BACKENDS.items() if known.takes_provider)


def package_of(name: str) -> str:
    """The distribution whose version a backend reports; empty for a backend from elsewhere."""
    return BACKENDS[name].package if name in BACKENDS else ""


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
