"""The package's own library, which a wheel has, and which `python -m ortops.build` builds into a clone."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

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
