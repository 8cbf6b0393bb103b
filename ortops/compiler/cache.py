"""The cache of compiled code on disk: of users' functions for this process, and of all functions for libraries.

It has a file for each function and tuple of argument types, in the first writable folder. A file begins with a digest of its
code and of all sources of the code. If the digest does not match, the function is compiled again and the file replaced.

All clones and installations of a user share the code for libraries. The name of a file has a digest of its sources, which
are the definitions that the function uses (`digests.py`). Those of a user's function are all of this package.

Files are independent, so any number of processes may write at once. The time of a file is that of its last use: whoever
stores a file removes those used longest ago, of a user's function and of the whole folder.

The process executes the code that it reads. So it opens a file, the file's folder and the two folders above that without
following links, and each must pass `_is_trusted`. On Windows, whose permissions differ, nothing is checked.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import platform
import re
import stat
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from ortops.compiler import machine_code

DIGEST = 32
"""The size of the digest at the start of a file, in bytes."""

PACKAGES = {
    "compiler": Path(__file__).parent,
    "custom": Path(__file__).parents[1] / "custom",
    "native": Path(__file__).parents[1] / "native",
}
"""The folders with the source files of compiled functions, by package name."""

PACKAGE = PACKAGES["native"]
"""The folder whose `__pycache__` holds the machine code."""

BITCODE = ("bitcode", platform.machine())
"""The value that replaces the processor in the cache for LLVM bitcode, made on such a machine, for any processor."""


def find(name: str, arg_types: tuple[str, ...], processor: tuple[str, ...] | None = None) -> bytes | None:
    """A function's machine code for this process, or its code for libraries for a `processor`, from the cache; or None."""
    origin = _origin(name, arg_types, processor)
    return _find(_file_name(name, arg_types, processor), origin, _folders(processor is not None))


def save(
    name: str,
    arg_types: tuple[str, ...],
    code: bytes,
    processor: tuple[str, ...] | None = None,
) -> None:
    """Store code for `find` in the first writable folder, if any.

    Warns:
        UserWarning: $NUMBA_CACHE_DIR is set and cannot be used. If warnings are errors, it is logged instead.
    """
    content = _digest(_origin(name, arg_types, processor), code) + code
    folders = _folders(processor is not None)
    try:
        path = _save(_file_name(name, arg_types, processor), content, folders)
        if processor is None:
            _remove_unused(path.parent)
    except OSError as error:
        if os.environ.get("NUMBA_CACHE_DIR"):
            is_refused = error.errno in _OF_REFUSED_FOLDERS
            _warn(os.environ["NUMBA_CACHE_DIR"], _FOLDER_RULE if is_refused else str(error.strerror))


def remove_unused() -> None:
    """Remove code for libraries that was not used for long, after a number of calls of `save`."""
    for folder, _ in _folders(for_libraries=True):
        _remove_unused(folder)


def _find(name: str, origin: bytes, folders: Iterable[tuple[Path, int]]) -> bytes | None:
    """A cached file's content; None if no file has this origin."""
    for folder, _ in folders:
        with contextlib.suppress(OSError), _opened(folder / name) as file:
            content = file.read()
            if content[:DIGEST] == _digest(origin, content[DIGEST:]):
                _mark_used(file, folder / name)
                return content[DIGEST:]
    return None


def _save(name: str, content: bytes, folders: Iterable[tuple[Path, int]]) -> Path:
    """Write a file in the first writable folder; if no folder is writable, raise the last folder's error."""
    error: OSError = FileNotFoundError(errno.ENOENT, "the sources of the kernels cannot be read")
    for folder, mode in folders:
        failed = _error_of_writing(folder / name, mode, content)
        if failed is None:
            return folder / name
        error = failed
    raise error


_FOLDER_RULE = "must be a folder, no link, of this user or root that nobody else can write to"

_OF_REFUSED_FOLDERS = (None, errno.ELOOP, errno.ENOTDIR)
"""The error numbers for folders that break the rule; `_checked` raises an error without a number."""


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


def _key(name: str, arg_types: tuple[str, ...], processor: tuple[str, ...] | None) -> bytes:
    """The identity of code: function, argument types, CPU, the compiler's versions, and its options in this process."""
    found = (*machine_code.processor(), numba_options()) if processor is None else processor
    return repr((name, arg_types, found, compiler())).encode()


