"""The libraries that sessions of this package register: those in a wheel for Windows, or built into the cache."""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from ortops.engine import extensions
from ortops.engine.extensions import OrtError
from ortops.jit import disk
from ortops.library.targets import TARGETS, this_machine

BUILT = Path(__file__).parent / "built"
"""The folder in which a wheel for one platform has its libraries (hatch_build.py)."""


def is_preferred() -> bool:
    """Whether sessions use the libraries unless they are told otherwise: a wheel brought them, as for Windows."""
    return _in_wheel(None) is not None and not extensions.takes_c_operators()


def library_file(standard: int | None) -> str:
    """The path of a library with all types: the wheel's, or one that is built into the cache once, which takes a minute.

    Args:
        standard: as for `build_library`.

    Raises:
        OrtError: the wheel has none, and none can be built or kept.
    """
    found = _in_wheel(standard)
    if found is None:
        from ortops.library.linking import linker_of

        try:
            target = this_machine()
            linker_of(target)
            name = f"{_stem(standard)}-{target}-{_digest()}{TARGETS[target].ending}"
            found = disk.file(name, lambda: _build(standard))
        except (ValueError, RuntimeError, OSError) as error:
            raise OrtError(
                f"engine = 'library': this installation has no library and cannot build one ({error}): must be a wheel for "
                "Windows, or have the extra `library`"
            ) from error
    return str(found)


def _in_wheel(standard: int | None) -> Path | None:
    return next(BUILT.glob(f"{_stem(standard)}.*"), None)


def _stem(standard: int | None) -> str:
    """The name of a file without its ending, as hatch_build.py has it."""
    return "ortops" if standard is None else f"ortops-onnx{standard}"


@functools.cache
def _digest() -> str:
    """The digest of what a library is made from."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256(repr(disk.compiler()).encode())
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _build(standard: int | None) -> bytes:
    """The content of a library, built in a process of its own: the caller's may be a script that processes cannot import."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "library")
        command = [sys.executable, "-m", "ortops", "library", "--out", str(made)]
        command += [] if standard is None else ["--standard", str(standard)]
        paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        if subprocess.run(command, env=os.environ | paths, check=False).returncode:  # noqa: S603
            raise RuntimeError(f"{' '.join(command[1:])} fails")
        return made.read_bytes()
