# SPDX-License-Identifier: MIT
"""Writes files atomically: other processes see the old file or the new file, never a part."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


def write(path: Path, content: str | bytes) -> None:
    """Write a file; text in UTF-8, with ``?`` for a lone surrogate.

    The function follows a link at `path`. The incomplete file lies in the same folder. Its name cannot be guessed, and the
    function never writes to an existing file or link, so other users may have write access to the folder.

    Raises:
        OSError: the file cannot be written.
    """
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    file = path.resolve()
    if file.exists() and not file.is_file():  # a device or a pipe must not be replaced
        file.write_bytes(data)
        return
    replace(file, data)


def replace(file: Path, content: bytes, mode: int = 0o666) -> None:
    """As `write`, but replace a link itself; the permissions of the file are `mode` without the bits of the umask."""
    with _part(file, mode) as part:
        part.write(content)
        part.close()
        Path(part.name).replace(file)


def check(path: Path) -> None:
    """Check that a file can be written, without changing it.

    Raises:
        OSError: its folder is missing or not writable, or its name is too long.
        ValueError: its name has a null character.
    """
    file = path.resolve()
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(file.lstat().st_mode):
            return
    with _part(file):
        pass


@contextlib.contextmanager
def _part(file: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A new empty file in the folder of `file`, removed at the end if it still exists.

    tempfile would make a file that nobody else can read, which is wrong for a report.
    """
    if not file.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"the folder {file.parent} does not exist")
    name = file.with_name(f".{secrets.token_hex(16)}.part")
    with open(name, "xb", opener=lambda path, flags: os.open(path, flags, mode)) as part:
        try:
            yield part
        finally:
            Path(part.name).unlink(missing_ok=True)