def _file_name(name: str, arg_types: tuple[str, ...], processor: tuple[str, ...] | None) -> str:
    identity = (_key if processor is None else _origin)(name, arg_types, processor)
    ending = "bc" if processor == BITCODE else "o"
    return f"{name}-{hashlib.sha256(identity).hexdigest()[:16]}.{ending}"


_COMPILERS = ("compiler.compile.bitcode", "compiler.machine_code.emit_function")


def _origin(name: str, arg_types: tuple[str, ...], processor: tuple[str, ...] | None) -> bytes:
    """All that code depends on: its identity, the function's sources and the compiler's."""
    digests, unknown = _digests() if processor else {}, sources().hex()
    code = (digests.get(function, unknown) for function in (name, *_COMPILERS))
    return "\0".join(code).encode() + _key(name, arg_types, processor)


@functools.cache
def _digests() -> dict[str, str]:
    """`digests.digests`, cached on disk: computing it takes most of the time of a build that compiles nothing."""
    name = f"definitions-{sources().hex()[:16]}.json"
    known = _find(name, sources(), _folders(for_libraries=True))
    if known is not None:
        found: dict[str, str] = json.loads(known)
        return found
    from ortops.compiler import digests

    try:
        found = digests.digests(PACKAGES)
    except SyntaxError:  # in a file that perhaps no kernel needs: a change in any file counts
        return {}
    content = json.dumps(found).encode()
    with contextlib.suppress(OSError):
        _save(name, _digest(sources(), content) + content, _folders(for_libraries=True))
    return found


@functools.cache
def compiler() -> tuple[str, ...]:
    """The versions of numba and llvmlite, which compile all code."""
    return tuple(importlib.metadata.version(package) for package in ("numba", "llvmlite"))


def _digest(origin: bytes, content: bytes) -> bytes:
    return hashlib.sha256(b"\0".join([origin, content])).digest()


