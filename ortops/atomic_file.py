"""Writes files atomically: other processes see the old file or the new one, never a part."""

from __future__ import annotations

import contextlib
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


def write(path: Path, content: str | bytes) -> None:
    """Write a file; text in UTF-8, with ``?`` for a lone surrogate.

    A link at `path` is followed. The part that is not yet complete lies beside the file. Its name cannot be guessed, and
    neither a file nor a link of that name is written to, so others may be allowed to write to the folder.

    Raises:
        OSError: it cannot be written.
    """
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    file = path.resolve()
    if file.exists() and not file.is_file():  # a device or a pipe must not be replaced
        file.write_bytes(data)
        return
    with _part(file) as part:
        part.write(data)
        part.close()
        Path(part.name).replace(file)


def check(path: Path) -> None:
    """Try whether a file can be written, and leave it as it is.

    Raises:
        OSError: its folder is missing or takes no files, or its name is too long.
        ValueError: its name has a null character.
    """
    file = path.resolve()
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(file.lstat().st_mode):
            return
    with _part(file):
        pass


@contextlib.contextmanager
def _part(file: Path) -> Iterator[BinaryIO]:
    """A new empty file beside `file`, which is removed at the end if it is still there.

    tempfile would make one that nobody else can read, and a report must not become so.
    """
    with file.with_name(f".{secrets.token_hex(16)}.part").open("xb") as part:
        try:
            yield part
        finally:
            Path(part.name).unlink(missing_ok=True)
