"""Compiled code on disk: a file for each function and signature, in the first folder that can be written.

A file begins with the digest of the code in it and of all that the code was made from. What is of another source, of
another numba or cut short has another one: it is compiled anew and overwritten. Nothing is shared between files, so any
number of processes may write at once (numba's own cache has an index, and two processes that fill it give one
function's code for another's).

The files are pickles, so a folder that someone else could write to is never read.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import pickle
import stat
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps
from numba.misc.appdirs import AppDirs

DIGEST = 32
"""Bytes at the start of a file."""


class DiskCache(NullCache):
    """What numba asks for the code of a function before it compiles it, and gives it to afterwards."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._source = Path(function.__code__.co_filename).absolute()
        self._name = f"{self._source.stem}.{function.__qualname__}".replace("<", "").replace(">", "")
        self._sources = _sources(self._source)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The code for a signature, or None."""
        target_context.refresh()
        key = self._key(sig, target_context.codegen())
        for path in self._paths(key):
            try:
                content = path.read_bytes()
            except OSError:
                continue
            code = content[DIGEST:]
            if content[:DIGEST] == self._digest(key, code):
                # Anything may be missing in a process with another NumPy: then it is compiled anew.
                with contextlib.suppress(Exception):
                    return CompileResult._rebuild(target_context, *pickle.loads(code))  # noqa: S301, SLF001 - our own
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the code for a signature where that is possible."""
        if data.library.has_dynamic_globals:  # addresses that hold in this process only
            return
        key = self._key(sig, data.codegen)
        code = dumps(data._reduce())  # noqa: SLF001 - as numba's own cache
        for path in self._paths(key, make=True):
            with contextlib.suppress(OSError):
                _write(path, self._digest(key, code) + code)
                return

    def _key(self, sig: Any, codegen: Any) -> bytes:
        return repr((sys.implementation.cache_tag, codegen.magic_tuple(), sig)).encode()

    def _digest(self, key: bytes, code: bytes) -> bytes:
        return hashlib.sha256(b"\0".join([self._sources, self._name.encode(), key, code])).digest()

    def _paths(self, key: bytes, make: bool = False) -> Iterator[Path]:
        # Without sources (in a zip file, say) no change would be noticed.
        if self._sources:
            name = f"{self._name}-{hashlib.sha256(key).hexdigest()[:16]}.compiled"
            for folder in folders(self._source, make):
                yield folder / name


@functools.cache
def _sources(source: Path) -> bytes:
    """The digest of what code from a source file is made from: all kernels, the file itself and the compiler."""
    if not source.is_file():
        return b""
    digest = hashlib.sha256(f"numba {numba.__version__} llvmlite {llvmlite.__version__}".encode())
    for path in sorted({*Path(__file__).parent.glob("*.py"), source}):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.digest()


def _write(path: Path, content: bytes) -> None:
    """Write a file that others see as a whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def folders(source: Path, make: bool = False) -> Iterator[Path]:
    """The folders for the code from a source file, in the order in which they are tried.

    $NUMBA_CACHE_DIR and nothing else where it is set. Without: __pycache__ beside the source, to which a read-only
    installation may have been given its code beforehand; the user's cache folder; one of the user's own in the folder for
    temporary files. The last two are left out unless they exist or can be made, and belong to the user alone.

    Args:
        source: the source file.
        make: whether to make the user's own folders.
    """
    part = f"{source.parent.name}_{hashlib.sha256(os.fsencode(source.parent)).hexdigest()[:16]}"
    if numba.config.CACHE_DIR:
        yield Path(numba.config.CACHE_DIR, part)
        return
    yield Path(importlib.util.cache_from_source(str(source))).parent
    for folder, shut in _folders_of_user():
        if _is_private(folder, shut, make):
            yield folder / part


def _folders_of_user() -> Iterator[tuple[Path, int]]:
    """Folders that the user may have, and the rights that nobody else may have there."""
    cache = Path(AppDirs("ortops", appauthor=False).user_cache_dir)
    # Relative where no home is known. In the home of someone else, as with sudo, that user could exchange the folder.
    if cache.is_absolute() and (os.name == "nt" or _owner(cache) == os.geteuid()):
        yield cache, stat.S_IWGRP | stat.S_IWOTH
    if os.name != "nt":  # where that folder is the user's anyway
        with contextlib.suppress(OSError):
            yield Path(tempfile.gettempdir(), f"ortops-{os.geteuid()}"), stat.S_IRWXG | stat.S_IRWXO


def _owner(path: Path) -> int | None:
    """Who owns a path, or else the first folder above it that exists."""
    for one in (path, *path.parents):
        with contextlib.suppress(OSError):
            return one.lstat().st_uid
    return None


def _is_private(folder: Path, shut: int, make: bool) -> bool:
    """Whether a folder is there, no link, the user's own, and shut for everyone else; made where asked for."""
    try:
        if make:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(stat.S_IRWXU, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return False
    return os.name == "nt" or (
        stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & shut
    )