@functools.cache
def sources() -> bytes:
    """The digest of all the kernels' source files; empty if they cannot be read."""
    digest = hashlib.sha256()
    paths = [(name, path) for name in PACKAGES for path in sorted(PACKAGES[name].rglob("*.py"))]
    for name, path in paths:
        file = f"{name}/{path.relative_to(PACKAGES[name]).as_posix()}\0"
        digest.update(file.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.digest() if paths else b""


def _folders(for_libraries: bool = False) -> Iterator[tuple[Path, int]]:
    """The cache's folders, in the order of preference, each with the permissions for new files and folders.

    If $NUMBA_CACHE_DIR is set, it is the only folder. Otherwise: for code of this process, `__pycache__` next to the
    sources, which a read-only installation may fill in advance; the user's cache folder, of which one part is for all
    libraries, since wheels are built in temporary copies of the sources; and a private folder among the temporary files.
    """
    if not sources():  # for example in a zip file: stale code would look like current code
        return
    part = "libraries" if for_libraries else f"ortops_{hashlib.sha256(os.fsencode(PACKAGE)).hexdigest()[:16]}"
    if os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(os.environ["NUMBA_CACHE_DIR"], part).absolute(), 0o755
        return
    if not for_libraries:
        yield Path(importlib.util.cache_from_source(str(PACKAGE / "code.py"))).parent, 0o755
    if _user_cache().is_absolute():  # it is relative if the home folder is unknown
        yield _user_cache() / part, 0o700
    if os.name != "nt":  # on Windows the folder for temporary files belongs to the user anyway
        with contextlib.suppress(OSError):
            yield Path(tempfile.gettempdir(), f"ortops-{os.geteuid()}", part), 0o700


def _user_cache() -> Path:
    """The user's cache folder on this platform."""
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.expanduser raises where no home is known
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local", "ortops", "Cache")
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "ortops"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache", "ortops")


def _write(path: Path, mode: int, content: bytes) -> None:
    """Write a file atomically, and make its folder if it is missing. Raises OSError if the file cannot be written."""
    with _entered(path.parent, mode) as folder:
        target = str(path) if folder is None else path.name
        part = f"{target}.{uuid.uuid4().hex}"
        try:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, mode & 0o666, dir_fd=folder)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            os.replace(part, target, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(part, dir_fd=folder)
            raise


def _error_of_writing(path: Path, mode: int, content: bytes) -> OSError | None:
    try:
        _write(path, mode, content)
    except OSError as error:
        return error
    return None


_PART = re.compile(r".+\.[0-9a-f]{32}")

_MOST_SECONDS_OF_PART = 3600.0
"""An older part belongs to a process that ended before it could rename the part."""


MAX_VERSIONS = 8
"""The most versions of a user's function that are kept, of which each has a file for each processor and tuple of types."""

MAX_BYTES = 512 << 20
"""The most bytes of compiled code in a folder."""

_CODE = re.compile(r"(?:(user\.\w+)\.(\w+)-)?.+\.(?:o|bc|json)")
"""The names of files with compiled code, for which `custom.stored_code` gives a user's function and its version."""


def _remove_unused(path: Path) -> None:
    """Remove stale parts, old versions, and what is beyond the bound, from a folder if it is trusted."""
    with contextlib.suppress(OSError), _entered(path) as folder:
        for name in _unused(path, folder):
            with contextlib.suppress(OSError):
                os.unlink(str(path / name) if folder is None else name, dir_fd=folder)


def _unused(path: Path, folder: int | None) -> Iterator[str]:
    """The names of files to remove. `path` lists the folder, as no descriptor can."""
    found: list[tuple[float, int, str]] = []
    for file in path.iterdir():
        with contextlib.suppress(OSError):
            state = os.stat(str(file) if folder is None else file.name, dir_fd=folder, follow_symlinks=False)
            found.append((state.st_mtime, state.st_size, file.name))
    total, versions = 0, dict[str, set[str]]()
    for used, size, name in sorted(found, reverse=True):
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
            yield name


def _mark_used(file: BinaryIO, path: Path) -> None:
    with contextlib.suppress(OSError):  # of another user, or on a read-only disk
        os.utime(file.fileno() if os.utime in os.supports_fd else path)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file to read code from it. Raises OSError if the file is missing or others could have written it."""
    with _entered(path.parent) as folder:
        name = path if folder is None else path.name
        with _checked(name, _BINARY, folder) as descriptor, os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file


@contextlib.contextmanager
def _entered(folder: Path, mode: int | None = None) -> Iterator[int | None]:
    """Open a folder, and make it first if a mode is given. Raises OSError if it is missing or others can write to it.

    On Windows, which cannot open folders, the descriptor is None.
    """
    around = Path(os.path.realpath(folder.parent.parent))
    if mode is not None:
        _make(folder if os.name == "nt" else around, mode)
    with contextlib.ExitStack() as stack:
        opened = None
        for path in () if os.name == "nt" else (around, folder.parent.name, folder.name):
            if mode is not None and opened is not None:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(path, mode, dir_fd=opened)
            opened = stack.enter_context(_checked(path, os.O_DIRECTORY | _SEARCH, opened))
        yield opened


def _make(folder: Path, mode: int) -> None:
    if not folder.exists():
        _make(folder.parent, mode)  # unlike Path.mkdir, which makes parents that the umask alone protects
        folder.mkdir(mode, exist_ok=True)


_BINARY, _SEARCH, _NO_LINK = (getattr(os, f"O_{name}", 0) for name in ("BINARY", "PATH", "NOFOLLOW"))


@contextlib.contextmanager
def _checked(path: Path | str, flags: int, folder: int | None) -> Iterator[int]:
    """Open a file or folder, then check it. Raises OSError if it is a link or others can write to it."""
    descriptor = os.open(path, os.O_RDONLY | flags | _NO_LINK, dir_fd=folder)
    try:
        if os.name != "nt" and not _is_trusted(os.fstat(descriptor)):
            raise PermissionError(f"{path}: others can write to it")
        yield descriptor
    finally:
        os.close(descriptor)


def _is_trusted(found: os.stat_result) -> bool:
    """Whether only root, this user and those who can write ortops' sources can write to a file or folder.

    Others may add to a folder with the sticky bit, since they cannot replace another user's files in it.
    """
    package = PACKAGE.stat()
    owns_sources = package.st_mode & stat.S_IWGRP and package.st_gid == found.st_gid
    forbidden = stat.S_IWOTH if owns_sources else stat.S_IWOTH | stat.S_IWGRP
    is_sticky = stat.S_ISDIR(found.st_mode) and bool(found.st_mode & stat.S_ISVTX)
    return found.st_uid in {0, os.geteuid(), package.st_uid} and (is_sticky or not found.st_mode & forbidden)
