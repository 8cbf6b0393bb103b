"""The package's own library, which a wheel has, and which `python -m ortops.build` builds into a clone.

A process loads it once. Sessions register its operators, and functions on arrays call them, by the interface that it exports
(ortops.h).
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ortops.extras import INSTALL_COMPILER
from ortops.jit import exceptions
from ortops.jit.process import FIRST_PYTHON_FUNCTION, PYTHON_FUNCTIONS
from ortops.library.compiled.layout import (
    FIRST_OPERATOR,
    INTERFACE,
    OPERATOR_COUNT,
    OPERATOR_DOMAIN,
    OPERATOR_NAME,
    OPERATOR_RECORD,
    OPERATOR_VERSION,
    OPERATOR_WORDS,
    VERSION,
)
from ortops.memory import keep_forever

PACKAGE = Path(__file__).parent

BUILT = PACKAGE / "built"
"""The folder of the library."""

ENDING = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
"""What the name of a library for this platform ends with."""

_SOURCES = (
    *("compiled_operator.py", "custom_operator.py", "shapes.py", "signatures.py", "spec.py", "standard.py"),
    *("calls", "engine/c_api.py", "engine/compiled", "jit", "kernels", "library", "operators"),
)
"""The files, and the folders of files, that decide what the library contains."""


def sources_digest() -> str:
    """The digest of all source files of the library, of 16 hexadecimal digits.

    Raises:
        OSError: a file cannot be read.
    """
    digest = hashlib.sha256()
    for name in _SOURCES:
        for path in [PACKAGE / name] if name.endswith(".py") else sorted(PACKAGE.joinpath(name).rglob("*.py")):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(PACKAGE).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def library_file() -> Path | None:
    """The library that was built of these sources for this platform, or None if there is none.

    Raises:
        OSError: a source file cannot be read.
    """
    path = BUILT / f"ortops-{sources_digest()}{ENDING}"
    return path if path.is_file() else None


PROCESS = np.zeros(FIRST_PYTHON_FUNCTION + len(PYTHON_FUNCTIONS), np.int64)
"""The words that this process shares with the library (`jit.process`)."""
keep_forever(PROCESS)


class Library:
    """The library as loaded into this process.

    Attributes:
        path: its file.
        operators: the addresses of its operators' records, one for each combination of element types, by domain, name and
            version; the version is 0 outside ONNX's domain.
        functions: the addresses of the interface's other fields, by their names.

    Raises:
        RuntimeError: there is no library of these sources, the processor lacks instructions, or the file is damaged.
    """

    def __init__(self) -> None:
        found = library_file() or _build()
        if found is None:
            raise RuntimeError(
                f"{BUILT} has no library of these sources: must come with a wheel for this platform, or be built by "
                f"`python -m ortops.build`, which needs the extra `compile`: {INSTALL_COMPILER}"
            )
        self.path = str(found)
        self._library = ctypes.CDLL(self.path)
        get = self._library.OrtopsGetInterface
        get.restype = ctypes.c_void_p
        address = get(None, None)
        if not address:
            raise RuntimeError("this processor has neither the instructions of x86-64-v3 nor those of x86-64-v4")
        fields = (ctypes.c_int64 * len(INTERFACE)).from_address(address)
        if fields[0] != VERSION:
            raise RuntimeError(f"{self.path} has interface {fields[0]}: must be {VERSION}")
        self.functions = dict(zip(INTERFACE, fields, strict=True))
        self.operators = _operators_at(self.functions["operators"])
        for number, name in enumerate(PYTHON_FUNCTIONS, FIRST_PYTHON_FUNCTION):
            PROCESS[number] = _address_of(name)
        ctypes.c_int64.from_address(self.functions["python"]).value = PROCESS.ctypes.data

    def function(self, name: str, *types: Any) -> Callable[..., int]:
        """A function of the interface that returns an int64, from the ctypes types of its parameters."""
        return ctypes.CFUNCTYPE(ctypes.c_int64, *types)(self.functions[name])


def _build() -> Path | None:
    """Build the library of changed sources, in a process that shows its progress; None if there is no compiler."""
    if importlib.util.find_spec("numba") is None:
        return None
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-m", "ortops.build"], env=os.environ | paths, check=False)
    return library_file()


_lock = threading.RLock()
_loaded: list[Library] = []


def library() -> Library:
    """The library, which the first call loads.

    Raises:
        RuntimeError: as `Library`.
    """
    return _loaded[0] if _loaded else exceptions.uninterrupted(_load)


def _load() -> Library:
    with _lock:
        if not _loaded:
            _loaded.append(Library())
        return _loaded[0]


def _operators_at(address: int) -> dict[tuple[str, str, int], list[int]]:
    word = ctypes.sizeof(ctypes.c_int64)
    count = ctypes.c_int64.from_address(address + word * OPERATOR_COUNT).value
    rows = (ctypes.c_int64 * OPERATOR_WORDS * count).from_address(address + word * FIRST_OPERATOR)
    operators: dict[tuple[str, str, int], list[int]] = {}
    for row in rows:
        domain, name = (ctypes.string_at(row[k]).decode() for k in (OPERATOR_DOMAIN, OPERATOR_NAME))
        operators.setdefault((domain, name, row[OPERATOR_VERSION]), []).append(row[OPERATOR_RECORD])
    return operators


def _address_of(name: str) -> int:
    """The address of one of `PYTHON_FUNCTIONS`."""
    function = getattr(ctypes.pythonapi, name, None)
    if name == "wait":
        function = ctypes.CDLL("kernel32").Sleep if sys.platform == "win32" else ctypes.CDLL(None).pause
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)  # type: ignore[arg-type]
