# SPDX-License-Identifier: MIT
"""The C compilers that link libraries: zig's, which is a Python package and knows all platforms, and this machine's."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path


def zig() -> list[str] | None:
    """The command of zig's C compiler, or None if zig is not installed."""
    return [sys.executable, "-m", "ziglang", "cc"] if find_spec("ziglang") else None


@functools.cache
def native() -> list[str] | None:
    """The command of this machine's C compiler, or None if there is none that links: some have no C library."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["cc", "-shared", "-fPIC", "-x", "c", os.devnull, "-lm", "-o", str(Path(folder, "empty"))]
        try:
            done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603
        except OSError:
            return None
    return command[:1] if done.returncode == 0 else None


def run(command: Sequence[str], folder: Path) -> None:
    """Run a C compiler, with a temporary folder for zig's cache if there is no other. Raise RuntimeError if it fails."""
    cache = {} if _has_cache() else {"ZIG_GLOBAL_CACHE_DIR": str(folder)}
    environment = os.environ | cache
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)  # noqa: S603
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:6])} fails: {done.stderr.strip()}")


def _has_cache() -> bool:
    """Whether zig can write to the folder that it takes for its cache. On Windows there always is one."""
    if os.name == "nt" or os.environ.get("ZIG_GLOBAL_CACHE_DIR"):
        return True
    around = os.environ.get("XDG_CACHE_HOME") or (os.environ.get("HOME") and f"{os.environ['HOME']}/.cache")
    if not around:
        return False
    try:
        Path(around, "zig").mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(Path(around, "zig"), os.W_OK)
