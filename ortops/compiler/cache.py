# SPDX-License-Identifier: MIT
"""The cache of compiled code on disk: of users' functions for this processor, and of all functions for libraries.

It has a file for each function and tuple of argument types, in the first writable folder. All clones and installations of a
user share it, since the name of a file has a digest of all that decides its code: the module of the function and all that
this imports, the compiler's versions and options, and the processor. The file begins with a digest of its code.

Files are independent, so any number of processes may write at once. The time of a file is that of its last use:
`remove_unused` removes those used longest ago, of a user's function and of the whole folder.

The process executes the code that it reads. So a file, its folder and the two folders above must pass `_is_trusted`. On
Windows, whose permissions differ, nothing is checked.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import logging
import os
import platform
import re
import stat
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from ortops import atomic_file
from ortops.compiler import machine_code

ROOT = Path(__file__).parents[1]
"""The folder of the package."""

DIGEST = 32
"""The size of the digest at the start of a file, in bytes."""

BITCODE = ("bitcode", platform.machine())
"""The value that replaces the processor in the cache for LLVM bitcode, made on such a machine, for any processor."""


def find(name: str, arg_types: tuple[str, ...], processor: tuple[str, ...] | None = None) -> bytes | None:
    """A function's code from the cache, or None: for this process, or for libraries and a `processor`.

    Args:
        name: the module and the name of a function of this package, or ``user.`` and what identifies a user's function.
        arg_types: all else that decides the code.
        processor: what identifies the processor for which the code is; None for that of this process.
    """
    origin = _origin(name, arg_types, processor)
    for folder, _ in _folders() if origin else ():
        with contextlib.suppress(OSError):
            content = _read(folder / _file_name(name, origin, processor))
            if content[:DIGEST] == _digest(origin, content[DIGEST:]):
                return content[DIGEST:]
    return None


def save(name: str, arg_types: tuple[str, ...], code: bytes, processor: tuple[str, ...] | None = None) -> None:
    """Store code for `find` in the first writable folder, if any.

    Warns:
        UserWarning: $NUMBA_CACHE_DIR is set and cannot be used. If warnings are errors, it is logged instead.
    """
    origin = _origin(name, arg_types, processor)
    for folder, mode in _folders() if origin else ():
        try:
            _check(folder, mode)
            path = folder / _file_name(name, origin, processor)
            atomic_file.replace(path, _digest(origin, code) + code, mode & 0o666)
        except OSError as error:
            if os.environ.get("NUMBA_CACHE_DIR"):
                is_refused = error.errno is None or isinstance(error, FileExistsError | NotADirectoryError)
                _warn(os.environ["NUMBA_CACHE_DIR"], _FOLDER_RULE if is_refused else str(error.strerror))
        else:
            return


_FOLDER_RULE = "must be a folder, no link, of this user or root that nobody else can write to"


@functools.cache  # once, although numba makes Python forget what it has warned of
def _warn(folder: str, reason: str) -> None:
    message = f"NUMBA_CACHE_DIR = {folder!r}: {reason}; compiled code is not kept"
    try:
        warnings.warn(message, stacklevel=4)
    except UserWarning:  # -W error: the call can be computed nevertheless
        logging.getLogger("ortops").warning(message)


def numba_options() -> list[tuple[str, str]]:
    """The numba environment variables that may change the generated code, with their values."""
    return sorted(
        item for item in os.environ.items() if item[0].startswith("NUMBA_") and item[0] not in _IGNORED_OPTIONS
    )


_IGNORED_OPTIONS = (
    *("NUMBA_CACHE_DIR", "NUMBA_DISABLE_CUDA", "NUMBA_DISABLE_JIT", "NUMBA_NUM_THREADS", "NUMBA_THREADING_LAYER"),
    *("NUMBA_CAPTURED_ERRORS", "NUMBA_COLOR_SCHEME", "NUMBA_DISABLE_PERFORMANCE_WARNINGS", "NUMBA_FULL_TRACEBACKS"),
)
"""Options that do not change the code: they choose the cache folder, switch compilation off, or set threads and messages."""


def _origin(name: str, arg_types: tuple[str, ...], processor: tuple[str, ...] | None) -> bytes:
    """All that code depends on; empty if the sources cannot be read, for example in a zip file."""
    sources = _sources("custom.code" if name.startswith("user.") else name.rpartition(".")[0])
    target = (*machine_code.processor(), numba_options()) if processor is None else processor
    return repr((name, arg_types, target, _compiler(), sources)).encode() if sources else b""


_IMPORT = re.compile(rb"(?m)^ *(?:from|import) ortops\.([\w.]+)(?: import (\([^)]*\)|.*))?")


def digest_of(module: str) -> str:
    """The digest of a module below `ortops`; "" if its source cannot be read."""
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in ROOT.rglob("*.py")
    }
    if module not in modules:
        return ""
    sources = {module: modules[module].read_bytes()}
    left = [module]
    while left:
        for path, names in _IMPORT.findall(sources[left.pop()]):
            imported = path.decode()
            for name in (imported, *(f"{imported}.{name.decode()}" for name in re.findall(rb"\w+", names))):
                if name in modules and name not in sources:
                    sources[name] = modules[name].read_bytes()
                    left.append(name)
    parts = (part for name in sorted(sources) for part in (name.encode(), sources[name]))
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]


_sources = functools.cache(digest_of)


@functools.cache
def _compiler() -> tuple[str, ...]:
    """The versions of numba and llvmlite, which compile all code."""
    return tuple(importlib.metadata.version(package) for package in ("numba", "llvmlite"))


def _digest(origin: bytes, content: bytes) -> bytes:
    return hashlib.sha256(b"\0".join([origin, content])).digest()


def _file_name(name: str, origin: bytes, processor: tuple[str, ...] | None) -> str:
    return f"{name}-{hashlib.sha256(origin).hexdigest()[:16]}.{'bc' if processor == BITCODE else 'o'}"


def _folders() -> Iterator[tuple[Path, int]]:
    """The cache's folders, in the order of preference, each with the permissions for new files and folders.

    If $NUMBA_CACHE_DIR is set, it is the only folder. Otherwise they are the user's cache folder, and a private folder among
    the temporary files.
    """
    if os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(os.environ["NUMBA_CACHE_DIR"], "compiled").absolute(), 0o755
        return
    if _user_cache().is_absolute():  # it is relative if the home folder is unknown
        yield _user_cache() / "compiled", 0o700
    if os.name != "nt":  # on Windows the folder for temporary files belongs to the user anyway
        yield Path(tempfile.gettempdir(), f"ortops-{os.geteuid()}", "compiled"), 0o700


def _user_cache() -> Path:
    """The user's cache folder on this platform."""
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.expanduser raises where no home is known
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local", "ortops", "Cache")
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "ortops"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache", "ortops")


