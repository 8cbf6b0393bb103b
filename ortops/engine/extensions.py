# SPDX-License-Identifier: MIT
"""All uses of onnxruntime-extensions: its library, which is loaded by its path, since the package imports PyTorch.

Releases 0.13 to 0.15.2 export `AddExternalCustomOp` on Linux and macOS, which is not documented.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

_C_ENTRY = "AddExternalCustomOp"


class OrtError(RuntimeError):
    """ONNX Runtime or onnxruntime-extensions refused a call or lacks a function."""


@functools.cache
def library_path() -> str | None:
    """The path of the library that sessions register, or None if onnxruntime-extensions is not installed.

    Python's extension module of the package is this library, so a session that registers it also has operators that were
    added to the module.
    """
    spec = find_spec("onnxruntime_extensions")
    folders = (spec.submodule_search_locations if spec else None) or []
    names = [f"_extensions_pydll{suffix}" for suffix in EXTENSION_SUFFIXES]
    return next((str(path) for folder in folders for path in map(Path(folder).joinpath, names) if path.exists()), None)


@functools.cache
def _entry() -> Callable[[int], bool] | None:
    """The function `bool AddExternalCustomOp(const OrtCustomOp*)`, or None if it is not there."""
    path = library_path()
    if path is None or not hasattr(library := ctypes.CDLL(path), _C_ENTRY):
        return None
    return ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)((_C_ENTRY, library))


def takes_c_operators() -> bool:
    """Whether `add_c_operator` works here: the package is installed, and exports AddExternalCustomOp."""
    return _entry() is not None


def add_c_operator(table: int) -> None:
    """Add an operator to the domain ai.onnx.contrib, for all sessions that register the library later.

    It relies on the export, which stores the pointer until the process ends and neither reads the table nor checks its API
    version.

    Args:
        table: the address of an OrtCustomOp, which must live as long as the process. `takes_c_operators` must be true.

    Raises:
        OrtError: the library refuses the operator.
    """
    add = _entry()
    if add is None or not add(table):
        raise OrtError("onnxruntime-extensions refused a C operator")
