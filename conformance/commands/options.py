"""Options of several commands, and the errors for wrong calls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from conformance.case import Case
from conformance.vectors import collect
from ortops import atomic_file

SELECT = click.option("--select", "glob", default="*", metavar="GLOB", help="Only cases whose id matches.")
JOBS = click.option("--jobs", type=click.IntRange(min=1), metavar="J", help="Processes, by default one for each CPU.")
IN_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


def out_file(option: str, text: str, metavar: str = "F") -> Callable[[Any], Any]:
    """An option for a file to write, which is tried before the command begins; the command gets `--html` as `html_file`."""

    def checked(_context: click.Context, _option: click.Parameter, file: Path | None) -> Path | None:
        if file is not None:
            if not file.parent.is_dir():
                raise click.BadParameter(f"{file.parent}: must be a folder")
            try:
                atomic_file.check(file)
            except (OSError, ValueError) as error:
                raise click.BadParameter(f"{file}: cannot be written: {getattr(error, 'strerror', error)}") from error
        return file

    path = click.Path(dir_okay=False, path_type=Path)
    name = f"{option.removeprefix('--')}_file"
    return click.option(option, name, type=path, callback=checked, metavar=metavar, help=text)


def selected_cases(glob: str) -> list[Case]:
    """The cases whose id matches the pattern.

    Raises:
        click.BadParameter: there are none.
    """
    cases = [case for case in collect() if fnmatchcase(case.id, glob)]
    if not cases:
        raise click.BadParameter(f"{glob!r} selects no case", param_hint="--select")
    return cases


@contextlib.contextmanager
def wrong_call(hint: str | None, *errors: type[Exception]) -> Iterator[None]:
    """Report one of the errors, raised in the block, as a wrong value of the option or argument `hint`."""
    try:
        yield
    except errors as error:
        raise click.BadParameter(str(error), param_hint=hint) from error
