# SPDX-License-Identifier: MIT OR Apache-2.0
"""Results of the reference on disk, so that the next run of the suite does not compute them again.

A process of a run finds them in a database in the user's cache folder, by a digest of what decides them. The database's name
has a digest of the sources of the suite, the reference and the definitions; if one changes, a new database replaces the old
one. Without a writable folder, with a full disk or with a damaged file, results are computed as in the first run.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import multiprocessing
import os
import platform
import sqlite3
import sys
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import ortops.spec

Tensors = Mapping[str, npt.NDArray[np.float64]]

MAX_BYTES = 2**18
"""The largest result that is stored. Results of the suite's small cases have a few KiB, and all of them 40 MiB."""

_ROOTS = (Path(__file__).parent, Path(ortops.spec.__file__).parent)


_is_enabled = False


def store_results() -> None:
    """Let a child process of a run store results. Others may have replaced functions of the reference, as tests do."""
    global _is_enabled  # noqa: PLW0603  # for the rest of the process
    _is_enabled = multiprocessing.parent_process() is not None


def stored(key: Hashable, compute: Callable[[], Tensors]) -> Tensors:
    """The result of `compute`, which has run with this key in this process or an earlier one.

    It is computed unless the process has called `store_results`.

    Args:
        key: what decides the result besides the sources; equal keys have equal representations.
        compute: returns arrays in float64.
    """
    database = _database() if _is_enabled else None
    if database is None:
        return compute()
    digest = hashlib.sha256(repr(key).encode()).digest()
    with contextlib.suppress(sqlite3.Error, ValueError):
        if row := database.execute("SELECT head, body FROM results WHERE digest = ?", (digest,)).fetchone():
            return _decoded(*row)
    result = compute()
    if sum(array.nbytes for array in result.values()) <= MAX_BYTES:
        with contextlib.suppress(sqlite3.Error), database:
            database.execute("INSERT OR IGNORE INTO results VALUES (?, ?, ?)", (digest, *_encoded(result)))
    return result


def _encoded(result: Tensors) -> tuple[str, bytes]:
    head = json.dumps({name: array.shape for name, array in result.items()})
    return head, b"".join(np.asarray(array, np.float64).tobytes() for array in result.values())


def _decoded(head: str, body: bytes) -> Tensors:
    """The arrays. Raises ValueError if the body has another length than the head says."""
    shapes = json.loads(head)
    ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes.values()])
    values = np.frombuffer(body, np.float64)
    if len(values) != ends[-1]:
        raise ValueError("the database is damaged")
    parts = np.split(values, ends[:-1])
    return {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


@functools.cache
def _database() -> Any:
    """The connection of this process, or None if there can be no database."""
    home = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or Path.home() / ".cache"
    folder = Path(home) / "ortops"
    name = f"results-{_digest_of_sources()}.sqlite"
    with contextlib.suppress(OSError, RuntimeError, sqlite3.Error):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for other in set(folder.glob("results-*.sqlite*")):
            if not other.name.startswith(name):
                other.unlink(missing_ok=True)
        with contextlib.ExitStack() as stack:
            database = sqlite3.connect(folder / name, timeout=10.0, check_same_thread=False)
            stack.callback(database.close)
            database.execute("PRAGMA journal_mode = WAL")  # processes do not wait for each other
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute(
                "CREATE TABLE IF NOT EXISTS results (digest BLOB PRIMARY KEY, head TEXT, body BLOB) WITHOUT ROWID"
            )
            stack.pop_all()
            return database
    return None


def _digest_of_sources() -> str:
    """A digest of all sources of this package and of `ortops`, and of what runs them."""
    digest = hashlib.sha256(f"{sys.version} {np.__version__} {platform.machine()}".encode())
    for root in _ROOTS:
        for path in sorted(root.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