MAX_VERSIONS = 8
"""The most versions of a user's function that are kept, of which each has a file for each processor and tuple of types."""

MAX_BYTES = 512 << 20
"""The most bytes of compiled code in a folder."""

_CODE = re.compile(r"(?:(user\.\w+)\.(\w+)-)?.+\.(?:o|bc)")
"""The names of files with compiled code, for which `custom.stored_code` gives a user's function and its version."""

_PART = re.compile(r"\.[0-9a-f]{32}\.part")

_MOST_SECONDS_OF_PART = 3600.0
"""An older part belongs to a process that ended before it could rename the part."""


def remove_unused() -> None:
    """Remove stale parts, old versions, and what is beyond the bound, from the folders that are trusted."""
    for folder, _ in _folders():
        with contextlib.suppress(OSError):
            _check(folder)
            for file in _unused(folder):
                with contextlib.suppress(OSError):
                    file.unlink()


def _unused(folder: Path) -> Iterator[Path]:
    """The files to remove."""
    files: list[tuple[float, int, str]] = []
    for file in folder.iterdir():
        with contextlib.suppress(OSError):
            state = file.lstat()
            files.append((state.st_mtime, state.st_size, file.name))
    total, versions = 0, dict[str, set[str]]()
    for used, size, name in sorted(files, reverse=True):
        code = _CODE.fullmatch(name)
        if code:
            total += size
            kept = versions.setdefault(code[1] or "", {code[2]})
            if len(kept) < MAX_VERSIONS:
                kept.add(code[2])
            is_unused = total > MAX_BYTES or code[2] not in kept
        else:
            is_unused = bool(_PART.fullmatch(name)) and time.time() - used > _MOST_SECONDS_OF_PART
        if is_unused:
            yield folder / name


def _read(path: Path) -> bytes:
    """The content of a file, which is marked as used. Raises OSError if it is missing or others could have written it."""
    _check(path.parent)
    flags = (getattr(os, f"O_{name}", 0) for name in ("BINARY", "NOFOLLOW"))
    with os.fdopen(os.open(path, os.O_RDONLY | sum(flags)), "rb") as file:
        if os.name != "nt" and not _is_trusted(os.fstat(file.fileno())):
            raise PermissionError(f"{path}: others can write to it")
        with contextlib.suppress(OSError):  # of another user, or on a read-only disk
            os.utime(file.fileno() if os.utime in os.supports_fd else path)
        return file.read()


def _check(folder: Path, mode: int | None = None) -> None:
    """Raise OSError if others can write to a folder or to one of the two around it, or one of the first two is a link.

    With permissions, make those that are missing.
    """
    for path in (Path(os.path.realpath(folder.parent.parent)), folder.parent, folder):
        if mode is not None:
            _make(path, mode)
        state = path.lstat()
        if os.name != "nt" and not (stat.S_ISDIR(state.st_mode) and _is_trusted(state)):
            raise PermissionError(f"{path}: {_FOLDER_RULE}")


def _make(folder: Path, mode: int) -> None:
    if not folder.exists():
        _make(folder.parent, mode)  # unlike Path.mkdir, which makes parents that the umask alone protects
        folder.mkdir(mode, exist_ok=True)


def _is_trusted(state: os.stat_result) -> bool:
    """Whether only root, this user and those who can write ortops' sources can write to a file or folder.

    Others may add to a folder with the sticky bit, since they cannot replace another user's files in it.
    """
    package = ROOT.stat()
    owns_sources = package.st_mode & stat.S_IWGRP and package.st_gid == state.st_gid
    forbidden = stat.S_IWOTH if owns_sources else stat.S_IWOTH | stat.S_IWGRP
    is_sticky = stat.S_ISDIR(state.st_mode) and bool(state.st_mode & stat.S_ISVTX)
    return state.st_uid in {0, os.geteuid(), package.st_uid} and (is_sticky or not state.st_mode & forbidden)
