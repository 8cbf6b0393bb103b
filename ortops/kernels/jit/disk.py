"""Machine code on disk: the archives of an installed wheel, and the cache of kernels compiled on this machine.

A wheel has one archive for each CPU level (`cpu_levels.py`), made by `build.py`. The cache has one file for each kernel and
tuple of argument types, in the first folder that can be written. A file begins with the digest of its code and of all that
the code was made from; a file whose digest does not match is compiled again and replaced. Files are independent, so any
number of processes may write at once.

The code is executed as it is read, so a folder that other users can write to is never read.
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
"""The size in bytes of the digest at the start of a file."""

PACKAGE = Path(__file__).parents[1]
"""The folder with the source files of the kernels."""

ARCHIVES = PACKAGE / "compiled"
"""The folder in which a wheel installs its archives."""


def find(name: str, arg_types: tuple[str, ...]) -> bytes | None:
    """The machine code of a kernel for this CPU from a wheel's archive or the cache; None if neither has it."""
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
    """Store the machine code of a kernel in the first folder that can be written, if any."""
    key = _key(name, arg_types)
    for path in _paths(name, key, make=True):
        with contextlib.suppress(OSError):
            _write(path, _digest(key, code) + code)
            return


def member_name(name: str, arg_types: tuple[str, ...]) -> str:
    """The name of an archive's member for a kernel and its argument types."""
    return f"{name}({','.join(arg_types)})"


def archive_name(level: str) -> str:
    """The file name of a level's archive; it names the platform, which decides object format and calling convention."""
    return f"{sys.platform}-{level}.zip"


def _installed(name: str, arg_types: tuple[str, ...]) -> bytes | None:
    """A kernel's code from the archive of the best CPU level that has it, or None.

    Archives count only if they were built from the installed sources and if the environment sets no options of numba. Each
    call opens the archive anew, since forked processes would share the position in an open file. Members have checksums.
    """
    if not sources() or numba_options():
        return None
    for level in cpu_levels.supported():
        # Measured: zipfile raises seven types of exceptions for archives with a flipped bit.
        with contextlib.suppress(Exception), zipfile.ZipFile(ARCHIVES / archive_name(level)) as archive:
            if archive.comment == sources():
                return archive.read(member_name(name, arg_types))
    return None


def numba_options() -> list[tuple[str, str]]:
    """The environment variables of numba that may change the generated code, with their values."""
    return sorted(
        item for item in os.environ.items() if item[0].startswith("NUMBA_") and item[0] not in _IGNORED_OPTIONS
    )


_IGNORED_OPTIONS = (
    *("NUMBA_CACHE_DIR", "NUMBA_DISABLE_CUDA", "NUMBA_DISABLE_JIT", "NUMBA_NUM_THREADS", "NUMBA_THREADING_LAYER"),
    *("NUMBA_CAPTURED_ERRORS", "NUMBA_COLOR_SCHEME", "NUMBA_DISABLE_PERFORMANCE_WARNINGS", "NUMBA_FULL_TRACEBACKS"),
)
"""Options that do not change the code: they choose the cache folder, switch compilation off, or set threads and messages."""


def _key(name: str, arg_types: tuple[str, ...]) -> bytes:
    """The identity of machine code: kernel, argument types, CPU, and the compiler's versions and options."""
    return repr((name, arg_types, machine_code.processor(), _compiler(), numba_options())).encode()


@functools.cache
def _compiler() -> tuple[str, ...]:
    return tuple(importlib.metadata.version(package) for package in ("numba", "llvmlite"))


def _digest(key: bytes, code: bytes) -> bytes:
    return hashlib.sha256(b"\0".join([sources(), key, code])).digest()


@functools.cache
def sources() -> bytes:
    """The digest of all source files of the kernels; empty if they cannot be read."""
    digest = hashlib.sha256()
    paths = sorted(PACKAGE.rglob("*.py"))
    for path in paths:
        digest.update(f"{path.relative_to(PACKAGE).as_posix()}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.digest() if paths else b""


def _paths(name: str, key: bytes, make: bool = False) -> Iterator[Path]:
    # Without sources (for example in a zip file) stale code could not be told from current code.
    if sources():
        for folder in folders(make):
            yield folder / f"{name}-{hashlib.sha256(key).hexdigest()[:16]}.o"


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically.

    Raises:
        OSError: the file cannot be written.
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
    """The cache's folders, in the order in which they are tried.

    If $NUMBA_CACHE_DIR is set, it is the only one. Otherwise: `__pycache__` beside the sources, which a read-only
    installation may fill in advance; the user's cache folder; and a private folder among the temporary files. The last two
    are skipped unless they exist (or `make` can create them), belong to the user, and nobody else can write to them.

    Args:
        make: whether to create the user's own folders.
    """
    part = f"ortops_{hashlib.sha256(os.fsencode(PACKAGE)).hexdigest()[:16]}"
    if os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(os.environ["NUMBA_CACHE_DIR"], part)
        return
    yield Path(importlib.util.cache_from_source(str(PACKAGE / "code.py"))).parent
    for folder, forbidden in _folders_of_user():
        if _is_private(folder, forbidden, make):
            yield folder / part


def _folders_of_user() -> Iterator[tuple[Path, int]]:
    """The user's own folders, each with the mode bits that must not be set."""
    cache = _user_cache()
    # The path is relative if no home is known. Under sudo, HOME may belong to another user, who could replace the folder.
    if cache.is_absolute() and (os.name == "nt" or _owner(cache) == os.geteuid()):
        yield cache, stat.S_IWGRP | stat.S_IWOTH
    if os.name != "nt":  # on Windows the folder for temporary files belongs to the user anyway
        with contextlib.suppress(OSError):
            yield Path(tempfile.gettempdir(), f"ortops-{os.geteuid()}"), stat.S_IRWXG | stat.S_IRWXO


def _user_cache() -> Path:
    """The platform's cache folder of this user."""
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.expanduser raises where no home is known
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local", "ortops", "Cache")
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "ortops"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache", "ortops")


def _owner(path: Path) -> int | None:
    """The owner's id of a path, or of its nearest parent that exists."""
    for candidate in (path, *path.parents):
        with contextlib.suppress(OSError):
            return candidate.lstat().st_uid
    return None


def _is_private(folder: Path, forbidden: int, make: bool) -> bool:
    """Whether a path is a folder (no link) of the user without the mode bits `forbidden`; created first if `make`."""
    try:
        if make:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(stat.S_IRWXU, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return False
    return os.name == "nt" or (
        stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & forbidden
    )
