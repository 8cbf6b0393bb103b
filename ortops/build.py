# SPDX-License-Identifier: MIT
"""``python -m ortops.build``: builds the package's own library, which every process loads."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import click

from ortops import atomic_file
from ortops.extras import compiling
from ortops.help_text import keep_names_whole
from ortops.runtime import BUILT, ENDING, library_file, sources_digest

keep_names_whole()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--target", metavar="NAME", help="The platform, as of `python -m ortops library`. [default: this machine's]"
)
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="The file to write. [default: the package's]"
)
@click.option("--jobs", type=click.IntRange(min=1), help="The number of processes that compile. [default: one per CPU]")
def main(target: str | None, out: Path | None, jobs: int | None) -> None:
    """Build the library with all operators, of which this package calls the functions.

    It lies in the package. If there is one of the same sources, nothing is done. Otherwise what has changed is compiled, and
    older libraries are removed. With --out, it is built into a file, for any platform. The extra `compile` has numba.
    """
    try:
        if out is not None:
            atomic_file.check(out)
            atomic_file.write(out, _library(target, jobs))
        elif target is not None:
            raise click.UsageError("--target: must be given with --out")
        elif library_file() is None:
            _build(jobs)
    except OSError as error:
        raise click.ClickException(f"{out or BUILT} cannot be written: {error.strerror or error}") from error
    except (ImportError, ValueError, RuntimeError) as error:
        raise click.ClickException(str(error)) from error


def _build(jobs: int | None) -> None:
    """Build the package's library, unless another process has built it meanwhile."""
    BUILT.mkdir(exist_ok=True)
    with _locked(BUILT / ".lock"):
        path = BUILT / f"ortops-{sources_digest()}{ENDING}"
        if not path.is_file():
            atomic_file.write(path, _library(None, jobs))
        for older in BUILT.iterdir():  # and what ended processes have left of theirs
            if older.name not in (path.name, ".lock"):
                with contextlib.suppress(OSError):  # Windows keeps what a process has loaded
                    older.unlink()


def _library(target: str | None, jobs: int | None) -> bytes:
    """The content of the library."""
    with compiling():
        from ortops.library.content import exports_of, library_with
        from ortops.library.targets import FLOAT_TYPES, this_machine
        from ortops.operators import OPERATORS

        return library_with(exports_of(OPERATORS, FLOAT_TYPES), target or this_machine(), jobs=jobs)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, after any other process that holds it. It ends with the process, and no child has it."""
    with path.open("ab") as file:
        if not _lock(file):
            click.echo("another process builds the library: waiting for it", err=True)
            while not _lock(file):
                time.sleep(0.1)
        yield


if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[bytes]) -> bool:
        """Take the lock of a file; say whether this process has it."""
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _lock(file: IO[bytes]) -> bool:
        """Take the lock of a file; say whether this process has it."""
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        return True


if __name__ == "__main__":
    main(prog_name="python -m ortops.build")
