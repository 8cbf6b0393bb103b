# SPDX-License-Identifier: MIT OR Apache-2.0
"""The runtimes that run cases: a module for each runtime; `external.py` and `program.py` for those outside this package.

A runtime is imported only when its backend is loaded, so listing cases needs no runtime.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from conformance.backends.base import (
    Backend,
    MissingBackendError,
    OperatorMissingError,
    ProviderError,
    Session,
    UnsupportedError,
)

if TYPE_CHECKING:
    from conformance.model import Dialect

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
    "load",
    "package_of",
]


class Known(NamedTuple):
    """The facts about a backend that need no import of its runtime.

    maker: the module in this folder, and the function or class in it that makes the backend.
    package: the distribution whose version it reports.
    takes_provider: whether it uses sessions of ONNX Runtime, so that the maker takes an execution provider.
    """

    maker: str
    package: str
    takes_provider: bool = False


BACKENDS: Mapping[str, Known] = {
    "ortops": Known("ortops:Ortops", "ortops", takes_provider=True),
    "ortops-standard": Known("ortops:OrtopsStandard", "ortops", takes_provider=True),
    "onnxruntime": Known("onnxruntime:OnnxRuntime", "onnxruntime", takes_provider=True),
    "onnx-reference": Known("onnx_reference:OnnxReference", "onnx"),
    "reference": Known("base:Reference", "ortops"),
    "portable": Known("onnxruntime:Portable", "onnxruntime", takes_provider=True),
    "lowered": Known("onnxruntime:Lowered", "onnxruntime", takes_provider=True),
    "portable-reference": Known("onnx_reference:PortableReference", "onnx"),
    "torchvision": Known("torchvision:Torchvision", "torchvision"),
    "openvino": Known("openvino:OpenVino", "openvino"),
}
"""The backends of this package by name."""

LIBRARIES: Mapping[str, Dialect] = {"library": "ortops", "library-standard": "standard"}
"""The names before `:PATH` for a library that `python -m ortops library` wrote, and the nodes that it runs."""

NAMES = tuple(BACKENDS)
WITH_PROVIDER = tuple(name for name, known in BACKENDS.items() if known.takes_provider)


def package_of(name: str) -> str:
    """The distribution whose version a backend reports; empty for a backend outside this package."""
    return BACKENDS[name].package if name in BACKENDS else ""


def load(name: str, provider: str | None = None) -> Backend:
    """The backend of one of the `NAMES`, from `library:PATH`, `exec:COMMAND`, `module[:Class]` or `module:function`.

    Args:
        name: the name as given to `--backend`.
        provider: ONNX Runtime's execution provider for a backend of `WITH_PROVIDER`; None for the CPU's.

    Raises:
        MissingBackendError: no backend has this name, or a package that it needs is not installed.
        ProviderError: ONNX Runtime cannot use this provider here, or the backend does not use ONNX Runtime.
    """
    if provider is not None and name not in WITH_PROVIDER:
        raise ProviderError(f"{provider!r}: only with backend {', '.join(WITH_PROVIDER)}, not {name}")
    prefix, colon, path = name.partition(":")
    if prefix in LIBRARIES and colon:
        make = importlib.import_module("conformance.backends.ortops").Library
        return make(path, LIBRARIES[prefix])  # type: ignore[no-any-return]
    if prefix == "exec" and colon:
        return importlib.import_module("conformance.backends.program").Program(path)  # type: ignore[no-any-return]
    if name not in BACKENDS:
        try:
            return importlib.import_module("conformance.backends.external").load(name)  # type: ignore[no-any-return]
        except MissingBackendError as error:
            if getattr(error.__cause__, "name", None) != name:  # of a module that is missing
                raise
            meant = " or ".join(difflib.get_close_matches(name, NAMES))
            known = f"Built in are {', '.join(NAMES)}"
            raise MissingBackendError(f"{error}. {f'Did you mean {meant}? ' * bool(meant)}{known}") from error
    module, _, maker = BACKENDS[name].maker.partition(":")
    try:
        make = getattr(importlib.import_module(f"conformance.backends.{module}"), maker)
    except Exception as error:  # mismatched binaries raise any error: torchvision a RuntimeError
        raise MissingBackendError(f"backend {name}: {error}") from error
    try:
        return make(provider) if name in WITH_PROVIDER else make()  # type: ignore[no-any-return]
    except ImportError as error:
        raise MissingBackendError(f"backend {name}: {error}") from error
