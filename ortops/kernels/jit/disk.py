"""Machine code on disk: what an installed package brings, and what this machine has compiled.

A wheel brings one archive for each level of processors (`levels.py`), made by `build.py`. What is compiled here is kept in a
file for each kernel and kinds of arguments, in the first folder that can be written. A file begins with the digest of its
code and of everything that the code was made from; a file whose digest does not match is compiled again and replaced. Files
share nothing, so any number of processes may write at once.

Code is run as it is read, so a folder that someone else could write to is never read.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import stat
import sys
import tempfile
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path

from ortops.kernels.jit import cpu_levels, machine_code

DIGEST = 32
"""Bytes at the start of a file."""

PACKAGE = Path(__file__).parents[1]
"""The folder whose source files kernels are made from."""

ARCHIVES = PACKAGE / "compiled"
"""The folder for the archives of a wheel."""


def find(name: str, arg_types: tuple[str, ...]) -> bytes | None:
    """The machine code of a kernel for this processor, or None."""
    code = _installed(name, arg_types)
    if code is not None:
        return code
    key = _key(name, arg_types)
    for path in _paths(name, key):
        with contextlib.suppress(OSError):
            content = path.read_bytes()
            if content[:DIGEST] == _digest(key, content[DIGEST:]):
                return content[DIGEST:]
    return None


def save(name: str, arg_types: tuple[str, ...], code: bytes) -> None:
    """Keep the machine code of a kernel where that is possible."""
    key = _key(name, arg_types)
    for path in _paths(name, key, make=True):
        with contextlib.suppress(OSError):
            _write(path, _digest(key, code) + code)
            return


def member_name(name: str, arg_types: tuple[str, ...]) -> str:
    """The name of a kernel's code in an archive."""
    return f"{name}({','.join(arg_types)})"


def archive_name(level: str) -> str:
    """The name of the archive for a level; the operating system stands for its object files and its calling convention."""
    return f"{sys.platform}-{level}.zip"


def _installed(name: str, arg_types: tuple[str, ...]) -> bytes | None:
    """A kernel's code from the installed archive for the best level of this processor that has it.

    Only archives that were made from the sources that are here, and as numba compiles without options. An archive is opened
    for each kernel, since processes that are forked would share the position in an open file. Members have checksums.
    """
    if not sources() or numba_options():
        return None
    for level in cpu_levels.supported():
        # Measured: of archives with a changed bit, zipfile raises seven kinds of exceptions.
        with contextlib.suppress(Exception), zipfile.ZipFile(ARCHIVES / archive_name(level)) as archive:
            if archive.comment == sources():
                return archive.read(member_name(name, arg_types))
    return None


def numba_options() -> list[tuple[str, str]]:
    """The options of numba in the environment that may change the code it makes."""
    return sorted(
        item for item in os.environ.items() if item[0].startswith("NUMBA_") and item[0] not in _IGNORED_OPTIONS
    )


_IGNORED_OPTIONS = (
    *("NUMBA_CACHE_DIR", "NUMBA_DISABLE_CUDA", "NUMBA_DISABLE_JIT", "NUMBA_NUM_THREADS", "NUMBA_THREADING_LAYER"),
    *("NUMBA_CAPTURED_ERRORS", "NUMBA_COLOR_SCHEME", "NUMBA_DISABLE_PERFORMANCE_WARNINGS", "NUMBA_FULL_TRACEBACKS"),
)
"""Options that say nothing of how kernels are compiled: where code is kept, whether numba compiles at all, which threads it
would make itself, and how it reports errors."""


def _key(name: str, arg_types: tuple[str, ...]) -> bytes:
    """What machine code is for: a kernel, its arguments, a processor, and the compiler with its options."""
    return repr((name, arg_types, machine_code.processor(), _compiler(), numba_options())).encode()


@functools.cache
def _compiler() -> tuple[str, ...]:
    return tuple(importlib.metadata.version(package) for package in ("numba", "llvmlite"))


def _digest(key: bytes, code: bytes) -> bytes:
    return hashlib.sha256(b"\0".join([sources(), key, code])).digest()


@functools.cache
def sources() -> bytes:
    """The digest of all source files that kernels are made from; empty where they cannot be read."""
    digest = hashlib.sha256()
    paths = sorted(PACKAGE.rglob("*.py"))
    for path in paths:
        digest.update(f"{path.relative_to(PACKAGE).as_posix()}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.digest() if paths else b""


def _paths(name: str, key: bytes, make: bool = False) -> Iterator[Path]:
    # Without sources (in a zip file, say) no change would be noticed.
    if sources():
        for folder in folders(make):
            yield folder / f"{name}-{hashlib.sha256(key).hexdigest()[:16]}.o"


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


def folders(make: bool = False) -> Iterator[Path]:
    """The folders for machine code, in the order in which they are tried.

    $NUMBA_CACHE_DIR and nothing else where it is set. Otherwise `__pycache__` beside the sources, to which a read-only
    installation may have been given its code beforehand; the user's cache folder; one of the user's own in the folder for
    temporary files. The last two are left out unless they exist or can be made, and belong to the user alone.

    Args:
        make: whether to make the user's own folders.
    """
    part = f"ortops_{hashlib.sha256(os.fsencode(PACKAGE)).hexdigest()[:16]}"
    if os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(os.environ["NUMBA_CACHE_DIR"], part)
        return
    yield Path(importlib.util.cache_from_source(str(PACKAGE / "code.py"))).parent
    for folder, shut in _folders_of_user():
        if _is_private(folder, shut, make):
            yield folder / part


def _folders_of_user() -> Iterator[tuple[Path, int]]:
    """Folders that the user may have, and the rights that nobody else may have there."""
    cache = _user_cache()
    # Relative where no home is known. In the home of someone else, as with sudo, that user could exchange the folder.
    if cache.is_absolute() and (os.name == "nt" or _owner(cache) == os.geteuid()):
        yield cache, stat.S_IWGRP | stat.S_IWOTH
    if os.name != "nt":  # where that folder is the user's anyway
        with contextlib.suppress(OSError):
            yield Path(tempfile.gettempdir(), f"ortops-{os.geteuid()}"), stat.S_IRWXG | stat.S_IRWXO


def _user_cache() -> Path:
    """The folder where a program of this user keeps what it can make again."""
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.expanduser raises where no home is known
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local", "ortops", "Cache")
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "ortops"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache", "ortops")


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
