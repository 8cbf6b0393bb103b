"""What several commands have in common: options, and wrong calls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from conformance.case import Case
from conformance.vectors import collect

SELECT = click.option("--select", "glob", default="*", metavar="GLOB", help="Only cases whose id the pattern matches.")
JOBS = click.option("--jobs", type=click.IntRange(min=1), metavar="J", help="Processes; one a CPU by default.")
IN_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


def out_file(option: str, text: str, metavar: str = "F") -> Callable[[Any], Any]:
    """An option for a file to write, whose folder must be there; `--html` is given to the command as `html_file`."""

    def checked(_context: click.Context, _option: click.Parameter, file: Path | None) -> Path | None:
        if file is not None and not file.parent.is_dir():
            raise click.BadParameter(f"{file.parent} is no folder")
        return file

    path = click.Path(dir_okay=False, path_type=Path)
    name = f"{option.removeprefix('--')}_file"
    return click.option(option, name, type=path, callback=checked, metavar=metavar, help=text)


def chosen(glob: str) -> list[Case]:
    """The cases whose id the pattern matches.

    Raises:
        click.BadParameter: there is none.
    """
    cases = [case for case in collect() if fnmatchcase(case.id, glob)]
    if not cases:
        raise click.BadParameter(f"{glob!r} selects no case", param_hint="--select")
    return cases


@contextlib.contextmanager
def wrong_call(hint: str | None, *errors: type[Exception]) -> Iterator[None]:
    """Where the block raises one of the errors, the value of the option or argument `hint` is wrong."""
    try:
        yield
    except errors as error:
        raise click.BadParameter(str(error), param_hint=hint) from error
