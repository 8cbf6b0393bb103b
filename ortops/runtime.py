# SPDX-License-Identifier: MIT
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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ortops import exceptions
from ortops.extras import INSTALL_COMPILER
from ortops.memory import keep_forever
from ortops.native.interface import VERSION, Interface, OperatorList
from ortops.native.process import Process, PythonApi

PACKAGE = Path(__file__).parent

BUILT = PACKAGE / "built"
"""The folder of the library."""

ENDING = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
"""What the name of a library for this platform ends with."""

_SOURCES = (
    *("custom", "exceptions.py", "foreign/standard.py", "forks.py", "shapes.py", "spec.py"),
    *("compiler", "library", "native", "operators"),
)
"""The files, and the folders of files, that decide what the library contains."""


def source_files(name: str = "") -> Iterator[str]:
    """The paths below the package of all source files of the library, or of those in one of its folders.

    Raises:
        OSError: a folder cannot be read.
    """
    if not name:
        for part in _SOURCES:
            yield from [part] if part.endswith(".py") else source_files(part)
        return
    with os.scandir(PACKAGE / name) as entries:
        is_folder = {entry.name: entry.is_dir() for entry in entries}
    for entry in sorted(is_folder):
        if is_folder[entry]:
            yield from source_files(f"{name}/{entry}")
        elif entry.endswith(".py"):
            yield f"{name}/{entry}"


def sources_digest() -> str:
    """The digest of all source files of the library, of 16 hexadecimal digits.

    Raises:
        OSError: a file cannot be read.
    """
    digest = hashlib.sha256()
    for name in source_files():  # not by pathlib, which takes a millisecond more
        with open(f"{PACKAGE}/{name}", "rb") as file:  # noqa: PTH123
            content = file.read()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def library_file() -> Path | None:
    """The library that was built of these sources for this platform, or None if there is none.

    Raises:
        OSError: a source file cannot be read.
    """
    path = BUILT / f"ortops-{sources_digest()}{ENDING}"
    return path if path.is_file() else None


PROCESS = Process()
"""What this process gives to the library."""
keep_forever(PROCESS)


class Library:
    """The library as loaded into this process.

    Attributes:
        path: its file.
        operators: the addresses of its operators (`TypedOperator`), one for each combination of element types, by domain,
            name and version; the version is 0 outside ONNX's domain.
        interface: the addresses of its functions.

    Raises:
        RuntimeError: there is no library of these sources, the processor lacks instructions, or the file is damaged.
    """

    def __init__(self) -> None:
        file = library_file() or _build()
        if file is None:
            raise RuntimeError(
                f"{BUILT} has no library of these sources: must come with a wheel for this platform, or be built by "
                f"`python -m ortops.build`, which needs the extra `compile`: {INSTALL_COMPILER}"
            )
        self.path = str(file)
        self._library = ctypes.CDLL(self.path)
        get = self._library.OrtopsGetInterface
        get.restype = ctypes.c_void_p
        address = get(None, None)
        if not address:
            raise RuntimeError("this processor has neither the instructions of x86-64-v3 nor those of x86-64-v4")
        self.interface = Interface.from_address(address)
        if self.interface.version != VERSION:
            raise RuntimeError(f"{self.path} has interface {self.interface.version}: must be {VERSION}")
        self.operators = _operators_in(self.interface.operators)
        for name in PythonApi.fields:
            setattr(PROCESS.python, name, _address_of(name))
        ctypes.c_size_t.from_address(self.interface.python).value = ctypes.addressof(PROCESS)

    def function(self, name: str, *types: Any) -> Callable[..., int]:
        """A function of the interface that returns an int64, from the ctypes types of its parameters."""
        return ctypes.CFUNCTYPE(ctypes.c_int64, *types)(getattr(self.interface, name))


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
    return _loaded[0] if _loaded else exceptions.run_shielded(_load)


def _load() -> Library:
    with _lock:
        if not _loaded:
            _loaded.append(Library())
        return _loaded[0]


def _operators_in(listed: OperatorList) -> dict[tuple[str, str, int], list[int]]:
    operators: dict[tuple[str, str, int], list[int]] = {}
    for typed in listed.operators[: listed.count]:
        domain, name = (ctypes.string_at(text).decode() for text in (typed.domain, typed.name))
        operators.setdefault((domain, name, typed.version), []).append(ctypes.addressof(typed.operator))
    return operators


def _address_of(name: str) -> int:
    """The address of a function of `PythonApi`."""
    function = getattr(ctypes.pythonapi, name, None)
    if name == "wait":
        function = ctypes.CDLL("kernel32").Sleep if sys.platform == "win32" else ctypes.CDLL(None).pause
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0)  # type: ignore[arg-type]
